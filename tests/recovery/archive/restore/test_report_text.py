"""The report of a restore for people: what is wrong first, and what is the same said once."""

from __future__ import annotations

from recovery.archive.restore.report import RestoredLogDir, RestoredPartition, RestoreReport, Status


def partition(number: int, status: Status, **fields: object) -> RestoredPartition:
    there = {
        "log_dir": "/d1",
        "segments": 2,
        "size_bytes": 1 << 30,
        "log_start_offset": 0,
        "log_end_offset": 10,
    }
    return RestoredPartition(
        topic="t",
        partition=number,
        topic_id="id",
        mode="full",
        status=status,
        **({} if status in ("refused", "failed") else there) | fields,  # type: ignore[arg-type]  # by name
    )


def report_of(*partitions: RestoredPartition, **fields: object) -> RestoreReport:
    log_dir = RestoredLogDir(
        log_dir="/d1",
        is_cordoned=False,
        needed_bytes=3 << 30,
        usable_bytes=9 << 30,
        quarantine="/d1.quarantine/1",
    )
    return RestoreReport(
        **{"dry_run": False, "log_dirs": [log_dir], "partitions": partitions} | fields,  # type: ignore[arg-type]  # by name
    )


SOUND = report_of(*(partition(number, "restored") for number in range(2000)))
MIXED = report_of(
    *(partition(number, "restored") for number in range(40)),
    *(partition(number, "restored", warnings=("w",)) for number in range(40, 45)),
    partition(45, "unchanged", warnings=("own",)),
    partition(46, "restored", retained=(3, 1 << 20)),
    *(partition(number, "refused", reasons=("r", "s")) for number in range(50, 73)),
    partition(80, "failed", reasons=("f",)),
    warnings=("of all",),
)
PROBLEMS = [
    "FAILED t-80: f",
    "REFUSED 23 partitions (t-50, t-51, t-52 and 20 more): r; s",
    "RETENTION deletes 3 segments, 1.00 MiB, within minutes of the broker's start: t-46. Remedy: raise retention.ms "
    "and retention.bytes of the topics before",
    "WARNING 5 partitions (t-40, t-41, t-42 and 2 more): w",
    "WARNING t-45: own",
    "WARNING of all",
]
REST = [
    "/d1: 3.00 GiB needed, 9.00 GiB usable",
    "71 partitions: 46 restored (46.0 GiB), 1 there already (1.00 GiB), 23 refused, 1 failed. A broker that is started "
    "now begins empty what is not there, or fetches it from other replicas.",
    "this takes it back: kafka-log-recovery undo --log-dirs /d1",
]


def test_what_is_sound_is_counted() -> None:
    assert SOUND.to_text().splitlines() == [
        REST[0],
        "2,000 partitions: 2,000 restored (1.95 TiB). Start the broker now.",
        REST[2],
    ]
    assert SOUND.to_text(-1) == ""


def test_problems_come_first_each_once() -> None:
    assert MIXED.to_text().splitlines() == [*PROBLEMS, *REST]
    assert MIXED.to_text(-1).splitlines() == PROBLEMS


def test_each_partition_is_named_when_asked_for() -> None:
    lines = MIXED.to_text(1).splitlines()
    assert ", ".join(f"t-{number}" for number in range(50, 73)) in lines[1]
    assert "t-0: restored in /d1 (full): 2 segments, 1.00 GiB, offsets 0 to 9" in lines
    assert "t-45: there already in /d1 (full): 2 segments, 1.00 GiB, offsets 0 to 9" in lines
    assert lines[-3:] == REST


def test_a_dry_run_says_what_would_be() -> None:
    text = report_of(partition(0, "restored"), dry_run=True).to_text(1)
    assert "t-0: to be restored in /d1" in text
    assert "1 partition: 1 to be restored (1.00 GiB). Nothing was written (dry run)." in text


def test_an_interruption_and_a_copy_in_part_come_before_all() -> None:
    lines = report_of(partition(0, "failed", reasons=("f",)), signal_number=15, in_part=("d1: x",)).to_text(
        -1
    )
    assert lines.splitlines() == [
        "INTERRUPTED by signal 15: start again to resume",
        "NOT WHOLE d1: x",
        "FAILED t-0: f",
    ]


def test_an_early_interruption_does_not_say_that_there_is_nothing_to_do() -> None:
    text = report_of(signal_number=2).to_text()
    assert "nothing to do" not in text
    assert "Interrupted before it was known what is to be restored" in text


def test_what_is_next_depends_on_what_else_is_there() -> None:
    def text(**fields: object) -> str:
        return report_of(partition(0, "restored"), **fields).to_text()

    assert "Start the broker now." in text()
    assert "Read the warnings, then start the broker." in text(warnings=["late-0: went on"])
    unclean = text(unclean_dirs=["/d 1", "/d2"])
    assert "tart the broker now" not in unclean
    assert "were not shut down cleanly: kafka-log-recovery recover --log-dirs '/d 1,/d2'" in unclean
