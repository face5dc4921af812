"""The rules in which releases differ, each in all states, through the LogManager of each release and the recovery."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import recovery
from recovery.engine.report import RecoveryReport
from segfmt.producer_snapshot import MOST_ENTRIES
from tests.brokers import Oracle
from tests.damage.judgement import IDENTICAL, REFUSED, REWRITTEN, Judge
from tests.damage.release_rules import HALTING_BOTH, HALTING_LATER, add_rest, fill_snapshots, set_version
from tests.logs.edge_log import END, NOW_MS, PROPERTIES, Log, make_log, sample_of
from tests.logs.samples import MARKER, NEWEST_NAME, differences, tree_of, unpack
from tests.runs.driving import recover

pytestmark = pytest.mark.java

STATES = "CFU"


def judged(oracle: Oracle, log: Log, work: Path) -> str:
    judgement = Judge(oracle, sample_of(log)).compare([log.log_dir], work)
    assert judgement.verdict != "unexplained", "\n".join(judgement.details)
    return judgement.verdict


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("rest", [1, 7])
def test_the_rest_of_an_index(
    rest: int, lost: bool, state: str, pristine: Path, each_oracle: Oracle, ram_path: Path
) -> None:
    log = make_log(pristine, ram_path / "d", state)
    add_rest(log, rest, loses_all_snapshots=lost)
    assert judged(each_oracle, log, ram_path) == IDENTICAL


def test_up_to_4_3_a_rest_is_cut_wherever_the_index_was_opened(pristine: Path, ram_path: Path) -> None:
    left = {}
    for release in ("4.3", "4.4", "auto"):
        log = make_log(pristine, ram_path / release / "d", "F")
        index = log.file(12, ".index")
        index.write_bytes(index.read_bytes() + b"rest")
        for base in (24, END):
            log.file(base, ".snapshot").unlink()
        assert recover(sample_of(log), release=release).exit_code == 0
        left[release] = index.read_bytes()[-4:] == b"rest"
    assert left == {"4.3": False, "4.4": True, "auto": False}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [*HALTING_BOTH, *HALTING_LATER])
def test_the_version_of_a_transaction_index(
    version: int, state: str, pristine: Path, each_oracle: Oracle, ram_path: Path
) -> None:
    log = make_log(pristine, ram_path / "d", state)
    set_version(log, version)
    later = REWRITTEN if state == "U" else REFUSED
    expected = REFUSED if version in HALTING_BOTH else {"4.3": IDENTICAL, "4.4": later}[each_oracle.release]
    assert judged(each_oracle, log, ram_path) == expected


@pytest.mark.parametrize("state", STATES)
def test_no_marker_lies_over_a_transaction_index_that_may_stop_the_broker(
    state: str, pristine: Path, newest_oracle: Oracle, ram_path: Path
) -> None:
    log = make_log(pristine, ram_path / "d", state)
    set_version(log, 1)
    before = tree_of(log.folder)
    report = recover(sample_of(log), release="auto")
    if state == "U":
        assert (report.exit_code, (log.log_dir / MARKER).exists()) == (0, True)
    else:
        (refused,) = report.partitions
        assert (refused.status, report.exit_code, log.file(12, ".txnindex").name in refused.reasons[0]) == (
            "refused",
            4,
            True,
        )
        assert differences(before, tree_of(log.folder)) == []
        assert (log.log_dir / MARKER).exists() is (state == "C")  # it was there, and nothing was changed
        assert recover(sample_of(log), release="auto", repair=True).exit_code == 0
    assert_starts_with_the_same_aborts(log, pristine, newest_oracle)


@pytest.mark.parametrize("state", "CF")
def test_a_release_that_does_not_look_warns_of_the_next(state: str, pristine: Path, ram_path: Path) -> None:
    log = make_log(pristine, ram_path / "d", state)
    set_version(log, 1)
    report = recover(sample_of(log), release="4.3")
    assert report.exit_code == 0
    (warning,) = warnings_of(report)
    assert "version 1 of an aborted transaction" in warning
    assert (
        "stops a broker of 4.4 or later. Remedy: before an upgrade, recover with --release 4.4 --repair"
        in warning
    )


@pytest.mark.parametrize("state", STATES)
def test_a_snapshot_of_many_producers(
    state: str, pristine: Path, each_oracle: Oracle, ram_path: Path
) -> None:
    """A million is read by all, one more by 4.3 alone."""
    for count in (MOST_ENTRIES, MOST_ENTRIES + 1):
        log = make_log(pristine, ram_path / str(count) / "d", state)
        fill_snapshots(log, count)
        theirs = Path(shutil.copytree(log.log_dir, ram_path / f"broker-{count}" / "d"))
        assert each_oracle.load([theirs], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
        report = recover(sample_of(log), release=each_oracle.release)
        assert report.exit_code == 0
        assert differences(tree_of(theirs), tree_of(log.log_dir)) == []
        is_long = any(f"a snapshot of more than {MOST_ENTRIES}" in text for text in warnings_of(report))
        assert is_long is (log.file(END, ".snapshot").stat().st_size > 46 * MOST_ENTRIES + 10)


def test_a_sample_of_the_newest_release_is_left_as_its_broker_leaves_it(
    newest_oracle: Oracle, ram_path: Path
) -> None:
    ours, theirs = (unpack(NEWEST_NAME, ram_path / who) for who in ("ours", "theirs"))
    broker = {"properties": theirs.properties, "topic_configs": theirs.topic_configs}
    assert newest_oracle.load(theirs.log_dirs, now_ms=theirs.now_ms, **broker).outcome == "loaded"
    report = recovery.recover(None, config=ours.properties, now_ms=ours.now_ms)
    assert (report.exit_code, report.release.release.value) == (0, "4.4")
    assert report.release.origin == "node 1 registered with metadata.version up to 33"
    for log_dirs in zip(theirs.log_dirs, ours.log_dirs, strict=True):
        left, found = (
            {
                path: data
                for path, data in tree_of(log_dir).items()
                if not path.startswith("__cluster_metadata")
            }
            for log_dir in log_dirs
        )
        assert differences(left, found) == []


def warnings_of(report: RecoveryReport) -> list[str]:
    return [warning for partition in report.partitions for warning in partition.warnings]


def assert_starts_with_the_same_aborts(log: Log, pristine: Path, oracle: Oracle) -> None:
    assert oracle.load([log.log_dir], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
    name = log.file(12, ".txnindex").name
    assert log.file(12, ".txnindex").read_bytes() == (pristine / "t-0" / name).read_bytes()
