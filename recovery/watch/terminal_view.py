"""What the terminal shows for given figures: a function only of values and the size of the screen.

Narrow screens lose columns, the least needed first; low screens lose the lines of the threads first, then
those of log dirs that are done. The line of all dirs is always there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recovery.printable import printable
from recovery.quantity import bytes_text, duration_text, rate_text
from recovery.watch.figures import (
    DOING,
    DONE,
    OF_ARCHIVES,
    RESUMED,
    WRITERS,
    GaugeValues,
    LogDirValues,
    LogStatus,
    RunState,
)

SEGMENTS_MIN_WIDTH = 112
BYTES_MIN_WIDTH = 92
RATE_MIN_WIDTH = 60
_HEADINGS_AND_TOTALS = 6

_STARTING = "Starting; the first run on a machine compiles its kernels, which takes some seconds"
_STYLES: dict[RunState, str] = {
    "waiting": "dim",
    "listing": "bold",
    "recovering": "bold",
    "verifying": "bold",
    "copying": "bold",
    "complete": "bold green",
    "incomplete": "bold red",
    "interrupted": "bold yellow",
    "failed": "bold red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What one line of the table shows."""

    name: Text
    finished_logs: int
    log_count: int
    finished_segments: int
    segment_count: int
    done_bytes: int
    bytes_total: int
    bytes_per_second: float | None
    left: Text
    has_ended: bool


def view(values: GaugeValues, width: int, height: int) -> RenderableType:
    """Return the picture of *values* on a screen of *width* columns and *height* lines."""
    log_dirs, hidden_count = _fitting(values.log_dirs, height - _HEADINGS_AND_TOTALS)
    parts: list[RenderableType] = [_title(values, width)]
    if not values.log_dirs:
        return Group(*parts)
    names = short_names([log_dir.log_dir for log_dir in log_dirs], max(width // 4, 14))
    table = _table(width)
    for name, log_dir in zip(names, log_dirs, strict=True):
        _add(table, _dir_row(name, log_dir), width)
    if hidden_count:
        table.add_row(Text(f"and {hidden_count} more", style="dim"))
    if len(values.log_dirs) > 1:
        _add(table, _sum_row(values), width)
    parts.append(table)
    if 2 * len(log_dirs) + _HEADINGS_AND_TOTALS <= height:
        of_threads = (_threads(name, log_dir) for name, log_dir in zip(names, log_dirs, strict=True))
        parts.extend(filter(None, of_threads))
    if losses := _losses(values.log_dirs, "to cut: " if values.dry_run else "cut "):
        parts.append(losses)
    return Group(*parts)


def _title(values: GaugeValues, width: int) -> Text:
    style = _STYLES[values.state]
    is_dry = values.dry_run and values.command in WRITERS
    text = Text(_heading(values, is_dry=is_dry), style=style)
    if is_dry:
        text.append(" (dry run: nothing is written)", style="not bold cyan")
    if values.started_ms is not None:
        before = " in " if values.exit_code is not None else ", "
        after = "" if values.exit_code is not None else " so far"
        text.append(f"{before}{duration_text(values.elapsed_seconds)}{after}", style="not bold")
    scanned_bytes = sum(log_dir.scanned_bytes for log_dir in values.log_dirs)
    if values.exit_code is not None and scanned_bytes and values.elapsed_seconds:
        rate = rate_text(scanned_bytes / values.elapsed_seconds)
        read = f", {bytes_text(scanned_bytes)} read at {rate}"
        if len(text) + len(read) <= width:
            text.append(read, style="not bold")
    return text


def _heading(values: GaugeValues, *, is_dry: bool) -> str:
    """Return what the run does, or how it ended, and to how many log dirs."""
    match values.state:
        case "waiting":
            heading = _STARTING
        case "listing":
            heading = "Listing"
        case "recovering" | "verifying" | "copying":
            heading = DOING[values.command]
        case "complete":
            heading = "Checked" if is_dry else DONE[values.command]
        case "incomplete":
            heading = f"{'Checked' if is_dry else DONE[values.command]} in part:"
        case "interrupted":
            resumes = values.command in RESUMED
            heading = f"Interrupted{' (start again to resume)' if resumes else ''}:"
        case "failed":
            heading = "Failed:"
    count = len(values.log_dirs)
    if not count:
        return heading
    noun = "archive" if values.command in OF_ARCHIVES else "log dir"
    return f"{heading} {_counted(count, noun)}"


def _table(width: int) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("log dir", no_wrap=True)
    table.add_column("", ratio=1, min_width=6)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("logs", justify="right", no_wrap=True)
    if width >= SEGMENTS_MIN_WIDTH:
        table.add_column("segments", justify="right", no_wrap=True)
    if width >= BYTES_MIN_WIDTH:
        table.add_column("bytes", justify="right", no_wrap=True)
    if width >= RATE_MIN_WIDTH:
        table.add_column("rate", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    return table


def _add(table: Table, row: _Row, width: int) -> None:
    share = _share(row)
    cells: list[RenderableType] = [
        row.name,
        ProgressBar(total=1.0, completed=share, finished_style="green"),
        Text(f"{int(share * 100)} %"),
        Text(_of(row.finished_logs, row.log_count)),
    ]
    if width >= SEGMENTS_MIN_WIDTH:
        is_foreseen = row.segment_count or not row.finished_segments
        words = _of(row.finished_segments, row.segment_count) if is_foreseen else f"{row.finished_segments:,}"
        cells.append(Text(words))
    if width >= BYTES_MIN_WIDTH:
        cells.append(Text(_bytes_of(row.done_bytes, row.bytes_total)))
    if width >= RATE_MIN_WIDTH:
        cells.append(Text(rate_text(row.bytes_per_second) if row.bytes_total and not row.has_ended else "-"))
    table.add_row(*cells, row.left)


def _share(row: _Row) -> float:
    """Return the share done, by bytes, else by logs; full only when all is done: the last log may still be written."""
    if row.has_ended:
        return 1.0
    done, total = (row.done_bytes, row.bytes_total) if row.bytes_total else (row.finished_logs, row.log_count)
    return min(done / total, 0.99) if total else 0.0


def _dir_row(name: str, values: LogDirValues) -> _Row:
    return _Row(
        name=Text(name),
        finished_logs=values.finished_logs,
        log_count=values.log_count,
        finished_segments=_finished_segments(values),
        segment_count=values.segment_count,
        done_bytes=values.bytes_total - values.remaining_bytes,
        bytes_total=values.bytes_total,
        bytes_per_second=values.bytes_per_second,
        left=_left(values),
        has_ended=values.is_finished,
    )


def _finished_segments(values: LogDirValues) -> int:
    return values.finished_segments if values.is_foreseen else values.recovered_segments


def _left(values: LogDirValues) -> Text:
    if values.is_offline:
        return Text("offline", style="bold red")
    if values.is_finished:
        return Text("clean" if values.had_clean_shutdown else "done", style="green")
    return _eta(values.eta_seconds)


def _sum_row(values: GaugeValues) -> _Row:
    log_dirs = values.log_dirs
    bytes_total = sum(log_dir.bytes_total for log_dir in log_dirs)
    has_ended = all(log_dir.is_finished for log_dir in log_dirs)
    return _Row(
        name=Text("all", style="bold"),
        finished_logs=sum(log_dir.finished_logs for log_dir in log_dirs),
        log_count=sum(log_dir.log_count for log_dir in log_dirs),
        finished_segments=sum(map(_finished_segments, log_dirs)),
        segment_count=sum(log_dir.segment_count for log_dir in log_dirs),
        done_bytes=bytes_total - sum(log_dir.remaining_bytes for log_dir in log_dirs),
        bytes_total=bytes_total,
        bytes_per_second=values.bytes_per_second,
        left=Text("done", style="green") if has_ended else _eta(values.eta_seconds),
        has_ended=has_ended,
    )


def _eta(eta_seconds: float | None) -> Text:
    return Text("-", style="dim") if eta_seconds is None else Text(duration_text(eta_seconds))


def _threads(name: str, values: LogDirValues) -> Text | None:
    """Return what the threads of a dir are working on; a line that is too long ends at the edge of the screen.

    A broker that is watched by its gauges tells segments and no logs, one that is watched by its log often the reverse.
    """
    left = {thread_num: count for thread_num, count in enumerate(values.remaining_segments) if count}
    text = Text(name, style="dim", no_wrap=True, overflow="ellipsis")
    busy = sorted(left.keys() | values.threads.keys())
    for thread_num in busy:
        parts = [printable(values.threads[thread_num])] if thread_num in values.threads else []
        parts += [f"{_counted(left[thread_num], 'segment')} left"] if thread_num in left else []
        text.append(f"  {thread_num}: {', '.join(parts)}")
    return text if busy else None


def _losses(log_dirs: Sequence[LogDirValues], verb: str) -> Text | None:
    cut_bytes = sum(log_dir.truncated_bytes for log_dir in log_dirs)
    cut_batches = sum(log_dir.truncated_batches for log_dir in log_dirs)
    counts: dict[LogStatus, int] = {
        status: sum(log_dir.partitions.get(status, 0) for log_dir in log_dirs)
        for status in ("truncated", "refused", "failed", "damaged")
    }
    text = Text()
    if counts["truncated"]:
        logs = _counted(counts["truncated"], "log")
        batches = f", {_counted(cut_batches, 'batch')}" if cut_batches else ""
        text.append(f"{verb}{bytes_text(cut_bytes)} off {logs}{batches}", style="yellow")
    for status in ("refused", "failed", "damaged"):
        if counts[status]:
            text.append("   " if text else "").append(
                f"{_counted(counts[status], 'log')} {status}", style="bold red"
            )
    return text or None


def _counted(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def _of(done: int, total: int) -> str:
    return f"{done:,}/{total:,}"


def _bytes_of(done: int, total: int) -> str:
    return f"{bytes_text(done)} of {bytes_text(total)}" if total else "-"


def _fitting(log_dirs: tuple[LogDirValues, ...], line_count: int) -> tuple[list[LogDirValues], int]:
    """Return the dirs to show, the unfinished ones before the others, and how many are left out."""
    room = max(line_count, 1)
    if len(log_dirs) <= room:
        return list(log_dirs), 0
    by_need = sorted(range(len(log_dirs)), key=lambda i: log_dirs[i].is_finished)
    shown = sorted(by_need[:room])
    return [log_dirs[i] for i in shown], len(log_dirs) - room


def short_names(log_dirs: Sequence[str], max_chars: int) -> list[str]:
    """Return names of at most *max_chars*: the ends of the paths, or both ends if these are the same."""
    names = [printable(log_dir) for log_dir in log_dirs]
    ends = [name if len(name) <= max_chars else "…" + name[1 - max_chars :] for name in names]
    if len(set(ends)) == len(set(names)):
        return ends
    head = (max_chars - 1) // 2
    tail = max_chars - 1 - head
    return [name if len(name) <= max_chars else f"{name[:head]}…{name[-tail:]}" for name in names]
