import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.checkpoint import (
    LeaderEpochEntry,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
)
from segfmt.errors import FormatError, MalformedCheckpointError
from tests.segfmt.golden_files import golden

TOPIC = st.text("abcXYZ019._-", min_size=1, max_size=20)
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)


@given(st.dictionaries(st.tuples(TOPIC, INT), LONG))
def test_offset_checkpoint_round_trip(offsets):
    read = read_offset_checkpoint(encode_offset_checkpoint(offsets))
    assert list(read.items()) == list(offsets.items())


@given(st.lists(st.tuples(INT, LONG)))
def test_leader_epoch_checkpoint_round_trip(entries):
    assert read_leader_epoch_checkpoint(encode_leader_epoch_checkpoint(entries)) == tuple(entries)


def test_golden_offset_checkpoint():
    data = golden("recovery-point-offset-checkpoint")
    offsets = read_offset_checkpoint(data)
    assert offsets["codec-zstd", 0] == 1950
    assert len(offsets) == 14
    assert encode_offset_checkpoint(offsets) == data


def test_golden_leader_epochs():
    data = golden("leader-epoch-checkpoint")
    entries = read_leader_epoch_checkpoint(data)
    assert entries[0] == LeaderEpochEntry(epoch=0, start_offset=0)
    assert len(entries) == 3
    assert encode_leader_epoch_checkpoint(entries) == data


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n", b"+0\r\n-0\r\n"])
def test_checkpoint_without_entries(data):
    assert read_offset_checkpoint(data) == {}


@pytest.mark.parametrize("line", ["t 0 5", "t\t0   5", "t 0 5  ", "t +0 05", "t 00 5\x0b"])
def test_offset_line_that_kafka_tolerates(line):
    assert read_offset_checkpoint(f"0\n1\n{line}\n".encode()) == {("t", 0): 5}


def test_later_of_two_lines_counts():
    assert read_offset_checkpoint(b"0\n3\na 0 1\nb 0 2\na 00 3\n") == {("b", 0): 2, ("a", 0): 3}


OFFLINE = [
    (b"1\n0\n", 1),
    (b"x\n0\n", 1),
    (b" 0\n0\n", 1),
    (b"\n", 1),
    (b"0\nx\n", 2),
    (b"0\n1 \nt 0 5\n", 2),
    (b"0\n1\nt 0\n", 3),
    (b"0\n1\nt 0 5 6\n", 3),
    (b"0\n1\n t 0 5\n", 3),
    (b"0\n1\n\n", 3),
    (b"0\n1\nt 0 5\n\n", 4),
    (b"0\n2\nt 0 5\n", 2),
    (b"0\n0\nt 0 5\n", 2),
    (b"0\n1\nt 0 \xff\n", 1),
    (b"0\n1\nt\xc2\xa00 5\n", 3),
]


@pytest.mark.parametrize(("data", "line"), OFFLINE)
def test_checkpoint_that_takes_the_dir_offline(data, line):
    with pytest.raises(MalformedCheckpointError) as caught:
        read_offset_checkpoint(data)
    assert caught.value.takes_dir_offline
    assert caught.value.line == line


RUNTIME = [
    (b"0\n1\nt x 5\n", 3),
    (b"0\n1\nt 0 x\n", 3),
    (b"0\n1\nt 2147483648 5\n", 3),
    (b"0\n1\nt 0 9223372036854775808\n", 3),
    (b"0\n-1\n", 2),
    (b"0\n5\nt 0 1\nt x 5\n", 4),  # the bad number is met before the count is compared
]


@pytest.mark.parametrize(("data", "line"), RUNTIME)
def test_checkpoint_that_kafka_fails_on_without_taking_the_dir_offline(data, line):
    with pytest.raises(MalformedCheckpointError) as caught:
        read_offset_checkpoint(data)
    assert not caught.value.takes_dir_offline
    assert caught.value.line == line


def test_bad_number_far_before_bad_utf8_decides():
    filler = b"t 0 1\n" * 3000
    with pytest.raises(MalformedCheckpointError) as caught:
        read_offset_checkpoint(b"0\n9999\nt x 5\n" + filler + b"\xff")
    assert not caught.value.takes_dir_offline


def test_epoch_lines_need_two_tokens():
    with pytest.raises(MalformedCheckpointError) as caught:
        read_leader_epoch_checkpoint(b"0\n1\n1 2 3\n")
    assert caught.value.takes_dir_offline
    assert read_leader_epoch_checkpoint(b"0\n2\n-1 -2\n5 0\n") == ((-1, -2), (5, 0))


@given(st.binary(max_size=60) | st.text("0123 \n-tx", max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(data):
    for read in (read_offset_checkpoint, read_leader_epoch_checkpoint):
        try:
            read(data)
        except FormatError:
            continue


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "leader-epoch-checkpoint"])
def test_checkpoint_cut_anywhere_is_read_or_refused(name):
    data = golden(name)
    read = read_leader_epoch_checkpoint if "epoch" in name else read_offset_checkpoint
    for end in range(len(data)):
        try:
            entries = read(data[:end])
        except MalformedCheckpointError:
            continue
        assert end == len(data) - 1 or len(entries) == 0 or data[end : end + 1].isdigit()
