"""`--progress log` beside the log of a broker that loads the same folders: what either says of indexes and drops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from segfmt.filenames import LOG_START_OFFSET_CHECKPOINT
from tests.kafka.test_repair import broker_of
from tests.logs.samples import MARKER, unpack
from tests.runs.command import recover

pytestmark = [pytest.mark.java, pytest.mark.broker]

SAID = re.compile(
    r"(WARN|ERROR|INFO) "
    r"(\[LogLoader partition=plain-\d, dir=\S+\] (?:Could not|Found a|Deleting all|Deleting segments).*)"
)
ABORTED_AT_0 = bytes(34)
"""An aborted transaction that ends at offset 0: a segment that begins later cannot have one."""


def lines(log: str) -> set[tuple[str, str]]:
    """Level and text, without what only one of both prints: where a class comes from, and a segment's further facts."""
    found = (
        (level, re.sub(r" due to .*?, recovering", " due to WHY, recovering", text))
        for level, text in SAID.findall(log)
    )
    return {
        (level, re.sub(r"LogSegment\(baseOffset=(\d+)[^)]*\)", r"\1", text).partition(" (org.")[0])
        for level, text in found
    }


@pytest.mark.parametrize("is_clean", [True, False])
def test_index_files_and_a_log_that_ends_before_its_start(ram_path: Path, is_clean: bool) -> None:
    ours, theirs = (unpack("stopped", ram_path / name) for name in ("ours", "theirs"))
    for sample in (ours, theirs):
        first, second = sample.log_dirs
        (first / f"plain-1/{32:020}.index").unlink()
        (first / f"plain-1/{58:020}.txnindex").write_bytes(ABORTED_AT_0)
        (first / f"plain-1/{777:020}.timeindex").write_bytes(b"")
        (second / LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nplain 0 1000\n")
        if not is_clean:
            for log_dir in sample.log_dirs:
                (log_dir / MARKER).unlink()
    done = recover(ours, "--progress", "log")
    assert done.exit_code == 2, done.stderr
    with broker_of(theirs, ram_path / "broker") as broker:
        broker.start()
        broker.stop()
        said = lines(broker.log.replace(str(theirs.root), str(ours.root)))
    assert lines(done.stderr) == said
    assert len(said) == 5
