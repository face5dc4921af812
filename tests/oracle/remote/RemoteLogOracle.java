package org.apache.kafka.server.log.remote.metadata.storage;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;

/**
 * What Kafka's own classes make of the metadata of tiered storage. One JSON request per line on stdin, one JSON answer
 * per line on stdout; an exception is {"error": "its simple name"}.
 *
 *   {"op": "serde", "value": hex}            the fields that RemoteLogMetadataSerde reads, and "value", written again
 *   {"op": "partition", "topic_id", "partition", "count"}                         RemoteLogMetadataTopicPartitioner
 *   {"op": "within", "segment": hex, "log_end_offset", "epochs": [[epoch, start]]}
 *                                            RemoteLogManager.isRemoteSegmentWithinLeaderEpochs, the epochs filtered
 *                                            as its callers filter them
 *   {"op": "cache", "values": [hex], "offsets": [[epoch, offset]]}
 *                                            a RemoteLogMetadataCache after these records: what it lists, and the
 *                                            segment of each offset
 */
public final class RemoteLogOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();

    private RemoteLogOracle() { }

    public static void main(String[] args) throws IOException {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (InvocationTargetException error) {
                answer = JSON.createObjectNode().put("error", error.getCause().getClass().getSimpleName());
            } catch (Exception error) {
                answer = JSON.createObjectNode().put("error", error.getClass().getSimpleName());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static ObjectNode answer(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "serde":
                return serde(request);
            case "partition":
                TopicIdPartition owner = new TopicIdPartition(
                    Uuid.fromString(request.get("topic_id").asText()),
                    new TopicPartition("any", request.get("partition").asInt()));
                int partition = new RemoteLogMetadataTopicPartitioner(request.get("count").asInt()).metadataPartition(owner);
                return JSON.createObjectNode().put("partition", partition);
            case "within":
                return JSON.createObjectNode().put("is_within", isWithin(request));
            case "cache":
                return cache(request);
            default:
                throw new IllegalArgumentException();
        }
    }

    private static RemoteLogMetadata read(JsonNode hex) {
        return SERDE.deserialize(HexFormat.of().parseHex(hex.asText()));
    }

    private static ObjectNode serde(JsonNode request) {
        RemoteLogMetadata record = read(request.get("value"));
        ObjectNode answer = JSON.createObjectNode()
            .put("kind", record.getClass().getSimpleName())
            .put("broker_id", record.brokerId())
            .put("event_timestamp_ms", record.eventTimestampMs());
        if (record instanceof RemoteLogSegmentMetadata segment) {
            describe(answer, segment.remoteLogSegmentId().topicIdPartition());
            answer.put("segment_id", segment.remoteLogSegmentId().id().toString()).put("state", segment.state().id());
            answer.put("start_offset", segment.startOffset()).put("end_offset", segment.endOffset());
            answer.put("max_timestamp_ms", segment.maxTimestampMs()).put("size_bytes", segment.segmentSizeInBytes());
            answer.put("has_no_transactions", segment.isTxnIdxEmpty());
            answer.set("leader_epochs", pairs(segment.segmentLeaderEpochs()));
            answer.put("custom_metadata", segment.customMetadata().map(it -> HexFormat.of().formatHex(it.value())).orElse(null));
        } else if (record instanceof RemoteLogSegmentMetadataUpdate update) {
            describe(answer, update.remoteLogSegmentId().topicIdPartition());
            answer.put("segment_id", update.remoteLogSegmentId().id().toString()).put("state", update.state().id());
            answer.put("custom_metadata", update.customMetadata().map(it -> HexFormat.of().formatHex(it.value())).orElse(null));
        } else if (record instanceof RemotePartitionDeleteMetadata deletion) {
            describe(answer, deletion.topicIdPartition());
            answer.put("state", deletion.state().id());
        } else if (record instanceof RemoteLogSegmentMetadataSnapshot segment) {
            answer.put("segment_id", segment.segmentId().toString()).put("state", segment.state().id());
            answer.put("start_offset", segment.startOffset()).put("end_offset", segment.endOffset());
            answer.put("max_timestamp_ms", segment.maxTimestampMs()).put("size_bytes", segment.segmentSizeInBytes());
            answer.put("has_no_transactions", segment.isTxnIdxEmpty());
            answer.set("leader_epochs", pairs(segment.segmentLeaderEpochs()));
            answer.put("custom_metadata", segment.customMetadata().map(it -> HexFormat.of().formatHex(it.value())).orElse(null));
        }
        return answer.put("value", HexFormat.of().formatHex(SERDE.serialize(record)));
    }

    private static void describe(ObjectNode answer, TopicIdPartition owner) {
        answer.put("topic", owner.topic()).put("topic_id", owner.topicId().toString()).put("partition", owner.partition());
    }

    private static ArrayNode pairs(Map<Integer, Long> epochs) {
        ArrayNode pairs = JSON.createArrayNode();
        epochs.forEach((epoch, start) -> pairs.addArray().add(epoch).add(start));
        return pairs;
    }

    private static boolean isWithin(JsonNode request) throws ReflectiveOperationException {
        NavigableMap<Integer, Long> epochs = new TreeMap<>();
        for (JsonNode pair : request.get("epochs"))
            epochs.put(pair.get(0).asInt(), pair.get(1).asLong());
        Method filter = RemoteLogManager.class.getDeclaredMethod("buildFilteredLeaderEpochMap", NavigableMap.class);
        Method within = RemoteLogManager.class.getDeclaredMethod(
            "isRemoteSegmentWithinLeaderEpochs", RemoteLogSegmentMetadata.class, long.class, NavigableMap.class);
        filter.setAccessible(true);
        within.setAccessible(true);
        long end = request.get("log_end_offset").asLong();
        return (boolean) within.invoke(null, read(request.get("segment")), end, filter.invoke(null, epochs));
    }

    private static ObjectNode cache(JsonNode request) throws Exception {
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        cache.markInitialized();
        Map<Integer, Boolean> epochs = new HashMap<>();
        int dropped = 0;
        for (JsonNode value : request.get("values")) {
            RemoteLogMetadata record = read(value);
            try {
                if (record instanceof RemoteLogSegmentMetadata segment) {
                    segment.segmentLeaderEpochs().keySet().forEach(epoch -> epochs.put(epoch, true));
                    cache.addCopyInProgressSegment(segment);
                } else {
                    cache.updateRemoteLogSegmentMetadata((RemoteLogSegmentMetadataUpdate) record);
                }
            } catch (RemoteResourceNotFoundException | IllegalArgumentException error) {
                dropped++;
            }
        }
        ObjectNode answer = JSON.createObjectNode().put("thrown", dropped);
        ObjectNode segments = answer.putObject("segments");
        Iterator<RemoteLogSegmentMetadata> all = cache.listAllRemoteLogSegments();
        while (all.hasNext()) {
            RemoteLogSegmentMetadata segment = all.next();
            segments.put(segment.remoteLogSegmentId().id().toString(), segment.state().id());
        }
        ObjectNode byEpoch = answer.putObject("epochs");
        for (int epoch : new TreeSet<>(epochs.keySet())) {
            ObjectNode one = byEpoch.putObject(String.valueOf(epoch));
            RemoteLogLeaderEpochState state = cache.leaderEpochEntries.get(epoch);
            one.put("highest_offset", cache.highestOffsetForEpoch(epoch).orElse(null));
            ArrayNode referenced = one.putArray("referenced");
            TreeSet<String> unreferenced = new TreeSet<>();
            if (state != null) {
                for (RemoteLogSegmentId id : state.referencedSegmentIds())
                    referenced.add(id.id().toString());
                for (RemoteLogSegmentId id : state.unreferencedSegmentIds())
                    unreferenced.add(id.id().toString());
            }
            ArrayNode others = one.putArray("unreferenced");
            unreferenced.forEach(others::add);
        }
        ArrayNode found = answer.putArray("found");
        for (JsonNode pair : request.get("offsets")) {
            Optional<RemoteLogSegmentMetadata> one =
                cache.remoteLogSegmentMetadata(pair.get(0).asInt(), pair.get(1).asLong());
            found.add(one.map(it -> it.remoteLogSegmentId().id().toString()).orElse(null));
        }
        return answer;
    }
}
