"""What a broker dies of, or takes its log dir offline for: a table of damages to the log of tests/damage/edge_cases.py.

`--repair` undoes those of SAFE: what is moved away costs no batch. Those of UNSAFE need a decision, or a file that is
lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from tests.damage.edge_cases import Log
from tests.logs import builders
from tests.logs.samples import MARKER

EPOCHS = "leader-epoch-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
METADATA = "partition.metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One reason why a log is not loaded.

    Attributes:
        file: named in the report; `t-0/...` for a file of the partition.
        moved: what a repair takes away, relative to the log dir.
        states: of the log: U, unflushed; F, only the active segment is; C, with a marker.
        outcome: of the broker.
    """

    name: str
    make: Callable[[Log], object]
    file: str
    moved: tuple[str, ...] = ()
    states: str = "UFC"
    outcome: str = "fatal"

    def __str__(self) -> str:
        return self.name


def foreign_file(name: str) -> Damage:
    return Damage(
        name=f"the file {name}",
        make=lambda log: (log.folder / name).write_bytes(b"whatever"),
        file=f"t-0/{name}",
        moved=(f"t-0/{name}",),
    )


def foreign_folder(name: str) -> Damage:
    def make(log: Log) -> None:
        (log.log_dir / name).mkdir()
        (log.log_dir / name / "mine").write_text("keep this")
        os.chown(log.log_dir / name, *_some_owner())

    return Damage(name=f"the folder {name}", make=make, file=name, moved=(name,))


def _some_owner() -> tuple[int, int]:
    """Nobody's where that can be had: what root owns may not be moved when it is called lost+found."""
    return (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())


def text(name: str, content: bytes, outcome: str, words: str) -> Damage:
    """A small file, of the partition or of the log dir, with *content*."""
    path = name if name in (RECOVERY_POINTS, LOG_STARTS) else f"t-0/{name}"
    return Damage(
        name=f"{name} {words}",
        make=lambda log: (log.log_dir / path).write_bytes(content),
        file=path,
        moved=() if name == METADATA else (path,),
        outcome=outcome,
    )


def folder_instead(path: str, *moved: str, outcome: str = "offline", states: str = "UFC") -> Damage:
    def make(log: Log) -> None:
        (log.log_dir / path).unlink(missing_ok=True)
        (log.log_dir / path).mkdir()

    return Damage(
        name=f"a folder for {path}",
        make=make,
        file=path,
        moved=(*moved, path),
        outcome=outcome,
        states=states,
    )


def full_folder_for_marker(log: Log) -> None:
    (log.log_dir / MARKER).unlink(missing_ok=True)
    (log.log_dir / MARKER).mkdir()
    (log.log_dir / MARKER / "mine").write_text("keep this")


def segment_file(base: int, suffix: str) -> str:
    return f"t-0/{base:020d}{suffix}"


def unknown_version(base: int) -> Damage:
    """An aborted transaction of a version that this broker does not know."""
    return Damage(
        name=f"the version in {base}.txnindex",
        make=lambda log: log.file(base, ".txnindex").write_bytes(b"\x7f\x00" + bytes(32)),
        file=segment_file(base, ".txnindex"),
        moved=(segment_file(base, ".index"), segment_file(base, ".txnindex")),
    )


def too_large(suffix: str, *moved: str) -> Damage:
    return Damage(
        name=f"an active {suffix} that is too large",
        make=lambda log: log.file(24, suffix).write_bytes(bytes(4800)),
        file=segment_file(24, suffix),
        moved=(*moved, segment_file(24, suffix)),
        states="C",
    )


SAFE = [
    *map(foreign_file, ("foo.log", "x.index", "foo.snapshot", "foo.swap", "foo.cleaned", ".log")),
    foreign_file("99999999999999999999.timeindex"),
    *map(foreign_folder, ("lost+found", "topic", "topic-x", "x.y-delete")),
    text(EPOCHS, b"1\n0\n", "offline", "of another version"),
    text(EPOCHS, b"0\n2\n0 0\n", "offline", "with a line too few"),
    text(EPOCHS, b"0\n1\n-1 0\n", "fatal", "with a negative epoch"),
    text(EPOCHS, b"0\n-1\n", "fatal", "with a negative count"),
    folder_instead(f"t-0/{EPOCHS}"),
    text(RECOVERY_POINTS, b"0\n2\nt 0 1\n", "offline", "with a line too few"),
    text(LOG_STARTS, b"x\n", "offline", "without a version"),
    folder_instead(RECOVERY_POINTS, outcome="fatal"),
    Damage(
        name="a full folder for the marker",
        make=full_folder_for_marker,
        file=MARKER,
        moved=(MARKER,),
        outcome="offline",
    ),
    unknown_version(12),
    unknown_version(24),
    folder_instead(segment_file(12, ".index"), states="U"),
    folder_instead(segment_file(24, ".timeindex"), segment_file(24, ".index")),
    folder_instead(segment_file(12, ".txnindex"), segment_file(12, ".index")),
    too_large(".index"),
    too_large(".timeindex", segment_file(24, ".index")),
]


def other_copy(log: Log) -> None:
    (log.log_dir / "t-00").mkdir()


def too_long(log: Log) -> None:
    with log.file(12).open("r+b") as file:
        file.truncate(2**31)


def nonsense(log: Log) -> None:
    """A control batch with a good CRC and an unknown type."""
    log.append(24, builders.marker_batch(36, 7, producer_id=200))


UNSAFE = [
    text(METADATA, b"", "fatal", "empty"),
    text(METADATA, b"version: 0\ntopic_id: short", "fatal", "with a bad id"),
    text(METADATA, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "offline", "with no id"),
    Damage(name="a second copy", make=other_copy, file="t-0"),
    Damage(name="a log that is too large", make=too_long, file=segment_file(12, ".log"), states="UF"),
    Damage(
        name="a control batch that makes no sense", make=nonsense, file=segment_file(24, ".log"), states="U"
    ),
]
