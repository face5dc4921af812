"""How fast something grows, and when it will be done: windows of samples, and no clock.

The rate is what was added over the last half minute, so it follows a disk that slows down; the ETA is what is
left at that rate, and is withheld while it would be a guess: too early, too little done, or a rate that has
not settled, which includes one that falls because nothing moves.
"""

from collections import deque
from collections.abc import Sequence

WINDOW_S = 30.0
SAMPLE_S = 0.5
MIN_RATE_S = 1.0
MIN_ETA_S = 5.0
MIN_DONE_SHARE = 0.01
MAX_SWING = 1.5
"""How many times faster or slower than the whole window its newer half may be before the ETA is withheld."""
LOG_WORK_BYTES = 8 << 20
"""What a log costs besides reading it, in bytes read, until it is measured: files are opened, written, fsynced.

An ETA by bytes alone would promise the end of 10,000 nearly empty logs at once.
"""
MOST_ASSUMED_SHARE = 0.04
LEAST_LOG_S = 0.002
"""What that may make out of a whole run, and the seconds that a log takes of a CPU in any case, its bytes included.

With a slow disk, or a limit on bytes a second, bytes say little of what a log costs besides: one is read while the
other is waited for.
"""
COST_SAMPLE_S = 2.0
ASSUMED_LOGS = 20
"""How many logs at a time weigh as much as the assumption: from then on, measured costs do."""


class Pace:
    """Samples of a figure that only grows.

    Times are monotonic seconds and must not go back; memory is bounded by WINDOW_S / SAMPLE_S samples.
    """

    __slots__ = ("_samples", "_start_s", "amount")

    def __init__(self) -> None:
        self.amount: float = 0
        self._start_s: float | None = None
        self._samples: deque[tuple[float, float]] = deque()

    def start(self, monotonic_s: float, amount: float = 0) -> None:
        """Begin to count the time at *monotonic_s*, with *amount* done before; later calls do nothing."""
        if self._start_s is not None:
            return
        self._start_s = monotonic_s
        self.amount = amount
        self._samples.append((monotonic_s, amount))

    def add(self, amount: float, monotonic_s: float) -> None:
        """Grow by *amount* at *monotonic_s*."""
        self.start(monotonic_s)
        self.amount += amount
        samples = self._samples
        if monotonic_s - samples[-1][0] < SAMPLE_S:
            return
        samples.append((monotonic_s, self.amount))
        # The oldest sample stays at or before the edge of the window, so that the window is always full.
        while len(samples) > 1 and samples[1][0] <= monotonic_s - WINDOW_S:
            samples.popleft()

    def per_second(self, monotonic_s: float) -> float | None:
        """Return the growth per second over the last half minute, or None in the first second."""
        return self._since(monotonic_s - WINDOW_S, monotonic_s)

    def _since(self, from_s: float, monotonic_s: float) -> float | None:
        """Return the growth per second since the last sample at or before *from_s*, or the first one."""
        if not self._samples:
            return None
        oldest_s, oldest = self.sample_at(from_s)
        elapsed_s = monotonic_s - oldest_s
        return None if elapsed_s < MIN_RATE_S else (self.amount - oldest) / elapsed_s

    def sample_at(self, monotonic_s: float) -> tuple[float, float]:
        """Return the last sample at or before *monotonic_s*, or the first one: when it was, and the amount then."""
        found = self._samples[0]
        for sample in self._samples:
            if sample[0] > monotonic_s:
                break
            found = sample
        return found


class Work:
    """Bytes to read and logs to finish, and how many seconds each of them takes.

    What a byte takes is measured over the last half minute. What a log takes besides is measured over the whole run, in
    which phases with large and with small logs tell one from the other; until then it is assumed.

    Times are monotonic seconds and must not go back; memory is bounded by WINDOW_S / SAMPLE_S samples.
    """

    def __init__(self) -> None:
        self.bytes = Pace()
        self.logs = Pace()
        self._start_s: float | None = None
        self._last: tuple[float, float, float] = (0.0, 0.0, 0.0)
        self._sums = [0.0] * 5

    def start(self, monotonic_s: float) -> None:
        """Begin to count the time at *monotonic_s*, with nothing done; later calls do nothing."""
        if self._start_s is not None:
            return
        self._start_s = monotonic_s
        self._last = (monotonic_s, 0.0, 0.0)
        self.bytes.start(monotonic_s)
        self.logs.start(monotonic_s)

    def add(self, scanned_bytes: int, done_logs: float, monotonic_s: float) -> None:
        """Grow at *monotonic_s*; a log may be done in parts."""
        self.start(monotonic_s)
        self.bytes.add(scanned_bytes, monotonic_s)
        self.logs.add(done_logs, monotonic_s)
        last_s, last_bytes, last_logs = self._last
        if (seconds := monotonic_s - last_s) < COST_SAMPLE_S:
            return
        self._last = (monotonic_s, self.bytes.amount, self.logs.amount)
        grown_bytes, grown_logs = self.bytes.amount - last_bytes, self.logs.amount - last_logs
        for i, product in enumerate(
            (
                grown_bytes * grown_bytes,
                grown_bytes * grown_logs,
                grown_logs * grown_logs,
                seconds * grown_bytes,
                seconds * grown_logs,
            )
        ):
            self._sums[i] += product

    def eta_s(self, remaining_bytes: int, remaining_logs: float, monotonic_s: float) -> float | None:
        """Return the seconds until all this is done, or None while that would be a guess."""
        if remaining_bytes <= 0 and remaining_logs <= 0:
            return 0.0
        costs = self.costs(remaining_bytes, remaining_logs, monotonic_s)
        return None if costs is None else remaining_bytes * costs[0] + remaining_logs * costs[1]

    def costs(
        self, remaining_bytes: int, remaining_logs: float, monotonic_s: float
    ) -> tuple[float, float] | None:
        """Return the seconds that a byte takes, and a log besides, or None while an ETA by these would be a guess."""
        if self._start_s is None or monotonic_s - self._start_s < MIN_ETA_S:
            return None
        span_s = min(WINDOW_S, monotonic_s - self._start_s)
        seconds, grown_bytes, grown_logs = self._grown(monotonic_s - span_s, monotonic_s)
        if not grown_bytes and not grown_logs:
            return None
        assumed_s = self._assumed_log_s(remaining_bytes, remaining_logs, monotonic_s)
        log_s = self._measured_log_s(assumed_s)
        if grown_logs:
            log_s = min(log_s, seconds / grown_logs) if grown_bytes else seconds / grown_logs
        byte_s = max(seconds - log_s * grown_logs, 0.0) / grown_bytes if grown_bytes else 0.0
        done_s = self.bytes.amount * byte_s + self.logs.amount * log_s
        if done_s < MIN_DONE_SHARE * (done_s + remaining_bytes * byte_s + remaining_logs * log_s):
            return None
        newer_s, newer_bytes, newer_logs = self._grown(monotonic_s - span_s / 2, monotonic_s)
        newer_work_s = newer_bytes * byte_s + newer_logs * log_s
        if not newer_s / MAX_SWING <= newer_work_s <= newer_s * MAX_SWING:
            return None
        return byte_s, log_s

    def _grown(self, from_s: float, monotonic_s: float) -> tuple[float, float, float]:
        """Return the seconds since the last sample at or before *from_s*, and what was done in them."""
        since_s, done_bytes = self.bytes.sample_at(from_s)
        return (
            monotonic_s - since_s,
            self.bytes.amount - done_bytes,
            self.logs.amount - self.logs.sample_at(from_s)[1],
        )

    def _assumed_log_s(self, remaining_bytes: int, remaining_logs: float, monotonic_s: float) -> float:
        assert self._start_s is not None
        if not self.bytes.amount:
            return 0.0
        elapsed_s = monotonic_s - self._start_s
        byte_s = elapsed_s / self.bytes.amount
        all_logs = max(self.logs.amount + remaining_logs, 1)
        most_s = MOST_ASSUMED_SHARE * (elapsed_s + remaining_bytes * byte_s) / all_logs
        least_s = LEAST_LOG_S - remaining_bytes * byte_s / max(remaining_logs, 1)
        return min(LOG_WORK_BYTES * byte_s, max(most_s, least_s))

    def _measured_log_s(self, assumed_s: float) -> float:
        """Return what a log takes by least squares over the run, with the assumption as if it were measured, too."""
        of_bytes, mixed, of_logs, timed_bytes, timed_logs = self._sums
        of_logs += ASSUMED_LOGS**2
        timed_logs += ASSUMED_LOGS**2 * assumed_s
        determinant = of_bytes * of_logs - mixed * mixed
        if determinant <= 0:
            return assumed_s
        return max((of_bytes * timed_logs - mixed * timed_bytes) / determinant, 0.0)


def shared_etas(work_s: Sequence[float]) -> list[float]:
    """Return when each of several is done that share one pace equally, given the seconds that each takes alone.

    Whenever one is done, the others go faster: the last one ends after the sum of all.
    """
    etas = [0.0] * len(work_s)
    done_s = elapsed_s = 0.0
    by_work = sorted(range(len(work_s)), key=lambda i: work_s[i])
    for position, i in enumerate(by_work):
        elapsed_s += (work_s[i] - done_s) * (len(by_work) - position)
        done_s = work_s[i]
        etas[i] = elapsed_s
    return etas
