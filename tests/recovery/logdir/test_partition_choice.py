"""A filter that matches nothing is an error, in every command and call that has one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import recovery
from recovery.archive.stores.local_store import LocalStore
from recovery.archive.stores.store import Level
from recovery.cli.main import main
from recovery.errors import UsageError
from recovery.logdir.choice import PartitionChoice, SelectedPartitions
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.samples import unpack


@dataclass(frozen=True)
class Named:
    topic: str
    partition: int


THERE = [Named("orders", 0), Named("orders", 7), Named("payments", 0), Named("order-items", 3)]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return unpack("intact", tmp_path).log_dirs[0]


def after_all(choice: PartitionChoice) -> PartitionChoice:
    for one in THERE:
        choice(one)
    return choice


class TestWhatIsSaid:
    def test_near_names(self) -> None:
        with pytest.raises(
            UsageError, match=r"^--topic ordes: .* in /data; topics with similar names: orders, order-items"
        ):
            after_all(PartitionChoice(["ordes"])).refuse_missing("/data")

    def test_a_name_in_other_letters(self) -> None:
        with pytest.raises(
            UsageError, match=r"^--topic ORDERS: .*; topics with similar names: orders, order-items"
        ):
            after_all(PartitionChoice(["ORDERS"])).refuse_missing("/data")

    @pytest.mark.parametrize(
        ("choice", "said"),
        [
            (PartitionChoice(["orders,order-items"]), "--topic orders --topic order-items"),
            (PartitionChoice(partitions=["orders-1, orders-2"]), "--partition orders-1 --partition orders-2"),
        ],
    )
    def test_names_with_commas_between_them(self, choice: PartitionChoice, said: str) -> None:
        with pytest.raises(UsageError, match=rf"; several are given as {said}$"):
            after_all(choice).refuse_missing("/data")

    @pytest.mark.parametrize(("topics", "partitions"), [([""], []), ([], [""])])
    def test_no_name(self, topics: list[str], partitions: list[str]) -> None:
        with pytest.raises(UsageError, match=r"the name is empty|without a name"):
            PartitionChoice(topics, partitions)

    def test_a_partition_too_far(self) -> None:
        with pytest.raises(
            UsageError, match=r"--partition orders-8: .* topic orders has partitions from 0 to 7"
        ):
            after_all(PartitionChoice([], ["orders-8"])).refuse_missing("/data")

    def test_what_there_is_where_nothing_is_near(self) -> None:
        with pytest.raises(UsageError, match=r"existing topics: order-items, orders, payments$"):
            after_all(PartitionChoice(["xyz"])).refuse_missing("/data")

    def test_many_topics_are_counted(self) -> None:
        choice = PartitionChoice(["none"])
        for number in range(20):
            choice(Named(f"{number:02d}", 0))
        with pytest.raises(UsageError, match=r"existing topics: 00, 01, 02, 03, 04 and 15 more$"):
            choice.refuse_missing("/data")

    def test_nothing_at_all(self) -> None:
        with pytest.raises(UsageError, match="there are no partitions"):
            PartitionChoice(["orders"]).refuse_missing("/data")

    def test_one_of_several_is_missing(self) -> None:
        with pytest.raises(UsageError, match="--topic nope"):
            after_all(PartitionChoice(["orders", "nope"], ["payments-0"])).refuse_missing("/data")

    def test_what_is_no_partition(self) -> None:
        with pytest.raises(UsageError, match="--partition orders: expected TOPIC-N"):
            PartitionChoice([], ["orders"])

    def test_what_is_there_is_no_error(self) -> None:
        after_all(PartitionChoice(["orders"], ["payments-0"])).refuse_missing("/data")
        PartitionChoice().refuse_missing("/data")

    def test_the_numbers_of_the_data_source_are_those_of_its_topics(self) -> None:
        for topics, numbers, words in (
            (["ordes"], None, "topic=ordes: .*orders"),
            (["payments"], [7], "partition=7: none of the topics"),
            (None, [8], "partition=8"),
        ):
            selected = SelectedPartitions(topics, numbers)
            for one in THERE:
                selected.note(one)
            with pytest.raises(UsageError, match=words):
                selected.refuse_missing("/data")
        selected = SelectedPartitions(["orders"], [0, 7])
        for one in THERE:
            selected.note(one)
        selected.refuse_missing("/data")


FILTERS = [("--topic", "nope"), ("--partition", "nope-0"), ("--partition", "plain-77")]


class TestCommands:
    @pytest.mark.parametrize("given", FILTERS)
    def test_verify(self, given: tuple[str, str], log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.refused(capsys, given, "verify", "--log-dirs", str(log_dir), "--progress", "none")

    def test_verify_as_a_library(self, log_dir: Path) -> None:
        with pytest.raises(UsageError, match="--topic nope"):
            recovery.verify([str(log_dir)], topics=["nope"])

    @pytest.mark.parametrize("given", FILTERS)
    def test_inventory(
        self, given: tuple[str, str], stored_archive: TieredArchive, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.refused(capsys, given, "archive", "inventory", str(stored_archive.path))

    def test_inventory_of_one_partition(
        self, stored_archive: TieredArchive, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Where the archive is the folder of a partition itself."""
        folder = next(path.parent for path in stored_archive.path.rglob("*.log"))
        self.refused(capsys, ("--topic", "nope"), "archive", "inventory", str(folder))

    def test_a_name_that_the_metadata_topic_alone_knows_is_there(
        self, stored_archive: TieredArchive, capsys: pytest.CaptureFixture[str]
    ) -> None:
        metadata = ",".join(map(str, stored_archive.log_dirs))
        command = ["archive", "inventory", str(stored_archive.path), "--metadata", metadata]
        assert main([*command, "--topic", "gone"]) in (0, 2)

    @pytest.mark.spark
    @pytest.mark.parametrize(
        "action", [("verify",), ("verify", "--logs-only"), ("recover", "--output")], ids=" ".join
    )
    def test_archives(
        self,
        action: tuple[str, ...],
        stored_archive: TieredArchive,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        output = [str(tmp_path / "out")] if action[-1] == "--output" else []
        command = ("archive", action[0], str(stored_archive.path), "--progress", "none", *action[1:], *output)
        self.refused(capsys, ("--topic", "nope"), *command)

    def test_an_empty_inventory(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["archive", "inventory", str(tmp_path), "--layout", "aiven"]) == 1
        assert "no folder of a partition was found in the layout aiven" in capsys.readouterr().err

    @pytest.mark.spark
    def test_an_empty_archive(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["archive", "verify", str(tmp_path), "--layout", "plain", "--progress", "none"]) == 1
        assert "no folder of a partition was found in the layout plain" in capsys.readouterr().err

    @pytest.mark.spark
    def test_an_archive_of_which_nothing_can_be_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "d1").mkdir()  # the topic may well be in there
        listed = LocalStore.list_level

        def list_level(store: LocalStore, prefix: str) -> Level:
            if prefix:
                raise PermissionError(13, "denied", prefix)
            return listed(store, prefix)

        monkeypatch.setattr(LocalStore, "list_level", list_level)
        command = ["archive", "verify", str(tmp_path), "--layout", "plain", "--progress", "none"]
        for filters in ([], ["--topic", "nope"]):
            assert main([*command, *filters]) == 4
            assert "denied" in capsys.readouterr().out

    def refused(self, capsys: pytest.CaptureFixture[str], given: tuple[str, str], *command: str) -> None:
        assert main([*command, *given]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert f"{' '.join(given)}: not found in /" in said.err
        assert "an error in the tool" not in said.err
