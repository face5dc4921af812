import pytest
from hypothesis import given
from hypothesis import strategies as st

from segfmt.clean_shutdown import encode_clean_shutdown, read_clean_shutdown
from tests.segfmt.golden_files import golden


@given(st.integers(-(2**63), 2**63 - 1))
def test_round_trip(epoch):
    assert read_clean_shutdown(encode_clean_shutdown(epoch)) == epoch


def test_golden():
    data = golden("kafka_cleanshutdown")
    epoch = read_clean_shutdown(data)
    assert isinstance(epoch, int)
    assert encode_clean_shutdown(epoch) == data


def test_default_is_an_unknown_epoch():
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'


NO_EPOCH = [
    b"",
    b"x",
    b"{}",
    b'{"version":0}',
    b'{"brokerEpoch":null}',
    b'{"brokerEpoch":true}',
    b"[5]",
    b"\xff\xfe",
    b"[" * 9999,
    b'{"brokerEpoch":9223372036854775808}',
    b'{"brokerEpoch":"x"}',
    b'{"brokerEpoch":NaN}',
]


@pytest.mark.parametrize("data", NO_EPOCH)
def test_marker_without_epoch(data):
    assert read_clean_shutdown(data) is None


@pytest.mark.parametrize(
    "data", [b' {"brokerEpoch": 5}', b'{"x":{},"version":9,"brokerEpoch":5} ...', b'{"brokerEpoch":"5"}']
)
def test_marker_that_jackson_reads(data):
    assert read_clean_shutdown(data) == 5


@given(st.binary(max_size=60))
def test_any_bytes_give_an_epoch_or_none(data):
    assert read_clean_shutdown(data) is None or isinstance(read_clean_shutdown(data), int)
