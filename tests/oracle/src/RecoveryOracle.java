import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.yammer.metrics.core.MetricName;
import com.yammer.metrics.core.MetricsRegistry;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Delayed;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.DefaultConfiguration;
import org.apache.logging.log4j.core.config.Property;

/**
 * The oracle: loads sets of log dirs with Kafka's own LogManager (BrokerLogManager, by release), as a broker does when it starts, and
 * closes them cleanly, as a broker does when it is stopped. The tree it leaves is what the broker leaves.
 *
 * One JSON request per line on stdin, one JSON answer per line on stdout:
 *
 *   {"id": 1, "log_dirs": ["/a", "/b"], "now_ms": 1, "properties": {..}, "topic_configs": {"t": {"k": "v"}},
 *    "run_deletes": false, "log": false}
 *   {"id": 1, "outcome": "loaded" | "offline" | "fatal" | "refused", "offline_dirs": [..], "failed_logs": [..],
 *    "error": "class: message", "duration_ms": 3, "log": ["INFO ..."]}
 *
 * "fatal": an exception escaped LogManager (the broker halts). "offline": at least one log dir failed; the others
 * were closed cleanly, unless none is left (then the broker halts). "refused": the request itself is wrong.
 *
 * What differs from a broker: the clock stands still at now_ms; tasks that are due at once run inline; delayed ones
 * (the unlinking of .deleted files) do not run unless run_deletes is true; the log cleaner is off; no log is a stray;
 * abandoned future logs are not promoted; nobody becomes a leader.
 */
public final class RecoveryOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final CapturingAppender LOG = new CapturingAppender();
    private static final int FAILURES_BETWEEN_COLLECTIONS = 50;

    private int failures = 0;

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        captureLog();
        BrokerLogManager.insteadOfHalt(
            (status, message) -> { throw new BrokerHalted("halt(" + status + ")"); },
            (status, message) -> { throw new BrokerHalted("exit(" + status + ")"); });
        RecoveryOracle oracle = new RecoveryOracle();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(oracle.answer(JSON.readTree(line))));
        }
        System.exit(0);
    }

    private ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        LOG.begin(request.path("log").asBoolean(false));
        long start = System.nanoTime();
        try {
            load(request, answer);
        } catch (Throwable e) {
            answer.put("outcome", "refused");
            answer.put("error", describe(e));
        }
        answer.put("duration_ms", (System.nanoTime() - start) / 1e6);
        LOG.failedLogs().forEach(answer.withArray("failed_logs")::add);
        if (LOG.keepsAll())
            LOG.lines().forEach(answer.withArray("log")::add);
        return answer;
    }

    private void load(JsonNode request, ObjectNode answer) {
        List<String> logDirs = new ArrayList<>();
        request.get("log_dirs").forEach(dir -> logDirs.add(new File(dir.asText()).getAbsolutePath()));
        KafkaConfig config = new KafkaConfig(brokerProperties(logDirs, request.path("properties")), false);
        TopicConfigs topicConfigs = new TopicConfigs(request.path("topic_configs"));
        StandingClock clock = new StandingClock(request.get("now_ms").asLong());
        InlineScheduler scheduler = new InlineScheduler();
        BrokerTopicStats stats = new BrokerTopicStats(config.remoteLogManagerConfig().isRemoteStorageSystemEnabled());
        LogDirFailureChannel failures = new LogDirFailureChannel(logDirs.size());
        BrokerLogManager manager = null;
        Throwable fatal = null;
        try {
            manager = new BrokerLogManager(config, topicConfigs, scheduler, clock, stats, failures);
            manager.startup(topicConfigs.topics());
            if (request.path("run_deletes").asBoolean(false))
                runDeletes(manager, scheduler, clock);
            takeOffline(manager, logDirs, failures);
            shutDown(manager);
        } catch (Throwable e) {
            fatal = e instanceof ExecutionException && e.getCause() != null ? e.getCause() : e;
        } finally {
            awaitThreads(logDirs);
            if (manager != null)
                release(manager, fatal != null);
            scheduler.shutdown();
            stats.close();
            removeMetrics();
        }
        ArrayNode offline = answer.putArray("offline_dirs");
        logDirs.stream().filter(failures::hasOfflineLogDir).forEach(offline::add);
        boolean allOffline = offline.size() == logDirs.size();
        if (fatal instanceof BrokerHalted && allOffline)
            fatal = null;
        answer.put("outcome", fatal != null ? "fatal" : offline.isEmpty() ? "loaded" : "offline");
        if (fatal != null)
            answer.put("error", describe(fatal));
        if (fatal != null || !offline.isEmpty())
            collectLeftovers();
    }

    /** KafkaConfig wants a role and listeners; everything else that is not given keeps the broker's default. */
    private static Map<String, String> brokerProperties(List<String> logDirs, JsonNode given) {
        Map<String, String> properties = new HashMap<>();
        properties.put("process.roles", "broker,controller");
        properties.put("node.id", "1");
        properties.put("controller.quorum.bootstrap.servers", "localhost:9093");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093");
        properties.put("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT");
        given.properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        properties.remove("log.dir");
        properties.put("log.dirs", String.join(",", logDirs));
        properties.put("log.cleaner.enable", "false");
        return properties;
    }

    /** What a broker does file.delete.delay.ms after the load: unlink .deleted files and -delete folders. */
    private static void runDeletes(BrokerLogManager manager, InlineScheduler scheduler, StandingClock clock) {
        long delayMs = manager.fileDeleteDelayMs() + 1;
        clock.advance(delayMs);
        scheduler.runDelayed(Set.of("delete-file", "delete-producer-snapshot", "kafka-delete-logs"));
        clock.advance(-delayMs);
    }

    /** What ReplicaManager's LogDirFailureHandler does once it is started. */
    private static void takeOffline(BrokerLogManager manager, List<String> logDirs, LogDirFailureChannel failures) {
        for (String dir : logDirs) {
            if (failures.hasOfflineLogDir(dir))
                manager.handleLogDirFailure(dir);
        }
    }

    /** The jobs of other logs go on after one was fatal: their threads must end before the tree is looked at. */
    private static void awaitThreads(List<String> logDirs) {
        Thread[] threads = new Thread[Thread.activeCount() + 64];
        int count = Thread.enumerate(threads);
        for (int i = 0; i < count; i++) {
            String name = threads[i].getName();
            for (String dir : logDirs) {
                if (name.startsWith("log-recovery-" + dir) || name.startsWith("log-closing-" + dir)) {
                    try {
                        threads[i].join();
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                }
            }
        }
    }

    /** BrokerServer.shutdown swallows what LogManager.shutdown throws: the unlock of an offline dir always does. */
    private static void shutDown(BrokerLogManager manager) {
        try {
            manager.shutdown();
        } catch (Exception e) {
            LOG.note("swallowed at shutdown: " + describe(e));
        }
    }

    private static void release(BrokerLogManager manager, boolean hasHalted) {
        if (hasHalted) {
            for (UnifiedLog log : manager.allLogs()) {
                try {
                    BrokerLogManager.closeFiles(log);
                } catch (Throwable ignored) {
                    // The broker is dead by now; all that matters is that its files are closed.
                }
            }
        }
        for (FileLock lock : manager.dirLocks()) {
            try {
                lock.destroy();
            } catch (Throwable ignored) {
                // It was unlocked before.
            }
        }
    }

    private static void removeMetrics() {
        MetricsRegistry registry = KafkaYammerMetrics.defaultRegistry();
        for (MetricName name : new ArrayList<>(registry.allMetrics().keySet()))
            registry.removeMetric(name);
    }

    /** Logs that failed half way leave channels and maps to the garbage collector. */
    private void collectLeftovers() {
        failures++;
        if (failures % FAILURES_BETWEEN_COLLECTIONS == 0)
            System.gc();
    }

    private static String describe(Throwable e) {
        StringBuilder text = new StringBuilder(e.getClass().getName()).append(": ").append(e.getMessage());
        for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause())
            text.append(" <- ").append(cause.getClass().getName()).append(": ").append(cause.getMessage());
        return text.toString();
    }

    private static void captureLog() {
        LoggerContext context = (LoggerContext) org.apache.logging.log4j.LogManager.getContext(false);
        context.reconfigure(new DefaultConfiguration());  // Kafka's test jars bring one that hides most lines
        var root = context.getConfiguration().getRootLogger();
        new ArrayList<>(root.getAppenders().keySet()).forEach(root::removeAppender);
        LOG.start();
        root.addAppender(LOG, null, null);
        root.setLevel(Level.INFO);
        context.updateLoggers();
    }

    private static final class BrokerHalted extends Error {
        private static final long serialVersionUID = 1L;

        BrokerHalted(String message) {
            super(message);
        }
    }

    /** Topic overrides as the broker finds them in its metadata. */
    private static final class TopicConfigs implements ConfigRepository {
        private final Map<String, Map<String, String>> overrides;

        TopicConfigs(JsonNode given) {
            overrides = given.isMissingNode() || given.isNull()
                ? Map.of()
                : JSON.convertValue(given, new TypeReference<Map<String, Map<String, String>>>() { });
        }

        Set<String> topics() {
            return new HashSet<>(overrides.keySet());
        }

        @Override
        public Properties config(ConfigResource resource) {
            Properties properties = new Properties();
            if (resource.type() == ConfigResource.Type.TOPIC)
                properties.putAll(overrides.getOrDefault(resource.name(), Map.of()));
            return properties;
        }
    }

    private static final class StandingClock implements Time {
        private volatile long nowMs;

        StandingClock(long nowMs) {
            this.nowMs = nowMs;
        }

        void advance(long ms) {
            nowMs += ms;
        }

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(nowMs);
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException("the clock stands still");
        }

        @Override
        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException("the clock stands still");
        }
    }

    /** Runs what is due at once in the calling thread; keeps what is delayed; drops what is periodic. */
    private static final class InlineScheduler implements Scheduler {
        private record Delayed(String name, Runnable task, long delayMs, int order) { }

        private final List<Delayed> delayed = new ArrayList<>();

        @Override
        public void startup() { }

        @Override
        public synchronized void shutdown() {
            delayed.clear();
        }

        @Override
        public void resizeThreadPool(int newSize) { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs >= 0)
                return new NoFuture();
            if (delayMs <= 0) {
                task.run();
            } else {
                synchronized (this) {
                    delayed.add(new Delayed(name, task, delayMs, delayed.size()));
                }
            }
            return new NoFuture();
        }

        void runDelayed(Set<String> names) {
            List<Delayed> due;
            synchronized (this) {
                due = new ArrayList<>(delayed);
                delayed.clear();
            }
            due.stream()
                .filter(one -> names.contains(one.name))
                .sorted(Comparator.comparingLong(Delayed::delayMs).thenComparingInt(Delayed::order))
                .forEach(one -> one.task.run());
        }
    }

    private static final class NoFuture implements ScheduledFuture<Object> {
        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }

        @Override
        public boolean cancel(boolean mayInterruptIfRunning) {
            return false;
        }

        @Override
        public boolean isCancelled() {
            return false;
        }

        @Override
        public boolean isDone() {
            return true;
        }

        @Override
        public Object get() {
            return null;
        }

        @Override
        public Object get(long timeout, TimeUnit unit) {
            return null;
        }
    }

    private static final class CapturingAppender extends AbstractAppender {
        private static final String FAILED = "Error while loading logs in ";

        private final Set<String> failedLogs = new TreeSet<>();
        private final List<String> lines = new ArrayList<>();
        private boolean keepsAll = false;

        CapturingAppender() {
            super("oracle", null, null, true, Property.EMPTY_ARRAY);
        }

        synchronized void begin(boolean keepAll) {
            keepsAll = keepAll;
            failedLogs.clear();
            lines.clear();
        }

        synchronized void note(String line) {
            lines.add(line);
        }

        synchronized boolean keepsAll() {
            return keepsAll;
        }

        synchronized List<String> lines() {
            return new ArrayList<>(lines);
        }

        synchronized List<String> failedLogs() {
            return new ArrayList<>(failedLogs);
        }

        @Override
        public synchronized void append(LogEvent event) {
            String message = event.getMessage().getFormattedMessage();
            if (message.startsWith(FAILED))
                failedLogs.add(message.substring(FAILED.length()).replaceFirst(" in \\d+ms \\(.*", ""));
            if (keepsAll) {
                Throwable thrown = event.getThrown();
                lines.add(event.getLevel() + " " + message + (thrown == null ? "" : " <- " + describe(thrown)));
            }
        }
    }
}
