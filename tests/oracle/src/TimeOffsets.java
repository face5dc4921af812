import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Which offsets a consumer finds by time.
 *
 * Arguments: bootstrap servers, timestamps in ms. Prints {"topic-0": [[offset, timestamp] or null, one for each timestamp]}.
 */
public final class TimeOffsets {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("metrics.jmx.enable", "false");
        Map<String, ArrayNode> found = new TreeMap<>();
        ObjectMapper json = new ObjectMapper();
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Set<TopicPartition> partitions = new HashSet<>();
            for (List<PartitionInfo> infos : consumer.listTopics().values())
                infos.forEach(info -> partitions.add(new TopicPartition(info.topic(), info.partition())));
            for (String timestamp : List.of(args).subList(1, args.length)) {
                Map<TopicPartition, Long> asked = new HashMap<>();
                partitions.forEach(partition -> asked.put(partition, Long.valueOf(timestamp)));
                Map<TopicPartition, OffsetAndTimestamp> answers = consumer.offsetsForTimes(asked);
                for (TopicPartition partition : partitions) {
                    ArrayNode row = found.computeIfAbsent(partition.toString(), name -> json.createArrayNode());
                    OffsetAndTimestamp answer = answers.get(partition);
                    if (answer == null)
                        row.addNull();
                    else
                        row.addArray().add(answer.offset()).add(answer.timestamp());
                }
            }
        }
        ObjectNode printed = json.createObjectNode();
        found.forEach(printed::set);
        System.out.println(json.writeValueAsString(printed));
    }
}
