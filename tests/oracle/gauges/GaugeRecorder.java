import java.io.BufferedWriter;
import java.lang.instrument.Instrumentation;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import javax.management.InstanceNotFoundException;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * A Java agent that writes down every value which the recovery gauges of a broker (KIP-831) take, read through JMX inside of the
 * broker's JVM some hundred times a second.
 *
 * A line for each change: milliseconds since the epoch, the MBean, its value (`null`, or `gone` when there is no such MBean any
 * more), separated by tabs. The argument is the file.
 */
public final class GaugeRecorder {
    private static final String PATTERN = "kafka.log:type=LogManager,name=remaining*,*";

    private GaugeRecorder() {
    }

    public static void premain(String file, Instrumentation instrumentation) {
        Thread recorder = new Thread(() -> record(Path.of(file)), "gauge-recorder");
        recorder.setDaemon(true);
        recorder.setPriority(Thread.MAX_PRIORITY);
        recorder.start();
    }

    private static void record(Path file) {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        Map<String, String> known = new HashMap<>();
        try (BufferedWriter out = Files.newBufferedWriter(file)) {
            ObjectName pattern = new ObjectName(PATTERN);
            while (true) {
                Map<String, String> now = read(server, pattern);
                long nowMs = System.currentTimeMillis();
                for (String name : new TreeSet<>(known.keySet())) {
                    if (!now.containsKey(name)) {
                        out.write(nowMs + "\t" + name + "\tgone\n");
                    }
                }
                for (Map.Entry<String, String> entry : now.entrySet()) {
                    if (!entry.getValue().equals(known.get(entry.getKey()))) {
                        out.write(nowMs + "\t" + entry.getKey() + "\t" + entry.getValue() + "\n");
                    }
                }
                out.flush();
                known = now;
                Thread.sleep(1);
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    private static Map<String, String> read(MBeanServer server, ObjectName pattern) throws JMException {
        Map<String, String> values = new HashMap<>();
        for (ObjectName name : server.queryNames(pattern, null)) {
            try {
                values.put(name.getCanonicalName(), String.valueOf(server.getAttribute(name, "Value")));
            } catch (InstanceNotFoundException error) {
                continue; // it went between the two calls
            }
        }
        return values;
    }
}
