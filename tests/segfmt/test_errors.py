import pickle

import pytest

from segfmt import errors

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FormatError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_error_survives_pickling(kind):
    error = kind("what, where", position=7)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.position, copy.kafka) == (kind, "what, where", 7, error.kafka)


@pytest.mark.parametrize("kind", KINDS)
def test_error_is_a_value_error_and_names_a_java_exception(kind):
    assert issubclass(kind, ValueError)
    assert kind("x").kafka.endswith("Exception")


def test_checkpoint_error_keeps_its_verdict_when_pickled():
    error = errors.MalformedCheckpointError(
        "x", line=3, takes_dir_offline=False, kafka="NumberFormatException"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.line, copy.takes_dir_offline, copy.kafka) == (3, False, "NumberFormatException")


def test_checksum_error_tells_both_sums():
    error = errors.ChecksumMismatchError("x", expected=1, actual=2)
    assert (error.expected, error.actual) == (1, 2)
    assert isinstance(error, errors.CorruptBatchError)
