"""What `python3 dev.py demo` shows: the logs of a real broker that was killed, and then something worth watching.

    python -m benchmarks.demonstration [--bytes 2GiB] [--folder DIR]

The second part makes log dirs of the size that is asked for, as far as the disk allows, and flips one bit: `verify`
finds it, `recover` cuts the log there and keeps what it cuts, and `undo` puts that back. All is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from benchmarks.generate import Dataset, Shape, generate, read_size
from tests import ROOT
from tests.brokers import KafkaUnavailableError
from tests.brokers.broker import BrokerError
from tests.logs.samples import unpack

SAMPLE = "crashed"
_SPARE_SHARE = 3
"""Of the free space at most one part in so many is used."""


def main() -> int:
    """Show it, and return the exit code: 0 if everything went as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=read_size, default=2 << 30)
    parser.add_argument("--folder", type=Path, help="where it is made (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafka-log-recovery-", dir=options.folder) as folder:
        is_right = _of_a_broker(Path(folder)) and _worth_watching(Path(folder), options.bytes)
    print(
        "\nAll of that was made for this, and is removed now. Where a broker of yours is stopped:\n\n"
        "$ pip install .\n"
        "$ kafka-log-recovery recover -c /etc/kafka/server.properties --dry-run\n\n"
        "or, from here and without installing, python3 dev.py run recover ... What to do then is in\n"
        "docs/operate/start.md."
    )
    return 0 if is_right else 1


def _of_a_broker(folder: Path) -> bool:
    sample = unpack(SAMPLE, folder)
    now_ms = json.loads((sample.root / "sample.json").read_text())["now_ms"]
    print(
        f"1. sample_logs/{SAMPLE}.tar.xz: the log dirs of a 4.3.1 broker that was killed. --now is the clock of that\n"
        "   day, by which no producer has expired since. Progress comes first, then the report.\n"
    )
    command = ("recover", "-c", str(sample.config), "--now", str(now_ms))
    is_recovered = _run(*command) == 0
    print("\nOnce more: there is nothing left to do.\n")
    return is_recovered and _run(*command, "--progress", "none") == 0


def _worth_watching(folder: Path, size_bytes: int) -> bool:
    size_bytes = min(size_bytes, shutil.disk_usage(folder).free // _SPARE_SHARE) >> 20 << 20
    print(f"\n2. {size_bytes >> 20} MiB of logs are made here, and one bit of them is flipped.\n", flush=True)
    made = _made(folder / "made", Shape(bytes_total=size_bytes, batch_bytes=16 << 10, partitions=8, dirs=2))
    logs = sorted(made.log_dirs[0].glob("*-*/*.log"))
    _flip(logs[len(logs) // 2])
    config = folder / "server.properties"
    config.write_text(f"log.dirs={','.join(map(str, made.log_dirs))}\n")
    print("What is damaged? This changes nothing.\n")
    is_found = _run("verify", "-c", str(config)) == 2
    print(
        "\nWhat a broker would cut is cut, and kept; exit code 2 says so. It is slowed down, for you to watch.\n"
    )
    is_cut = _run("recover", "-c", str(config), "--max-bytes-per-second", "400M") == 2
    print("\nWhat was cut lies in quarantine.\n")
    is_listed = _run("quarantine", "list", "-c", str(config)) == 0
    print("\nAnd back: as it was before.\n")
    is_back = _run("undo", "-c", str(config), quiet=True) == 0
    return is_found and is_cut and is_listed and is_back


def _made(into: Path, shape: Shape) -> Dataset:
    """Make log dirs with the topic settings of a broker, where one can be had."""
    if _works("java", "-version") and _works("mvn", "--version"):
        try:
            return generate(into, shape)
        except (KafkaUnavailableError, BrokerError) as error:
            why = textwrap.shorten(str(error), 300, placeholder=" ...")
            print(f"They are made without a broker, and the topic has no settings: {why}\n", flush=True)
            shutil.rmtree(into)
    return generate(into, shape, with_broker=False)


def _works(*command: str) -> bool:
    """Return whether a program is there, and runs."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _flip(log: Path) -> None:
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        octet = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([octet ^ 1]))


def _run(*arguments: str, quiet: bool = False) -> int:
    """Show a command and run it; *quiet*: without the lines that go into detail."""
    print(f"$ kafka-log-recovery {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "recovery", *arguments]
    if not quiet:
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    print("\n".join(line for line in done.stdout.splitlines() if not line.startswith(" ")), flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
