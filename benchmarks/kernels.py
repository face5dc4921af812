"""How fast the segment scan is, beside a plain sum over the same bytes: the speed of reading memory at all.

    python benchmarks/kernels.py [--paths avx512-vpclmul,...] [--megabytes 64] [--rounds 40] [--json FILE]

Both work on an array in memory, one thread, in quanta of some MB, turn by turn; the best quantum of each
counts, because on a shared machine everything else measures the neighbours. The sizes of batches are random
and do not
repeat: with repeating sizes the branch predictor learns them by heart. 100 idempotent producers write in
random order. Ratios (scan / sum) are what to compare; GB/s are this machine's.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from native import _jit, cpu
from native.segment_scan import SegmentScanner, Stop
from segfmt.byte_layout import RECORD_BATCH_HEADER_DTYPE

SIZES_BYTES = {
    "100-300 B": (100, 300),
    "1 KiB": (824, 1224),
    "16 KiB": (14_000, 18_768),
    "64 KiB": (56_000, 75_072),
    "1 MiB": (900_000, 1_197_152),
}
PRODUCER_COUNT = 100
QUANTUM_BYTES = 16 << 20
"""What a recovery hands to the kernel at once of a mapped segment; a call costs some microseconds."""


@_jit.in_process
def plain_sum(words):  # noqa: ANN001, ANN201  # numba infers the types
    """Return the sum of *words*, uint64, shape (n,)."""
    total = np.uint64(0)
    for i in range(words.size):
        total += words[i]
    return total


def build_segment(least_bytes: int, most_bytes: int, size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return about *size_bytes* of random batches of *least_bytes* to *most_bytes* each."""
    from native.crc32c import crc32c

    random = np.random.default_rng(2026)
    room = np.zeros(size_bytes + most_bytes + (2 << 20), np.uint8)
    data = room[-room.ctypes.data % (2 << 20) :]
    noise = random.integers(0, 256, most_bytes, np.uint8)
    sequences = [0] * PRODUCER_COUNT
    position = offset = 0
    while position < size_bytes:
        total_bytes = int(random.integers(least_bytes, most_bytes + 1))
        producer = int(random.integers(PRODUCER_COUNT))
        record_count = max(1, total_bytes // 100)
        batch = data[position : position + total_bytes]
        batch[61:] = noise[: total_bytes - 61]
        header = np.zeros(1, RECORD_BATCH_HEADER_DTYPE)
        header["base_offset"] = offset
        header["length"] = total_bytes - 12
        header["magic"] = 2
        header["last_offset_delta"] = record_count - 1
        header["base_timestamp_ms"] = header["max_timestamp_ms"] = 1_700_000_000_000 + offset
        header["producer_id"] = 4000 + producer
        header["base_sequence"] = sequences[producer]
        header["record_count"] = record_count
        batch[:61] = header.view(np.uint8)
        batch[17:21] = np.array([crc32c(batch[21:])], ">u4").view(np.uint8)
        sequences[producer] += record_count
        offset += record_count
        position += total_bytes
    return data[:position]


def best_rates(data: npt.NDArray[np.uint8], paths: list[cpu.CpuPath], rounds: int) -> dict[str, float]:
    """Return the best GB/s of the plain sum (`sum`) and of the scan by each path (its name)."""
    best = {"sum": 0.0, **{path.name: 0.0 for path in paths}}
    words = data[: data.size // 8 * 8].view(np.uint64)
    plain_sum(words[:8])
    for _ in range(rounds):
        for start in range(0, words.size - QUANTUM_BYTES // 8 + 1, QUANTUM_BYTES // 8):
            quantum = words[start : start + QUANTUM_BYTES // 8]
            begin = time.perf_counter()
            plain_sum(quantum)
            best["sum"] = max(best["sum"], quantum.nbytes / (time.perf_counter() - begin) / 1e9)
        for path in paths:
            scanner = SegmentScanner(base_offset=0, size_bytes=data.size, cpu_path=path)
            while not scanner.finished:
                before = scanner.position
                window = data[before : before + max(QUANTUM_BYTES, scanner.needed_bytes)]
                begin = time.perf_counter()
                scanner.feed(window)
                seconds = time.perf_counter() - begin
                consumed = scanner.position - before
                if consumed >= QUANTUM_BYTES // 2:
                    best[path.name] = max(best[path.name], consumed / seconds / 1e9)
            if scanner.result().stop is not Stop.END:
                raise SystemExit(f"the scan of sound data stopped: {scanner.result()}")
    return best


def main() -> None:
    """Measure, print a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--paths", help="comma-separated; all that this CPU has by default")
    parser.add_argument("--megabytes", type=int, default=64, help="bytes a size of batch (default 64)")
    parser.add_argument("--rounds", type=int, default=40, help="passes over them (default 40)")
    parser.add_argument("--sizes", help=f"comma-separated, of: {', '.join(SIZES_BYTES)}")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args()
    paths = [cpu.named(name) for name in options.paths.split(",")] if options.paths else list(cpu.supported())
    sizes = options.sizes.split(",") if options.sizes else list(SIZES_BYTES)
    results = []
    print(f"{'batch':>10} {'sum GB/s':>9}" + "".join(f" {path.name:>22}" for path in paths))
    for size in sizes:
        data = build_segment(*SIZES_BYTES[size], options.megabytes << 20)
        best = best_rates(data, paths, options.rounds)
        cells = [f" {best[path.name]:10.1f} = {best[path.name] / best['sum']:5.2f} sum" for path in paths]
        print(f"{size:>10} {best['sum']:9.1f}" + "".join(f"{cell:>23}" for cell in cells), flush=True)
        results.append({"batch": size, "gigabytes_per_second": best})
    if options.json:
        machine = {"machine": platform.machine(), "system": platform.platform(), "python": sys.version}
        options.json.write_text(json.dumps({"version": 1, **machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
