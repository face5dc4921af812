"""Whose log dirs these are, and what is not touched because it is somebody else's."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from recovery.logdir.identity import identify
from tests.logs.samples import unpack
from tests.runs.command import recover
from tests.runs.driving import footprint

IDS = ("AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw")


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in "ab"]
    for path, directory_id in zip(found, IDS, strict=True):
        path.mkdir()
        write(path, directory_id=directory_id)
    return found


def write(path: Path, *, cluster: str = "one", node: int = 1, directory_id: str) -> None:
    text = f"version=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id={directory_id}\n"
    (path / "meta.properties").write_text(text)


def rules(dirs: list[Path], **options: object) -> dict[str, str]:
    problems = identify([str(path) for path in dirs], **options).problems
    return {Path(path).name: "; ".join(map(str, found)) for path, found in problems.items()}


def test_dirs_of_one_node(dirs: list[Path]) -> None:
    found = identify([str(path) for path in dirs], node_id=1, metadata_log_dir=str(dirs[0]))
    assert (found.node_id, found.problems, found.blockers) == (1, {}, {})


def test_the_dir_of_another_node_by_the_configuration(dirs: list[Path]) -> None:
    write(dirs[1], node=2, directory_id=IDS[1])
    assert list(rules(dirs, node_id=1)) == ["b"]
    assert "node.id is 2, but the configuration says 1" in rules(dirs, node_id=1)["b"]
    assert list(rules(dirs, node_id=3)) == ["a", "b"]


def test_without_a_configuration_nobody_knows_which_one_is_wrong(dirs: list[Path]) -> None:
    write(dirs[1], node=2, directory_id=IDS[1])
    found = rules(dirs)
    assert f"node.id is 1, but 2 in {dirs[1]}" in found["a"]
    assert f"node.id is 2, but 1 in {dirs[0]}" in found["b"]


def test_another_cluster(dirs: list[Path]) -> None:
    write(dirs[1], cluster="two", directory_id=IDS[1])
    assert sorted(rules(dirs, node_id=1)) == ["a", "b"]


@pytest.mark.parametrize("content", [b"", bytes(122)])
def test_files_that_a_power_failure_has_emptied(dirs: list[Path], content: bytes) -> None:
    """Kafka reads such a file as one of version 0, which has no ids, and stops: `tests/kafka/test_blockers.py`."""
    (dirs[1] / "meta.properties").write_bytes(content)
    ((log_dir, (problem,)),) = identify([str(path) for path in dirs]).blockers.items()
    assert (log_dir, problem.rule) == (str(dirs[1]), "meta-properties")
    assert "version 0, without broker.id and cluster.id" in problem.detail
    assert "without its directory.id" in problem.remedy


@pytest.mark.parametrize(
    ("leader", "voted", "version", "is_told"),
    [(1, -1, 1, True), (2, 1, 1, True), (2, -1, 1, False), (1, -1, 0, False)],
)
def test_a_voter_without_its_directory(
    leader: int, voted: int, version: int, is_told: bool, dirs: list[Path]
) -> None:
    """A broker then makes a new id, and asks itself for ever for the metadata log."""
    folder = dirs[0] / "__cluster_metadata-0"
    folder.mkdir()
    state = {"leaderId": leader, "leaderEpoch": 2, "votedId": voted, "data_version": version}
    (folder / "quorum-state").write_text(json.dumps(state))
    assert identify([str(path) for path in dirs]).blockers == {}
    meta = dirs[0] / "meta.properties"
    meta.write_text(re.sub("directory.id=.*", "", meta.read_text()))
    blockers = identify([str(path) for path in dirs]).blockers
    assert list(blockers) == [str(dirs[0])] * is_told
    if is_told:
        ((problem,),) = blockers.values()
        assert "no directory.id" in problem.detail
        assert "KRaftVoters" in problem.remedy


def test_a_copy_of_a_log_dir(dirs: list[Path]) -> None:
    write(dirs[1], directory_id=IDS[0])
    found = rules(dirs)
    assert f"directory.id is also that of {dirs[0]}" in found["b"]
    assert "decide which one is right" in found["a"]


@pytest.mark.parametrize(
    "text", ["version=2\n", "version=1\nnode.id=1\n", "node.id=x\nversion=1\ncluster.id=c\n"]
)
def test_a_malformed_file(text: str, dirs: list[Path]) -> None:
    (dirs[1] / "meta.properties").write_text(text)
    assert list(rules(dirs)) == ["b"]


def test_a_pipe_is_not_waited_for(dirs: list[Path]) -> None:
    (dirs[1] / "meta.properties").unlink()
    os.mkfifo(dirs[1] / "meta.properties")
    assert "a pipe" in rules(dirs)["b"]


def test_a_dir_without_the_file_stops_a_broker_and_no_recovery(dirs: list[Path]) -> None:
    (dirs[1] / "meta.properties").unlink()
    found = identify([str(path) for path in dirs])
    assert found.problems == {}
    ((log_dir, (problem,)),) = found.blockers.items()
    assert (log_dir, problem.file, problem.rule) == (str(dirs[1]), "meta.properties", "meta-properties")
    assert found.all_problems == found.blockers


def test_a_metadata_log_outside_of_its_place_stops_a_broker(dirs: list[Path], tmp_path: Path) -> None:
    (dirs[1] / "__cluster_metadata-0").mkdir()
    paths = [str(path) for path in dirs]
    ((log_dir, (problem,)),) = identify(paths, metadata_log_dir=paths[0]).blockers.items()
    assert (log_dir, problem.rule) == (paths[1], "metadata-place")
    (tmp_path / "link").symlink_to(dirs[1])
    assert identify(paths, metadata_log_dir=str(tmp_path / "link")).blockers == {}
    assert identify(paths).blockers == {}


@pytest.mark.parametrize(
    ("name", "told"),
    [("meta.properties", "meta.properties"), ("__cluster_metadata-0", "__cluster_metadata-0"), ("", None)],
)
@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
def test_an_io_error_names_what_cannot_be_looked_at(
    name: str, told: str | None, error: int, dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, look = os.path.join(dirs[1], name).rstrip("/"), os.stat

    def fail(path: object, *arguments: Any, **options: Any) -> os.stat_result:
        if path == refused:
            raise OSError(error, os.strerror(error), path)
        return look(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", fail)
    assert rules(dirs) == {"b": rules(dirs)["b"]}
    assert rules(dirs)["b"].startswith(f"{told or dirs[1]}: {os.strerror(error)} (IOException takes")


def test_the_log_dir_of_another_node_is_not_touched(ram_path: Path) -> None:
    sample = unpack("crashed-v0-v1", ram_path)
    meta = sample.log_dirs[1] / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7").replace("broker.id=1", "broker.id=7"))
    assert "=7" in meta.read_text()
    found = {path: at for path, at in footprint(sample.log_dirs[1]).items() if path != "."}
    done = recover(sample, "--repair")
    assert done.exit_code == 4
    first, second = done.report["logDirs"]
    assert (first["status"], second["status"]) == ("recovered", "offline")
    (problem,) = second["problems"]
    assert (problem["file"], problem["repairable"]) == ("meta.properties", False)
    assert {path: at for path, at in footprint(sample.log_dirs[1]).items() if path != "."} == found
