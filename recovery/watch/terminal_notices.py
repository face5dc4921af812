"""What a person at a terminal must see besides the figures: a line for each damage, in plain words.

Kafka's words for the same, of which there are more, are in `kafka_lines`.
"""

import os.path

from recovery.watch.events import (
    CorruptionFound,
    CutByEarlierRun,
    Event,
    IndexFileProblem,
    LogDirHandedOver,
    LogDirOffline,
    PartitionFinished,
    Remark,
    SegmentsDeleted,
)
from recovery.watch.kafka_lines import Line
from segfmt.filenames import log_name


def notice_of(event: Event) -> Line | None:
    """Return the line to print above the view for *event*; None for what the figures tell."""
    match event:
        case CorruptionFound():
            log_file = os.path.join(event.log_dir, event.partition, log_name(event.base_offset))
            cut = f"cut to {event.truncate_position} bytes, the next offset is {event.truncate_offset}"
            return Line(f"{log_file}: {cut}: {event.reason}", "warning")
        case SegmentsDeleted():
            where = os.path.join(event.log_dir, event.partition)
            count = len(event.base_offsets)
            why = "" if event.log_end_offset is None else ", the log ends before its log start offset"
            return Line(f"{where}: {count} segment{'' if count == 1 else 's'} dropped{why}", "warning")
        case IndexFileProblem():
            return Line(f"{event.path}: index file {event.problem}", "warning")
        case PartitionFinished(status="refused" | "failed"):
            where = os.path.join(event.log_dir, event.partition)
            return Line(f"{where}: {event.status}: {event.reason}", "error")
        case CutByEarlierRun():
            return Line(f"{event.log_dir}: {event.text}", "warning")
        case LogDirHandedOver(handoff="clean-shutdown", wrote_marker=False):
            return Line(f"{event.log_dir}: no clean shutdown file, not all logs are recovered", "warning")
        case LogDirOffline():
            return Line(f"{event.log_dir}: offline: {event.error}", "error")
        case Remark() if event.level != "info":
            place = os.path.join(event.log_dir or "", event.partition or "")
            return Line(f"{place}: {event.text}" if place else event.text, event.level)
        case _:
            return None
