package org.apache.kafka.common.utils;

import java.util.function.Supplier;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Stands before Kafka's own SystemTime on the class path of a test broker, so that the broker believes it was started at
 * -Doracle.now.ms. Everything else in that broker is Kafka's.
 */
class SystemTime implements Time {
    private static final SystemTime SYSTEM_TIME = new SystemTime();

    private final long shiftMs =
        Long.parseLong(System.getProperty("oracle.now.ms")) - System.currentTimeMillis();

    private SystemTime() { }

    public static SystemTime getSystemTime() {
        return SYSTEM_TIME;
    }

    @Override
    public long milliseconds() {
        return System.currentTimeMillis() + shiftMs;
    }

    @Override
    public long nanoseconds() {
        return System.nanoTime();
    }

    @Override
    public void sleep(long ms) {
        Utils.sleep(ms);
    }

    @Override
    public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
        synchronized (obj) {
            while (!condition.get()) {
                long leftMs = deadlineMs - milliseconds();
                if (leftMs <= 0)
                    throw new TimeoutException("Condition not satisfied before deadline");
                obj.wait(leftMs);
            }
        }
    }
}
