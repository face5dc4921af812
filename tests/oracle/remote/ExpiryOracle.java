package org.apache.kafka.server.log.remote.storage;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import sun.misc.Unsafe;

/** A leader's look at retention by Kafka's own task, over a cache of segments and a log that is described. */
public final class ExpiryOracle extends RemoteLogManager {
    private static InvocationHandler segments;
    private static final List<String> DELETED = new ArrayList<>();
    private static Log log;
    private static long nowMs;
    private static ExpiryOracle manager;

    private final Path folder;

    private ExpiryOracle(Path folder) throws IOException {
        super(
            new RemoteLogManagerConfig(new AbstractConfig(RemoteLogManagerConfig.configDef(), Map.of(), false)),
            1, folder.toString(), "cluster", proxy(Time.class, (self, method, arguments) ->
                method.getName().equals("milliseconds") ? nowMs : method.invoke(Time.SYSTEM, arguments)),
            ignored -> Optional.of(log), (ignored, offset) -> log.startAt(offset),
            new BrokerTopicStats(true), new Metrics(), Optional.empty());
        this.folder = folder;
    }

    /** What one look deletes: the ids of segments, in order, the new log start, and what was taken to be copied. */
    public record Expiry(List<String> deleted, long logStart, long highestCopied) { }

    /** Runs it once; {@code known} answers as RemoteLogMetadataManager does. */
    public static Expiry run(InvocationHandler known, TopicIdPartition owner, JsonNode request) throws Exception {
        segments = known;
        DELETED.clear();
        nowMs = request.get("now_ms").asLong();
        if (manager == null)
            manager = new ExpiryOracle(Path.of(request.get("folder").asText()));
        Files.deleteIfExists(LeaderEpochCheckpointFile.newFile(manager.folder.toFile()).toPath());
        log = (Log) unsafe().allocateInstance(Log.class);
        log.start = request.get("log_start_offset").asLong();
        log.end = request.get("log_end_offset").asLong();
        log.segments = request.get("segments");
        Map<String, Object> settings = new HashMap<>();
        settings.put("retention.ms", request.get("retention_ms").asLong());
        settings.put("retention.bytes", request.get("retention_bytes").asLong());
        log.settings = new LogConfig(settings);
        log.epochs = new LeaderEpochFileCache(
            owner.topicPartition(),
            new LeaderEpochCheckpointFile(
                LeaderEpochCheckpointFile.newFile(manager.folder.toFile()), new LogDirFailureChannel(1)),
            new Never());
        for (JsonNode pair : request.get("epochs"))
            log.epochs.assign(pair.get(0).asInt(), pair.get(1).asLong());
        long found = manager.findHighestRemoteOffset(owner, log).offset();
        log.highestCopied = request.get("knows_what_is_copied").asBoolean() ? found : -1;
        manager.new RLMExpirationTask(owner).cleanupExpiredRemoteLogSegments();
        return new Expiry(List.copyOf(DELETED), log.start, found);
    }

    @Override
    RemoteStorageManager createRemoteStorageManager() {
        return proxy(RemoteStorageManager.class, (self, method, arguments) -> {
            if (method.getName().equals("deleteLogSegmentData"))
                DELETED.add(((RemoteLogSegmentMetadata) arguments[0]).remoteLogSegmentId().id().toString());
            return null;
        });
    }

    @Override
    RemoteLogMetadataManager createRemoteLogMetadataManager() {
        return proxy(RemoteLogMetadataManager.class, (self, method, arguments) -> segments.invoke(self, method, arguments));
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private static Unsafe unsafe() throws ReflectiveOperationException {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return (Unsafe) field.get(null);
    }

    /** A log as it is described; its constructor never runs. */
    private static final class Log extends UnifiedLog {
        private long start;
        private long end;
        private long highestCopied;
        private JsonNode segments;
        private LogConfig settings;
        private LeaderEpochFileCache epochs;

        private Log() throws IOException {
            super(0, null, null, 0, null, null, Optional.empty(), false, null);
        }

        /** As UnifiedLog.maybeIncrementLogStartOffset. */
        private void startAt(long offset) {
            if (offset <= start)
                return;
            start = offset;
            epochs.truncateFromStartAsyncFlush(offset);
        }

        @Override
        public long logStartOffset() {
            return start;
        }

        @Override
        public long logEndOffset() {
            return end;
        }

        @Override
        public long size() {
            return bytesFrom(Long.MIN_VALUE);
        }

        @Override
        public long onlyLocalLogSegmentsSize() {
            return bytesFrom(highestCopied);
        }

        @Override
        public LogConfig config() {
            return settings;
        }

        @Override
        public LeaderEpochFileCache leaderEpochCache() {
            return epochs;
        }

        private long bytesFrom(long offset) {
            long bytes = 0;
            for (JsonNode pair : segments)
                bytes += pair.get(0).asLong() >= offset ? pair.get(1).asLong() : 0;
            return bytes;
        }
    }

    private static final class Never implements Scheduler {
        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        @Override
        public void resizeThreadPool(int newSize) { }
    }
}
