"""What is asked of an archive, from a command line or a call to one value."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.options import ArchiveOptions
from recovery.archive.stores.stores import open_store
from recovery.cli import archive as command
from recovery.errors import UsageError
from recovery.spark import archive

SOURCE = [
    "x",
    "--topic",
    "a",
    "--topic",
    "b",
    "--partition",
    "c-1",
    "--metadata",
    "m, n",
    "--files-from",
    "f",
]


def options_of(*words: str) -> CheckOptions:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return command._check_options(parser.parse_args(["archive", *words]))


def test_a_command_line_is_one_value() -> None:
    found = options_of("verify", *SOURCE, "--layout", "aiven", "--logs-only", "--cores", "3", "--output", "o")
    assert found == CheckOptions(
        url="x",
        layout="aiven",
        topics=("a", "b"),
        partitions=("c-1",),
        metadata=("m", "n"),
        files_from="f",
        output="o",
        is_logs_only=True,
        cores=3,
        now_ms=found.now_ms,
    )
    assert found.command == "verify"


def test_recover_rebuilds_and_may_do_so_in_place() -> None:
    found = options_of("recover", "x", "--output", "o", "--in-place", "--deep")
    assert (found.command, found.rebuilds, found.is_in_place, found.is_deep) == ("recover", True, True, True)
    assert not options_of("recover", "x", "--output", "o").is_in_place


def test_what_is_replaced_in_place_lies_beside_the_archive() -> None:
    found = options_of("recover", "s3://bucket/kafka/", "--in-place")
    assert found.for_tasks("plain").output == "s3://bucket/kafka.quarantine"
    assert options_of("recover", "x", "--in-place", "--output", "o").result_url == os.path.abspath("o")
    with pytest.raises(UsageError, match="nothing beside it: give --output"):
        _ = options_of("recover", "s3://bucket", "--in-place").result_url
    with pytest.raises(UsageError, match="needs --output URL for what is rebuilt, or --in-place"):
        options_of("recover", "x")


@pytest.mark.parametrize("output", ["x", "x/o", "./x/o/", "file://{cwd}/x/o"])
def test_no_output_lies_in_the_archive(output: str) -> None:
    with pytest.raises(UsageError, match="it is in the archive"):
        options_of("verify", "x", "--output", output.format(cwd=os.getcwd()))
    assert options_of("verify", "x", "--output", "xo").output == "xo"


def test_no_output_lies_in_a_log_dir(tmp_path: Path) -> None:
    """Also one that is known only because it is named as metadata."""
    (tmp_path / "d1").mkdir()
    (tmp_path / "d2").mkdir()
    (tmp_path / "d1" / "meta.properties").touch()
    metadata = (f"file://{tmp_path}/d2", "s3://bucket/d3")
    for name in ("d1", "d2"):
        with pytest.raises(
            UsageError, match=f"--output .*: inside the log dir .*/{name}, where a broker takes"
        ):
            ArchiveOptions(url="x", output=f"{tmp_path}/{name}/o", metadata=metadata)
    for output in (f"{tmp_path}/o", "s3://bucket/d3/o"):
        assert ArchiveOptions(url="x", output=output, metadata=metadata).output == output


def test_tasks_are_told_whole_paths_and_the_layout_there_is() -> None:
    found = CheckOptions(url="x", output="s3://bucket/o", is_deep=True, now_ms=7).for_tasks("plain")
    assert (found.url, found.output) == (os.path.abspath("x"), "s3://bucket/o")
    assert (found.layout, found.is_deep, found.now_ms, found.rebuilds) == ("plain", True, 7, False)


def test_settings_of_topics_stand_over_the_brokers() -> None:
    options = CheckOptions(
        url="x",
        config={"log.index.interval.bytes": "100", "log.index.intervall.bytes": "1"},
        config_notes=("of a file",),
        topic_configs={"a": {"index.interval.bytes": "200"}},
    )
    settings = options.settings()
    assert settings.settings_of("a").index_interval_bytes == 200
    assert settings.settings_of("b").index_interval_bytes == 100
    first, second = options.notes
    assert first == "of a file"
    assert "intervall" in second


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--layout flat: expected one of auto, plain, local-tiered, aiven"):
        ArchiveOptions(url="x", layout="flat")
    with pytest.raises(UsageError, match="--layout flat"):
        archive.inventory(str(tmp_path), layout="flat")
    with pytest.raises(UsageError, match="exclude each other"):
        archive.verify(str(tmp_path), deep=True, logs_only=True)
    for url in ("s3://", "s3a:///prefix", "gs://", "az:///"):
        with pytest.raises(UsageError, match=r"it names no bucket: give (s3|gs|az)://BUCKET or [^\n]*$"):
            open_store(url)
    with pytest.raises(UsageError, match="expected TOPIC-N"):
        ArchiveOptions(url="x", partitions=("orders",)).choice()


def test_an_output_in_the_archive_is_refused_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archive/topic").mkdir(parents=True)
    (tmp_path / "link").symlink_to("archive")
    (tmp_path / "deep").symlink_to("archive/topic")
    outputs = (
        "archive/o",
        "link",
        "link/o",
        "deep/o/p",
        f"file://{tmp_path}/link/o",
        f"file://localhost{tmp_path}/link",
    )
    for archive_url in ("archive", "link", "topic/../link/", f"file://{tmp_path}/archive"):
        for output in outputs:
            with pytest.raises(UsageError, match="in the archive"):
                ArchiveOptions(url=archive_url, output=output)
        ArchiveOptions(url=archive_url, output="archive.quarantine")
    with pytest.raises(UsageError, match="in the archive"):
        ArchiveOptions(url="s3://b/k", output="s3a://b/k/o")
    ArchiveOptions(url="s3://b/k", output="s3a://b/ko")


def test_a_quarantine_beside_the_archive_that_leads_into_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive.quarantine").symlink_to("archive")
    with pytest.raises(UsageError, match="leads into the archive"):
        CheckOptions(url=str(tmp_path / "archive"), rebuilds=True, is_in_place=True)


@pytest.mark.parametrize("cores", [0, -1])
def test_there_is_at_least_one_core(cores: int) -> None:
    with pytest.raises(UsageError, match=f"--cores {cores}: expected an integer from 1 on"):
        options_of("verify", "x", "--cores", str(cores))
