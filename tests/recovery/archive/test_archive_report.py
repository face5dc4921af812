"""What the report of an archive says: problems first, every note counted, and nothing about what was not judged."""

from __future__ import annotations

import json
import re
import signal

from recovery.archive.check.report import ArchiveReport
from recovery.archive.check.summary import Summary


def row(
    key: str, severity: str, *, rule: str = "overlap", kind: str = "log", **fields: object
) -> dict[str, object]:
    finding = {"rule": rule, "severity": severity, "position": None, "detail": "x", "remedy": "y"}
    return {"key": key, "kind": kind, "rebuilt": None, "findings": [finding]} | fields


def test_notes_are_counted_and_listed_without_an_output() -> None:
    report = ArchiveReport(command="verify", url="a", layout="plain")
    report.summary = Summary.from_json(Summary(objects=3, valid=3).to_json() | {"notes": {"overlap": 30}})
    report.noted = [row(f"t-0/{number}.log", "note") for number in range(30)]
    text = report.to_text()
    assert "\nnotes: overlap 30\n" in text
    assert text.count("note t-0/") == 1
    assert "    the same of 29 more objects (-v lists them)\n" in text + "\n"
    assert report.to_text(1).count("note t-0/") == 30
    assert report.to_text(-1) == ""
    document = json.loads(report.to_json())
    assert (document["summary"]["notes"], len(document["noted"])) == ({"overlap": 30}, 30)
    assert report.exit_code == 0


def test_an_interrupted_run_counts_nothing() -> None:
    report = ArchiveReport(
        command="verify", url="a", layout="plain", signal_number=signal.SIGINT, output="o", run="1"
    )
    assert report.to_text() == (
        "INTERRUPTED by signal 2: nothing is judged yet; the same command resumes from o"
    )
    assert report.exit_code == 130


def test_the_place_of_what_was_replaced_is_named() -> None:
    report = ArchiveReport(command="recover", url="a", layout="plain", quarantine="a.quarantine/quarantine/1")
    assert "objects that were replaced" not in report.to_text()
    report.summary.rebuilt = 1
    assert "objects that were replaced: a.quarantine/quarantine/1" in report.to_text()
    assert json.loads(report.to_json())["quarantine"] == "a.quarantine/quarantine/1"


def test_an_interrupted_recover_in_place_names_where_the_replaced_objects_are() -> None:
    report = ArchiveReport(command="recover", url="a", layout="plain", signal_number=2, quarantine="q/1")
    assert report.to_text().endswith("; nothing was replaced or added in the archive")
    report.has_begun_rebuilding, report.saved_objects = True, 52
    assert "; objects that it copied to q/1 before replacing them in the archive: 52" in report.to_text()
    assert json.loads(report.to_json())["savedObjects"] == 52


def test_lost_records_come_first_and_what_is_rebuilt_or_was_not_checked_after_them() -> None:
    report = ArchiveReport(command="verify", url="a", layout="plain")
    report.objects = [
        row("t-0/1.index", "damage", rule="orphan-index", kind="index"),
        row("t-0/2.log", "unchecked", rule="unreadable", kind="log"),
        row("t-0/3.index", "damage", rule="missing-object", kind="index"),
        row("t-0/4.log", "damage", rule="checksum", kind="log"),
        row("t-0/5.log", "damage", rule="missing-segment", kind="log"),
    ]
    names = re.findall(r"t-0/([\w.]+)", report.to_text(-1))
    assert names == ["4.log", "5.log", "1.index", "3.index", "2.log"]
