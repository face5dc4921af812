"""The kernels compiled with a check of every index, over the corpus of their targets and random changes of it.

    NUMBA_BOUNDSCHECK=1 python -m tests.fuzz.bounds SEED COUNT

A row beyond its table is an IndexError then. Loads of file bytes go by address and are checked by guard pages.
"""

from __future__ import annotations

import os
import random
import sys

import numpy as np

from native import _scan_state, kernels
from tests.fuzz.kernels import TARGETS


def is_checked() -> bool:
    """Whether an index beyond a table raises in this process: by a call that has one."""
    producers = np.zeros(4, _scan_state.PRODUCER_ROW_DTYPE)
    slots = _scan_state.new_slots(16)
    try:
        rebuild_slots = kernels.entry(kernels.REBUILD_SLOTS)
        rebuild_slots(producers.ctypes.data, producers.size, 5, slots.ctypes.data, slots.size)
    except IndexError:
        return True
    return False


def main() -> None:
    """Run COUNT cases of each target of the kernels, random ones of SEED."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    if os.environ.get("NUMBA_BOUNDSCHECK") != "1" or not is_checked():
        sys.exit("bounds are not checked: set NUMBA_BOUNDSCHECK=1")
    rng = random.Random(seed)
    for target in TARGETS:
        corpus = target.corpus()
        for data in corpus:
            target.run(data)
        for _ in range(count):
            target.run(_changed(rng, rng.choice(corpus)))
    print(f"{len(TARGETS) * count} cases within bounds")


def _changed(rng: random.Random, data: bytes) -> bytes:
    """*data* with up to eight bytes changed, a part of it repeated."""
    changed = bytearray(data)
    for _ in range(rng.randrange(9)):
        changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    if rng.random() < 0.3:
        start = rng.randrange(len(changed))
        changed[start:start] = changed[start : start + 400] * rng.randrange(1, 8)
    return bytes(changed[:8192])


if __name__ == "__main__":
    main()
