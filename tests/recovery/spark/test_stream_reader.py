"""A stream's reader between two batches and over restarts: what it must read again, and what ends the query.

No Spark runs: the reader's methods are called as Spark calls them.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from recovery.errors import DamagedSegmentError, UsageError
from recovery.spark.data_source import KafkaLogSegments
from segfmt.kafka_uuid import format_uuid
from tests.logs.archives import EPOCHS, LOG, batch_positions, made_copies, write_archive
from tests.servers.s3_server import S3Server, in_environment

SCHEMA = StructType([StructField("offset", LongType())])
METADATA = "partition.metadata"


class Query:
    """A query, restarted before each step: only what Spark keeps in the checkpoint is left."""

    def __init__(self, root: Path | str, **options: str) -> None:
        self._options = {"path": str(root), "topic": "orders", **options}
        self.start: Any = None
        self.end: Any = None

    def plan(self) -> None:
        """Decide on a batch, which goes into the checkpoint."""
        self._reader = self._new_reader()
        start = self._reader.initialOffset() if self.start is None else self.start
        self.end = json.loads(
            json.dumps(self._reader.latestOffset(start, self._reader.getDefaultReadLimit()))
        )

    def run(self) -> list[int]:
        """Read the batch, after a restart; it is not committed."""
        reader = self._new_reader()
        start = reader.initialOffset() if self.start is None else self.start
        return [
            row["offset"]
            for task in reader.partitions(start, self.end)
            for rows in reader.read(task)
            for row in rows.to_pylist()
        ]

    def step(self) -> list[int]:
        """Plan a batch, run it and commit it."""
        self.plan()
        offsets = self.run()
        self.start = self.end
        return offsets

    def _new_reader(self) -> Any:
        return KafkaLogSegments(self._options).streamReader(SCHEMA)


class Archive:
    """A plain copy of four segments of orders-0, of which the later ones may be hidden."""

    def __init__(self, root: Path, layout: str = "plain") -> None:
        self.copies = made_copies(topic="orders", segments=4)
        self._archive = write_archive(root, layout, self.copies)
        self.root = self._archive.root
        self._files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self.bases = [copy.remote.start_offset for copy in self.copies]
        self.end = self.copies[-1].remote.end_offset + 1

    def keep(self, *numbers: int) -> None:
        """Have these segments alone."""
        for path, data in self._files.items():
            path.write_bytes(data)
        for number, copy in enumerate(self.copies):
            for part in copy.files if number not in numbers else ():
                if part != EPOCHS or self._archive.is_tiered:
                    self._archive.place(copy, part).unlink(missing_ok=True)

    def log(self, number: int) -> Path:
        return self._archive.place(self.copies[number], LOG)

    @property
    def metadata(self) -> Path:
        return self.root / "orders-0" / METADATA


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


class TestABatchThatIsRunAgain:
    @pytest.mark.parametrize("layout", ["plain", "local-tiered"])
    @pytest.mark.parametrize("kept", [(1, 2, 3), (0, 2, 3), (0, 1, 2), ()])
    def test_reads_the_same_or_fails(
        self, tmp_path: Path, layout: str, kept: tuple[int, ...], caplog: pytest.LogCaptureFixture
    ) -> None:
        archive = Archive(tmp_path / "archive", layout)
        query, lenient = Query(archive.root), Query(archive.root, failOnDataLoss="false")
        query.plan()
        lenient.plan()
        rows = query.run()
        archive.keep(*kept)
        lost = archive.bases[min({0, 1, 2, 3} - set(kept))]
        with pytest.raises(
            (UsageError, DamagedSegmentError), match=rf"{lost}|topic=orders: not found"
        ) as found:
            query.run()
        assert "failOnDataLoss=false" in str(found.value) or not kept
        if kept:
            with caplog.at_level(logging.WARNING):
                assert set(lenient.run()) < set(rows)
            assert f"{lost} to" in caplog.text
        archive.keep(0, 1, 2, 3)
        assert query.run() == rows

    def test_does_not_take_a_torn_batch_for_the_end(self, archive: Archive) -> None:
        query = Query(archive.root)
        query.plan()
        data = archive.log(3).read_bytes()
        archive.log(3).write_bytes(data[: batch_positions(data)[-2] + 20])
        with pytest.raises(
            DamagedSegmentError, match=rf"cut-end.*offsets \d+ to {archive.end - 1} are missing"
        ):
            query.run()

    def test_begins_where_it_began(self, archive: Archive) -> None:
        archive.keep(0, 1)
        query = Query(archive.root, topic="", subscribe="orders", startingOffsets="latest")
        query.plan()
        start = query.end
        assert query.run() == []
        archive.keep(0, 1, 2)
        query.start = {
            topic: {i: {"0": {"first": at["0"]["first"]}} for i, at in of.items()}
            for topic, of in start.items()
        }
        query.plan()
        query.start = None  # the first batch was not committed: Spark asks again where the query begins
        archive.keep(0, 1, 2, 3)
        rows = query.run()
        assert archive.bases[2] <= rows[0] < rows[-1] < archive.bases[3]

    def test_reads_no_less_where_the_last_stable_offset_has_gone_back(self, archive: Archive) -> None:
        query = Query(archive.root, isolation="read_committed")
        query.plan()
        rows = query.run()
        archive.keep(0, 1, 2)
        with pytest.raises(
            UsageError, match=r"orders-0: offsets \d+ to \d+ were committed .* last stable offset"
        ):
            query.run()
        archive.keep(0, 1, 2, 3)
        assert query.run() == rows

    def test_of_another_source_is_refused(self, archive: Archive) -> None:
        query = Query(archive.root)
        query.start = {"orders": {"0": 23}}
        with pytest.raises(UsageError, match="offsets of another source"):
            query.plan()


class TestATopic:
    @pytest.mark.parametrize("metadata", [None, b"version: 0\n"])
    def test_of_unknown_id_continues_the_known_one(self, archive: Archive, metadata: bytes | None) -> None:
        archive.keep(0, 1)
        query = Query(archive.root)
        rows = query.step()
        archive.keep(0, 1, 2)
        if metadata is None:
            archive.metadata.unlink()
        else:
            archive.metadata.write_bytes(metadata)
        rows += query.step()
        archive.keep(0, 1, 2, 3)
        rows += query.step()
        assert rows == Query(archive.root).step()
        (topic_id,) = query.end["orders"]
        assert len(topic_id) == 22

    def test_of_an_id_that_becomes_known_goes_on(self, archive: Archive) -> None:
        archive.keep(0, 1)
        archive.metadata.unlink()
        query = Query(archive.root)
        rows = query.step()
        archive.keep(0, 1, 2, 3)
        rows += query.step()
        assert rows == Query(archive.root).step()

    def test_of_another_id_ends_the_query(self, archive: Archive) -> None:
        known, other = format_uuid(self._id(archive)), format_uuid(UUID(int=9 << 64 | 7))
        query = Query(archive.root)
        query.plan()
        archive.metadata.write_text(f"version: 0\ntopic_id: {other}\n")
        with pytest.raises(UsageError, match=f"orders-0: .*{known}.*but {other}"):
            query.run()
        query.start = query.end
        with pytest.raises(
            UsageError, match=f"orders-0: the archive has the topic {other}.*has read {known}"
        ):
            query.plan()
        query.end = query._new_reader().latestOffset()  # as Spark before 4.2 asks
        with pytest.raises(
            UsageError, match=f"orders-0: the archive has the topic {other}.*has read {known}"
        ):
            query.run()
        chosen = Query(archive.root, topicId=other)
        chosen.start = query.start
        assert chosen.step() == Query(archive.root).step()

    @pytest.mark.parametrize("has_id", [True, False])
    def test_that_ends_before_what_was_read_ends_the_query(
        self, archive: Archive, has_id: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        query = Query(archive.root)
        if not has_id:
            archive.metadata.unlink()
        query.step()
        archive.keep(0, 1)
        text = f"ends at offset {archive.bases[2]}, the stream has read up to {archive.end}"
        with pytest.raises(UsageError, match=rf"orders-0.*: the archive {text}"):
            query.plan()
        lenient = Query(archive.root, failOnDataLoss="false")
        lenient.start = query.start
        with caplog.at_level(logging.WARNING):
            assert lenient.step() == []
        assert text in caplog.text

    def _id(self, archive: Archive) -> UUID:
        return archive.copies[0].owner.topic_id


def test_an_archive_of_which_all_that_was_read_is_deleted_goes_on(archive: Archive) -> None:
    archive.keep(0, 1)
    query = Query(archive.root)
    query.step()
    archive.keep()
    assert query.step() == []
    archive.keep(2, 3)
    assert query.step()[0] == archive.bases[2]


def test_a_query_begins_at_its_beginning_though_its_end_was_asked_for_first(archive: Archive) -> None:
    """As Spark before 4.2 does, where it keeps the first latest offset for `availableNow`."""
    query = Query(archive.root)
    reader = query._new_reader()
    query.end = reader.latestOffset()
    assert reader.initialOffset() == {}
    assert query.end != {}


@pytest.mark.s3
def test_a_bucket_is_read_as_a_folder_is(s3_server: S3Server, tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive", "local-tiered")
    archive.keep()
    rows: list[int] = []
    with in_environment(s3_server.environment()):
        query = Query(s3_server.url("growing"))
        for count in (1, 2, 2, 4):
            archive.keep(*range(count))
            s3_server.upload(archive.root, "growing")
            rows += query.step()
            assert max(rows) == archive.copies[count - 1].remote.end_offset
    assert rows == Query(archive.root).step()
