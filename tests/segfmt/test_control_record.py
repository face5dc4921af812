import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.compression import Codec, compress
from segfmt.control_record import (
    ControlType,
    encode_control_key,
    encode_marker_value,
    read_control_type,
    read_end_transaction_marker,
)
from segfmt.errors import (
    DecompressionError,
    FormatError,
    InvalidControlRecordError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from segfmt.record import Record, encode_record
from segfmt.record_batch import RecordBatchHeader, encode_record_batch, read_record_batch_header
from tests.segfmt.golden_files import golden

COMMIT = encode_control_key(ControlType.COMMIT)
VALUE = encode_marker_value(7)


def control_batch(payload, *, record_count=1, attributes=0x30):
    header = RecordBatchHeader(
        base_offset=40,
        attributes=attributes,
        base_timestamp_ms=1000,
        max_timestamp_ms=1005,
        producer_id=9,
        producer_epoch=1,
        record_count=record_count,
    )
    return encode_record_batch(header, payload)


def marker_batch(key, value, **options):
    record = Record(offset=40, timestamp_ms=1005, key=key, value=value)
    return control_batch(encode_record(record, base_offset=40, base_timestamp_ms=1000), **options)


@pytest.mark.parametrize(("name", "is_abort"), [("marker-commit.bin", False), ("marker-abort.bin", True)])
def test_golden_marker(name, is_abort):
    data = golden(name)
    marker = read_end_transaction_marker(data)
    assert marker.is_abort is is_abort
    assert marker.timestamp_ms == read_record_batch_header(data).max_timestamp_ms
    assert marker.coordinator_epoch >= 0


@given(st.booleans(), st.integers(-(2**31), 2**31 - 1))
def test_marker_round_trip(is_abort, coordinator_epoch):
    key = encode_control_key(ControlType.ABORT if is_abort else ControlType.COMMIT)
    data = marker_batch(key, encode_marker_value(coordinator_epoch))
    assert len(data) == 78
    marker = read_end_transaction_marker(data)
    assert (marker.is_abort, marker.coordinator_epoch, marker.timestamp_ms) == (
        is_abort,
        coordinator_epoch,
        1005,
    )


def test_batch_without_records_says_nothing():
    assert read_end_transaction_marker(control_batch(b"", record_count=0)) is None
    assert read_end_transaction_marker(control_batch(b"\xff" * 9, record_count=0)) is None


def test_newer_versions_are_read_like_the_current():
    marker = read_end_transaction_marker(marker_batch(b"\0\x05\0\x01more", b"\0\x09" + VALUE[2:] + b"more"))
    assert marker.coordinator_epoch == 7


def test_log_append_time_gives_the_batch_timestamp():
    record = Record(offset=40, timestamp_ms=3, key=COMMIT, value=VALUE)
    payload = encode_record(record, base_offset=40, base_timestamp_ms=1000)
    assert read_end_transaction_marker(control_batch(payload)).timestamp_ms == 3
    assert read_end_transaction_marker(control_batch(payload, attributes=0x38)).timestamp_ms == 1005


CUT_BEHIND = [
    marker_batch(b"", VALUE),
    marker_batch(b"\0\0\0", VALUE),
    marker_batch(b"\xff\xff\0\x01", VALUE),
    marker_batch(COMMIT, b"\x80\0" + VALUE[2:]),
    marker_batch(COMMIT, b"\xff\xff"),  # the version is judged before the length
    marker_batch(COMMIT, VALUE, record_count=-1),
    control_batch(marker_batch(COMMIT, VALUE)[61:-1]),
    control_batch(marker_batch(COMMIT, VALUE)[61:] + b"\0"),
    control_batch(b""),
    control_batch(b"\xff\xff\xff\xff"),
    control_batch(b"\x08" + b"\xff" * 4),
]


@pytest.mark.parametrize("data", CUT_BEHIND, ids=range(len(CUT_BEHIND)))
def test_marker_behind_which_the_broker_cuts(data):
    with pytest.raises(InvalidRecordError):
        read_end_transaction_marker(data)


FATAL = [
    (marker_batch(None, VALUE), "NullPointerException"),
    (marker_batch(COMMIT, None), "NullPointerException"),
    (marker_batch(COMMIT, b""), "BufferUnderflowException"),
    (marker_batch(COMMIT, VALUE[:5]), "BufferUnderflowException"),
    (marker_batch(encode_control_key(ControlType.LEADER_CHANGE), VALUE), "IllegalArgumentException"),
    (marker_batch(b"\0\0\0\x63", VALUE), "IllegalArgumentException"),
    (marker_batch(b"\0\0\xff\xff", None), "IllegalArgumentException"),
    (control_batch(b"\xff" * 5), "IllegalArgumentException"),
]


@pytest.mark.parametrize(("data", "kafka"), FATAL, ids=range(len(FATAL)))
def test_marker_that_kills_the_broker(data, kafka):
    with pytest.raises(InvalidControlRecordError) as caught:
        read_end_transaction_marker(data)
    assert caught.value.kafka == kafka


def test_only_the_first_record_is_looked_at():
    two = marker_batch(COMMIT, VALUE)[61:] + b"\xff" * 9
    assert read_end_transaction_marker(control_batch(two, record_count=2)).coordinator_epoch == 7


def test_compressed_marker():
    payload = compress(Codec.GZIP, marker_batch(COMMIT, VALUE)[61:])
    assert read_end_transaction_marker(control_batch(payload, attributes=0x31)).coordinator_epoch == 7
    with pytest.raises(DecompressionError):
        read_end_transaction_marker(control_batch(payload[:9], attributes=0x31))
    with pytest.raises(InvalidRecordError):
        read_end_transaction_marker(control_batch(payload, attributes=0x31, record_count=2))
    with pytest.raises(UnsupportedCodecError):
        read_end_transaction_marker(control_batch(payload, attributes=0x37, record_count=-1))
    with pytest.raises(UnsupportedCodecError):
        read_end_transaction_marker(control_batch(payload, attributes=0x37))


@pytest.mark.parametrize("control_type", [kind for kind in ControlType if kind >= 0])
def test_control_type_round_trip(control_type):
    assert read_control_type(encode_control_key(control_type)) is control_type


def test_unknown_control_type():
    assert read_control_type(b"\0\0\x01\0") is ControlType.UNKNOWN


@given(st.binary(max_size=40), st.integers(-1, 3))
def test_any_payload_is_read_or_refused(payload, record_count):
    try:
        read_end_transaction_marker(control_batch(payload, record_count=record_count))
    except FormatError:
        return


def test_cut_anywhere_is_refused():
    data = golden("marker-commit.bin")
    for end in range(len(data)):
        with pytest.raises(FormatError):
            read_end_transaction_marker(data[:end])
