"""The ETA of a run, held against what it then took, second by second, for log dirs of several shapes.

    python -m benchmarks.eta --scratch DIR [--bytes 2gib] [--bytes-per-second 40mib] [--shape NAME ...] [--json FILE]

Each shape is generated below --scratch, and recovered at a fixed rate. Once a second the ETA of the run is noted; when
it is over, so is the truth. Printed are, of the seconds from a tenth of the run on: in how many the ETA was within 20 %
of the time left, in how many there was none, and the median and the worst of the errors. What others do on the machine
meanwhile is in the figures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import recovery
from benchmarks.generate import Shape, generate, read_size
from recovery.watch.gauges import Gauges
from segfmt.checkpoint import encode_offset_checkpoint
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT

WITHIN = 0.2
_FROM_SHARE = 0.1
_THREADS = 2


class Part(NamedTuple):
    """Some equal logs of a log dir: how many, of how many segments, and which share of all bytes they have."""

    log_dir: int
    logs: int
    segments: int
    share: float


@dataclass(frozen=True, slots=True)
class Scene:
    """What lies in the log dirs, and whether it has offset indexes."""

    parts: tuple[Part, ...]
    has_indexes: bool = True


SCENES = {
    "one large log": Scene((Part(0, 1, 16, 1.0),)),
    "2,000 small logs": Scene((Part(0, 2000, 1, 1.0),)),
    "mixed sizes": Scene((Part(0, 2, 4, 0.4), Part(0, 30, 3, 0.4), Part(0, 400, 1, 0.2))),
    "large first, 2,000 small last": Scene((Part(0, 2, 8, 0.8), Part(0, 2000, 1, 0.2))),
    "without indexes": Scene((Part(0, 1, 8, 0.5), Part(0, 40, 2, 0.5)), has_indexes=False),
    "two log dirs, 4 : 1": Scene((Part(0, 8, 3, 0.8), Part(1, 8, 2, 0.2))),
}


class Sample(NamedTuple):
    """An ETA when it was told, seconds since the run began."""

    at_s: float
    eta_s: float | None


def build(place: Path, scene: Scene, bytes_total: int) -> list[Path]:
    """Make the log dirs of *scene* below *place*; no broker starts on them."""
    log_dirs = [place / f"d{number}" for number in sorted({part.log_dir for part in scene.parts})]
    for log_dir in log_dirs:
        log_dir.mkdir(parents=True)
        (log_dir / RECOVERY_POINT_CHECKPOINT).write_bytes(
            encode_offset_checkpoint({})
        )  # without it, no broker's
    for number, part in enumerate(scene.parts):
        shape = Shape(
            bytes_total=int(bytes_total * part.share),
            batch_bytes=16 << 10,
            dirs=1,
            partitions=part.logs,
            segments=part.segments,
            producers=10,
        )
        dataset = generate(place / "part", shape, with_broker=False)
        for folder in dataset.log_dirs[0].glob("bench-*"):
            folder.rename(log_dirs[part.log_dir] / f"part{number}-{folder.name.rpartition('-')[2]}")
        shutil.rmtree(place / "part")
    if not scene.has_indexes:
        for log_dir in log_dirs:
            for path in log_dir.glob("*/*.index"):
                path.unlink()
    return log_dirs


def watch(log_dirs: list[Path], bytes_per_second: int) -> tuple[float, list[Sample]]:
    """Recover, and return the seconds that it took and the ETA of each second."""
    gauges, samples, is_over = Gauges(), [], threading.Event()
    begin_s = time.monotonic()

    def look() -> None:
        while not is_over.wait(1.0):
            now_s = time.monotonic()
            samples.append(Sample(now_s - begin_s, gauges.values(now_s).eta_seconds))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        report = recovery.recover(
            [str(log_dir) for log_dir in log_dirs],
            topic_configs={},
            threads=_THREADS,
            max_bytes_per_second=bytes_per_second,
            observers=[gauges],
        )
    finally:
        seconds = time.monotonic() - begin_s
        is_over.set()
        thread.join()
    if report.exit_code:
        raise SystemExit(f"the recovery ended with {report.exit_code}:\n{report.to_text()}")
    return seconds, samples


def judge(seconds: float, samples: list[Sample]) -> dict[str, float]:
    """Return how right the ETAs were, from a tenth of the run on."""
    late = [sample for sample in samples if sample.at_s >= seconds * _FROM_SHARE]
    errors = [
        abs(sample.eta_s - (seconds - sample.at_s)) / (seconds - sample.at_s)
        for sample in late
        if sample.eta_s is not None
    ]
    return {
        "seconds": round(seconds, 1),
        "samples": len(late),
        "within": round(sum(error <= WITHIN for error in errors) / len(late), 3),
        "withheld": round(1 - len(errors) / len(late), 3),
        "median_error": round(statistics.median(errors), 3) if errors else 1.0,
        "worst_error": round(max(errors, default=1.0), 3),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table; return 1 if the ETA was right in less than 90 % of the samples of a shape."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, required=True, help="a folder with room for the log dirs")
    parser.add_argument("--bytes", type=read_size, default=2 << 30)
    parser.add_argument("--bytes-per-second", type=read_size, default=40 << 20)
    parser.add_argument("--shape", choices=SCENES, action="append", help="all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the samples")
    chosen = parser.parse_args(arguments)
    results = {}
    for name in chosen.shape or SCENES:
        place = chosen.scratch / "eta"
        shutil.rmtree(place, ignore_errors=True)
        log_dirs = build(place, SCENES[name], chosen.bytes)
        seconds, samples = watch(log_dirs, chosen.bytes_per_second)
        shutil.rmtree(place)
        results[name] = judge(seconds, samples) | {"etas": samples}
        figures = {key: value for key, value in results[name].items() if key != "etas"}
        print(f"{name:>30}: {figures}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(result["within"] < 0.9 for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
