"""What a real broker had tiered, stored as the Aiven plugin stores it, and verified: plain, zstd, encrypted, both."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from uuid import UUID

import pytest

from recovery.archive.check.options import CheckOptions
from recovery.archive.check.verdict import PartitionVerdict
from recovery.archive.check.verdict_rows import object_row
from recovery.archive.layouts.aiven_cipher import NO_KEYS, AivenKeys, load_aiven_keys
from segfmt.compression import Codec, compress
from segfmt.kafka_uuid import format_uuid
from segfmt.remote_names import AIVEN_SUFFIXES
from tests.brokers.tiered_broker import TieredArchive
from tests.logs.aiven_archive import KEY_ID, encrypt_oaep, finished_segments, store_segment, write_private_key
from tests.logs.archives import LOG, made_copies, metadata_records, write_archive
from tests.logs.metadata_topic import write_metadata
from tests.runs.full_output import fill_disk
from tests.runs.goings import bad_objects, gone_through, run_through

TOPICS = {"transactions", "codecs", "deleted-records"}
MODES = {
    "plain": {},
    "zstd": {"is_compressed": True},
    "aes": {"is_encrypted": True},
    "zstd-aes": {"is_compressed": True, "is_encrypted": True},
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> AivenKeys:
    return load_aiven_keys({KEY_ID: write_private_key(tmp_path_factory.mktemp("keys"))})


@pytest.fixture(scope="module")
def archives(stored_archive: TieredArchive, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same segments in each mode."""
    root = tmp_path_factory.mktemp("aiven")
    for segment, files in finished_segments(stored_archive.root, stored_archive.log_dirs, TOPICS):
        for mode, options in MODES.items():
            store_segment(root / mode, segment, files, seed=segment.segment_id.int % 1000, **options)
    return {mode: root / mode for mode in MODES}


@pytest.fixture
def copy(archives: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Returns a copy of one partition of an archive, to be damaged."""

    def make(mode: str) -> Path:
        (folder,) = archives[mode].glob("codecs-*")
        shutil.copytree(folder, tmp_path / folder.name)
        return tmp_path

    return make


def verified(
    root: Path, keys: AivenKeys = NO_KEYS, *, is_deep: bool = False, topics: Collection[str] = ()
) -> list[PartitionVerdict]:
    return gone_through(root, keys=keys, is_deep=is_deep, topics=topics)


def rules_of(verdicts: list[PartitionVerdict]) -> dict[str, list[str]]:
    """Rules by the ends of keys: the suffix of the object."""
    return {key[key.rindex(".") :]: rules for key, rules in bad_objects(verdicts).items()}


@pytest.mark.parametrize("mode", MODES)
def test_what_a_broker_had_archived_is_sound_in_every_mode(
    archives: dict[str, Path], stored_archive: TieredArchive, keys: AivenKeys, mode: str
) -> None:
    """Batches, records, indexes, snapshots, epochs, aborted transactions: all behind the cipher agree."""
    expected = json.loads((stored_archive.root / "expected.json").read_text())["partitions"]
    verdicts = verified(archives[mode], keys, is_deep=True)
    assert bad_objects(verdicts) == {}
    assert len(verdicts) == 4
    for verdict in verdicts:
        where = verdict.head.where
        told = expected[f"{where.topic}-{where.partition}"]
        assert verdict.end_offset == told["latest_tiered_offset"] + 1
        assert verdict.segment_count >= 10
        assert len(verdict.objects) == 3 * verdict.segment_count


def test_all_modes_hold_the_same(archives: dict[str, Path], keys: AivenKeys) -> None:
    def seen(verdict: PartitionVerdict) -> tuple[object, ...]:
        where = verdict.head.where
        return where.topic, where.partition, verdict.batch_count, verdict.log_bytes, verdict.chain_count

    plain, *others = (
        [seen(one) for one in verified(root, keys, topics={"codecs"})] for root in archives.values()
    )
    assert plain
    assert all(other == plain for other in others)


def test_without_the_key_nothing_is_damaged_and_nothing_was_checked(archives: dict[str, Path]) -> None:
    for verdict in verified(archives["aes"]):
        kinds = {one.verdict.path[-4:]: one.verdict.is_valid for one in verdict.objects}
        assert kinds[".log"] is None
        assert all(one.verdict.is_valid is not False for one in verdict.objects)


def test_with_another_key_nothing_is_damaged_and_nothing_was_checked(
    copy: Callable[[str], Path], tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    other = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "other.pem").write_bytes(other)
    wrong = load_aiven_keys({KEY_ID: tmp_path / "other.pem"})
    verdicts = verified(copy("aes"), wrong)
    judged = [one for verdict in verdicts for one in verdict.objects]
    assert all(one.verdict.is_valid is not False for one in judged)
    logs = [one.verdict for one in judged if one.verdict.kind == "log"]
    assert logs
    for log in logs:
        assert log.is_valid is None
        assert [finding.rule for finding in log.findings] == ["missing-key"]
        assert "another RSA key" in log.findings[0].detail
    assert encrypt_oaep(b"x", bytes(64), other) != encrypt_oaep(b"x", bytes(64))


@pytest.mark.parametrize("mode", MODES)
def test_a_changed_byte_of_any_object_is_found(
    copy: Callable[[str], Path], keys: AivenKeys, mode: str
) -> None:
    """In ciphertext and in frames a byte is enough; of a plain copy one that a checksum or a check covers."""
    root = copy(mode)
    rng = random.Random(7)
    for suffix in (".log", ".indexes"):
        path = rng.choice(sorted(root.rglob(f"*{suffix}")))
        data = bytearray(path.read_bytes())
        whole = bytes(data)
        data[len(data) // 2 if suffix == ".log" else 4] ^= 0x10
        path.write_bytes(data)
        bad = set(rules_of(verified(root, keys)))
        assert bad == {".log"} if suffix == ".log" else bad and ".log" not in bad
        path.write_bytes(whole)
    assert bad_objects(verified(root, keys)) == {}


@pytest.mark.parametrize("mode", ["plain", "zstd-aes"])
def test_a_lost_manifest_leaves_a_gap_and_an_upload_that_was_broken_off_none(
    copy: Callable[[str], Path], keys: AivenKeys, mode: str
) -> None:
    """By names alone they look alike: what tells them apart is whether others begin at the same offset, or after."""
    root = copy(mode)
    paths = sorted(root.rglob("*.rsm-manifest"))
    lost, whole = paths[3], paths[3].read_bytes()
    twin = format_uuid(UUID(int=3))
    for suffix in (".log", ".indexes"):
        part = lost.with_suffix(suffix)
        shutil.copy(part, part.with_name(f"{part.name[:21]}{twin}{suffix}"))
    assert bad_objects(verified(root, keys)) == {}
    paths[-1].unlink()
    assert bad_objects(verified(root, keys)) == {}
    lost.unlink()
    behind = paths[4].with_suffix(".log").relative_to(root).as_posix()
    found = bad_objects(verified(root, keys))
    assert found[lost.relative_to(root).as_posix()] == ["missing-object"]
    assert found[lost.with_suffix(".log").relative_to(root).as_posix()] == ["manifest"]
    assert behind not in found  # where the log before it ends is not known
    lost.write_bytes(whole)
    assert bad_objects(verified(root, keys)) == {}


@pytest.mark.parametrize("mode", ["plain", "zstd-aes"])
@pytest.mark.parametrize("suffix", AIVEN_SUFFIXES)
def test_missing_and_cut_objects_are_found(
    copy: Callable[[str], Path], keys: AivenKeys, mode: str, suffix: str
) -> None:
    root = copy(mode)
    path = sorted(root.rglob(f"*{suffix}"))[3]
    whole = path.read_bytes()
    cuts = [b"", whole[:-1], whole[: len(whole) // 2]]
    for damage in cuts if suffix == ".rsm-manifest" else [None, *cuts]:
        path.unlink() if damage is None else path.write_bytes(damage)
        assert path.relative_to(root).as_posix() in bad_objects(verified(root, keys))
        path.write_bytes(whole)


@pytest.mark.parametrize("garbage", [b"", b"{}", b"[1]", b"PFA1" + bytes(300), bytes(1000), b"{" * 5000])
def test_a_garbage_manifest_is_a_finding_of_its_object(copy: Callable[[str], Path], garbage: bytes) -> None:
    root = copy("plain")
    path = sorted(root.rglob("*.rsm-manifest"))[0]
    path.write_bytes(garbage)
    found = bad_objects(verified(root))
    assert "manifest" in found[path.relative_to(root).as_posix()]


def test_a_bomb_in_a_chunk_is_a_finding_of_its_object(copy: Callable[[str], Path]) -> None:
    """One whose stored size is that of the chunk, so that the manifest does not give it away."""
    root = copy("zstd")
    path = sorted(root.rglob("*.log"))[0]
    manifest = json.loads(path.with_suffix(".rsm-manifest").read_text())
    assert manifest["chunkIndex"]["originalChunkSize"] == 5000
    data = bytearray(path.read_bytes())
    bomb = compress(Codec.ZSTD, bytes(20 << 20))
    assert len(bomb) < 2000
    data[: len(bomb)] = bomb
    path.write_bytes(data)
    assert rules_of(verified(root)) == {".log": ["chunk"]}


def test_a_manifest_of_another_segment_is_noticed(copy: Callable[[str], Path]) -> None:
    root = copy("plain")
    first, second = sorted(root.rglob("*.rsm-manifest"))[:2]
    first.write_bytes(second.read_bytes())
    bad = bad_objects(verified(root))
    key = first.relative_to(root).as_posix()
    assert bad[key] == ["manifest"]
    # What only this manifest makes readable was not checked.
    assert {name: rules for name, rules in bad.items() if name.startswith(key.partition(".")[0])} == {
        key.replace(".rsm-manifest", suffix): ["manifest"] for suffix in AIVEN_SUFFIXES
    }


@pytest.mark.parametrize("has_metadata", [False, True])
def test_a_prefix_that_is_no_folder_is_part_of_the_topics_name(tmp_path: Path, has_metadata: bool) -> None:
    """`key.prefix` is any text that the plugin puts before its keys."""
    archive = write_archive(tmp_path / "archive", "aiven", made_copies(segments=3))
    write_metadata(tmp_path / "log-dir", metadata_records(archive.metadata), segment_batches=1000)
    (folder,) = archive.root.iterdir()
    folder.rename(archive.root / f"prod-{folder.name}")
    metadata = [tmp_path / "log-dir"] if has_metadata else []
    (verdict,) = gone_through(archive.root, metadata=metadata, topics=["prod-made"])
    assert not [found for one in verdict.objects for found in one.verdict.findings]
    other = folder.name.replace("made-", "prod-other-")
    (archive.root / f"prod-{folder.name}").rename(archive.root / other)
    bad = bad_objects(gone_through(archive.root))
    assert [rules for key, rules in bad.items() if key.endswith("manifest")] == [["manifest"]] * 3


def test_what_is_rebuilt_of_a_part_of_an_object_is_not_put_in_the_place_of_an_object(
    copy: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = copy("plain")
    path = sorted(root.rglob("*.indexes"))[3]
    place = json.loads(path.with_suffix(".rsm-manifest").read_text())["segmentIndexes"]["timestamp"]
    data = bytearray(path.read_bytes())
    data[place["position"] : place["position"] + 12] = bytes([0xFF] * 12)
    path.write_bytes(data)
    (verdict,) = gone_through(root, tmp_path_factory.mktemp("output"))
    (row,) = (row for one in verdict.objects if (row := object_row(verdict, one))["rebuilt"])
    key = path.relative_to(root).as_posix()
    assert row["key"] == key.replace(".indexes", ".timeindex")
    assert row["remedy"] == (
        f"restore {key} from another copy, or have the plugin upload the segment again: {row['rebuilt']} of the output "
        "is what it should hold"
    )


def has_txn_index(manifest: Path) -> bool:
    return json.loads(manifest.read_text())["segmentIndexes"]["transaction"] is not None


def test_an_object_is_rebuilt_if_all_is_that_it_should_hold(
    copy: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = copy("plain")
    objects = len([*root.rglob("*.*")])
    path = sorted(root.rglob("*.indexes"))[3]
    path.unlink()
    key = path.relative_to(root).as_posix()
    report, (verdict,) = run_through(CheckOptions(url=str(root)))
    assert report.exit_code == 2
    (row,) = (row for one in verdict.objects if (row := object_row(verdict, one))["key"] == key)
    assert row["remedy"] == "run `archive recover`: it is rebuilt from the log"
    output = str(tmp_path_factory.mktemp("output"))
    report, (verdict,) = run_through(CheckOptions(url=str(root), rebuilds=True, output=output))
    assert report.exit_code == 0
    counts = report.summary
    assert (counts.objects, counts.valid, counts.damaged, counts.unsettled) == (objects, objects - 1, 1, 0)
    assert counts.rebuilt == 4
    (row,) = (row for one in verdict.objects if (row := object_row(verdict, one))["key"] == key)
    assert row["remedy"] == (
        f"restore {key} from another copy, or have the plugin upload the segment again: what it should hold is "
        "rebuilt, part by part"
    )


@pytest.mark.parametrize("is_full", [True, False])
def test_an_object_is_not_settled_while_one_of_its_parts_could_not_be_written(
    is_full: bool, archives: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction index, which only segments with aborted transactions have."""
    (folder,) = archives["plain"].glob("transactions-*")
    root = tmp_path / "archive"
    shutil.copytree(folder, root / folder.name)
    manifests = [path for path in sorted(root.rglob("*.rsm-manifest")) if has_txn_index(path)]
    path = manifests[3].with_suffix(".indexes")
    path.unlink()
    if is_full:
        fill_disk(monkeypatch, ".txnindex")
    options = CheckOptions(url=str(root), rebuilds=True, output=str(tmp_path / "output"))
    report, verdicts = run_through(options)
    assert report.exit_code == (2 if is_full else 0)
    assert report.summary.unsettled == is_full
    rows = [object_row(verdict, one) for verdict in verdicts for one in verdict.objects]
    (remedy,) = (row["remedy"] for row in rows if row["key"] == path.relative_to(root).as_posix())
    assert ("No space left on device" in remedy) is is_full
    assert ("what it should hold is rebuilt, part by part" in remedy) is not is_full


@pytest.mark.parametrize(
    ("place", "other"),
    [
        (("remoteLogSegmentId", "topicIdPartition", "topicPartition", "topic"), "other"),
        (("remoteLogSegmentId", "topicIdPartition", "topicPartition", "partition"), 1),
        (("remoteLogSegmentId", "topicIdPartition", "topicId"), format_uuid(UUID(int=7))),
        (("remoteLogSegmentId", "id"), format_uuid(UUID(int=7))),
        (("startOffset",), 1),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_each_name_in_a_manifest_is_compared_with_its_key(
    copy: Callable[[str], Path], place: tuple[str, ...], other: object
) -> None:
    root = copy("plain")
    path = sorted(root.rglob("*.rsm-manifest"))[3]
    document = json.loads(path.read_text())
    held = document["remoteLogSegmentMetadata"]
    for name in place[:-1]:
        held = held[name]
    assert held[place[-1]] != other
    held[place[-1]] = other
    path.write_text(json.dumps(document))
    assert bad_objects(verified(root))[path.relative_to(root).as_posix()] == ["manifest"]


def test_every_segment_id_is_one(stored_archive: TieredArchive) -> None:
    """What the other tests stand on: the sample has segments of transactions, with and without aborted ones."""
    segments = list(finished_segments(stored_archive.root, stored_archive.log_dirs, TOPICS))
    assert len({segment.segment_id for segment, _ in segments}) == len(segments) > 100
    assert {".txnindex" in files for _, files in segments} == {True, False}
    assert all(isinstance(segment.segment_id, UUID) for segment, _ in segments)


def test_a_partition_that_is_gone_is_missed_where_the_plugin_would_have_it(tmp_path: Path) -> None:
    copies = [*made_copies(segments=2), *made_copies(partition=1, segments=2)]
    archive = write_archive(tmp_path / "archive", "aiven", copies)
    write_metadata(tmp_path / "log-dir", metadata_records(archive.metadata), segment_batches=1000)
    folder = archive.place(archive.copies[-1], LOG).parent
    shutil.rmtree(folder)
    bad = bad_objects(gone_through(archive.root, metadata=[tmp_path / "log-dir"]))
    prefix = f"{folder.relative_to(archive.root).as_posix()}/"
    assert bad == {f"{prefix}{copy.stem}.log": ["missing-segment"] for copy in archive.copies[-2:]}
