"""Target: journals, manifests and links that somebody has put into quarantine, to have root go elsewhere.

A log dir is recovered, then its journal, its account of the run, or an `undo` of it is rewritten by the fuzzer, which
knows where there is something to win: a folder beside, with a secret in it. It wins where that is read, or changed,
or where the secret comes to lie in the log dir or its quarantine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

from recovery.engine.resume import RunJournal
from recovery.errors import RecoveryError
from recovery.saved.purge import purge
from recovery.saved.undo import undo
from recovery.version import VERSION
from recovery.write.journal import Journal
from recovery.write.journal_format import Header
from tests.fuzz.choices import Choices
from tests.fuzz.targets import Target
from tests.fuzz.whole_dirs import recover
from tests.logs import builders
from tests.recovery.load.memory import name
from tests.runs.driving import quarantine_of

_SECRET = b"a secret of root's, which nobody else is to see"
_ACTIONS: tuple[dict[str, Any], ...] = (
    {"action": "AppendPart", "source": "", "name": name(0), "position": 0, "size_bytes": 40, "mtime_ns": 1},
    {"action": "RestoreFile", "source": "", "name": name(0)},
    {"action": "CopyPart", "source": "", "name": name(0), "position": 0, "size_bytes": 40},
    {"action": "RemoveFile", "name": "", "size_bytes": 1, "kind": "derived"},
    {"action": "RenameFile", "old": name(0), "new": ""},
    {"action": "LinkFile", "old": "", "new": name(9)},
    {"action": "TruncateFile", "name": "", "size_bytes": 0},
    {"action": "WriteFile", "name": "", "size_bytes": 3},
)


def _planted(data: bytes) -> None:
    choices = Choices(data)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzzed-quarantine-", dir=memory) as place:
        log_dir, elsewhere = _recovered(Path(place)), Path(place, "elsewhere")
        plant = _Plant(choices, log_dir, elsewhere)
        is_undone = choices.below(2) == 0
        _plant_undo(plant) if is_undone else _plant_recovery(plant)
        plant.links()
        for path in (elsewhere / "secret", elsewhere):
            os.utime(path, ns=(1, path.stat().st_mtime_ns))
        before = _watch(elsewhere)
        with contextlib.suppress(RecoveryError, OSError):
            undo([str(log_dir)]) if is_undone else recover(log_dir)
        with contextlib.suppress(RecoveryError, OSError):
            purge([str(log_dir)], None, lambda _run: True)
        assert _watch(elsewhere) == before, "something elsewhere was read or changed"
        for path in (*log_dir.rglob("*"), *quarantine_of(log_dir).rglob("*")):
            if not path.is_symlink() and path.is_file():
                assert _SECRET not in path.read_bytes(), f"the secret lies in {path}"


def _recovered(place: Path) -> Path:
    """A log dir that was recovered, with its journal as if the run had been killed at its very end."""
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "secret").write_bytes(_SECRET)
    folder = place / "d" / "t-0"
    folder.mkdir(parents=True)
    batches = [builders.record_batch(base_offset=offset) for offset in range(3)]
    (folder / name(0)).write_bytes(b"".join(batches)[:-5])
    (folder / name(0, ".index")).write_bytes(bytes(16))
    (folder / "partition.metadata").write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with mock.patch.object(RunJournal, "discard", RunJournal.close):
        recover(place / "d")
    assert (quarantine_of(place / "d") / "journal").exists()
    return place / "d"


def _watch(folder: Path) -> dict[str, tuple[int, ...]]:
    """What *folder* and the secret in it are, and when they were read last: long ago, unless somebody has."""
    return {
        str(path): (one.st_mode, one.st_uid, one.st_size, one.st_mtime_ns, one.st_nlink, one.st_atime_ns)
        for path in (folder / "secret", folder)
        for one in [path.lstat()]
    }


class _Plant:
    def __init__(self, choices: Choices, log_dir: Path, elsewhere: Path) -> None:
        self.choices = choices
        self.log_dir = log_dir
        self.root = quarantine_of(log_dir)
        (self.run,) = (path for path in self.root.iterdir() if path.is_dir())
        self.elsewhere = elsewhere

    def value(self) -> object:
        """A value that somebody would try."""
        target = str(self.elsewhere / "secret")
        folder = str(self.elsewhere)
        return self.choices.pick(
            (
                target,
                f"../../../{self.elsewhere.name}/secret",
                f"../{self.elsewhere.name}",
                "planted",
                "planted/secret",
                folder,
                f"{self.run.name}/../../{self.elsewhere.name}",
                "..",
                ".",
                "",
                "t-0/planted",
                "log-dir",
                "secret",
                -1,
                0,
                len(_SECRET),
                1 << 70,
                None,
                True,
                [],
                {},
                1.5,
                "tail",
                "moved",
            )
        )

    def changed(self, document: Any) -> Any:
        """The document with some values in the place of others, and an action more."""
        places = [*_places(document)]
        for _ in range(1 + self.choices.below(3)):
            holder, key = self.choices.pick(places)
            holder[key] = self.value()
        commit = document.get("commit", document) if isinstance(document, dict) else None
        actions = commit.get("actions") if isinstance(commit, dict) else None
        if isinstance(actions, list) and self.choices.below(2):
            action = dict(self.choices.pick(_ACTIONS))
            action |= {key: self.value() for key in ("source", "name", "old", "new") if action.get(key) == ""}
            actions.insert(self.choices.below(1 + len(actions)), action)
        return document

    def links(self) -> None:
        """Links to elsewhere, under names that are looked for."""
        for _ in range(self.choices.below(4)):
            names = [self.run / "t-0" / "planted", self.log_dir / "planted", *self.run.rglob("*"), self.run]
            path = self.choices.pick(names)
            if os.path.realpath(path.parent) != str(path.parent):
                continue  # that is elsewhere already
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            with contextlib.suppress(OSError):  # below what is a file or a link by now
                path.unlink(missing_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(self.choices.pick((self.elsewhere / "secret", self.elsewhere)))


def _places(document: object) -> Iterator[tuple[Any, Any]]:
    keys = document.items() if isinstance(document, dict) else enumerate(document)  # type: ignore[arg-type]  # a list
    for key, value in [*keys]:
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _plant_undo(plant: _Plant) -> None:
    (plant.root / "journal").unlink()
    lines = [json.loads(line) for line in (plant.run / "manifest.jsonl").read_text().splitlines()]
    commits = [line["commit"] for line in lines if line["kind"] == "change"]
    if plant.choices.below(2):
        lines[plant.choices.below(len(lines))] = plant.changed(plant.choices.pick(lines))
        (plant.run / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if plant.choices.below(2):
        run = plant.value() if plant.choices.below(2) else plant.run.name
        header = Header(
            tool_version=VERSION,
            log_dir=str(plant.log_dir),
            configuration={},
            now_ms=0,
            had_clean_shutdown=False,
            run_folder=run,  # type: ignore[arg-type]  # what is planted may be anything
        )
        with Journal.create(str(plant.root / "undo"), header) as journal:
            for number in range(3):
                journal.commit(f"{number}", plant.changed(plant.choices.pick(commits)))
            if plant.choices.below(2):
                journal.note("restored", {})


def _plant_recovery(plant: _Plant) -> None:
    path = str(plant.root / "journal")
    found = Journal.open(path)
    assert found is not None
    with found:
        header, commits, notes = found.header, dict(found.commits), dict(found.notes)
    if not plant.choices.below(4):
        header = replace(header, **plant.changed({"run_folder": asdict(header)["run_folder"]}))
    for documents in (commits, notes):
        for key in documents:
            if plant.choices.below(2):
                documents[key] = plant.changed(documents[key])
    with Journal.create(path, header) as journal:
        for key, document in commits.items():
            journal.commit(key, document)
        for key, document in notes.items():
            journal.note(key, document)


TARGETS = [
    Target(
        name="planted_quarantine",
        run=_planted,
        instruments=(
            "recovery.plan.commit",
            "recovery.plan.undo_plan",
            "recovery.saved.saved_files",
            "recovery.plan.manifest",
        ),
        more_seeds=lambda: [bytes([way]) * 40 for way in range(8)],
        longest_bytes=400,
    )
]
