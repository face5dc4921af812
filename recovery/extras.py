"""Optional packages, which a plain install leaves out: the one place that says what to do when one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from recovery.errors import UsageError
from recovery.version import VERSION

ARCHIVE: Final = "archive"
SPARK: Final = "archive,spark"
CLIENT: Final = "client"
"""Extras of pyproject.toml, as pip takes them. Spark serves only archives, so its remedies name both."""


def load(use: str, *modules: str, extras: str) -> None:
    """Import *modules* now, before any work is done that needs them.

    Args:
        use: the option, the command or the URL that needs them, as the user knows it.
        modules: their names.
        extras: those that install them, one of the above.

    Raises:
        UsageError: one is missing, or cannot be loaded.
    """
    with needed_for(use, extras=extras):
        for module in modules:
            import_module(module)


@contextmanager
def needed_for(use: str, *, extras: str) -> Iterator[None]:
    """Turn a failing import into an error that says what it was for, what is missing and how to install it.

    Raises:
        UsageError: something in the block could not be imported.
    """
    try:
        yield
    except ImportError as error:
        # Spark's own checks say what they need, and in which version.
        missing = f"the package {error.name}, which is not installed" if _is_absent(error) else str(error)
        raise UsageError(f"{use} needs {missing}. Remedy: {_remedy(extras)}") from error


def _is_absent(error: ImportError) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name is not None


def _remedy(extras: str) -> str:
    wheel = f"./kafka_log_recovery-{VERSION}-py3-none-any.whl"
    return (
        f"pip install '.[{extras}]' in the project's folder, or, if there is only its wheel, "
        f"pip install '{wheel}[{extras}]'"
    )
