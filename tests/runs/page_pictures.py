"""Take the pictures of docs/reference/progress.md: the page of a real run, slowed down, in Chromium.

    python -m tests.runs.page_pictures [INTO]

Writes page.webp, page-dark.webp and page-phone.webp into docs/pictures, or into the folder INTO.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from tests import ROOT
from tests.logs.large_log_dirs import write_large
from tests.logs.samples import unpack
from tests.recovery.cli.test_page import served
from tests.servers.chromium import Chromium

TOPICS = ("orders", "payments", "clicks")
SEGMENT_BYTES = 3 << 20
BYTES_PER_SECOND = "6m"
DONE_SHARE = 0.7
VIEWS = {
    "page": {"width": 1120, "height": 900},
    "page-dark": {"width": 1120, "height": 900, "dark": True},
    "page-phone": {"width": 390, "height": 1500, "scale": 1.5},
}


def make_log_dirs(root: Path) -> list[Path]:
    """Write three log dirs, the last one of a clean shutdown, with damage in one log of the second."""
    log_dirs = [root / f"data-{number}" for number in range(3)]
    for number in range(24):
        folder = log_dirs[number % 2] / f"{TOPICS[number % 3]}-{number // 3}"
        write_large(folder, SEGMENT_BYTES)
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: b8tRS7h4TJ2Vt43Dp85v2A\n")
    shutil.move(unpack("stopped", root).log_dirs[0], log_dirs[2])
    identity = (log_dirs[2] / "meta.properties").read_text()
    for number, log_dir in enumerate(log_dirs[:2]):
        other = re.sub("(directory.id=.).*", rf"\g<1>{'AB'[number]}HTJ2Vt43Dp85v2AbtRSg", identity)
        (log_dir / "meta.properties").write_text(other)
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            (log_dir / name).write_text("0\n0\n")
    _damage(max((log_dirs[1] / "orders-7").glob("*.log")))
    return log_dirs


def _damage(log: Path) -> None:
    """Change a byte of a record, two thirds into the *log*."""
    data = bytearray(log.read_bytes())
    batch_bytes = 12 + int.from_bytes(data[8:12], "big")
    data[len(data) // batch_bytes * 2 // 3 * batch_bytes + 1000] ^= 1
    log.write_bytes(data)


def main(into: Path) -> int:
    """Take all pictures at once, of one moment."""
    into.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="kafka-") as folder,
        Chromium(Path(folder) / "chromium") as chromium,
    ):
        log_dirs = make_log_dirs(Path(folder))
        arguments = ("recover", "--log-dirs", ",".join(map(str, log_dirs)), "--threads", 2)
        with served(arguments, Path(folder), "--max-bytes-per-second", BYTES_PER_SECOND) as (_, url):
            tabs = {name: chromium.open(url, **view) for name, view in VIEWS.items()}
            for tab in tabs.values():
                tab.wait_for(f"seen.status?.scanned_bytes > {DONE_SHARE} * seen.status.bytes_total")
            for name, tab in tabs.items():
                (into / f"{name}.webp").write_bytes(tab.take_picture("webp", whole=name != "page-phone"))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"))
