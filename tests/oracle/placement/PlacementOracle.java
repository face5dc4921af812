import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LocalLog;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;
import sun.misc.Unsafe;

/**
 * Where Kafka's own LogManager would put a new log. Each line of stdin is a JSON object: `live` log dirs, `counts` of logs by log dir,
 * `cordoned` log dirs. Each line of stdout is what `nextLogDirs` returns.
 */
public final class PlacementOracle {
    private PlacementOracle() { }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        LogManager manager = newManager();
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            JsonNode given = json.readTree(line);
            ConcurrentLinkedQueue<File> live = queue(manager);
            live.clear();
            given.get("live").forEach(path -> live.add(new File(path.asText())));
            Map<TopicPartition, UnifiedLog> logs = logs(manager);
            logs.clear();
            for (Map.Entry<String, JsonNode> count : given.get("counts").properties())
                for (int number = 0; number < count.getValue().asInt(); number++)
                    logs.put(new TopicPartition("t" + logs.size(), number), log(count.getKey()));
            Set<String> cordoned = new java.util.HashSet<>();
            given.get("cordoned").forEach(path -> cordoned.add(path.asText()));
            manager.updateCordonedLogDirs(CollectionConverters.asScala(cordoned).toSet());
            List<String> next = CollectionConverters.asJava(manager.nextLogDirs()).stream().map(File::getPath).collect(Collectors.toList());
            System.out.println(json.writeValueAsString(next));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static LogManager newManager() throws Exception {
        Map<String, String> properties = new HashMap<>();
        properties.put("process.roles", "broker,controller");
        properties.put("node.id", "1");
        properties.put("controller.quorum.bootstrap.servers", "localhost:9093");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093");
        properties.put("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT");
        properties.put("log.dirs", Files.createTempDirectory("placement").toString());
        KafkaConfig config = new KafkaConfig(properties, false);
        return LogManager.apply(config, CollectionConverters.asScala(new ArrayList<String>()).toSeq(), resource -> new Properties(),
            new KafkaScheduler(1), Time.SYSTEM, new BrokerTopicStats(false), new LogDirFailureChannel(1));
    }

    /** A log of which only the log dir is known. */
    private static UnifiedLog log(String logDir) throws Exception {
        Field theUnsafe = Unsafe.class.getDeclaredField("theUnsafe");
        theUnsafe.setAccessible(true);
        Unsafe unsafe = (Unsafe) theUnsafe.get(null);
        LocalLog local = (LocalLog) unsafe.allocateInstance(LocalLog.class);
        Field dir = LocalLog.class.getDeclaredField("parentDir");
        dir.setAccessible(true);
        dir.set(local, logDir);
        UnifiedLog log = (UnifiedLog) unsafe.allocateInstance(UnifiedLog.class);
        Field own = UnifiedLog.class.getDeclaredField("localLog");
        own.setAccessible(true);
        own.set(log, local);
        return log;
    }

    @SuppressWarnings("unchecked")
    private static ConcurrentLinkedQueue<File> queue(LogManager manager) throws Exception {
        return (ConcurrentLinkedQueue<File>) field(manager, "_liveLogDirs");
    }

    @SuppressWarnings("unchecked")
    private static ConcurrentHashMap<TopicPartition, UnifiedLog> logs(LogManager manager) throws Exception {
        return (ConcurrentHashMap<TopicPartition, UnifiedLog>) field(manager, "currentLogs");
    }

    private static Object field(LogManager manager, String name) throws Exception {
        for (Field field : LogManager.class.getDeclaredFields()) {
            if (field.getName().equals(name) || field.getName().endsWith("$" + name)) {
                field.setAccessible(true);
                return field.get(manager);
            }
        }
        throw new NoSuchFieldException(name);
    }
}
