"""Quarantines as recoveries leave them, put together by hand: any age, any damage."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from recovery.plan.actions import PartitionPlan, SaveFile
from recovery.write.quarantine import Quarantine

OLD_RUN, NEW_RUN = "20260101T000000Z", "20261121T141906Z"
DATA = bytes(range(256)) * 64


def save_file(quarantine: Quarantine, path: str, *, folder: str, reason: str, may_link: bool = True) -> str:
    """Save the whole file *path* of the partition *folder* and return where; a file to be cut may not be linked."""
    save = SaveFile(
        name=os.path.basename(path), size_bytes=os.stat(path).st_size, reason=reason, is_cut=not may_link
    )
    (saved,) = quarantine.save(os.path.dirname(path), PartitionPlan(folder=folder, saves=(save,), actions=()))
    return saved


class RunBuilder:
    """One run's folder below *root*, for *log_dir*."""

    def __init__(self, root: Path, name: str, log_dir: Path) -> None:
        self.root = root
        self.path = root / name
        self.log_dir = log_dir
        self.path.mkdir(parents=True)
        (self.path / "manifest.jsonl").touch()

    def enter(self, **fields: Any) -> dict[str, Any]:
        """Write a line of the manifest."""
        entry = {"version": 1, "log_dir": str(self.log_dir)} | fields
        with (self.path / "manifest.jsonl").open("a") as manifest:
            manifest.write(json.dumps(entry) + "\n")
        return entry

    def enter_moved(self, name: str) -> None:
        """Write the line of a folder of the log dir that a repair has moved away, as earlier versions did."""
        self.enter(
            kind="moved",
            partition="log-dir",
            file=name,
            size_bytes=0,
            sha256=None,
            reason="foreign",
            stored=f"log-dir/{name}",
        )

    def save(
        self,
        stored: str = "t-0/00000000000000000000.log",
        data: bytes = DATA,
        *,
        link: Path | None = None,
        **fields: Any,
    ) -> Path:
        """Store *data* as *stored*, or a link of *link*, with its line in the manifest."""
        target = self.path / stored
        target.parent.mkdir(parents=True, exist_ok=True)
        if link is None:
            target.write_bytes(data)
        else:
            target.hardlink_to(link)
            data = link.read_bytes()
        partition, _, name = stored.rpartition("/")
        self.enter(
            **{
                "kind": "file",
                "partition": partition,
                "file": name,
                "position": 0,
                "size_bytes": len(data),
                "stored": stored,
                "linked": link is not None,
                "sha256": hashlib.sha256(data).hexdigest(),
                "reason": "a batch whose CRC does not match",
            }
            | fields
        )
        return target

    def move(self, path: Path, *, folder: str = "log-dir") -> Path:
        """Move *path*, something in the *folder* of the log dir, here, as a repair does, and return where it is."""
        quarantine = Quarantine(str(self.log_dir), root=None, run=self.path.name)
        assert Path(quarantine.root) == self.root
        return Path(quarantine.move_away(str(path), folder=folder, reason="foreign"))


def a_foreign_folder(log_dir: Path) -> Path:
    """A folder with some of everything, in *log_dir*."""
    folder = log_dir / "topic"
    (folder / "deep" / "empty").mkdir(parents=True)
    (folder / "a").write_bytes(b"12345")
    (folder / "deep" / "00000000000000000007.log").write_bytes(b"a batch")
    (folder / "deep" / "link").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"\xff\xfe \n")).write_bytes(b"of any name")
    return folder


def a_log_dir(path: Path) -> Path:
    """A log dir with a partition of one segment."""
    (path / "t-0").mkdir(parents=True)
    (path / "t-0" / "00000000000000000000.log").write_bytes(DATA)
    (path / "meta.properties").write_text("version=1\n")
    return path
