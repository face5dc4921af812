"""How fast something grows, and when it will be done: a window of samples, and no clock.

The rate is what was added over the last half minute, so it follows a disk that slows down; the ETA is what is
left at that rate, and is withheld while it would be a guess: too early, too little done, or a rate that has
not settled, which includes one that falls because nothing moves.
"""

from collections import deque

WINDOW_S = 30.0
SAMPLE_S = 0.5
MIN_RATE_S = 1.0
MIN_ETA_S = 5.0
MIN_DONE_SHARE = 0.01
MAX_SWING = 1.5
"""How many times faster or slower than the whole window its newer half may be before the ETA is withheld."""


class Pace:
    """Samples of a figure that only grows.

    Times are monotonic seconds and must not go back; memory is bounded by WINDOW_S / SAMPLE_S samples.
    """

    __slots__ = ("_samples", "_start_s", "amount")

    def __init__(self) -> None:
        self.amount = 0
        self._start_s: float | None = None
        self._samples: deque[tuple[float, int]] = deque()

    def start(self, monotonic_s: float, amount: int = 0) -> None:
        """Begin to count the time at *monotonic_s*, with *amount* done before; later calls do nothing."""
        if self._start_s is not None:
            return
        self._start_s = monotonic_s
        self.amount = amount
        self._samples.append((monotonic_s, amount))

    def add(self, amount: int, monotonic_s: float) -> None:
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

    def eta_s(self, remaining: int, monotonic_s: float) -> float | None:
        """Return the seconds until *remaining* is done at this pace, or None while that would be a guess."""
        if remaining <= 0:
            return 0.0
        rate = self.per_second(monotonic_s)
        if rate is None or rate <= 0 or not self._is_settled(remaining, rate, monotonic_s):
            return None
        return remaining / rate

    def _is_settled(self, remaining: int, rate: float, monotonic_s: float) -> bool:
        assert self._start_s is not None  # a rate implies a start
        if monotonic_s - self._start_s < MIN_ETA_S:
            return False
        if self.amount < MIN_DONE_SHARE * (self.amount + remaining):
            return False
        span_s = min(WINDOW_S, monotonic_s - self._start_s)
        newer = self._since(monotonic_s - span_s / 2, monotonic_s)
        return newer is not None and rate / MAX_SWING <= newer <= rate * MAX_SWING

    def _since(self, from_s: float, monotonic_s: float) -> float | None:
        """Return the growth per second since the last sample at or before *from_s*, or the first one."""
        if not self._samples:
            return None
        oldest_s, oldest = self._samples[0]
        for sample_s, amount in self._samples:
            if sample_s > from_s:
                break
            oldest_s, oldest = sample_s, amount
        elapsed_s = monotonic_s - oldest_s
        return None if elapsed_s < MIN_RATE_S else (self.amount - oldest) / elapsed_s
