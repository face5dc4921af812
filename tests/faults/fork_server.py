"""A process with the kernels loaded, under the shim, that forks a child for each run of the command line.

    with ForkServer(folder) as server:
        ended = server.run(["recover", ...], prefix, Fault(action=Action.KILL_AFTER, at=17))

A run costs milliseconds this way, not the seconds that an interpreter and the kernels take to load. The child
calls the command line's own `main`, so its exit code and its two streams are a user's.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests import ROOT
from tests.faults.shim import CONTROL_VARIABLE, KILLING_ACTIONS, Fault, Op, open_control, shim_library
from tests.patience import LONGEST_WAIT_SECONDS

_SYNC_VARIABLE = "FAULTS_SYNC_EACH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended."""

    exit_code: int  # negative: the signal that killed it
    stdout: str
    stderr: str
    call_count: int
    hit_count: int  # how often the fault was injected
    hit: str  # the call that it was injected in first, in words
    hit_path: str
    is_frozen: bool

    @property
    def is_killed(self) -> bool:
        """Whether the shim, and nobody else, killed it, or let the disk stand still."""
        return self.is_frozen or (self.exit_code == -signal.SIGKILL and self.hit_count > 0)


class ForkServer:
    """The client's end; a context manager.

    Attributes:
        freezes: let the disk stand still instead of killing a run: each call after that point fails and does nothing.
            The disk is left as by a kill, and no process need be forked.

    Args:
        folder: for the control page; no run's prefix may hold it.
        syncs_each: let runs sync file by file, as where syncfs(2) does not tell of errors.
    """

    def __init__(self, folder: Path, *, syncs_each: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._control_path = folder / f"control-{os.getpid()}-{id(self)}"
        self.control = open_control(self._control_path)
        self.freezes = False
        environment = os.environ | {
            "LD_PRELOAD": str(shim_library()),
            CONTROL_VARIABLE: str(self._control_path),
            "PYTHONPATH": str(ROOT),
            _SYNC_VARIABLE: "1" if syncs_each else "",
            "OPENBLAS_NUM_THREADS": "1",  # a thread of its own would not be in the child
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.fork_server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=LONGEST_WAIT_SECONDS)
        self._process.stdout.close()
        self._control_path.unlink()

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        prefix: Path,
        fault: Fault | None = None,
        *,
        trace: Path | None = None,
        with_data: bool = False,
        before: str = "",
    ) -> Ended:
        """Run the command line with *argv*; calls below *prefix* are counted, and *fault* befalls one of them.

        Args:
            trace: where to write the calls, see `read_trace`; *with_data*: and what is written.
            before: `module:function` called in the child first, with *argv*.

        Without a kill, or something to do before, it is run in the server itself, which is quicker.
        """
        if trace is not None:
            trace.unlink(missing_ok=True)
        self.control.set(
            str(prefix), fault, trace=str(trace or ""), with_data=with_data, freezes=self.freezes
        )
        is_killed = fault is not None and fault.action in KILLING_ACTIONS
        is_forked = (is_killed and not self.freezes) or bool(before)
        request = {"argv": [os.fspath(word) for word in argv], "before": before, "fork": is_forked}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        control = self.control
        path = os.fsdecode(control.hit_path)
        words = f"{Op(control.hit_op).name.lower()} {'/'.join(path.split('/')[-2:])}" if control.hits else ""
        return Ended(
            exit_code=answer["exit_code"],
            stdout=answer["stdout"],
            stderr=answer["stderr"],
            call_count=control.count,
            hit_count=control.hits,
            hit=words,
            hit_path=path,
            is_frozen=bool(control.frozen),
        )

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 4 * LONGEST_WAIT_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise RuntimeError("the fork server died" if ready else "the fork server hangs")
        answer: dict[str, Any] = json.loads(line)
        return answer


# -- the server's end ----------------------------------------------------------------------------------------


def _serve() -> None:
    from native.segment_scan import warm_up
    from recovery.cli.main import main
    from recovery.engine import forecast
    from recovery.read import partition_files as source
    from recovery.write import write_back

    if os.environ[_SYNC_VARIABLE]:
        write_back._reports_errors = lambda path: False
    source.LEAST_MAPPED_BYTES = forecast.LEAST_KEPT_SCAN_BYTES = 0  # as large segments are
    warm_up()
    _load_what_runs_load(main)
    control = open_control(os.environ[CONTROL_VARIABLE])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryFile(dir=folder) as out, tempfile.TemporaryFile(dir=folder) as errors:
            if request["fork"]:
                child = os.fork()
                if child == 0:
                    os.dup2(out.fileno(), 1)
                    os.dup2(errors.fileno(), 2)
                    control.armed = 1
                    os._exit(_run_main(main, request))
                exit_code = _wait(child)
                control.armed = 0
            else:
                with _redirected(out, errors):
                    control.armed = 1
                    exit_code = _run_main(main, request)
                    control.armed = 0
            out.seek(0)
            errors.seek(0)
            answer = {
                "exit_code": exit_code,
                "stdout": out.read().decode(errors="replace"),
                "stderr": errors.read().decode(errors="replace"),
            }
        print(json.dumps(answer), flush=True)


@contextlib.contextmanager
def _redirected(out: IO[bytes], errors: IO[bytes]) -> Iterator[None]:
    kept = [os.dup(1), os.dup(2)]
    os.dup2(out.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    try:
        yield
    finally:
        for descriptor, saved in enumerate(kept, 1):
            os.dup2(saved, descriptor)
            os.close(saved)


def _load_what_runs_load(main: Callable[[list[str]], int]) -> None:
    """Recover a small log dir here, so that no child has to load a module for itself."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        log_dir = Path(folder) / "d1"
        (log_dir / "t-0").mkdir(parents=True)
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            (log_dir / name).write_text("0\n0\n")
        (log_dir / "t-0" / f"{0:020}.log").write_bytes(b"junk of more than seventeen bytes")
        main(["recover", "--log-dirs", str(log_dir), "--format", "json", "--progress", "none"])
    gc.collect()
    gc.freeze()


def _run_main(main: Callable[[list[str]], int], request: dict[str, Any]) -> int:
    """Run one command line, and end it as an interpreter would."""
    code = 70
    try:
        if request["before"]:
            module, _, function = request["before"].partition(":")
            getattr(importlib.import_module(module), function)(request["argv"])
        code = main(request["argv"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


def _wait(child: int) -> int:
    descriptor = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([descriptor], [], [], LONGEST_WAIT_SECONDS)
        if not ready:
            os.kill(child, signal.SIGALRM)  # told apart from the shim's SIGKILL
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    _serve()
