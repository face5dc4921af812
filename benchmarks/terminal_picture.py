"""Take the picture of a terminal in the middle of a recovery: events as a driver sends them, shown by the real view.

    python -m benchmarks.terminal_picture [--into docs/pictures/terminal.svg]

The same view makes the same file.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from recovery.watch.events import Event, LogDirFinished, LogDirHandedOver
from recovery.watch.gauges import Gauges
from recovery.watch.terminal import Terminal
from tests import ROOT
from tests.runs.event_streams import (
    at,
    dir_started,
    log_finished,
    log_started,
    run_started,
    scanned,
    segment_recovered,
)

TITLE = "kafka-log-recovery recover -c /etc/kafka/server.properties"
COLUMNS, LINES = 114, 24
LOG_DIRS = ("/data-0", "/data-1", "/data-2")
SEGMENT_BYTES = 256 << 20
SECONDS = 60.0
LOG_COUNT, SEGMENTS_A_LOG = 120, 4
FINISHED = {"/data-0": 71, "/data-1": 83}
CUT = "orders-18"
LOSS = "offsets 81377 to 96560 (at most 15,184 records), 38,207,488 bytes, 584 batches"

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">
<title id="title">A terminal in the middle of a recovery: bars of the log dirs, time left, a cut</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
line-height: {line_height}px }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As rich's own, but without fonts from elsewhere."""


def events() -> Iterator[Event]:
    """Yield a recovery of two log dirs, and a clean one, up to its middle: one log is cut."""
    yield run_started(log_dirs=LOG_DIRS)
    for log_dir in FINISHED:
        segment_count = LOG_COUNT * SEGMENTS_A_LOG
        yield dir_started(
            log_dir,
            log_count=LOG_COUNT,
            segment_count=segment_count,
            bytes_total=segment_count * SEGMENT_BYTES,
        )
    clean = LOG_DIRS[2]
    yield dir_started(
        clean, had_clean_shutdown=True, log_count=LOG_COUNT, segment_count=0, bytes_total=0, **at(0.1)
    )
    for number in range(LOG_COUNT):
        yield log_finished(
            f"clicks-{number}", "unchanged", log_dir=clean, finished_count=number + 1, **at(0.2)
        )
    yield LogDirHandedOver(log_dir=clean, handoff="clean-shutdown", wrote_marker=True, **at(0.3))
    yield LogDirFinished(log_dir=clean, duration_ms=300, **at(0.3))
    yield from sorted(
        (event for log_dir in FINISHED for event in log_dir_events(log_dir)), key=lambda one: one.monotonic_s
    )


def log_dir_events(log_dir: str) -> Iterator[Event]:
    """Yield what two threads do in a log dir: so many logs, and the beginning of two more."""
    count = FINISHED[log_dir]
    for number in range(count + 2):
        name, thread_num = f"{('orders', 'payments')[number % 2]}-{number}", number % 2
        begin, step = number * SECONDS / (count + 1), SECONDS / (count + 1) / SEGMENTS_A_LOG
        where = {"log_dir": log_dir, "thread_num": thread_num}
        log_bytes = SEGMENTS_A_LOG * SEGMENT_BYTES
        yield log_started(
            name,
            unflushed_segment_count=SEGMENTS_A_LOG,
            recover_bytes=log_bytes,
            **where,
            **at(begin),
        )
        for ordinal in range(SEGMENTS_A_LOG if number < count else 1):
            yield scanned(SEGMENT_BYTES, name, **where, **at(begin + step * ordinal))
            yield segment_recovered(
                SEGMENTS_A_LOG - 1 - ordinal,
                name,
                size_bytes=SEGMENT_BYTES,
                valid_bytes=SEGMENT_BYTES,
                **where,
                **at(begin + step * ordinal),
            )
        if number < count:
            yield from _end_of_log(name, log_dir, begin + step * SEGMENTS_A_LOG, number + 1)


def _end_of_log(name: str, log_dir: str, seconds: float, finished_count: int) -> Iterator[Event]:
    cut: dict[str, object] = {}
    if name == CUT and log_dir == LOG_DIRS[0]:
        cut = {"status": "truncated", "truncated_bytes": 38_207_488, "truncated_batches": 584, "loss": LOSS}
    yield log_finished(
        name, log_dir=log_dir, finished_count=finished_count, log_count=LOG_COUNT, **cut, **at(seconds)
    )


def main(into: Path) -> None:
    """Draw it."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=COLUMNS,
        height=LINES,
        color_system="truecolor",
        highlight=False,
    )
    gauges = Gauges()
    now_s = at(SECONDS)["monotonic_s"]
    with Terminal(io.StringIO(), gauges, monotonic_s=lambda: now_s, console=console) as terminal:
        for event in events():
            gauges(event)
            terminal(event)
    into.write_text(
        console.export_svg(title=TITLE, theme=MONOKAI, code_format=_SVG, unique_id="recovery"),
        encoding="utf-8",
    )
    print(f"{into}: {into.stat().st_size} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures" / "terminal.svg")
    main(parser.parse_args().into)
