import java.io.IOException;
import java.util.Collection;
import java.util.Set;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.Exit;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Kafka's LogManager as the oracle uses it: from 4.4 on. */
final class BrokerLogManager {
    private final LogManager manager;

    BrokerLogManager(KafkaConfig config, ConfigRepository topicConfigs, Scheduler scheduler, Time clock,
                     BrokerTopicStats stats, LogDirFailureChannel failures) {
        manager = kafka.log.LogManager.apply(config, Set.of(), topicConfigs, scheduler, clock, stats, failures);
    }

    /** What is thrown where the broker would end its process. */
    static void insteadOfHalt(Exit.Procedure halt, Exit.Procedure exit) {
        Exit.setHaltProcedure(halt);
        Exit.setExitProcedure(exit);
    }

    void startup(Set<String> topics) throws Exception {
        manager.startup(topics, log -> false);
    }

    long fileDeleteDelayMs() {
        return manager.currentDefaultConfig().fileDeleteDelayMs;
    }

    void handleLogDirFailure(String dir) {
        manager.handleLogDirFailure(dir);
    }

    void shutdown() throws IOException {
        manager.shutdown(-1L);
    }

    Collection<UnifiedLog> allLogs() {
        return manager.allLogs();
    }

    /** Close the files of a log of a broker that is dead, and write nothing. */
    static void closeFiles(UnifiedLog log) {
        log.closeQuietly();
    }

    Collection<FileLock> dirLocks() {
        return manager.dirLocks();
    }
}
