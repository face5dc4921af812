import bisect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt import byte_layout, offset_index, time_index, transaction_index
from segfmt.entry_view import largest_lower_bound
from segfmt.errors import CorruptIndexError, UnsupportedVersionError
from tests.segfmt.golden_files import golden

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)


def offset_entries(rows):
    return np.array(rows, dtype=byte_layout.OFFSET_INDEX_DTYPE)


def time_entries(rows):
    return np.array(rows, dtype=byte_layout.TIME_INDEX_DTYPE)


def txn_entries(rows):
    return np.array(rows, dtype=byte_layout.ABORTED_TXN_DTYPE)


@given(st.lists(st.tuples(INT, INT)), st.binary(max_size=7))
def test_offset_index_round_trip_and_rest(rows, rest):
    data = offset_index.encode_offset_index(offset_entries(rows))
    assert offset_index.view_offset_index(data + rest).tolist() == rows


@given(st.lists(st.tuples(LONG, INT)), st.binary(max_size=11))
def test_time_index_round_trip_and_rest(rows, rest):
    data = time_index.encode_time_index(time_entries(rows))
    assert time_index.view_time_index(data + rest).tolist() == rows


@given(st.lists(st.tuples(st.integers(-(2**15), 2**15 - 1), LONG, LONG, LONG, LONG)), st.binary(max_size=33))
def test_transaction_index_round_trip_and_rest(rows, rest):
    data = transaction_index.encode_transaction_index(txn_entries(rows))
    assert transaction_index.view_transaction_index(data + rest).tolist() == rows


def test_views_copy_nothing():
    data = np.zeros(64, np.uint8)
    view = offset_index.view_offset_index(data)
    data[3] = 9
    assert view["relative_offset"][0] == 9
    assert np.shares_memory(view, data)


def test_golden_offset_index():
    data = golden("own.index")
    entries = offset_index.view_offset_index(data)
    assert len(entries) == 112
    assert (np.diff(entries["relative_offset"]) > 0).all()
    assert (np.diff(entries["position"]) > 0).all()
    offset_index.check_offset_index(data, 255)
    assert offset_index.encode_offset_index(entries) == data
    last = offset_index.last_offset(entries, 255)
    assert offset_index.lookup(entries, 255, last + 5).offset == last
    assert offset_index.lookup(entries, 255, 255) == (255, 0)


def test_golden_time_index():
    data = golden("own.timeindex")
    entries = time_index.view_time_index(data)
    assert len(entries) == 3
    time_index.check_time_index(data, 255)
    assert time_index.encode_time_index(entries) == data
    assert time_index.lookup(entries, 255, 2**62) == time_index.last_entry(entries, 255)
    assert time_index.lookup(entries, 255, 0) == (-1, 255)


def test_golden_transaction_index():
    data = golden("aborted.txnindex")
    entries = transaction_index.view_transaction_index(data)
    assert len(entries) == 10
    assert (np.diff(entries["last_offset"]) > 0).all()
    transaction_index.check_transaction_index(data, 0)
    assert transaction_index.encode_transaction_index(entries) == data


def test_preallocated_sizes():
    assert offset_index.preallocated_bytes(10485760) == 10485760
    assert time_index.preallocated_bytes(10485760) == 10485756
    assert (offset_index.max_entries(100), time_index.max_entries(100)) == (12, 8)


@given(st.lists(INT, unique=True, max_size=300), INT, st.sampled_from([0, 1, 5, 1024]))
def test_lower_bound_of_sorted_keys(keys, target, warm_entries):
    keys = sorted(keys)
    found = largest_lower_bound(np.array(keys, dtype=">i4"), target, warm_entries)
    assert found == bisect.bisect_right(keys, target) - 1


def test_lookup_in_an_untrimmed_index_finds_the_zeros():
    """What a broker does that was given the active segment's index as it was: zeros are entries."""
    entries = offset_entries([(5, 100), (9, 200), *[(0, 0)] * 6])
    assert offset_index.lookup(entries, 1000, 1009) == (1000, 0)
    assert offset_index.last_offset(entries, 1000) == 1000


def test_lookup_beyond_the_warm_part():
    entries = offset_entries([(n, n * 10) for n in range(1, 5000)])
    for target in (0, 1, 2, 3000, 3974, 3975, 3976, 4999, 6000):
        want = min(target, 4999)
        assert offset_index.lookup(entries, 0, target) == ((want, want * 10) if want else (0, 0))


def test_checks_of_kafkas_tools():
    with pytest.raises(CorruptIndexError):
        offset_index.check_offset_index(bytes(9), 0)
    with pytest.raises(CorruptIndexError):
        offset_index.check_offset_index(b"\xff" * 8, 5)
    with pytest.raises(CorruptIndexError):
        time_index.check_time_index(bytes(13), 0)
    with pytest.raises(CorruptIndexError):
        time_index.check_time_index(time_index.encode_time_index(time_entries([(5, 1), (4, 2)])), 0)
    with pytest.raises(CorruptIndexError):
        time_index.check_time_index(time_index.encode_time_index(time_entries([(5, -1)])), 0)
    offset_index.check_offset_index(b"", 7)
    time_index.check_time_index(b"", 7)


def test_transaction_index_below_its_base_is_corrupt():
    data = golden("aborted.txnindex")
    last = int(transaction_index.view_transaction_index(data)["last_offset"][0])
    transaction_index.check_transaction_index(data, last)
    with pytest.raises(CorruptIndexError) as caught:
        transaction_index.check_transaction_index(data, last + 1)
    assert caught.value.position == 0


@pytest.mark.parametrize("version", [0, 1, 255, -1, -(2**15)])
def test_version_whose_high_byte_is_not_positive_passes(version):
    data = transaction_index.encode_transaction_index(txn_entries([(version, 1, 0, 5, 6)]))
    transaction_index.check_transaction_index(data, 0)


@pytest.mark.parametrize("version", [256, 32767])
def test_version_whose_high_byte_is_positive_kills_the_broker(version):
    rows = [(0, 1, 0, 5, 6), (version, 1, 0, 7, 8)]
    with pytest.raises(UnsupportedVersionError) as caught:
        transaction_index.check_transaction_index(
            transaction_index.encode_transaction_index(txn_entries(rows)), 0
        )
    assert caught.value.position == 34


@pytest.mark.parametrize("version", [1, 255, 256, 32767, -1, -(2**15)])
def test_where_the_low_byte_is_read_every_version_but_0_kills_the_broker(version):
    data = transaction_index.encode_transaction_index(txn_entries([(0, 1, 0, 5, 6), (version, 1, 0, 7, 8)]))
    with pytest.raises(UnsupportedVersionError, match=f"version {version} ") as caught:
        transaction_index.check_transaction_index(data, 0, is_low_byte_read=True)
    assert caught.value.position == 34


def test_first_bad_entry_decides_what_happens():
    bad_then_fatal = txn_entries([(0, 1, 0, 5, 6), (256, 1, 0, 7, 8)])
    with pytest.raises(CorruptIndexError):
        transaction_index.check_transaction_index(bad_then_fatal.tobytes(), 6)


def test_transaction_index_is_cut_at_the_first_entry_that_reaches():
    entries = txn_entries([(0, 1, 0, 5, 6), (0, 1, 6, 9, 10), (0, 1, 10, 20, 21)])
    cuts = [transaction_index.truncation_position(entries, offset) for offset in (0, 5, 6, 9, 10, 20, 21)]
    assert cuts == [0, 0, 34, 34, 68, 68, None]
    assert transaction_index.truncation_position(entries[:0], 0) is None


@pytest.mark.parametrize("name", ["own.index", "own.timeindex", "aborted.txnindex"])
def test_cut_anywhere_gives_the_entries_before(name):
    data = golden(name)
    view, size = {
        "own.index": (offset_index.view_offset_index, 8),
        "own.timeindex": (time_index.view_time_index, 12),
        "aborted.txnindex": (transaction_index.view_transaction_index, 34),
    }[name]
    whole = view(data)
    for end in range(len(data)):
        assert view(data[:end]).tolist() == whole[: end // size].tolist()
