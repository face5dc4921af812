"""Odd names of files and folders; links, FIFOs and folders where files belong."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from tests.damage.mutilations.victim import CHECKPOINTS, EPOCHS, PARTITION_METADATA, Damage, Victim

ODD_FILES = (
    "abc.log", "x.index", "foo.snapshot", "foo.swap", "foo.cleaned", "foo.deleted", "foo.timeindex", "foo.txnindex",
    ".log", ".index", ".snapshot", ".swap", ".cleaned", ".deleted", "log", "index", "-1.log", "+5.log", "0.log",
    "5.log", "٥.log", "99999999999999999999.log", "9223372036854775807.log", "-9223372036854775808.log",
    "00000000000000000005",
    "00000000000000000005.", "00000000000000000005.LOG", "00000000000000000005.log.bak", "00000000000000000005.log~",
    "00000000000000000005.log.tmp", "00000000000000000005.log.swap.swap", "00000000000000000005.log.deleted.deleted",
    "00000000000000000005.swap", "00000000000000000005.cleaned", "5.log.swap", "5.index.swap", "+5.snapshot",
    "5.snapshot", "-5.snapshot", "00000000000000000005.snapshot.swap", "5.timeindex", "5.txnindex",
    "00000000000000000005-0000000001.checkpoint", "00000000000000000005-0000000001.checkpoint.deleted",
    "00000000000000000005-0000000001.checkpoint.part", "leader-epoch-checkpoint.tmp", "partition.metadata.tmp",
    " 5.log", "5 .log", "5\n.log", "quorum-state", "a" * 255,
)  # fmt: skip
"""52 names that no broker gives, or not at this place."""

ODD_FOLDERS = (
    "lost+found", "topic-x", "topic", "-0", "topic-", ".real", ".hidden-0", "x.y-delete", "x-0.y-delete", "x-0.-delete",
    "x-0.y-stray", "x-0-future", "x-0.a.b-future", "x-00", "x-+1", "x--1", "x-2147483648", "x-2147483647", "x-٣",
    "a b-0", "a\tb-0", "ümlaut-0", "x-0.12345678901234567890123456789012-delete",
    "x-0.12345678901234567890123456789012-stray",
    "recovery-point-offset-checkpoint", "remote-log-index-cache", "__cluster_metadata-1",
    "__cluster_metadata-0.12345678901234567890123456789012-delete", "y" * 240 + "-0",
)  # fmt: skip
"""29 names, some of them a broker's own."""


def odd_file(victim: Victim, rng: random.Random) -> str | None:
    name = rng.choice(ODD_FILES)
    content = rng.choice([b"", b"", rng.randbytes(30), *(log.read_bytes() for log in victim.logs()[:1])])
    path = victim.folder / name
    if (
        path.exists() and not path.is_file()
    ):  # an earlier damage has put a pipe there, which would wait for a reader
        return None
    path.write_bytes(content)
    return f"with the file {name[:60]!r} of {len(content)} bytes"


def odd_folder(victim: Victim, rng: random.Random) -> str | None:
    """A folder beside the partition's: empty, or with the partition's own files."""
    name = rng.choice(ODD_FOLDERS)
    path = victim.log_dir / name
    if name in CHECKPOINTS:
        path.unlink(missing_ok=True)
    if path.exists():
        return None
    if rng.random() < 0.5 and name not in CHECKPOINTS:
        shutil.copytree(victim.folder, path, symlinks=True)
        return f"with the folder {name[:60]!r} like {victim.folder.name}"
    path.mkdir()
    return f"with the empty folder {name[:60]!r}"


def doubled_folder(victim: Victim, rng: random.Random) -> str:
    """The partition a second time: in this log dir or in another one; current, future, or on its way out."""
    topic, partition = victim.topic_partition
    unique = "0123456789abcdef" * 2
    name = rng.choice(
        [f"{topic}-0{partition}", f"{topic}-{partition}.{unique}-future", f"{topic}-{partition}.{unique}-delete",
         f"{topic}-{partition}.{unique}-stray"]
    )  # fmt: skip
    log_dir = victim.log_dir
    if rng.random() < 0.5 or name.endswith("-future"):  # no broker makes one in the dir of the current log
        log_dir = victim.second_log_dir
        if not log_dir.exists():
            log_dir.mkdir()
        for checkpoint in CHECKPOINTS:
            if (victim.log_dir / checkpoint).is_file():
                shutil.copyfile(victim.log_dir / checkpoint, log_dir / checkpoint)
        name = rng.choice([name, victim.folder.name])
    shutil.copytree(victim.folder, log_dir / name, symlinks=True, dirs_exist_ok=True)
    return f"again as {log_dir.name}/{name}"


def file_link(victim: Victim, rng: random.Random) -> str | None:
    """A link for a file: to the file itself, which then lies in the log dir; to nothing; to itself; to a folder."""
    files = [path for path in sorted(victim.folder.iterdir()) if path.is_file() and not path.is_symlink()]
    if not files:
        return None
    file = rng.choice(files)
    how = rng.choice(["moved", "moved", "dangling", "loop", "folder"])
    target = Path("..") / f"linked-{file.name}"
    if how == "moved":
        file.rename(victim.log_dir / f"linked-{file.name}")
    else:
        file.unlink()
        target = {"dangling": Path("nowhere"), "loop": Path(file.name), "folder": Path(".")}[how]
    file.symlink_to(target)
    return f"{file.name} is a link to {target} ({how})"


def extra_link(victim: Victim, rng: random.Random) -> str:
    """A link where nothing was, to a file of the partition, or to none."""
    offset = max(victim.bases(), default=0) + rng.choice([0, 10**6])
    name = f"{offset:020d}{rng.choice(['.log.deleted', '.log.cleaned', '.log.swap', '.log', '.snapshot', '.txt'])}"
    path = victim.folder / name
    if path.exists() or path.is_symlink():
        path = victim.folder / f"{10**9:020d}.log.deleted"
    target = rng.choice(["nowhere", path.name, *(log.name for log in victim.logs()[-1:])])
    path.symlink_to(target)
    return f"with the link {path.name} to {target}"


def folder_link(victim: Victim, rng: random.Random) -> str | None:
    """The partition's folder is a link; or a link to nothing, or to itself, lies beside it."""
    how = rng.choice(["moved", "moved", "dangling", "loop"])
    if how != "moved":
        path = victim.log_dir / "linked-0"
        path.symlink_to("nowhere" if how == "dangling" else path.name)
        return f"with {path.name}, a link ({how})"
    if victim.folder.is_symlink():
        return None
    store = (
        victim.log_dir / "remote-log-index-cache"
    )  # the one folder that no broker looks into when it starts
    store.mkdir(exist_ok=True)
    if (store / victim.folder.name).exists():
        return None
    victim.folder.rename(store / victim.folder.name)
    victim.folder.symlink_to(Path(store.name) / victim.folder.name)
    return "the folder is a link"


def fifo(victim: Victim, rng: random.Random) -> str:
    path = _taken(victim, rng)
    os.mkfifo(path)
    return f"{path.name} is a FIFO"


def folder_for_file(victim: Victim, rng: random.Random) -> str:
    path = _taken(victim, rng)
    path.mkdir()
    if rng.random() < 0.3:
        (path / "within").write_bytes(b"data")
    return f"{path.name} is a folder"


def _taken(victim: Victim, rng: random.Random) -> Path:
    """The path of a file, there or not yet, that is out of the way now."""
    files = [path for path in sorted(victim.folder.iterdir()) if not path.is_dir()]
    end = max(victim.bases(), default=0)
    made = [
        victim.file(end, suffix)
        for suffix in (".snapshot", ".txnindex", ".index", ".log.swap", ".log.deleted")
    ]
    named = [victim.folder / name for name in (EPOCHS, PARTITION_METADATA, f"{EPOCHS}.tmp")]
    beside = [victim.log_dir / name for name in CHECKPOINTS]
    path: Path = rng.choice([*files, *made, *named, *beside])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


NAME_DAMAGES: dict[str, Damage] = {
    "odd file name": odd_file,
    "odd folder name": odd_folder,
    "doubled folder": doubled_folder,
    "link for a file": file_link,
    "link where nothing was": extra_link,
    "link for a folder": folder_link,
    "FIFO for a file": fifo,
    "folder for a file": folder_for_file,
}
