"""What stops a broker though its logs can be recovered: a PROBLEM of a log dir, and exit code 4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.sample_brokers import broker_of
from tests.logs.samples import MARKER, Sample, unpack
from tests.runs.command import recover

pytestmark = pytest.mark.broker


def without_meta_properties(sample: Sample) -> None:
    (sample.log_dirs[1] / "meta.properties").unlink()


def with_an_emptied_meta_properties(sample: Sample) -> None:
    (sample.log_dirs[1] / "meta.properties").write_bytes(b"")


def with_meta_properties_of_no_version(sample: Sample) -> None:
    path = sample.log_dirs[0] / "meta.properties"
    path.write_text(path.read_text().replace("version=1\n", ""))


def with_metadata_elsewhere(sample: Sample) -> None:
    (sample.log_dirs[1] / "__cluster_metadata-0").mkdir()


def with_a_wrong_checkpoint(sample: Sample) -> None:
    (sample.log_dirs[1] / "replication-offset-checkpoint").write_text("nonsense")


def with_no_number_in_a_checkpoint(sample: Sample) -> None:
    (sample.log_dirs[1] / "replication-offset-checkpoint").write_text("0\n1\nx 0 abc\n")


def with_torn_epochs_of_the_metadata_log(sample: Sample) -> None:
    (sample.log_dirs[0] / "__cluster_metadata-0" / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 ")


def with_an_emptied(name: str) -> Callable[[Sample], None]:
    def obstruct(sample: Sample) -> None:
        (sample.log_dirs[0] / name).write_bytes(b"")

    return obstruct


@pytest.mark.parametrize(
    ("obstruct", "number", "line"),
    [
        (without_meta_properties, 1, "No `meta.properties` found in"),
        (with_an_emptied_meta_properties, 1, "Error: node ID not found in"),
        (with_meta_properties_of_no_version, 0, "Error: node ID not found in"),
        (with_metadata_elsewhere, 1, "Found unexpected metadata location"),
        (with_a_wrong_checkpoint, 1, "Stopping serving logs in dir"),
        (with_no_number_in_a_checkpoint, 1, "Encountered metadata publishing fault"),
        (with_an_emptied("bootstrap.checkpoint"), 0, "No FeatureLevelRecord for metadata.version was found"),
        (with_an_emptied("__cluster_metadata-0/quorum-state"), 0, "EOFException: File ended prematurely"),
        (with_an_emptied("__cluster_metadata-0/partition.metadata"), 0, "Encountered fatal fault"),
        (with_torn_epochs_of_the_metadata_log, 0, "Malformed line in checkpoint file"),
    ],
)
def test_a_broker_does_not_use_what_was_recovered(
    obstruct: Callable[[Sample], None], number: int, line: str, ram_path: Path
) -> None:
    sample = unpack("crashed", ram_path)
    obstruct(sample)
    done = recover(sample)
    assert done.exit_code == 4
    sound, stopping = done.report["logDirs"][1 - number], done.report["logDirs"][number]
    assert (sound["problems"], len(stopping["problems"])) == ([], 1)
    assert stopping["status"] == "recovered"
    with broker_of(sample, ram_path / "work") as broker:
        broker.launch()
        if line.startswith(("Stopping", "Encountered metadata")):  # and goes on, without its logs
            broker.wait_for(line)
        else:
            assert broker.wait_for_end() != 0
            assert line in broker.log


def test_epochs_of_the_metadata_log_that_are_moved_away(ram_path: Path) -> None:
    """As the remedy says."""
    sample = unpack("crashed", ram_path)
    with_torn_epochs_of_the_metadata_log(sample)
    (problem,) = recover(sample).report["logDirs"][0]["problems"]
    assert problem["rule"] == "epoch-checkpoint"
    assert "move it away" in problem["remedy"]
    (sample.log_dirs[0] / problem["file"]).unlink()
    assert recover(sample).exit_code == 0
    with broker_of(sample, ram_path / "work") as broker:
        broker.start()
        broker.stop()


def test_a_log_that_is_refused_in_a_clean_dir_is_not_cut_by_a_broker(ram_path: Path) -> None:
    """The marker stays while another log is mended: a broker that can read the file again loads the log as it lies."""
    sample = unpack("crashed", ram_path)
    assert recover(sample).exit_code == 0
    refused, mended = (sample.log_dirs[0] / folder for folder in ("codec-none-0", "codec-zstd-0"))
    segment = max(refused.glob("*.log"))
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    segment.write_bytes(damaged)
    epochs = refused / "leader-epoch-checkpoint"
    readable = epochs.read_bytes()
    epochs.write_text("nonsense")
    index = min(mended.glob("*.index"))
    index.unlink()
    done = recover(sample)
    assert done.exit_code == 4
    assert index.is_file()
    assert [one["cleanShutdownMarker"] for one in done.report["logDirs"]] == [True, True]
    assert (sample.log_dirs[0] / MARKER).is_file()
    epochs.write_bytes(readable)
    with broker_of(sample, ram_path / "work") as broker:
        broker.start()
        assert f"from {sample.log_dirs[0]} since clean shutdown file was found" in broker.log
        broker.stop()
    assert segment.read_bytes() == damaged
