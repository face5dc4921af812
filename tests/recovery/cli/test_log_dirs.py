"""`kafka-log-recovery log-dirs` on files, as a user runs it: what it prints and where, its exit codes, its document."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import recovery
from recovery.describe.options import DescribeOptions
from recovery.errors import UsageError
from recovery.logdir.lock import LogDirLocks
from tests import ROOT
from tests.logs.samples import Sample, unpack
from tests.recovery.logdir.test_lock import other_process
from tests.runs.command import Done, assert_one_line, run
from tests.runs.driving import footprint
from tests.servers.file_systems import read_only, tmpfs
from tests.servers.machine import MOUNTS, OTHER_USER, OTHER_USERS, OTHERS_FILES, needs

DOCUMENT = (ROOT / "docs/reference/log-dirs.md").read_text()
STORAGE_ERROR = "org.apache.kafka.common.errors.KafkaStorageException"


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return unpack("stopped", tmp_path)


def describe(*arguments: object, **options: Any) -> Done:
    return run("log-dirs", "--describe", *map(str, arguments), **options)


def log_dirs_in(done: Done) -> list[dict[str, Any]]:
    assert done.stdout.count("\n") == 1
    report = json.loads(done.stdout)
    assert [*report] == ["version", "brokers"]
    (broker,) = report["brokers"]
    assert broker["broker"] == 1
    found: list[dict[str, Any]] = broker["logDirs"]
    return found


def sizes_of(log_dir: Path) -> dict[str, int]:
    return {
        folder.name: sum(log.stat().st_size for log in folder.glob("*.log"))
        for folder in log_dir.iterdir()
        if folder.is_dir() and re.fullmatch(r"(?!__cluster_metadata).*-\d+", folder.name)
    }


def test_replicas_and_room(sample: Sample) -> None:
    before = footprint(sample.root)
    done = describe("-c", sample.config, "--format", "json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert footprint(sample.root) == before
    for one, path in zip(log_dirs_in(done), sample.log_dirs, strict=True):
        volume = os.statvfs(path)
        assert one["logDir"] == str(path)
        assert one["error"] is None
        assert one["totalBytes"] == volume.f_frsize * volume.f_blocks
        assert 0 < one["usableBytes"] < one["totalBytes"]
        assert not one["isCordoned"]
        assert {part["partition"]: part["size"] for part in one["partitions"]} == sizes_of(path)
        assert {(part["offsetLag"], part["isFuture"]) for part in one["partitions"]} == {(0, False)}


def test_room_is_what_a_broker_may_use(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what only root may, nor in blocks of another size; what no long can hold is the greatest long."""
    for blocks, total, usable in ((1000, 512_000, 409_600), (1 << 60, 2**63 - 1, 409_600)):
        volume = SimpleNamespace(
            f_frsize=512, f_bsize=4096, f_blocks=blocks, f_bfree=900, f_bavail=800, f_flag=0
        )
        with monkeypatch.context() as patched:
            patched.setattr(os, "statvfs", lambda _, volume=volume: volume)
            report = recovery.describe_log_dirs(config=sample.properties)
        assert {(one.total_bytes, one.usable_bytes) for one in report.log_dirs} == {(total, usable)}


def test_folders_that_are_no_replicas(sample: Sample) -> None:
    first = sample.log_dirs[0]
    before = log_dirs_in(describe("-c", sample.config, "--format", "json"))
    source = next(
        path for path in sorted(first.iterdir()) if path.is_dir() and path.name != "__cluster_metadata-0"
    )
    unique = "0" * 32
    for name in (
        f"x-0.{unique}-delete",
        f"x-0.{unique}-stray",
        "__cluster_metadata-1",
        "remote-log-index-cache",
    ):
        shutil.copytree(source, first / name)
    after = log_dirs_in(describe("-c", sample.config, "--format", "json"))
    assert [one["partitions"] for one in after] == [one["partitions"] for one in before]
    (first / "lost+found").mkdir()
    done = describe("-c", sample.config, "--format", "json")
    assert done.exit_code == 0
    assert done.stderr.count("\n") == 1
    assert "lost+found: not the folder of a log" in done.stderr


def test_a_future_replica_is_behind_by_the_ends_of_both_logs(sample: Sample) -> None:
    first, second = sample.log_dirs[:2]
    verdicts = run(
        "recover", "-c", sample.config, "--dry-run", "--force", "--format", "json", "--progress", "none"
    )
    (ends,) = (
        {part["partition"]: part["logEndOffset"] for part in one["partitions"]}
        for one in verdicts.report["logDirs"]
        if one["logDir"] == str(first)
    )
    name = max(sizes_of(first), key=lambda name: sizes_of(first)[name])
    future = second / f"{name}.{'0' * 32}-future"
    shutil.copytree(first / name, future)
    *earlier, last = sorted(future.glob("*.log"))
    assert earlier
    last.unlink()  # the last of the earlier segments ends where the next one began
    done = describe("-c", sample.config, "--format", "json")
    (part,) = (part for one in log_dirs_in(done) for part in one["partitions"] if part["isFuture"])
    assert part["offsetLag"] == ends[name] - int(last.stem)
    assert part["size"] == sizes_of(first)[name] - (first / name / last.name).stat().st_size
    index = earlier[-1].with_suffix(".index")
    for entry in ((1 << 30, 7), (1, 1 << 30)):  # one that fits no batch is not used
        index.write_bytes(struct.pack(">ii", *entry) + bytes(80))
        done = describe("-c", sample.config, "--format", "json")
        assert [part] == [part for one in log_dirs_in(done) for part in one["partitions"] if part["isFuture"]]
    for index in future.glob("*.index"):  # without an index all headers are followed
        index.unlink()
    done = describe("-c", sample.config, "--format", "json")
    assert [part] == [part for one in log_dirs_in(done) for part in one["partitions"] if part["isFuture"]]
    assert f"{name} " in describe("-c", sample.config).stdout
    shutil.rmtree(first / name)
    done = describe("-c", sample.config, "--format", "json")
    (part,) = (part for one in log_dirs_in(done) for part in one["partitions"] if part["isFuture"])
    assert part["offsetLag"] == -1
    assert "a future replica alone" in done.stderr


def test_zeros_of_a_preallocated_segment_do_not_count(sample: Sample) -> None:
    sizes = sizes_of(sample.log_dirs[0])
    name = max(sizes, key=lambda name: sizes[name])
    active = max((sample.log_dirs[0] / name).glob("*.log"))
    os.truncate(active, active.stat().st_size + (1 << 20))
    done = describe("-c", sample.config, "--format", "json")
    assert {part["partition"]: part["size"] for part in log_dirs_in(done)[0]["partitions"]} == sizes
    for junk in (b"\x01", b"\x01" + bytes(1 << 20)):
        os.truncate(active, active.stat().st_size - (1 << 20))
        with active.open("ab") as file:
            file.write(bytes(20) + junk)  # this is no rest of a preallocation
            os.truncate(active, file.tell())
        done = describe("-c", sample.config, "--format", "json")
        found = {part["partition"]: part["size"] for part in log_dirs_in(done)[0]["partitions"]}
        assert found[name] == sizes_of(sample.log_dirs[0])[name]
        os.truncate(active, active.stat().st_size - 20 - len(junk) + (1 << 20))


class TestOffline:
    def check(self, sample: Sample, path: Path, words: str, **options: Any) -> None:
        done = describe("-c", sample.config, "--format", "json", **options)
        assert done.exit_code == 4
        found = {one["logDir"]: one for one in log_dirs_in(done)}
        assert found.pop(str(path)) == {
            "logDir": str(path),
            "error": STORAGE_ERROR,
            "totalBytes": -1,
            "usableBytes": -1,
            "isCordoned": False,
            "partitions": [],
        }
        assert all(one["error"] is None and one["partitions"] for one in found.values())
        assert f"{path}: offline: " in done.stderr
        assert words in done.stderr
        assert f"offline: {path}: " not in done.stderr
        text = describe("-c", sample.config, **options)
        assert text.exit_code == 4
        assert text.stdout.startswith(f"{path}: offline: ")
        first_row = next(line for line in text.stdout.splitlines() if re.match(r"\d+ ", line))
        assert first_row.split()[1::6] == ["offline", str(path)]

    def test_missing(self, sample: Sample) -> None:
        shutil.rmtree(sample.log_dirs[1])
        self.check(sample, sample.log_dirs[1], "no such folder. Remedy: ")

    @needs(OTHERS_FILES, OTHER_USERS)
    def test_unreadable(self, sample: Sample) -> None:
        os.chown(sample.log_dirs[1], OTHER_USER, OTHER_USER)
        sample.log_dirs[1].chmod(0o700)
        without_rights = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
        self.check(sample, sample.log_dirs[1], "Permission denied", prefix=without_rights)

    def test_let_go_by_a_running_broker(self, sample: Sample) -> None:
        first, second = sample.log_dirs[:2]
        with LogDirLocks([str(first)]):  # a recovery of one log dir says nothing of the others
            assert describe("-c", sample.config).exit_code == 0
        with other_process(first / ".lock"):
            self.check(sample, second, "the running broker has taken it offline")
            with other_process(second / ".lock"):
                assert describe("-c", sample.config).exit_code == 0

    @needs(MOUNTS)
    def test_read_only(self, sample: Sample) -> None:
        with read_only(sample.log_dirs[1]):
            self.check(sample, sample.log_dirs[1], "mounted read-only")

    def test_meta_properties_that_cannot_be_read(self, sample: Sample) -> None:
        path = sample.log_dirs[1] / "meta.properties"
        path.unlink()
        path.mkdir()
        self.check(sample, sample.log_dirs[1], "meta.properties: a folder")


@needs(MOUNTS)
def test_full(sample: Sample, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", size="20m") as place:
        shutil.copytree(sample.log_dirs[0], place / "d")
        with (place / "filler").open("wb", 0) as file, suppress(OSError):
            while True:  # until there is no space left
                file.write(bytes(1 << 20))
        done = describe("--log-dirs", f"{sample.log_dirs[1]},{place / 'd'}")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("1 ")]
    assert [(row[-1], row[1]) for row in rows] == [
        (str(place / "d"), "full"),
        (str(sample.log_dirs[1]), "online"),
    ]


def test_cordons_of_the_file(sample: Sample) -> None:
    first, second = map(str, sample.log_dirs[:2])

    def cordoned(value: str, *arguments: object) -> list[str]:
        text = re.sub(r"(?m)^cordoned.*\n", "", sample.config.read_text())
        sample.config.write_text(f"{text}\ncordoned.log.dirs={value}\n")
        done = describe("-c", sample.config, "--format", "json", *arguments)
        assert done.exit_code == 0, done.stderr
        return [one["logDir"] for one in log_dirs_in(done) if one["isCordoned"]]

    assert cordoned(second) == [second]
    assert cordoned("*") == [first, second]
    assert cordoned("") == []
    assert cordoned(second, "--log-dirs", first) == []
    assert cordoned(f"{first},{second}", "--log-dirs", second) == [second]
    text = describe("-c", sample.config).stdout
    assert text.count("cordoned") == 2
    done = describe("-c", sample.config, "--log-dirs", second)  # the metadata log is in the other one
    assert "dynamic" not in done.stdout


def test_as_much_as_is_asked_for(sample: Sample) -> None:
    first, second = map(str, sample.log_dirs[:2])
    assert describe("-c", sample.config, "-q").stdout == ""
    each = describe("-c", sample.config, "-v")
    listed = describe("-c", sample.config, "--format", "json")
    replicas = [one["partition"] for log_dir in log_dirs_in(listed) for one in log_dir["partitions"]]
    rows = each.stdout.split("\n\n")[1].splitlines()[1:]
    assert sorted(row.split()[0] for row in rows) == sorted(replicas)
    shutil.rmtree(second)
    quiet = describe("-c", sample.config, "-q")
    assert quiet.exit_code == 4
    assert f"{second}: offline: no such folder" in quiet.stdout
    assert [line.split()[-1] for line in quiet.stdout.splitlines() if line.startswith("1 ")] == [second]
    assert first not in quiet.stdout


def test_without_the_metadata_log(sample: Sample) -> None:
    for path in sample.log_dirs:
        shutil.rmtree(path / "__cluster_metadata-0", ignore_errors=True)
    done = describe("-c", sample.config, "--format", "json")
    assert done.exit_code == 0
    assert done.stderr.count("\n") == 1
    assert "whether dynamic settings cordon a log dir is not known" in done.stderr


class TestChoice:
    def test_topics(self, sample: Sample) -> None:
        names = sizes_of(sample.log_dirs[0]) | sizes_of(sample.log_dirs[1])
        topic = max(names).rpartition("-")[0]
        done = describe("-c", sample.config, "--topic-list", f" {topic} ,", "--format", "json")
        parts = [part["partition"] for one in log_dirs_in(done) for part in one["partitions"]]
        assert sorted(parts) == sorted(name for name in names if name.rpartition("-")[0] == topic)
        text = describe("-c", sample.config, "--topic-list", topic).stdout
        assert all(part in text for part in parts)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--topic-list", "nope"), "--topic-list: no replica of nope in these log dirs"),
            (("--broker-list", "1,7"), "--broker-list: no broker 7. Remedy: choose from 1"),
            (("--broker-list", "a"), "node ids separated by commas are expected"),
            (("--topic-list", ","), "names separated by commas are expected"),
            (("--command-config", "{config}"), "--command-config: for --bootstrap-server alone"),
            (
                ("--bootstrap-server", "localhost:1"),
                "--bootstrap-server asks live brokers, -c, --property and --log-dirs name files",
            ),
        ],
    )
    def test_what_there_is_not(self, arguments: tuple[str, ...], words: str, sample: Sample) -> None:
        done = describe("-c", sample.config, *(word.format(config=sample.config) for word in arguments))
        assert done.exit_code == 1
        assert_one_line(done, words, "Remedy: ")

    def test_the_broker_that_it_is(self, sample: Sample) -> None:
        assert describe("-c", sample.config, "--broker-list", "1").exit_code == 0

    def test_nothing_to_describe(self) -> None:
        done = describe()
        assert done.exit_code == 1
        assert "log-dirs needs -c/--config FILE, --log-dirs A,B or --bootstrap-server H:P" in done.stderr

    def test_log_dirs_without_a_configuration(self, sample: Sample) -> None:
        dirs = ",".join(map(str, sample.log_dirs))
        given = describe("--log-dirs", dirs, "--format", "json")
        configured = describe("-c", sample.config, "--format", "json")
        assert [one["partitions"] for one in log_dirs_in(given)] == [
            one["partitions"] for one in log_dirs_in(configured)
        ]


def test_the_library_gives_what_the_command_prints(sample: Sample) -> None:
    report = recovery.describe_log_dirs(config=sample.properties, topics=["plain"])
    printed = describe("-c", sample.config, "--topic-list", "plain", "--format", "json").stdout
    hide = re.compile(r'"usableBytes":\d+')
    assert hide.sub("", report.to_json()) == hide.sub("", printed.rstrip("\n"))
    assert {field.name for field in fields(DescribeOptions)} == {
        "config",
        "config_notes",
        "bootstrap_servers",
        "client_config",
        "brokers",
        "topics",
    }
    with pytest.raises(TypeError, match="topic"):
        recovery.describe_log_dirs(topic="plain")
    with pytest.raises(UsageError, match="leave one of them out"):
        recovery.describe_log_dirs(["/d"], bootstrap_servers="localhost:1")


def test_the_example_of_the_document_has_the_form_of_a_report(sample: Sample) -> None:
    example = json.loads(re.findall(r"^```json\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)[0])
    report = json.loads(describe("-c", sample.config, "--format", "json").stdout)

    def form(value: object) -> object:
        if isinstance(value, dict):
            return {key: form(one) for key, one in value.items()}
        return [form(one) for one in value[:1]] if isinstance(value, list) else type(value)

    assert form(example) == form(report)
    assert [*example["brokers"][0]["logDirs"][0]] == [*report["brokers"][0]["logDirs"][0]]
