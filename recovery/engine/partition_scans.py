"""The files of one partition, as its load asks for them: read once, scanned side by side, reported to observers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from native.raw_scan import RawScan
from recovery.engine.context import RunContext
from recovery.engine.forecast import is_kept, recovery_request
from recovery.engine.job import LogDirJob
from recovery.engine.resume import RunJournal
from recovery.engine.segment_news import SegmentNews
from recovery.engine.shared_scans import SharedScans
from recovery.errors import MORE_MEMORY, PartitionRefusedError
from recovery.load.forecast import unflushed_count, unflushed_segments
from recovery.load.model import BatchSpan, Blob, Original, PartitionTask, ScanMode, ScanRequest
from recovery.read.partition_files import PartitionFiles
from recovery.watch.events import BytesScanned

_KEPT_FILE_BYTES = 16 << 10  # checkpoints and indexes of small segments are read up to three times


class PartitionScans:
    """The `PartitionSource` of a recovery.

    It belongs to the thread that loads the partition; others help with the scans of its unflushed segments.

    Attributes:
        unflushed_count: how many segments a recovery will most likely read.
        news: what observers hear of them.
    """

    def __init__(
        self,
        task: PartitionTask,
        job: LogDirJob,
        journal: RunJournal,
        context: RunContext,
        *,
        may_map: bool,
        thread_num_of: Callable[[], int],
    ) -> None:
        """Prepare, reading nothing; arguments as for `PartitionRun`."""
        self._task = task
        self._journal = journal
        self._context = context
        self._notify = context.notify
        self._thread_num_of = thread_num_of
        unflushed = [] if journal.is_committed(task.folder) else unflushed_segments(task)
        self.unflushed_count = len(unflushed)
        self._files = PartitionFiles(
            os.path.join(task.log_dir, task.folder),
            task.settings,
            limit=context.limit,
            drops_cache=job.options.drop_cache,
            spool_dir=None if job.options.dry_run else task.log_dir,
            mappable={file for file, _, _ in unflushed[:-1]} if may_map else (),
            on_bytes=self._on_bytes,
        )
        self._small_files: dict[str, bytes] = {}
        self._scanned_before: set[str] = set()
        self.news = SegmentNews(task, context.notify)
        requests = [recovery_request(file, base, size) for file, base, size in unflushed if size]
        self._shared = SharedScans(self._scan, requests if len(requests) > 1 else [])

    def start(self, thread_num: int) -> None:
        """Note which thread of the log dir loads the partition, and count its unflushed segments."""
        if not self._journal.is_committed(self._task.folder):
            self.unflushed_count = unflushed_count(self._task, self)
        self.news.start(thread_num, self.unflushed_count)

    def has_pending(self) -> bool:
        """Return whether there is a scan that no thread has begun."""
        return self._shared.has_pending()

    def help(self) -> None:
        """Do one of these scans, for the thread that loads the partition."""
        self._shared.help()

    def cancel(self) -> None:
        """Begin no further scan."""
        self._shared.cancel()

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    # -- PartitionSource ------------------------------------------------------------------------------------

    def read(self, file: str) -> bytes:
        """Return all bytes of a small file."""
        data = self._small_files.get(file)
        if data is None:
            data = self._files.read(file)
            if len(data) <= _KEPT_FILE_BYTES:
                self._small_files[file] = data
        return data

    def batches(
        self, part: Original, start_position: int, *, opens_message_sets: bool = True
    ) -> Iterator[BatchSpan]:
        """Yield the batches of a part by their headers."""
        return self._files.batches(part, start_position, opens_message_sets=opens_message_sets)

    def read_part(self, part: Original) -> bytes:
        """Return the bytes of a part."""
        self._context.stop.check()
        return self._files.read_part(part)

    def is_zero(self, part: Original) -> bool:
        """Return whether a part is all zeros."""
        return self._files.is_zero(part)

    def keep(self, data: bytes) -> Blob:
        """Return *data*, or a handle to it on disk, valid until the run is over."""
        return self._files.keep(data)

    def peek(self, request: ScanRequest) -> RawScan:
        """Return the scan of a segment, and report nothing."""
        scan = self._shared.scan(request)
        self.news.count_scan(request)
        return scan

    def scan(self, request: ScanRequest) -> RawScan:
        """Return the scan of a segment, and notify observers if it is part of a recovery."""
        if request.mode is not ScanMode.RECOVER:
            return self._shared.scan(request)
        if is_left_alone(self._task):
            return self.peek(request)
        self.news.begin(request)
        scan = self._shared.scan(request)
        self.news.end(request, scan, was_scanned_before=request.part.file in self._scanned_before)
        return scan

    def _scan(self, request: ScanRequest) -> RawScan:
        """Scan a segment; one that an interrupted run has scanned and found sound is not read again.

        A damaged one is: the damage may have been mended since, and no run cuts what it has not read itself.
        """
        stat = self._task.files.get(request.part.file)
        if not is_kept(request, stat):
            return self._read(request)
        scan = self._journal.scan_of(self._task.folder, request, stat)
        if scan is not None:
            self._scanned_before.add(request.part.file)
        else:
            scan = self._read(request)
            if scan.valid_bytes == request.part.size_bytes:
                self._journal.add_scan(self._task.folder, request, stat, scan)
        return scan

    def _read(self, request: ScanRequest) -> RawScan:
        try:
            with self._context.phases.during("scan"):
                return self._files.scan(request)
        except MemoryError as error:  # the fold would not know which file it was
            raise refusal_for_memory(request.part.file) from error

    def _on_bytes(self, scanned_bytes: int) -> None:
        self._context.stop.check()
        if scanned_bytes:
            self._notify(
                BytesScanned(
                    log_dir=self._task.log_dir,
                    partition=self._task.folder,
                    thread_num=self._thread_num_of(),
                    scanned_bytes=scanned_bytes,
                )
            )


def is_left_alone(task: PartitionTask) -> bool:
    """Return whether the folder awaits deletion (`-delete`) in a log dir that was shut down cleanly.

    Differs: the broker drops its snapshots and leader epochs, recovers segments without an index, and drops the
    folder itself a minute later. Here it is loaded, to see whether a broker can, and left as it is.
    """
    return task.had_clean_shutdown and task.is_delete_folder


def refusal_for_memory(file: str) -> PartitionRefusedError:
    """Return the refusal of a partition that needs more memory than there is."""
    return PartitionRefusedError(
        file=file,
        position=None,
        rule="memory",
        detail="there is too little memory to read it",
        remedy=f"{MORE_MEMORY}, or give fewer --threads",
    )
