"""What keeps a broker from loading a log or a log dir: a value that says where, by which rule, and what to do.

A `Problem` is found before anything is touched. Some have a `Repair`: files or folders that can be moved away
without losing a batch, after which the broker loads what is left. A `Note` prevents nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

ProblemRule = Literal[
    # names and kinds of files
    "file-type",
    "foreign-file",
    "foreign-folder",
    "topic-name",
    "duplicate-folder",
    "duplicate-partition",
    "shared-file",
    # the content of a partition's folder
    "batch-length",
    "offset-order",
    "offset-overflow",
    "leader-epoch",
    "control-record",
    "transaction-state",
    "transaction-order",
    "transaction-index",
    "epoch-checkpoint",
    "topic-id",
    "segment-size",
    "index-size",
    "index-full",
    "file-size",
    "tiered",
    # the log dir
    "checkpoint",
    "marker",
    "meta-properties",
    "another-node",
    "duplicate-directory-id",
    "metadata-place",
    "bootstrap-checkpoint",
    "quorum-state",
    "quarantine-place",
    # the machine
    "read-only",
    "access",
    "owner",
    "space",
    "memory",
]
"""What a log, or a log dir, can go against; docs/operate/refusals.md lists them. `verify` has the same where it can."""


LOST_FOUND = "lost+found"
LOST_FOUND_REMEDY = (
    "if the log dir is the root of a file system, use a folder below it as log dir; else remove it"
)
FIND_FOLDER_REMEDY = (
    "look for the folder in lost+found, and in backups, before a broker starts; or let the broker fetch the log from "
    "another replica, or restore it from an archive"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A safe remedy: all of *names* go to quarantine, in this order.

    Attributes:
        names: files or folders in the folder that the problem is about.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason why a partition or a log dir is left alone.

    Attributes:
        file: name of the file in the partition's folder or the log dir, or of the folder itself.
        position: byte position in the file, None for the whole file.
        rule: what is violated.
        detail: the same in words, which name Kafka's behaviour.
        remedy: what the operator can do.
        repair: what `--repair` does, None if nothing is safe.
        remedy_below: a command, to be followed by a folder, that is the remedy for all files below that; None if the
            remedy is not about one file.
    """

    file: str
    position: int | None = None
    rule: ProblemRule
    detail: str
    remedy: str
    repair: Repair | None = None
    remedy_below: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object of this problem in the JSON report."""
        return {
            "file": self.file,
            "position": self.position,
            "rule": self.rule,
            "detail": self.detail,
            "remedy": self.remedy,
            "repairable": self.repair is not None,
        }

    def __str__(self) -> str:
        at = "" if self.position is None else f" at byte {self.position:,}"
        return f"{self.file}{at}: {self.detail}. Remedy: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What was assumed, ignored or missing: it changes no outcome by itself, but the operator should know.

    Attributes:
        level: "warning" if something is to be done, else "info".
        text: one sentence, with a remedy if there is one.
    """

    level: Literal["info", "warning", "error"] = "warning"
    text: str

    @property
    def is_told_always(self) -> bool:
        """Whether `-q` does not silence it: something is to be done."""
        return self.level != "info"

    def to_json(self) -> dict[str, Any]:
        """Return the object of this note in the JSON report."""
        return {"level": self.level, "text": self.text}
