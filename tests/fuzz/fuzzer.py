"""The process in which atheris runs one target; `tests.fuzz.campaign` starts it.

    python -m tests.fuzz.fuzzer TARGET MODULE,MODULE RUNS SECONDS STATISTICS FINDINGS libFuzzer's own...

An exception does not end it: each new one (by name and line) is written to the folder FINDINGS, and the search
goes on. A signal or a case without end does; libFuzzer writes that input itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

import atheris

from tests import ROOT
from tests.fuzz.minimise import signature

_LOOK_EVERY = 256


def main() -> None:
    """Fuzz until the runs or the seconds are over; never returns."""
    name, modules, runs, seconds, statistics, findings, *libfuzzer = sys.argv[1:]
    packages = {module.partition(".")[0] for module in modules.split(",")}
    with atheris.instrument_imports(include=sorted(packages), exclude=sorted(_others(modules.split(",")))):
        from tests.fuzz.budget import Budget
        from tests.fuzz.targets import targets

        target = targets()[name]
        budget = Budget(target)
        with contextlib.suppress(Exception):
            budget.run(b"")
    most_runs = int(runs) or sys.maxsize
    end_s = time.monotonic() + (float(seconds) or float("inf"))
    known: set[str] = set()

    def end() -> None:
        figures = {"runs": budget.runs, "slowest_s": budget.slowest_s, "growth_bytes": budget.growth_bytes}
        Path(statistics).write_text(json.dumps(figures))

    def one_input(data: bytes) -> None:
        try:
            budget.run(data)
        except Exception:
            how = signature(traceback.format_exc())
            if how not in known:
                known.add(how)
                traceback.print_exc()
                path = Path(findings) / f"raised-{hashlib.sha256(how.encode()).hexdigest()[:12]}"
                path.write_bytes(data)
        if budget.runs % _LOOK_EVERY == 0:
            end()
        if budget.runs >= most_runs or time.monotonic() > end_s:
            end()
            sys.stderr.flush()
            os._exit(0)

    atheris.Setup([sys.argv[0], *libfuzzer], one_input)
    atheris.Fuzz()


def _others(modules: list[str]) -> set[str]:
    """The modules beside *modules* in their packages: atheris is told of whole packages.

    Kernels among them: numba cannot compile what atheris has instrumented.
    """
    return {
        name
        for package in {module.partition(".")[0] for module in modules}
        for path in (ROOT / package).rglob("*.py")
        for name in [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")]
        if not any(name == module or name.startswith(f"{module}.") for module in modules)
    }


if __name__ == "__main__":
    main()
