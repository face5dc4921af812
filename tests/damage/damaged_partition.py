"""A partition before and after its damage: what has changed, what a recovery makes of it, and which files are near."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recovery.engine.report import RecoveryReport
from tests.damage.mutilate import Victim
from tests.logs.samples import MARKER, Sample, tree_of, write_tree
from tests.runs.driving import recover

Tree = dict[str, bytes]
SEGMENT, NEIGHBOUR, END, FOLDER = "segment", "neighbour", "end", "folder"
"""Files that may have the verdict instead: others of the segment, the logs beside it, those that tell the log's end,
any log of the folder."""
_SEGMENT_FILE = re.compile(r"(\d+)\.(log|index|timeindex|txnindex|snapshot)(\.\w+)?")
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@dataclass(kw_only=True)
class DamagedPartition:
    """What a damage has done.

    Attributes:
        work: a folder of its own; the log dirs lie in it, and the trees are of it.
        words: of the damage.
    """

    sample: Sample
    victim: Victim
    work: Path
    words: str
    before: Tree
    after: Tree
    _recoveries: dict[tuple[bool, bool], tuple[RecoveryReport, Tree]] = field(default_factory=dict)

    @functools.cached_property
    def changed(self) -> frozenset[str]:
        """Paths of what is not as it was, relative to *work*."""
        names = self.before.keys() | self.after.keys()
        found = (name for name in names if self.before.get(name) != self.after.get(name))
        return frozenset(name.rstrip("/@|") for name in found)

    @property
    def prefix(self) -> str:
        """What the paths of the partition's files begin with."""
        return f"{self.victim.log_dir.name}/{self.victim.folder.name}/"

    @property
    def changed_files(self) -> frozenset[str]:
        """Names of the files of the folder that are not as they were."""
        return frozenset(
            path.removeprefix(self.prefix) for path in self.changed if path.startswith(self.prefix)
        )

    def files(self, tree: Mapping[str, bytes]) -> Tree:
        """The part of *tree* that is in the partition's folder, by name."""
        return {path[len(self.prefix) :]: data for path, data in tree.items() if path.startswith(self.prefix)}

    def logs(self, tree: Mapping[str, bytes]) -> Tree:
        """The live `.log` files in *tree*, by name."""
        return {name: data for name, data in self.files(tree).items() if name.endswith(".log")}

    def places(self, kinds: frozenset[str]) -> frozenset[str]:
        """The paths where damage may be named: the changed ones, and those of *kinds*."""
        files = {match[0]: match for name in self.changed_files if (match := _SEGMENT_FILE.match(name))}
        bases = {int(match[1]) for match in files.values()}
        names = self.files(self.before).keys() | self.files(self.after).keys()
        places = set(self.changed)
        if SEGMENT in kinds:
            suffixes = ("log", "index", "timeindex", "txnindex", "snapshot")
            places |= {f"{self.prefix}{base:020d}.{suffix}" for base in bases for suffix in suffixes}
        if NEIGHBOUR in kinds:
            row = sorted({*bases, *(int(name[:-4]) for name in names if re.fullmatch(r"\d{20}\.log", name))})
            near = {
                row[place]
                for number, base in enumerate(row)
                if base in bases
                for place in (max(0, number - 1), min(len(row) - 1, number + 1))
            }
            places |= {f"{self.prefix}{base:020d}.log" for base in near}
        if END in kinds:
            places |= {f"{self.prefix}{name}" for name in names if name.endswith(".snapshot")}
            places |= {
                f"{self.prefix}leader-epoch-checkpoint",
                f"{self.victim.log_dir.name}/{_RECOVERY_POINTS}",
            }
        if FOLDER in kinds:
            places |= {f"{self.prefix}{base:020d}.log" for base in (0, *self._log_starts())}
            places |= {f"{self.prefix}{name}" for name in names if name.endswith(".log")}
        return frozenset(places)

    def _log_starts(self) -> list[int]:
        """The offsets in the log-start checkpoint."""
        text = self.after.get(f"{self.victim.log_dir.name}/log-start-offset-checkpoint", b"").decode()
        return [int(line.split()[2]) for line in text.splitlines()[2:]]

    def recovered(self, *, is_damaged: bool = True, is_forced: bool = False) -> tuple[RecoveryReport, Tree]:
        """The report, and the partition's folder, of a recovery of a copy: of all segments where *is_forced*."""
        key = is_damaged, is_forced
        if key not in self._recoveries:
            into = self.work.with_name(f"{self.work.name}-again")
            write_tree(self.after if is_damaged else self.before, into)
            log_dirs = [into / path.name for path in self.victim.log_dirs if (into / path.name).exists()]
            for log_dir in log_dirs if is_forced else ():
                (log_dir / MARKER).unlink(missing_ok=True)
                (log_dir / _RECOVERY_POINTS).write_text("0\n0\n")
            report = recover(self.sample, log_dirs)
            folder = into / self.victim.log_dir.name / self.victim.folder.name
            self._recoveries[key] = report, tree_of(folder)
            shutil.rmtree(into)
        return self._recoveries[key]
