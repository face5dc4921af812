import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;

/**
 * What a tiered broker says of its archive: offsets, the segments in the topic of remote log metadata, and how many records
 * Kafka's own consumer reads, in all, from what is tiered, by segment and by hour.
 *
 * Argument: bootstrap servers. Prints {"partitions": {"topic-0": {"topic_id", "earliest_offset", "earliest_local_offset",
 * "latest_tiered_offset" (inclusive, -1: nothing is), "latest_offset", "read_uncommitted": COUNTS, "read_committed": COUNTS}},
 * "segments": {uuid: {"topic", "topic_id", "partition", "start_offset", "end_offset", "size_bytes", "max_timestamp_ms",
 * "broker_id", "leader_epochs", "is_txn_index_empty", "states", "read_uncommitted", "read_committed"}}}; COUNTS is {"all":
 * TALLY, "tiered": TALLY, "tiered_by_hour": {hour since the epoch: records}}, TALLY {"records", "bytes", "crc32c"} as in
 * ReadCounts.java. A state that is written again and again is listed once. The counts of a segment are those of its records from
 * the earliest offset on, and null where its last state is not COPY_SEGMENT_FINISHED.
 */
public final class TieredView {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long LONGEST_SILENCE_MS = 600_000;
    private static final long HOUR_MS = 3_600_000;
    private static final String METADATA_TOPIC = "__remote_log_metadata";
    private static final String FINISHED = "COPY_SEGMENT_FINISHED";

    private final String bootstrapServers;
    private final Map<TopicPartition, ObjectNode> partitions = new TreeMap<>(
        (one, two) -> one.toString().compareTo(two.toString()));
    private final Set<TopicPartition> metadataPartitions = new HashSet<>();
    private final Map<String, ObjectNode> segments = new LinkedHashMap<>();
    private final Map<TopicPartition, List<ObjectNode>> readable = new HashMap<>();

    private TieredView(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    public static void main(String[] args) throws Exception {
        TieredView view = new TieredView(args[0]);
        view.askOffsets();
        view.readMetadata();
        for (String level : List.of("read_uncommitted", "read_committed"))
            view.count(level);
        ObjectNode answer = JSON.createObjectNode();
        ObjectNode described = answer.putObject("partitions");
        view.partitions.forEach((partition, node) -> described.set(partition.toString(), node));
        ObjectNode listed = answer.putObject("segments");
        view.segments.forEach(listed::set);
        System.out.println(JSON.writeValueAsString(answer));
    }

    private void askOffsets() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrapServers))) {
            Set<String> names = admin.listTopics().names().get();
            for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values()) {
                for (TopicPartitionInfo info : topic.partitions()) {
                    TopicPartition partition = new TopicPartition(topic.name(), info.partition());
                    if (topic.name().equals(METADATA_TOPIC))
                        metadataPartitions.add(partition);
                    else
                        partitions.put(partition, JSON.createObjectNode().put("topic_id", topic.topicId().toString()));
                }
            }
            ask(admin, "earliest_offset", OffsetSpec.earliest());
            ask(admin, "earliest_local_offset", OffsetSpec.earliestLocal());
            ask(admin, "latest_tiered_offset", OffsetSpec.latestTiered());
            ask(admin, "latest_offset", OffsetSpec.latest());
        }
    }

    private void ask(Admin admin, String name, OffsetSpec spec) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        partitions.keySet().forEach(partition -> asked.put(partition, spec));
        admin.listOffsets(asked).all().get()
            .forEach((partition, found) -> partitions.get(partition).put(name, found.offset()));
    }

    private void readMetadata() {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        read(metadataPartitions, "read_uncommitted", record -> {
            RemoteLogMetadata metadata = serde.deserialize(record.value());
            if (metadata instanceof RemoteLogSegmentMetadata segment)
                segments.put(segment.remoteLogSegmentId().id().toString(), toJson(segment));
            else if (metadata instanceof RemoteLogSegmentMetadataUpdate update)
                addState(segments.get(update.remoteLogSegmentId().id().toString()), update.state().toString());
            else
                throw new IllegalStateException("no broker of this version writes " + metadata);
        });
        for (ObjectNode segment : segments.values()) {
            ArrayNode states = segment.withArray("states");
            if (last(states).equals(FINISHED))
                readable.computeIfAbsent(
                    new TopicPartition(segment.get("topic").asText(), segment.get("partition").asInt()),
                    partition -> new ArrayList<>()).add(segment);
        }
    }

    private static void addState(ObjectNode segment, String state) {
        ArrayNode states = segment.withArray("states");
        if (!last(states).equals(state))
            states.add(state);
    }

    private static String last(ArrayNode states) {
        return states.get(states.size() - 1).asText();
    }

    private static ObjectNode toJson(RemoteLogSegmentMetadata segment) {
        TopicPartition partition = segment.topicIdPartition().topicPartition();
        Uuid topicId = segment.topicIdPartition().topicId();
        ObjectNode node = JSON.createObjectNode()
            .put("topic", partition.topic())
            .put("topic_id", topicId.toString())
            .put("partition", partition.partition())
            .put("start_offset", segment.startOffset())
            .put("end_offset", segment.endOffset())
            .put("size_bytes", segment.segmentSizeInBytes())
            .put("max_timestamp_ms", segment.maxTimestampMs())
            .put("broker_id", segment.brokerId());
        ObjectNode epochs = node.putObject("leader_epochs");
        segment.segmentLeaderEpochs().forEach((epoch, start) -> epochs.put(epoch.toString(), start));
        node.put("is_txn_index_empty", segment.isTxnIdxEmpty());
        node.putArray("states").add(segment.state().toString());
        node.putNull("read_uncommitted").putNull("read_committed");
        return node;
    }

    private void count(String level) {
        Map<TopicPartition, Counts> counts = new HashMap<>();
        partitions.forEach((partition, node) ->
            counts.put(partition, new Counts(node.get("latest_tiered_offset").asLong())));
        for (List<ObjectNode> of : readable.values())
            of.forEach(segment -> segment.put(level, 0L));
        read(partitions.keySet(), level, record -> {
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            counts.get(partition).add(record);
            for (ObjectNode segment : readable.getOrDefault(partition, List.of()))
                if (segment.get("start_offset").asLong() <= record.offset()
                        && record.offset() <= segment.get("end_offset").asLong())
                    segment.put(level, segment.get(level).asLong() + 1);
        });
        counts.forEach((partition, one) -> partitions.get(partition).set(level, one.toJson()));
    }

    private void read(Set<TopicPartition> from, String isolationLevel, Consumer<ConsumerRecord<byte[], byte[]>> use) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrapServers);
        properties.put("isolation.level", isolationLevel);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        properties.put("fetch.max.wait.ms", "100");
        properties.put("metrics.jmx.enable", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Map<TopicPartition, Long> ends = consumer.endOffsets(from);
            consumer.assign(from);
            consumer.seekToBeginning(from);
            Set<TopicPartition> open = new HashSet<>(from);
            long lastProgress = System.currentTimeMillis();
            while (!open.isEmpty()) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer, lastProgress)) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    // Metadata may go on being written.
                    if (record.offset() < ends.get(partition))
                        use.accept(record);
                    lastProgress = System.currentTimeMillis();
                }
                open.removeIf(partition -> consumer.position(partition) >= ends.get(partition));
                if (System.currentTimeMillis() - lastProgress > LONGEST_SILENCE_MS)
                    throw new IllegalStateException("no records for a long time, still to read: " + open);
            }
        }
    }

    /** A new leader knows what is tiered once it has read the metadata, and takes these offsets for too low before. */
    private static Iterable<ConsumerRecord<byte[], byte[]>> poll(
            KafkaConsumer<byte[], byte[]> consumer, long lastProgress) {
        try {
            return consumer.poll(POLL);
        } catch (OffsetOutOfRangeException error) {
            if (System.currentTimeMillis() - lastProgress > LONGEST_SILENCE_MS)
                throw error;
            return List.of();
        }
    }

    private static final class Counts {
        private final long latestTieredOffset;
        private final Tally all = new Tally();
        private final Tally tiered = new Tally();
        private final Map<Long, Long> byHour = new TreeMap<>();

        Counts(long latestTieredOffset) {
            this.latestTieredOffset = latestTieredOffset;
        }

        void add(ConsumerRecord<byte[], byte[]> record) {
            all.add(record);
            if (record.offset() <= latestTieredOffset) {
                tiered.add(record);
                byHour.merge(record.timestamp() / HOUR_MS, 1L, Long::sum);
            }
        }

        ObjectNode toJson() {
            ObjectNode node = JSON.createObjectNode();
            node.set("all", all.toJson());
            node.set("tiered", tiered.toJson());
            ObjectNode hours = node.putObject("tiered_by_hour");
            byHour.forEach((hour, records) -> hours.put(hour.toString(), records));
            return node;
        }
    }

    private static final class Tally {
        private final CRC32C checksum = new CRC32C();
        private final ByteBuffer numbers = ByteBuffer.allocate(16);
        private long records = 0;
        private long bytes = 0;

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
            return JSON.createObjectNode().put("records", records).put("bytes", bytes).put("crc32c", checksum.getValue());
        }
    }
}
