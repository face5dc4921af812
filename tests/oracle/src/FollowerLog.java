import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Logs that followers write. Each line of stdin is one step: "open FOLDER", "append FILE LEADER_EPOCH" (the batches of one answer to a
 * fetch), "truncate OFFSET", "roll" or "close".
 */
public final class FollowerLog {
    private FollowerLog() { }

    public static void main(String[] args) throws IOException {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        UnifiedLog log = null;
        for (String line = steps.readLine(); line != null; line = steps.readLine()) {
            String[] step = line.split(" ");
            switch (step[0]) {
                case "open" -> log = open(new File(step[1]), scheduler);
                case "append" -> {
                    ByteBuffer batches = ByteBuffer.wrap(Files.readAllBytes(Path.of(step[1])));
                    log.appendAsFollower(MemoryRecords.readableRecords(batches), Integer.parseInt(step[2]));
                }
                case "truncate" -> log.truncateTo(Long.parseLong(step[1]));
                case "roll" -> log.roll();
                case "close" -> {
                    log.flush(true);
                    log.close();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }

    private static UnifiedLog open(File folder, KafkaScheduler scheduler) throws IOException {
        Files.createDirectories(folder.toPath());
        return UnifiedLog.create(folder, new LogConfig(new Properties()), 0, 0, scheduler, new BrokerTopicStats(), Time.SYSTEM,
                300_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), false,
                Optional.of(Uuid.randomUuid()));
    }
}
