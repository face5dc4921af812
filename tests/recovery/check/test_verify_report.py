"""The text of a verify: the worst first, and what is the same of many files counted."""

from __future__ import annotations

from recovery.check.finding import FileVerdict, Finding, Rule, Severity
from recovery.check.report import LogDirVerdicts, VerifyReport


def verdict(path: str, rule: Rule, detail: str, severity: Severity = "damage") -> FileVerdict:
    finding = Finding(file=path, position=None, rule=rule, detail=detail, severity=severity)
    return FileVerdict(path=path, kind="log", checked_bytes=0, findings=(finding,))


def report_of(*files: FileVerdict) -> VerifyReport:
    return VerifyReport(log_dirs=(LogDirVerdicts(log_dir="/d", files=files),), is_deep=False, duration_ms=1)


def first_words(report: VerifyReport, verbosity: int = -1) -> list[str]:
    return [line.partition(":")[0] for line in report.to_text(verbosity).splitlines()]


def test_lost_data_comes_before_indexes_and_these_before_what_was_not_checked() -> None:
    report = report_of(
        verdict("a-0/0.index", "index-entry", "no batch ends at offset 7"),
        verdict("b-0/0.log", "unreadable", "Permission denied", "unchecked"),
        verdict("c-0/0.log", "checksum", "0x1 stored, 0x2 computed"),
    )
    assert first_words(report) == ["DAMAGED c-0/0.log", "DAMAGED a-0/0.index", "NOT CHECKED b-0/0.log"]


def test_a_log_dir_that_was_not_checked_is_counted() -> None:
    closed = LogDirVerdicts(
        log_dir="/e", error="Permission denied. Remedy: run this as the broker's user, or as root"
    )
    report = VerifyReport(log_dirs=(closed,), is_deep=False, duration_ms=1)
    assert report.to_text().splitlines() == [
        "NOT CHECKED /e: Permission denied. Remedy: run this as the broker's user, or as root",
        "0 files, 0 B checked in 0.0 s: 0 damaged, 0 not checked, and 1 log dir not checked at all",
    ]
    beside = VerifyReport(log_dirs=(closed, *report_of().log_dirs), is_deep=False, duration_ms=1).to_text()
    assert "\nchecked for a broker" in beside


def test_what_is_the_same_of_many_files_is_counted() -> None:
    denied = [verdict(f"t-{n}/0.log", "unreadable", "Permission denied", "unchecked") for n in range(300)]
    report = report_of(*denied)
    assert report.to_text(-1).splitlines()[1:] == ["    the same of 299 more files (-v lists them)"]
    assert len(first_words(report, 1)) == 300 + 3  # and the summary


def test_what_is_too_long_for_a_screen_is_counted() -> None:
    report = report_of(*(verdict(f"t-{n}/0.log", "checksum", f"0x{n:x} computed") for n in range(2000)))
    *listed, last = report.to_text(-1).splitlines()
    assert (len(listed), last) == (20, "... 1,980 more lines (-v lists them)")
    assert len(report_of(*report.files).to_text(1).splitlines()) == 2000 + 3
