"""A broker's load of its logs, as events: what its log says comes in, what `recover` would report goes out.

A log is in hand from the first line that names it to the one that says it is loaded; its thread is the lowest number
that is free, as logs do not name threads. A segment counts as recovered when the next one of its log begins, or the log
is loaded: so the figures lag behind the broker by the segments in hand, at most one for each thread.

With the log dirs, the segments to recover and their bytes are known before they are read (`unflushed`). Without, they
are as many as were seen, and there are no bytes.

A log may begin in the middle of a load. Then what was done before does not count: `LogDirStarted` comes again, with
smaller figures, as soon as a line says how many logs were done. Which ones these were is known from the order in which
a broker takes them.

No clock is read here, and no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast, get_args

from recovery.follow.broker_lines import (
    BrokerBegan,
    BrokerEnded,
    BrokerRuns,
    LoadBegan,
    LoadEnded,
    LogDirFailed,
    LogDirListed,
    LogLoaded,
    LogTouched,
    Said,
    SegmentBegan,
    SegmentCut,
    Trouble,
)
from recovery.follow.unflushed import WatchedDirs
from recovery.watch.events import (
    BrokerRestarted,
    BytesScanned,
    Event,
    LogDirFinished,
    LogDirOffline,
    LogDirStarted,
    PartitionFinished,
    PartitionStarted,
    PartitionStatus,
    Remark,
    RunFinished,
    RunStarted,
    SegmentRecovered,
    SegmentRecoveryStarted,
)

OVER = 0
OVER_WITH_LOSS = 2
ENDED_BEFORE = 4
"""Exit codes of a run that is watched: the load is over, or the broker or the source ended before it was.

A `recover` that is watched has its own, where its log says so.
"""


@dataclass(slots=True, kw_only=True)
class _Log:
    """A log of an unclean log dir.

    Attributes:
        sizes_bytes: of its segments to recover, as far as known.
        count: how many these are, None where nobody says.
        thread_num: None when it is not in hand.
        base_offset: of the segment in hand.
        valid_bytes: of that segment, if it is cut.
    """

    folder: str
    partition: str
    sizes_bytes: dict[int, int] = field(default_factory=dict)
    count: int | None = None
    thread_num: int | None = None
    base_offset: int | None = None
    valid_bytes: int | None = None
    recovered: set[int] = field(default_factory=set)
    truncated_bytes: int = 0
    is_cut: bool = False
    is_done: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes_bytes.values())

    @property
    def remaining(self) -> int | None:
        if self.is_cut:
            return 0
        return None if self.count is None else max(self.count - len(self.recovered), 0)


@dataclass(slots=True, kw_only=True)
class _LogDir:
    """A log dir while its logs are loaded.

    Attributes:
        logs: by partition; two where a folder about to be deleted or a stray has the name of another.
        told_count: logs that a line says are loaded; *earlier_count*: those loaded before the first such line.
        has_segments: whether the segments to recover are known.
        is_partial: whether some of its logs were done before the first line.
    """

    log_dir: str
    began_ms: int
    is_clean: bool = False
    log_count: int = 0
    told_count: int = 0
    earlier_count: int = 0
    said_segments: int = 0
    said_bytes: int = 0
    has_segments: bool = False
    is_partial: bool = False
    is_over: bool = False
    logs: dict[str, list[_Log]] = field(default_factory=dict)
    threads: list[str | None] = field(default_factory=list)

    def log(self, partition: str, folder: str | None = None) -> _Log:
        """Return the log of *partition*, in *folder* if that is known: after a renaming, any that is not done yet."""
        known = self.logs.setdefault(partition, [])
        waiting = [log for log in known if not log.is_done]
        for log in waiting:
            if folder is None or log.folder == folder:
                return log
        if waiting:
            return waiting[0]
        log = _Log(folder=folder or partition, partition=partition)
        known.append(log)
        return log

    def take_thread(self, partition: str) -> int:
        """Return the lowest thread number that is free."""
        if None not in self.threads:
            self.threads.append(None)
        number = self.threads.index(None)
        self.threads[number] = partition
        return number

    def started(self) -> LogDirStarted:
        """Return what is known of the dir, without what was done before the first line."""
        logs = [log for known in self.logs.values() for log in known]
        is_known = self.has_segments and not self.is_clean
        return LogDirStarted(
            log_dir=self.log_dir,
            had_clean_shutdown=self.is_clean,
            log_count=self.log_count,
            segment_count=sum(len(log.sizes_bytes) for log in logs) if is_known else self.said_segments,
            bytes_total=sum(log.size_bytes for log in logs) if is_known else self.said_bytes,
        )


class BrokerLoad:
    """Turns what a broker's log says into events; it may tell of several starts of the broker.

    Args:
        dirs: the log dirs, if they are on this machine.
        threads_per_dir: `num.recovery.threads.per.data.dir`, 0 if it is not known.
    """

    def __init__(self, dirs: WatchedDirs | None = None, threads_per_dir: int = 0) -> None:
        self._dirs = dirs
        self._threads_per_dir = threads_per_dir
        self.named_dirs: tuple[str, ...] = ()
        self._log_dirs: dict[str, _LogDir] = {}
        self._now_ms = 0
        self._is_restart_told = False
        self._has_loaded = False
        self.is_open = False

    def take(self, said: Said, now_ms: int) -> Iterator[Event]:
        """Yield the events of what was said at *now_ms*."""
        self._now_ms = now_ms
        match said:
            case LoadBegan():
                yield from self._restart()
                yield from self._begin(said.log_dirs, is_java=said.has_java_log_manager)
            case LogDirListed():
                yield from self._begin_late(said.log_dir)
                yield from self._list(said)
            case SegmentBegan():
                yield from self._begin_late(said.log_dir)
                yield from self._begin_segment(said)
            case LogLoaded():
                yield from self._begin_late(said.log_dir)
                yield from self._finish_log(said)
            case LoadEnded(is_complete=False):
                yield from self.end("the recovery that was watched has ended early")
            case LoadEnded():
                yield from self._end_load(OVER if said.exit_code is None else said.exit_code)
            case BrokerRuns():
                yield from self._end_load(OVER)
            case BrokerEnded():
                yield from self.end(f"the broker has ended: {said.text}")
            case BrokerBegan():
                yield from self._restart()
            case _ if self.is_open:
                yield from self._note(said)

    def end(self, reason: str) -> Iterator[Event]:
        """Yield that the load is not over and goes on no more; nothing if there is none."""
        if self.is_open:
            self.is_open = False
            yield Remark(text=reason, level="error")
            yield RunFinished(exit_code=ENDED_BEFORE)

    def _begin(self, log_dirs: Iterable[str], *, is_java: bool = False) -> Iterator[Event]:
        self.is_open, self._is_restart_told, self._has_loaded = True, False, False
        self._log_dirs = {}
        self.named_dirs = tuple(log_dirs)
        yield RunStarted(
            log_dirs=self.named_dirs,
            threads_per_dir=self._threads_per_dir,
            command="watch",
            has_shared_pace=self._dirs is not None and self._dirs.share_pace(self._threads_per_dir),
            release="4.4" if is_java else "unknown",
        )

    def _restart(self) -> Iterator[Event]:
        """Yield that a load has not ended before the broker was started again."""
        if self.is_open and not self._is_restart_told:
            self._is_restart_told = True
            yield BrokerRestarted()

    def _begin_late(self, log_dir: str) -> Iterator[Event]:
        """Begin with a line from the middle of a load."""
        if not self.is_open:
            own = () if self._dirs is None else self._dirs.log_dirs
            yield from self._begin(own if log_dir in own else (*own, log_dir))
            yield Remark(
                text="the log begins in the middle of a load: what was done before it does not count"
            )

    def _list(self, said: LogDirListed) -> Iterator[Event]:
        log_dir = self._new_log_dir(said.log_dir, is_clean=said.had_clean_shutdown)
        if said.log_count is not None:
            log_dir.log_count = said.log_count
        log_dir.said_segments = said.unflushed_segments or 0
        log_dir.said_bytes = said.unflushed_bytes or 0
        yield log_dir.started()
        if said.log_count == 0:
            yield from self._finish_dir(log_dir)

    def _new_log_dir(self, name: str, *, is_clean: bool, is_partial: bool = False) -> _LogDir:
        log_dir = _LogDir(log_dir=name, began_ms=self._now_ms, is_clean=is_clean, is_partial=is_partial)
        found = None if self._dirs is None else self._dirs.logs_of(name)
        for unflushed in found or ():
            sizes_bytes = {} if is_clean else unflushed.sizes_bytes
            log = _Log(
                folder=unflushed.folder,
                partition=unflushed.partition,
                sizes_bytes=sizes_bytes,
                count=len(sizes_bytes),
            )
            log_dir.logs.setdefault(unflushed.partition, []).append(log)
        log_dir.has_segments = found is not None
        log_dir.log_count = len(found or ())
        self._log_dirs[name] = log_dir
        return log_dir

    def _log_dir(self, name: str) -> Iterator[Event]:
        """Begin with a line that names a dir of which nothing was said before."""
        if name not in self._log_dirs:
            yield self._new_log_dir(name, is_clean=False, is_partial=True).started()

    def _begin_segment(self, said: SegmentBegan) -> Iterator[Event]:
        yield from self._log_dir(said.log_dir)
        log_dir = self._log_dirs[said.log_dir]
        log = log_dir.log(said.partition)
        if log_dir.is_partial and log.thread_num is None:
            yield from self._leave_out(log_dir, log, said.base_offset)
        known = log.count, log.size_bytes
        if said.count is not None and not log_dir.has_segments:
            log.count = said.count
        if said.size_bytes is not None:
            log.sizes_bytes.setdefault(said.base_offset, said.size_bytes)
        if log.thread_num is not None and (log.count, log.size_bytes) != known:
            yield _started(log_dir, log, log.thread_num)
        yield from self._take_in_hand(log_dir, log)
        yield from self._finish_segment(log_dir, log)
        if said.base_offset in log.recovered:  # the segments were split, and recovery begins anew
            log.recovered.clear()
        log.base_offset = said.base_offset
        yield SegmentRecoveryStarted(
            log_dir=said.log_dir,
            partition=log.folder,
            thread_num=log.thread_num or 0,
            base_offset=said.base_offset,
            size_bytes=log.sizes_bytes.get(said.base_offset, 0),
            ordinal=len(log.recovered) if said.ordinal is None else said.ordinal,
            count=log.count or 0,
        )

    def _leave_out(self, log_dir: _LogDir, log: _Log, base_offset: int) -> Iterator[Event]:
        """Leave out the segments that were recovered before the first line that names their log."""
        earlier = [base for base in log.sizes_bytes if base < base_offset]
        if earlier:
            for base in earlier:
                del log.sizes_bytes[base]
            log.count = len(log.sizes_bytes)
            yield log_dir.started()

    def _take_in_hand(self, log_dir: _LogDir, log: _Log) -> Iterator[Event]:
        if log.thread_num is None:
            log.thread_num = log_dir.take_thread(log.partition)
            yield _started(log_dir, log, log.thread_num)

    def _finish_segment(self, log_dir: _LogDir, log: _Log) -> Iterator[Event]:
        """Count the segment in hand as recovered."""
        base = log.base_offset
        if base is None:
            return
        size_bytes = log.sizes_bytes.get(base, 0)
        valid_bytes = size_bytes if log.valid_bytes is None else min(log.valid_bytes, size_bytes)
        log.base_offset, log.valid_bytes = None, None
        log.recovered.add(base)
        log.truncated_bytes += size_bytes - valid_bytes
        if size_bytes:
            yield BytesScanned(
                log_dir=log_dir.log_dir,
                partition=log.folder,
                thread_num=log.thread_num or 0,
                scanned_bytes=size_bytes,
            )
        yield SegmentRecovered(
            log_dir=log_dir.log_dir,
            partition=log.folder,
            thread_num=log.thread_num or 0,
            base_offset=base,
            size_bytes=size_bytes,
            valid_bytes=valid_bytes,
            remaining_segments=log.remaining,
        )

    def _finish_log(self, said: LogLoaded) -> Iterator[Event]:
        yield from self._log_dir(said.log_dir)
        log_dir = self._log_dirs[said.log_dir]
        log = log_dir.log(said.partition, said.folder)
        yield from self._correct(log_dir, said, log)
        yield from self._take_in_hand(log_dir, log)
        yield from self._finish_segment(log_dir, log)
        if said.status is not None:  # a recovery by this tool
            log.truncated_bytes = said.truncated_bytes
        elif log.is_cut:
            log.truncated_bytes += sum(
                size for base, size in log.sizes_bytes.items() if base not in log.recovered
            )
        log.is_done = True
        log_dir.threads[log.thread_num or 0] = None
        log_dir.told_count += 1
        yield PartitionFinished(
            log_dir=said.log_dir,
            partition=said.folder if said.folder == log.folder else log.folder,
            thread_num=log.thread_num or 0,
            status=_status(said, log),
            log_start_offset=said.log_start_offset,
            log_end_offset=said.log_end_offset,
            segment_count=said.segment_count,
            truncated_bytes=log.truncated_bytes,
            truncated_batches=said.truncated_batches,
            duration_ms=said.duration_ms,
            finished_count=said.finished_count,
            log_count=said.log_count,
            reason=said.reason
            or ("the broker could not load it; its log says why" if said.is_failed else ""),
        )
        if log_dir.told_count + log_dir.earlier_count >= log_dir.log_count:
            yield from self._finish_dir(log_dir)

    def _correct(self, log_dir: _LogDir, said: LogLoaded, log: _Log) -> Iterator[Event]:
        """Correct the figures of a dir by what the broker says of its logs."""
        is_wrong = said.log_count != log_dir.log_count
        if (
            not log_dir.told_count or said.finished_count <= log_dir.earlier_count
        ):  # lines of two threads may overtake
            log_dir.earlier_count = max(said.finished_count - 1, 0)
        if log_dir.is_partial and log_dir.earlier_count and not log_dir.told_count:
            # Kafka takes the logs in the order of the folder, as we have listed them.
            waiting = (log for known in log_dir.logs.values() for log in known)
            done = [other for other in waiting if other is not log and other.thread_num is None]
            done = done[: log_dir.earlier_count]
            for other in done:
                other.is_done = True
                other.sizes_bytes, other.count = {}, 0
            is_wrong = is_wrong or bool(done)
        log_dir.log_count = said.log_count
        if is_wrong:
            yield log_dir.started()

    def _finish_dir(self, log_dir: _LogDir) -> Iterator[Event]:
        if not log_dir.is_over:
            log_dir.is_over = True
            yield LogDirFinished(log_dir=log_dir.log_dir, duration_ms=self._now_ms - log_dir.began_ms)

    def _end_load(self, exit_code: int) -> Iterator[Event]:
        if not self.is_open:
            if self._has_loaded:
                return
            yield from self._begin(() if self._dirs is None else self._dirs.log_dirs)
        for log_dir in self._log_dirs.values():
            yield from self._finish_dir(log_dir)
        self.is_open, self._has_loaded = False, True
        yield RunFinished(exit_code=exit_code)

    def _note(self, said: LogTouched | SegmentCut | LogDirFailed | Trouble) -> Iterator[Event]:
        """Yield what an open load says of a log or a log dir beside its progress."""
        match said:
            case LogTouched() if said.log_dir in self._log_dirs:
                log_dir = self._log_dirs[said.log_dir]
                if not log_dir.is_over:
                    yield from self._take_in_hand(log_dir, log_dir.log(said.partition))
            case SegmentCut():
                yield from self._cut(said)
            case LogDirFailed():
                yield LogDirOffline(log_dir=said.log_dir, error=said.text)
            case Trouble():
                yield Remark(text=said.text, level=said.level, log_dir=said.log_dir, partition=said.partition)

    def _cut(self, said: SegmentCut) -> Iterator[Event]:
        """A broker names the place first, if messages are invalid, and then says that it has cut there."""
        yield Remark(text=said.text, level="warning", log_dir=said.log_dir, partition=said.partition)
        if said.log_dir not in self._log_dirs:
            return
        log_dir = self._log_dirs[said.log_dir]
        log = log_dir.log(said.partition)
        if said.position is not None:
            log.valid_bytes = said.position
            return
        log.is_cut = True
        if log.valid_bytes is None and self._dirs is not None:
            log.valid_bytes = self._dirs.size_bytes(said.log_dir, log.folder, said.base_offset)
        yield from self._finish_segment(log_dir, log)


def _started(log_dir: _LogDir, log: _Log, thread_num: int) -> PartitionStarted:
    return PartitionStarted(
        log_dir=log_dir.log_dir,
        partition=log.folder,
        thread_num=thread_num,
        unflushed_segment_count=None if log_dir.is_clean else log.count,
        recover_bytes=log.size_bytes,
    )


def _status(said: LogLoaded, log: _Log) -> PartitionStatus:
    if said.status in get_args(PartitionStatus):
        return cast(PartitionStatus, said.status)
    if said.is_failed:
        return "failed"
    if log.is_cut or log.truncated_bytes:
        return "truncated"
    return "recovered" if log.recovered else "unchanged"
