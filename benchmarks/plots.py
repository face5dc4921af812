"""Draw what `benchmarks.sweep` has measured: one SVG file for each sweep.

    python -m benchmarks.plots FILE [--into docs/plots]

Needs matplotlib: `pip install -e '.[benchmarks]'`. The same figures make the same files.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SIDES = {
    "plain read": "plain read of the files",
    "engine": "recover, the call",
    "process": "recover, the whole process",
    "broker": "4.3.1 broker",
}
"""The lines of each chart, by side, with their legend."""
_COLOURS = {"plain read": "#888888", "engine": "#0b6e4f", "process": "#6fb98f", "broker": "#c0392b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What is drawn.

    Attributes:
        lines: by side, in the order of SIDES: the points, (what is varied, what was measured).
    """

    name: str
    title: str
    across: str
    up: str
    is_across_logarithmic: bool
    lines: dict[str, list[tuple[float, float]]]


def charts(document: dict[str, Any]) -> list[Chart]:
    """Return a chart for each sweep of the document that `benchmarks.sweep` has written."""
    found = []
    for over, measured in document["sweeps"].items():
        by_partition = over == "partitions"
        found.append(
            Chart(
                name=over,
                title={
                    "batch-bytes": "Speed against the size of batches",
                    "threads": "Speed of one partition against threads",
                    "partitions": "Cost of a partition against their number",
                }[over],
                across={"batch-bytes": "bytes of a batch", "threads": "threads"}.get(over, over),
                up="ms a partition" if by_partition else "GB/s",
                is_across_logarithmic=over != "threads",
                lines=_lines(measured, by_partition=by_partition),
            )
        )
    return found


def _lines(measured: list[dict[str, Any]], *, by_partition: bool) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in measured:
        seconds = dict(one["median_seconds"])
        plain = [seconds.pop(side) for side in ("mapped", "pread") if side in seconds]
        if plain and not by_partition:
            seconds["plain read"] = min(plain)
        for side in SIDES:
            if side in seconds:
                speed = one["log_bytes"] / seconds[side] / 1e9
                each_ms = seconds[side] * 1000 / one["partitions"]
                lines.setdefault(side, []).append((one["value"], each_ms if by_partition else speed))
    return lines


def draw(chart: Chart, path: Path) -> None:
    """Draw *chart* as an SVG file whose text is text."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kafka-log-recovery"})
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for side, line in chart.lines.items():
        axes.plot(*zip(*line, strict=True), marker="o", label=SIDES[side], color=_COLOURS[side])
    axes.set(title=chart.title, xlabel=chart.across, ylabel=chart.up, yscale="log")
    if chart.is_across_logarithmic:
        axes.set_xscale("log", base=2)
    values = sorted({value for line in chart.lines.values() for value, _ in line})
    axes.set_xticks(values, [f"{value:,.0f}" for value in values])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> None:
    """Draw all charts and name the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what benchmarks.sweep has written")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "plots")
    options = parser.parse_args(arguments)
    options.into.mkdir(parents=True, exist_ok=True)
    for chart in charts(json.loads(options.file.read_text())):
        path = options.into / f"{chart.name}.svg"
        try:
            draw(chart, path)
        except ImportError as error:
            sys.exit(f"{error}: matplotlib is needed: pip install -e '.[benchmarks]'")
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
