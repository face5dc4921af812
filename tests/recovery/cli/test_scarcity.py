"""Too little memory, or too few open files, for a command as a whole: what to raise, and no word of a defect."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from recovery.cli.main import main
from tests.logs.samples import Sample, differences, tree_of, unpack
from tests.runs.command import run

MORE_MEMORY = "allow it more memory (ulimit -v, the container's limit)"
FEW_FILES = """
import resource, sys
import recovery.cli.main, recovery.cli.recover, recovery.check.api, recovery.engine.api, recovery.engine.process
import recovery.saved.undo, recovery.watch.open, recovery.watch.tally
from recovery.read.kernel_start import start_kernels
start_kernels()
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv.pop(1)),) * 2)
sys.exit(recovery.cli.main.main(sys.argv[1:]))
"""


@pytest.fixture
def sample(ram_path: Path) -> Sample:
    return unpack("crashed", ram_path)


@pytest.mark.parametrize(
    ("words", "place", "fewer"),
    [
        (("recover", "-n"), "recovery.engine.api.recover", ", or give fewer --threads"),
        (("verify",), "recovery.check.api.verify", ", or give fewer --threads"),
        (("quarantine", "list"), "recovery.cli.quarantine._listing", ""),
    ],
)
def test_a_lack_of_memory_is_no_defect(
    sample: Sample,
    words: tuple[str, ...],
    place: str,
    fewer: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(place, fail)
    assert main([*words, "-c", str(sample.config)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1] == (
        f"kafka-log-recovery: there is too little memory. Remedy: {MORE_MEMORY}{fewer}; then start the same command "
        "again, which resumes what this one has begun, if anything"
    )


@pytest.mark.parametrize(
    ("error", "what", "mend"),
    [
        (MemoryError(), "there is too little memory", MORE_MEMORY),
        (
            OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/d/x"),
            "/d/x: Too many open files",
            "allow it more open files (ulimit -n)",
        ),
    ],
)
def test_an_undo_that_met_it_goes_on(
    sample: Sample,
    error: BaseException,
    what: str,
    mend: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def live() -> dict[str, bytes]:
        return {name: data for name, data in tree_of(sample.root).items() if ".deleted" not in name}

    before = live()
    assert run("recover", "-c", sample.config, "--progress", "none").exit_code == 0

    def fail(*_: object, **__: object) -> None:
        raise error

    undo = ["undo", "-c", str(sample.config), "--progress", "none"]
    with monkeypatch.context() as patches:
        patches.setattr("recovery.saved.run_undoing.stage", fail)
        assert main(undo) == 1
    assert capsys.readouterr().err == (
        f"kafka-log-recovery: {what}. The undo is not finished: no broker may start yet. Remedy: {mend}, and start "
        "undo again, which goes on\n"
    )
    assert main(undo) == 0
    assert differences(before, live()) == []


@pytest.mark.long
@pytest.mark.parametrize("command", ["recover", "verify", "undo"])
@pytest.mark.parametrize("limit", [4, 5, 6, 7, 9])
def test_what_to_raise_is_said_where_files_cannot_be_opened(sample: Sample, command: str, limit: int) -> None:
    arguments = (
        command,
        "-c",
        sample.config,
        *(("-n",) if command != "verify" else ()),
        "--progress",
        "none",
    )
    done = run(*arguments, command=(sys.executable, "-c", FEW_FILES, str(limit)))
    assert "Traceback" not in done.stderr
    assert not done.exit_code or "allow it more open files (ulimit -n)" in done.stdout + done.stderr, done
    assert done.exit_code or limit > 5
