"""Chunks that cannot be restored: verify names object, position, rule and remedy; rows say so in each mode, or fail."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys, load_aiven_keys
from recovery.archive.layouts.holed_log import ChunkError, HoledLog
from recovery.archive.layouts.log_windows import BadStretch, BatchWindow, LogWindows
from recovery.archive.records.damage import LeftOut
from recovery.archive.records.read_options import Corrupt, ReadOptions
from recovery.archive.records.record_schema import Include
from recovery.check.finding import REMEDIES, Finding
from recovery.errors import DamagedSegmentError, UsageError
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.aiven_archive import KEY_ID, encrypt_oaep, finished_segments, store_segment, write_private_key
from tests.logs.builders import record_batch
from tests.logs.memory_log import MemoryLog
from tests.runs.goings import gone_through
from tests.runs.readings import read

NAMES = ("partition", "offset", "value", "position", "fault")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> AivenKeys:
    return load_aiven_keys({KEY_ID: write_private_key(tmp_path_factory.mktemp("keys"))})


@pytest.fixture(scope="module")
def stored(stored_archive: TieredArchive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of a real broker, compressed and encrypted in chunks of 5,000 bytes."""
    root = tmp_path_factory.mktemp("aiven")
    for segment, files in finished_segments(stored_archive.root, stored_archive.log_dirs, {"transactions"}):
        seed = segment.segment_id.int % 1000
        store_segment(root, segment, files, seed=seed, is_compressed=True, is_encrypted=True)
    return root


@pytest.fixture
def log(stored: Path, tmp_path: Path) -> Path:
    """A log of three chunks in a copy of the archive."""
    root = Path(shutil.copytree(stored, tmp_path / "archive"))
    return sorted(root.glob("*/0/*.log"))[3]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def give_data_key(log: Path, encrypted: bytes) -> None:
    manifest = log.with_suffix(".rsm-manifest")
    document = json.loads(manifest.read_text())
    document["encryption"]["dataKey"] = f"{KEY_ID}:{base64.b64encode(encrypted).decode()}"
    manifest.write_text(json.dumps(document))


def another_data_key(log: Path) -> None:
    others = json.loads(sorted(log.parent.glob("*.rsm-manifest"))[-1].read_text())["encryption"]["dataKey"]
    give_data_key(log, base64.b64decode(others.partition(":")[2]))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "the first chunk changed": (lambda log: flip(log, 40), "chunk"),
    "the last chunk changed": (lambda log: flip(log, -5), "chunk"),
    "truncated": (lambda log: log.write_bytes(log.read_bytes()[: log.stat().st_size // 2]), "object-size"),
    "longer": (lambda log: log.write_bytes(log.read_bytes() + b"more"), "object-size"),
    "swapped": (lambda log: shutil.copy(sorted(log.parent.glob("*.log"))[5], log), "object-size"),
    "another segment's data key": (another_data_key, "chunk"),
    "a short data key": (lambda log: give_data_key(log, encrypt_oaep(bytes(16), bytes(64))), "chunk"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_cannot_be_restored_is_named_in_each_mode(name: str, log: Path, keys: AivenKeys) -> None:
    damage, rule = DAMAGES[name]
    root = log.parents[2]
    sound = {(row["partition"], row["offset"]): row for row in read(root, *NAMES, keys=keys)}
    damage(log)
    with pytest.raises(DamagedSegmentError) as error:
        read(root, *NAMES, keys=keys)
    sentence = rf"{re.escape(str(log))}: byte \d+: {rule}: .*\. Remedy: .*\. To read on: .*corrupt=skip"
    assert re.match(sentence, str(error.value))
    left_out: list[LeftOut] = []
    kept = read(root, *NAMES, keys=keys, options=ReadOptions(corrupt=Corrupt.SKIP), left_out=left_out)
    assert all(row == sound[row["partition"], row["offset"]] for row in kept)
    assert {one.name for one in left_out} == {str(log)}
    rules = {one.rule for one in left_out}
    assert rules == ({"object-size"} if name == "longer" else {rule, "chunk"})
    rows = read(root, *NAMES, keys=keys, options=ReadOptions(corrupt=Corrupt.INCLUDE))
    assert [row for row in rows if row["fault"] is None] == kept
    assert {row["fault"].partition(":")[0] for row in rows if row["fault"]} == rules
    assert (len(kept) == len(sound)) == (name == "longer")


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_names_object_position_rule_and_remedy(name: str, log: Path, keys: AivenKeys) -> None:
    DAMAGES[name][0](log)
    found = findings_of(log, keys)[log.name]
    if name != "longer":
        (chunk,) = (one for one in found if one.rule == "chunk")
        place = re.match(
            r"bytes (\d+) to \d+ of the log cannot be restored from chunk \d, bytes (\d+) to \d+",
            chunk.detail,
        )
        assert place is not None
        assert chunk.position == int(place[2])
        assert (chunk.position == 0) == (name not in ("the last chunk changed", "truncated"))
        assert chunk.remedy == REMEDIES["chunk"]
    sizes = {"truncated", "longer", "swapped"}
    assert ("object-size" in {one.rule for one in found}) == (name in sizes)


def findings_of(log: Path, keys: AivenKeys) -> dict[str, tuple[Finding, ...]]:
    """What verify finds, by the names of the objects; all of the same segment."""
    root = log.parents[2]
    judged = [one.verdict for verdict in gone_through(root, keys=keys) for one in verdict.objects]
    found = {Path(one.path).name: one.findings for one in judged if one.findings}
    assert {name.partition(".")[0] for name in found} == {log.stem}
    return found


def test_indexes_that_cannot_be_restored_are_named_with_their_place_and_nothing_else_of_them(
    log: Path, keys: AivenKeys
) -> None:
    indexes = log.with_suffix(".indexes")
    indexes.write_bytes(indexes.read_bytes()[:20])
    found = findings_of(log, keys)
    assert [one.rule for one in found.pop(indexes.name)] == ["object-size"]
    assert set(found) >= {log.with_suffix(f".{kind}").name for kind in ("index", "timeindex", "snapshot")}
    assert "chunk" in {one.rule for one in found.pop(log.with_suffix(".txnindex").name)}
    for (finding,) in found.values():
        assert finding.rule == "chunk"
        assert re.match(
            r"it cannot be restored from bytes \d+ to \d+ of the .indexes object: the object ends after",
            finding.detail,
        )


@pytest.mark.parametrize("corrupt", Corrupt)
def test_a_transaction_index_that_cannot_be_restored_fails_a_query_for_committed_records(
    corrupt: Corrupt, log: Path, keys: AivenKeys
) -> None:
    root, index = log.parents[2], log.with_suffix(".indexes")
    committed = ReadOptions(is_committed=True, corrupt=corrupt)
    assert read(root, *NAMES, keys=keys, options=committed)
    place = json.loads(log.with_suffix(".rsm-manifest").read_text())["segmentIndexes"]["transaction"]
    flip(index, place["position"])
    with pytest.raises(DamagedSegmentError, match=rf"{log.stem}.*: chunk: the transaction index .*Remedy: "):
        read(root, *NAMES, keys=keys, options=committed)
    assert read(root, *NAMES, keys=keys)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_key_that_is_missing_or_does_not_fit_is_named_with_the_manifest(
    log: Path, keys: AivenKeys, is_committed: bool
) -> None:
    root = log.parents[2]
    options = ReadOptions(is_committed=is_committed)
    with pytest.raises(
        UsageError, match=r": missing-key: .*\.rsm-manifest: .* not given: --aiven-key ID=FILE"
    ):
        read(root, *NAMES, keys=NO_KEYS, options=options)
    give_data_key(log, bytes(256))
    with pytest.raises(
        UsageError, match=rf": missing-key: {log.stem}.rsm-manifest: .* or is damaged: --aiven"
    ):
        read(root, *NAMES, keys=keys, options=options)


def test_batches_are_listed_around_a_lost_chunk(log: Path, keys: AivenKeys) -> None:
    root = log.parents[2]
    options = ReadOptions(include=Include.BATCHES)
    sound = read(root, "partition", "base_offset", "fault", keys=keys, options=options)
    flip(log, 40)
    listed = read(root, "partition", "base_offset", "fault", keys=keys, options=options)
    (lost,) = (row for row in listed if row["fault"])
    assert lost["fault"].startswith("chunk: ")
    assert lost["base_offset"] is None
    assert [row for row in listed if not row["fault"]] == [row for row in sound if row in listed]


class LossyLog(MemoryLog):
    """A log in chunks of *chunk_bytes*, of which those in *lost* cannot be restored."""

    def __init__(self, data: bytes, chunk_bytes: int, lost: set[int]) -> None:
        super().__init__(data)
        self._chunk_bytes, self._lost = chunk_bytes, lost

    def read_at(self, target, position):  # type: ignore[no-untyped-def]  # as of MemoryLog
        done = 0
        while done < len(target) and position + done < self.end_position:
            number, within = divmod(position + done, self._chunk_bytes)
            start = number * self._chunk_bytes
            if number in self._lost:
                raise ChunkError("lost", start_position=start, end_position=start + self._chunk_bytes)
            done += super().read_at(target[done : done + self._chunk_bytes - within], position + done)
        return done


@pytest.mark.parametrize("lost", [{0}, {1}, {1, 2}, {0, 2}, {5}, set(range(3, 6)), set(range(6))])
@pytest.mark.parametrize("is_last", [False, True])
def test_every_batch_outside_of_the_holes_is_read(lost: set[int], is_last: bool) -> None:
    """Chunks of 100 batches, more than one search looks at; each batch of which a part is lost is in a stretch."""
    batches = [record_batch(base_offset=number, records=b"x" * 9) for number in range(550)]
    size = len(batches[0])
    assert all(len(batch) == size for batch in batches)
    chunk_bytes = 100 * size + size // 2
    log = LossyLog(b"".join(batches), chunk_bytes, lost)
    windows = LogWindows(
        log, base_offset=0, is_last=is_last, index_positions=lambda: list(range(0, 550 * size, size))
    )
    read_offsets, in_stretches = [], []
    for window in windows:
        if isinstance(window, BatchWindow):
            assert window.is_valid.all()
            read_offsets += window.rows["base_offset"].tolist()
            continue
        assert isinstance(window, BadStretch)
        assert (window.rule, window.is_damage) == ("chunk", True)
        in_stretches += range(window.position // size, -(-window.end_position // size))
    expected = [
        number
        for number in range(550)
        if not lost & {number * size // chunk_bytes, ((number + 1) * size - 1) // chunk_bytes}
    ]
    assert read_offsets == expected
    assert sorted(read_offsets + in_stretches) == list(range(550))


def test_a_batch_larger_than_a_lost_chunk_is_a_stretch_by_its_own_length() -> None:
    batches = [record_batch(base_offset=number, records=b"x" * 3000) for number in range(3)]
    size = len(batches[0])
    log = LossyLog(b"".join(batches), 500, {size // 500 + 2})
    first, stretch, last = LogWindows(log, base_offset=0)
    assert isinstance(first, BatchWindow)
    assert isinstance(last, BatchWindow)
    assert isinstance(stretch, BadStretch)
    assert (stretch.position, stretch.end_position, stretch.rule) == (size, 2 * size, "chunk")
    holed = HoledLog(log)
    assert holed.end_of_holes(7) == 7
