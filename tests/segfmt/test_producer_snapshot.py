import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt import byte_layout
from segfmt.crc32c import crc32c
from segfmt.errors import CorruptSnapshotError
from segfmt.producer_snapshot import as_loaded, encode_producer_snapshot, read_producer_snapshot
from tests.segfmt.golden_files import golden

GOLDEN = ["many-producers.snapshot", "transactions.snapshot", "few.snapshot"]
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
ENTRY = st.tuples(LONG, st.integers(-(2**15), 2**15 - 1), INT, LONG, INT, LONG, INT, LONG)


def entries_of(rows):
    return np.array(rows, dtype=byte_layout.PRODUCER_ENTRY_DTYPE)


@given(st.lists(ENTRY, max_size=20))
def test_round_trip(rows):
    entries = entries_of(rows)
    read = read_producer_snapshot(encode_producer_snapshot(entries))
    assert read.tolist() == entries.tolist()
    assert read.dtype == byte_layout.PRODUCER_ENTRY_DTYPE


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    data = golden(name)
    entries = read_producer_snapshot(data)
    assert len(entries) == (len(data) - 10) // 46 > 1
    assert encode_producer_snapshot(entries) == data
    assert as_loaded(entries).tolist() == entries.tolist()


def test_empty_snapshot_has_ten_bytes():
    data = encode_producer_snapshot(entries_of([]))
    assert len(data) == 10
    assert data[:2] + data[6:] == b"\0\x01\0\0\0\0"
    assert len(read_producer_snapshot(data)) == 0


@pytest.mark.parametrize("name", GOLDEN[1:])
def test_cut_anywhere_is_refused(name):
    data = golden(name)
    for end in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            read_producer_snapshot(data[:end])


def test_every_flipped_bit_is_noticed():
    data = golden("few.snapshot")
    for place in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            read_producer_snapshot(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])


def forge(body):
    return b"\0\x01" + crc32c(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("count", [-1, -(2**31), 1, 2**31 - 1])
def test_impossible_count_is_refused_with_a_right_crc(count):
    with pytest.raises(CorruptSnapshotError):
        read_producer_snapshot(forge(count.to_bytes(4, "big", signed=True) + bytes(45)))


def test_bytes_behind_the_entries_count_for_the_crc_only():
    assert len(read_producer_snapshot(forge(bytes(4) + b"more"))) == 0
    with pytest.raises(CorruptSnapshotError):
        read_producer_snapshot(golden("few.snapshot") + b"more")


def test_a_snapshot_of_more_entries_than_are_read_is_corrupt():
    count = len(read_producer_snapshot(golden("few.snapshot")))
    assert len(read_producer_snapshot(golden("few.snapshot"), most_entries=count)) == count
    with pytest.raises(
        CorruptSnapshotError, match=f"{count} entries announced, at most {count - 1} are read"
    ):
        read_producer_snapshot(golden("few.snapshot"), most_entries=count - 1)


def test_other_crc_function_is_used():
    with pytest.raises(CorruptSnapshotError):
        read_producer_snapshot(golden("few.snapshot"), crc32c=lambda data: 0)
    assert encode_producer_snapshot(entries_of([]), crc32c=lambda data: 7)[2:6] == b"\0\0\0\x07"


def test_entry_without_batch_is_written_again_as_kafka_does():
    loaded = as_loaded(entries_of([(1, 2, 77, -5, 9, 1234, 3, -8), (2, 0, 5, 0, 9, 1, 0, 0)]))
    assert loaded.tolist() == [(1, 2, -1, -1, 0, 1234, 3, -1), (2, 0, 5, 0, 9, 1, 0, 0)]


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data):
    for candidate in (data, forge(data)):
        try:
            read_producer_snapshot(candidate)
        except CorruptSnapshotError:
            continue
