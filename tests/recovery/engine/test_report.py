"""The report: its exit code, its text for a person, its JSON for a program."""

from __future__ import annotations

import dataclasses
import json

import pytest

from recovery.broker.starting_release import StartingRelease
from recovery.engine.outcomes import PartitionResult
from recovery.engine.report import EarlierCut, LogDirReport, PartitionReport, RecoveryReport
from recovery.engine.report_text import EACH_ACTION as EACH_PARTITION_AND_ACTION
from recovery.engine.report_text import EACH_PARTITION, PROBLEMS_ALONE
from recovery.load.model import Cut, Hole
from recovery.load.release import Release
from recovery.problem import Problem
from recovery.watch.phases import PhaseTime
from tests.recovery.load.memory import task_of

TAIL = Cut(
    file="00000000000000000040.log",
    base_offset=40,
    position=1000,
    size_bytes=234,
    batch_count=2,
    rule="checksum",
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
    rule="after-cut",
    reason="after the cut in 00000000000000000040.log",
)
ZEROS = Cut(
    file="00000000000000000000.log",
    base_offset=0,
    position=7,
    size_bytes=9000,
    batch_count=0,
    rule="preallocated",
    reason="zeros of a preallocated file",
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
OFFLINE /d3: [Errno 5] Input/output error
REFUSED /d1/u-0: leader-epoch-checkpoint: no. Remedy: move it
CUT /d1/t-0: offsets from 51 on, 734 bytes, 5 batches
    00000000000000000040.log, from position 1,000 on: 234 bytes, 2 batches: a batch whose CRC does not match
    00000000000000000060.log, the whole segment: 500 bytes, 3 batches: after the cut in 00000000000000000040.log
    kept in /d1.quarantine/1
NOTE /d1/t-0: something to know
1 recovered, 1 unchanged, 1 cut, 1 refused, in 1.5 s
cut: 734 bytes, 5 batches
/d1: no clean-shutdown marker: a broker will run recovery here
/d2: a broker will skip recovery here
done for a broker of Kafka 4.3 (--release 4.3)
what was cut or replaced is kept; this puts it back: kafka-log-recovery undo --log-dirs /d1"""

PROBLEMS = TEXT.partition("1 recovered")[0].rstrip()

EACH_ACTION = """\
/d1: 4 logs
  t-0: truncated, offsets 0 to 50, 2 of 3 segments read
    save 00000000000000000060.log
    save 00000000000000000040.log from byte 1000
    rename 00000000000000000060.log to 00000000000000000060.log.deleted
  u-0: refused
  v-0: unchanged, offsets 0 to 8
  w-0: recovered, offsets 1 to 8
    00000000000000000000.log, from position 7 on: 9,000 bytes: zeros of a preallocated file
  __cluster_metadata-0: left alone
  write recovery-point-offset-checkpoint
/d2: 0 logs
/d3: 0 logs
1 recovered, 1 unchanged, 1 cut, 1 refused, in 1.5 s"""

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
            "rule": "checksum",
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
            "rule": "after-cut",
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


def test_problems_alone() -> None:
    assert FULL.to_text(PROBLEMS_ALONE) == PROBLEMS
    assert report(log_dir(partition("v-0", "recovered"))).to_text(PROBLEMS_ALONE) == ""


def test_logs_that_were_not_chosen_are_a_problem_where_they_keep_a_dir_from_being_handed_over() -> None:
    chosen, left = partition("v-0", "recovered"), "3 logs not chosen: not checked, and left as they were"
    others = ("w-0", "x-0", "y-0")
    partial = report(log_dir(chosen, status="partial", marker=False, not_chosen=others))
    assert partial.exit_code == 4
    assert partial.to_text(PROBLEMS_ALONE) == f"{left}: the same command for all logs does the rest"
    assert partial.to_text().count(left) == 1
    clean = report(log_dir(chosen, status="unchanged", not_chosen=others))
    assert clean.exit_code == 0
    assert clean.to_text(PROBLEMS_ALONE) == ""
    assert clean.to_text().splitlines().count(left) == 1


def test_each_partition_and_each_action() -> None:
    assert EACH_ACTION in FULL.to_text(EACH_PARTITION_AND_ACTION)
    assert "threads: scan 2.9 s (CPU 1.4 s), write 0.1 s (CPU 0.0 s)" in FULL.to_text(EACH_PARTITION)
    fewer = FULL.to_text(EACH_PARTITION)
    assert "  v-0: unchanged, offsets 0 to 8" in fewer
    assert "save " not in fewer
    assert "write recovery-point" not in fewer


def test_a_dry_run_says_so() -> None:
    planned = dataclasses.replace(TRUNCATED, quarantined=())
    text = report(log_dir(planned, quarantine="/d1.quarantine/1"), dry_run=True).to_text().splitlines()
    assert text[0] == "TO BE CUT /d1/t-0: offsets from 51 on, 734 bytes, 5 batches"
    assert "1 to be cut, in 1.5 s; dry run, nothing was changed" in text
    assert "to be cut: 734 bytes, 5 batches" in text
    assert text[-1] == "planned for a broker of Kafka 4.3 (--release 4.3)"


def test_two_thousand_sound_logs_and_three_problems_are_a_screen() -> None:
    """The worst comes first: what cannot be read, then what lost most."""
    sound = [partition(f"s-{number}", "recovered", scanned_bytes=6 << 20) for number in range(1997)]
    small = partition("a-0", "truncated", cuts=(TAIL,))
    large = partition("z-0", "truncated", cuts=(dataclasses.replace(TAIL, last_offset=5000),))
    lines = report(log_dir(small, *sound, REFUSED, large)).to_text().splitlines()
    assert lines[0].startswith("REFUSED /d1/u-0: ")
    assert lines[1].startswith(
        "CUT /d1/z-0: offsets 51 to 5000 (at most 4,950 records), 234 bytes, 2 batches"
    )
    assert lines[3].startswith("CUT /d1/a-0: offsets 51 to 59 (at most 9 records)")
    assert "1,997 recovered (11.7 GiB read), 2 cut, 1 refused, in 1.5 s" in lines
    assert "cut: at most 4,959 records, 468 bytes" in lines
    assert len(lines) < 24


def test_what_is_the_same_in_many_logs_is_one_line() -> None:
    problem = Problem(file="x.index", rule="file-type", detail="a folder", remedy="move it away")
    many = [partition(f"r-{number}", "refused", problems=(problem,)) for number in range(23)]
    failed = [
        partition(f"f-{number}", "failed", reasons=(f"/d1/f-{number}: [Errno 5] Input/output error",))
        for number in range(2)
    ]
    noted = [partition(f"n-{number}", "recovered", warnings=("a broker renames it",)) for number in range(5)]
    lines = report(log_dir(*many, *failed, *noted)).to_text().splitlines()
    assert lines[:3] == [
        "FAILED 2 logs (/d1/f-0, /d1/f-1): ...: [Errno 5] Input/output error",
        "REFUSED 23 logs (/d1/r-0, /d1/r-1, /d1/r-2 and 20 more): x.index: a folder. Remedy: move it away",
        "NOTE 5 logs (/d1/n-0, /d1/n-1, /d1/n-2 and 2 more): a broker renames it",
    ]
    listed = report(log_dir(*many, *noted)).to_text(EACH_PARTITION).splitlines()
    assert listed[:21] == [lines[1], *(f"    /d1/r-{number}" for number in range(3, 23))]
    assert listed[21:24] == [lines[2], "    /d1/n-3", "    /d1/n-4"]


def test_offsets_are_told_as_far_as_they_are_known() -> None:
    """What headers do not lead to the end of ends before the next cut, if there is one."""
    followed = dataclasses.replace(WHOLE, first_offset=60, last_offset=99)
    unfollowed = dataclasses.replace(TAIL, is_followed=False)
    unread = dataclasses.replace(TAIL, last_offset=-1, batch_count=0)

    def told(*cuts: Cut) -> tuple[str, str]:
        lines = report(log_dir(partition("t-0", "truncated", cuts=cuts))).to_text().splitlines()
        (total,) = (line for line in lines if line.startswith("cut: "))
        return lines[0].removeprefix("CUT /d1/t-0: "), total.removeprefix("cut: ")

    assert told(TAIL) == (
        "offsets 51 to 59 (at most 9 records), 234 bytes, 2 batches",
        "at most 9 records, 234 bytes",
    )
    assert told(unfollowed) == (
        "offsets from 51 on, 234 bytes, at least 2 batches",
        "234 bytes, at least 2 batches",
    )
    for cut, batches in ((unfollowed, "at least 5"), (unread, "3")):
        assert told(cut, followed) == (
            f"offsets 51 to 99 (at most 49 records), 734 bytes, {batches} batches",
            "at most 49 records, 734 bytes",
        )
    assert told(TAIL, dataclasses.replace(followed, is_followed=False))[0].startswith("offsets from 51 on, ")


def test_a_total_over_logs_does_not_mix_their_offsets() -> None:
    unfollowed = dataclasses.replace(TAIL, is_followed=False)
    later = dataclasses.replace(TAIL, first_offset=700, last_offset=709)
    logs = (partition("t-0", "truncated", cuts=(unfollowed,)), partition("u-0", "truncated", cuts=(later,)))
    assert "cut: 468 bytes, at least 4 batches" in report(log_dir(*logs)).to_text().splitlines()


def test_a_full_disk_is_one_line_and_a_total() -> None:
    """Logs that differ in numbers alone are together; one stands without its name twice."""

    def short(number: int) -> PartitionReport:
        rule = f"needs {150 + number},080 bytes, 4,096 free (a 4.x broker)"
        problem = Problem(file=f"/d1/x-{number}", rule="space", detail=rule, remedy="make room")
        return partition(f"x-{number}", "refused", problems=(problem,))

    full = log_dir(
        *map(short, range(15)), status="partial", marker=False, needed_bytes=9 << 20, free_bytes=4096
    )
    lines = report(full).to_text().splitlines()
    why = "needs between 150,080 and 164,080 bytes, 4,096 free (a 4.x broker). Remedy: make room"
    assert lines[0] == f"REFUSED 15 logs (/d1/x-0, /d1/x-1, /d1/x-2 and 12 more): {why}"
    assert "/d1: at most 9.00 MiB are needed there, and 4.00 KiB are free" in lines
    (alone, *_) = report(log_dir(short(0))).to_text().splitlines()
    assert alone == "REFUSED /d1/x-0: needs 150,080 bytes, 4,096 free (a 4.x broker). Remedy: make room"


def test_a_digit_of_a_path_is_no_number() -> None:
    problems = [
        Problem(file="x", rule="space", detail=f"{number},024 bytes on /q/a%2Fd1, 8 free", remedy="make room")
        for number in (635, 636)
    ]
    refused = [partition(f"x-{n}", "refused", problems=(one,)) for n, one in enumerate(problems)]
    assert report(log_dir(*refused)).to_text().splitlines()[0] == (
        "REFUSED 2 logs (/d1/x-0, /d1/x-1): x: 635,024 or 636,024 bytes on /q/a%2Fd1, 8 free. Remedy: make room"
    )


def test_many_notes_on_one_log_are_counted() -> None:
    noisy = partition("n-0", "recovered", warnings=tuple(f"producer {number} is open" for number in range(9)))
    lines = report(log_dir(noisy)).to_text().splitlines()
    assert lines[:4] == [
        *(f"NOTE /d1/n-0: producer {number} is open" for number in range(3)),
        "NOTE /d1/n-0: 6 more like these (--format json has them)",
    ]
    assert report(log_dir(noisy)).to_text(EACH_PARTITION).count("is open") == 9


def test_what_is_too_long_for_a_screen_is_counted() -> None:
    many = [partition(f"t-{number}", "truncated", cuts=(TAIL,), holes=(HOLE,)) for number in range(50)]
    text = report(log_dir(*many)).to_text()
    assert "CUT 30 more logs: 7,020 bytes (quarantine list --format json has them)" in text
    assert "MISSING in 30 more places (verify names them)" in text
    assert (
        "TO BE CUT 30 more logs: 7,020 bytes (-v lists them)"
        in report(log_dir(*many), dry_run=True).to_text()
    )
    assert report(log_dir(*many)).to_text(EACH_PARTITION).count("CUT /d1/t-") == 50


def earlier_cut(folder: str, *cuts: Cut) -> EarlierCut:
    run = "/d1.quarantine/1"
    return EarlierCut(
        partition=folder, time_ms=1_700_000_000_000, quarantine=run, kept_in=run, cuts=cuts, is_made=True
    )


def test_what_earlier_runs_have_cut_is_told_like_what_this_one_has() -> None:
    """Worst first, with offsets, and with the way back, in a dry run too."""
    large = dataclasses.replace(TAIL, size_bytes=65456, last_offset=5000)
    unknown = EarlierCut(partition="", time_ms=0, quarantine=None)
    told = (earlier_cut("a-0", TAIL), earlier_cut("b-0", large, TAIL), unknown)
    text = report(log_dir(earlier_cuts=told), dry_run=True).to_text().splitlines()
    when = "cut by an earlier run, at 2023-11-14T22:13:20Z"
    reason = "a batch whose CRC does not match"
    assert text[0].startswith("EARLIER /d1: cut by an earlier run: not all of ")
    assert text[1:8] == [
        f"EARLIER /d1/b-0: {when}: offsets 51 to 5000 (at most 4,959 records), 65,690 bytes, 4 batches",
        f"    {TAIL.file}, from position 1,000 on: 65,456 bytes, 2 batches: {reason}",
        f"    {TAIL.file}, from position 1,000 on: 234 bytes, 2 batches: {reason}",
        "    kept in /d1.quarantine/1",
        f"EARLIER /d1/a-0: {when}: offsets 51 to 59 (at most 9 records), 234 bytes, 2 batches",
        f"    {TAIL.file}, from position 1,000 on: {reason}",
        "    kept in /d1.quarantine/1",
    ]
    assert text[-1].endswith("kafka-log-recovery undo --log-dirs /d1")
    assert str(told[1]).endswith(": 65,690 bytes, 4 batches; kept in /d1.quarantine/1")
    many = report(log_dir(earlier_cuts=tuple(earlier_cut(f"t-{number}", TAIL) for number in range(50))))
    rest = "EARLIER 30 more losses: 7,020 bytes (quarantine list --format json has them)"
    assert rest in many.to_text()
    assert many.to_text(EACH_PARTITION).count("EARLIER /d1/t-") == 50


def test_undo_as_it_is_to_be_typed() -> None:
    """With the folder of quarantine if it was given; quoted where a shell would see more words than one."""
    beside = log_dir(TRUNCATED, path="/my data", quarantine="/my data.quarantine/1")
    given = log_dir(TRUNCATED, path="/d2", quarantine="/q/d2/1")
    kept = "what was cut or replaced is kept; this puts it back: kafka-log-recovery undo"
    assert report(beside, given).to_text().splitlines()[-2:] == [
        f"{kept} --log-dirs '/my data'",
        f"{kept} --log-dirs /d2 --quarantine-dir /q",
    ]


def test_a_marker_over_what_is_refused_promises_nothing() -> None:
    text = report(log_dir(REFUSED, status="partial", marker=True)).to_text().splitlines()
    assert "/d1: the clean-shutdown marker stays, but a broker may halt on what is refused" in text

    full = Problem(file="x", rule="space", detail="no room", remedy="make room")
    alone = dataclasses.replace(REFUSED, problems=(full,))
    text = report(log_dir(alone, status="partial", marker=True)).to_text().splitlines()
    assert "/d1: a broker will skip recovery here" in text


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
        "notChosen": [],
        "actions": ["write recovery-point-offset-checkpoint"],
        "warnings": [],
        "notes": [],
        "neededBytes": 0,
        "freeBytes": 0,
        "quarantineNeededBytes": 0,
        "quarantineFreeBytes": 0,
        "earlierCuts": [],
    }
    assert second["partitions"] == []
    assert third["error"] == "/d3: [Errno 5] Input/output error"


def test_preallocated_zeros_are_no_loss() -> None:
    zeros = partition("w-0", "recovered", cuts=(ZEROS, TAIL))
    assert (zeros.truncated_bytes, zeros.truncated_batches) == (234, 2)
    assert report(log_dir(partition("w-0", "recovered", cuts=(ZEROS,)))).to_text(PROBLEMS_ALONE) == ""


def test_holes_are_told_of_partitions_that_lost_nothing() -> None:
    told = report(log_dir(partition("w-0", "unchanged", holes=(HOLE,))))
    missing = "MISSING /d1/w-0: offsets 155 to 194 are missing before 00000000000000000195.log"
    assert told.to_text().splitlines()[0] == missing
    (found,) = json.loads(told.to_json())["logDirs"][0]["partitions"]
    assert found["holes"] == [
        {
            "firstOffset": 155,
            "lastOffset": 194,
            "before": "00000000000000000195.log",
            "position": 0,
            "isHidden": False,
            "isAtEnd": False,
        }
    ]


def test_a_cut_of_some_batches_is_not_called_a_whole_segment() -> None:
    scattered = dataclasses.replace(WHOLE, is_scattered=True)
    text = report(log_dir(partition("w-0", "truncated", cuts=(scattered,)))).to_text()
    assert "00000000000000000060.log, from position 0 on: " in text


@pytest.mark.parametrize("is_old", [False, True])
def test_the_journal_keeps_cuts_and_holes(is_old: bool) -> None:
    """One that an earlier version wrote has fewer fields."""
    task = task_of({})
    made = dataclasses.replace(TRUNCATED, holes=() if is_old else (HOLE,))
    document = PartitionResult(task=task, bounds=None, report=made, is_changed=True).to_json()
    if is_old:
        del document["report"]["holes"]
        for cut in document["report"]["cuts"]:
            del cut["is_scattered"], cut["is_followed"]
    assert PartitionResult.from_json(task, json.loads(json.dumps(document))).report == made


def test_partitions_of_all_dirs_in_order() -> None:
    both = report(log_dir(TRUNCATED), log_dir(REFUSED, path="/d2"))
    assert both.partitions == (TRUNCATED, REFUSED)


def test_a_log_dir_that_does_not_start() -> None:
    """Its own name stands once."""
    first = Problem(file="/d1", rule="read-only", detail="mounted read-only", remedy="mount it read-write")
    second = Problem(file="backup", rule="foreign-folder", detail="a foreign folder", remedy="move it away")
    offline = log_dir(REFUSED, status="offline", marker=False, error="/d1: ...", problems=(first, second))
    assert report(offline).to_text().splitlines()[:3] == [
        "OFFLINE /d1: mounted read-only. Remedy: mount it read-write",
        "    backup: a foreign folder. Remedy: move it away",
        "    what was not reached is as it was",
    ]


def test_the_same_of_several_log_dirs_is_one_line() -> None:
    def read_only(path: str) -> LogDirReport:
        problem = Problem(
            file=path, rule="read-only", detail="mounted read-only", remedy="mount it read-write"
        )
        return log_dir(path=path, status="offline", marker=False, error=f"{path}: ...", problems=(problem,))

    lines = report(read_only("/d1"), log_dir(path="/d2"), read_only("/d3")).to_text().splitlines()
    assert lines[0] == "OFFLINE /d1, /d3: mounted read-only. Remedy: mount it read-write"


def test_what_is_wrong_with_a_log_dir_fits_a_screen() -> None:
    foreign = [
        Problem(
            file=f"backup-{n:02}", rule="foreign-folder", detail="a foreign folder", remedy="move it away"
        )
        for n in range(30)
    ]
    other = [
        Problem(file=f"f{n}", rule="checkpoint", detail=f"line {n}", remedy="restore it") for n in range(40)
    ]
    found = report(log_dir(status="partial", problems=(*foreign, *other)))
    lines = found.to_text(PROBLEMS_ALONE).splitlines()
    assert lines[0] == (
        "PROBLEM /d1: backup-00, backup-01, backup-02 and 27 more: a foreign folder. Remedy: move it away"
    )
    assert (len(lines), lines[-1]) == (22, "    20 more problems (-v lists them)")
    assert "    f39: line 39. Remedy: restore it" in found.to_text(EACH_PARTITION).splitlines()


@pytest.mark.parametrize(
    ("fields", "is_told"),
    [({}, False), ({"status": "partial"}, True), ({"status": "interrupted", "error": "stopped"}, True)],
)
def test_room_is_no_matter_once_all_is_done(fields: dict[str, str], is_told: bool) -> None:
    text = report(log_dir(needed_bytes=3 << 20, free_bytes=1 << 20, **fields)).to_text()
    assert ("/d1: at most 3.00 MiB are needed there, and 1.00 MiB are free" in text) is is_told


def test_nothing_found() -> None:
    assert "no log was found, in 1.5 s" in report(log_dir()).to_text().splitlines()
    ended = dataclasses.replace(report(log_dir()), signal_exit_code=143)
    assert "interrupted before any log was recovered, in 1.5 s" in ended.to_text().splitlines()


def test_what_has_not_ended_is_not_called_done() -> None:
    offline = log_dir(path="/d2", status="offline", marker=False, error="/d2: Input/output error")
    assert report(offline).to_text().splitlines() == [
        "OFFLINE /d2: Input/output error",
        "no log was looked at, in 1.5 s",
    ]
    assert "done for a broker" in report(log_dir(TRUNCATED), offline).to_text()
    ended = report(log_dir(TRUNCATED, status="interrupted", marker=False), signal_exit_code=143).to_text()
    assert "\nbegun for a broker of Kafka 4.3 (--release 4.3)\n" in ended
    assert "done for" not in ended


def test_more_segments_were_read_than_are_left() -> None:
    text = report(log_dir(dataclasses.replace(TRUNCATED, recovered_segments=4, segment_count=1)))
    assert "t-0: truncated, offsets 0 to 50, 4 segments read, 1 left" in text.to_text(EACH_PARTITION)


@pytest.mark.parametrize(("dry_run", "word"), [(True, "to be removed"), (False, "removed")])
def test_deleted_files_are_there_after_a_dry_run(dry_run: bool, word: str) -> None:
    pending = partition("v-0", "unchanged", pending_deletion_count=2, pending_deletion_bytes=2048)
    text = report(log_dir(pending), dry_run=dry_run).to_text(EACH_PARTITION)
    assert f"1 unchanged, 2 .deleted files (2.00 KiB) {word}, in 1.5 s" in text
    assert f"v-0: unchanged, 2 .deleted files (2,048 bytes) {word}" in text


def test_an_empty_log_has_no_offsets() -> None:
    empty = partition("v-0", "unchanged", log_start_offset=7, log_end_offset=7)
    assert "  v-0: unchanged, empty, the next offset is 7" in report(log_dir(empty)).to_text(EACH_PARTITION)


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


@pytest.mark.parametrize(
    ("status", "error"), [("offline", "/d2/u-0: Input/output error"), ("interrupted", "")]
)
def test_no_undo_is_offered_of_what_is_not_finished(status: str, error: str) -> None:
    """It would be refused: the journal is still there."""
    unfinished = log_dir(
        TRUNCATED, path="/d2", status=status, marker=False, error=error, quarantine="/d2.quarantine/1"
    )
    finished = log_dir(TRUNCATED, quarantine="/d1.quarantine/1")
    lines = report(finished, unfinished).to_text().splitlines()
    assert [line for line in lines if " is kept" in line] == [
        "what was cut or replaced is kept; this puts it back: kafka-log-recovery undo --log-dirs /d1",
        "/d2: what was cut or replaced is kept; undo puts it back once the same command has finished",
    ]


def test_what_a_run_had_cut_before_it_was_interrupted_is_not_to_be_cut() -> None:
    """A dry run that goes on: the bytes of one log are in quarantine already."""
    planned = dataclasses.replace(TRUNCATED, folder="u-0", quarantined=())
    found = report(log_dir(TRUNCATED, planned, quarantine="/d1.quarantine/1", is_begun=True), dry_run=True)
    text = found.to_text().splitlines()
    assert [line for line in text if "CUT" in line] == [
        "CUT /d1/t-0: offsets from 51 on, 734 bytes, 5 batches",
        "TO BE CUT /d1/u-0: offsets from 51 on, 734 bytes, 5 batches",
    ]
    assert [line for line in text if line.startswith(("cut: ", "to be cut: "))] == [
        "cut: 734 bytes, 5 batches",
        "to be cut: 734 bytes, 5 batches",
    ]
    assert "1 cut, 1 to be cut, in 1.5 s; dry run, nothing was changed" in text


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_dry_run_names_an_undo_only_where_it_can_be_done(is_begun: bool) -> None:
    earlier = earlier_cut("t-0", TAIL)
    found = report(log_dir(earlier_cuts=(earlier,), is_begun=is_begun), dry_run=True)
    assert ("kafka-log-recovery undo" in found.to_text()) == (not is_begun)


def test_repairs_come_after_losses_and_are_counted() -> None:
    moves = [
        f"move t-{n}/x{n}.log to quarantine: 'x{n}' before the first dot is not an offset" for n in range(9)
    ]
    found = report(log_dir(TRUNCATED, repairs=(*moves, "move odd to quarantine: foreign")))
    text = found.to_text().splitlines()
    assert text[0].startswith("CUT ")
    repaired = [line for line in text if line.startswith("REPAIRED ")]
    assert repaired == [
        *(f"REPAIRED /d1: {move}" for move in moves[:3]),
        "REPAIRED /d1: 6 more like these (-v lists them)",
        "REPAIRED /d1: move odd to quarantine: foreign",
    ]
    assert found.to_text(EACH_PARTITION).count("REPAIRED ") == 10
    assert "REPAIRED" not in found.to_text(PROBLEMS_ALONE)


def test_folders_that_are_no_logs_are_called_folders() -> None:
    foreign = Problem(file="backup", rule="foreign-folder", detail="foreign", remedy="move it away")
    refused = [
        PartitionReport(
            log_dir="/d1", folder=name, status="refused", problems=(dataclasses.replace(foreign, file=name),)
        )
        for name in ("backup", "lost+found")
    ]
    text = report(log_dir(*refused, status="partial")).to_text(EACH_PARTITION)
    assert text.startswith(
        "REFUSED 2 folders (/d1/backup, /d1/lost+found): foreign. Remedy: move it away\n/d1: 2 f"
    )


def test_deleted_files_that_are_kept_are_not_called_removed() -> None:
    pending = partition("t-0", "recovered", pending_deletion_count=1, pending_deletion_bytes=7)
    for dry_run, words in ((False, "moved to quarantine"), (True, "to be moved to quarantine")):
        text = report(log_dir(pending), keep_deleted=True, dry_run=dry_run).to_text(EACH_PARTITION)
        assert text.count(f" {words}") == 2
        assert "removed" not in text


def _refused(folder: str, *problems: Problem) -> PartitionReport:
    return partition(folder, "refused", problems=problems)


def test_the_same_problem_of_many_files_is_one_line() -> None:
    def problem(folder: str, file: str) -> Problem:
        return Problem(
            file=file,
            rule="access",
            detail="may not be read",
            remedy=f"chown kafka:kafka /d1/{folder}/{file}",
            remedy_below="chown -R kafka:kafka",
        )

    one = _refused("t-0", *(problem("t-0", f"{n}.log") for n in range(5)))
    (line,) = (line for line in report(log_dir(one)).to_text().splitlines() if line.startswith("REFUSED "))
    assert line == (
        "REFUSED /d1/t-0: 0.log, 1.log, 2.log and 2 more: may not be read. Remedy: chown -R kafka:kafka /d1/t-0"
    )
    others = [_refused(f"u-{n}", problem(f"u-{n}", "0.log"), problem(f"u-{n}", "1.log")) for n in range(4)]
    (line,) = (line for line in report(log_dir(*others)).to_text().splitlines() if "REFUSED" in line)
    assert line == (
        "REFUSED 4 logs (/d1/u-0, /d1/u-1, /d1/u-2 and 1 more): 0.log, 1.log: may not be read. Remedy: chown -R "
        "kafka:kafka /d1"
    )
    listed = report(log_dir(*others)).to_text(EACH_PARTITION).splitlines()
    assert listed[1:5] == [f"    /d1/u-{n}: 0.log, 1.log" for n in range(4)]


def test_of_different_problems_in_several_logs_each_has_its_file() -> None:
    def problems(folder: str) -> tuple[Problem, ...]:
        details = {folder: "no checkpoint", "foo.log": "'foo' is no number", "bar.log": "'bar' is no number"}
        remedies = dict.fromkeys(("foo.log", "bar.log"), "move the file away")
        return tuple(
            Problem(file=file, rule="file-name", detail=detail, remedy=remedies.get(file, "make one"))
            for file, detail in details.items()
        )

    logs = [_refused(folder, *problems(folder)) for folder in ("t-0", "t-1")]
    (line,) = (line for line in report(log_dir(*logs)).to_text().splitlines() if "REFUSED" in line)
    assert line == (
        "REFUSED 2 logs (/d1/t-0, /d1/t-1): no checkpoint. Remedy: make one; foo.log: 'foo' is no number; "
        "bar.log: 'bar' is no number. Remedy: move the file away"
    )


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([7, 7], "offset 7 does"),
        ([370, 0], "offset 0 or 370 does"),
        ([1200, 0, 370], "offset between 0 and 1,200 does"),
    ],
)
def test_numbers_that_differ_are_not_a_range_of_offsets(numbers: list[int], words: str) -> None:
    problems = [
        Problem(file="a", rule="offset-order", detail=f"offset {number:,} does not fit", remedy="look")
        for number in numbers
    ]
    refused = [_refused(f"t-{n}", problem) for n, problem in enumerate(problems)]
    names = ", ".join(f"/d1/t-{n}" for n in range(len(numbers)))
    assert f"REFUSED {len(numbers)} logs ({names}): a: {words} not fit" in report(log_dir(*refused)).to_text()


def test_commands_of_two_places_come_in_the_order_in_which_they_work() -> None:
    """The run of a killed process may have the name of the one that follows it within a second."""
    earlier = dataclasses.replace(earlier_cut("t-0", TAIL), time_ms=1, kept_in="/q/d1/1")
    changed = partition("u-0", "recovered", actions=("remove x",))
    found = report(
        log_dir(changed, quarantine="/d1.quarantine/1", earlier_cuts=(earlier,)),
        log_dir(path="/d2", earlier_cuts=(dataclasses.replace(earlier, kept_in="/q/d2/1"),)),
    )
    commands = [
        line.partition("kafka-log-recovery ")[2] for line in found.to_text().splitlines() if " undo " in line
    ]
    assert commands == ["undo --log-dirs /d1", "undo --log-dirs /d1,/d2 --quarantine-dir /q"]
