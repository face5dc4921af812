import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes the topics of the tiered archive (sample_logs/README.md) to a running broker, with Kafka's own clients.
 *
 * Arguments: bootstrap servers; `first`, `second` or `last`, the life of the broker; the size, about the number of segments
 * that each life adds to a partition. Leaves one transaction open at the end of `first` and of `second`, which the next life
 * aborts: this process halts without closing its producer.
 */
public final class TieredWriter {
    private static final long HOUR_MS = 3_600_000;
    private static final int SEGMENT_BYTES = 12_288;
    private static final int VALUE_BYTES = 420;
    private static final int RECORDS_OF_SEGMENT = SEGMENT_BYTES / VALUE_BYTES;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final String[] WORDS = ("archive bucket object tier remote local copy delete manifest lineage epoch leader "
        + "segment offset batch record index snapshot producer transaction commit abort marker retention").split(" ");

    private final String bootstrapServers;
    private final String life;
    private final int size;
    private final Random random;
    private final Admin admin;

    private TieredWriter(String bootstrapServers, String life, int size) {
        this.bootstrapServers = bootstrapServers;
        this.life = life;
        this.size = size;
        this.random = new Random(life.hashCode());
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrapServers));
    }

    public static void main(String[] args) throws Exception {
        TieredWriter writer = new TieredWriter(args[0], args[1], Integer.parseInt(args[2]));
        if (args[1].equals("first"))
            writer.createTopics();
        writer.write();
        if (args[1].equals("last"))
            writer.deleteSome();
        else
            writer.leaveTransactionOpen();
        System.out.println("done");
        Runtime.getRuntime().halt(0);
    }

    private void createTopics() throws Exception {
        create("plain", 2, Map.of());
        create("transactions", 2, Map.of());
        create("codecs", 1, Map.of());
        create("expired-by-size", 1, Map.of("retention.bytes", String.valueOf(4 * SEGMENT_BYTES)));
        create("expired-by-time", 1, Map.of("retention.ms", String.valueOf(24 * HOUR_MS)));
        create("failing-delete", 1, Map.of("retention.bytes", String.valueOf(4 * SEGMENT_BYTES)));
        create("lost-delete", 1, Map.of("retention.bytes", String.valueOf(4 * SEGMENT_BYTES)));
        create("deleted-records", 1, Map.of());
        create("stuck-copy", 1, Map.of());
        create("gone", 2, Map.of());
        create("empty", 1, Map.of());
        create("untiered", 1, Map.of("remote.storage.enable", "false"));
    }

    private void create(String name, int partitions, Map<String, String> overrides) throws Exception {
        Map<String, String> configs = new HashMap<>(Map.of("remote.storage.enable", "true", "retention.ms", "-1",
            "internal.segment.bytes", String.valueOf(SEGMENT_BYTES), "index.interval.bytes", "1024"));
        configs.putAll(overrides);
        if (configs.get("remote.storage.enable").equals("true"))
            configs.put("local.retention.bytes", String.valueOf(SEGMENT_BYTES));
        if (!configs.get("retention.ms").equals("-1"))
            configs.put("local.retention.ms", "1000");
        admin.createTopics(List.of(new NewTopic(name, Optional.of(partitions), Optional.empty()).configs(configs)))
            .all().get();
    }

    private void write() throws Exception {
        long now = System.currentTimeMillis();
        for (int partition = 0; partition < 2; partition++) {
            plain("plain", partition, size, now - 5 * HOUR_MS);
            if (!life.equals("last"))
                plain("gone", partition, 2, now);
        }
        for (String topic : List.of("expired-by-size", "failing-delete", "lost-delete"))
            plain(topic, 0, Math.max(3, size), now);
        plain("expired-by-time", 0, size, now - (life.equals("last") ? 1 : 30) * HOUR_MS);
        plain("deleted-records", 0, size, now);
        plain("stuck-copy", 0, 2, now);
        plain("untiered", 0, 2, now);
        codecs();
        transactions();
    }

    /** Idempotent, spread over an hour from *start* on, with headers and nulls here and there. */
    private void plain(String topic, int partition, int segments, long start) throws Exception {
        int records = segments * RECORDS_OF_SEGMENT;
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int i = 0; i < records; i++)
                producer.send(record(topic, partition, start + i * (HOUR_MS / records)));
            producer.flush();
        }
    }

    private void codecs() throws Exception {
        long start = System.currentTimeMillis() - 3 * HOUR_MS;
        for (String codec : CODECS) {
            boolean isIdempotent = random.nextBoolean();
            try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", codec, "batch.size", "6000",
                     "linger.ms", "20", "enable.idempotence", String.valueOf(isIdempotent)))) {
                for (int i = 0; i < size * RECORDS_OF_SEGMENT; i++)
                    producer.send(record("codecs", 0, start + random.nextInt((int) HOUR_MS)));
                producer.flush();
            }
        }
    }

    /** Short transactions of two producers within a long one, which begins segments before it ends, once each way. */
    private void transactions() throws Exception {
        for (boolean commitsLong : new boolean[] {true, false}) {
            try (KafkaProducer<byte[], byte[]> held = transactional("held");
                 KafkaProducer<byte[], byte[]> one = transactional("one");
                 KafkaProducer<byte[], byte[]> two = transactional("two");
                 KafkaProducer<byte[], byte[]> plain = producer(Map.of())) {
                held.beginTransaction();
                for (int round = 0; round < 2 * size; round++) {
                    send(held, 2);
                    send(plain, 2);
                    one.beginTransaction();
                    two.beginTransaction();
                    send(one, 2 + random.nextInt(8));
                    send(two, 2 + random.nextInt(8));
                    send(one, 2 + random.nextInt(8));
                    end(one, random.nextInt(3) > 0);
                    end(two, random.nextInt(3) > 0);
                }
                end(held, commitsLong);
            }
        }
    }

    private void leaveTransactionOpen() throws Exception {
        KafkaProducer<byte[], byte[]> held = transactional("held");
        held.beginTransaction();
        send(held, 6);
    }

    private void send(KafkaProducer<byte[], byte[]> producer, int records) throws Exception {
        for (int partition = 0; partition < 2; partition++)
            for (int i = 0; i < records; i++)
                producer.send(record("transactions", partition, System.currentTimeMillis()));
        producer.flush();
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, boolean commits) {
        if (commits)
            producer.commitTransaction();
        else
            producer.abortTransaction();
    }

    /** A topic, and the first records of a partition, up to the middle of a segment. */
    private void deleteSome() throws Exception {
        admin.deleteTopics(List.of("gone")).all().get();
        long offset = size * RECORDS_OF_SEGMENT + RECORDS_OF_SEGMENT / 2;
        TopicPartition partition = new TopicPartition("deleted-records", 0);
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(offset))).all().get();
    }

    private KafkaProducer<byte[], byte[]> transactional(String id) {
        KafkaProducer<byte[], byte[]> producer =
            producer(Map.of("transactional.id", id, "transaction.timeout.ms", "900000"));
        producer.initTransactions();
        return producer;
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> overrides) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrapServers);
        properties.put("batch.size", "2048");
        properties.put("linger.ms", "2");
        properties.putAll(overrides);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private ProducerRecord<byte[], byte[]> record(String topic, int partition, long timestamp) {
        int number = random.nextInt(1000);
        byte[] key = number % 5 == 0 ? null : ByteBuffer.allocate(4).putInt(number).array();
        byte[] value = number % 50 == 1 ? null : text();
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, timestamp, key, value);
        if (number % 7 == 0)
            record.headers().add("life", life.getBytes(StandardCharsets.UTF_8));
        if (number % 21 == 0)
            record.headers().add("nothing", null).add("life", new byte[0]);
        return record;
    }

    /** About VALUE_BYTES of text that compresses well: few words, often repeated. */
    private byte[] text() {
        List<String> phrase = new ArrayList<>();
        for (int i = 0; i < 6; i++)
            phrase.add(WORDS[random.nextInt(WORDS.length)]);
        StringBuilder text = new StringBuilder();
        int length = VALUE_BYTES - 80 + random.nextInt(60);
        while (text.length() < length)
            text.append(phrase.get(random.nextInt(phrase.size()))).append(' ');
        return text.append(random.nextInt(100_000)).toString().getBytes(StandardCharsets.UTF_8);
    }
}
