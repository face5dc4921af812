"""Where quarantine lies, and that a broker lets it lie there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recovery.logdir.quarantine_place import INSIDE_FOLDER
from recovery.write.quarantine import MANIFEST
from tests.brokers import Broker
from tests.brokers.broker import QUIET_PROPERTIES
from tests.logs.samples import Sample, unpack
from tests.patience import wait_until
from tests.recovery.cli.test_output import tear
from tests.runs.command import assert_one_line, recover
from tests.runs.driving import footprint, is_as_saved, log_bytes, lost_batches, quarantine_of
from tests.servers.machine import MOUNTS_APART, needs


def damage(sample: Sample) -> None:
    """Two segments are lost whole, and a tail."""
    tear(sample, "tiny-batches-0")
    first = min(sample.root.glob("d?/late-0/*.log"))
    with first.open("rb+") as log:
        log.truncate(first.stat().st_size - 5)


def manifest(run: Path) -> list[dict[str, Any]]:
    """The manifest's lines for what was saved; what they say of the stored files is checked."""
    lines = [json.loads(line) for line in (run / MANIFEST).read_text().splitlines()]
    lines = [line for line in lines if line["kind"] != "change"]
    for line in lines:
        stored = run / line["stored"]
        assert stored.stat().st_size == line["size_bytes"]
        assert is_as_saved(line, stored.read_bytes())
        assert line["sha256"] is not None
    stored = sorted(line["stored"] for line in lines)
    assert stored == sorted(
        str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.name != MANIFEST
    )
    return lines


class TestPlace:
    def test_it_is_beside_each_log_dir(self, tmp_path: Path) -> None:
        sample = unpack("crashed", tmp_path)
        damage(sample)
        before = {log_dir: log_bytes(log_dir) for log_dir in sample.log_dirs}
        done = recover(sample)
        assert done.exit_code == 2
        for log_dir, report in zip(sample.log_dirs, done.report["logDirs"], strict=True):
            run = Path(report["quarantine"])
            assert run.parent == quarantine_of(log_dir)
            assert manifest(run)
            assert lost_batches(before[log_dir], log_dir) == []
        late = [
            line
            for line in manifest(Path(done.report["logDirs"][0]["quarantine"]))
            if line["partition"] == "late-0"
        ]
        assert {line["kind"] for line in late} == {"tail", "file"}

    def test_it_may_be_on_another_file_system(self, tmp_path: Path, ram_path: Path) -> None:
        sample = unpack("crashed", tmp_path)
        damage(sample)
        before = {log_dir: log_bytes(log_dir) for log_dir in sample.log_dirs}
        place = ram_path / "deep" / "saved"
        done = recover(sample, "--quarantine-dir", place)
        assert done.exit_code == 2
        runs = [Path(report["quarantine"]) for report in done.report["logDirs"]]
        assert len({run.parent for run in runs}) == 2
        for log_dir, run in zip(sample.log_dirs, runs, strict=True):
            assert run.parent.parent == place
            are_linked = {line["linked"] for line in manifest(run)}
            assert are_linked == (
                {False} if os.stat(place).st_dev != os.stat(log_dir).st_dev else {False, True}
            )
            assert not quarantine_of(log_dir).exists()
            assert lost_batches(before[log_dir], log_dir, run) == []

    def test_nothing_is_made_where_nothing_is_saved(self, tmp_path: Path) -> None:
        sample = unpack("intact", tmp_path)
        names = sorted(os.listdir(sample.root))
        for arguments in ([], ["--quarantine-dir", tmp_path / "saved"]):
            done = recover(sample, *arguments)
            assert [report["quarantine"] for report in done.report["logDirs"]] == [None, None]
        assert sorted(os.listdir(sample.root)) == names
        assert not (tmp_path / "saved").exists()

    def test_a_dry_run_makes_none(self, tmp_path: Path) -> None:
        sample = unpack("crashed", tmp_path)
        damage(sample)
        done = recover(sample, "--dry-run", "--quarantine-dir", tmp_path / "saved")
        assert done.exit_code == 2
        assert not (tmp_path / "saved").exists()
        assert not any(quarantine_of(log_dir).exists() for log_dir in sample.log_dirs)

    def test_a_place_that_cannot_be_written_keeps_what_it_would_have_held(self, tmp_path: Path) -> None:
        sample = unpack("crashed", tmp_path)
        damage(sample)
        before = {log_dir: log_bytes(log_dir) for log_dir in sample.log_dirs}
        (tmp_path / "file").write_text("not a folder")
        done = recover(sample, "--quarantine-dir", tmp_path / "file")
        assert done.exit_code == 1
        assert_one_line(done, "not a folder. Remedy: choose another place")
        assert [lost_batches(before[log_dir], log_dir) for log_dir in sample.log_dirs] == [[], []]


@contextmanager
def mounted(*folders: Path) -> Iterator[int]:
    """A mount namespace in which each of *folders* is a file system of its own; the pid of a process in it."""
    script = 'for folder; do mount -t tmpfs none "$folder" || exit 1; done; echo ready; exec sleep 3600'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *map(str, folders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "ready\n"
            yield holder.pid
        finally:
            holder.kill()


class BrokerBehindMounts(Broker):
    """A broker in the mount namespace of another process."""

    prefix: Sequence[str] = ()

    def _java(self, main_class: str, *arguments: str, **options: Any) -> list[str]:
        return [*self.prefix, *super()._java(main_class, *arguments, **options)]


@pytest.fixture
def mounted_sample(tmp_path: Path) -> Iterator[tuple[Sample, list[str], list[Path]]]:
    """The crashed sample, each log dir a mount point: what enters its namespace, and its log dirs seen from here."""
    sample = unpack("crashed", tmp_path)
    full = [shutil.move(log_dir, log_dir.with_name(f"full-{log_dir.name}")) for log_dir in sample.log_dirs]
    for log_dir in sample.log_dirs:
        log_dir.mkdir()
    with mounted(*sample.log_dirs) as pid:
        enter = ["nsenter", "-t", str(pid), "-m"]
        for source, log_dir in zip(full, sample.log_dirs, strict=True):
            subprocess.run([*enter, "cp", "-a", f"{source}/.", str(log_dir)], check=True)
        yield sample, enter, [Path(f"/proc/{pid}/root{log_dir}") for log_dir in sample.log_dirs]


@pytest.mark.java
@pytest.mark.broker
@needs(MOUNTS_APART)
def test_a_broker_ignores_a_quarantine_inside_its_log_dir(
    mounted_sample: tuple[Sample, list[str], list[Path]], tmp_path: Path
) -> None:
    sample, enter, log_dirs = mounted_sample
    done = recover(sample, prefix=enter)
    assert done.exit_code == 0
    places = [log_dir / INSIDE_FOLDER for log_dir in log_dirs]
    for place, log_dir, report in zip(places, sample.log_dirs, done.report["logDirs"], strict=True):
        assert Path(report["quarantine"]).parent == log_dir / INSIDE_FOLDER
        assert manifest(place / Path(report["quarantine"]).name)
        assert not quarantine_of(log_dir).exists()
    found = [untouched(place) for place in places]

    # Whatever a broker deletes after a delay it deletes at once here.
    hasty = {
        "log.segment.delete.delay.ms": "1",
        "log.initial.task.delay.ms": "1",
        "log.retention.check.interval.ms": "100",
    }
    with BrokerBehindMounts(
        sample.log_dirs,
        work_dir=tmp_path / "work",
        properties=dict(sample.properties) | QUIET_PROPERTIES | hasty,
        now_ms=sample.now_ms,
    ) as broker:
        broker.prefix = enter
        broker.start()
        assert "Skipping recovery of 15 logs" in broker.log
        wait_until_deleted(log_dirs[0], "*-delete")
        described = json.loads(
            broker.run_tool(
                "org.apache.kafka.tools.LogDirsCommand",
                "--bootstrap-server",
                broker.bootstrap_servers,
                "--describe",
            ).splitlines()[-1]
        )
        dirs = described["brokers"][0]["logDirs"]
        assert sorted(one["logDir"] for one in dirs) == sorted(map(str, sample.log_dirs))
        assert "late-0" in {one["partition"] for log_dir in dirs for one in log_dir["partitions"]}
        assert "quarantine" not in json.dumps(described)
        assert "quarantine" not in broker.log
        broker.kill()
        broker.start()  # this one recovers the logs again, and must not take quarantine for one
        assert "Recovering 14 logs" in broker.log
        assert "quarantine" not in broker.log
        broker.stop()
    assert [untouched(place) for place in places] == found
    again = recover(sample, prefix=enter)
    assert again.exit_code == 0
    assert {report["hadCleanShutdown"] for report in again.report["logDirs"]} == {True}
    for place, before in zip(places, found, strict=True):  # another run lies beside the first one
        after = untouched(place)
        assert {path: after[path] for path in before if path != "."} == {
            path: at for path, at in before.items() if path != "."
        }


def untouched(place: Path) -> dict[str, tuple[int, ...]]:
    """The footprint without the times of status: those of a linked file change when its other name goes."""
    return {path: (*found[:3], *found[4:]) for path, found in footprint(place).items()}


def wait_until_deleted(log_dir: Path, pattern: str) -> None:
    wait_until(lambda: not list(log_dir.glob(pattern)), f"{pattern} is still there")
