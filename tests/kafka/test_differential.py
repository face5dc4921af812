"""The recovery against Kafka's own LogManager: the samples whole, and hundreds of damaged partitions.

`python -m tests.damage.campaign` runs any number of the seeded cases; a case that once was a bug has a name here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from native import cpu
from native.cpu_path import CpuPath
from segfmt.record_batch import BatchSlice, walk_batches
from tests.brokers import Oracle
from tests.damage.campaign import Campaign
from tests.damage.judgement import IDENTICAL, IO_ERROR, LINK, OUT_OF_ORDER, REFUSED, UNEXPLAINED, promises
from tests.damage.mutilate import CHECKPOINTS, Victim
from tests.logs.builders import ABORT, BASE_TIMESTAMP_MS, data_batch, marker_batch
from tests.logs.samples import MARKER, SAMPLE_NAMES, Sample, differences, tree_of, unpack
from tests.runs.driving import footprint, log_bytes, lost_batches, own_leftovers, quarantine_of, recover

pytestmark = pytest.mark.java

BATCH = 10
SINGLE_CASES, COMBINED_CASES, PLAIN_CASES, AGAIN_CASES, WHOLE_CASES = 1130, 500, 150, 180, 40
SLOWER_PATH_CASES = 110


@pytest.fixture(scope="module")
def ram_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the whole module, in memory where there is a file system for it: thousands of fsyncs."""
    memory = Path("/dev/shm")
    root = (
        Path(tempfile.mkdtemp(dir=memory)) if os.access(memory, os.W_OK) else tmp_path_factory.mktemp("root")
    )
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def broker_trees(oracle: Oracle, ram_root: Path) -> dict[str, dict[str, bytes]]:
    """What a broker leaves of each sample's log dirs."""
    root = ram_root / "broker"
    root.mkdir()
    trees = {}
    for name in SAMPLE_NAMES:
        sample = unpack(name, root)
        outcome = oracle.load(
            sample.log_dirs,
            now_ms=sample.now_ms,
            properties=sample.properties,
            topic_configs=sample.topic_configs,
        )
        assert outcome.outcome == "loaded", outcome.error
        trees[name] = tree_of_log_dirs(sample)
        shutil.rmtree(sample.root)
    return trees


@pytest.fixture(scope="module")
def campaign(oracle: Oracle, ram_root: Path) -> Campaign:
    root = ram_root / "campaign"
    root.mkdir()
    return Campaign(oracle, root)


@pytest.fixture(scope="module")
def threaded_campaign(oracle: Oracle, ram_root: Path) -> Campaign:
    root = ram_root / "threads"
    root.mkdir()
    return Campaign(oracle, root, thread_counts=(1, 2, 8))


def tree_of_log_dirs(sample: Sample) -> dict[str, bytes]:
    return {
        f"{log_dir.name}/{path}": data
        for log_dir in sample.log_dirs
        for path, data in tree_of(log_dir).items()
    }


def without_locks(tree: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in tree.items() if not path.endswith("/.lock")}


def contents_of(log_dir: Path) -> dict[str, tuple[int, ...]]:
    """The footprint of all that lies in *log_dir*: the folder itself changes while it is locked."""
    return {path: found for path, found in footprint(log_dir).items() if path not in (".", ".lock")}


@pytest.mark.parametrize("thread_count", [1, 2, 8])
@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_a_sample_is_left_as_the_broker_leaves_it(
    name: str, thread_count: int, ram_path: Path, broker_trees: dict[str, dict[str, bytes]]
) -> None:
    sample = unpack(name, ram_path)
    before = {log_dir: log_bytes(log_dir) for log_dir in sample.log_dirs}
    report = recover(sample, thread_count=thread_count)
    assert differences(broker_trees[name], tree_of_log_dirs(sample)) == []
    assert report.exit_code == 0
    for log_dir in sample.log_dirs:
        assert (log_dir / MARKER).exists()
        assert own_leftovers(log_dir) == []
        assert lost_batches(before[log_dir], log_dir) == []
        assert quarantine_of(log_dir).parent == log_dir.parent


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_a_second_recovery_changes_nothing_and_says_so(
    name: str, ram_path: Path, broker_trees: dict[str, dict[str, bytes]]
) -> None:
    sample = unpack(name, ram_path)
    recover(sample)
    found = {log_dir: contents_of(log_dir) for log_dir in sample.log_dirs}
    saved = {log_dir: sorted(quarantine_of(log_dir).rglob("*")) for log_dir in sample.log_dirs}
    report = recover(sample)
    assert differences(broker_trees[name], tree_of_log_dirs(sample)) == []
    for log_dir in sample.log_dirs:
        assert contents_of(log_dir) == found[log_dir]
        assert sorted(quarantine_of(log_dir).rglob("*")) == saved[log_dir]
        assert own_leftovers(log_dir) == []
    assert_unchanged(report)


def test_an_intact_log_dir_is_not_touched(ram_path: Path) -> None:
    sample = unpack("intact", ram_path)
    tree = without_locks(tree_of_log_dirs(sample))
    found = {log_dir: contents_of(log_dir) for log_dir in sample.log_dirs}
    report = recover(sample)
    assert without_locks(tree_of_log_dirs(sample)) == tree
    for log_dir in sample.log_dirs:
        assert contents_of(log_dir) == found[log_dir]
        assert own_leftovers(log_dir) == []
        assert not quarantine_of(log_dir).exists()
    assert_unchanged(report)
    assert report.exit_code == 0


def assert_unchanged(report: object) -> None:
    assert {log_dir.status for log_dir in report.log_dirs} == {"unchanged"}
    assert {partition.status for partition in report.partitions} == {"unchanged"}
    log_dirs = ", ".join(log_dir.log_dir for log_dir in report.log_dirs)
    assert f"{log_dirs}: a broker will skip recovery here" in report.to_text().splitlines()


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_a_dry_run_changes_nothing_and_lists_what_is_then_done(name: str, ram_path: Path) -> None:
    sample = unpack(name, ram_path)
    found = footprint(sample.root)
    announced = recover(sample, dry_run=True)
    assert footprint(sample.root) == found
    done = recover(sample)
    assert promises(announced) == promises(done)
    assert [len(partition.quarantined) for partition in done.partitions] == [
        len(partition.to_quarantine) for partition in announced.partitions
    ]
    assert not any(partition.quarantined for partition in announced.partitions)


class TestSeededDamage:
    """2,000 damaged partitions and whole log dirs by seed, some a test: every damage of `mutilate` in turn.

    What fails names its case: `python -m tests.damage.campaign --only single-1/17` runs it again, in detail.
    """

    @pytest.mark.parametrize("batch", range(SINGLE_CASES // BATCH))
    def test_one_damage_ends_as_with_the_broker(self, batch: int, campaign: Campaign) -> None:
        self.check("single-1", batch, campaign)

    @pytest.mark.parametrize("batch", range(COMBINED_CASES // BATCH))
    def test_several_damages_end_as_with_the_broker(self, batch: int, campaign: Campaign) -> None:
        self.check("combined-1", batch, campaign)

    @pytest.mark.parametrize("batch", range(PLAIN_CASES // BATCH))
    def test_what_a_crash_does_most_often_ends_as_with_the_broker(
        self, batch: int, campaign: Campaign
    ) -> None:
        self.check("plain-1", batch, campaign)

    @pytest.mark.parametrize("batch", range(AGAIN_CASES // BATCH))
    def test_what_was_recovered_is_then_loaded_as_by_the_broker(self, batch: int, campaign: Campaign) -> None:
        self.check("again-1", batch, campaign)

    @pytest.mark.parametrize("batch", range(WHOLE_CASES // BATCH))
    def test_a_whole_log_dir_ends_as_with_the_broker_by_1_2_and_8_threads(
        self, batch: int, threaded_campaign: Campaign
    ) -> None:
        self.check("whole-1", batch, threaded_campaign)

    @pytest.mark.parametrize("path", cpu.supported()[:-1], ids=lambda path: path.label)
    @pytest.mark.parametrize("batch", range(SLOWER_PATH_CASES // BATCH))
    def test_the_slower_cpu_paths_end_as_with_the_broker(
        self, batch: int, path: CpuPath, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(cpu.ENVIRONMENT, path.label)
        cpu.default.cache_clear()
        try:
            assert cpu.choose() is path
            self.check("single-2", batch, campaign)
        finally:
            monkeypatch.undo()
            cpu.default.cache_clear()

    def check(self, name: str, batch: int, campaign: Campaign) -> None:
        results = [campaign.run(f"{name}/{number}") for number in range(batch * BATCH, batch * BATCH + BATCH)]
        unexplained = [str(result) for result in results if result.verdict == UNEXPLAINED]
        assert not unexplained, "\n".join(unexplained)


def batches_of(log: Path) -> list[BatchSlice]:
    return list(walk_batches(log.read_bytes()))


def patch(log: Path, position: int, data: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(position)
        file.write(data)


def remove_segments(victim: Victim) -> None:
    """Leave nothing of the log but what tells its topic and its epochs."""
    for path in victim.folder.iterdir():
        if path.name not in ("partition.metadata", "leader-epoch-checkpoint"):
            path.unlink()


def set_aside(victim: Victim, state: str) -> None:
    """Give the folder the name of a log that is `-stray` or `-delete`; with no *state* it stays as it is."""
    if state:
        victim.folder.rename(victim.log_dir / f"{victim.folder.name}.0123456789abcdef0123456789abcdef{state}")


class TestFoundByTheCampaign:
    """What once was wrong, each as small as it can be."""

    def check(
        self,
        campaign: Campaign,
        partition: str,
        damage: Callable[[Victim], object],
        *verdicts: str,
        **more: str,
    ) -> None:
        result = campaign.run_named(partition, damage, **more)
        assert result.verdict in (verdicts or (IDENTICAL,)), str(result)

    @pytest.mark.parametrize("is_linked", [False, True])
    def test_a_flipped_base_offset_the_time_index_ends_right_before_the_cut(
        self, is_linked: bool, campaign: Campaign
    ) -> None:
        def damage(victim: Victim) -> None:
            log = victim.unflushed()[0]
            batch = next(one for one in batches_of(log)[5:] if one.position % 3)
            patch(log, batch.position, (batch.offset + 2**28).to_bytes(8, "big"))
            if is_linked:
                store = victim.log_dir / "remote-log-index-cache"  # no broker looks into it when it starts
                store.mkdir()
                victim.folder.rename(store / victim.folder.name)
                victim.folder.symlink_to(f"{store.name}/{victim.folder.name}")

        self.check(campaign, "codec-gzip-0", damage, OUT_OF_ORDER, IDENTICAL)

    def test_two_batches_out_of_order(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            def fields(late: int) -> dict[str, int]:
                return {"base_timestamp_ms": BASE_TIMESTAMP_MS + late, "value_bytes": 3000}

            stamped = ((0, 0), (1, 1), (500, 2), (3, 9), (4, 3), (600, 4))
            data = b"".join(data_batch(offset, **fields(late)) for offset, late in stamped)
            for log in victim.logs()[1:]:
                log.unlink()
            victim.logs()[0].write_bytes(data)

        self.check(campaign, "late-0", damage, OUT_OF_ORDER)

    def test_a_segment_that_is_cut_and_then_deleted_is_in_quarantine_as_it_was(
        self, campaign: Campaign
    ) -> None:
        def damage(victim: Victim) -> None:
            os.truncate(victim.logs()[-1], victim.logs()[-1].stat().st_size - 7)
            (victim.log_dir / CHECKPOINTS[1]).write_text("0\n1\nlate 0 100000\n")

        self.check(campaign, "late-0", damage)

    def test_what_a_swap_replaces_is_in_quarantine(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.logs()[1]
            kept = batches_of(log)[:-1]
            log.with_name(f"{log.name}.swap").write_bytes(log.read_bytes()[: kept[-1].position])

        self.check(campaign, "late-0", damage)

    def test_a_walk_does_not_look_into_control_batches(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.logs()[-1]
            batch = batches_of(log)[-1]
            attributes = log.read_bytes()[batch.position + 22]
            patch(log, batch.position + 22, bytes([attributes | 0x20]))

        self.check(campaign, "plain-1", damage, sample_name="intact")

    def test_the_last_batch_of_a_segment_far_away_splits_it(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.unflushed()[1]
            batch = batches_of(log)[-1]
            patch(log, batch.position, (batch.offset + 2**58).to_bytes(8, "big"))

        self.check(campaign, "late-1", damage)

    def test_a_message_set_on_the_way_to_the_end_that_cannot_be_opened(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.logs()[-1]
            patch(log, 183, bytes([log.read_bytes()[183] ^ 64]))
            (victim.log_dir / MARKER).write_text("")

        self.check(campaign, "old-v0-gzip-0", damage, REFUSED, sample_name="crashed-v0-v1")

    @pytest.mark.parametrize(
        "partition", ["transactions-0", "transactions-1", "transactions-2", "codec-none-0"]
    )
    @pytest.mark.parametrize("rest", [b"\x01\x02\x03", None], ids=["a rest behind", "no whole entry"])
    def test_the_index_where_the_first_open_transaction_begins_is_opened(
        self, partition: str, rest: bytes | None, campaign: Campaign
    ) -> None:
        def damage(victim: Victim) -> None:
            for index in victim.folder.glob("*.index"):
                index.write_bytes(bytes(7) if rest is None else index.read_bytes() + rest)
            (victim.log_dir / MARKER).write_text("")

        self.check(campaign, partition, damage, IDENTICAL, REFUSED)

    def test_a_refused_partition_keeps_its_leftovers(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.logs()[0]
            log.rename(log.with_name(f"{log.name}.swap"))
            (victim.folder / "leader-epoch-checkpoint").write_text("7\n0\n")

        self.check(campaign, "late-0", damage, REFUSED)

    def test_the_offset_behind_the_greatest_is_the_least(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            with victim.logs()[0].open("ab") as log:
                log.write(data_batch(2**63 - 1, 2))

        self.check(campaign, "late-0", damage, REFUSED)

    @pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex")], ids=["log", "all"])
    @pytest.mark.parametrize("is_clean", [False, True])
    def test_a_segment_at_the_greatest_offset(
        self, suffixes: tuple[str, ...], is_clean: bool, campaign: Campaign
    ) -> None:
        def damage(victim: Victim) -> None:
            victim.set_marker(is_there=is_clean)
            last = victim.logs()[-1]
            for suffix in suffixes:
                shutil.copyfile(last.with_suffix(suffix), victim.file(2**63 - 1, suffix))

        self.check(campaign, "late-1", damage, IDENTICAL, REFUSED)

    def test_a_segment_that_only_a_name_asks_for(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.logs()[0]
            log.rename(log.with_name("-0.log"))

        self.check(campaign, "many-producers-0", damage)

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    def test_an_index_that_cannot_be_mapped(self, suffix: str, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            os.truncate(victim.unflushed()[0].with_suffix(suffix), 3 << 30)

        self.check(campaign, "late-0", damage, REFUSED)

    @pytest.mark.parametrize(("suffix", "verdict"), [(".index", REFUSED), (".timeindex", IDENTICAL)])
    def test_producers_are_read_without_the_time_index(
        self, suffix: str, verdict: str, campaign: Campaign
    ) -> None:
        """Nobody opens one of a flushed segment: it may be as long as it likes (campaign, combined-921/74)."""

        def damage(victim: Victim) -> None:
            victim.set_marker(is_there=True)
            log = victim.logs()[-2]
            *others, snapshot = sorted(victim.folder.glob("*.snapshot"))
            for other in others:
                other.unlink()
            snapshot.rename(log.with_suffix(".snapshot"))
            os.truncate(log.with_suffix(suffix), 3 << 30)

        self.check(campaign, "many-producers-0", damage, verdict)

    @pytest.mark.parametrize("is_clean", [False, True])
    def test_temporary_files_of_checkpoints_are_written_over(
        self, is_clean: bool, campaign: Campaign
    ) -> None:
        def damage(victim: Victim) -> None:
            victim.set_marker(is_there=is_clean)
            for path in (
                victim.folder / "leader-epoch-checkpoint",
                *map(victim.log_dir.joinpath, CHECKPOINTS),
            ):
                path.with_name(f"{path.name}.tmp").write_bytes(b"0\n")

        self.check(campaign, "late-0", damage)
        self.check(campaign, "transactions-0", damage, sample_name="intact")

    @pytest.mark.parametrize("how", ["FIFO", "folder", "loop", "dangling"])
    def test_indexes_of_what_is_no_log(self, how: str, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.logs()[1]
            log.unlink()
            if how == "FIFO":
                os.mkfifo(log)
            elif how == "folder":
                log.mkdir()
            else:
                log.symlink_to(log.name if how == "loop" else "nowhere")

        self.check(campaign, "late-1", damage)

    @pytest.mark.parametrize("how", ["FIFO", "link to a folder"])
    def test_an_index_that_is_no_file_of_a_segment_that_goes(self, how: str, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            first, *_, last = victim.unflushed()
            os.truncate(first, first.stat().st_size - 1)
            index = last.with_suffix(".timeindex")
            index.unlink()
            os.mkfifo(index) if how == "FIFO" else index.symlink_to(".")

        self.check(campaign, "late-1", damage, IO_ERROR, REFUSED, LINK)

    @pytest.mark.parametrize("magic", [3, 10, 127])
    def test_a_split_of_batches_of_an_unknown_magic(self, magic: int, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.unflushed()[-1]
            patch(log, 16, bytes([magic]))
            far = int(log.stem) + 2**31 + 7
            os.truncate(log, sum(batch.size_bytes for batch in batches_of(log)))
            with log.open("ab") as file:
                file.write(data_batch(far, 3))

        self.check(campaign, "late-1", damage, REFUSED)

    def test_a_split_into_two_segments_of_one_base_offset(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.unflushed()[-1]
            far = int(log.stem) + 2**31 + 7
            with log.open("ab") as file:
                file.write(data_batch(far, 3) + data_batch(far + 2**32, 1) + data_batch(far, 3))

        self.check(campaign, "late-1", damage, REFUSED)

    def test_a_partition_twice_keeps_its_line(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            victim.second_log_dir.mkdir()
            shutil.copytree(victim.folder, victim.second_log_dir / "late-01")
            for name in CHECKPOINTS:
                shutil.copyfile(victim.log_dir / name, victim.second_log_dir / name)

        self.check(campaign, "late-1", damage, REFUSED)

    def test_a_producer_of_the_least_timestamp_does_not_expire(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            log = victim.unflushed()[0]
            fields = {"producer_id": 4000, "base_timestamp_ms": -(2**63)}
            batch = batches_of(log)[0]
            log.write_bytes(
                data_batch(batch.offset, 1, **fields) + log.read_bytes()[batch.position + batch.size_bytes :]
            )

        self.check(campaign, "late-1", damage)

    def test_a_pipe_for_a_checkpoint_does_not_hang(self, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            (victim.log_dir / CHECKPOINTS[0]).unlink()
            os.mkfifo(victim.log_dir / CHECKPOINTS[0])

        self.check(campaign, "late-1", damage, REFUSED)

    @pytest.mark.parametrize("count", [13, 25, 49, 97])
    @pytest.mark.parametrize("is_followed", [False, True])
    def test_producers_of_one_bucket_that_fill_the_table(
        self, count: int, is_followed: bool, campaign: Campaign
    ) -> None:
        def damage(victim: Victim) -> None:
            ids = [number << 12 for number in range(count)] + [0] * is_followed
            logs = victim.logs()
            for path in victim.folder.glob("*.snapshot"):
                path.unlink()
            for log in logs:
                data = b"".join(data_batch(int(log.stem) + i, producer_id=pid) for i, pid in enumerate(ids))
                log.write_bytes(data)

        self.check(campaign, "late-1", damage)

    def test_producers_of_a_bucket_that_a_greater_table_takes_apart(self, campaign: Campaign) -> None:
        """combined-100/1618: in a table of 64 they are a tree, in one of 128 two buckets of eight."""

        def damage(victim: Victim) -> None:
            ids = [*(number * 37 % 16 * 64 + 3 for number in range(16)), *range(4, 50)]
            for path in victim.folder.glob("*.snapshot"):
                path.unlink()
            log = victim.unflushed()[-1]
            log.write_bytes(
                b"".join(data_batch(int(log.stem) + i, producer_id=pid) for i, pid in enumerate(ids))
            )

        self.check(campaign, "late-1", damage)

    @pytest.mark.parametrize("is_clean", [False, True])
    def test_where_all_is_refused_malformed_checkpoints_stay(
        self, is_clean: bool, campaign: Campaign
    ) -> None:
        """again-100/795, combined-100/510: a broker writes others, but not where it dies."""

        def damage(victim: Victim) -> None:
            victim.set_marker(is_there=is_clean)
            (victim.folder / "partition.metadata").write_text("no")
            for name in CHECKPOINTS:
                (victim.log_dir / name).write_text("0\n1\nlate 1 x\n")

        self.check(campaign, "late-1", damage, REFUSED)

    @pytest.mark.parametrize("end_count", [1, 2])
    def test_a_transaction_that_begins_again_where_it_has_ended(
        self, end_count: int, campaign: Campaign
    ) -> None:
        """combined-300/1155: a replay begins both before it ends the first; then none is open there."""

        def damage(victim: Victim) -> None:
            for path in (*victim.folder.glob("*.snapshot"), *victim.folder.glob("*.txnindex")):
                path.unlink()
            producer = {"producer_id": 7, "producer_epoch": 0}
            begun = data_batch(0, transactional=True, **producer)
            first, second, *others = victim.logs()
            topic, partition = victim.topic_partition
            (victim.log_dir / CHECKPOINTS[0]).write_text(f"0\n1\n{topic} {partition} {int(second.stem)}\n")
            end = marker_batch(1, ABORT, **producer)
            first.write_bytes(begun + end + begun + end * (end_count - 1))
            base = int(second.stem)
            second.write_bytes(data_batch(base) + marker_batch(base + 1, ABORT, **producer))
            for log in others:
                log.unlink()

        self.check(campaign, "late-1", damage, REFUSED)

    @pytest.mark.parametrize("is_loaded", [True, False])
    def test_a_split_whose_parts_begin_before_the_segment(self, is_loaded: bool, campaign: Campaign) -> None:
        """combined-915/592: the part that begins where the segment did is not served until the next start."""

        def damage(victim: Victim) -> None:
            log = victim.unflushed()[0]
            with log.open("ab") as file:
                file.write(data_batch(0, 1) + data_batch(int(log.stem) + 2**31 + 7, 2))
            if not is_loaded:
                log.with_suffix(".index").unlink()

        self.check(campaign, "transactions-0", damage)

    @pytest.mark.parametrize("suffix", [".log.swap", ".index.swap", ".timeindex.cleaned"])
    @pytest.mark.parametrize("how", ["dangling", "loop", "folder", "full folder", "FIFO"])
    def test_a_split_needs_the_names_of_its_temporary_files(
        self, suffix: str, how: str, campaign: Campaign
    ) -> None:
        """combined-300/801: a link by such a name is replaced by the broker, and stays here."""

        def damage(victim: Victim) -> None:
            log = victim.unflushed()[-1]
            with log.open("ab") as file:
                file.write(data_batch(int(log.stem) + 2**31 + 7, 3))
            place = log.with_suffix(suffix)
            if how in ("dangling", "loop"):
                place.symlink_to(place.name if how == "loop" else "nowhere")
            elif how == "FIFO":
                os.mkfifo(place)
            else:
                place.mkdir()
                if how == "full folder":
                    (place / "file").write_text("")

        self.check(campaign, "late-1", damage, REFUSED, IO_ERROR, LINK)

    @pytest.mark.parametrize(
        ("how", "verdict"),
        [
            ("folder", IO_ERROR),
            ("full folder", REFUSED),
            ("link to a folder", LINK),
            ("link", LINK),
            ("dangling", LINK),
            ("loop", LINK),
            ("FIFO", IO_ERROR),  # a broker would wait for the epoch in it
        ],
    )
    def test_what_is_no_marker(self, how: str, verdict: str, campaign: Campaign) -> None:
        def damage(victim: Victim) -> None:
            marker = victim.log_dir / MARKER
            marker.unlink(missing_ok=True)
            (victim.log_dir / "a-file").write_text("")
            targets = {"link to a folder": "late-1", "link": "a-file", "dangling": "none", "loop": MARKER}
            if how == "FIFO":
                os.mkfifo(marker)
            elif how in targets:
                marker.symlink_to(targets[how])
            else:
                marker.mkdir()
                if how == "full folder":
                    (marker / "file").write_text("")

        self.check(campaign, "late-1", damage, verdict)

    def test_the_flush_opens_indexes_where_a_log_ends_before_its_active_segment(
        self, campaign: Campaign
    ) -> None:
        def damage(victim: Victim) -> None:
            *flushed, active = victim.logs()
            with active.open("ab") as log:
                log.write(data_batch(-1, 35))
            for log in flushed:
                for suffix in (".index", ".timeindex"):
                    index = log.with_suffix(suffix)
                    index.write_bytes(index.read_bytes() + b"\1\2\3")

        self.check(campaign, "plain-1", damage, sample_name="intact")

    @pytest.mark.parametrize(
        ("distance", "verdict"), [(2**32, REFUSED), (1, IDENTICAL)], ids=["first of a part", "another"]
    )
    def test_a_split_opens_the_first_message_set_of_each_part(
        self, distance: int, verdict: str, campaign: Campaign
    ) -> None:
        def damage(victim: Victim) -> None:
            log = victim.unflushed()[-1]
            last = batches_of(log)[-1]
            data = log.read_bytes()[last.position : last.position + last.size_bytes]
            os.truncate(log, last.position + last.size_bytes)
            far = int(log.stem) + 2**31 + 7
            with log.open("ab") as file:
                file.write(far.to_bytes(8, "big") + data[8:])
                file.write((far + distance).to_bytes(8, "big") + data[8:60] + bytes(len(data) - 60))

        self.check(campaign, "old-v1-lz4-0", damage, verdict, sample_name="crashed-v0-v1")

    @pytest.mark.parametrize("state", ["", "-delete"])
    @pytest.mark.parametrize("how", ["folder", "FIFO", "dangling"])
    def test_a_segment_that_is_made_where_its_transaction_index_is_no_file(
        self, how: str, state: str, campaign: Campaign
    ) -> None:
        """combined-202/894: it is opened at once."""

        def damage(victim: Victim) -> None:
            remove_segments(victim)
            index = victim.file(0, ".txnindex")
            if how == "dangling":
                index.symlink_to("nowhere")
            elif how == "FIFO":
                os.mkfifo(index)
            else:
                index.mkdir()
            set_aside(victim, state)

        self.check(campaign, "late-1", damage, IDENTICAL if how == "dangling" else REFUSED)

    @pytest.mark.parametrize("state", ["", "-stray", "-delete"])
    def test_a_preallocated_segment_that_is_made(self, state: str, campaign: Campaign) -> None:
        """combined-600/3219: a stray log is never closed, so its new segment is not trimmed."""

        def damage(victim: Victim) -> None:
            remove_segments(victim)
            set_aside(victim, state)

        self.check(campaign, "preallocated-0", damage)
