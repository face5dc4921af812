"""The report: its exit code, its text for a person, its JSON for a program."""

from __future__ import annotations

import dataclasses
import json

import pytest

from recovery.broker.starting_release import StartingRelease
from recovery.engine.outcomes import PartitionResult
from recovery.engine.report import LogDirReport, PartitionReport, RecoveryReport
from recovery.load.model import Cut, Hole
from recovery.load.release import Release
from recovery.watch.phases import PhaseTime
from tests.recovery.load.memory import task_of

TAIL = Cut(
    file="00000000000000000040.log",
    base_offset=40,
    position=1000,
    size_bytes=234,
    batch_count=2,
    reason="a batch whose CRC does not match",
    first_offset=51,
    last_offset=59,
)
WHOLE = Cut(
    file="00000000000000000060.log",
    base_offset=60,
    position=0,
    size_bytes=500,
    batch_count=3,
    reason="after the cut in 00000000000000000040.log",
)
ZEROS = Cut(
    file="00000000000000000000.log",
    base_offset=0,
    position=7,
    size_bytes=9000,
    batch_count=0,
    reason="preallocated and never written",
    is_preallocated=True,
)


HOLE = Hole(first_offset=155, last_offset=194, before="00000000000000000195.log")


def partition(folder: str, status: str, **fields: object) -> PartitionReport:
    topic, _, number = folder.rpartition("-")
    return PartitionReport(
        **({"log_dir": "/d1", "folder": folder, "topic": topic, "partition": int(number)} | fields),
        status=status,
    )


def log_dir(*partitions: PartitionReport, path: str = "/d1", **fields: object) -> LogDirReport:
    defaults = {"status": "recovered", "had_clean_shutdown": False, "marker": True}
    return LogDirReport(**({"log_dir": path, "partitions": partitions} | defaults | fields))


def report(*log_dirs: LogDirReport, **fields: object) -> RecoveryReport:
    defaults = {"dry_run": False, "now_ms": 1_700_000_000_000, "duration_ms": 1500, "cpu_path": "portable"}
    defaults |= {
        "kernel_origin": "cache",
        "release": StartingRelease(release=Release.KAFKA_4_3, origin="--release 4.3"),
    }
    return RecoveryReport(**({"log_dirs": log_dirs} | defaults | fields))


TRUNCATED = partition(
    "t-0",
    "truncated",
    segment_count=3,
    recovered_segments=2,
    scanned_bytes=1734,
    recovered_bytes=1000,
    log_start_offset=0,
    log_end_offset=51,
    cuts=(TAIL, WHOLE),
    actions=("rename 00000000000000000060.log to 00000000000000000060.log.deleted",),
    to_quarantine=("00000000000000000060.log", "00000000000000000040.log from byte 1000"),
    quarantined=("/d1.quarantine/1/t-0/00000000000000000060.log",),
    reasons=(TAIL.reason, WHOLE.reason),
    warnings=("something to know",),
)
REFUSED = partition("u-0", "refused", reasons=("leader-epoch-checkpoint: no. Remedy: move it",))
FULL = report(
    log_dir(
        TRUNCATED,
        REFUSED,
        partition("v-0", "unchanged", log_start_offset=0, log_end_offset=9),
        partition("w-0", "recovered", log_start_offset=1, log_end_offset=9, cuts=(ZEROS,), segment_count=1),
        status="partial",
        marker=False,
        actions=("write recovery-point-offset-checkpoint",),
        quarantine="/d1.quarantine/1",
        passed_over=("__cluster_metadata-0",),
    ),
    log_dir(path="/d2", status="unchanged", had_clean_shutdown=True),
    log_dir(path="/d3", status="offline", marker=False, error="/d3: [Errno 5] Input/output error"),
    phases=(
        PhaseTime(phase="scan", thread_ms=2900, cpu_ms=1400),
        PhaseTime(phase="write", thread_ms=70, cpu_ms=3),
    ),
)

TEXT = """\
/d1: 1 truncated, 1 refused, 1 unchanged, 1 recovered; no clean-shutdown marker: a broker will check this dir
  t-0: truncated, offsets 0 to 51, 2 of 3 segments read
    00000000000000000040.log from byte 1000: 234 bytes, 2 batches: a batch whose CRC does not match
    00000000000000000060.log whole segment: 500 bytes, 3 batches: after the cut in 00000000000000000040.log
    note: something to know
  u-0: refused
    leader-epoch-checkpoint: no. Remedy: move it
  w-0: recovered, offsets 1 to 9
    00000000000000000000.log from byte 7: 9000 bytes, 0 batches: preallocated and never written
  __cluster_metadata-0: left alone
  write recovery-point-offset-checkpoint
  quarantine: /d1.quarantine/1
/d2: nothing to recover, nothing changed
/d3: offline; what was not reached is as it was
  /d3: [Errno 5] Input/output error
done for a broker of Kafka 4.3 (--release 4.3)
took 1.5 s; of all threads: scan 2.9 s, write 0.1 s
4 partitions: 1 truncated, 1 refused, 1 unchanged, 1 recovered
734 bytes (5 batches) are cut off and kept in quarantine"""

JSON_PARTITION = {
    "partition": "t-0",
    "status": "truncated",
    "segments": {"total": 3, "recovered": 2},
    "bytes": {"scanned": 1734, "recovered": 1000},
    "logStartOffset": 0,
    "logEndOffset": 51,
    "truncatedBytes": 734,
    "truncatedBatches": 5,
    "pendingDeletions": {"files": 0, "bytes": 0},
    "cuts": [
        {
            "file": "00000000000000000040.log",
            "baseOffset": 40,
            "position": 1000,
            "bytes": 234,
            "batches": 2,
            "firstOffset": 51,
            "lastOffset": 59,
            "reason": "a batch whose CRC does not match",
        },
        {
            "file": "00000000000000000060.log",
            "baseOffset": 60,
            "position": 0,
            "bytes": 500,
            "batches": 3,
            "firstOffset": None,
            "lastOffset": None,
            "reason": "after the cut in 00000000000000000040.log",
        },
    ],
    "holes": [],
    "actions": ["rename 00000000000000000060.log to 00000000000000000060.log.deleted"],
    "toQuarantine": ["00000000000000000060.log", "00000000000000000040.log from byte 1000"],
    "quarantined": ["/d1.quarantine/1/t-0/00000000000000000060.log"],
    "reasons": ["a batch whose CRC does not match", "after the cut in 00000000000000000040.log"],
    "problems": [],
    "warnings": ["something to know"],
}


def test_text() -> None:
    assert FULL.to_text() == TEXT


def test_a_dry_run_says_so_in_every_place() -> None:
    text = report(log_dir(TRUNCATED), dry_run=True).to_text().splitlines()
    assert text[0] == "/d1: 1 truncated; a broker will skip recovery here (dry run)"
    assert text[-2] == "1 partitions: 1 truncated (dry run: nothing was changed)"
    assert text[-1] == "734 bytes (5 batches) would be cut off and kept in quarantine"


def test_a_marker_over_what_is_refused_promises_nothing() -> None:
    text = report(log_dir(REFUSED, status="partial", marker=True)).to_text().splitlines()
    assert (
        text[0] == "/d1: 1 refused; the clean-shutdown marker stays, but a broker may halt on what is refused"
    )


def test_json() -> None:
    document = json.loads(FULL.to_json())
    assert {key: value for key, value in document.items() if key != "logDirs"} == {
        "version": 1,
        "dryRun": False,
        "release": {"name": "4.3", "origin": "--release 4.3"},
        "exitCode": 4,
        "nowMs": 1_700_000_000_000,
        "durationMs": 1500,
        "kernels": {"cpuPath": "portable", "origin": "cache"},
        "notes": [],
        "phases": [
            {"phase": "scan", "threadMs": 2900, "cpuMs": 1400},
            {"phase": "write", "threadMs": 70, "cpuMs": 3},
        ],
    }
    first, second, third = document["logDirs"]
    assert first["partitions"][0] == JSON_PARTITION
    assert {key: value for key, value in first.items() if key != "partitions"} == {
        "logDir": "/d1",
        "status": "partial",
        "error": None,
        "problems": [],
        "hadCleanShutdown": False,
        "cleanShutdownMarker": False,
        "quarantine": "/d1.quarantine/1",
        "leftAlone": ["__cluster_metadata-0"],
        "actions": ["write recovery-point-offset-checkpoint"],
        "warnings": [],
        "notes": [],
        "neededBytes": 0,
        "freeBytes": 0,
        "earlierCuts": [],
    }
    assert second["partitions"] == []
    assert third["error"] == "/d3: [Errno 5] Input/output error"


def test_preallocated_zeros_are_no_loss() -> None:
    zeros = partition("w-0", "recovered", cuts=(ZEROS, TAIL))
    assert (zeros.truncated_bytes, zeros.truncated_batches) == (234, 2)
    assert "cut off" not in report(log_dir(partition("w-0", "recovered", cuts=(ZEROS,)))).to_text()


def test_holes_are_told_of_partitions_that_lost_nothing() -> None:
    told = report(log_dir(partition("w-0", "unchanged", holes=(HOLE,))))
    assert "    offsets 155 to 194 are missing before 00000000000000000195.log" in told.to_text().splitlines()
    assert told.to_text().splitlines()[-1] == "offsets are missing in 1 partition"
    (found,) = json.loads(told.to_json())["logDirs"][0]["partitions"]
    assert found["holes"] == [
        {"firstOffset": 155, "lastOffset": 194, "before": "00000000000000000195.log", "position": 0}
    ]


def test_a_cut_of_some_batches_is_not_called_a_whole_segment() -> None:
    scattered = dataclasses.replace(WHOLE, is_scattered=True)
    text = report(log_dir(partition("w-0", "truncated", cuts=(scattered,)))).to_text()
    assert "00000000000000000060.log from byte 0: 500 bytes, 3 batches" in text


@pytest.mark.parametrize("is_old", [False, True])
def test_the_journal_keeps_cuts_and_holes(is_old: bool) -> None:
    """One that an earlier version wrote has fewer fields."""
    task = task_of({})
    made = dataclasses.replace(TRUNCATED, holes=() if is_old else (HOLE,))
    document = PartitionResult(task=task, bounds=None, report=made, is_changed=True).to_json()
    if is_old:
        del document["report"]["holes"]
        for cut in document["report"]["cuts"]:
            del cut["is_scattered"]
    assert PartitionResult.from_json(task, json.loads(json.dumps(document))).report == made


def test_partitions_of_all_dirs_in_order() -> None:
    both = report(log_dir(TRUNCATED), log_dir(REFUSED, path="/d2"))
    assert both.partitions == (TRUNCATED, REFUSED)


def test_nothing_found() -> None:
    assert report(log_dir()).to_text().splitlines()[-1] == "0 partitions: nothing found"
    ended = dataclasses.replace(report(log_dir()), signal_exit_code=143)
    assert ended.to_text().splitlines()[-1] == "0 partitions: interrupted before any was recovered"


def test_more_segments_were_read_than_are_left() -> None:
    text = report(log_dir(dataclasses.replace(TRUNCATED, recovered_segments=4, segment_count=1))).to_text()
    assert "t-0: truncated, offsets 0 to 51, 4 segments read, 1 left" in text


class TestExitCode:
    @pytest.mark.parametrize(
        ("log_dirs", "code"),
        [
            ((), 0),
            ((log_dir(status="unchanged"),), 0),
            ((log_dir(partition("t-0", "recovered")),), 0),
            ((log_dir(TRUNCATED),), 2),
            ((log_dir(partition("w-0", "recovered", holes=(HOLE,))),), 2),
            ((log_dir(partition("w-0", "recovered", cuts=(ZEROS,))),), 0),
            ((log_dir(REFUSED, status="partial"),), 4),
            ((log_dir(TRUNCATED, REFUSED, status="partial"),), 4),
            ((log_dir(status="offline"),), 1),
            ((log_dir(status="offline"), log_dir(status="offline", path="/d2")), 1),
            ((log_dir(status="offline"), log_dir(TRUNCATED, path="/d2")), 4),
            ((log_dir(status="offline"), log_dir(status="unchanged", path="/d2")), 4),
        ],
        ids=[
            "no dirs", "unchanged", "recovered", "truncated", "holes", "preallocated", "refused",
            "refused and truncated",
            "offline", "all offline", "offline and truncated", "offline and unchanged",
        ],
    )  # fmt: skip
    def test_of_a_run(self, log_dirs: tuple[LogDirReport, ...], code: int) -> None:
        assert report(*log_dirs).exit_code == code

    @pytest.mark.parametrize("code", [130, 143])
    def test_a_signal_comes_first(self, code: int) -> None:
        assert dataclasses.replace(FULL, signal_exit_code=code).exit_code == code
