"""What a copy reports to its observers: the events of a verify, for what is to be done.

Logs, segments and bytes are those of the files that this run has to read; a remark says what is there already. The
files of a log dir that are in no partition's folder count as bytes of a log without a name.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence

from recovery.archive.copy.listing import FoundFile
from recovery.archive.copy.report import CopiedLogDir, UncopiedFile
from recovery.quantity import bytes_text, count_text
from recovery.watch.events import (
    BytesScanned,
    LogDirFinished,
    LogDirOffline,
    LogDirStarted,
    PartitionChecked,
    PartitionStarted,
    Remark,
    RunFinished,
    RunStarted,
)
from recovery.watch.notifier import Notifier
from segfmt.filenames import FileKind, file_kind


class CopyProgress:
    """Turns what happens to files into events; bytes may come from any thread, the rest in the order of the files.

    Args:
        notifier: of the observers.
    """

    def __init__(self, notifier: Notifier) -> None:
        self._notify = notifier
        self._log_dir = ""
        self._files: dict[str, list[FoundFile]] = {}
        self._left: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._finished_logs = 0
        self._started_s = 0.0

    def start(self, log_dirs: Sequence[str], thread_count: int) -> None:
        """Begin the run: the log dirs are being listed."""
        self._notify(
            RunStarted(log_dirs=tuple(log_dirs), threads_per_dir=thread_count, command="archive copy")
        )

    def warn(self, text: str) -> None:
        """Tell what is in the report as a warning."""
        self._notify(Remark(text=text, level="warning"))

    def list(self, log_dir: CopiedLogDir, files: Sequence[FoundFile]) -> None:
        """Tell what is to be read of a log dir, and what of it is there already."""
        if log_dir.skipped_files:
            done = f"{count_text(log_dir.skipped_files, 'file')}, {bytes_text(log_dir.skipped_bytes)},"
            verb = "is" if log_dir.skipped_files == 1 else "are"
            self._notify(Remark(text=f"{done} {verb} there already", log_dir=log_dir.log_dir))
        self._notify(
            LogDirStarted(
                log_dir=log_dir.log_dir,
                had_clean_shutdown=None,
                log_count=len({file.partition for file in files} - {""}),
                segment_count=_segment_count([file for file in files if file.partition]),
                bytes_total=sum(file.size_bytes for file in files),
            )
        )

    def take_offline(self, log_dir: str, error: str) -> None:
        """Tell that nothing in a log dir can be seen."""
        self._notify(LogDirOffline(log_dir=log_dir, error=error))

    def start_log_dir(self, log_dir: str, files: Sequence[FoundFile]) -> None:
        """Begin with the files of a log dir, which come in this order."""
        self._log_dir, self._started_s = log_dir, time.monotonic()
        self._files = {}
        for file in files:
            self._files.setdefault(file.partition, []).append(file)
        self._left = Counter({partition: len(some) for partition, some in self._files.items()})
        self._failed, self._finished_logs = Counter(), 0

    def start_file(self, file: FoundFile) -> None:
        """Begin with a file: the first one of a partition begins that."""
        files = self._files[file.partition]
        if file is files[0]:
            self._notify(
                PartitionStarted(
                    log_dir=file.log_dir,
                    partition=file.partition,
                    thread_num=0,
                    unflushed_segment_count=_segment_count(files) if file.partition else None,
                    recover_bytes=sum(one.size_bytes for one in files),
                )
            )

    def read(self, file: FoundFile, size_bytes: int) -> None:
        """Count bytes of a file that were read."""
        self._notify(
            BytesScanned(
                log_dir=file.log_dir, partition=file.partition, thread_num=0, scanned_bytes=size_bytes
            )
        )

    def fail(self, log_dir: str, partition: str, failed: UncopiedFile) -> None:
        """Tell of a file that could not be read."""
        self._failed[partition] += 1
        self._notify(
            Remark(text=failed.to_text(), level="error", log_dir=log_dir, partition=partition or None)
        )

    def finish_file(self, file: FoundFile) -> None:
        """Count a file as done, however: the last one of a partition ends that."""
        self._left[file.partition] -= 1
        if self._left[file.partition] or not file.partition:
            return
        self._finished_logs += 1
        self._notify(
            PartitionChecked(
                log_dir=file.log_dir,
                partition=file.partition,
                thread_num=0,
                segment_count=_segment_count(self._files[file.partition]),
                finding_count=self._failed[file.partition],
                finished_count=self._finished_logs,
                log_count=len(self._files.keys() - {""}),
            )
        )

    def finish_log_dir(self) -> None:
        """End a log dir whose files are all done."""
        duration_ms = round((time.monotonic() - self._started_s) * 1000)
        self._notify(LogDirFinished(log_dir=self._log_dir, duration_ms=duration_ms))

    def finish(self, exit_code: int) -> None:
        """End the run."""
        self._notify(RunFinished(exit_code=exit_code))


def _segment_count(files: Sequence[FoundFile]) -> int:
    return sum(file_kind(os.path.basename(file.path)) is FileKind.LOG for file in files)
