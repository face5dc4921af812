import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads every record of every partition with Kafka's own consumer, at both isolation levels.
 *
 * Arguments: bootstrap servers. Prints {"read_uncommitted": {"topic-0": {"beginning_offset", "end_offset", "records",
 * "bytes", "crc32c"}}, "read_committed": {..}}; the checksum runs over offset, timestamp, key, value and headers of each
 * record in order.
 */
public final class ReadCounts {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long LONGEST_SILENCE_MS = 600_000;

    public static void main(String[] args) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        for (String level : List.of("read_uncommitted", "read_committed"))
            answer.set(level, read(args[0], level));
        System.out.println(JSON.writeValueAsString(answer));
    }

    private static ObjectNode read(String bootstrapServers, String isolationLevel) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrapServers);
        properties.put("isolation.level", isolationLevel);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("exclude.internal.topics", "false");
        properties.put("max.poll.records", "5000");
        properties.put("metrics.jmx.enable", "false");
        ObjectNode counts = JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Map<String, Tally> tallies = new TreeMap<>();
            Set<TopicPartition> partitions = new HashSet<>();
            for (List<PartitionInfo> infos : consumer.listTopics().values())
                infos.forEach(info -> partitions.add(new TopicPartition(info.topic(), info.partition())));
            Map<TopicPartition, Long> beginnings = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            partitions.forEach(partition -> tallies.put(partition.toString(),
                new Tally(beginnings.get(partition), ends.get(partition))));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Set<TopicPartition> open = new HashSet<>(partitions);
            long lastProgress = System.currentTimeMillis();
            while (!open.isEmpty()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    tallies.get(record.topic() + "-" + record.partition()).add(record);
                    lastProgress = System.currentTimeMillis();
                }
                open.removeIf(partition -> consumer.position(partition) >= ends.get(partition));
                if (System.currentTimeMillis() - lastProgress > LONGEST_SILENCE_MS)
                    throw new IllegalStateException("no records for a long time, still to read: " + open);
            }
            tallies.forEach((name, tally) -> counts.set(name, tally.toJson()));
        }
        return counts;
    }

    private static final class Tally {
        private final long beginning;
        private final long end;
        private final CRC32C checksum = new CRC32C();
        private final ByteBuffer numbers = ByteBuffer.allocate(16);
        private long records = 0;
        private long bytes = 0;

        Tally(long beginning, long end) {
            this.beginning = beginning;
            this.end = end;
        }

        void add(ConsumerRecord<byte[], byte[]> record) {
            records++;
            checksum.update(numbers.clear().putLong(record.offset()).putLong(record.timestamp()).flip());
            add(record.key());
            add(record.value());
            for (Header header : record.headers()) {
                add(header.key().getBytes(StandardCharsets.UTF_8));
                add(header.value());
            }
        }

        private void add(byte[] content) {
            checksum.update(numbers.clear().putInt(content == null ? -1 : content.length).flip());
            if (content != null) {
                checksum.update(content);
                bytes += content.length;
            }
        }

        ObjectNode toJson() {
            return JSON.createObjectNode()
                .put("beginning_offset", beginning)
                .put("end_offset", end)
                .put("records", records)
                .put("bytes", bytes)
                .put("crc32c", checksum.getValue());
        }
    }
}
