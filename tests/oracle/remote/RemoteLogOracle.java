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
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.ExpiryOracle;
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
 *   {"op": "expire", "values": [hex], "epochs", "segments": [[base, bytes]], "log_start_offset", "log_end_offset",
 *    "retention_ms", "retention_bytes", "now_ms", "knows_what_is_copied", "folder": for temporary files}
 *                                            what RLMExpirationTask deletes after these records
 *   {"op": "size", "values": [hex], "epoch"}  the bytes that remoteLogSize adds up
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
            case "expire":
                return expire(request);
            case "size":
                long bytes = 0;
                Iterator<RemoteLogSegmentMetadata> all = cacheAfter(request, new HashMap<>()).listRemoteLogSegments(request.get("epoch").asInt());
                while (all.hasNext())
                    bytes += all.next().segmentSizeInBytes();
                return JSON.createObjectNode().put("bytes", bytes);
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

    private static RemoteLogMetadataCache cacheAfter(JsonNode request, Map<Integer, Boolean> epochs, int... dropped)
            throws RemoteResourceNotFoundException {
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        cache.markInitialized();
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
                if (dropped.length > 0)
                    dropped[0]++;
            }
        }
        return cache;
    }

    /** As Kafka lists them, but those that begin at one offset by their ids: Kafka has them in the order of a hash. */
    private static Iterator<RemoteLogSegmentMetadata> listed(RemoteLogMetadataCache cache, int epoch) throws Exception {
        RemoteLogLeaderEpochState state = cache.leaderEpochEntries.get(epoch);
        List<RemoteLogSegmentMetadata> segments = new ArrayList<>();
        cache.listRemoteLogSegments(epoch).forEachRemaining(segments::add);
        Comparator<RemoteLogSegmentMetadata> byId = (one, other) -> {
            Uuid id = one.remoteLogSegmentId().id();
            Uuid otherId = other.remoteLogSegmentId().id();
            int high = Long.compareUnsigned(id.getMostSignificantBits(), otherId.getMostSignificantBits());
            return high != 0 ? high : Long.compareUnsigned(id.getLeastSignificantBits(), otherId.getLeastSignificantBits());
        };
        segments.sort(Comparator.comparingLong(RemoteLogSegmentMetadata::startOffset)
            .thenComparing(it -> state.unreferencedSegmentIds().contains(it.remoteLogSegmentId())).thenComparing(byId));
        return segments.iterator();
    }

    private static Object manage(RemoteLogMetadataCache cache, String method, Object[] arguments) throws Exception {
        switch (method) {
            case "listRemoteLogSegments":
                return arguments.length == 1 ? cache.listAllRemoteLogSegments() : listed(cache, (int) arguments[1]);
            case "highestOffsetForEpoch":
                return cache.highestOffsetForEpoch((int) arguments[1]);
            case "updateRemoteLogSegmentMetadata":
                try {
                    cache.updateRemoteLogSegmentMetadata((RemoteLogSegmentMetadataUpdate) arguments[0]);
                } catch (RemoteResourceNotFoundException gone) {
                    // deleted already: a deletion that was begun is listed once for each of its epochs
                }
                return CompletableFuture.completedFuture(null);
            default:
                return null;
        }
    }

    private static ObjectNode expire(JsonNode request) throws Exception {
        RemoteLogMetadata any = read(request.get("values").get(0));
        RemoteLogMetadataCache cache = cacheAfter(request, new HashMap<>());
        ExpiryOracle.Expiry expiry = ExpiryOracle.run(
            (self, method, arguments) -> manage(cache, method.getName(), arguments), any.topicIdPartition(), request);
        ObjectNode answer = JSON.createObjectNode()
            .put("log_start_offset", expiry.logStart()).put("highest_copied", expiry.highestCopied());
        ArrayNode deleted = answer.putArray("deleted");
        expiry.deleted().forEach(deleted::add);
        return answer;
    }

    private static ObjectNode cache(JsonNode request) throws Exception {
        Map<Integer, Boolean> epochs = new HashMap<>();
        int[] dropped = {0};
        RemoteLogMetadataCache cache = cacheAfter(request, epochs, dropped);
        ObjectNode answer = JSON.createObjectNode().put("thrown", dropped[0]);
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
