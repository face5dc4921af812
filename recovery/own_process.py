"""What a process does that is ours alone, a command or a worker; a library must not."""

from __future__ import annotations

import atexit
import gc
import os
import sys

_NEW_OBJECTS_A_COLLECTION = 50_000
"""Python looks for cycles after every 700 new objects. Nearly all that a start and a run make stays, and making
modules is a fifth slower for looking through it again and again."""


def search_path() -> list[str]:
    """Return where a Python process of ours is to look for modules: where this one does.

    Not in the working folder, which may be anybody's, unless this package itself is there.
    """
    own, here = own_folder(), os.getcwd()
    found = [path or here for path in sys.path if path or here == own]
    return found if own in found else [*found, own]


def own_folder() -> str:
    """Return the folder that this package is in."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def prepare_process() -> None:
    """Spare this process what costs a short run time and is of use to none."""
    gc.set_threshold(_NEW_OBJECTS_A_COLLECTION)
    # The process ends with the run, and everything is closed: there is no point in looking through all objects then.
    atexit.register(gc.freeze)
    # numpy brings OpenBLAS, which starts a thread for each CPU when it is loaded. No matrix is multiplied here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
