"""Files that say they are large, or are, and hold nothing: memory follows windows, not them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from native.raw_scan import Stop
from recovery.errors import PartitionRefusedError
from recovery.load.model import LogSettings, Original, ScanRequest
from recovery.load.segments import Segment
from recovery.load.small_files import txn_index_problem
from recovery.load.tree import MOST_WHOLE_BYTES, PartitionTree
from recovery.logdir.listing import look_into
from recovery.logdir.metadata_files import load_cluster_metadata
from recovery.plan.manifest import MOST_LINE_BYTES
from recovery.read.file_system import read_small
from recovery.read.partition_files import PartitionFiles
from recovery.saved.runs import list_runs
from recovery.write.quarantine import MANIFEST, MOST_MANIFEST_BYTES, manifest_entries
from segfmt.errors import CorruptBatchError, CorruptSnapshotError
from segfmt.metadata_log import MAX_BATCH_BYTES
from segfmt.producer_snapshot import read_producer_snapshot
from tests import ROOT
from tests.logs import builders
from tests.logs.quarantine_builder import NEW_RUN, RunBuilder
from tests.recovery.load.memory import name
from tests.segfmt.golden_files import golden

pytestmark = pytest.mark.long

HUGE_BYTES = (2 << 30) - 100
MOST_GROWTH_BYTES = 128 << 20

PROGRAM = """
import resource, sys
from tests.recovery.saved import test_hostile_sizes as tests
getattr(tests, sys.argv[1])(sys.argv[2])  # what is loaded and compiled once
def anonymous():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(fields["VmData"].split()[0]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (anonymous() + tests.MOST_GROWTH_BYTES,) * 2)
print(getattr(tests, sys.argv[1])(sys.argv[3]))
"""


def bounded(work: str, small: Path, huge: Path) -> str:
    """What the function *work* of this module says of *huge* where memory may grow by 128 MB only."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, work, str(small), str(huge)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def sparse(path: Path, size_bytes: int = HUGE_BYTES, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.truncate(path, size_bytes)
    return path


def tree_of(folder: str) -> PartitionTree:
    return PartitionTree(look_into(folder).files, PartitionFiles(folder, LogSettings()))


def transaction_index(path: str) -> str:
    folder, file = os.path.split(path)
    segment = Segment(base_offset=int(file.partition(".")[0]), opened_indexes=set())
    problem = txn_index_problem(tree_of(folder), segment, is_low_byte_read=True)
    return str(problem is not None)


def active_segment(path: str) -> str:
    folder, file = os.path.split(path)
    part = Original(file=file, size_bytes=os.stat(path).st_size)
    scan = PartitionFiles(folder, LogSettings()).scan(ScanRequest(part=part, base_offset=0))
    return f"{scan.stop.name} {scan.valid_bytes}"


def metadata(folder: str) -> str:
    try:
        found = load_cluster_metadata(folder)
    except CorruptBatchError as error:
        return str(error)
    return f"{len(found.topic_ids)} {found.end_offset} {found.damage}"


def manifest(root: str) -> str:
    (run,) = list_runs(root)
    entries = manifest_entries(run.path)
    assert [entry["stored"] for entry in entries] == [entry.stored for entry in run.counted]
    return f"{len(entries)} {run.manifest.problems} {run.manifest.has_torn_end}"


@pytest.mark.parametrize(("base_offset", "is_corrupt"), [(0, False), (7, True)])
def test_a_transaction_index_of_zeros(tmp_path: Path, base_offset: int, is_corrupt: bool) -> None:
    """A broker goes through it entry by entry: offset 0 is none below the base offset 0."""
    file = name(base_offset, ".txnindex")
    small, huge = sparse(tmp_path / "t-0" / file, 3400), sparse(tmp_path / "t-1" / file)
    assert bounded("transaction_index", small, huge) == str(is_corrupt)


def test_a_transaction_index_that_is_bad_far_behind(tmp_path: Path) -> None:
    huge = sparse(tmp_path / "t-1" / name(0, ".txnindex"))
    with huge.open("r+b") as file:
        file.seek(34 * 50_000_000 + 18)
        file.write(b"\xff" * 8)  # the last offset
    small = sparse(tmp_path / "t-0" / name(0, ".txnindex"), 34)
    assert bounded("transaction_index", small, huge) == "True"


def test_a_length_with_a_flipped_bit(tmp_path: Path) -> None:
    """What a batch says it has is read only as far as it takes to see that it is none."""
    whole = builders.record_batch(base_offset=0)
    flipped = bytearray(builders.record_batch(base_offset=1))
    flipped[8] ^= 0x20  # 512 MiB
    small = sparse(tmp_path / "t-0" / name(0), len(whole), whole)
    huge = sparse(tmp_path / "t-1" / name(0), 1 << 30, whole + bytes(flipped))
    said = bounded("active_segment", small, huge)
    assert said == f"{Stop.CRC_MISMATCH.name} {len(whole)}"


@pytest.mark.parametrize("file", ["leader-epoch-checkpoint", "partition.metadata", name(0, ".index")])
def test_what_is_read_at_once_has_an_end(tmp_path: Path, file: str) -> None:
    huge = sparse(tmp_path / "t-0" / file)
    with pytest.raises(PartitionRefusedError) as refused:
        tree_of(str(huge.parent)).read(file)
    words = str(refused.value)
    assert all(word in words for word in (file, str(HUGE_BYTES), str(MOST_WHOLE_BYTES), "move it away"))


@pytest.mark.parametrize(
    "head", [b"", b"\0\1" + bytes(4) + b"\xff\xff\xff\xff", b"\0\1" + bytes(4) + b"\x7f\xff\xff\xff"]
)
def test_a_snapshot_that_cannot_be_one_is_corrupt_without_being_read(tmp_path: Path, head: bytes) -> None:
    huge = sparse(tmp_path / "t-0" / name(0, ".snapshot"), data=head)
    data = tree_of(str(huge.parent)).read_snapshot(huge.name)
    assert len(data) < 100
    with pytest.raises(CorruptSnapshotError):
        read_producer_snapshot(data)


def test_a_checkpoint_of_a_log_dir_has_an_end(tmp_path: Path) -> None:
    huge = sparse(tmp_path / "recovery-point-offset-checkpoint")
    with pytest.raises(
        OSError, match=f"{HUGE_BYTES} bytes, but no such file has more than .* Remedy: "
    ) as raised:
        read_small(str(huge))
    assert raised.value.filename == str(huge)


def metadata_dirs(tmp_path: Path, file: str, data: bytes) -> tuple[Path, Path]:
    small = sparse(tmp_path / "small" / file, len(data), data)
    return small.parent, sparse(tmp_path / "huge" / file, data=data).parent


def test_a_metadata_log_that_ends_in_zeros(tmp_path: Path) -> None:
    data = golden("cluster-metadata.log")
    small, huge = metadata_dirs(tmp_path, name(0), data)
    told = metadata(str(small))
    assert told.endswith(" None")
    end = f"position {len(data)}: length 0, the least is 14"
    assert bounded("metadata", small, huge) == told.replace("None", end)


@pytest.mark.parametrize("size_bytes", [MAX_BATCH_BYTES, MAX_BATCH_BYTES + 1, HUGE_BYTES // 2])
def test_a_metadata_log_with_a_batch_that_is_said_to_be_huge(tmp_path: Path, size_bytes: int) -> None:
    whole = golden("cluster-metadata.log")
    head = bytearray(builders.record_batch(base_offset=1))
    head[8:12] = (size_bytes - 12).to_bytes(4, "big")
    small, huge = metadata_dirs(tmp_path, name(0), whole + bytes(head))
    said = bounded("metadata", small, huge)
    is_read = size_bytes <= MAX_BATCH_BYTES
    assert ("CRC" if is_read else f"position {len(whole)}: {size_bytes} bytes, the most is") in said
    assert said.split(" ")[:2] == metadata(str(small)).split(" ")[:2]


def test_a_checkpoint_of_the_metadata_log_that_ends_in_zeros(tmp_path: Path) -> None:
    data = golden("bootstrap.checkpoint")
    small, huge = metadata_dirs(tmp_path, f"{9:020}-{1:010}.checkpoint", data)
    assert f"position {len(data)}: length 0" in bounded("metadata", small, huge)


def test_a_metadata_log_that_is_larger_than_a_segment_can_be(tmp_path: Path) -> None:
    huge = sparse(tmp_path / name(0), 1 << 31)
    with pytest.raises(OSError, match="no such file has more than") as raised:
        load_cluster_metadata(str(tmp_path))
    assert raised.value.filename == str(huge)


def manifest_roots(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of runs, of a run with a manifest that names a file each."""
    roots = tmp_path / "small", tmp_path / "huge"
    for root in roots:
        RunBuilder(root, NEW_RUN, tmp_path / "d1").save()
    return roots


def test_a_manifest_that_ends_in_zeros(tmp_path: Path) -> None:
    small, huge = manifest_roots(tmp_path)
    os.truncate(huge / NEW_RUN / MANIFEST, MOST_MANIFEST_BYTES)
    assert manifest(str(small)) == "1 () False"
    assert bounded("manifest", small, huge) == "1 () True"


def test_a_manifest_with_a_huge_line_between_others(tmp_path: Path) -> None:
    small, huge = manifest_roots(tmp_path)
    path = huge / NEW_RUN / MANIFEST
    line = path.read_bytes()
    os.truncate(path, MOST_LINE_BYTES * 5)
    with path.open("ab") as file:
        file.write(b"\n" + line.replace(b"t-0/", b"t-0/x"))
    problems = ("line 2 of the manifest is not a JSON object",)
    assert bounded("manifest", small, huge) == f"2 {problems} False"


def test_a_manifest_that_is_larger_than_any(tmp_path: Path) -> None:
    _, huge = manifest_roots(tmp_path)
    os.truncate(huge / NEW_RUN / MANIFEST, MOST_MANIFEST_BYTES + 1)
    for read in (manifest, lambda root: manifest_entries(f"{root}/{NEW_RUN}")):
        with pytest.raises(OSError, match="no such file has more than") as raised:
            read(str(huge))
        assert raised.value.filename == str(huge / NEW_RUN / MANIFEST)
