import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import javax.management.ObjectName;
import javax.management.StandardMBean;

/** A JVM that has a gauge for each line "name, tab, integer" of a file, until its standard input ends. */
public final class LogManagerBeans {
    public interface GaugeMBean {
        Object getValue();
    }

    public record Gauge(Object value) implements GaugeMBean {
        @Override
        public Object getValue() {
            return value;
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t");
            StandardMBean gauge = new StandardMBean(new Gauge(Integer.valueOf(parts[1])), GaugeMBean.class);
            ManagementFactory.getPlatformMBeanServer().registerMBean(gauge, new ObjectName(parts[0]));
        }
        System.out.println("ready");
        System.in.read();
    }
}
