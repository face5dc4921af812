import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt import filenames
from segfmt.errors import FileNameError, FormatError
from segfmt.filenames import FileKind, FolderState, read_folder_name, read_log_folder_name, read_offset


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000000000000000000.log", FileKind.LOG),
        (".log", FileKind.LOG),
        ("0.index", FileKind.OFFSET_INDEX),
        ("0.timeindex", FileKind.TIME_INDEX),
        ("0.txnindex", FileKind.TXN_INDEX),
        ("0.snapshot", FileKind.SNAPSHOT),
        ("0.log.deleted", FileKind.DELETED),
        ("foo.deleted", FileKind.DELETED),
        ("0.checkpoint.deleted", FileKind.OTHER),
        ("0.snapshot.deleted", FileKind.DELETED),
        ("0.log.cleaned", FileKind.CLEANED),
        ("0.log.swap", FileKind.SWAP),
        ("0.index.swap", FileKind.SWAP),
        ("0.swap.log", FileKind.LOG),
        ("partition.metadata", FileKind.OTHER),
        ("leader-epoch-checkpoint", FileKind.OTHER),
        ("foo.txt", FileKind.OTHER),
        ("log", FileKind.OTHER),
    ],
)
def test_kind_of_a_file(name, kind):
    assert filenames.file_kind(name) is kind


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000012.log", 12),
        ("12.log", 12),
        ("+12.log", 12),
        ("-3.log", -3),
        ("9223372036854775807.timeindex", 2**63 - 1),
        ("5.log.swap", 5),
    ],
)
def test_offset_of_a_file(name, offset):
    assert read_offset(name) == offset


@pytest.mark.parametrize(
    "name", ["foo.log", ".swap", "9223372036854775808.log", "1 .log", "12log", "", "0x1.log"]
)
def test_file_without_offset_is_an_error(name):
    with pytest.raises(FileNameError):
        read_offset(name)


@given(st.integers(-(2**63), 2**63 - 1))
def test_offset_round_trip(offset):
    name = filenames.log_name(offset)
    assert read_offset(name) == offset
    assert len(name) == 24 + (offset < 0)


def test_names_that_kafka_writes():
    assert filenames.log_name(42) == "00000000000000000042.log"
    assert filenames.log_name(42, filenames.SWAP_SUFFIX) == "00000000000000000042.log.swap"
    assert filenames.offset_index_name(0) == "00000000000000000000.index"
    assert filenames.time_index_name(2**63 - 1) == "09223372036854775807.timeindex"
    assert filenames.txn_index_name(7, ".deleted") == "00000000000000000007.txnindex.deleted"
    assert filenames.snapshot_name(7) == "00000000000000000007.snapshot"
    assert filenames.log_name(-5) == "-00000000000000000005.log"


UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    [
        ("t-0", "t", 0, FolderState.CURRENT),
        ("a-b-12", "a-b", 12, FolderState.CURRENT),
        ("t-00", "t", 0, FolderState.CURRENT),
        ("t-+1", "t", 1, FolderState.CURRENT),
        ("t--1", "t-", 1, FolderState.CURRENT),
        ("--1", "-", 1, FolderState.CURRENT),
        ("t-\u0661", "t", 1, FolderState.CURRENT),
        ("my.topic-3", "my.topic", 3, FolderState.CURRENT),
        (f"t-0.{UNIQUE}-delete", "t", 0, FolderState.DELETE),
        (f"my.topic-7.{UNIQUE}-future", "my.topic", 7, FolderState.FUTURE),
        (f"t-0.{UNIQUE}-stray", "t", 0, FolderState.STRAY),
        ("t-0.x-delete", "t", 0, FolderState.DELETE),
    ],
)
def test_folder_of_a_partition(name, topic, partition, state):
    folder = read_folder_name(name)
    assert (folder.topic, folder.partition, folder.state, folder.name) == (topic, partition, state, name)


@pytest.mark.parametrize(
    "name",
    [
        "lost+found",
        "t",
        "-0",
        "t-",
        "t-x",
        "t-2147483648",
        "t-delete",
        "t-0-delete",
        "t.0-delete",
        "t-0.a b-stray",
        "t-0.a.b-future",
        "t-0.-delete",
        "t-1 ",
        "",
    ],
)
def test_folder_that_stops_the_broker(name):
    with pytest.raises(FileNameError):
        read_folder_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "remote-log-index-cache",
        "__cluster_metadata-0",
        "__cluster_metadata-3",
        f"__cluster_metadata-0.{UNIQUE}-stray",
    ],
)
def test_folder_that_the_broker_passes_over(name):
    assert read_log_folder_name(name) is None


def test_folder_that_looks_like_the_metadata_log_is_read():
    assert read_log_folder_name("__cluster_metadata_-0").topic == "__cluster_metadata_"


def test_folder_names_that_kafka_writes():
    assert filenames.folder_name("t", 3) == "t-3"
    long = filenames.folder_name("x" * 249, 3, unique_id=UNIQUE, state=FolderState.STRAY)
    assert len(long) == 255
    assert long.endswith(f"x-3.{UNIQUE}-stray")
    future = filenames.folder_name("x" * 249, 3, unique_id=UNIQUE, state=FolderState.FUTURE)
    assert future == "x" * 249 + f"-3.{UNIQUE}-future"


@given(st.text(max_size=40))
def test_any_folder_name_is_read_or_refused(name):
    try:
        folder = read_folder_name(name)
    except FormatError:
        return
    assert name.startswith(folder.topic)


def test_kraft_snapshot_names():
    name = filenames.kraft_snapshot_name(1234, 7)
    assert name == "00000000000000001234-0000000007.checkpoint"
    read = filenames.read_kraft_snapshot_name(name)
    assert (read.end_offset, read.epoch, read.is_partial, read.is_deleted) == (1234, 7, False, False)
    assert filenames.read_kraft_snapshot_name(name + ".deleted").is_deleted
    assert filenames.read_kraft_snapshot_name(
        "00000000000000001234-0000000007-881.checkpoint.part"
    ).is_partial
    assert filenames.read_kraft_snapshot_name("00000000000000001234.log") is None


@pytest.mark.parametrize(
    "name", ["bootstrap.checkpoint", "x.checkpoint", "00000000000000001234-00007.checkpoint"]
)
def test_kraft_snapshot_name_without_numbers_is_an_error(name):
    with pytest.raises(FileNameError):
        filenames.read_kraft_snapshot_name(name)
