import json
import random
import shutil
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.archive.inventory.entry import Expectation, LineagePlace, SegmentStatus
from recovery.archive.inventory.expectations import Expectations, open_expectations
from recovery.archive.inventory.inventory import take_inventory
from recovery.archive.inventory.own_span import OwnSpan
from recovery.archive.inventory.run import inventory as take_archive
from recovery.archive.layouts.aiven_layout import AivenLayout
from recovery.archive.layouts.plain_layout import PlainLayout
from recovery.archive.layouts.tiered_layout import LocalTieredLayout
from recovery.archive.layouts.walk import walk
from recovery.archive.options import ArchiveOptions
from recovery.archive.remote.log_batches import read_batches
from recovery.archive.remote.remote_cache import RemoteLogCache
from recovery.archive.remote.remote_metadata import RemoteMetadata, read_remote_metadata
from recovery.archive.stores.archived import ArchivedSegment, PartitionPrefix, PartKind, StoredObject
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.segment_table import ArchivedPartition, SegmentTable
from recovery.errors import UsageError
from segfmt.aiven_custom_metadata import AivenCustomMetadata, encode_aiven_custom_metadata
from segfmt.checkpoint import LeaderEpochEntry
from segfmt.kafka_uuid import format_uuid, read_uuid
from segfmt.remote_log_metadata import RemoteSegmentState, RemoteSegmentUpdate, encode_remote_log_metadata
from tests.logs.metadata_topic import write_metadata
from tests.logs.remote_logs import OWNER, SimulatedLog, orderly_log, wild_records
from tests.logs.samples import unpack, unpack_aiven

STARTED, FINISHED, DELETING, DELETED = RemoteSegmentState
TIERED, AIVEN, PLAIN = LocalTieredLayout(), AivenLayout(), PlainLayout()
WHERE = PartitionPrefix(
    prefix="p/", topic=OWNER.topic, partition=OWNER.partition, topic_id=format_uuid(OWNER.topic_id)
)


def a_log(**options):
    return SimulatedLog(rng=random.Random(8), end=1000, **options)


def archived(segments, layout=TIERED, *, without=(), size=None):
    """The objects that a broker would have copied of these segments."""
    kinds = layout.required_parts - set(without)
    return ArchivedPartition(
        where=WHERE,
        segments=SegmentTable.of(
            "p/",
            (
                ArchivedSegment(
                    base_offset=one.start_offset,
                    segment_id=format_uuid(one.segment_id),
                    parts={
                        kind: StoredObject(
                            key=f"p/{kind.value}",
                            size_bytes=(one.size_bytes if size is None else size)
                            if kind is PartKind.LOG
                            else 8,
                        )
                        for kind in kinds
                    },
                )
                for one in sorted(segments, key=lambda one: (one.start_offset, format_uuid(one.segment_id)))
            ),
        ),
    )


def cache_after(records):
    cache = RemoteLogCache()
    for record in records:
        cache.apply(record)
    return cache


def inventory(log, there, layout=TIERED, **options):
    expected = Expectation(cache=cache_after(log.records), **options)
    return take_inventory(
        there if isinstance(there, ArchivedPartition) else archived(there), layout, expected
    )


def told(found):
    return [(one.rule, one.severity) for one in found.findings]


def statuses(found):
    return [one.status for one in found.entries]


# -- what real brokers wrote -----------------------------------------------------------


@pytest.fixture
def of_sample(stored_archive):
    """Returns the inventory of every partition of the sample, by folder, after a change of what was listed."""
    stores = [LocalStore(str(log_dir)) for log_dir in stored_archive.log_dirs]

    def take(change=lambda archived: archived, *, log_dirs=stores):
        with read_remote_metadata(stores) as metadata:
            expectations = Expectations(metadata, log_dirs)
            found = {}
            for walked in walk(LocalStore(str(stored_archive.root / "remote")), TIERED):
                partition = change(walked.partition)
                if partition is not None:
                    name = f"{partition.where.topic}-{partition.where.partition}"
                    found[name] = expectations.judge(partition, TIERED)
            unlisted = {where.folder: inventory for where, inventory in expectations.unlisted(TIERED)}
            assert expectations.findings() == ()
        return found, unlisted

    return take


@pytest.mark.parametrize("knows_log_dirs", [True, False])
def test_a_sound_archive_has_no_damage_and_every_segment_its_status(
    stored_archive, of_sample, knows_log_dirs
):
    expected = json.loads((stored_archive.root / "expected.json").read_text())
    found, unlisted = of_sample(**({} if knows_log_dirs else {"log_dirs": []}))
    assert unlisted == {}
    assert [one for each in found.values() for one in each.findings if one.severity != "note"] == []
    names = {
        "COPY_SEGMENT_FINISHED": SegmentStatus.ARCHIVED,
        "COPY_SEGMENT_STARTED": SegmentStatus.COPY_STARTED,
        "DELETE_SEGMENT_STARTED": SegmentStatus.DELETE_STARTED,
        "DELETE_SEGMENT_FINISHED": SegmentStatus.DELETED,
    }
    entries = {one.segment_id: one for each in found.values() for one in each.entries}
    for segment_id, segment in expected["segments"].items():
        status = names[segment["states"][-1]]
        if status is SegmentStatus.DELETED and segment["topic"] != "lost-delete":
            assert segment_id not in entries
            continue
        entry = entries.pop(segment_id)
        assert (entry.status, entry.base_offset, entry.end_offset) == (
            status,
            segment["start_offset"],
            segment["end_offset"],
        )
    assert entries == {}
    rules = Counter(one.rule for each in found.values() for one in each.findings)
    usual = {"interrupted-copy": 1, "unfinished-delete": 3, "undeleted": 11}
    assert rules == usual | ({"below-log-start": 10} if knows_log_dirs else {})


def test_what_is_read_is_what_the_broker_has_tiered(stored_archive, of_sample):
    expected = json.loads((stored_archive.root / "expected.json").read_text())["partitions"]
    found, _ = of_sample()
    for name, inventory in found.items():
        if name in expected and expected[name]["latest_tiered_offset"] >= 0:
            assert inventory.lineage.end_offset == expected[name]["latest_tiered_offset"]
            assert inventory.lineage.gaps == ()
            assert inventory.lineage.segments[0].start_offset <= expected[name]["earliest_offset"]


def test_each_damage_of_the_sample_is_found(of_sample):
    """A segment gone, a part gone, another size, objects of nobody: one finding each, and nothing else."""

    def change(partition):
        segments = list(partition.segments)
        topic = partition.where.topic
        if topic == "codecs":
            del segments[7]
            parts = dict(segments[3].parts)
            del parts[PartKind.SNAPSHOT]
            segments[3] = replace(segments[3], parts=parts)
        if topic == "transactions" and partition.where.partition == 0:
            log = segments[5].parts[PartKind.LOG]
            smaller = replace(log, size_bytes=log.size_bytes - 1)
            segments[5] = replace(segments[5], parts={**segments[5].parts, PartKind.LOG: smaller})
            with_aborts = next(n for n, one in enumerate(segments) if PartKind.TXN_INDEX in one.parts)
            parts = {
                kind: part
                for kind, part in segments[with_aborts].parts.items()
                if kind is not PartKind.TXN_INDEX
            }
            segments[with_aborts] = replace(segments[with_aborts], parts=parts)
        if topic == "plain" and partition.where.partition == 1:
            segments[2] = replace(segments[2], segment_id=format_uuid(UUID(int=99)))
        return replace(partition, segments=SegmentTable.of(partition.where.prefix, segments))

    def damage(inventory):
        return sorted(one.rule for one in inventory.findings if one.severity == "damage")

    found, _ = of_sample(change)
    sound, _ = of_sample()
    assert damage(found["codecs-0"]) == ["missing-object", "missing-segment"]
    assert damage(found["transactions-0"]) == ["missing-object", "object-size"]
    assert damage(found["plain-1"]) == ["missing-segment"]
    assert [one.rule for one in found["plain-1"].findings if one.severity == "note"] == ["orphan"]
    for name in found.keys() - {"codecs-0", "transactions-0", "plain-1"}:
        assert found[name] == sound[name]


def test_a_partition_that_is_not_there_is_missing_as_a_whole(of_sample):
    found, unlisted = of_sample(lambda partition: None if partition.where.topic == "plain" else partition)
    assert set(unlisted) == {"plain-0", "plain-1"}
    assert set(statuses(unlisted["plain-1"])) == {SegmentStatus.MISSING}
    assert {severity for _, severity in told(unlisted["plain-1"])} == {"damage"}
    assert "gone-0" in found


def test_the_plugins_objects_by_their_names_alone(tmp_path):
    root = unpack_aiven(tmp_path)
    (walked,) = walk(LocalStore(str(root / "zstd")), AIVEN)
    found = take_inventory(walked.partition, AIVEN)
    assert statuses(found) == [SegmentStatus.ARCHIVED] * 3
    assert (found.findings, found.lineage) == ((), None)


# -- one case each ---------------------------------------------------------------------


def test_a_chain_that_is_there():
    log = a_log()
    segments = [log.copy(0, 9), log.copy(10, 19)]
    found = inventory(log, segments)
    assert told(found) == []
    assert [one.place for one in found.entries] == [LineagePlace.READ] * 2
    assert found.entries[0].size_bytes == segments[0].size_bytes + 4 * 8
    first = found.entries[0]
    assert (first.base_offset, first.segment_id) == (0, format_uuid(segments[0].segment_id))


def test_a_missing_segment_is_damage_if_it_is_read():
    log = a_log()
    first, again, last = log.copy(0, 9), log.copy(0, 19), log.copy(20, 29)
    found = inventory(log, [last])
    assert statuses(found) == [SegmentStatus.MISSING, SegmentStatus.MISSING, SegmentStatus.ARCHIVED]
    assert sorted(told(found)) == [
        ("duplicate", "note"),
        ("missing-segment", "damage"),
        ("missing-segment", "note"),
    ]
    (damage,) = (one for one in found.findings if one.severity == "damage")
    assert format_uuid(again.segment_id) in damage.file
    assert format_uuid(first.segment_id) not in damage.file
    assert "offsets 0 to 19" in damage.detail
    assert damage.remedy


@pytest.mark.parametrize(
    ("state", "status", "rule"),
    [
        (STARTED, SegmentStatus.COPY_STARTED, "interrupted-copy"),
        (DELETING, SegmentStatus.DELETE_STARTED, "unfinished-delete"),
        (DELETED, SegmentStatus.DELETED, "undeleted"),
    ],
)
@pytest.mark.parametrize("without", [(), (PartKind.LOG,), tuple(TIERED.required_parts - {PartKind.SNAPSHOT})])
def test_segments_on_their_way_are_no_damage(state, status, rule, without):
    log = a_log()
    segment = log.copy(0, 9, finish=state is not STARTED)
    for one in {STARTED: [], DELETING: [DELETING], DELETED: [DELETING, DELETED]}[state]:
        log.update(segment, one)
    twin = log.copy(0, 9)  # as a broker makes it that starts again
    found = inventory(log, archived([segment, twin], without=without))
    assert [one.status for one in found.entries if one.segment_id != format_uuid(twin.segment_id)] == [status]
    assert (rule, "note") in told(found)
    assert {one.rule for one in found.findings if one.severity != "note"} <= {"missing-object"}


def test_a_copy_that_was_begun_may_have_been_finished_since():
    """The log dirs were read before the broker could report it, or have lost what it reported."""
    log = a_log()
    first = log.copy(0, 9)
    begun = log.copy(10, 19, finish=False)
    there = [first, begun]
    newer = SimulatedLog(rng=random.Random(9), end=100).copy(20, 29)
    incomplete = (PartKind.SNAPSHOT,)

    def of_begun(there, *, without=(), **options):
        found = inventory(log, archived(there, without=without), **options)
        (entry,) = [one for one in found.entries if one.segment_id == format_uuid(begun.segment_id)]
        (finding,) = [
            one
            for one in found.findings
            if "copy was begun" in one.detail and "missing-object" not in one.rule
        ]
        return entry.status, finding.rule, finding.severity

    doubtful = SegmentStatus.NOT_COMPARED, "not-compared", "unchecked"
    unfinished = SegmentStatus.COPY_STARTED, "interrupted-copy", "note"
    assert of_begun(there) == doubtful  # all of its objects are there
    assert of_begun([first, replace(begun, size_bytes=999)]) == doubtful  # not each of them is whole
    assert of_begun(there, without=incomplete) == unfinished
    assert of_begun([first]) == unfinished
    for segments in (there, [first]):  # records that are lost may say more of it
        assert of_begun(segments, without=incomplete, hides_records=True) == doubtful
    assert (
        of_begun([*there, newer], without=incomplete) == doubtful
    )  # the log dirs are older than the archive
    twin = log.copy(10, 19)
    assert of_begun([*there, twin, newer], hides_records=True) == unfinished


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_segments_on_their_way_may_have_no_object(state):
    log = a_log()
    segment = log.copy(0, 9, finish=False)
    if state is DELETING:
        log.update(segment, DELETING)
    found = inventory(log, [])
    assert len(found.entries) == 1
    assert [severity for _, severity in told(found)] == ["note"]


def test_what_is_deleted_and_gone_is_not_mentioned():
    log = a_log()
    segment = log.copy(0, 9)
    log.update(segment, DELETING)
    log.update(segment, DELETED)
    assert inventory(log, []).entries == ()


@pytest.mark.parametrize("kind", sorted(TIERED.required_parts, key=lambda kind: kind.value))
def test_a_missing_object_is_damage(kind):
    log = a_log()
    segment = log.copy(0, 9)
    found = inventory(log, archived([segment], without=(kind,)))
    assert statuses(found) == [SegmentStatus.INCOMPLETE]
    assert told(found) == [("missing-object", "damage")]
    assert found.findings[0].file.endswith(TIERED.name_of(archived([segment]).segments[0], kind)[-6:])
    by_names = take_inventory(archived([segment], without=(kind,)), TIERED)
    assert told(by_names) == [("missing-object", "damage")]


def test_a_transaction_index_is_missed_where_the_broker_says_there_is_one():
    log = a_log()
    first, second = log.copy(0, 9), log.copy(10, 19)
    log.records[2] = replace(second, has_no_transactions=False)
    assert told(inventory(log, [first, second])) == [("missing-object", "damage")]
    log.records[0] = replace(first, has_no_transactions=False)  # a broker that does not know of the flag
    assert told(inventory(log, [first, second])) == []


def test_the_size_of_a_log_is_what_the_broker_said():
    log = a_log()
    segment = log.copy(0, 9)
    found = inventory(log, archived([segment], size=999))
    assert told(found) == [("object-size", "damage")]
    assert "999 bytes, the metadata topic says 1000" in found.findings[0].detail


@pytest.mark.parametrize("custom", [None, b"garbage", b"", b"\x01\x00\x01\x80"])
def test_sizes_of_the_plugins_objects_are_compared_if_it_told_them(custom):
    log = a_log()
    segment = log.copy(0, 9, finish=False)
    update = RemoteSegmentUpdate(
        owner=OWNER, segment_id=segment.segment_id, broker_id=1, event_timestamp_ms=9, state=FINISHED
    )
    there = archived([segment], AIVEN, size=500)  # 500 + 2 * 8
    for stored, expected in ((516, []), (517, [("object-size", "damage")])):
        told_size = encode_aiven_custom_metadata(
            AivenCustomMetadata(remote_size_bytes=stored, object_key="k")
        )
        log.records[1:] = [replace(update, custom_metadata=told_size)]
        assert told(inventory(log, there, AIVEN)) == expected
    log.records[1:] = [replace(update, custom_metadata=custom)]
    assert told(inventory(log, there, AIVEN)) == []


def test_an_upload_of_the_plugin_without_a_manifest_was_interrupted():
    log = a_log()
    found = take_inventory(archived([log.copy(0, 9)], AIVEN, without=(PartKind.MANIFEST,)), AIVEN)
    assert told(found) == [("interrupted-copy", "note")]


def test_objects_of_an_unknown_segment_are_orphans():
    log = a_log()
    known = log.copy(0, 9)
    unknown = SimulatedLog(rng=random.Random(9), end=100).copy(0, 9)
    found = inventory(log, [known, unknown])
    assert told(found) == [("orphan", "note")]
    assert "missing or damaged" in inventory(log, [unknown], hides_records=True).findings[0].detail


@pytest.mark.parametrize(
    ("span", "rule"),
    [
        (OwnSpan(9, 0), "orphan"),
        (OwnSpan(19, 0), "not-compared"),  # offsets that no finished segment has
        (OwnSpan(9, 1), "not-compared"),  # a later leader than the topic has heard of
        (None, "not-compared"),  # not to be read
    ],
)
def test_an_orphan_has_nothing_that_others_do_not_have(span, rule):
    """Its objects are deleted by hand, and a topic that is older than the archive does not know what brokers read."""
    log = a_log()
    known, begun = log.copy(0, 9), log.copy(10, 19, finish=False)
    unknown = SimulatedLog(rng=random.Random(9), end=100).copy(0, 9)
    there = archived([known, begun, unknown])
    expected = Expectation(cache=cache_after(log.records))
    found = take_inventory(there, TIERED, expected, own_span=lambda _: span)
    assert [one.rule for one in found.findings if format_uuid(unknown.segment_id) in one.file] == [rule]
    again = SimulatedLog(rng=random.Random(9), end=100).copy(10, 19)  # in place of the one that was begun
    found = take_inventory(
        archived([known, begun, again]), TIERED, expected, own_span=lambda _: OwnSpan(19, 0)
    )
    assert [one.rule for one in found.findings if format_uuid(again.segment_id) in one.file] == [
        "not-compared"
    ]


def test_a_copy_made_again_after_the_log_dirs_were_read_is_no_orphan(stored_archive, tmp_path):
    """Of a real broker: it began a copy, came to a stop, and copied the segment again under another id."""
    expected = json.loads((stored_archive.root / "expected.json").read_text())["segments"]
    of_topic = {one: told for one, told in expected.items() if told["topic"] == "stuck-copy"}
    (begun,) = (one for one, told in of_topic.items() if told["states"] == ["COPY_SEGMENT_STARTED"])
    (again,) = (
        one
        for one, told in of_topic.items()
        if told["start_offset"] == of_topic[begun]["start_offset"] and one != begun
    )
    for log_dir in stored_archive.log_dirs:
        shutil.copytree(log_dir, tmp_path / log_dir.name)
    (log,) = (
        path
        for path in tmp_path.rglob("__remote_log_metadata-*/*.log")
        if read_uuid(again).bytes in path.read_bytes()
    )
    data = log.read_bytes()
    opened = LocalStore(str(log.parent)).open(log.name)
    end = next(
        batch.position for batch in read_batches(opened, pytest.fail) if read_uuid(again).bytes in batch.data
    )
    opened.close()
    log.write_bytes(data[:end])
    for path in [
        *log.parent.glob("*.index"),
        *log.parent.glob("*.timeindex"),
        *log.parent.glob("*.snapshot"),
    ]:
        path.unlink()
    for path in tmp_path.glob("*/*-checkpoint"):
        path.unlink()
    (log.parent / "leader-epoch-checkpoint").unlink()
    report = take_archive(
        ArchiveOptions(
            url=str(stored_archive.root / "remote"),
            metadata=tuple(str(tmp_path / one.name) for one in stored_archive.log_dirs),
            topics=("stuck-copy",),
        )
    )
    found = {finding.file[21:43]: finding.rule for _, finding in report.findings if finding.file}
    assert found[begun] == found[again] == "not-compared"
    assert report.exit_code == 4
    assert not {"orphan", "interrupted-copy"} & {rule for _, rule in report.rules}


def test_a_segment_after_all_that_the_topic_knows_is_newer_and_no_orphan():
    """The log dirs were copied before the archive was listed: whoever deletes orphans would delete good segments."""
    log = a_log()
    log.copy(0, 9)
    newer = SimulatedLog(rng=random.Random(9), end=100).copy(10, 19)
    found = inventory(log, [newer])
    assert ("not-compared", "unchecked") in told(found)
    assert "orphan" not in {rule for rule, _ in told(found)}
    assert "after offset 9: the log dirs may be older" in found.findings[0].detail


def test_a_name_with_another_offset_is_told():
    log = a_log()
    segment = log.copy(10, 19)
    there = archived([replace(segment, start_offset=11)])
    assert ("metadata", "damage") in told(inventory(log, there))


def test_duplicates_overlaps_and_what_is_outside():
    log = a_log()
    log.end = 30
    kept, lost = log.copy(0, 9), log.copy(10, 29)
    log.change_leader(lost=10)
    log.append(100)
    again, twice = log.copy(10, 39), log.copy(15, 60)
    below = log.copy(61, 70)
    found = inventory(log, log.announced(), epochs=tuple(log.epochs), log_start_offset=5)
    places = {one.segment_id: one.place for one in found.entries}
    assert places[format_uuid(lost.segment_id)] is LineagePlace.OUTSIDE
    assert places[format_uuid(kept.segment_id)] is places[format_uuid(below.segment_id)] is LineagePlace.READ
    assert {rule for rule, _ in told(found)} == {"outside-lineage", "overlap"}
    assert {severity for _, severity in told(found)} == {"note"}
    assert again.segment_id != twice.segment_id


def test_two_segments_of_one_offset_are_told_by_their_names():
    log = a_log()
    found = take_inventory(archived([log.copy(0, 9), log.copy(0, 19)]), TIERED)
    assert told(found) == [("duplicate", "note")]


def test_a_gap_is_damage_unless_a_deletion_left_it():
    log = a_log()
    segments = [log.copy(10 * n, 10 * n + 9) for n in range(6)]
    del log.records[2:4]  # nobody was told of the second one
    found = inventory(log, [one for one in segments if one is not segments[1]])
    assert told(found) == [("archive-gap", "damage")]
    assert "offsets 10 to 19" in found.findings[0].detail
    log.update(segments[4], DELETING)
    found = inventory(log, [one for one in segments if one is not segments[1]])
    assert sorted(told(found)) == [("archive-gap", "damage"), ("unfinished-delete", "note")]
    assert [(one.start_offset, one.end_offset) for one in found.gone] == [(40, 49)]
    found = inventory(log, [one for one in segments if one is not segments[1]], log_start_offset=45)
    assert [(one.start_offset, one.end_offset) for one in found.gone] == [(0, 49)]
    assert {rule for rule, _ in told(found)} == {"unfinished-delete", "below-log-start"}


def test_epochs_that_begin_above_the_log_start_are_newer():
    """A broker cuts its leader epochs at once, and writes the log start down once a minute."""
    log = a_log()
    segments = [log.copy(0, 9), log.copy(10, 19), log.copy(20, 29)]
    for segment in segments[:2]:
        log.update(segment, DELETING)
        log.update(segment, DELETED)
    del log.records[:]  # and their records are gone, too
    log.records += [segments[2], a_finish(segments[2])]
    epochs = (LeaderEpochEntry(0, 20),)
    assert told(inventory(log, segments[2:], epochs=epochs, log_start_offset=5)) == []
    told_late = told(inventory(log, segments[2:], epochs=(LeaderEpochEntry(0, 0),), log_start_offset=5))
    assert told_late == [("archive-gap", "damage")]


def a_finish(segment):
    return RemoteSegmentUpdate(
        owner=OWNER, segment_id=segment.segment_id, broker_id=1, event_timestamp_ms=9, state=FINISHED
    )


def test_a_gap_that_other_epochs_have_is_damage_only_where_the_epochs_are_known():
    """Epoch 1 was cut off by an unclean election; no segment of epoch 2 tells of the epoch before it."""
    log = a_log()
    log.end = 90
    first = log.copy(0, 89)
    log.epochs.append(LeaderEpochEntry(1, 90))
    log.end = 130
    other = log.copy(90, 110)
    log.epochs = [LeaderEpochEntry(0, 0)]
    mine = log.copy(90, 119)
    log.epochs.append(LeaderEpochEntry(2, 120))
    last = log.copy(120, 129)
    segments = [first, other, mine, last]
    assert told(inventory(log, segments, epochs=tuple(log.epochs))) == [("outside-lineage", "note")]
    assert {severity for _, severity in told(inventory(log, segments))} == {"note"}
    assert ("archive-gap", "note") in told(inventory(log, segments))
    log.records = [one for one in log.records if one.segment_id != mine.segment_id]
    found = inventory(log, [first, other, last], epochs=tuple(log.epochs))
    assert ("archive-gap", "damage") in told(found)


def test_epochs_older_than_the_segments_are_not_believed():
    """Log dirs that were copied before: the segments know better."""
    log = a_log(epochs=[LeaderEpochEntry(0, 0), LeaderEpochEntry(3, 15)])
    segments = [log.copy(0, 9), log.copy(10, 19), log.copy(20, 29)]
    for epochs in ((), (LeaderEpochEntry(0, 0),)):
        found = inventory(log, segments, epochs=epochs)
        assert told(found) == []
        assert [one.place for one in found.entries] == [LineagePlace.READ] * 3


# -- properties ------------------------------------------------------------------------


@given(st.integers(0, 2**40))
def test_an_archive_as_the_metadata_says_has_no_damage(seed):
    """Whatever leaders did: all finished segments are there, and those that were begun by chance."""
    rng = random.Random(seed)
    log = orderly_log(rng)
    cache = cache_after(log.records)
    there = [one for one in cache.segments.values() if one.state is FINISHED or rng.random() < 0.5]
    found = inventory(log, there, epochs=tuple(log.epochs), log_start_offset=log.start)
    gaps = [one for one in told(found) if one == ("archive-gap", "damage")]
    assert [one for one in told(found) if one[1] == "damage"] == gaps
    assert bool(gaps) == bool(found.lineage.gaps)
    assert {one.segment_id for one in found.entries} == {format_uuid(one) for one in cache.segments}


@given(st.integers(0, 2**40))
def test_without_the_logs_epochs_no_gap_is_invented(seed):
    """Elections are clean for what is tiered: leaders lose what was not copied yet, so segments tell the epochs."""
    log = orderly_log(random.Random(seed), is_clean=True)
    cache = cache_after(log.records)
    there = [one for one in cache.segments.values() if one.state is FINISHED]
    found = inventory(log, there)
    assert [one for one in told(found) if one[1] == "damage"] == []
    assert {one.place for one in found.entries} <= {
        LineagePlace.READ,
        LineagePlace.SUPERSEDED,
        LineagePlace.UNKNOWN,
    }


@given(st.integers(0, 2**40))
def test_every_segment_gets_one_status_and_every_loss_is_told(seed):
    rng = random.Random(seed)
    records = wild_records(rng)
    cache = cache_after(records)
    known = [*cache.segments.values(), *cache.deleted.values()]
    there = [one for one in known if rng.random() < 0.6]
    orphans = [replace(one, segment_id=UUID(int=n)) for n, one in enumerate(known) if rng.random() < 0.1]
    found = take_inventory(archived([*there, *orphans]), TIERED, Expectation(cache=cache))
    ids = [one.segment_id for one in found.entries]
    assert sorted(ids) == sorted(
        {format_uuid(one.segment_id) for one in [*there, *orphans]}
        | {format_uuid(one) for one in cache.segments}
    )
    lost = {
        format_uuid(one.segment_id)
        for one in cache.segments.values()
        if one.state is FINISHED and one.segment_id not in {each.segment_id for each in there}
    }
    assert {one.segment_id for one in found.entries if one.status is SegmentStatus.MISSING} == lost
    assert {one.file[21:43] for one in found.findings if one.rule == "missing-segment"} == lost
    unknown = {format_uuid(one.segment_id) for one in orphans}
    of_unknown = [one.rule for one in found.findings if one.file[21:43] in unknown]
    assert sorted(of_unknown) == sorted(
        "orphan" if one.status is SegmentStatus.ORPHAN else "not-compared"
        for one in found.entries
        if one.segment_id in unknown
    )
    assert {one.segment_id for one in found.entries if one.status is SegmentStatus.ORPHAN} <= unknown


def test_plain_copies_are_no_remote_segments(tmp_path):
    """The metadata topic has nothing to say of them: no orphans, nothing missing."""
    sample = unpack("crashed", tmp_path)
    stores = [LocalStore(str(log_dir)) for log_dir in sample.log_dirs]
    with read_remote_metadata(stores) as metadata:
        expectations = Expectations(metadata, stores)
        for walked in walk(stores[0], PLAIN):
            found = expectations.judge(walked.partition, PLAIN)
            assert found.findings == ()
            assert set(statuses(found)) <= {SegmentStatus.ARCHIVED}
        assert list(expectations.unlisted(PLAIN)) == []


# -- log dirs --------------------------------------------------------------------------


def test_log_dirs_of_another_topic_of_that_name_are_not_believed(tmp_path):
    folder = tmp_path / f"{OWNER.topic}-{OWNER.partition}"
    folder.mkdir()
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n{OWNER.topic} {OWNER.partition} 77\n")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n5 3\n")
    expectations = Expectations(None, [LocalStore(str(tmp_path))])
    for topic_id, expected in (
        (UUID(int=1), (None, None)),
        (OWNER.topic_id, (77, (LeaderEpochEntry(5, 3),))),
    ):
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(topic_id)}\n")
        found = expectations.of(WHERE)
        assert (found.log_start_offset, found.epochs) == expected
        assert found.cache is None
    (folder / "leader-epoch-checkpoint").write_text("garbage")
    assert expectations.of(WHERE).epochs is None
    assert expectations.of(replace(WHERE, topic_id="")).log_start_offset is None


def test_a_partition_without_any_record_is_not_compared_and_no_orphan():
    """Its records may be in a partition of the topic that another broker has."""
    log = a_log()
    segments = [log.copy(10 * n, 10 * n + 9) for n in range(3)]
    with RemoteMetadata() as metadata:
        for offset, record in enumerate(log.records):
            metadata.add(encode_remote_log_metadata(record), offset)
        expectations = Expectations(metadata)
        known = expectations.judge(archived(segments), TIERED)
        assert told(known) == []
        other = archived(segments)
        where = replace(other.where, partition=other.where.partition + 1)
        found = expectations.judge(replace(other, where=where), TIERED)
    assert told(found) == [("not-compared", "unchecked")]
    assert SegmentStatus.ORPHAN not in statuses(found)


def test_log_dirs_without_the_metadata_topic_are_refused(tmp_path):
    (tmp_path / "orders-0").mkdir()
    with (
        ExitStack() as stack,
        pytest.raises(UsageError, match="no partition of __remote_log_metadata is in it"),
    ):
        open_expectations([str(tmp_path)], stack)


def test_damage_of_the_metadata_topic_is_told(tmp_path):
    log = a_log()
    segments = [log.copy(10 * n, 10 * n + 9) for n in range(9)]
    logs = write_metadata(tmp_path, log.records)
    logs[0].unlink()
    with read_remote_metadata([LocalStore(str(tmp_path))]) as metadata:
        expectations = Expectations(metadata)
        found = expectations.judge(archived(segments), TIERED)
        assert set(told(found)) == {("not-compared", "unchecked")}
        assert SegmentStatus.NOT_COMPARED in statuses(found)
        (finding, *_) = expectations.findings()
        assert (finding.rule, finding.severity) == ("metadata-topic", "damage")
        assert finding.remedy
    with RemoteMetadata() as metadata:
        metadata.add(encode_remote_log_metadata(log.records[0]), 0)
        metadata.add(encode_remote_log_metadata(log.records[0]), 1)
        metadata.add(encode_remote_log_metadata(log.records[1]), 2)
        metadata.add(encode_remote_log_metadata(log.records[0]), 3)
        expectations = Expectations(metadata)
        expectations.judge(archived(segments[:1]), TIERED)
        assert [one.severity for one in expectations.findings()] == ["note"]


def test_what_the_metadata_says_is_handed_to_readers():
    log = a_log()
    segment = log.copy(0, 9)
    with RemoteMetadata() as metadata:
        for offset, record in enumerate(log.records):
            metadata.add(encode_remote_log_metadata(record), offset)
        expectations = Expectations(metadata)
        name = format_uuid(segment.segment_id)
        assert expectations.remote_segments(WHERE)[name].end_offset == 9
        assert expectations.remote_segments(replace(WHERE, partition=9)) == {}
        assert expectations.remote_segments(replace(WHERE, topic_id="")) == {}
        ((where, found),) = expectations.unlisted(TIERED)
        assert (where.topic, where.partition, where.topic_id) == (
            WHERE.topic,
            WHERE.partition,
            WHERE.topic_id,
        )
        assert TIERED.partition_at(where.prefix.rstrip("/")).prefix == where.prefix
        assert statuses(found) == [SegmentStatus.MISSING]
        assert list(expectations.unlisted(TIERED, is_chosen=lambda _: False)) == []
        aiven = Expectations(metadata)
        ((where, _),) = aiven.unlisted(AIVEN)
        assert AIVEN.partition_at(where.prefix.rstrip("/")).prefix == where.prefix
    assert Expectations().remote_segments(WHERE) == {}
