"""What Aiven's plugin has stored, restored to a new broker: plain, compressed, encrypted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.brokers.broker import Broker
from tests.brokers.restoring import (
    LEVELS,
    QUIET,
    RECOVERED,
    UNLIMITED,
    archived,
    create,
    reads_of,
    restored,
    statuses,
)
from tests.brokers.tiered_broker import unpack_tiered
from tests.logs.aiven_archive import KEY_ID, finished_segments, store_segment, write_private_key
from tests.logs.samples import unpack_aiven
from tests.runs.readings import checksum, read

pytestmark = [pytest.mark.java, pytest.mark.broker]

SAMPLE_RECORDS = 2879
"""Of each of the plugin's two storage roots (`sample_logs/README.md`): three segments."""


def new_broker(root: Path, topics: Sequence[str]) -> Broker:
    """A stopped broker with empty topics."""
    broker = Broker([root / "d"], work_dir=root / "work", properties=QUIET)
    broker.format()
    broker.start()
    for topic in topics:
        create(broker, topic, 1, *UNLIMITED)
    broker.stop()
    return broker


def test_a_consumer_reads_what_the_plugin_has_stored(tmp_path: Path) -> None:
    sample = unpack_aiven(tmp_path)
    roots = {"ava": sample / "plain", "avb": sample / "zstd"}
    with new_broker(tmp_path, list(roots)) as broker:
        for topic, root in roots.items():
            report = restored(broker, root)
            assert statuses(report) == {f"{topic}-0": "restored"}
            assert report["partitions"][0]["segments"] == 3
        broker.start()
        assert not RECOVERED.search(broker.log)
        reads = reads_of(broker)
        for topic, root in roots.items():
            rows = read(root, "topic", "partition", "offset", "timestamp", "key", "value", "headers")
            for level in LEVELS:
                records, _, crc32c = reads[level][f"{topic}-0"]
                assert records == SAMPLE_RECORDS
                assert crc32c == checksum(rows)
        # The plain objects are logs as the first broker had them
        stored = b"".join(path.read_bytes() for path in sorted(roots["ava"].rglob("*.log")))
        logs = sorted((tmp_path / "d/ava-0").glob("*.log"))
        assert b"".join(path.read_bytes() for path in logs) == stored


def test_a_consumer_reads_what_was_encrypted(tmp_path: Path) -> None:
    """Encrypted here by the plugin's format, as it is in no registry; a key that is not given is a refusal."""
    archive = unpack_tiered(tmp_path)
    topics = ("codecs", "deleted-records")
    (tmp_path / "encrypted").mkdir()
    for segment, files in finished_segments(archive.root, archive.log_dirs, topics):
        store_segment(tmp_path / "encrypted", segment, files, is_encrypted=True, is_compressed=True)
    key = write_private_key(tmp_path)
    with new_broker(tmp_path / "new", topics) as broker:
        report = restored(broker, tmp_path / "encrypted", metadata=archive.log_dirs, exit_code=4)
        assert set(statuses(report).values()) == {"refused"}
        assert all(KEY_ID in " ".join(one["reasons"]) for one in report["partitions"])
        report = restored(
            broker,
            tmp_path / "encrypted",
            "--aiven-key",
            f"{KEY_ID}={key}",
            metadata=archive.log_dirs,
        )
        assert set(statuses(report).values()) == {"restored"}
        broker.start()
        assert not RECOVERED.search(broker.log)
        reads = reads_of(broker)
        for topic in topics:
            for level in LEVELS:
                assert reads[level][f"{topic}-0"] == archived(archive, f"{topic}-0", level), (topic, level)
