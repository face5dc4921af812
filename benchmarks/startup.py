"""What a start costs: whole processes, small work.

    python -m benchmarks.startup [--rounds 11] [--json FILE]

    pass        python -c pass
    numba       python -c 'import numba': what a start would cost at least if it needed numba
    help        kafka-log-recovery --help
    recover     kafka-log-recovery recover, on a fresh copy of sample_logs/crashed

Clocks run from fork to exit. Each command has run once before, so that kernels and byte code are cached and the files
of all of them are in the page cache; copies are made and synced before the clock starts. One round runs all of them,
forwards and backwards in turn; ratios are medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from tests.logs.samples import unpack

_RECOVERY = [sys.executable, "-m", "recovery"]
COMMANDS = {
    "pass": [sys.executable, "-c", "pass"],
    "numba": [sys.executable, "-c", "import numba"],
    "help": [*_RECOVERY, "--help"],
    "recover": [*_RECOVERY, "recover", "--progress", "none"],
}
GOALS = {("recover", "numba"): 2.0, ("help", "pass"): 8.0}
"""How many times longer the first may take than the second."""


def run_seconds(name: str) -> float:
    """Run a command and return the seconds of its whole process."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # an installation has byte code
    with tempfile.TemporaryDirectory() as scratch:
        command = COMMANDS[name]
        if name == "recover":
            sample = unpack("crashed", Path(scratch))
            command = [*command, "-c", str(sample.config), "--now", str(sample.now_ms)]
            os.sync()  # or the command waits for what has been unpacked
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=machine.ROOT, env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - begin
    if done.returncode not in ((0, 2) if name == "recover" else (0,)):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return seconds


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for others, a round")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(arguments)
    for name in COMMANDS:
        run_seconds(name)
    rounds, shares = [], []
    for number in range(options.rounds):
        machine.wait_until_quiet(options.patience)
        meter = machine.CpuMeter()
        order = list(COMMANDS)[:: -1 if number % 2 else 1]
        rounds.append({name: run_seconds(name) for name in order})
        shares.append(round(meter.foreign_share(), 3))
    print(f"| {options.rounds} rounds | goal | median | least .. most | |\n|---|---|---|---|---|")
    for name in COMMANDS:
        times = sorted(one[name] * 1000 for one in rounds)
        print(f"| {name} | | {statistics.median(times):.0f} ms | {times[0]:.0f} .. {times[-1]:.0f} | |")
    ratios = {}
    for (longer, shorter), goal in GOALS.items():
        each = sorted(one[longer] / one[shorter] for one in rounds)
        median = ratios[f"{longer} / {shorter}"] = statistics.median(each)
        verdict = "reached" if median <= goal else "missed"
        print(
            f"| {longer} / {shorter} | at most {goal:.0f} | {median:.2f} | "
            f"{each[0]:.2f} .. {each[-1]:.2f} | {verdict} |"
        )
    facts = machine.describe(machine.ROOT)
    print(f"\nothers used {statistics.median(shares):.0%} of the CPUs meanwhile, {max(shares):.0%} at most")
    print(machine.line(facts))
    if options.json:
        document = {
            "version": 1,
            "machine": facts,
            "rounds": rounds,
            "ratios": ratios,
            "foreign_shares": shares,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    machine.end_cleanly_when_told()
    main()
