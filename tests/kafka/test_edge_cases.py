"""Each edge case of docs/reference/recovery-rules.md through Kafka's own LogManager and through the recovery."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from recovery.load.model import LogSettings
from recovery.logdir.inventory import list_log_dir
from recovery.plan.actions import TEMPORARY_SUFFIX
from segfmt.java_hash_map import computed_hash_map_order
from tests.brokers import Oracle
from tests.damage.edge_cases import CASES, NOW_MS, PROPERTIES, EdgeCase, Log
from tests.damage.judgement import IDENTICAL, LINK, Judge
from tests.logs import builders
from tests.logs.edge_log import make_log, sample_of
from tests.logs.samples import MARKER, differences, tree_of
from tests.runs.driving import log_bytes, recover

pytestmark = pytest.mark.java


@pytest.mark.parametrize("edge", CASES, ids=str)
def test_an_edge_case_ends_as_documented(
    edge: EdgeCase, pristine: Path, each_oracle: Oracle, ram_path: Path
) -> None:
    log = make_log(pristine, ram_path / "d", edge.state)
    edge.damage(log)
    judgement = Judge(each_oracle, sample_of(log, topic_configs={"t": edge.configs})).compare(
        [log.log_dir], ram_path
    )
    assert judgement.verdict == edge.verdicts[each_oracle.release], "\n".join(judgement.details)


def test_an_io_error_leaves_the_segments_that_a_broker_empties(
    pristine: Path, oracle: Oracle, ram_path: Path
) -> None:
    brokers = make_log(pristine, ram_path / "broker" / "d", "U")
    ours = make_log(pristine, ram_path / "ours" / "d", "U")
    for log in (brokers, ours):
        log.remove(".snapshot")
        log.file(24, ".snapshot").mkdir()  # nothing can be written there: EISDIR
    before = tree_of(ours.log_dir)
    assert oracle.load([brokers.log_dir], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
    report = recover(sample_of(ours), [ours.log_dir])
    assert sum(map(len, log_bytes(brokers.log_dir).values())) < sum(map(len, log_bytes(pristine).values()))
    assert log_bytes(ours.log_dir) == log_bytes(pristine)
    (refused,) = report.partitions
    (problem,) = refused.problems
    assert (refused.status, problem.file, report.exit_code) == ("refused", f"{24:020d}.snapshot", 4)
    assert "a folder where a file is needed" in problem.detail
    assert not (ours.log_dir / MARKER).exists()
    untouched = f"{ours.folder.name}/"
    changed = differences(before, tree_of(ours.log_dir))
    assert not any(line.startswith(untouched) for line in changed), changed


def test_an_epoch_file_that_cannot_be_written_keeps_the_log_as_it_is(
    pristine: Path, oracle: Oracle, ram_path: Path
) -> None:
    brokers = make_log(pristine, ram_path / "broker" / "d", "U")
    ours = make_log(pristine, ram_path / "ours" / "d", "U")
    for log, suffix in ((brokers, ".tmp"), (ours, TEMPORARY_SUFFIX)):
        (log.folder / "leader-epoch-checkpoint").unlink()
        (log.folder / f"leader-epoch-checkpoint{suffix}").mkdir()
    outcome = oracle.load([brokers.log_dir], now_ms=NOW_MS, properties=PROPERTIES)
    assert outcome.outcome == "offline"
    report = recover(sample_of(ours), [ours.log_dir])
    assert [one.status for one in report.partitions if one.folder == ours.folder.name] == ["refused"]
    assert log_bytes(ours.log_dir) == log_bytes(pristine)
    assert not (ours.log_dir / MARKER).exists()


def test_each_log_dir_is_clean_or_not_by_its_own_marker(
    pristine: Path, oracle: Oracle, ram_path: Path
) -> None:
    for who in ("broker", "ours"):
        clean, unclean = (
            make_log(pristine, ram_path / who / "d", "C"),
            make_log(pristine, ram_path / who / "e", "U"),
        )
        unclean.folder.rename(unclean.log_dir / "u-0")
        (unclean.log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nu 0 0\n")
        for folder in (clean.folder, unclean.log_dir / "u-0"):
            with (folder / f"{12:020d}.log").open("r+b") as file:
                file.seek(100)
                file.write(b"damaged")
    dirs = [ram_path / "broker" / name for name in "de"]
    assert oracle.load(dirs, now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
    report = recover(sample_of(clean), [ram_path / "ours" / name for name in "de"])
    assert [log_dir.status for log_dir in report.log_dirs] == ["unchanged", "recovered"]
    assert [partition.status for partition in report.partitions] == ["unchanged", "truncated"]
    for name in "de":
        assert differences(tree_of(ram_path / "broker" / name), tree_of(ram_path / "ours" / name)) == []


def test_a_name_that_no_checkpoint_can_hold_is_refused(
    pristine: Path, oracle: Oracle, ram_path: Path
) -> None:
    log = make_log(pristine, ram_path / "d", "U")
    log.folder.rename(log.log_dir / "a b-0")
    inventory = list_log_dir(str(log.log_dir), settings_of=lambda _topic: LogSettings(), now_ms=NOW_MS)
    assert [refused.folder for refused in inventory.refused] == ["a b-0"]
    outcomes = [oracle.load([log.log_dir], now_ms=NOW_MS, properties=PROPERTIES) for _ in range(2)]
    assert [outcome.outcome for outcome in outcomes] == ["loaded", "offline"]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_a_file_that_is_a_link_is_refused_and_the_broker_starts_on_it(
    suffix: str, pristine: Path, oracle: Oracle, ram_path: Path
) -> None:
    log = make_log(pristine, ram_path / "d", "U")
    linked = log.file(24, suffix)
    linked.rename(log.log_dir / linked.name)
    linked.symlink_to(Path("..") / linked.name)
    before = tree_of(log.log_dir)
    judgement = Judge(oracle, sample_of(log)).compare([log.log_dir], ram_path)
    assert judgement.verdict == LINK, "\n".join(judgement.details)
    changed = differences(before, tree_of(log.log_dir))
    assert all("-checkpoint" in line for line in changed), changed
    assert oracle.load([log.log_dir], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"


@pytest.mark.parametrize("is_shorter", [True, False])
@pytest.mark.parametrize("state", ["U", "C"])
def test_a_future_log_beside_its_current_one_is_not_the_only_one_that_is_closed(
    state: str, is_shorter: bool, pristine: Path, oracle: Oracle, ram_path: Path
) -> None:
    """A broker closes one log of each partition and dir, the future one: the other's active indexes stay large."""
    brokers, ours = (make_log(pristine, ram_path / who / "d", state) for who in ("broker", "ours"))
    for log in (brokers, ours):
        future = shutil.copytree(log.folder, log.log_dir / f"t-0.{'b' * 32}-future")
        if is_shorter:
            for path in future.glob(f"{24:020d}.*"):
                path.unlink()
        for path in (*log.folder.glob("*.index"), *future.glob("*.index")):
            path.unlink()  # so that a clean dir changes, too
    assert oracle.load([brokers.log_dir], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
    report = recover(sample_of(ours), [ours.log_dir])
    assert report.exit_code == 0
    left, found = tree_of(brokers.log_dir), tree_of(ours.log_dir)
    active = [f"t-0/{24:020d}.{kind}" for kind in ("index", "timeindex")]
    assert sorted(line.partition(": ")[0] for line in differences(left, found)) == active
    for name in active:
        assert len(left[name]) > len(found[name]) > 0
        assert left[name] == found[name] + bytes(len(left[name]) - len(found[name]))


@pytest.mark.parametrize("count", [8, 9, 13, 30, 49])
def test_crowded_buckets_come_out_in_the_order_of_kafka(count: int, oracle: Oracle, ram_path: Path) -> None:
    """New producers of one HashMap bucket, known from the log alone."""
    producer_ids = [number << 12 for number in range(count)]
    log = Log(ram_path / "d")
    log.folder.mkdir(parents=True)
    for base in (0, 100, 200):
        batches = [builders.data_batch(base + i, producer_id=pid) for i, pid in enumerate(producer_ids)]
        log.file(base).write_bytes(b"".join(batches))
    assert oracle.load([log.log_dir], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
    log.remove(".snapshot")
    log = make_log(log.log_dir, ram_path / "again" / "d", "F", recovery_point=200)
    judgement = Judge(oracle, sample_of(log)).compare([log.log_dir], ram_path)
    assert judgement.verdict == IDENTICAL, "\n".join(judgement.details)


@pytest.mark.parametrize("is_followed", [False, True])
def test_the_last_producer_of_a_replay_may_fill_the_table(
    is_followed: bool, oracle: Oracle, ram_path: Path
) -> None:
    """One more batch of any producer doubles it, and with it changes the order; no message set is opened for that."""
    producer_ids = [number * 3 for number in range(13)] + [3] * is_followed
    assert computed_order(producer_ids[:13], is_followed=False) != computed_order(
        producer_ids[:13], is_followed=True
    )
    log = Log(ram_path / "d")
    log.folder.mkdir(parents=True)
    batches = [builders.data_batch(i, producer_id=pid) for i, pid in enumerate(producer_ids)]
    log.file(0).write_bytes(b"".join([*batches, builders.data_batch(40)]))
    log.file(100).write_bytes(builders.data_batch(100))
    assert oracle.load([log.log_dir], now_ms=NOW_MS, properties=PROPERTIES).outcome == "loaded"
    log.remove(".snapshot")
    log = make_log(log.log_dir, ram_path / "again" / "d", "F", recovery_point=100)
    message_set = builders.compressed_message([builders.message(offset) for offset in range(3)], offset=50)
    log.append(0, message_set[:40] + bytes(len(message_set) - 40))
    judgement = Judge(oracle, sample_of(log)).compare([log.log_dir], ram_path)
    assert judgement.verdict == IDENTICAL, "\n".join(judgement.details)


def computed_order(producer_ids: list[int], *, is_followed: bool) -> list[int]:
    return computed_hash_map_order(np.array(producer_ids), is_followed=is_followed).tolist()
