"""Settings of a process of our own, a command or a worker; a library must not make them."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import sys

from recovery.errors import UsageError

_NEW_OBJECTS_A_COLLECTION = 50_000
"""By default Python looks for cycles after every 700 new objects. Nearly all objects of a start and a run stay, and
scanning them again and again makes importing modules a fifth slower."""


def search_path() -> list[str]:
    """Return where a Python process of ours looks for modules: where this one does.

    Not in the working folder, which may be anyone's, unless this package itself is there.
    """
    package_folder, working_folder = own_folder(), os.getcwd()
    paths = [path or working_folder for path in sys.path if path or working_folder == package_folder]
    return paths if package_folder in paths else [*paths, package_folder]


def own_folder() -> str:
    """Return the folder that this package is in."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def refuse_foreign_packages() -> None:
    """Make sure that the packages of this project are its own: their names are short, and others may have them, too.

    Raises:
        UsageError: another package with such a name stands before ours.
    """
    for name in ("native", "segfmt"):
        spec = importlib.util.find_spec(name)
        found = None if spec is None or spec.origin is None else os.path.dirname(os.path.dirname(spec.origin))
        if found is None or os.path.realpath(found) != os.path.realpath(own_folder()):
            place = "none" if spec is None else spec.origin or "a folder without an __init__.py"
            raise UsageError(
                f"the package {name} that Python finds is not that of kafka-log-recovery: {place}. Remedy: install "
                "kafka-log-recovery in an environment of its own"
            )


def prepare_process() -> None:
    """Turn off what costs a short run time and serves no purpose in it."""
    gc.set_threshold(_NEW_OBJECTS_A_COLLECTION)
    # The process ends with the run, and everything is closed: a last look through all objects is wasted.
    atexit.register(gc.freeze)
    # numpy loads OpenBLAS, which starts a thread for each CPU. No matrix is multiplied here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
