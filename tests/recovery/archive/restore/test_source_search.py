"""What a restore reads to find out what there is: as often as there are log dirs, not partitions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from recovery.archive.copy.account import CopyAccounts
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.layouts.plain_layout import PlainLayout
from recovery.archive.restore.source_search import find_partitions
from recovery.archive.stores.local_store import LocalStore
from recovery.check.log_dir_files import OFFSET_CHECKPOINTS
from tests.logs.samples import unpack


def test_the_files_of_a_log_dir_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = unpack("intact", tmp_path)
    output = tmp_path / "copy"
    copy(CopyOptions(log_dirs=[str(path) for path in sample.log_dirs], output=str(output)))
    store = LocalStore(str(output))
    accounts = CopyAccounts(store)
    read: Counter[str] = Counter()

    def counted(self: LocalStore, key: str, *, most_bytes: int) -> bytes:
        read[key] += 1
        return original(self, key, most_bytes=most_bytes)

    original = LocalStore.read
    monkeypatch.setattr(LocalStore, "read", counted)
    found = list(find_partitions(store, PlainLayout(), lambda _: True, None, accounts, lambda _: None))
    assert len(found) > 2 * len(sample.log_dirs)
    assert not [one.reasons for one in found if one.reasons]
    checkpoints = {key: count for key, count in read.items() if key.rpartition("/")[2] in OFFSET_CHECKPOINTS}
    assert len(checkpoints) > len(sample.log_dirs)
    assert set(checkpoints.values()) == {2}  # compared with the manifest, and read
