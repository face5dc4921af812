import java.util.ArrayList;
import java.util.Collection;
import java.util.Set;
import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

/** Kafka's LogManager as the oracle uses it: up to 4.3. */
final class BrokerLogManager {
    private final LogManager manager;

    BrokerLogManager(KafkaConfig config, ConfigRepository topicConfigs, Scheduler scheduler, Time clock,
                     BrokerTopicStats stats, LogDirFailureChannel failures) {
        manager = LogManager.apply(config, CollectionConverters.asScala(new ArrayList<String>()).toSeq(), topicConfigs,
            scheduler, clock, stats, failures);
    }

    /** What is thrown where the broker would end its process. */
    static void insteadOfHalt(Exit.Procedure halt, Exit.Procedure exit) {
        Exit.setHaltProcedure(halt);
        Exit.setExitProcedure(exit);
    }

    void startup(Set<String> topics) {
        manager.startup(CollectionConverters.asScala(topics), log -> false);
    }

    long fileDeleteDelayMs() {
        return manager.currentDefaultConfig().fileDeleteDelayMs;
    }

    void handleLogDirFailure(String dir) {
        manager.handleLogDirFailure(dir);
    }

    void shutdown() {
        manager.shutdown(-1L);
    }

    Collection<UnifiedLog> allLogs() {
        return CollectionConverters.asJavaCollection(manager.allLogs());
    }

    /** Close the files of a log of a broker that is dead, and write nothing. */
    static void closeFiles(UnifiedLog log) {
        log.closeHandlers();
    }

    Collection<FileLock> dirLocks() {
        return CollectionConverters.asJavaCollection(manager.dirLocks());
    }
}
