import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorage;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;
import org.apache.kafka.server.log.remote.storage.Transferer;

/**
 * LocalTieredStorage with the faults of real object stores, each for one topic (configs below `rsm.config.`):
 *
 * `stuck.copy.topic`: a copy comes to a stop behind its second file and stays there until the broker is killed;
 * `failing.copy.topic`: no copy succeeds, and nothing of it stays;
 * `failing.delete.topic`: no delete succeeds, so that a broker tries again and again;
 * `lost.delete.topic`: a delete is said to have been done, and the objects stay.
 */
public final class FaultyTieredStorage implements RemoteStorageManager {
    private static final long LONGER_THAN_ANY_TEST_MS = 3_600_000;
    private static volatile String stuckCopyTopic = "";

    private final LocalTieredStorage storage = new LocalTieredStorage();
    private String failingCopyTopic = "";
    private String failingDeleteTopic = "";
    private String lostDeleteTopic = "";

    @Override
    public void configure(Map<String, ?> configs) {
        stuckCopyTopic = text(configs, "stuck.copy.topic");
        failingCopyTopic = text(configs, "failing.copy.topic");
        failingDeleteTopic = text(configs, "failing.delete.topic");
        lostDeleteTopic = text(configs, "lost.delete.topic");
        Map<String, Object> own = new HashMap<>(configs);
        own.put(LocalTieredStorage.TRANSFERER_CLASS_CONFIG, StoppingTransferer.class.getName());
        storage.configure(own);
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata metadata, LogSegmentData data)
            throws RemoteStorageException {
        String topic = metadata.topicIdPartition().topic();
        if (topic.equals(failingCopyTopic))
            throw new RemoteStorageException("copies of " + topic + " are to fail");
        return storage.copyLogSegmentData(metadata, data);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int start) throws RemoteStorageException {
        return storage.fetchLogSegment(metadata, start);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int start, int end)
            throws RemoteStorageException {
        return storage.fetchLogSegment(metadata, start, end);
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata metadata, IndexType type) throws RemoteStorageException {
        return storage.fetchIndex(metadata, type);
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
        String topic = metadata.topicIdPartition().topic();
        if (topic.equals(failingDeleteTopic))
            throw new RemoteStorageException("deletes of " + topic + " are to fail");
        if (!topic.equals(lostDeleteTopic))
            storage.deleteLogSegmentData(metadata);
    }

    @Override
    public void close() {
        storage.close();
    }

    private static String text(Map<String, ?> configs, String name) {
        Object value = configs.get(name);
        return value == null ? "" : value.toString();
    }

    /** Copies files; those of one topic only until two of a segment are there. */
    public static final class StoppingTransferer implements Transferer {
        @Override
        public void transfer(File from, File to) throws IOException {
            stopIfTwoAreThere(to);
            if (from.exists())
                Files.copy(from.toPath(), to.toPath());
        }

        @Override
        public void transfer(ByteBuffer from, File to) throws IOException {
            stopIfTwoAreThere(to);
            Files.write(to.toPath(), from.hasArray() ? from.array() : bytesOf(from));
        }

        private static byte[] bytesOf(ByteBuffer buffer) {
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            return bytes;
        }

        private static void stopIfTwoAreThere(File to) {
            if (stuckCopyTopic.isEmpty() || !to.getParentFile().getName().startsWith(stuckCopyTopic + "-"))
                return;
            String stem = to.getName().substring(0, to.getName().lastIndexOf('.'));
            String[] there = to.getParentFile().list((folder, name) -> name.startsWith(stem));
            if (there == null || there.length < 2)
                return;
            try {
                Thread.sleep(LONGER_THAN_ANY_TEST_MS);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
