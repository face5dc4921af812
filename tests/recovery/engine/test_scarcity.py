"""Too little memory, too few open files: a log dir is left as after an I/O error, and told what to raise."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.engine import log_dir_handoff, partition_run
from recovery.engine.groups import CommitGroup
from recovery.engine.job import LogDirJob
from recovery.engine.pool import Pool
from recovery.engine.resume import RunJournal
from recovery.errors import LogDirOfflineError, reason_text, remedied_text
from recovery.read.partition_files import PartitionFiles
from tests.logs.samples import MARKER, differences, tree_of
from tests.recovery.engine.test_engine import damaged, log_dir, run, three_segments
from tests.runs.driving import log_bytes, lost_batches, own_leftovers

MORE_MEMORY = (
    "Remedy: allow it more memory (ulimit -v, the container's limit), or give fewer --threads; then start again, "
    "which resumes"
)
MORE_FILES = "Remedy: allow it more open files (ulimit -n); then start again, which resumes"


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [
        log_dir(tmp_path / path, **{f"{path}t_0": damaged(), f"{path}t_1": three_segments()})
        for path in ("a", "b")
    ]


def kept_of(path: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree_of(path).items() if not name.endswith(".deleted")}


@pytest.mark.parametrize(
    ("where", "call", "is_of_b"),
    [
        (partition_run, "plan_partition", lambda task, *_: task.folder.startswith("b")),
        (partition_run, "apply_partition", lambda path, *_: "/b/" in path),
        (CommitGroup, "finish", lambda group: any("/b/" in path for path in group.paths)),
        (RunJournal, "enter_cuts", lambda _, result: result.task.folder.startswith("b")),
        (log_dir_handoff, "apply_partition", lambda path, *_: path.endswith("/b")),
    ],
)
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), f"there is too little memory. {MORE_MEMORY}"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), f"{os.strerror(errno.ENOMEM)}. {MORE_MEMORY}"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), f"{os.strerror(errno.EMFILE)}. {MORE_FILES}"),
    ],
    ids=["memory", "ENOMEM", "EMFILE"],
)
def test_its_log_dir_goes_offline_and_is_resumed(
    dirs: list[Path],
    where: object,
    call: str,
    is_of_b: Callable[..., bool],
    error: BaseException,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really, before, failed = getattr(where, call), log_bytes(dirs[1]), []

    def fail(*arguments: object, **more: object) -> object:
        if is_of_b(*arguments):
            failed.append(call)
            raise error
        return really(*arguments, **more)

    with monkeypatch.context() as patches:
        patches.setattr(where, call, fail)
        report = run(*dirs)
    assert failed
    assert [one.status for one in report.log_dirs] == ["recovered", "offline"]
    assert report.exit_code == 4
    assert str(report.log_dirs[1].error).endswith(told)
    assert f"OFFLINE {dirs[1]}: " in report.to_text()
    assert not (dirs[1] / MARKER).exists()
    assert run(*dirs).log_dirs[1].status == "recovered"
    undisturbed = log_dir(tmp_path / "other" / "b", bt_0=damaged(), bt_1=three_segments())
    run(undisturbed)
    assert differences(kept_of(undisturbed), kept_of(dirs[1])) == []
    assert lost_batches(before, dirs[1]) == []
    assert own_leftovers(dirs[1]) == []


def test_a_dir_without_open_files_for_its_listing(dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(dirs[1] / "bt-0"))

    monkeypatch.setattr("recovery.engine.run.CutLedger.settle", fail)
    report = run(*dirs)
    assert [one.status for one in report.log_dirs] == ["offline", "offline"]
    assert str(report.log_dirs[1].error).endswith(
        f"{dirs[1]}/bt-0: Too many open files. Remedy: allow it more open files (ulimit -n), then start again"
    )


def test_a_partition_that_cannot_be_read_is_refused_with_the_remedy(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(files: PartitionFiles, _request: object) -> object:
        raise MemoryError

    monkeypatch.setattr(PartitionFiles, "scan", fail)
    report = run(*dirs)
    remedies = {problem.remedy for one in report.partitions for problem in one.problems}
    assert remedies == {"allow it more memory (ulimit -v, the container's limit), or give fewer --threads"}


class _Hungry:
    """Takes more memory than there is, once it arrives."""

    def __reduce__(self) -> tuple[object, ...]:
        return bytearray, (1 << 60,)


def test_a_worker_without_memory_is_told_as_one(dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    really_run = Pool.run_in_processes

    def hungry(of: Pool, jobs: list[LogDirJob], locks: Iterable[int]) -> object:
        return really_run(of, [jobs[0], replace(jobs[1], thread_count=_Hungry())], locks)

    monkeypatch.setattr(Pool, "run_in_processes", hungry)
    report = run(*dirs, processes="always")
    assert [one.status for one in report.log_dirs] == ["recovered", "offline"]
    assert (
        "ended with code 71: there was too little memory (allow it more memory (ulimit -v, the container's limit); or "
        "--processes never). What it had finished is done. Remedy: start again to resume"
    ) in str(report.log_dirs[1].error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(errno.EMFILE, "Too many", "/x"),
            "/x: Too many. Remedy: allow it more open files (ulimit -n)",
        ),
        (
            OSError(errno.ENFILE, "Too many", "/x"),
            "/x: Too many. Remedy: allow this machine more open files (sysctl fs.file-max)",
        ),
        (OSError(errno.EIO, "broken", "/x"), "/x: broken"),
        (OSError(errno.EMFILE, "Too many. Remedy: none", "/x"), "/x: Too many. Remedy: none"),
        ("words", "words"),
    ],
)
def test_the_remedy_of_an_error(error: OSError | str, text: str) -> None:
    then = ", then start again" if "allow" in text else ""
    assert remedied_text(error) == f"{text}{then}"
    assert str(LogDirOfflineError("/d", error)) == f"/d: {text}{then}"


def test_words_that_have_no_remedy_of_their_own() -> None:
    assert reason_text(OSError(errno.EMFILE, "Too many")) == "Too many: allow it more open files (ulimit -n)"
    assert reason_text(OSError(errno.EIO, "broken")) == "broken"
