"""`recovery.verify`: nothing on healthy logs, each rule by its name, nothing written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import recovery.check.segment
import recovery.check.segment_files
from recovery.check import folder_files
from recovery.check.api import verify
from recovery.check.finding import REMEDIES
from recovery.check.options import VerifyOptions
from recovery.check.run import BrokerFacts, TopicFacts, VerifyRun
from recovery.errors import UsageError
from recovery.read.rate_limit import RateLimit
from recovery.stop_request import StopRequest
from segfmt.byte_layout import OFFSET_INDEX_DTYPE, TIME_INDEX_DTYPE
from segfmt.compression import Codec, compress
from segfmt.message_set import Message, encode_message
from segfmt.producer_snapshot import encode_producer_snapshot, read_producer_snapshot
from segfmt.record import Record, encode_records
from segfmt.record_batch import RecordBatchHeader, encode_record_batch, walk_batches
from tests.damage.mutilate import Victim, make_victim
from tests.logs.samples import MARKER, SAMPLE_NAMES, Sample, unpack
from tests.runs.driving import footprint, recover
from tests.runs.verifying import damage_of, held_lock, lines_of, rules_of, verified


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    root = tmp_path_factory.mktemp("samples")
    return {name: unpack(name, root) for name in SAMPLE_NAMES}


def victim_of(sample: Sample, partition: str, log_dir: Path) -> Victim:
    """The partition's folder of *sample* alone in the new *log_dir*."""
    folder = next(one for _, one in partitions({sample.name: sample}) if one.name == partition)
    return make_victim(sample, folder, log_dir)


def partitions(samples: dict[str, Sample]) -> list[tuple[Sample, Path]]:
    return [
        (sample, folder)
        for sample in samples.values()
        for log_dir in sample.log_dirs
        for folder in sorted(log_dir.iterdir())
        if folder.is_dir() and "-" in folder.name and not folder.name.startswith(("__cluster", "remote-"))
        if not folder.name.endswith("-delete")
    ]


@pytest.fixture
def victim(samples: dict[str, Sample], tmp_path: Path) -> tuple[Sample, Victim]:
    """`codec-none-0` of the crashed broker: its checkpoint says how much of it is flushed."""
    sample = samples["crashed"]
    folder = next(folder for _, folder in partitions({"crashed": sample}) if folder.name == "codec-none-0")
    return sample, make_victim(sample, folder, tmp_path / "d")


class TestHealthyLogs:
    @pytest.mark.parametrize("name", SAMPLE_NAMES)
    def test_what_a_broker_leaves_is_sound(self, samples: dict[str, Sample], name: str) -> None:
        before = footprint(samples[name].root)
        report = verified(samples[name], deep=True)
        flushed = [found for found in damage_of(report) if found.is_flushed]
        assert flushed == [], lines_of(report)
        assert report.unchecked == []
        assert footprint(samples[name].root) == before

    @pytest.mark.parametrize("name", SAMPLE_NAMES)
    @pytest.mark.parametrize("handoff", ["clean-shutdown", "recovery-point", "none"])
    def test_what_a_recovery_leaves_is_sound(self, tmp_path: Path, name: str, handoff: str) -> None:
        sample = unpack(name, tmp_path)
        recover(sample, handoff=handoff)
        report = verified(sample, deep=True)
        assert report.exit_code == 0, lines_of(report)
        assert not any(path.name == ".lock" for path in sample.root.rglob("*"))

    def test_producers_before_the_log_start_may_be_forgotten(
        self, samples: dict[str, Sample], tmp_path: Path
    ) -> None:
        """A recovery after records were deleted reads the log from its start offset on."""
        sample = samples["crashed"]
        made = victim_of(sample, "tiny-batches-0", tmp_path / "d")
        (made.log_dir / "log-start-offset-checkpoint").write_text("0\n1\ntiny-batches 0 2252\n")
        recover(sample, [made.log_dir])
        report = verified(sample, [made.log_dir])
        assert report.exit_code == 0, lines_of(report)


class TestRules:
    def test_a_torn_tail_behind_the_recovery_point_has_a_name_of_its_own(
        self, victim: tuple[Sample, Victim]
    ) -> None:
        sample, damaged = victim
        tear(damaged.logs()[-1])
        report = verified(sample, [damaged.log_dir])
        found = damage_of(report)
        assert [(one.rule, one.is_flushed) for one in found] == [("unclean-tail", False)], lines_of(report)
        assert report.exit_code == 2

    def test_no_recovery_is_promised_for_a_segment_that_no_broker_opens(
        self, victim: tuple[Sample, Victim], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sample, damaged = victim
        log = damaged.logs()[-1]
        log.write_bytes(log.read_bytes() + bytes(1 << 20))
        monkeypatch.setattr(recovery.check.segment, "MAX_LOG_BYTES", log.stat().st_size - 1)
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert next((one.rule, one.position) for one in found) == ("segment-size", None)
        assert {one.file for one in found if one.file.endswith(".log")} == {log.name}
        assert not [one for one in found if one.rule == "unclean-tail" or "cuts it" in one.remedy]
        monkeypatch.setattr(recovery.check.segment, "MAX_LOG_BYTES", log.stat().st_size)
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert [one.rule for one in found] == ["unclean-tail"]

    def test_the_same_with_a_marker_is_a_lie(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        (damaged.log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
        position = tear(damaged.logs()[-1])
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert [one.rule for one in found if one.file.endswith(".log")] == ["lying-marker"]
        assert next(one for one in found if one.rule == "lying-marker").position == position
        assert "--force" in REMEDIES["lying-marker"]

    def test_a_bad_checksum_in_the_last_batch_is_none(self, victim: tuple[Sample, Victim]) -> None:
        """A broker does not look at it: the log end stays where it is."""
        sample, damaged = victim
        (damaged.log_dir / MARKER).write_text('{"version":0,"brokerEpoch":7}')
        log = damaged.logs()[-1]
        data = bytearray(log.read_bytes())
        data[-5] ^= 4
        log.write_bytes(data)
        found = [
            one.rule for one in damage_of(verified(sample, [damaged.log_dir])) if one.file.endswith(".log")
        ]
        assert found == ["checksum"]
        end = recover(sample, [damaged.log_dir], dry_run=True).partitions[0].log_end_offset
        recovered = recover(sample, [damaged.log_dir], dry_run=True, force=True).partitions[0]
        assert recovered.log_end_offset < end

    @pytest.mark.parametrize("count", [17, 18, 5000])
    def test_zeros_behind_a_marker_are_a_lie(self, victim: tuple[Sample, Victim], count: int) -> None:
        sample, damaged = victim
        (damaged.log_dir / ".kafka_cleanshutdown").touch()
        with damaged.logs()[-1].open("ab") as log:
            log.write(bytes(count))
        assert "lying-marker" in rules_of(verified(sample, [damaged.log_dir]))

    def test_a_flipped_bit_in_a_flushed_segment_is_rot(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        log = damaged.flushed()[0]
        batch = list(walk_batches(log.read_bytes()))[1]
        flip(log, batch.position + 70)
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert [(one.rule, one.position, one.is_flushed) for one in found] == [
            ("checksum", batch.position, True)
        ]
        assert "sound batches follow" in found[0].detail

    def test_a_copy_of_a_segment_under_another_offset(
        self, samples: dict[str, Sample], tmp_path: Path
    ) -> None:
        """Of a snapshot between the two nothing is said: it has both."""
        sample = samples["crashed"]
        made = victim_of(sample, "late-1", tmp_path / "d")
        shutil.copy(made.folder / f"{37:020}.log", made.folder / f"{40:020}.log")
        recover(sample, [made.log_dir])
        assert rules_of(verified(sample, [made.log_dir])) == {"segment-overlap", "offset-range"}

    def test_bytes_that_no_checksum_covers(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        log = damaged.flushed()[0]
        data = log.read_bytes()
        batch = list(walk_batches(data))[1]
        for offset, rules in {
            0: {"offset-range", "offset-gap", "offset-order", "segment-overlap"},
            7: {"offset-gap", "offset-order"},
            15: {"leader-epoch"},
            16: {"magic", "checksum"},
        }.items():
            flip(log, batch.position + offset, bit=2)
            report = verified(sample, [damaged.log_dir])
            assert rules_of(report) & rules, (offset, lines_of(report))
            log.write_bytes(data)

    def test_a_broken_batch_does_not_hide_the_next_one(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        log = damaged.flushed()[0]
        batches = list(walk_batches(log.read_bytes()))
        for batch in (batches[1], batches[-1]):
            flip(log, batch.position + 65)
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert [one.position for one in found] == [batches[1].position, batches[-1].position]

    def test_batches_behind_a_control_batch_are_checked(
        self, samples: dict[str, Sample], tmp_path: Path
    ) -> None:
        """Markers with a delete horizon, as compaction leaves them, interrupt the scan."""
        sample = samples["crashed"]
        made = victim_of(sample, "compacted-0", tmp_path / "d")
        log = made.logs()[0]
        data = log.read_bytes()
        batches = list(walk_batches(data))
        assert len(batches) > 10
        for batch in batches:
            flip(log, batch.position + 22, bit=7)
            assert rules_of(verified(sample, [made.log_dir])) == {"checksum"}, batch
            log.write_bytes(data)

    def test_a_snapshot_of_the_metadata_log(self, tmp_path: Path) -> None:
        sample = unpack("intact", tmp_path)
        snapshot = next(
            path for one in sample.log_dirs for path in one.glob("__cluster_metadata-0/*.checkpoint")
        )
        last = list(walk_batches(snapshot.read_bytes()))[-1]
        flip(snapshot, last.position + 30)
        found = damage_of(verified(sample))
        assert [(one.file, one.rule, one.position) for one in found] == [
            (snapshot.name, "checksum", last.position)
        ]

    def test_an_entry_inside_a_batch(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        index = next(
            log.with_suffix(".index") for log in damaged.flushed() if log.with_suffix(".index").stat().st_size
        )
        entries = np.fromfile(index, OFFSET_INDEX_DTYPE)
        entries["position"][-1] += 1
        entries.tofile(index)
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert [(one.file, one.rule) for one in found] == [(index.name, "index-entry")]
        assert found[0].position == index.stat().st_size - OFFSET_INDEX_DTYPE.itemsize

    def test_a_time_index_of_a_closed_segment_that_was_cut(self, victim: tuple[Sample, Victim]) -> None:
        """Its last entry is of the greatest timestamp; an empty one a broker may have made."""
        sample, damaged = victim
        index = next(
            log.with_suffix(".timeindex")
            for log in damaged.flushed()[:-1]
            if log.with_suffix(".timeindex").stat().st_size > TIME_INDEX_DTYPE.itemsize
        )
        entries = np.fromfile(index, TIME_INDEX_DTYPE)
        entries[:-1].tofile(index)
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert [(one.file, one.rule) for one in found] == [(index.name, "index-sparse")]
        index.write_bytes(b"")
        assert damage_of(verified(sample, [damaged.log_dir])) == []

    def test_a_producer_at_an_offset_that_no_batch_has(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        path = next(
            path
            for path in sorted(damaged.folder.glob("*.snapshot"))
            if len(read_producer_snapshot(path.read_bytes()))
        )
        entries = read_producer_snapshot(path.read_bytes()).copy()
        entries["last_offset"] = -5
        path.write_bytes(encode_producer_snapshot(entries))
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert [(one.file, one.rule) for one in found] == [(path.name, "snapshot-content")]

    def test_a_snapshot_that_later_releases_discard_is_a_note(
        self, victim: tuple[Sample, Victim], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sample, damaged = victim
        count = max(
            len(read_producer_snapshot(path.read_bytes())) for path in damaged.folder.glob("*.snapshot")
        )
        monkeypatch.setattr(folder_files, "MOST_ENTRIES", count - 1)
        report = verified(sample, [damaged.log_dir])
        notes = [one.detail for file in report.files for one in file.findings if one.rule == "snapshot"]
        assert (report.exit_code, notes[0].partition(";")[0]) == (0, f"{count} producers")

    def test_gaps_are_damage_only_where_nothing_is_compacted(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        gone = damaged.flushed()[1]
        for suffix in (".log", ".index", ".timeindex", ".snapshot"):
            gone.with_suffix(suffix).unlink(missing_ok=True)
        assert rules_of(verified(sample, [damaged.log_dir])) == {"offset-gap"}
        compacted = {**sample.topic_configs, "codec-none": {"cleanup.policy": "compact"}}
        assert verify([str(damaged.log_dir)], topic_configs=compacted, now_ms=sample.now_ms).exit_code == 0

    def test_a_topic_id_that_the_cluster_does_not_know(self, tmp_path: Path) -> None:
        sample = unpack("intact", tmp_path)
        assert verified(sample).exit_code == 0
        path = next(sample.log_dirs[0].glob("[!_]*-0/partition.metadata"))
        path.write_text("version: 0\ntopic_id: Ql39DSphRbO0LGsT-wh4cQ")
        found = damage_of(verified(sample))
        assert [(one.file, one.rule) for one in found] == [("partition.metadata", "topic-id")]
        assert "metadata log says" in found[0].detail
        folder = path.parent
        folder.rename(folder.with_name(f"{folder.name}.{'0' * 32}-stray"))
        assert not damage_of(verified(sample))  # it is set aside already

    @pytest.mark.parametrize("is_metadata_whole", [True, False])
    def test_a_topic_that_the_cluster_does_not_know(self, is_metadata_whole: bool, tmp_path: Path) -> None:
        sample = unpack("intact", tmp_path)
        folder = next(sample.log_dirs[0].glob("[!_]*-0"))
        gone = shutil.copytree(folder, folder.with_name("gone-0"))
        if not is_metadata_whole:
            flip(next(sample.root.glob("*/__cluster_metadata-0/*.log")), 100)
        report = verified(sample)
        found = {
            (file.path, one.file): (one.severity, one.detail)
            for file in report.files
            for one in file.findings
            if one.rule == "topic-id"
        }
        assert report.exit_code == (0 if is_metadata_whole else 2)
        assert [severity for severity, _ in found.values()] == ["note"] * is_metadata_whole, found
        assert all(
            "gone-0" in path and "no topic of this name" in said for (path, _), (_, said) in found.items()
        )
        assert gone.is_dir()

    def test_two_clusters_and_two_places(self, tmp_path: Path) -> None:
        sample = unpack("stopped", tmp_path)
        first, second = sample.log_dirs
        meta = second / "meta.properties"
        meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
        folder = next(path for path in first.iterdir() if path.is_dir() and not path.name.startswith("__"))
        shutil.copytree(folder, second / folder.name)
        (second / "lost+found").mkdir()
        rules = rules_of(verified(sample))
        assert rules == {"another-node", "duplicate-partition", "foreign-folder"}

    def test_a_link_is_told_and_not_the_folder_that_it_leads_to(self, tmp_path: Path) -> None:
        """Whoever moved that away would move the only copy."""
        sample = unpack("stopped", tmp_path)
        first, second = sample.log_dirs
        folder = next(path for path in second.iterdir() if path.is_dir() and not path.name.startswith("__"))
        (first / folder.name).symlink_to(folder)
        (first / "other-0").symlink_to(second)
        found = {
            (one.file, one.detail) for one in damage_of(verified(sample)) if one.rule == "duplicate-folder"
        }
        assert found == {
            (folder.name, f"the same folder is {folder}"),
            ("other-0", f"the same folder is {second}"),
        }
        assert "duplicate-partition" not in rules_of(verified(sample))

    def test_another_node_and_a_copy(self, tmp_path: Path) -> None:
        sample = unpack("stopped", tmp_path)
        first, second = sample.log_dirs
        assert damage_of(verified(sample)) == []
        config = {**sample.properties, "node.id": "77"}
        found = damage_of(verify(None, config=config, topic_configs=sample.topic_configs))
        assert [(one.file, one.rule) for one in found] == [("meta.properties", "another-node")] * 2
        assert "the configuration says 77" in found[0].detail
        shutil.copy(first / "meta.properties", second)
        found = damage_of(verified(sample))
        assert [(one.file, one.rule) for one in found] == [("meta.properties", "another-node")] * 2
        assert "directory.id is also that of" in found[0].detail

    def test_a_folder_with_the_name_of_the_marker_is_a_marker_that_is_none(
        self, victim: tuple[Sample, Victim]
    ) -> None:
        sample, damaged = victim
        (damaged.log_dir / MARKER).mkdir()
        found = [one for one in damage_of(verified(sample, [damaged.log_dir])) if one.file == MARKER]
        assert [(one.rule, one.detail) for one in found] == [("marker", "a folder where a file is needed")]

    def test_what_is_no_file(self, victim: tuple[Sample, Victim]) -> None:
        """Links, pipes and folders where files are needed; a `.deleted` one is nobody's."""
        sample, damaged = victim
        log, other = damaged.logs()[0], damaged.folder / "00000000000000099999"
        log.rename(damaged.log_dir / "elsewhere")
        log.symlink_to("../elsewhere")
        (damaged.folder / "leader-epoch-checkpoint").unlink()
        (damaged.folder / "leader-epoch-checkpoint").mkdir()
        os.mkfifo(f"{other}.snapshot")
        os.mkfifo(f"{other}.log.deleted")
        os.symlink("nowhere", f"{other}.index")
        os.symlink("nowhere", damaged.log_dir / "gone-0")
        os.symlink("nowhere", damaged.log_dir / "gone")
        (damaged.log_dir / "file-0").touch()
        os.mkfifo(damaged.log_dir / "cleaner-offset-checkpoint")
        os.symlink("nowhere", damaged.log_dir / "replication-offset-checkpoint")
        report = verified(sample, [damaged.log_dir])
        found = {one.file: one.detail for one in damage_of(report) if one.rule == "file-type"}
        assert found == {
            log.name: "a link, through which a broker writes outside of the log dir",
            "leader-epoch-checkpoint": "a folder where a file is needed",
            f"{other.name}.snapshot": "a pipe where a file is needed",
            f"{other.name}.index": "a dangling link where a file is needed",
            "gone-0": "a dangling link with the name of a log's folder: a broker passes it over, and goes offline "
            "with the log dir when it makes this log (FileAlreadyExistsException)",
            "cleaner-offset-checkpoint": "a pipe where a file is needed",
            "replication-offset-checkpoint": "a dangling link where a file is needed",
        }
        notes = {
            one.file: one.rule for file in report.files for one in file.findings if one.severity == "note"
        }
        assert notes[f"{other.name}.log.deleted"] == "leftover"
        assert notes["file-0"] == "file-type"

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("a b-0", "no topic can have the name"),
            ("ümlaut-0", "no topic can have the name"),
            ("..-0", "no topic can have the name"),
            ("x" * 250 + "-0", "no topic can have the name"),
            ("x-00", "a broker takes it for partition 0 of x"),
            ("x-+1", "a broker takes it for partition 1 of x"),
            ("x-٣", "a broker takes it for partition 3 of x"),
            ("x-00.0123456789abcdef0123456789abcdef-stray", "a broker takes it for partition 0 of x"),
            ("lost+found", "stops the broker"),
            ("x-0", None),
            (".hidden.-_-12", None),
            ("x-0.0123456789abcdef0123456789abcdef-future", None),
        ],
    )
    def test_names_of_folders(self, victim: tuple[Sample, Victim], name: str, words: str | None) -> None:
        sample, damaged = victim
        (damaged.log_dir / name).mkdir()
        found = [one.detail for one in damage_of(verified(sample, [damaged.log_dir])) if one.file == name]
        assert [words in detail for detail in found if words] == ([True] if words else [])

    def test_a_folder_without_segments(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        for path in damaged.folder.glob("0*"):
            path.unlink()
        assert "no-segment" in rules_of(verified(sample, [damaged.log_dir]))

    def test_no_snapshot_at_all(self, samples: dict[str, Sample], tmp_path: Path) -> None:
        """Not shut down cleanly: a log of one segment may have none yet, one of several has them."""
        sample = samples["crashed"]
        for name, rules in {"tiered-0": {"missing-snapshot"}, "shapes-0": set()}.items():
            made = victim_of(sample, name, tmp_path / name)
            assert rules_of(verified(sample, [made.log_dir])) == set()
            for path in made.folder.glob("*.snapshot"):
                path.unlink()
            assert rules_of(verified(sample, [made.log_dir])) == rules

    def test_a_log_that_ends_too_early(self, victim: tuple[Sample, Victim]) -> None:
        """Nothing is torn: only the recovery point, the snapshot and the indexes know of the batches that are gone."""
        sample, damaged = victim
        recover(sample, [damaged.log_dir])
        log = damaged.logs()[-1]
        for batch in list(walk_batches(log.read_bytes()))[-1::-3]:
            os.truncate(log, batch.position)
            found = [one for one in damage_of(verified(sample, [damaged.log_dir])) if one.file == log.name]
            assert [(one.rule, one.position) for one in found] == [("cut-end", batch.position)]

    def test_a_log_that_goes_on_behind_a_clean_shutdown(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        recover(sample, [damaged.log_dir])
        log = damaged.logs()[-1]
        data = log.read_bytes()
        last = list(walk_batches(data))[-1]
        flip(log, last.position + 6, bit=3)
        report = verified(sample, [damaged.log_dir])
        assert {(one.file, one.rule) for one in damage_of(report)} >= {(log.name, "late-end")}
        log.write_bytes(data)
        stray = damaged.folder.with_name(f"{damaged.folder.name}.{'0123456789abcdef' * 2}-stray")
        shutil.copytree(damaged.folder, stray)
        for path in (*stray.glob(f"{damaged.logs()[-1].stem}.*"), max(stray.glob("*.snapshot"))):
            path.unlink(missing_ok=True)
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert found == [], "the checkpoint's line is that of the log that has the name now"

    def test_an_active_index_that_is_not_mapped(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        recover(sample, [damaged.log_dir])
        index = damaged.logs()[-1].with_suffix(".index")
        os.truncate(index, int(sample.properties["log.index.size.max.bytes"]) // 8 * 8)
        assert rules_of(verified(sample, [damaged.log_dir])) == set()
        os.truncate(index, index.stat().st_size + 8)
        found = damage_of(verified(sample, [damaged.log_dir]))
        assert [(one.file, one.rule) for one in found] == [(index.name, "index-size")]
        (damaged.log_dir / ".kafka_cleanshutdown").unlink()
        assert rules_of(verified(sample, [damaged.log_dir])) == set(), "a recovery makes it anew"

    def test_the_dirs_are_those_of_a_broker(self, tmp_path: Path) -> None:
        """As `recover` reads them, but that others are checked beside a dir which no broker has opened."""
        (tmp_path / "d").mkdir()
        (tmp_path / "link").symlink_to("d")
        for given, words in {
            (str(tmp_path / "d"), str(tmp_path / "link")): "are the same folder",
            (str(tmp_path / "none"),): "no such log dir",
            (): "no log dir given",
        }.items():
            with pytest.raises(UsageError, match=words):
                verify(given)
        with pytest.raises(UsageError, match="a relative path"):
            verify(None, config={"log.dirs": "d"})
        (unopened,) = verify([str(tmp_path / "d")]).log_dirs
        assert (unopened.error or "").startswith("not the log dir of a broker: ")

    def test_filters(self, samples: dict[str, Sample]) -> None:
        report = verified(samples["stopped"], topics=["deleted-records"])
        folders = {Path(file.path).parent.name for file in report.files} - {"d1", "d2"}
        assert folders == {"deleted-records-0"}
        report = verified(samples["stopped"], topics=["empty"], partitions=["deleted-records-0"])
        assert sum(one.partition_count for one in report.log_dirs) == 2


class TestLogDirFiles:
    @pytest.mark.parametrize("content", [b"", bytes(122)])
    def test_an_emptied_meta_properties_is_damage(
        self, victim: tuple[Sample, Victim], content: bytes
    ) -> None:
        sample, damaged = victim
        (damaged.log_dir / "meta.properties").write_bytes(content)
        (found,) = damage_of(verified(sample, [damaged.log_dir]))
        assert (found.file, found.rule) == ("meta.properties", "meta-properties")

    def test_lost_and_found_is_not_to_be_moved(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        (damaged.log_dir / "lost+found").mkdir()
        (found,) = damage_of(verified(sample, [damaged.log_dir]))
        assert found.remedy.startswith("if the log dir is the root of a file system")

    def test_snapshots_of_the_metadata_log_are_no_segments(self, samples: dict[str, Sample]) -> None:
        sample = samples["crashed"]
        report = verified(sample, [sample.log_dirs[0]])
        logs = [
            path
            for path in sample.log_dirs[0].glob("*/*.log")
            if not path.parent.name.endswith(("-delete", "-stray"))
        ]
        assert sum(log_dir.segment_count for log_dir in report.log_dirs) == len(logs)
        assert any(sample.log_dirs[0].glob("__cluster_metadata-0/*.checkpoint"))


class TestRecords:
    def write(self, damaged: Victim, batch: bytes) -> Path:
        """Put *batch* behind the log, with the next offset and the epoch of the last one."""
        log = damaged.logs()[-1]
        data = log.read_bytes()
        end = max(place.position + place.size_bytes for place in walk_batches(data))
        log.write_bytes(data[:end] + batch)
        return log

    def header(self, damaged: Victim, **fields: int) -> RecordBatchHeader:
        from segfmt.record_batch import read_record_batch_header

        data = damaged.logs()[-1].read_bytes()
        last = read_record_batch_header(data, list(walk_batches(data))[-1].position)
        known = {
            "base_offset": last.last_offset + 1,
            "partition_leader_epoch": last.partition_leader_epoch,
            "base_timestamp_ms": last.max_timestamp_ms,
            "max_timestamp_ms": last.max_timestamp_ms,
            "record_count": 1,
        }
        return RecordBatchHeader(**(known | fields))

    def records(self, header: RecordBatchHeader, **fields: object) -> bytes:
        record = Record(
            **(
                {"offset": header.base_offset, "timestamp_ms": header.base_timestamp_ms, "value": b"v"}
                | fields
            )
        )
        return encode_records(
            [record], base_offset=header.base_offset, base_timestamp_ms=header.base_timestamp_ms
        )

    def test_only_deep_looks_into_batches(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        header = self.header(damaged)
        for records in (
            b"\x02\x00",
            self.records(header) + b"\x00",
            self.records(header, offset=header.base_offset + 5),
        ):
            before = damaged.logs()[-1].read_bytes()
            self.write(damaged, encode_record_batch(header, records))
            assert damage_of(verified(sample, [damaged.log_dir])) == []
            assert rules_of(verified(sample, [damaged.log_dir], deep=True)) == {"record"}
            damaged.logs()[-1].write_bytes(before)

    def test_offsets_that_are_missing_before_a_message_set(
        self, samples: dict[str, Sample], tmp_path: Path
    ) -> None:
        """The header of a wrapper has its last offset: only the messages within tell where it begins."""
        sample = samples["crashed-v0-v1"]
        made = victim_of(sample, "old-v0-gzip-0", tmp_path / "d")
        recover(sample, [made.log_dir])
        log = made.logs()[0]
        data = log.read_bytes()
        gone = list(walk_batches(data))[1]
        for path in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
            path.write_bytes(b"")
        assert rules_of(verified(sample, [made.log_dir], deep=True)) == set()
        log.write_bytes(data[: gone.position] + data[gone.position + gone.size_bytes :])
        assert rules_of(verified(sample, [made.log_dir])) == set()
        found = damage_of(verified(sample, [made.log_dir], deep=True))
        assert [(one.file, one.rule, one.position) for one in found] == [
            (log.name, "offset-gap", gone.position)
        ]

    def test_a_timestamp_above_the_batch_s_greatest(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        header = self.header(damaged)
        late = self.records(header, timestamp_ms=header.max_timestamp_ms + 1)
        self.write(damaged, encode_record_batch(header, late))
        assert rules_of(verified(sample, [damaged.log_dir], deep=True)) == {"record"}

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    def test_a_stream_that_does_not_open(self, victim: tuple[Sample, Victim], codec: Codec) -> None:
        sample, damaged = victim
        header = self.header(damaged, attributes=int(codec))
        good = compress(codec, self.records(header))
        self.write(damaged, encode_record_batch(header, good))
        assert damage_of(verified(sample, [damaged.log_dir], deep=True)) == []
        header = self.header(damaged, attributes=int(codec))
        self.write(damaged, encode_record_batch(header, good[: len(good) // 2]))
        assert rules_of(verified(sample, [damaged.log_dir], deep=True)) == {"compression"}

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    def test_a_bomb_is_not_opened(self, victim: tuple[Sample, Victim], codec: Codec) -> None:
        sample, damaged = victim
        header = self.header(damaged, attributes=int(codec))
        bomb = compress(codec, bytes(40 << 20))
        self.write(damaged, encode_record_batch(header, bomb))
        report = verified(sample, [damaged.log_dir], deep=True)
        unchecked = [found for file in report.unchecked for found in file.findings]
        assert [found.rule for found in unchecked] == ["too-large"], lines_of(report)
        assert report.exit_code == 4

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    def test_a_bomb_in_a_message_set(self, victim: tuple[Sample, Victim], codec: Codec) -> None:
        sample, damaged = victim
        offset = self.header(damaged).base_offset
        bomb = compress(codec, bytes(20 << 20), magic=1)
        message = Message(offset=offset, magic=1, attributes=int(codec), timestamp_ms=5, key=None, value=bomb)
        self.write(damaged, encode_message(message))
        report = verified(sample, [damaged.log_dir], deep=True)
        assert [found.rule for file in report.unchecked for found in file.findings] == ["too-large"]


class TestLiveBroker:
    def test_a_batch_that_is_being_written_is_no_damage(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        tear(damaged.logs()[-1])
        (damaged.folder / "00000000000000000000.log.deleted").write_bytes(b"x")
        (damaged.folder / "00000000000000000000.log.cleaned").write_bytes(b"x")
        with held_lock(damaged.log_dir):
            report = verified(sample, [damaged.log_dir])
        assert report.log_dirs[0].is_live
        assert report.exit_code == 0, lines_of(report)
        assert [found for file in report.files for found in file.findings] == []

    def test_rot_in_a_closed_segment_is_found_beside_a_broker(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        log = damaged.logs()[-2]
        flip(log, log.stat().st_size // 2)
        with held_lock(damaged.log_dir):
            assert damage_of(verified(sample, [damaged.log_dir])) != []

    def test_a_segment_that_goes_meanwhile_is_no_damage(
        self, victim: tuple[Sample, Victim], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Retention removes the first segment between the listing and the reading."""
        sample, damaged = victim
        import recovery.check.run

        real = recovery.check.run.check_segment

        def remove_first(*arguments: object) -> object:
            first = damaged.logs()[0]
            if first.name == f"{0:020d}.log":
                for suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
                    first.with_suffix(suffix).unlink(missing_ok=True)
            return real(*arguments)

        monkeypatch.setattr(recovery.check.run, "check_segment", remove_first)
        assert damaged.logs()[0].name == f"{0:020d}.log"
        with held_lock(damaged.log_dir):
            report = verified(sample, [damaged.log_dir])
        assert report.exit_code == 0, lines_of(report)

    def test_a_lock_file_that_nobody_holds_is_no_broker(self, victim: tuple[Sample, Victim]) -> None:
        sample, damaged = victim
        (damaged.log_dir / ".lock").touch()
        assert not verified(sample, [damaged.log_dir]).log_dirs[0].is_live


class TestReading:
    @pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError()])
    def test_a_bad_sector_or_too_little_memory_ends_one_file(
        self, victim: tuple[Sample, Victim], error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sample, damaged = victim
        bad = damaged.logs()[0]
        inode, real = bad.stat().st_ino, os.preadv

        def preadv(descriptor: int, buffers: list[object], position: int) -> int:
            if os.fstat(descriptor).st_ino == inode:
                raise error
            return real(descriptor, buffers, position)

        monkeypatch.setattr(recovery.check.segment_files.os, "preadv", preadv)
        report = verified(sample, [damaged.log_dir])
        (unchecked,) = report.unchecked
        assert Path(unchecked.path).name == bad.name
        assert (getattr(error, "strerror", "") or "too little memory") in unchecked.findings[0].detail
        assert report.exit_code == 4
        assert report.log_dirs[0].segment_count == len(damaged.logs())

    def test_threads_do_not_matter(self, samples: dict[str, Sample]) -> None:
        def words(threads: int) -> list[object]:
            report = verified(samples["crashed"], threads=threads)
            return [file.to_json() for file in report.files]

        assert words(1) == words(4)

    def test_a_stop_ends_it(self, samples: dict[str, Sample]) -> None:
        stop = StopRequest()
        stop.request(15)
        report = verified(samples["crashed"], stop=stop)
        assert report.exit_code == 143


class TestRateLimit:
    def test_no_more_than_the_rate_passes(self) -> None:
        clock = Clock()
        limit = RateLimit(1000, clock=clock, sleep=clock.sleep)
        passed = []
        for _ in range(50):
            limit.take(250)
            passed.append(clock())
        assert [round(at, 9) for at in passed] == [round(0.25 * number, 9) for number in range(50)]

    def test_the_limit_holds_over_all_threads_and_files(self, samples: dict[str, Sample]) -> None:
        clock = Clock()
        log_dirs = [str(log_dir) for log_dir in samples["stopped"].log_dirs]
        limit = RateLimit(100_000, clock=clock, sleep=clock.sleep)
        broker = BrokerFacts(topic_facts=lambda _: TopicFacts(), thread_count=4)
        report = VerifyRun(log_dirs, VerifyOptions(), broker, limit=limit).run()
        assert report.checked_bytes > 100_000
        limit.take(1)
        assert clock() >= report.checked_bytes / 100_000 - 1e-6


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


def tear(log: Path) -> int:
    """Cut the last batch of *log* in two; return where it begins."""
    data = log.read_bytes()
    last = list(walk_batches(data))[-1]
    with log.open("r+b") as file:
        file.truncate(last.position + last.size_bytes // 2)
    return last.position


def flip(log: Path, position: int, bit: int = 0) -> None:
    """Flip one bit."""
    data = bytearray(log.read_bytes())
    data[position] ^= 1 << bit
    log.write_bytes(data)
