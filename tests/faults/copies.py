"""Copies that are killed at a call, or in which one fails, and that are started again.

What must hold: the log dirs stay as they are; no half object has the name of a whole one; what is reported as copied is
there, byte for byte; a run in which something failed says so by its exit code and names the errno; the manifest names
nothing that is not there; the next run comes to the same tree, and sends only what the manifest does not name.

    python -m tests.faults.copies --seed 7 --most 200
    python -m tests.faults.copies --faults --most 200
    python -m tests.faults.copies --again --faults

`--again`: over the copy of an earlier state, with the part of a file that could not be read then. A point is repeated
by its name: `--only kill-after@17`, `--only EIO+@29`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recovery.archive.copy.earlier import EARLIER_SUFFIX
from recovery.archive.copy.listing import PARTIAL_SUFFIX
from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.reading import BLOCK_BYTES
from recovery.archive.copy.run import copy
from recovery.archive.stores.archived import is_temporary
from tests.faults.bad_sector import bad_sector
from tests.faults.one_command import Campaign, CommandBench, unsaid
from tests.faults.shim import KILLING_ACTIONS, Fault
from tests.logs.samples import unpack

CHOSEN = ("late-0", "tiny-batches-0", "orders-0")
"""Partitions whose files are copied, if the sample has them, besides those of the log dirs themselves."""
_PART = "large-0/00000000000000000000.log"
_BAD_POSITION = 1_200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBench(CommandBench):
    """A broker's log dirs, of which a few partitions are left, and an output beside them.

    Attributes:
        is_again: whether the output has a copy of an earlier state.
    """

    is_again: bool = False

    @property
    def output(self) -> Path:
        """Where the copy goes."""
        return self.root / "out"

    def log_dirs(self) -> list[Path]:
        """The log dirs."""
        return [self.root / "d1", self.root / "d2"]

    def command(self) -> Sequence[str]:
        """The copy."""
        log_dirs = ",".join(map(str, self.log_dirs()))
        options = ["--threads", "1", "--progress", "none", "--format", "json"]
        return ["archive", "copy", "--log-dirs", log_dirs, "--output", str(self.output), *options]

    def make(self) -> None:
        """Make what a case starts from."""
        sample = unpack("crashed", self.folder)
        for log_dir in sample.log_dirs:
            for path in [path for path in log_dir.iterdir() if path.is_dir() and path.name not in CHOSEN]:
                shutil.rmtree(path)
        sample.root.rename(self.root)
        large = self.root / "d1" / _PART
        large.parent.mkdir()
        large.write_bytes(bytes(range(1, 251)) * 10_000)
        if self.is_again:
            self._copy_earlier_state(large)
        self.root.rename(self.folder / "fresh")

    def _copy_earlier_state(self, large: Path) -> None:
        with bad_sector(large, _BAD_POSITION):
            log_dirs = tuple(map(str, self.log_dirs()))
            report = copy(CopyOptions(output=str(self.output), log_dirs=log_dirs))
        (failed,) = report.log_dirs[0].failed
        assert (failed.file, failed.kept_bytes) == (str(large), _BAD_POSITION // BLOCK_BYTES * BLOCK_BYTES)
        logs = sorted(
            path for path in self.root.glob("d1/*-0/*.log") if path.stat().st_size and path != large
        )
        logs[0].write_bytes(logs[0].read_bytes() + b"more")
        os.utime(logs[1], ns=(1, 1))
        os.truncate(logs[2], logs[2].stat().st_size // 2)
        (self.output / "d1" / "replication-offset-checkpoint").unlink()

    def fresh(self) -> None:
        """Begin anew; `rename` keeps the times and inodes that the manifest knows."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        for log_dir in ("d1", "d2"):
            subprocess.run(["cp", "-al", self.folder / "fresh" / log_dir, self.root / log_dir], check=True)
        if self.is_again:
            shutil.copytree(self.folder / "fresh" / "out", self.output)

    def sources(self) -> dict[str, bytes]:
        """All files of the log dirs, by their key at the output."""
        return _files(self.root, ("d1", "d2"))

    def copied(self) -> dict[str, bytes]:
        """All files at the output but its manifest."""
        found = _files(self.output, (".",)) if self.output.exists() else {}
        return {name: data for name, data in found.items() if name != MANIFEST_KEY}

    def named(self) -> dict[str, tuple[str, str]]:
        """What the manifest names: object and SHA-256 by key, of whole files and of parts (`<key> part`)."""
        try:
            lines = (self.output / MANIFEST_KEY).read_text().splitlines()[1:]
        except FileNotFoundError:
            return {}
        rows = [json.loads(line) for line in lines]
        return {
            row[0] + (" part" if len(row) > 5 else ""): (
                row[0] + (PARTIAL_SUFFIX if len(row) > 5 else ""),
                row[4],
            )
            for row in rows
        }

    def problems(self, fault: Fault) -> Iterator[str]:
        """Yield what is wrong after a run that *fault* has befallen, and one after it."""
        self.fresh()
        sources, earlier, named = self.sources(), self.copied(), self.named()
        first = self.run(fault)
        yield from unsaid(fault, first)
        yield from self._wrong_objects(sources, earlier)
        yield from self._wrongly_named(named)
        if fault.action not in KILLING_ACTIONS and first.returncode in (0, 4):
            yield from self._wrong_report(sources, json.loads(first.stdout))
        if fault.action not in KILLING_ACTIONS and first.stdout:
            error = json.loads(first.stdout)["error"]
            if (error is not None) != (first.returncode == 1):
                yield f"exit code {first.returncode}, and the report's error is {error}"
        if self.sources() != sources:
            yield "the log dirs are changed"
        due = self.due()
        again = self.run()
        if again.returncode != 0:
            yield f"started again: {again.returncode}: {again.stdout[-700:]}{again.stderr[-500:]}"
            return
        due_tree = sources | self._lost(sources, earlier)
        if self.copied() != due_tree:
            now = self.copied()
            names = sorted(name for name in due_tree.keys() | now if due_tree.get(name) != now.get(name))
            yield f"started again: another tree: {names[:5]}"
        sent = sum(one["files"] for one in json.loads(again.stdout)["logDirs"])
        if sent != len(due):
            yield f"started again: {sent} files were sent, and {len(due)} were missing"

    def _lost(self, sources: dict[str, bytes], earlier: dict[str, bytes]) -> dict[str, bytes]:
        """The earlier copies of logs that were cut since, by the keys that they are to have."""
        return {
            name + EARLIER_SUFFIX: data
            for name, data in earlier.items()
            if name.endswith(".log") and not sources[name].startswith(data)
        }

    def due(self) -> set[str]:
        """The files that the next run has to send."""
        return {key for key, data in self.sources().items() if not self._is_named(key, data)}

    def _is_named(self, key: str, data: bytes) -> bool:
        """Whether the manifest names a file at the output with these bytes, so that it is not sent again."""
        path = self.output / key
        named = self.named().get(key)
        return (
            named is not None
            and named[1] == _sha256(data)
            and path.is_file()
            and len(data) == path.stat().st_size
        )

    def _wrong_objects(self, sources: dict[str, bytes], earlier: dict[str, bytes]) -> Iterator[str]:
        copied, lost = self.copied(), self._lost(sources, earlier)
        for name, data in copied.items():
            if is_temporary(os.path.basename(name)):
                continue
            if name in lost:
                is_right = data == lost[name]
            elif name.endswith(PARTIAL_SUFFIX):
                is_right = sources[name.removesuffix(PARTIAL_SUFFIX)].startswith(data)
            else:
                is_right = data in (sources[name], earlier.get(name))
            if not is_right:
                yield f"{name}: {len(data)} bytes are neither what was there nor what should be"
        for name, data in earlier.items():
            whole = copied.get(name.removesuffix(PARTIAL_SUFFIX))
            if len(copied.get(name, b"")) < len(data) and whole != sources[name.removesuffix(PARTIAL_SUFFIX)]:
                yield f"{name}: it had {len(data)} bytes"
            if name + EARLIER_SUFFIX in lost and data not in (whole, copied.get(name + EARLIER_SUFFIX)):
                yield f"{name}: the bytes that were copied before are nowhere"

    def _wrongly_named(self, named: dict[str, tuple[str, str]]) -> Iterator[str]:
        """Yield what the manifest names and the output has not; *named*: what it named before."""
        copied = self.copied()
        for key, (at, sha256) in self.named().items() - named.items():
            if _sha256(copied.get(at, b"")) != sha256:
                yield f"the manifest names {key}, and {'other bytes are' if at in copied else 'it is not'} there"

    def _wrong_report(
        self, sources: dict[str, bytes], report: dict[str, list[dict[str, object]]]
    ) -> Iterator[str]:
        copied = self.copied()
        failed = [str(one["file"]) for log_dir in report["logDirs"] for one in log_dir["failed"]]  # type: ignore[attr-defined]  # JSON
        for key, data in sources.items():
            is_failed = any(f"{self.root}/{key}/".startswith(f"{path}/") for path in failed)
            if copied.get(key) != data and not is_failed:
                yield f"{key} is neither copied nor named: {json.dumps(report)[:700]}"


def _files(root: Path, folders: Iterable[str]) -> dict[str, bytes]:
    return {
        os.path.relpath(path, root): path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run_cases(bench: CopyBench, points: Iterable[Fault]) -> list[str]:
    """Return what is wrong at any of the *points*."""
    return [f"{point}: {problem}" for point in points for problem in bench.problems(point)]


CAMPAIGN = Campaign(
    about=__doc__,
    flag="--again",
    bench_in=lambda folder, is_again: CopyBench(folder=folder, is_again=is_again),
    run_cases=run_cases,
)

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
