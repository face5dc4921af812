"""Recoveries that are killed at a chosen call into the operating system, by hooks in Python: quick, for a few dirs.

tests/faults kills the process at every call for real.

A kill is a real one: a forked child ends with `os._exit` instead of making its n-th changing call, so no `finally`
and no handler runs.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

CHANGING_CALLS = (
    "rename", "link", "unlink", "ftruncate", "fsync", "mkdir", "write", "fchmod", "fchown", "chown", "open",
)  # fmt: skip
_KILLED, _SURVIVED, _FAILED = 7, 0, 1


@contextmanager
def at_call(number: int, act: Callable[[str], None]) -> Iterator[None]:
    """Before the *number*-th changing call (from 1) inside the block, do *act* with words for that call."""
    count = 0

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            is_change = name != "open" or arguments[1] & (os.O_CREAT | os.O_TRUNC)
            if is_change:
                count += 1
                if count == number:
                    act(f"{name}{_words(arguments)}")
            return call(*arguments, **more)

        return counted

    patches = [mock.patch.object(os, name, wrap(name, getattr(os, name))) for name in CHANGING_CALLS]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def killed_at(number: int, run: Callable[[], object]) -> bool:
    """Do *run* in a child that dies before its *number*-th changing call; return False where it got to its end."""
    child = os.fork()
    if child == 0:
        code = _FAILED
        try:
            with at_call(number, lambda _: os._exit(_KILLED)):
                run()
            code = _SURVIVED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (_KILLED, _SURVIVED), f"the child ended with {code}"
    return code == _KILLED


def _words(arguments: tuple[Any, ...]) -> str:
    return "(" + ", ".join(Path(one).name if isinstance(one, str) else "..." for one in arguments) + ")"
