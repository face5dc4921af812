"""What watching costs a run: a scrape a second, an open page, the textfile, and all of them, against nobody watching.

    python -m benchmarks.watching --scratch DIR [--bytes 2GiB] [--runs 18] [--rounds 15] [--json FILE]

    nobody      recover --dry-run, no observers
    served      the server is there, and nobody asks
    scrape      GET /metrics once a second
    page        GET /api/v1/status once a second, as the page does
    textfile    the metrics in a file, every five seconds
    all         these three at once

A dry run reads, checks and folds everything and writes nothing, so one process can do it again and again, from the page
cache. A round has all sides, forwards and backwards in turn, and one process recovers in all of them: from process to
process the same work takes ten percent more or less. CPU and clock are those of the calls of `recovery.recover`. Who
asks is in another process.

Shares are medians of the rounds' ratios to `nobody`. Even on a quiet machine these spread by more than what is to be
measured, so the CPU of the threads that watch, and that of the observers in the threads of the run, is measured by
itself, too, as a share of the CPU of the run: `watching alone`. It is what must be below MOST. It leaves out what the
threads of a run wait for one that watches.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import recovery
from benchmarks import machine
from benchmarks.generate import Shape, generate, read_size
from recovery.watch.events import Event, Observer
from recovery.watch.open import ObserverOptions, open_observers

PATHS = {
    "served": [],
    "scrape": ["/metrics"],
    "page": ["/api/v1/status"],
    "all": ["/metrics", "/api/v1/status"],
}
SIDES = ("nobody", "served", "scrape", "page", "textfile", "all")
MOST = 0.01
"""The share of a run's CPU that watching may cost."""
_WATCHING_THREADS = ("http", "textfile")


def work(log_dirs: list[str], runs: int) -> None:
    """Recover in this process, watched as each line of the input says; say when that begins, and then what it took."""
    for line in sys.stdin:
        print(json.dumps(_watched_runs(log_dirs, runs, json.loads(line))), flush=True)


def _watched_runs(log_dirs: list[str], runs: int, options: dict[str, Any]) -> dict[str, Any]:
    with open(os.devnull, "w") as nowhere, open_observers(ObserverOptions(**options), nowhere) as observers:
        timed = [_TimedObserver(observer) for observer in observers]
        print("begun", flush=True)
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        reports = [
            recovery.recover(log_dirs, dry_run=True, processes="never", observers=timed) for _ in range(runs)
        ]
        return {
            "seconds": time.perf_counter() - begin_s,
            "cpu_seconds": time.process_time() - cpu_s,
            "watching_cpu_seconds": _watching_cpu_seconds() + sum(one.cpu_ns for one in timed) / 1e9,
            "exit_code": max(report.exit_code for report in reports),
        }


class _TimedObserver:
    """An observer, and the CPU that it takes; events come one at a time."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.cpu_ns = 0

    def __call__(self, event: Event) -> None:
        begin_ns = time.thread_time_ns()
        self._observer(event)
        self.cpu_ns += time.thread_time_ns() - begin_ns


def _watching_cpu_seconds() -> float:
    """Return what the threads that watch have used, by the scheduler's account."""
    threads = [thread.native_id for thread in threading.enumerate() if thread.name in _WATCHING_THREADS]
    return sum(int(Path(f"/proc/self/task/{one}/schedstat").read_text().split()[0]) for one in threads) / 1e9


@contextmanager
def worker(log_dirs: list[str], options: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """The process that recovers."""
    job = json.dumps([log_dirs, options.runs])
    command = [sys.executable, "-m", "benchmarks.watching", "--work", job]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=machine.ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield process


def measure(side: str, process: subprocess.Popen[str], options: argparse.Namespace) -> dict[str, Any]:
    """Let *process* work on one side, and return what it took."""
    assert process.stdin is not None
    assert process.stdout is not None
    watched = {
        "progress": "none",
        "metrics_port": options.port if side in PATHS else None,
        "metrics_textfile": str(options.scratch / "watching.prom") if side in ("textfile", "all") else None,
    }
    print(json.dumps(watched), file=process.stdin, flush=True)
    process.stdout.readline()
    is_over = threading.Event()
    asking = threading.Thread(
        target=_ask_until, args=(is_over.wait, options.port, PATHS.get(side, ()), counts := [0])
    )
    asking.start()
    said = process.stdout.readline()
    is_over.set()
    asking.join()
    if not said:
        raise SystemExit(f"{side}: the run has failed")
    found: dict[str, Any] = json.loads(said) | {"requests": counts[0]}
    if found["exit_code"] != 0:
        raise SystemExit(f"{side}: the run has ended with {found['exit_code']}")
    return found


def _ask_until(wait: Callable[[float], bool], port: int, paths: list[str], counts: list[int]) -> None:
    while paths:
        for path in paths:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).read()
            except OSError:  # at the end of the run
                return
            counts[0] += 1
        if wait(1.0):
            return


def print_table(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Print what was found as Markdown, and return the shares."""
    shares: dict[str, dict[str, float]] = {}
    print("| side | CPU | more CPU | least .. most | more time | least .. most | watching alone | asked | |")
    print("|---|---|---|---|---|---|---|---|---|")
    for side in SIDES:
        each = [one[side] for one in rounds]
        cells = [f"{statistics.median(one['cpu_seconds'] for one in each):.2f} s"]
        shares[side] = {}
        for name in ("cpu_seconds", "seconds"):
            ratios = [one[side][name] / one["nobody"][name] - 1 for one in rounds]
            shares[side][name] = statistics.median(ratios)
            cells += [f"{shares[side][name]:+.2%}", f"{min(ratios):+.1%} .. {max(ratios):+.1%}"]
        shares[side]["watching"] = statistics.median(
            one["watching_cpu_seconds"] / one["cpu_seconds"] for one in each
        )
        asked = statistics.median(one["requests"] for one in each)
        verdict = "" if side == "nobody" else "reached" if shares[side]["watching"] < MOST else "missed"
        print(f"| {side} | {' | '.join(cells)} | {shares[side]['watching']:.3%} | {asked:.0f} | {verdict} |")
    return shares


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, help="folder for the log dirs; must not exist")
    parser.add_argument("--bytes", type=read_size, default=2 << 30, help="bytes of logs")
    parser.add_argument("--batch-bytes", type=read_size, default=64 << 10)
    parser.add_argument("--runs", type=int, default=18, help="dry runs on each side")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--port", type=int, default=19404)
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for others, a round")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work is not None:
        work(*options.work)
        return
    if options.scratch is None:
        parser.error("--scratch is needed")
    shape = Shape(
        bytes_total=options.bytes, batch_bytes=options.batch_bytes, dirs=2, partitions=4, segments=2
    )
    options.scratch.mkdir(parents=True)
    try:
        _measure(options, shape)
    finally:
        shutil.rmtree(options.scratch)


def _measure(options: argparse.Namespace, shape: Shape) -> None:
    dataset = generate(options.scratch / "made", shape, with_broker=False)
    log_dirs = [str(log_dir) for log_dir in dataset.log_dirs]
    rounds, shares_of_others = [], []
    with worker(log_dirs, options) as process:
        measure("nobody", process, options)  # kernels, byte code and the page cache
        for number in range(options.rounds):
            machine.wait_until_quiet(options.patience)
            meter = machine.CpuMeter()
            order = SIDES[:: -1 if number % 2 else 1]
            rounds.append({side: measure(side, process, options) for side in order})
            used_s = sum(found["cpu_seconds"] for found in rounds[-1].values())
            shares_of_others.append(round(meter.foreign_share(used_s), 3))
            words = "  ".join(f"{side} {rounds[-1][side]['cpu_seconds']:.2f}" for side in SIDES)
            print(
                f"  round {number + 1}, CPU: {words}  (others: {shares_of_others[-1]:.0%})", file=sys.stderr
            )
    seconds = statistics.median(one["nobody"]["seconds"] for one in rounds)
    read_bytes = dataset.log_bytes * options.runs
    print(f"\n{read_bytes / 1e9:.1f} GB of logs in {seconds:.1f} s, {options.rounds} rounds\n")
    shares = print_table(rounds)
    facts = machine.describe(options.scratch)
    others = statistics.median(shares_of_others)
    print(f"\nothers used {others:.0%} of the CPUs meanwhile, {max(shares_of_others):.0%} at most")
    print(machine.line(facts))
    if options.json:
        document = {
            "version": 1,
            "machine": facts,
            "shape": asdict(shape),
            "rounds": rounds,
            "shares": shares,
        }
        options.json.write_text(json.dumps(document | {"foreign_shares": shares_of_others}, indent=1) + "\n")


if __name__ == "__main__":
    machine.end_cleanly_when_told()
    main()
