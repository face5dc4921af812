"""Errors go from the process that finds them to the one that reports them."""

from __future__ import annotations

import pickle

import pytest

from recovery import errors
from recovery.errors import (
    InterruptedRecoveryError,
    LogDirOfflineError,
    PartitionRefusedError,
    RecoveryError,
    UsageError,
)
from recovery.problem import Problem

_PROBLEMS = [
    Problem(file=name, position=7, rule="foreign-file", detail="what it is", remedy="what to do")
    for name in ("one", "two")
]
_EXAMPLES: list[RecoveryError] = [
    UsageError("what is wrong"),
    LogDirOfflineError("/d1", OSError(5, "Input/output error", "/d1/x")),
    LogDirOfflineError("/d1", problems=_PROBLEMS),
    PartitionRefusedError(file="x", position=None, rule="foreign-folder", detail="what it is", remedy="do"),
    PartitionRefusedError.of(_PROBLEMS),
    InterruptedRecoveryError(15),
]


def test_each_class_that_is_made_otherwise_has_an_example() -> None:
    own = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, RecoveryError) and "__init__" in vars(kind)
    }
    assert own == {type(error) for error in _EXAMPLES} - {UsageError}


@pytest.mark.parametrize("error", _EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_in_another_process(error: RecoveryError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))
    assert {name: str(value) for name, value in vars(copy).items()} == {
        name: str(value) for name, value in vars(error).items()
    }
