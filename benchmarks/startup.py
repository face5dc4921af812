"""What a start costs: whole processes, small work.

    python -m benchmarks.startup [--rounds 10] [--json FILE]

    pass        python -c pass
    numba       python -c 'import numba': nothing that uses numba can start faster
    help        kafka-log-recovery --help
    recover     kafka-log-recovery recover, on a fresh copy of sample_logs/crashed, kernels cached before

One round runs all of them, forwards and backwards in turn; ratios are medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from tests.samples import unpack

_RECOVERY = [sys.executable, "-m", "recovery"]
COMMANDS = {
    "pass": [sys.executable, "-c", "pass"],
    "numba": [sys.executable, "-c", "import numba"],
    "help": [*_RECOVERY, "--help"],
    "recover": [*_RECOVERY, "recover", "--progress", "none"],
}
PAIRS = (("recover", "numba"), ("help", "pass"))


def run_seconds(name: str) -> float:
    """Run a command and return the seconds of its whole process."""
    with tempfile.TemporaryDirectory() as scratch:
        command = COMMANDS[name]
        if name == "recover":
            sample = unpack("crashed", Path(scratch))
            command = [*command, "-c", str(sample.config), "--now", str(sample.now_ms)]
        begin = time.perf_counter()
        done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begin
    if done.returncode not in ((0, 2) if name == "recover" else (0,)):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return seconds


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    for name in COMMANDS:
        run_seconds(name)
    rounds = []
    meter = machine.CpuMeter()
    for number in range(options.rounds):
        order = list(COMMANDS)[:: -1 if number % 2 else 1]
        rounds.append({name: run_seconds(name) for name in order})
    share = meter.foreign_share()
    print("| | median | least |\n|---|---|---|")
    for name in COMMANDS:
        seconds = [one[name] for one in rounds]
        print(f"| {name} | {statistics.median(seconds) * 1000:.0f} ms | {min(seconds) * 1000:.0f} ms |")
    ratios = {}
    for slower, faster in PAIRS:
        each = [one[slower] / one[faster] for one in rounds]
        ratios[f"{slower} / {faster}"] = statistics.median(each)
        print(f"| {slower} / {faster} | {statistics.median(each):.2f} x | {min(each):.2f} x |")
    print(f"\nothers used {share:.0%} of the CPUs meanwhile")
    if options.json:
        facts = machine.describe(machine.ROOT)
        document = {
            "version": 1,
            "machine": facts,
            "rounds": rounds,
            "ratios": ratios,
            "foreign_share": round(share, 3),
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
