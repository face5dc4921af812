import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * The orders of java.util.HashMap itself. Each line of stdin is a history of one map of Longs: "p5" puts 5, "c5" computes it if it
 * is absent. Each line of stdout is the order in which that map then iterates.
 */
public final class HashMapOrders {
    private HashMapOrders() { }

    public static void main(String[] args) throws IOException {
        BufferedReader histories = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = histories.readLine(); line != null; line = histories.readLine()) {
            Map<Long, Integer> map = new HashMap<>();
            for (String step : line.trim().split(" ")) {
                long key = Long.parseLong(step.substring(1));
                if (step.charAt(0) == 'p')
                    map.put(key, 0);
                else
                    map.computeIfAbsent(key, absent -> 0);
            }
            System.out.println(map.keySet().stream().map(String::valueOf).collect(Collectors.joining(" ")));
        }
    }
}
