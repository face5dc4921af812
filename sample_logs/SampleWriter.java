import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes what sample_logs/README.md describes to a running broker, with Kafka's own clients.
 *
 * Arguments: bootstrap servers, and one of `first`, `second`, `last` (the three lives of the crashed broker), `intact` and
 * `stopped` (brokers that are stopped cleanly), `old-topics` (the topics that take the v0/v1 logs), `any-version` (what a 3.9
 * broker can do too). After `last` and `any-version` this process keeps transactions open until its stdin is closed, so that the
 * broker can be killed in the middle of them.
 */
public final class SampleWriter {
    private static final long HOUR_MS = 3_600_000;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final String[] WORDS = ("broker leader follower replica segment offset epoch batch record index snapshot "
        + "checkpoint producer consumer transaction commit abort marker fetch append flush roll truncate recover").split(" ");

    private final String bootstrapServers;
    private final Random random;
    private final Admin admin;
    private final List<KafkaProducer<byte[], byte[]>> leftOpen = new ArrayList<>();

    private SampleWriter(String bootstrapServers, String life) {
        this.bootstrapServers = bootstrapServers;
        this.random = new Random(life.hashCode());
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrapServers);
        this.admin = Admin.create(properties);
    }

    public static void main(String[] args) throws Exception {
        SampleWriter writer = new SampleWriter(args[0], args[1]);
        switch (args[1]) {
            case "first" -> writer.firstLife();
            case "second" -> writer.secondLife();
            case "last" -> writer.lastLife();
            case "intact" -> writer.intact();
            case "stopped" -> writer.stopped();
            case "old-topics" -> writer.oldTopics();
            case "any-version" -> writer.anyVersion();
            default -> throw new IllegalArgumentException(args[1]);
        }
        System.out.println("done");
        while (!writer.leftOpen.isEmpty() && System.in.read() >= 0)
            continue;
        Runtime.getRuntime().halt(0);  // closing the producers would abort the transaction that is to stay open
    }

    private void firstLife() throws Exception {
        for (String codec : CODECS)
            create("codec-" + codec, 1, Map.of("internal.segment.bytes", "49152"));
        create("many-producers", 2, Map.of("internal.segment.bytes", "49152"));
        create("transactions", 3, Map.of("internal.segment.bytes", "24576"));
        create("compacted", 1, Map.of("cleanup.policy", "compact", "internal.segment.bytes", "16384",
            "min.cleanable.dirty.ratio", "0.01", "delete.retention.ms", "100"));
        create("append-time", 1, Map.of("message.timestamp.type", "LogAppendTime", "internal.segment.bytes", "32768"));
        create("out-of-order", 1, Map.of("internal.segment.bytes", "32768"));
        create("tiny-batches", 1, Map.of("internal.segment.bytes", "65536", "retention.ms", "-1"));
        create("own-index", 1, Map.of("internal.segment.bytes", "65536", "index.interval.bytes", "64",
            "segment.index.bytes", "10485760"));
        create("deleted-records", 1, Map.of("internal.segment.bytes", "16384"));
        create("preallocated", 1, Map.of("internal.segment.bytes", "131072", "preallocate", "true"));
        create("short-segments", 1, Map.of("segment.ms", "60000"));
        create("tiered", 1, Map.of("remote.storage.enable", "true", "internal.segment.bytes", "16384",
            "local.retention.bytes", "40000", "retention.ms", "-1"));
        create("empty", 1, Map.of());
        create("to-be-deleted", 1, Map.of("internal.segment.bytes", "16384"));
        write("to-be-deleted", producer(Map.of()), 60);
        codecs(250);
        manyProducers(40);
        transactions(25);
        compacted(600);
        appendTime(100);
        outOfOrder(150);
        tinyBatches(1200);
        ownIndex(300);
        write("deleted-records", producer(Map.of()), 120);
        write("preallocated", producer(Map.of()), 150);
        write("tiered", producer(Map.of()), 150);
        shortSegments(6);
        group();
    }

    private void secondLife() throws Exception {
        codecs(150);
        manyProducers(30);
        transactions(15);
        compacted(600);
        tinyBatches(400);
        write("tiered", producer(Map.of()), 150);
        write("deleted-records", producer(Map.of()), 60);
    }

    private void lastLife() throws Exception {
        create("late", 2, Map.of("internal.segment.bytes", "16384"));
        create("large-batches", 1, Map.of());
        create("shapes", 1, Map.of());
        // A deletion makes the broker checkpoint all recovery points of that dir: first, so that what follows is unflushed.
        admin.deleteTopics(List.of("to-be-deleted")).all().get();
        write("tiered", producer(Map.of()), 150);
        codecs(250);
        manyProducers(60);
        transactions(40);
        compacted(400);
        appendTime(150);
        outOfOrder(150);
        tinyBatches(1500);
        ownIndex(200);
        write("deleted-records", producer(Map.of()), 120);
        write("preallocated", producer(Map.of()), 250);
        write("late", producer(Map.of()), 200);
        shortSegments(6);
        largeBatches();
        shapes();
        group();
        TopicPartition partition = new TopicPartition("deleted-records", 0);
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(137))).all().get();
        transactionsLeftOpen();
    }

    /** Nothing here gives the next start anything to do. */
    private void intact() throws Exception {
        create("plain", 2, Map.of("internal.segment.bytes", "16384"));
        create("transactions", 1, Map.of("internal.segment.bytes", "16384"));
        create("deleted-records", 1, Map.of("internal.segment.bytes", "16384"));
        write("plain", producer(Map.of()), 200);
        transactions(12);
        write("deleted-records", producer(Map.of()), 120);
        TopicPartition partition = new TopicPartition("deleted-records", 0);
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(11))).all().get();
    }

    /** The next start tidies: a leader epoch without records, snapshots below the log start offset. */
    private void stopped() throws Exception {
        create("plain", 2, Map.of("internal.segment.bytes", "16384"));
        create("deleted-records", 1, Map.of("internal.segment.bytes", "16384"));
        create("empty", 1, Map.of());
        write("plain", producer(Map.of()), 200);
        write("deleted-records", producer(Map.of()), 120);
        TopicPartition partition = new TopicPartition("deleted-records", 0);
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(55))).all().get();
    }

    /** What a 3.9 broker can do as well, written and then left with open transactions. */
    private void anyVersion() throws Exception {
        for (String codec : CODECS)
            create("codec-" + codec, 1, Map.of("segment.bytes", "1048576"));
        create("many-producers", 2, Map.of("segment.bytes", "1048576"));
        create("transactions", 3, Map.of("segment.ms", "3000"));
        create("tiny-batches", 1, Map.of("index.interval.bytes", "512"));
        create("append-time", 1, Map.of("message.timestamp.type", "LogAppendTime"));
        codecs(200);
        manyProducers(40);
        transactions(12);
        tinyBatches(800);
        appendTime(60);
        transactionsLeftOpen();
        untilNoneIsEnding();
    }

    /** Waits for the markers of every commit: a coordinator that is killed before writes them again, or gives some up. */
    private void untilNoneIsEnding() throws Exception {
        Set<TransactionState> ending = Set.of(TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT);
        while (admin.listTransactions().all().get().stream().anyMatch(one -> ending.contains(one.state())))
            Thread.sleep(50);
    }

    private void oldTopics() throws Exception {
        for (String name : List.of("old-v0", "old-v0-gzip", "old-v1", "old-v1-lz4", "up-v1v2"))
            create(name, 1, Map.of("internal.segment.bytes", "262144"));
        create("old-v1-snappy-lat", 1,
            Map.of("internal.segment.bytes", "262144", "message.timestamp.type", "LogAppendTime"));
    }

    private void create(String name, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, Optional.of(partitions), Optional.empty()).configs(configs)))
            .all().get();
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> overrides) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrapServers);
        properties.put("batch.size", "4096");
        properties.put("linger.ms", "2");
        properties.putAll(overrides);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Idempotent (the default), batches of a few records. */
    private void write(String topic, KafkaProducer<byte[], byte[]> producer, int records) throws Exception {
        try (producer) {
            send(producer, topic, records);
            producer.flush();
        }
    }

    private void send(KafkaProducer<byte[], byte[]> producer, String topic, int records) {
        for (int i = 0; i < records; i++)
            producer.send(new ProducerRecord<>(topic, key(i), text(50 + random.nextInt(800))));
    }

    private void codecs(int records) throws Exception {
        for (String codec : CODECS) {
            int count = codec.equals("none") ? records : records * 3;
            for (String idempotence : List.of("true", "false"))
                write("codec-" + codec,
                    producer(Map.of("compression.type", codec, "enable.idempotence", idempotence, "batch.size", "8192")),
                    count / 2);
        }
    }

    /** Every producer has an id of its own; a broker hands out ids in blocks of 1000, each of its lives a new block. */
    private void manyProducers(int producers) throws Exception {
        List<KafkaProducer<byte[], byte[]>> open = new ArrayList<>();
        for (int i = 0; i < producers; i++)
            open.add(producer(Map.of("linger.ms", "0", "batch.size", "512")));
        for (int round = 0; round < 4; round++) {
            for (KafkaProducer<byte[], byte[]> one : open) {
                int partition = random.nextInt(2);
                one.send(new ProducerRecord<>("many-producers", partition, key(round), text(20 + random.nextInt(300)))).get();
            }
        }
        open.forEach(KafkaProducer::close);
    }

    /** Overlapping transactions over several partitions, a third of them aborted, one producer fenced by its successor. */
    private void transactions(int rounds) throws Exception {
        int partitions = admin.describeTopics(List.of("transactions")).allTopicNames().get()
            .get("transactions").partitions().size();
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            producers.add(producer(Map.of("transactional.id", "sample-" + i)));
            producers.get(i).initTransactions();
        }
        boolean[] open = new boolean[producers.size()];
        for (int round = 0; round < rounds * producers.size(); round++) {
            int i = random.nextInt(producers.size());
            KafkaProducer<byte[], byte[]> producer = producers.get(i);
            if (!open[i]) {
                producer.beginTransaction();
                open[i] = true;
            }
            for (int n = random.nextInt(3); n >= 0; n--)
                sendAndWait(producer, new ProducerRecord<>("transactions", random.nextInt(partitions), key(n),
                    text(30 + random.nextInt(400))));
            int end = random.nextInt(6);
            if (end < 3) {
                if (end < 2)
                    producer.commitTransaction();
                else
                    producer.abortTransaction();
                open[i] = false;
            }
            if (random.nextInt(8) == 0)
                try (KafkaProducer<byte[], byte[]> plain = producer(Map.of())) {
                    sendAndWait(plain, new ProducerRecord<>("transactions", random.nextInt(partitions), key(0), text(40)));
                }
        }
        KafkaProducer<byte[], byte[]> fenced = producers.get(0);
        if (!open[0])
            fenced.beginTransaction();
        sendAndWait(fenced, new ProducerRecord<>("transactions", 0, key(0), text(60)));
        try (KafkaProducer<byte[], byte[]> successor = producer(Map.of("transactional.id", "sample-0"))) {
            successor.initTransactions();  // aborts what its predecessor left open
            successor.beginTransaction();
            sendAndWait(successor, new ProducerRecord<>("transactions", 0, key(1), text(60)));
            successor.commitTransaction();
        }
        for (int i = 1; i < producers.size(); i++) {
            if (open[i])
                producers.get(i).abortTransaction();
            producers.get(i).close();
        }
        fenced.close(Duration.ZERO);
    }

    /** Two transactions that no one ends, and records of others behind them. */
    private void transactionsLeftOpen() throws Exception {
        for (String id : List.of("left-open-a", "left-open-b")) {
            KafkaProducer<byte[], byte[]> producer =
                producer(Map.of("transactional.id", id, "transaction.timeout.ms", "900000"));
            producer.initTransactions();
            producer.beginTransaction();
            for (int i = 0; i < 5; i++)
                sendAndWait(producer, new ProducerRecord<>("transactions", 1, key(i), text(100)));
            leftOpen.add(producer);
        }
        try (KafkaProducer<byte[], byte[]> other = producer(Map.of("transactional.id", "sample-3"))) {
            other.initTransactions();
            for (int i = 0; i < 4; i++) {
                other.beginTransaction();
                sendAndWait(other, new ProducerRecord<>("transactions", 1, key(i), text(80)));
                if (i % 2 == 0)
                    other.abortTransaction();
                else
                    other.commitTransaction();
            }
        }
    }

    private void compacted(int records) throws Exception {
        try (KafkaProducer<byte[], byte[]> plain = producer(Map.of("batch.size", "1024"));
             KafkaProducer<byte[], byte[]> transactional =
                 producer(Map.of("transactional.id", "compacted-writer", "batch.size", "1024"))) {
            transactional.initTransactions();
            for (int i = 0; i < records; i += 20) {
                boolean inTransaction = random.nextInt(3) == 0;
                KafkaProducer<byte[], byte[]> producer = inTransaction ? transactional : plain;
                if (inTransaction)
                    producer.beginTransaction();
                for (int n = 0; n < 20; n++) {
                    byte[] value = random.nextInt(10) == 0 ? null : text(60 + random.nextInt(100));
                    producer.send(new ProducerRecord<>("compacted", key(random.nextInt(60)), value));
                }
                producer.flush();
                if (inTransaction && random.nextBoolean())
                    producer.commitTransaction();
                else if (inTransaction)
                    producer.abortTransaction();
            }
        }
    }

    private void appendTime(int records) throws Exception {
        write("append-time", producer(Map.of()), records);
        write("append-time", producer(Map.of("compression.type", "lz4")), records);
    }

    /** Timestamps from three days back to half an hour ahead: producers old enough to have expired at the recovery. */
    private void outOfOrder(int records) throws Exception {
        for (int i = 0; i < records; i += 15) {
            try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", i % 2 == 0 ? "none" : "zstd"))) {
                long base = System.currentTimeMillis() - random.nextInt(72) * HOUR_MS;
                for (int n = 0; n < 15; n++) {
                    long timestamp = base + random.nextInt((int) HOUR_MS) - HOUR_MS / 2;
                    producer.send(new ProducerRecord<>("out-of-order", 0, timestamp, key(n), text(50 + random.nextInt(300))));
                }
                producer.flush();
            }
        }
    }

    private void tinyBatches(int records) throws Exception {
        for (String idempotence : List.of("true", "false")) {
            Map<String, String> oneByOne =
                Map.of("batch.size", "0", "linger.ms", "0", "enable.idempotence", idempotence, "acks", "all");
            try (KafkaProducer<byte[], byte[]> producer = producer(oneByOne)) {
                for (int i = 0; i < records / 2; i++)
                    producer.send(new ProducerRecord<>("tiny-batches", null, text(1 + random.nextInt(100))));
                producer.flush();
            }
        }
    }

    private void ownIndex(int records) throws Exception {
        write("own-index", producer(Map.of("batch.size", "512")), records);
    }

    /** segment.ms is one minute: records that are two minutes apart by their own timestamps. */
    private void shortSegments(int segments) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            long start = System.currentTimeMillis() - HOUR_MS;
            for (int i = 0; i < segments; i++) {
                for (int n = 0; n < 4; n++)
                    sendAndWait(producer, new ProducerRecord<>("short-segments", 0, start + i * 120_000L + n, key(n), text(90)));
            }
        }
    }

    private void largeBatches() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer =
                 producer(Map.of("batch.size", "262144", "linger.ms", "200", "max.request.size", "1000000"))) {
            for (int batch = 0; batch < 8; batch++) {
                for (int n = 5 + random.nextInt(60); n >= 0; n--)
                    producer.send(new ProducerRecord<>("large-batches", key(n), text(500 + random.nextInt(3000))));
                producer.flush();
            }
            sendAndWait(producer, new ProducerRecord<>("large-batches", key(0), text(300_000)));
        }
    }

    private void shapes() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", "0"))) {
            ProducerRecord<byte[], byte[]> withHeaders = new ProducerRecord<>("shapes", key(1), text(30));
            withHeaders.headers().add(new RecordHeader("kind", "sample".getBytes(StandardCharsets.UTF_8)));
            withHeaders.headers().add(new RecordHeader("nothing", null));
            sendAndWait(producer, withHeaders);
            sendAndWait(producer, new ProducerRecord<>("shapes", null, null));
            sendAndWait(producer, new ProducerRecord<>("shapes", new byte[0], new byte[0]));
            sendAndWait(producer, new ProducerRecord<>("shapes", null, text(20_000)));
        }
    }

    /** A consumer that commits and leaves, and offsets committed inside a transaction. */
    private void group() throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrapServers);
        properties.put("group.id", "sample-group");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", "sample-offsets"))) {
            consumer.subscribe(List.of("codec-none"));
            for (int i = 0; i < 40 && consumer.poll(Duration.ofMillis(250)).isEmpty(); i++)
                continue;
            consumer.commitSync();
            producer.initTransactions();
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            offsets.put(new TopicPartition("codec-gzip", 0), new OffsetAndMetadata(7));
            producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata("sample-offsets-group"));
            producer.commitTransaction();
        }
    }

    private static void sendAndWait(KafkaProducer<byte[], byte[]> producer, ProducerRecord<byte[], byte[]> record)
            throws Exception {
        Future<RecordMetadata> sent = producer.send(record);
        producer.flush();
        sent.get();
    }

    private byte[] key(int number) {
        return ByteBuffer.allocate(4).putInt(number).array();
    }

    private byte[] text(int length) {
        StringBuilder text = new StringBuilder();
        while (text.length() < length)
            text.append(WORDS[random.nextInt(WORDS.length)]).append(random.nextInt(1000)).append(' ');
        return text.substring(0, length).getBytes(StandardCharsets.UTF_8);
    }
}
