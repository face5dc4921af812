"""A start that nobody attends: what an older run has left behind does not keep it from its work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recovery.engine.resume import RunJournal
from recovery.write.undo_notice import UNDO_NOTICE
from tests.logs.samples import MARKER, Sample, unpack
from tests.runs.command import assert_one_line, recover, run
from tests.runs.driving import footprint, quarantine_of
from tests.runs.paused import start_paused

ANOTHER = ("--property", "producer.id.expiration.ms=7")


@pytest.fixture
def begun(ram_path: Path) -> Sample:
    """A sample whose recovery was killed in the middle: which log dirs have a journal by then is chance."""
    sample = unpack("crashed", ram_path)
    options = ("--now", sample.now_ms, "--progress", "none", "--threads", "1")
    process = start_paused("PartitionFinished", 12, "recover", "-c", sample.config, *options)
    process.kill()
    process.communicate()
    assert any(Path(RunJournal(str(log_dir)).path).exists() for log_dir in sample.log_dirs)
    return sample


def test_another_setting_is_refused_while_the_run_can_be_gone_on_with(begun: Sample) -> None:
    done = recover(begun, *ANOTHER)
    assert done.exit_code == 3
    assert_one_line(done, "producer.id.expiration.ms: 86400000 then, 7 now", "--restart")


def test_another_setting_is_taken_where_a_broker_has_been_there_since(begun: Sample) -> None:
    for log_dir in begun.log_dirs:
        checkpoint = log_dir / "recovery-point-offset-checkpoint"
        checkpoint.write_bytes(checkpoint.read_bytes())  # as a broker does, every minute
    done = recover(begun, *ANOTHER)
    assert done.exit_code == 0
    notes = [note["text"] for log_dir in done.report["logDirs"] for note in log_dir["notes"]]
    assert any("has changed since: beginning anew" in note for note in notes)
    assert all((log_dir / MARKER).exists() for log_dir in begun.log_dirs)


def test_restart_forgets_what_it_cannot_read(begun: Sample) -> None:
    for log_dir in begun.log_dirs:
        quarantine_of(log_dir).mkdir(exist_ok=True)
        Path(RunJournal(str(log_dir)).path).write_bytes(b"garbage")
    refused = recover(begun)
    assert refused.exit_code == 3
    assert_one_line(refused, "not a journal", "--restart")
    assert recover(begun, "--restart", *ANOTHER).exit_code == 0
    assert not any(path.name.endswith("journal") for path in begun.root.rglob("*"))


def test_restart_forgets_nothing_where_another_log_dir_is_refused(begun: Sample) -> None:
    with_journal = next(path for path in begun.log_dirs if Path(RunJournal(str(path)).path).exists())
    refused = next(path for path in begun.log_dirs if path != with_journal)
    (refused / UNDO_NOTICE).write_bytes(b"")
    before = footprint(begun.root)
    done = recover(begun, "--restart")
    assert done.exit_code == 3
    assert_one_line(done, "an undo was interrupted here. Nothing was changed")
    assert footprint(begun.root) == before


def test_the_last_event_has_the_exit_code_of_the_process(ram_path: Path) -> None:
    sample = unpack("intact", ram_path)
    place = quarantine_of(sample.log_dirs[0])
    place.mkdir()
    (place / "journal").write_bytes(b"garbage")
    done = run("recover", "-c", sample.config, "--progress", "json")
    assert done.exit_code == 3
    finished = [json.loads(line) for line in done.stderr.splitlines() if '"RunFinished"' in line]
    assert [event["exit_code"] for event in finished] == [3]
