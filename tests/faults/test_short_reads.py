"""Every read and every write does half of what it was asked: all is told as if each had done the whole.

A file system of its own (FUSE, NFS) may do so, and any does above 2 GiB.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers.tiered_broker import ARCHIVE
from tests.faults.one_command import CommandBench
from tests.faults.shim import Action, Fault
from tests.logs.samples import unpack

pytestmark = pytest.mark.long

_HALVED = Fault(action=Action.SHORTEN, at=1, is_persistent=True)
_OWN = re.compile(r"(Ms|Seconds|PerSecond|^low|^high|^freeBytes|^run|^version)$")
"""Keys of what each run measures anew, or calls by a name of its own."""
_RUN = re.compile(r"\d{8}T\d{6}Z")
_LOG_DIRS = ("--log-dirs", "{root}/d1,{root}/d2")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBench(CommandBench):
    """A command on a sample; `{root}` in its words is the sample's folder."""

    sample: str
    words: Sequence[str]

    def make(self) -> None:
        """Unpack the sample."""
        unpack(self.sample, self.folder).root.rename(self.folder / "fresh")

    def fresh(self) -> None:
        """Begin anew."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.folder / "fresh", self.root, symlinks=True)

    def command(self) -> Sequence[str]:
        """The command, in JSON."""
        words = [word.format(root=self.root) for word in self.words]
        return [*words, "--format", "json"]


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("crashed", ("verify", *_LOG_DIRS)),
        ("crashed-v0-v1", ("verify", *_LOG_DIRS)),
        ("crashed", ("estimate", *_LOG_DIRS)),
        ("crashed", ("recover", "-n", *_LOG_DIRS)),
        ("crashed", ("recover", *_LOG_DIRS)),
        ("crashed-v0-v1", ("recover", *_LOG_DIRS)),
        ("crashed", ("archive", "copy", *_LOG_DIRS, "--output", "{root}/copy")),
        ("tiered", ("archive", "verify", f"{{root}}/{ARCHIVE}")),
        ("tiered", ("archive", "inventory", f"{{root}}/{ARCHIVE}", "--metadata", _LOG_DIRS[1])),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_it_tells_the_same(ram_path: Path, sample: str, words: Sequence[str]) -> None:
    bench = SampleBench(folder=ram_path, sample=sample, words=words)
    bench.make()
    whole, halved = (_told(bench, fault) for fault in (None, _HALVED))
    assert halved == whole


def _told(bench: SampleBench, fault: Fault | None) -> tuple[int, object]:
    bench.fresh()
    done = bench.run(fault)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    return done.returncode, _without_own(json.loads(_RUN.sub("RUN", done.stdout)))


def _without_own(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_own(one) for key, one in value.items() if not _OWN.search(key)}
    if isinstance(value, list):
        return [_without_own(one) for one in value]
    return value
