"""A disk that is full for some of the files of an output."""

from __future__ import annotations

import errno
import os

import pytest


def fill_disk(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Let fsync(2) fail as on a full disk for files whose path, also while they are written, contains *folder*."""
    sync = os.fsync

    def full(descriptor: int) -> None:
        if folder in os.readlink(f"/proc/self/fd/{descriptor}").replace("/.", "/"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
