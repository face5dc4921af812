"""Whole brokers can be made, crashed, restarted and asked: 4.3.1, and others for hand-offs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import Oracle
from tests.brokers.broker import dump_segments, sanity_check_indexes
from tests.brokers.sample_brokers import OTHER_VERSIONS, broker_of
from tests.logs.samples import Sample, unpack

pytestmark = [pytest.mark.java, pytest.mark.broker]


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_another_broker_recovers_what_it_was_killed_over(
    version: str, crashed_copy: Callable[[str, Path], Sample], tmp_path: Path
) -> None:
    sample = crashed_copy(version, tmp_path / "crashed")
    assert sample.topic_configs["tiny-batches"] == {"index.interval.bytes": "512"}
    with broker_of(sample, tmp_path / "work", version) as broker:
        broker.start()
        assert "Recovering unflushed segment 0" in broker.log
        reads = broker.read_all()
        broker.stop()
    everything = reads["read_uncommitted"]["tiny-batches-0"]
    assert everything.records == everything.end_offset == 800
    uncommitted, committed = (
        sum(read.records for name, read in reads[level].items() if name.startswith("transactions-"))
        for level in ("read_uncommitted", "read_committed")
    )
    assert uncommitted > committed > 0


def test_a_consumer_reads_the_same_after_the_oracle_and_after_a_broker(
    tmp_path: Path, oracle: Oracle
) -> None:
    reads = []
    for recovered_by_oracle in (True, False):
        sample = unpack("crashed", tmp_path / str(recovered_by_oracle))
        if recovered_by_oracle:
            oracle.load(
                sample.log_dirs,
                now_ms=sample.now_ms,
                properties=sample.properties,
                topic_configs=sample.topic_configs,
            )
            assert sanity_check_indexes(sample.log_dirs).complaints == ()
            assert sanity_check_indexes(sample.log_dirs, against_logs=True).complaints == ()
        with broker_of(sample, tmp_path / "work") as broker:
            broker.start()
            skipped = "Skipping recovery of" in broker.log
            assert skipped == recovered_by_oracle
            reads.append(broker.read_all())
            broker.kill()
    assert reads[0] == reads[1]
    assert reads[0]["read_uncommitted"]["tiered-0"].records == 450  # most of it from remote storage
    assert reads[0]["read_committed"]["transactions-1"].records < 200


def test_complaints_of_dump_log_segments_are_heard(tmp_path: Path) -> None:
    sample = unpack("intact", tmp_path)
    assert sanity_check_indexes(sample.log_dirs, against_logs=True).complaints == ()
    index = next(path for path in sorted(sample.root.glob("d?/plain-0/*.index")) if path.stat().st_size)
    content = bytearray(index.read_bytes())
    content[7] ^= 4  # the position of the first entry
    index.write_bytes(content)
    assert sanity_check_indexes(sample.log_dirs, against_logs=True).complaints
    assert sanity_check_indexes(sample.log_dirs).complaints == ()  # it looks at the ends of an index only
    time_index = index.with_suffix(".timeindex")
    time_index.write_bytes(time_index.read_bytes() + bytes(12))  # as if it had never been trimmed
    assert sanity_check_indexes(sample.log_dirs).complaints
    log = index.with_suffix(".log")
    assert dump_segments([log]).complaints == ()
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    assert dump_segments([log]).complaints
