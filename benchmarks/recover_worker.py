"""One recovery in a process of its own whose start-up is over: what the engine takes, without Python's start.

    python -m benchmarks.recover_worker CONFIG WARM_UP_LOG_DIR

Recovers the small log dir first, which imports and loads everything; then CONFIG's log dirs, timed. Prints
one JSON object: the seconds of the call, the CPU path and the report.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import recovery
from native import cpu
from segfmt.properties import read_properties


def main() -> None:
    """Warm up, recover, print."""
    config, warm_up_dir = sys.argv[1:]
    recovery.recover([warm_up_dir])
    properties = dict(read_properties(Path(config).read_bytes()))
    begin = time.perf_counter()
    report = recovery.recover(None, config=properties)
    seconds = time.perf_counter() - begin
    answer = {"seconds": seconds, "cpu_path": cpu.choose().name, "report": json.loads(report.to_json())}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
