"""Settings mean what they say: what was assumed, ignored or missing is told, and what is not known is not decided."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.tiered_broker import TieredArchive, unpack_tiered
from tests.logs.samples import MARKER, Sample, tree_of, unpack
from tests.runs.command import Done, assert_one_line, recover, run
from tests.runs.driving import footprint

INTERVAL = ("--property", "log.index.interval.bytes=8192")
START_CHECKPOINT = "log-start-offset-checkpoint"


def tiered_log_dirs(root: Path, *, has_metadata: bool) -> TieredArchive:
    """The log dirs of a broker with tiered storage, as after a kill."""
    archive = unpack_tiered(root)
    for log_dir in archive.log_dirs:
        (log_dir / MARKER).unlink()
        if not has_metadata:
            shutil.rmtree(log_dir / "__cluster_metadata-0", ignore_errors=True)
    return archive


def recover_dirs(log_dirs: tuple[Path, ...], *arguments: str) -> Done:
    """Run `recover` on *log_dirs* without a configuration."""
    dirs = ",".join(map(str, log_dirs))
    return run("recover", "--log-dirs", dirs, "--format", "json", "--progress", "none", *arguments)


def partitions_of(done: Done) -> dict[str, dict[str, Any]]:
    return {one["partition"]: one for log_dir in done.report["logDirs"] for one in log_dir["partitions"]}


def offsets_of(done: Done, *names: str) -> list[tuple[int, int]]:
    partitions = partitions_of(done)
    return [(partitions[name]["logStartOffset"], partitions[name]["logEndOffset"]) for name in names]


def checkpoint_lines(log_dir: Path) -> dict[str, int]:
    lines = [line.split() for line in (log_dir / START_CHECKPOINT).read_text().splitlines()[2:]]
    return {f"{topic}-{number}": int(offset) for topic, number, offset in lines}


NO_CONFIGURATION = "no configuration of the broker (-c): "
"""A note of each run with `--log-dirs`, which has a test of its own."""


def notes_of(done: Done) -> list[str]:
    return [note["text"] for note in done.report["notes"] if not note["text"].startswith(NO_CONFIGURATION)]


class TestTieredStorage:
    @pytest.mark.parametrize("arguments", [(), INTERVAL], ids=["none", "another"])
    def test_another_setting_does_not_decide_whether_a_log_is_tiered(
        self, arguments: tuple[str, ...], tmp_path: Path
    ) -> None:
        archive = tiered_log_dirs(tmp_path, has_metadata=True)
        before = {log_dir: checkpoint_lines(log_dir) for log_dir in archive.log_dirs}
        done = recover_dirs(archive.log_dirs, *arguments)
        assert done.exit_code == 0
        assert offsets_of(done, "plain-0", "expired-by-size-0") == [(0, 435), (309, 435)]
        assert {log_dir: checkpoint_lines(log_dir) for log_dir in archive.log_dirs} == before
        assert any("remote.log.storage.system.enable=true is assumed" in note for note in notes_of(done))

    def test_topic_configs_say_it_as_well(self, tmp_path: Path) -> None:
        archive = tiered_log_dirs(tmp_path, has_metadata=False)
        configs = json.loads((archive.root / "topic-configs.json").read_text())
        done = recover_dirs(archive.log_dirs, *INTERVAL, "--topic-config", json.dumps(configs))
        assert done.exit_code == 0
        assert offsets_of(done, "plain-0", "expired-by-size-0") == [(0, 435), (309, 435)]
        assert any("plain" in note and "is assumed" in note for note in notes_of(done))

    def test_a_log_that_looks_tiered_is_refused_where_nothing_says_whether_it_is(
        self, tmp_path: Path
    ) -> None:
        archive = tiered_log_dirs(tmp_path, has_metadata=False)
        found = footprint(archive.log_dirs[0] / "plain-0")
        before = checkpoint_lines(archive.log_dirs[0])
        done = recover_dirs(archive.log_dirs)
        assert done.exit_code == 4
        partitions = partitions_of(done)
        shortened = {"plain-0", "expired-by-size-0", "deleted-records-0", "failing-delete-0", "plain-1"}
        for name in shortened:
            (problem,) = partitions[name]["problems"]
            assert partitions[name]["status"] == "refused"
            assert "looks like a tiered log" in problem["detail"]
            assert f'{{"{name[:-2]}": {{"remote.storage.enable": true}}}}' in problem["remedy"]
        assert partitions["untiered-0"]["status"] == partitions["empty-0"]["status"] == "recovered"
        assert footprint(archive.log_dirs[0] / "plain-0") == found
        after = checkpoint_lines(archive.log_dirs[0])
        assert {name: at for name, at in before.items() if name in shortened} == {
            name: at for name, at in after.items() if name in shortened
        }

    @pytest.mark.parametrize("is_named", [True, False])
    @pytest.mark.parametrize(
        "content", [None, b"0\n1\nplain 0 x\n", b"0\n0\n"], ids=["missing", "malformed", "no line"]
    )
    def test_leader_epochs_tell_as_well(self, tmp_path: Path, content: bytes | None, is_named: bool) -> None:
        """A tiered log has a line in a checkpoint that can be read; without a line it takes the metadata to tell."""
        archive = tiered_log_dirs(tmp_path, has_metadata=False)
        for folder in [] if is_named else archive.root.glob("*/__remote_log_metadata-*"):
            shutil.rmtree(folder)
        checkpoint = archive.log_dirs[0] / "log-start-offset-checkpoint"
        checkpoint.unlink() if content is None else checkpoint.write_bytes(content)
        done = recover_dirs(archive.log_dirs)
        one = partitions_of(done)["plain-0"]
        words = (
            "its leader epochs begin before its first segment, at 377, and log-start-offset-checkpoint has "
        )
        missing = "no line for it" if content == b"0\n0\n" else "nothing that can be read"
        if content == b"0\n0\n" and not is_named:
            assert one["status"] == "recovered"
            notes = [note["text"] for note in done.report["logDirs"][0]["notes"]]
            assert any(f"plain-0: {words}{missing}; taken for a plain log" in note for note in notes)
        else:
            assert done.exit_code == 4
            (problem,) = one["problems"]
            named = ", and records of __remote_log_metadata name its topic" if "no line" in missing else ""
            assert problem["detail"].startswith(f"{words}{missing}{named}, so this looks like a tiered log")
            assert '{"plain": {"remote.storage.enable": true}}' in problem["remedy"]

    @pytest.mark.parametrize("is_tiered", [True, False])
    def test_the_remedy_settles_it_either_way(self, is_tiered: bool, tmp_path: Path) -> None:
        archive = tiered_log_dirs(tmp_path, has_metadata=False)
        refused = [
            name[:-2]
            for name, one in partitions_of(recover_dirs(archive.log_dirs, "--dry-run")).items()
            if one["status"] == "refused"
        ]
        configs = {topic: {"remote.storage.enable": is_tiered} for topic in refused}
        done = recover_dirs(archive.log_dirs, "--topic-config", json.dumps(configs))
        assert done.exit_code == 0
        assert offsets_of(done, "plain-0") == [(0 if is_tiered else 377, 435)]

    def test_a_configuration_that_leaves_it_out_says_that_nothing_is_tiered(self, tmp_path: Path) -> None:
        archive = tiered_log_dirs(tmp_path, has_metadata=False)
        config = tmp_path / "server.properties"
        config.write_text(f"node.id=1\nlog.dirs={','.join(map(str, archive.log_dirs))}\n")
        done = run("recover", "-c", config, "--format", "json", "--progress", "none", "--dry-run")
        assert done.exit_code == 0
        assert offsets_of(done, "plain-0") == [(377, 435)]

    def test_the_remedy_does_not_name_a_configuration_that_is_there(self, tmp_path: Path) -> None:
        archive = tiered_log_dirs(tmp_path, has_metadata=False)
        arguments = ("-c", archive.root / "server.properties", "--format", "json", "--progress", "none")
        problems = {
            name: one["problems"]
            for name, one in partitions_of(run("recover", *arguments)).items()
            if one["problems"]
        }
        assert problems
        for name, (problem,) in problems.items():
            assert "-c" not in problem["remedy"].split()
            assert (
                f'--topic-config \'{{"{name[:-2]}": {{"remote.storage.enable": true}}}}\''
                in problem["remedy"]
            )

    def test_a_stray_log_is_no_puzzle_to_a_broker_whose_settings_are_known(self, tmp_path: Path) -> None:
        archive = tiered_log_dirs(tmp_path, has_metadata=True)
        for log_dir in archive.log_dirs:
            if (log_dir / "plain-0").exists():
                os.rename(log_dir / "plain-0", log_dir / "unheard-0")
                path = log_dir / START_CHECKPOINT
                path.write_text(path.read_text().replace("plain 0", "unheard 0"))
        done = run(
            "recover", "-c", archive.root / "server.properties", "--format", "json", "--progress", "none"
        )
        assert done.exit_code == 0
        assert offsets_of(done, "unheard-0") == [(377, 435)]


class TestSettingsThatPreventTieredStorage:
    """The topic asks for tiered storage and its log has a remote part; another setting would make it a plain one."""

    @pytest.fixture
    def sample(self, tmp_path: Path) -> Sample:
        return unpack("crashed", tmp_path)

    def with_config(self, sample: Sample, old: str, new: str) -> Done:
        text = sample.config.read_text()
        assert old in text
        sample.config.write_text(text.replace(old, new))
        return recover(sample)

    @pytest.mark.parametrize(
        "option",
        [
            ("--property", "log.cleanup.policy=compact"),
            ("--property", "remote.log.storage.system.enable=false"),
            ("--topic-config", '{"tiered": {"cleanup.policy": "compact,delete"}}'),
        ],
    )
    def test_without_a_configuration_the_log_is_refused(
        self, option: tuple[str, str], sample: Sample
    ) -> None:
        (folder,) = sample.root.glob("d?/tiered-0")
        before = footprint(folder), checkpoint_lines(folder.parent)["tiered-0"]
        done = recover_dirs(sample.log_dirs, *option)
        assert done.exit_code == 4
        (problem,) = partitions_of(done)["tiered-0"]["problems"]
        assert "remote.storage.enable=true of topic tiered says so, but " in problem["detail"]
        assert '{"tiered": {"remote.storage.enable": false}}' in problem["remedy"]
        assert "-c" in problem["remedy"]
        assert not [note for note in notes_of(done) if "is assumed" in note]
        assert (footprint(folder), checkpoint_lines(folder.parent)["tiered-0"]) == before

    @pytest.mark.parametrize(
        ("option", "offsets"),
        [
            ('{"tiered": {"cleanup.policy": "delete"}}', (0, 450)),
            ('{"tiered": {"remote.storage.enable": false}}', (326, 450)),
        ],
    )
    def test_the_remedy_settles_it_either_way(
        self, option: str, offsets: tuple[int, int], sample: Sample
    ) -> None:
        arguments = ("--property", "log.cleanup.policy=compact", "--topic-config", option)
        refused = recover_dirs(sample.log_dirs, "--dry-run", *arguments[:2])
        assert option in partitions_of(refused)["tiered-0"]["problems"][0]["remedy"]
        done = recover_dirs(sample.log_dirs, *arguments)
        assert offsets_of(done, "tiered-0") == [offsets]

    @pytest.mark.parametrize(
        ("old", "new", "setting"),
        [
            (
                "remote.log.storage.system.enable=true",
                "remote.log.storage.system.enable=false",
                "remote.log.storage.system.enable=false",
            ),
            (
                "remote.log.storage.system.enable=true",
                "remote.log.storage.sytem.enable=true",
                "remote.log.storage.system.enable=false",
            ),
            (
                "remote.log.storage.system.enable=true",
                "remote.log.storage.system.enable=true\nlog.cleanup.policy=compact",
                "cleanup.policy=compact",
            ),
        ],
    )
    def test_the_broker_has_its_way_and_the_loss_is_told(
        self, old: str, new: str, setting: str, sample: Sample
    ) -> None:
        done = self.with_config(sample, old, new)
        assert offsets_of(done, "tiered-0") == [(326, 450)]
        (note,) = [
            note["text"]
            for log_dir in done.report["logDirs"]
            for note in log_dir["notes"]
            if note["text"].startswith("tiered-0")
        ]
        assert f"topic tiered has remote.storage.enable=true, but with {setting} " in note
        assert "the log start moves from 0 to 326" in note

    def test_a_log_that_does_not_look_tiered_is_no_puzzle(self, sample: Sample) -> None:
        (path,) = [
            log_dir / START_CHECKPOINT for log_dir in sample.log_dirs if (log_dir / "tiered-0").exists()
        ]
        path.write_text("0\n1\ntiered 0 326\n")
        done = recover_dirs(sample.log_dirs, "--property", "log.cleanup.policy=compact")
        assert offsets_of(done, "tiered-0") == [(326, 450)]


class TestPlainLogsOfASoundBroker:
    """A plain log whose segments were deleted a moment before the kill: the checkpoints say what was before."""

    @pytest.fixture
    def sample(self, tmp_path: Path) -> Sample:
        sample = unpack("crashed", tmp_path)
        shutil.rmtree(sample.log_dirs[0] / "__cluster_metadata-0")
        for name in (
            "tiered-0",
            "preallocated-0",
        ):  # of these the metadata log knows more than Kafka's defaults
            shutil.rmtree(sample.log_dirs[0] / name)
        return sample

    def with_start(self, sample: Sample, offset: int, epochs: int) -> tuple[Path, int]:
        """Let the first segment of a log be gone; its checkpoint says *offset*, its epochs begin at *epochs*."""
        (folder,) = sample.root.glob("d?/tiny-batches-0")
        first, second = sorted(folder.glob("*.log"))[:2]
        assert int(first.stem) == 0 < offset < int(second.stem)
        for path in folder.glob(f"{first.stem}.*"):
            path.unlink()
        (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {epochs or int(second.stem)}\n")
        (folder.parent / START_CHECKPOINT).write_text(f"0\n1\ntiny-batches 0 {offset}\n")
        return folder, int(second.stem)

    def test_a_checkpoint_that_lags_behind_is_noted(self, sample: Sample) -> None:
        _, base_offset = self.with_start(sample, 5, 0)
        done = recover_dirs(sample.log_dirs)
        assert done.exit_code == 0
        assert offsets_of(done, "tiny-batches-0")[0][0] == base_offset
        notes = [note["text"] for log_dir in done.report["logDirs"] for note in log_dir["notes"]]
        assert [note for note in notes if "taken for a plain log" in note]

    def test_epochs_that_lag_behind_too_are_known_by_the_segments_that_wait_for_their_end(
        self, sample: Sample
    ) -> None:
        folder, base_offset = self.with_start(sample, 5, 5)
        assert (
            partitions_of(recover_dirs(sample.log_dirs, "--dry-run"))["tiny-batches-0"]["status"] == "refused"
        )
        (folder / f"{0:020}.log.deleted").write_bytes(b"")
        done = recover_dirs(sample.log_dirs)
        assert done.exit_code == 0
        assert offsets_of(done, "tiny-batches-0")[0][0] == base_offset


class TestNotes:
    """What was assumed, ignored or missing is in both reports."""

    @pytest.fixture
    def sample(self, tmp_path: Path) -> Sample:
        return unpack("crashed-v0-v1", tmp_path)

    def both(self, sample: Sample) -> tuple[Mapping[str, Any], str]:
        report = recover_dirs(sample.log_dirs, "--dry-run").report
        text = recover_dirs(sample.log_dirs, "--dry-run", "--format", "text").stdout
        notes = [note for note in report["notes"] if not note["text"].startswith(NO_CONFIGURATION)]
        return {**report, "notes": notes}, text

    def test_nothing_is_noted_where_nothing_is_odd(self, sample: Sample) -> None:
        options = ("-c", sample.config, "--dry-run", "--progress", "none", "--format")
        report, text = run("recover", *options, "json").report, run("recover", *options, "text").stdout
        assert report["notes"] == []
        assert [log_dir["notes"] for log_dir in report["logDirs"]] == [[], []]
        assert "NOTE" not in text

    def test_the_defaults_of_a_broker_whose_configuration_is_not_given(self, sample: Sample) -> None:
        dirs = ("--log-dirs", ",".join(map(str, sample.log_dirs)), "--dry-run", "--progress", "none")
        done = run("recover", *dirs, "--property", "log.preallocate=false", "--format", "json")
        (note,) = done.report["notes"]
        assert note == {
            "level": "info",
            "text": "no configuration of the broker (-c): Kafka's defaults stand for log.cleanup.policy, "
            "log.index.interval.bytes, log.index.size.max.bytes, log.segment.bytes, producer.id.expiration.ms",
        }

    @pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
    def test_no_checkpoint(self, name: str, sample: Sample) -> None:
        """Records that were deleted come back, or all is read: a broker makes the file when it starts."""
        (sample.log_dirs[1] / name).unlink()
        report, text = self.both(sample)
        first, second = (log_dir["notes"] for log_dir in report["logDirs"])
        assert first == []
        (note,) = second
        assert note["level"] == "warning"
        assert note["text"].startswith(f"{name}: missing, and the logs are not new: ")
        assert f"NOTE {sample.log_dirs[1]}: {note['text']}" in text.splitlines()

    def test_settings_of_a_topic_that_is_not_there(self, sample: Sample) -> None:
        configs = '{"old-v0": {"segment.bytes": 1048576}, "odl-v1": {"segment.bytes": 1048576}}'
        done = recover_dirs(sample.log_dirs, "--dry-run", "--topic-config", configs)
        assert [note for note in notes_of(done) if "no log of odl-v1 lies in the log dirs" in note]
        assert len(notes_of(done)) == 1

    @pytest.mark.parametrize(
        ("key", "words"),
        [
            ("log.index.interval.byte", "is log.index.interval.bytes meant?"),
            ("LOG.INDEX.INTERVAL.BYTES", "is log.index.interval.bytes meant?"),
            ("log_index_interval_bytes", "is log.index.interval.bytes meant?"),
            ("remote.log.storage.sytem.enable", "is remote.log.storage.system.enable meant?"),
            ("index.interval.bytes", "the broker's is log.index.interval.bytes"),
            ("remote.storage.enable", "--topic-config"),
            ("log.retention.bytes", ""),
            ("metadata.log.segment.bytes", ""),
            ("producer.id.expiration.check.interval.ms", ""),
            ("transactional.id.expiration.ms", ""),
            ("my.own.setting", ""),
        ],
    )
    @pytest.mark.parametrize("is_in_file", [False, True])
    def test_a_key_that_is_nearly_one(self, key: str, words: str, is_in_file: bool, sample: Sample) -> None:
        if is_in_file:
            sample.config.write_text(f"{sample.config.read_text()}\n{key}=8192\n")
            done = recover(sample, "--dry-run")
        else:
            done = recover(sample, "--dry-run", "--property", f"{key}=8192")
            if words:
                assert done.exit_code == 1
                assert f"--property {key} is " in done.stderr
                assert words in done.stderr
                return
        assert done.exit_code == 0
        assert [note.partition(" ")[0] for note in notes_of(done)] == ([key] if words else [])
        assert all(words in note for note in notes_of(done))

    @pytest.mark.parametrize("command", ["recover", "verify"])
    def test_what_is_given_twice(self, command: str, sample: Sample) -> None:
        """Kafka takes the last value of a key, and each log dir once."""
        path = sample.config
        text = path.read_text()
        log_dirs = ",".join([*map(str, sample.log_dirs), str(sample.log_dirs[0])])
        path.write_text(
            f"{text}\nlog.index.interval.bytes=1\nlog.index.interval.bytes=4096\nlog.dirs={log_dirs}\n"
        )
        options = ["--dry-run"] if command == "recover" else []
        given = [f"--property=num.recovery.threads.per.data.dir={count}" for count in (1, 1, 3)]
        done = run(command, "-c", path, *options, *given, "--format", "json", "--progress", "none")
        assert [note for note in notes_of(done) if "more than once" in note] == [
            f"{path} has log.dirs more than once; the last value, {log_dirs}, counts, as for the broker",
            f"{path} has log.index.interval.bytes more than once; the last value, 4096, counts, as for the broker",
            "--property num.recovery.threads.per.data.dir is given more than once; the last value, 3, counts",
            f"log.dirs names {sample.log_dirs[0]} more than once; it counts once",
        ]
        dirs = ["--log-dirs", log_dirs]
        done = run(command, *dirs, *options, "--format", "json", "--progress", "none")
        assert [note for note in notes_of(done) if "more than once" in note] == [
            f"log.dirs names {sample.log_dirs[0]} more than once; it counts once"
        ]

    @pytest.mark.parametrize("command", ["recover --dry-run", "verify", "undo", "quarantine list"])
    def test_a_cordon_of_a_log_dir_that_is_not_selected(self, command: str, sample: Sample) -> None:
        """FILE is the broker's; that one of its log dirs is cordoned is no fault of a run on another."""
        first, *_, last = map(str, sample.log_dirs)
        dirs = ",".join(map(str, sample.log_dirs))
        sample.config.write_text(f"{sample.config.read_text()}\nlog.dirs={dirs}\ncordoned.log.dirs={last}\n")
        given = ("-c", sample.config, "--log-dirs", first)
        watched = ("--progress", "none") if command.split()[0] in ("recover", "verify") else ()
        done = run(*command.split(), *given, *watched)
        assert "cordoned" not in done.stderr
        if command != "undo":  # it has nothing to take back
            assert done.exit_code == 0, done.stderr

    def test_the_remedy_for_a_topics_setting_is_one_of_topics(self, sample: Sample) -> None:
        configs = '{"old-v0": {"index.interval.bytes": "x"}}'
        done = recover_dirs(sample.log_dirs, "--topic-config", configs)
        assert done.exit_code == 1
        assert_one_line(
            done, "--topic-config, topic old-v0: index.interval.bytes=x: expected", "; correct it"
        )
        assert "override" not in done.stderr

    def test_an_option_is_no_remedy_for_itself(self, sample: Sample) -> None:
        done = recover_dirs(sample.log_dirs, "--property", "log.segment.bytes=1k")
        assert done.exit_code == 1
        assert_one_line(done, "--property: log.segment.bytes=1k: expected", "; correct it")
        assert "override" not in done.stderr

    def test_json_of_another_kind_is_no_name_of_a_file(self, sample: Sample) -> None:
        done = recover_dirs(sample.log_dirs, "--topic-config", "[]")
        assert done.exit_code == 1
        assert_one_line(done, "--topic-config: expected JSON {topic: {key: value}}, found []")

    @pytest.mark.parametrize("named", ["/nowhere.json", "/", "nowhere"])
    def test_a_file_that_cannot_be_read_is_said_in_words(self, named: str, sample: Sample) -> None:
        done = recover_dirs(sample.log_dirs, "--topic-config", named)
        assert done.exit_code == 1
        assert_one_line(
            done, f"--topic-config {named}: ", "Remedy: name a file that this user may read, or give"
        )
        assert "Errno" not in done.stderr

    @pytest.mark.parametrize(
        "configs",
        ['{"old-v0": {}, "old-v0": {}}', '{"old-v0": {"segment.bytes": 1048576, "segment.bytes": 2097152}}'],
    )
    def test_a_name_that_is_there_twice_is_refused(self, configs: str, sample: Sample) -> None:
        done = recover_dirs(sample.log_dirs, "--topic-config", configs)
        assert done.exit_code == 1
        assert_one_line(done, "--topic-config", "is there twice")

    def test_huge_meta_properties_have_one_remedy(self, sample: Sample) -> None:
        os.truncate(sample.log_dirs[1] / "meta.properties", 2 << 20)
        done = recover_dirs(sample.log_dirs, "--dry-run")
        (problem,) = done.report["logDirs"][1]["problems"]
        assert "2097152 bytes" in problem["detail"]
        assert "Remedy" not in problem["detail"] + problem["remedy"]

    def test_no_meta_properties(self, sample: Sample) -> None:
        (sample.log_dirs[1] / "meta.properties").unlink()
        report, text = self.both(sample)
        assert report["exitCode"] == 4
        first, second = report["logDirs"]
        assert (first["problems"], second["status"]) == ([], "recovered")
        (problem,) = second["problems"]
        assert problem["rule"] == "meta-properties"
        assert f"PROBLEM {sample.log_dirs[1]}: meta.properties: missing" in text.splitlines()[0]
        assert f"{sample.log_dirs[1]}: a broker does not start with it" in text

    @pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
    def test_a_place_of_the_metadata_log_that_is_not_mounted(
        self, sample: Sample, tmp_path: Path, is_there: bool
    ) -> None:
        for log_dir in sample.log_dirs:
            shutil.rmtree(log_dir / "__cluster_metadata-0", ignore_errors=True)
        place = tmp_path / "metadata"
        if is_there:
            place.mkdir()
        found = tree_of(sample.log_dirs[0])
        options = ("--property", f"metadata.log.dir={place}")
        done = run("recover", "-c", sample.config, *options)
        assert done.exit_code == 1
        assert_one_line(done, f"metadata.log.dir {place}: no __cluster_metadata-0 there", "--topic-config")
        assert tree_of(sample.log_dirs[0]) == found
        assert recover(sample, *options, "--topic-config", "{}").exit_code in (0, 2)

    def test_no_metadata_log(self, sample: Sample) -> None:
        for log_dir in sample.log_dirs:
            shutil.rmtree(log_dir / "__cluster_metadata-0", ignore_errors=True)
        report, text = self.both(sample)
        assert ["no __cluster_metadata-0" in note["text"] for note in report["notes"]] == [True]
        assert "NOTE no __cluster_metadata-0" in text

    @pytest.mark.parametrize(("configured", "words"), [(0, "topics get "), (1, "topics {} get ")])
    def test_no_metadata_log_for_topics_that_are_not_configured(
        self, configured: int, words: str, sample: Sample
    ) -> None:
        topics = sorted({path.name[:-2] for path in sample.root.glob("d?/old-v*")})
        for log_dir in sample.log_dirs:
            shutil.rmtree(log_dir / "__cluster_metadata-0", ignore_errors=True)
            for path in log_dir.glob("[!o]*-?"):
                shutil.rmtree(path)
        configs = json.dumps({topic: {} for topic in topics[:configured]})
        done = recover_dirs(sample.log_dirs, "--dry-run", "--topic-config", configs)
        (note,) = notes_of(done)
        assert note.startswith("no __cluster_metadata-0")
        assert words.format(", ".join(topics[1:])) in note
        configs = json.dumps({topic: {} for topic in topics})
        assert notes_of(recover_dirs(sample.log_dirs, "--dry-run", "--topic-config", configs)) == []

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            (START_CHECKPOINT, "begins at its first segment"),
            ("recovery-point-offset-checkpoint", "begins at the first segment"),
            ("cleaner-offset-checkpoint", "the cleaner"),
        ],
    )
    def test_a_checkpoint_that_the_broker_ignores(self, name: str, words: str, sample: Sample) -> None:
        (sample.log_dirs[0] / name).write_text(
            "0\n1\nold-v0 0 many\n"
        )  # NumberFormatException: a broker only warns
        report, text = self.both(sample)
        assert report["exitCode"] == 0
        (note,) = report["logDirs"][0]["notes"]
        assert note["level"] == "warning"
        assert note["text"].startswith(name)
        assert words in note["text"]
        assert report["logDirs"][0]["warnings"] == [note["text"]]
        assert f"NOTE {sample.log_dirs[0]}: {note['text']}" in text.splitlines()

    @pytest.mark.parametrize(
        ("names", "noted"),
        [
            ({START_CHECKPOINT}, True),
            ({"recovery-point-offset-checkpoint"}, True),
            (
                {START_CHECKPOINT, "recovery-point-offset-checkpoint"},
                False,
            ),  # as a broker's first start makes them
        ],
    )
    def test_an_empty_checkpoint_of_logs_that_are_not_new(
        self, names: set[str], noted: bool, sample: Sample
    ) -> None:
        for name in names:
            (sample.log_dirs[0] / name).write_bytes(b"")
        report, text = self.both(sample)
        assert report["exitCode"] == 0
        notes = [note["text"] for note in report["logDirs"][0]["notes"]]
        assert [note.partition(":")[0] for note in notes] == (sorted(names) if noted else [])
        assert all(f"NOTE {sample.log_dirs[0]}: {note}" in text.splitlines() for note in notes)

    def test_empty_checkpoints_of_logs_that_have_lost_segments(self, sample: Sample) -> None:
        names = ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint"]
        for name in names:
            (sample.log_dirs[0] / name).write_bytes(b"")
        (folder,) = sample.log_dirs[0].glob("old-v1-0")
        for path in folder.glob(f"{0:020}.*"):
            path.unlink()
        notes = self.both(sample)[0]["logDirs"][0]["notes"]
        assert [note["text"].partition(":")[0] for note in notes] == names
        assert "records deleted from it come back" in notes[0]["text"]

    def test_a_checkpoint_that_takes_the_dir_offline_later(self, sample: Sample) -> None:
        (sample.log_dirs[0] / "replication-offset-checkpoint").write_text("nonsense")
        report, text = self.both(sample)
        assert report["exitCode"] == 4
        (problem,) = report["logDirs"][0]["problems"]
        assert (problem["file"], problem["rule"]) == ("replication-offset-checkpoint", "checkpoint")
        assert text.startswith(f"PROBLEM {sample.log_dirs[0]}: replication-offset-checkpoint")


class TestMetadataLogThatCannotBeRead:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        sample = unpack("crashed-v0-v1", tmp_path)
        (folder,) = sample.root.glob("d?/__cluster_metadata-0")
        return folder

    @pytest.mark.parametrize("kind", ["folder", "pipe", "dangling link", "link that leads nowhere"])
    def test_something_else_in_the_place_of_a_segment(self, kind: str, folder: Path) -> None:
        (path,) = folder.glob("*.log")
        path.unlink()
        make = {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}
        make.get(kind, lambda: path.symlink_to("nowhere" if kind == "dangling link" else path.name))()
        log_dirs = tuple(folder.parent.parent.glob("d?"))
        done = recover_dirs(log_dirs, "--dry-run")
        assert done.exit_code == 1
        assert_one_line(done, f"{path.name}: a {kind} where a file must be", "--topic-config")
        done = recover_dirs(log_dirs, "--dry-run", "--topic-config", "{}")
        assert done.exit_code == 0
        assert [note for note in notes_of(done) if f"{path.name}: a {kind}" in note]

    def test_an_empty_folder_is_none(self, folder: Path) -> None:
        shutil.rmtree(folder)
        folder.mkdir()
        done = recover_dirs(tuple(folder.parent.parent.glob("d?")), "--dry-run")
        assert done.exit_code == 0
        assert [note for note in notes_of(done) if note.startswith("no __cluster_metadata-0")]

    @pytest.mark.parametrize("end_offset", [0, 7])
    def test_a_checkpoint_may_be_all_there_is(self, end_offset: int, folder: Path) -> None:
        (path,) = folder.glob("*.checkpoint")  # as formatting has made it
        path.rename(folder / f"{end_offset:020}-0000000001.checkpoint")
        for path in folder.glob("*.log"):
            path.unlink()
        done = recover_dirs(tuple(folder.parent.parent.glob("d?")), "--dry-run")
        assert done.exit_code == 0
        (note,) = notes_of(done)
        assert ("it has no topic at all" if end_offset else "no __cluster_metadata-0") in note
