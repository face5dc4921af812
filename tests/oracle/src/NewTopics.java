import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/**
 * Creates many topics in one go.
 *
 * Arguments: bootstrap servers, {"topic": {"partitions": N, "configs": {"name": "value"}}}.
 */
public final class NewTopics {
    public static void main(String[] args) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        new ObjectMapper().readTree(args[1]).fields().forEachRemaining(entry -> {
            Map<String, String> configs = new HashMap<>();
            JsonNode given = entry.getValue();
            given.get("configs").fields().forEachRemaining(one -> configs.put(one.getKey(), one.getValue().asText()));
            topics.add(new NewTopic(entry.getKey(), Optional.of(given.get("partitions").asInt()), Optional.empty())
                .configs(configs));
        });
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            admin.createTopics(topics).all().get();
        }
    }
}
