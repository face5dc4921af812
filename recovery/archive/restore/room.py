"""Whether file systems have room for what is to be restored, before the first byte is written (KIP-827)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from recovery.archive.restore.plan import PlannedRestore, refused
from recovery.archive.restore.report import RestoredPartition
from recovery.archive.restore.target import Target
from recovery.quantity import bytes_text


def within_room(
    planned: Sequence[PlannedRestore], target: Target, staged_bytes: Mapping[str, int]
) -> tuple[list[PlannedRestore], list[RestoredPartition], Mapping[str, int]]:
    """Return the partitions of file systems that have room for all of theirs, and refuse the others.

    Args:
        staged_bytes: by log dir, what an interrupted run has staged: it is there already, or is removed first.

    Returns:
        What is to be restored; what is refused; what is needed at most, in bytes by log dir.
    """
    needed: dict[str, int] = defaultdict(int)
    for one in planned:
        needed[one.log_dir] += one.needed_bytes
    reasons: dict[str, str] = {}
    for log_dirs in _by_file_system(needed):
        room = min((one for one in map(target.usable_bytes, log_dirs) if one is not None), default=None)
        together = sum(needed[log_dir] for log_dir in log_dirs)
        staged = sum(staged_bytes.get(log_dir, 0) for log_dir in log_dirs)
        if room is not None and together > room + staged:
            besides = f", besides {bytes_text(staged)} that are staged" if staged else ""
            reasons |= dict.fromkeys(
                log_dirs,
                f"{', '.join(log_dirs)}: {bytes_text(together)} are needed there, and {bytes_text(room)} are "
                f"usable{besides}. Remedy: make room, or restore fewer partitions at a time (--topic, --partition)",
            )
    kept = [one for one in planned if one.log_dir not in reasons]
    without = [
        replace(refused(one.source, one.mode, [reasons[one.log_dir]]), log_dir=one.log_dir)
        for one in planned
        if one.log_dir in reasons
    ]
    return kept, without, needed


def _by_file_system(log_dirs: Iterable[str]) -> Iterable[list[str]]:
    """Return *log_dirs*, those that share the room of a file system together."""
    devices: dict[int | str, list[str]] = defaultdict(list)
    for log_dir in log_dirs:
        device: int | str = log_dir
        with suppress(OSError):
            device = os.stat(log_dir).st_dev
        devices[device].append(log_dir)
    return devices.values()
