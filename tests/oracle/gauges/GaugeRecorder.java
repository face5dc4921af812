import java.io.BufferedWriter;
import java.io.PrintStream;
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
 * A Java agent that writes down the values which the recovery gauges of a broker (KIP-831) take, read through JMX inside of the
 * broker's JVM some hundred times a second, and by each thread that has printed a line of its log, before it goes on: a thread says
 * what it begins, so none of its values is missed however busy the machine is.
 *
 * A line for each change: milliseconds since the epoch, the MBean, its value (`null`, or `gone` when there is no such MBean any
 * more), separated by tabs. The argument is the file.
 */
public final class GaugeRecorder {
    private static final String PATTERN = "kafka.log:type=LogManager,name=remaining*,*";

    private final MBeanServer server = ManagementFactory.getPlatformMBeanServer();
    private final BufferedWriter out;
    private final ObjectName pattern;
    private Map<String, String> known = new HashMap<>();

    private GaugeRecorder(Path file) throws Exception {
        out = Files.newBufferedWriter(file);
        pattern = new ObjectName(PATTERN);
    }

    public static void premain(String file, Instrumentation instrumentation) throws Exception {
        GaugeRecorder recorder = new GaugeRecorder(Path.of(file));
        System.setOut(new PrintStream(System.out, true) {
            @Override
            public void write(byte[] bytes, int offset, int length) {
                super.write(bytes, offset, length);
                recorder.look();
            }
        });
        Thread thread = new Thread(recorder::lookAgainAndAgain, "gauge-recorder");
        thread.setDaemon(true);
        thread.setPriority(Thread.MAX_PRIORITY);
        thread.start();
    }

    private void lookAgainAndAgain() {
        try {
            while (true) {
                look();
                Thread.sleep(1);
            }
        } catch (InterruptedException error) {
            error.printStackTrace();
        }
    }

    private synchronized void look() {
        try {
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
