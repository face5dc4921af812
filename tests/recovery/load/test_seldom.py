"""States of a log that hardly any crash leaves: branches of the fold that the other suites do not take."""

from __future__ import annotations

import numpy as np
import pytest

from native.crc32c import crc32c_of_bytes
from recovery.errors import PartitionRefusedError
from recovery.load.fold import fold
from recovery.load.limits import MAX_LOG_BYTES
from recovery.load.model import FileStat
from recovery.load.release import Release
from segfmt.byte_layout import ABORTED_TXN_DTYPE, PRODUCER_ENTRY_DTYPE
from segfmt.producer_snapshot import encode_producer_snapshot
from tests.logs import builders
from tests.logs.builders import data_batch, marker_batch
from tests.recovery.load.memory import METADATA, NOW_MS, Folded, MemorySource, name, partition, task_of
from tests.recovery.load.test_partition import segment, three_segments

FAR = 2**40


def snapshot(txn_first_offset: int) -> bytes:
    """A producer with a transaction open since *txn_first_offset*."""
    entries = np.zeros(1, PRODUCER_ENTRY_DTYPE)
    entries[0] = (7, 0, 0, txn_first_offset, 0, NOW_MS, 0, txn_first_offset)
    return encode_producer_snapshot(entries, crc32c=crc32c_of_bytes)


def clean(files: dict[str, bytes], **fields: object) -> Folded:
    return Folded(files, had_clean_shutdown=True, recovery_point=30, **fields)


def recovered() -> dict[str, bytes]:
    return Folded(three_segments()).tree


class TestOpenTransactions:
    """Where the first one begins is looked up, which may open indexes or stop the broker."""

    def test_behind_the_end_of_the_log_nothing_is_looked_up(self) -> None:
        files = recovered() | {name(30, ".snapshot"): snapshot(30)}
        index = name(10, ".index")
        files[index] += b"rest"
        assert clean(files).tree[index] == files[index]

    def test_in_a_hole_every_index_behind_is_opened(self) -> None:
        files = recovered() | {name(10): segment(10, 7), name(20, ".snapshot"): snapshot(18)}
        files |= {name(10, ".index"): b"rest", name(20, ".index"): b"rest", name(20): b""}
        del files[name(30, ".snapshot")]
        folded = clean(files)
        assert folded.outcome.log_end_offset == 20
        assert folded.tree[name(10, ".index")] == folded.tree[name(20, ".index")] == b""
        newer = clean(files, release=Release.KAFKA_4_4)
        assert (newer.tree[name(10, ".index")], newer.tree[name(20, ".index")]) == (b"rest", b"")


class TestFoldersWithLittle:
    def test_a_folder_without_a_segment_gets_one(self) -> None:
        folded = Folded({"partition.metadata": METADATA}, log_start_offset=5)
        assert folded.tree[name(5)] == folded.tree[name(5, ".index")] == b""

    def test_a_folder_to_be_deleted_without_a_segment_gets_one(self) -> None:
        folded = Folded({"partition.metadata": METADATA}, folder="t-0.0011-delete")
        assert folded.tree[name(0)] == b""
        assert name(0, ".index") not in folded.tree

    def test_a_log_whose_end_is_below_its_only_segment(self) -> None:
        files = Folded(partition({97: segment(97)})).tree
        files[name(97)] += data_batch(-1, 35)
        folded = clean(files)
        assert (folded.outcome.log_end_offset, folded.outcome.recovery_point) == (34, 34)

    def test_a_segment_beyond_the_limit_that_only_the_fold_sees(self) -> None:
        files = three_segments()
        sizes = {file: FileStat(size_bytes=len(data)) for file, data in files.items()}
        sizes[name(10)] = FileStat(size_bytes=MAX_LOG_BYTES + 1)
        task = task_of(files, files=sizes)
        with pytest.raises(PartitionRefusedError, match="a segment larger than"):
            fold(task, MemorySource(files, task.settings))

    def test_a_swap_by_another_name_than_kafkas(self) -> None:
        folded = Folded(recovered() | {"10.log.swap": segment(10, 2)})
        assert folded.tree["10.log"] == segment(10, 2)


def test_a_split_leaves_the_transactions_that_were_aborted_before_it() -> None:
    begun = data_batch(0, producer_id=1, producer_epoch=0, transactional=True)
    aborted = begun + marker_batch(1, builders.ABORT, producer_id=1)
    tree = Folded(partition({0: aborted + data_batch(FAR, 3)})).tree
    assert len(tree[name(0, ".txnindex")]) == ABORTED_TXN_DTYPE.itemsize
    assert tree[name(FAR)] == data_batch(FAR, 3)


class TestRefusals:
    def test_aborted_transactions_that_do_not_end_in_order(self) -> None:
        begun = {"transactional": True, "producer_epoch": 0}
        data = b"".join(
            [
                data_batch(0, producer_id=1, **begun),
                data_batch(1, producer_id=2, **begun),
                marker_batch(9, builders.ABORT, producer_id=1),
                marker_batch(5, builders.ABORT, producer_id=2),
            ]
        )
        with pytest.raises(PartitionRefusedError, match="do not end in ascending order"):
            Folded(partition({0: data}))

    @pytest.mark.parametrize(
        ("behind", "words"),
        [
            (
                [data_batch(FAR, 1), data_batch(2 * FAR, 1), data_batch(FAR, 1), data_batch(3 * FAR, 1)],
                "begin at offset",
            ),
            ([data_batch(FAR, 3), data_batch(FAR + 3)[:-5]], "is torn"),
            (
                [data_batch(FAR), data_batch(2 * FAR, last_offset_delta=-5), data_batch(3 * FAR)],
                "before it begins",
            ),
            (
                [data_batch(FAR + more, value_bytes=300) for more in (0, 60, 10, 99)],
                "indexed again",
            ),
        ],
    )
    def test_splits_that_stop_the_broker(self, behind: list[bytes], words: str) -> None:
        with pytest.raises(PartitionRefusedError, match=words):
            Folded(partition({0: segment(0, 5) + b"".join(behind)}))
