"""What the tests need of a machine: looked at once, before the first test that needs it, and named where it is missing.

    python -m tests.servers.machine     a line for each need that this machine does not meet

Rights are tried, not asked for: root in a container may have few of them, and no list of capabilities tells of seccomp.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.chromium import PROGRAMS as BROWSERS
from tests.servers.chromium import chromium_program
from tests.servers.file_systems import overlay, tmpfs
from tests.servers.prometheus import PROGRAMS as PROMETHEUS_PROGRAMS
from tests.servers.systemd import PROGRAM as NSPAWN

OTHER_USER = 65534
OTHER_SHELLS = ("zsh", "fish")
LEAST_JAVA = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that tests need.

    Attributes:
        is_met: looks for it.
        lack: what is missing where it is not met.
        tests: which ones are skipped then.
        remedy: how to get it.
        beyond: needs without which it cannot be looked for: where one of them is not met, that one is named.
    """

    is_met: Callable[[], bool]
    lack: str
    tests: str
    remedy: str
    beyond: tuple[Need, ...] = ()

    @property
    def why_not(self) -> str | None:
        """What is missing, and how to get it; None where nothing is."""
        for need in self.beyond:
            if (reason := need.why_not) is not None:
                return reason
        return None if self.is_met() else f"{self.lack}. Remedy: {self.remedy}"


@functools.cache
def may_mount() -> bool:
    """Whether a file system can be mounted."""
    with tempfile.TemporaryDirectory() as folder:
        return _succeeds(lambda stack: stack.enter_context(tmpfs(Path(folder) / "fs", size="64k")))


@functools.cache
def may_mount_apart() -> bool:
    """Whether a process can be given mounts of its own."""
    return _runs("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()) and _has(
        "nsenter"
    )


@functools.cache
def has_overlay() -> bool:
    """Whether overlays can be mounted."""
    with tempfile.TemporaryDirectory() as folder:
        lower = Path(folder) / "empty"
        lower.mkdir()
        return _succeeds(lambda stack: stack.enter_context(overlay(Path(folder) / "fs", lower)))


@functools.cache
def has_mkfs_ext4() -> bool:
    """Whether an ext4 file system can be made."""
    return _has("mkfs.ext4")


@functools.cache
def has_loop_devices() -> bool:
    """Whether a file can be mounted as a disk."""
    with tempfile.TemporaryDirectory() as folder:
        disk = Path(folder) / "disk"
        disk.write_bytes(bytes(4 << 20))
        place = Path(folder) / "fs"
        place.mkdir()
        return (
            _runs("mkfs.ext4", "-q", str(disk))
            and _runs("mount", "-o", "loop", str(disk), str(place))
            and _runs("umount", str(place))
        )


@functools.cache
def may_give_files_away() -> bool:
    """Whether a file can be given to another user."""
    with tempfile.NamedTemporaryFile() as file:
        return _succeeds(lambda _: os.chown(file.name, OTHER_USER, OTHER_USER))


@functools.cache
def may_become_another_user() -> bool:
    """Whether a process can be started as another user."""
    return _runs("setpriv", "--reuid", str(OTHER_USER), "--regid", str(OTHER_USER), "--clear-groups", "true")


@functools.cache
def has_java() -> bool:
    """Whether there is a JDK, and not too old for Kafka's brokers."""
    if not _has("java") or not _has("javac"):
        return False
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    return version is not None and int(version[1]) >= LEAST_JAVA


@functools.cache
def has_maven() -> bool:
    """Whether Kafka's jars can be fetched."""
    return _has("mvn")


@functools.cache
def has_go() -> bool:
    """Whether the S3 server can be built."""
    return _has("go")


@functools.cache
def has_chromium() -> bool:
    """Whether a page can be looked at."""
    return chromium_program() is not None


@functools.cache
def has_prometheus() -> bool:
    """Whether metrics can be scraped, by Prometheus and by node_exporter."""
    return all(map(_has, PROMETHEUS_PROGRAMS))


@functools.cache
def has_nspawn() -> bool:
    """Whether a systemd can be booted in a container."""
    return _has(NSPAWN)


@functools.cache
def has_other_shells() -> bool:
    """Whether there are shells beside bash to complete commands in."""
    return all(map(_has, OTHER_SHELLS))


MOUNTS = Need(
    is_met=may_mount,
    lack="no right to mount (CAP_SYS_ADMIN)",
    tests="the tests on overlays, full and failing disks",
    remedy="run them as root; in a container with --privileged, or --cap-add SYS_ADMIN",
)
MOUNTS_APART = Need(
    is_met=may_mount_apart,
    lack="no mounts of a process's own (unshare, nsenter, CAP_SYS_ADMIN)",
    tests="the tests on log dirs that are mount points",
    remedy="install util-linux and run them as root; in a container with --privileged, or --cap-add SYS_ADMIN",
)
OVERLAYS = Need(
    is_met=has_overlay,
    lack="no overlays (the file system overlay)",
    tests="the tests on overlays",
    remedy="modprobe overlay",
    beyond=(MOUNTS,),
)
MKFS_EXT4 = Need(
    is_met=has_mkfs_ext4,
    lack="no mkfs.ext4 on the PATH",
    tests="the tests on failing disks",
    remedy="install e2fsprogs",
)
LOOP_DEVICES = Need(
    is_met=has_loop_devices,
    lack="no loop devices with ext4",
    tests="the tests on failing disks",
    remedy="modprobe loop ext4; in a container --privileged, or --device /dev/loop-control and a few /dev/loop*",
    beyond=(MOUNTS, MKFS_EXT4),
)
OTHERS_FILES = Need(
    is_met=may_give_files_away,
    lack="no right to give files to another user (CAP_CHOWN)",
    tests="the tests on the owners of files",
    remedy="run them as root",
)
OTHER_USERS = Need(
    is_met=may_become_another_user,
    lack="no right to start a process as another user (setpriv, CAP_SETUID, CAP_SETGID)",
    tests="the tests of other users' runs and brokers",
    remedy="install util-linux and run them as root",
)
JAVA = Need(
    is_met=has_java,
    lack=f"no JDK (java, javac) of Java {LEAST_JAVA} or later on the PATH",
    tests="the tests against the real Kafka and those on Spark",
    remedy=f"install a Java {LEAST_JAVA} JDK",
)
MAVEN = Need(
    is_met=has_maven,
    lack="no mvn on the PATH",
    tests="the tests against the real Kafka, unless its jars are in the cache,",
    remedy="install Maven",
)
GO = Need(
    is_met=has_go,
    lack="no go on the PATH",
    tests="the tests on S3, unless the server is in the cache,",
    remedy="install Go",
)
CHROMIUM = Need(
    is_met=has_chromium,
    lack=f"no Chromium on the PATH ({', '.join(BROWSERS)})",
    tests="the tests of the page in a browser",
    remedy="install chromium",
)
PROMETHEUS = Need(
    is_met=has_prometheus,
    lack=f"no {', '.join(PROMETHEUS_PROGRAMS)} on the PATH",
    tests="the tests of alerts and dashboard",
    remedy="install prometheus and prometheus-node-exporter",
)
SYSTEMD = Need(
    is_met=has_nspawn,
    lack=f"no {NSPAWN} on the PATH",
    tests="the tests of the systemd unit",
    remedy="install systemd-container",
    beyond=(MOUNTS, OVERLAYS),
)
SHELLS = Need(
    is_met=has_other_shells,
    lack=f"no {', '.join(OTHER_SHELLS)} on the PATH",
    tests="the tests of completion in these shells",
    remedy="install zsh and fish",
)
ALL = (
    MOUNTS,
    MOUNTS_APART,
    OVERLAYS,
    MKFS_EXT4,
    LOOP_DEVICES,
    OTHERS_FILES,
    OTHER_USERS,
    JAVA,
    MAVEN,
    GO,
    CHROMIUM,
    PROMETHEUS,
    SYSTEMD,
    SHELLS,
)


def needs(*what: Need) -> pytest.MarkDecorator:
    """Mark tests that need *what*: tests/conftest.py skips them, with the reason, where that is not to be had."""
    return pytest.mark.needs.with_args(*what)


def hide_programs(folder: Path, environment: MutableMapping[str, str]) -> None:
    """Change *environment* so that none of some programs can be started: scripts in *folder* that fail come first."""
    environment.pop("JAVA_HOME", None)
    for name in ("java", "javac", "mvn", "go", *BROWSERS, *PROMETHEUS_PROGRAMS):
        script = folder / name
        script.write_text(f"#!/bin/sh\necho 'the quick gate starts no {name}' >&2\nexit 1\n")
        script.chmod(0o755)
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"


def unmet() -> list[str]:
    """Return a line for each need that this machine does not meet."""
    return [
        f"{need.lack}: {need.tests} are skipped. Remedy: {need.remedy}"
        for need in ALL
        if all(before.is_met() for before in need.beyond) and not need.is_met()
    ]


def _has(command: str) -> bool:
    return shutil.which(command) is not None


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:  # there is no such command, or it may not be run
        return False


def _succeeds(act: Callable[[ExitStack], object]) -> bool:
    try:
        with ExitStack() as stack:
            act(stack)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    for line in unmet():
        print(line, file=sys.stderr)
