"""Which engine is chosen, by the size of the archive and by what there is. No JVM is started."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from recovery.archive.check.report import ArchiveReport
from recovery.errors import UsageError
from recovery.spark import archive, choice
from tests.brokers.tiered_broker import TieredArchive
from tests.recovery.test_extras import hide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkChosenError(Exception):
    """In place of a session."""


def spark_chosen() -> NoReturn:
    raise SparkChosenError


def checked(url: Path, *, engine: str = "auto", is_cluster: bool = False) -> ArchiveReport:
    from recovery.archive.check.options import CheckOptions

    options = CheckOptions(url=str(url), cores=1)
    return archive.check(options, engine=engine, open_spark=spark_chosen, is_cluster=is_cluster)


@pytest.fixture(params=["MOST_SEGMENTS", "MOST_BYTES"])
def is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets an archive of 206 segments and 8 MB count as a large one."""
    monkeypatch.setattr(choice, request.param, 200)


def test_a_small_archive_is_checked_here(stored_archive: TieredArchive) -> None:
    assert checked(stored_archive.path).summary.segments == 206


@pytest.mark.usefixtures("is_large")
def test_a_large_one_is_sparks(stored_archive: TieredArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "missing_for_spark", lambda: "")
    with pytest.raises(SparkChosenError):
        checked(stored_archive.path)
    report = checked(stored_archive.path, engine="process")
    assert report.summary.segments == 206
    assert report.notes == ()


@pytest.mark.parametrize("package", ["pyspark", "pandas", "java"])
@pytest.mark.usefixtures("is_large")
def test_without_spark_a_large_one_is_checked_here_and_a_note_says_so(
    package: str, stored_archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if package == "java":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    else:
        hide(package, monkeypatch)
    report = checked(stored_archive.path)
    assert report.summary.segments == 206
    (note,) = report.notes
    reason = "there is no Java" if package == "java" else f"the package {package} is not installed"
    assert note.text.startswith("206 segments, ")
    assert reason in note.text


def test_what_java_home_names_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "there is no Java" in choice.missing_for_spark()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    assert choice.missing_for_spark() == ""


@pytest.mark.parametrize(("engine", "is_cluster"), [("spark", False), ("auto", True)])
def test_who_names_spark_gets_it_before_anything_is_read(
    tmp_path: Path, engine: str, is_cluster: bool
) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(SparkChosenError):
        checked(tmp_path, engine=engine, is_cluster=is_cluster)


def test_what_spark_submit_starts_is_sparks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(SparkChosenError):
        checked(tmp_path)


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--engine flink: expected one of auto, process, spark"):
        checked(tmp_path, engine="flink")


@pytest.mark.spark
def test_a_session_on_this_machine_is_no_reason(
    local_spark: SparkSession, stored_archive: TieredArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook has one all the time; one on a cluster is there to be used."""
    assert checked(stored_archive.path).summary.segments == 206
    assert not choice._is_within_cluster()
    monkeypatch.setattr(type(local_spark.conf), "get", lambda *_: "spark://host:7077")
    assert choice._is_within_cluster()
