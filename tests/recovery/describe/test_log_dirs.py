"""Log dirs described from files: lags, cordons, what is offline and why, and what is said once."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import recovery
from recovery.describe import log_dirs as described
from recovery.describe.report import (
    STORAGE_ERROR,
    UNKNOWN_LAG,
    LogDirDescription,
    LogDirsReport,
    ReplicaDescription,
)
from recovery.logdir.checkpoints import WITHOUT_CHECKPOINT
from recovery.watch.tally import Tally
from segfmt.filenames import RECOVERY_POINT_CHECKPOINT
from tests.logs.samples import MARKER, Sample, unpack
from tests.recovery.logdir.test_lock import other_process

UNIQUE = "0" * 32


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("stopped", tmp_path)


def describe(sample: Sample, *, topics: list[str] | None = None, **properties: str) -> LogDirsReport:
    return recovery.describe_log_dirs(config={**sample.properties, **properties}, topics=topics)


def future_of(sample: Sample, name: str) -> Path:
    """Make a future replica of the partition *name* of the first log dir in the second one."""
    future = sample.log_dirs[1] / f"{name}.{UNIQUE}-future"
    shutil.copytree(sample.log_dirs[0] / name, future)
    return future


def largest(log_dir: Path) -> Path:
    folders = [path for path in log_dir.glob("*-*") if path.name[:2] != "__"]
    return max(folders, key=lambda path: (len(list(path.glob("*.log"))), path.name))


def futures(report: LogDirsReport) -> list[ReplicaDescription]:
    return [one for log_dir in report.log_dirs for one in log_dir.replicas if one.is_future]


def of(report: LogDirsReport, path: Path) -> LogDirDescription:
    return next(one for one in report.log_dirs if one.log_dir == str(path))


class TestFutureReplicas:
    def test_those_of_other_topics_are_left_out(self, sample: Sample) -> None:
        name = largest(sample.log_dirs[0]).name
        future_of(sample, name)
        topic = name.rpartition("-")[0]
        others = {one.topic for log_dir in describe(sample).log_dirs for one in log_dir.replicas} - {topic}
        assert len(futures(describe(sample, topics=[topic]))) == 1
        assert futures(describe(sample, topics=[min(others)])) == []

    def test_one_that_is_ahead_has_a_lag_below_zero(self, sample: Sample) -> None:
        folder = largest(sample.log_dirs[0])
        future_of(sample, folder.name)
        *_, last = sorted(folder.glob("*.log"))
        last.unlink()  # the current one ends where it began
        (future,) = futures(describe(sample))
        assert future.offset_lag < 0

    def test_the_lag_behind_a_replica_without_segments_is_known(self, sample: Sample) -> None:
        folder = largest(sample.log_dirs[0])
        future_of(sample, folder.name)
        (whole,) = futures(describe(sample))
        assert whole.offset_lag == 0
        for log in folder.glob("*.log"):
            log.unlink()
        (future,) = futures(describe(sample))
        assert future.offset_lag < 0
        assert future.offset_lag != UNKNOWN_LAG

    def test_one_alone_is_told_unless_its_current_one_may_be_offline(self, sample: Sample) -> None:
        folder = largest(sample.log_dirs[0])
        future_of(sample, folder.name)
        shutil.rmtree(folder)
        report = describe(sample)
        assert [one.offset_lag for one in futures(report)] == [UNKNOWN_LAG]
        assert f"{folder.name}: a future replica alone: its offset lag is not known" in report.warnings
        shutil.rmtree(sample.log_dirs[0])
        report = describe(sample)
        assert [one.offset_lag for one in futures(report)] == [UNKNOWN_LAG]
        assert not any("a future replica alone" in text for text in report.warnings)

    def test_folders_that_change_places_meanwhile_are_listed_again(
        self, sample: Sample, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A broker puts the future replica in the place of the current one, while that dir was listed already."""
        folder = largest(sample.log_dirs[0])
        future = future_of(sample, folder.name)
        listed: list[str] = []
        list_replicas = described.list_replicas

        def meanwhile(path: str, tally: Tally) -> Any:
            if path == str(sample.log_dirs[1]) and future.exists():
                future.rename(
                    sample.log_dirs[1] / folder.name
                )  # the first dir was listed with the current one
                folder.rename(folder.parent / f"{folder.name}.{UNIQUE}-delete")
            listed.append(path)
            return list_replicas(path, tally)

        monkeypatch.setattr(described, "list_replicas", meanwhile)
        report = describe(sample)
        assert len(listed) == 2 * len(sample.log_dirs)
        assert not any("brokers do not start" in text for text in report.warnings)
        name = [
            one
            for one in of(report, sample.log_dirs[1]).replicas
            if f"{one.topic}-{one.partition}" == folder.name
        ]
        assert len(name) == 1


def test_a_partition_in_two_dirs_is_told(sample: Sample) -> None:
    folder = largest(sample.log_dirs[0])
    shutil.copytree(folder, sample.log_dirs[1] / folder.name)
    (told,) = (text for text in describe(sample).warnings if text.startswith(f"{folder.name}: in "))
    assert f"{sample.log_dirs[0]} and {sample.log_dirs[1]}" in told
    assert "Remedy: find out which copy" in told


def test_a_link_where_the_folder_of_a_log_should_be_is_told(sample: Sample) -> None:
    link = sample.log_dirs[1] / "not-mounted-0"
    link.symlink_to(sample.log_dirs[1] / "nowhere")
    (told,) = (text for text in describe(sample).warnings if text.startswith(str(link)))
    assert "goes offline with the log dir when it makes this log" in told
    assert "Remedy: mount the file system that it leads to" in told


def test_a_folder_with_the_name_of_the_marker_is_no_foreign_one(sample: Sample) -> None:
    """A broker takes it for its marker, says `recover`; it does not stop at its name."""
    before = describe(sample).warnings
    (sample.log_dirs[0] / MARKER).unlink()
    (sample.log_dirs[0] / MARKER).mkdir()
    assert describe(sample).warnings == before


@pytest.mark.parametrize("name", sorted(WITHOUT_CHECKPOINT))
def test_a_checkpoint_that_takes_the_log_dir_offline_does(sample: Sample, name: str) -> None:
    (sample.log_dirs[0] / name).write_text("1\n0\n")
    first, second = describe(sample).log_dirs
    assert (first.error, second.error) == (STORAGE_ERROR, None)
    assert first.cause is not None
    assert first.cause.startswith(f"{name}: ")
    assert "Remedy: move the file away" in first.cause


def test_a_checkpoint_whose_lines_a_broker_ignores_leaves_the_log_dir_online(sample: Sample) -> None:
    (sample.log_dirs[0] / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\ntopic zero 0\n")
    assert describe(sample).exit_code == 0


def test_a_checkpoint_that_this_user_may_not_read_is_told_and_leaves_the_log_dir_online(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("recovery.logdir.checkpoints.read_small", denied)
    report = describe(sample)
    assert report.exit_code == 0
    path = sample.log_dirs[0] / RECOVERY_POINT_CHECKPOINT
    told = f"{path}: Permission denied: whether the log dir goes offline for it is not known. Remedy: run this as"
    assert any(text.startswith(told) for text in report.warnings)


class TestSpelling:
    def test_a_log_dir_is_spelled_as_java_spells_it(self, sample: Sample) -> None:
        first, *others = map(str, sample.log_dirs)
        odd = first.replace("/", "//") + "/"
        report = describe(sample, **{"log.dirs": ",".join([odd, *others])})
        assert [one.log_dir for one in report.log_dirs] == [first, *others]

    @pytest.mark.parametrize("has_star", [True, False])
    def test_a_cordon_that_a_broker_ignores_is_none(self, sample: Sample, has_star: bool) -> None:
        """A broker looks for the dir as Java spells it among the cordons as they are written."""
        first, *others = map(str, sample.log_dirs)
        odd = first + "/"
        cordons = "*" if has_star else odd
        report = describe(sample, **{"log.dirs": ",".join([odd, *others]), "cordoned.log.dirs": cordons})
        assert [one.is_cordoned for one in report.log_dirs] == [False] + [has_star] * len(others)
        assert any("accept this cordon and ignore it" in text for text in report.warnings)


class TestOffline:
    def test_what_is_wrong_with_an_offline_dir_is_its_cause_and_no_warning(self, sample: Sample) -> None:
        path = sample.log_dirs[1] / "meta.properties"
        path.unlink()
        path.mkdir()
        report = describe(sample)
        assert "meta.properties" in str(of(report, sample.log_dirs[1]).cause)
        assert not any("meta.properties" in text for text in report.warnings)

    @pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOTDIR])
    def test_any_error_of_the_listing_takes_it_offline(
        self, sample: Sample, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        list_replicas = described.list_replicas

        def failing(path: str, tally: Tally) -> Any:
            if path == str(sample.log_dirs[0]):
                raise OSError(number, os.strerror(number), path)
            return list_replicas(path, tally)

        monkeypatch.setattr(described, "list_replicas", failing)
        report = describe(sample)
        assert [one.error is None for one in report.log_dirs] == [False] + [True] * (len(sample.log_dirs) - 1)
        assert os.strerror(number) in str(of(report, sample.log_dirs[0]).cause)

    def test_a_lock_of_another_dir_of_the_broker_counts(self, sample: Sample) -> None:
        """Only one dir is asked for, and nobody holds its lock; but the broker runs, and holds the other's."""
        first, second = sample.log_dirs[:2]
        for path in (first, second):
            (path / ".lock").touch()
        with other_process(second / ".lock"):
            report = recovery.describe_log_dirs([str(first)], config=sample.properties)
        (one,) = report.log_dirs
        assert "the running broker has taken it offline" in str(one.cause)

    def test_a_lock_that_cannot_be_looked_at_is_not_let_go(
        self, sample: Sample, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = str(sample.log_dirs[0])

        def is_locked(path: str) -> bool:
            if path == first:
                raise OSError(errno.EIO, "Input/output error", path)
            return True

        monkeypatch.setattr(described, "is_locked_by_broker", is_locked)
        assert [one.error for one in describe(sample).log_dirs] == [None] * len(sample.log_dirs)
