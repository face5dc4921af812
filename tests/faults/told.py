"""What a report tells of as cut, read from its JSON."""

from __future__ import annotations

from pathlib import Path

Cuts = dict[tuple[str, int, int], int]
"""Batches of each cut, by file, position and bytes."""


class ToldTwiceError(Exception):
    """A report counts the same bytes twice."""


def told_cuts(document: dict) -> dict[str, Cuts]:
    """Return the cuts in a report, those of earlier runs among them, by partition (`d1/orders-0`).

    Raises:
        ToldTwiceError: two of them overlap.
    """
    found: dict[str, Cuts] = {}
    for log_dir in document["logDirs"]:
        for one in (*log_dir["earlierCuts"], *log_dir["partitions"]):
            if one["truncatedBytes"]:
                name = f"{Path(log_dir['logDir']).name}/{one['partition']}"
                cuts = found.setdefault(name, {})
                for cut in one["cuts"]:
                    _add(cuts, name, cut)
    return found


def _add(cuts: Cuts, name: str, cut: dict) -> None:
    file, position, size_bytes = cut["file"], cut["position"], cut["bytes"]
    for other, begin, size in cuts:
        if other == file and begin < position + size_bytes and position < begin + size:
            raise ToldTwiceError(f"{name}/{file}: {size_bytes} bytes at {position} are told twice")
    cuts[file, position, size_bytes] = cut["batches"]
