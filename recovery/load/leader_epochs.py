"""The leader epochs of one partition: which epoch began at which offset.

A pure twin of Kafka's cache. Whether the file must be written again is part of the value: Kafka rewrites it
only after some of the changes, and an untouched file keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable


class LeaderEpochs:
    """Epochs and their start offsets, ascending.

    Kafka: LeaderEpochFileCache.
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Assign *entries*, pairs (epoch, start offset), in file order.

        Earlier ones that a later one contradicts drop out, in memory only.

        Kafka: LeaderEpochFileCache constructor: it assigns each entry and does not rewrite the file.
        """
        self._starts: dict[int, int] = {}
        for epoch, start_offset in entries:
            self._assign(epoch, start_offset)
        self.is_changed = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Pairs (epoch, start offset), ascending by epoch."""
        return sorted(self._starts.items())

    @property
    def latest_epoch(self) -> int | None:
        """The highest epoch, or None."""
        return max(self._starts) if self._starts else None

    def observe(self, epoch: int, base_offset: int) -> None:
        """Assign the epoch of a batch read from the log if it is higher than all known ones.

        Kafka: LogSegment.recover, LeaderEpochFileCache.assign(int, long).
        """
        latest = self.latest_epoch
        if latest is None or epoch > latest:
            self._assign(epoch, base_offset)
            self.is_changed = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the last entries that start at or after *end_offset*.

        Kafka: LeaderEpochFileCache.truncateFromEndAsyncFlush.
        """
        if end_offset < 0:
            return
        for epoch in sorted(self._starts, reverse=True):
            if self._starts[epoch] < end_offset:
                return
            del self._starts[epoch]
            self.is_changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Let the log begin at *start_offset*: of the entries at or before it, the last stays, moved there.

        Kafka: LeaderEpochFileCache.truncateFromStartAsyncFlush.
        """
        removed = None
        for epoch in sorted(self._starts):
            if self._starts[epoch] > start_offset:
                break
            removed = epoch
            del self._starts[epoch]
        if removed is not None:
            self._starts[removed] = start_offset
            self.is_changed = True

    def clear(self) -> None:
        """Forget all and write an empty file.

        Kafka: LeaderEpochFileCache.clearAndFlush.
        """
        self._starts.clear()
        self.is_changed = True

    def _assign(self, epoch: int, start_offset: int) -> None:
        latest = self.latest_epoch
        if latest is not None and epoch == latest and start_offset >= self._starts[latest]:
            return
        for earlier in sorted(self._starts, reverse=True):
            if earlier < epoch and self._starts[earlier] < start_offset:
                break
            del self._starts[earlier]
        self._starts[epoch] = start_offset
