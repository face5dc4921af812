import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * What a leader says of batches. Each line of stdin is the history of one log: "d:PRODUCER:EPOCH:FIRST:LAST:MS:OFFSET:LAST_OFFSET" for
 * data, "m:..." for a marker, "-:..." for a batch that is no producer's. Each line of stdout says for each of them, behind "|", taken,
 * sequence or epoch; what is refused is taken in all the same, as a follower does. The argument is producer.id.expiration.ms.
 */
public final class ProducerSequences {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    private ProducerSequences() { }

    public static void main(String[] args) throws IOException {
        ProducerStateManagerConfig config = new ProducerStateManagerConfig(Integer.parseInt(args[0]), false);
        File dir = Files.createTempDirectory("producer-sequences").toFile();
        BufferedReader histories = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = histories.readLine(); line != null; line = histories.readLine()) {
            ProducerStateManager state = new ProducerStateManager(PARTITION, dir, 900000, config, Time.SYSTEM);
            StringBuilder answer = new StringBuilder("|");
            for (String step : line.trim().split(" "))
                answer.append(take(state, step.split(":"))).append(' ');
            System.out.println(answer.toString().trim());
        }
        Files.deleteIfExists(dir.toPath());
    }

    private static String take(ProducerStateManager state, String[] step) {
        state.removeExpiredProducers(Long.parseLong(step[5]));
        if (step[0].equals("-"))
            return "taken";
        boolean isMarker = step[0].equals("m");
        try {
            append(state, step, isMarker ? AppendOrigin.COORDINATOR : AppendOrigin.CLIENT);
            return "taken";
        } catch (OutOfOrderSequenceException refusal) {
            append(state, step, AppendOrigin.REPLICATION);
            return "sequence";
        } catch (InvalidProducerEpochException refusal) {
            append(state, step, AppendOrigin.REPLICATION);
            return "epoch";
        }
    }

    private static void append(ProducerStateManager state, String[] step, AppendOrigin origin) {
        ProducerAppendInfo info = state.prepareUpdate(Long.parseLong(step[1]), origin);
        short epoch = Short.parseShort(step[2]);
        long timestamp = Long.parseLong(step[5]);
        long offset = Long.parseLong(step[6]);
        if (step[0].equals("m"))
            info.appendEndTxnMarker(new EndTransactionMarker(ControlRecordType.COMMIT, 0), epoch, offset, timestamp, (short) 0);
        else
            info.appendDataBatch(epoch, Integer.parseInt(step[3]), Integer.parseInt(step[4]), timestamp,
                    new LogOffsetMetadata(offset), Long.parseLong(step[7]), false);
        state.update(info);
    }
}
