import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.zip.CRC32C;

/** How fast Java computes CRC-32C in cache; benchmarks/checksums.py asks and says what the lines mean. */
public final class Crc32cSpeed {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            int size = Integer.parseInt(words[0]);
            int copies = Integer.parseInt(words[1]);
            int calls = Integer.parseInt(words[2]);
            int quanta = Integer.parseInt(words[3]);
            byte[] data = new byte[size * copies];
            for (int i = 0; i < data.length; i++) {
                int at = i % size;
                data[i] = (byte) (at * 31 + (at >> 8) * 7);
            }
            long best = Long.MAX_VALUE;
            long total = 0;
            for (int quantum = 0; quantum < quanta; quantum++) {
                long begin = System.nanoTime();
                total = sum(data, size, copies, calls);
                best = Math.min(best, System.nanoTime() - begin);
            }
            System.out.println(best / 1e9 + " " + Long.toUnsignedString(total));
        }
    }

    private static long sum(byte[] data, int size, int copies, int calls) {
        CRC32C crc = new CRC32C();
        long total = 0;
        for (int call = 0; call < calls; call++) {
            crc.reset();
            crc.update(data, call % copies * size, size);
            total += crc.getValue();
        }
        return total;
    }
}
