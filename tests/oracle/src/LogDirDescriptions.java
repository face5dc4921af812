import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * What Kafka's AdminClient says of the log dirs of brokers, as one line of JSON:
 * broker -> log dir -> error, totalBytes, usableBytes (null: not known), isCordoned, partitions.
 *
 * <pre>LogDirDescriptions bootstrap-servers broker[,broker] [key=value...]</pre>
 */
public final class LogDirDescriptions {
    private LogDirDescriptions() {
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        for (int i = 2; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            properties.put(setting[0], setting[1]);
        }
        List<Integer> brokers = new ArrayList<>();
        for (String broker : args[1].split(",")) {
            brokers.add(Integer.valueOf(broker));
        }
        Map<Integer, Object> answer = new TreeMap<>();
        try (Admin admin = Admin.create(properties)) {
            admin.describeLogDirs(brokers).allDescriptions().get().forEach(
                (broker, logDirs) -> {
                    Map<String, Object> described = new TreeMap<>();
                    logDirs.forEach((path, logDir) -> described.put(path, describe(logDir)));
                    answer.put(broker, described);
                });
        }
        System.out.println(new ObjectMapper().writeValueAsString(answer));
    }

    private static Map<String, Object> describe(LogDirDescription logDir) {
        List<String> partitions = new ArrayList<>();
        for (Map.Entry<TopicPartition, ReplicaInfo> entry : logDir.replicaInfos().entrySet()) {
            ReplicaInfo replica = entry.getValue();
            partitions.add(entry.getKey() + " " + replica.size() + " " + replica.offsetLag() + " " + replica.isFuture());
        }
        Collections.sort(partitions);
        Map<String, Object> described = new TreeMap<>();
        described.put("error", logDir.error() == null ? null : logDir.error().getClass().getName());
        described.put("totalBytes", logDir.totalBytes().isPresent() ? logDir.totalBytes().getAsLong() : null);
        described.put("usableBytes", logDir.usableBytes().isPresent() ? logDir.usableBytes().getAsLong() : null);
        described.put("isCordoned", logDir.isCordoned());
        described.put("partitions", partitions);
        return described;
    }
}
