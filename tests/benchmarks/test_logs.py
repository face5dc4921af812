"""The logs that are measured: what the generator makes, how they are copied, how the page cache lets go of them."""

import os
import resource

import pytest

import recovery
from benchmarks import machine, measured_broker, page_cache
from benchmarks.copies import LogFiles, copy_log_dirs, remove_tree
from benchmarks.generate import CODECS, Shape, generate, log_files
from benchmarks.sides import drop_epochs_from
from segfmt.compression import Codec
from segfmt.record_batch import read_record_batch_header, walk_batches
from tests.brokers.broker import BrokerError

pytestmark = pytest.mark.long


def headers_of(path):
    data = path.read_bytes()
    return [read_record_batch_header(data, batch.position) for batch in walk_batches(data)]


@pytest.mark.parametrize("codec", CODECS)
def test_generated_logs_are_what_they_should_be(tmp_path, codec):
    shape = Shape(bytes_total=3 << 20, batch_bytes=2000, partitions=2, segments=3, producers=40, codec=codec)
    dataset = generate(tmp_path / "data", shape, with_broker=False)
    files = log_files(dataset.log_dirs)
    headers = [header for path in files for header in headers_of(path)]
    data = [header for header in headers if not header.is_control]
    assert len(files) == 6
    assert (len(headers), dataset.log_bytes) == (
        dataset.batch_count,
        sum(path.stat().st_size for path in files),
    )
    assert {header.codec for header in data} == {Codec[codec.upper()]}
    assert {header.codec for header in headers if header.is_control} == {Codec.NONE}
    sizes = [header.size_bytes for header in data]
    assert min(sizes) < 1400
    assert max(sizes) > 2600
    assert len(set(sizes)) > 150
    assert 0.03 < dataset.transactional_count / len(headers) < 0.08
    assert len({header.producer_id for header in headers}) == dataset.producer_count
    assert 2 * 40 <= dataset.producer_count <= 2 * (40 + 10)
    report = recovery.verify(list(map(str, dataset.log_dirs)), deep=True)
    assert [
        one.path for log_dir in report.log_dirs for one in log_dir.files if one.is_valid is not True
    ] == []


def test_the_number_of_producers_can_be_chosen(tmp_path):
    shape = Shape(bytes_total=2 << 20, batch_bytes=170, dirs=1, partitions=1, segments=2, producers=3000)
    dataset = generate(tmp_path / "data", shape, with_broker=False)
    assert 2800 < dataset.producer_count <= 3010


def test_a_copy_is_made_again_over_one_that_was_changed(tmp_path):
    shape = Shape(bytes_total=1 << 20, batch_bytes=4000, partitions=2, segments=2)
    dataset = generate(tmp_path / "data", shape, with_broker=False)
    logs = LogFiles(dataset.log_dirs)
    place, trash = tmp_path / "copy", tmp_path / "trash"
    expected = {
        path.relative_to(tmp_path / "data")
        for path in (tmp_path / "data").rglob("*")
        if path.parts[-2] != "data"
    }
    copies = copy_log_dirs(dataset.log_dirs, place, trash=trash)
    folder = copies[0] / "bench-0"
    first_log, *_ = sorted(folder.glob("*.log"))
    _dense, active = sorted(folder.glob("*.index"))
    assert active.stat().st_blocks * 512 < active.stat().st_size  # preallocated, in the copy as well
    saved = place / "d1.quarantine" / "saved"
    saved.parent.mkdir()
    saved.write_text("saved")
    first_log.unlink()
    active.write_bytes(b"trimmed by a recovery, and longer than the hole before it" * 100)
    (folder / "new").write_text("new")
    (folder / "folder").mkdir()
    (folder / "leader-epoch-checkpoint").unlink()
    (copies[1] / ".kafka_cleanshutdown").write_text("{}")
    (copies[1] / "bench-1").rename(copies[1] / "bench-1-stray")

    assert copy_log_dirs(dataset.log_dirs, place, trash=trash) == copies
    assert {path.relative_to(place) for path in place.rglob("*") if path.parent != place} == expected
    for log_dir, copy in zip(dataset.log_dirs, copies, strict=True):
        for path in (path for path in log_dir.rglob("*") if path.is_file()):
            assert (copy / path.relative_to(log_dir)).read_bytes() == path.read_bytes()
    assert active.stat().st_blocks * 512 < active.stat().st_size
    assert first_log.stat().st_ino == dataset.log_dirs[0].joinpath("bench-0", first_log.name).stat().st_ino
    assert logs.are_untouched()
    (log, *_), *_ = logs.by_dir
    with log.open("ab") as file:
        file.write(b"x")
    assert not logs.are_untouched()
    remove_tree(trash)
    remove_tree(place)
    assert not place.exists()


def test_an_evicted_file_is_out_of_the_page_cache(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    assert page_cache.cached_bytes(path) == 1 << 20
    if machine.describe(tmp_path)["file_system"].startswith(("tmpfs", "ramfs")):
        with pytest.raises(page_cache.WarmCacheError, match="still in the page cache"):
            page_cache.evict([path])
    else:
        page_cache.evict([path])
        assert page_cache.cached_bytes(path) == 0
    path.read_bytes()
    assert page_cache.cached_bytes(path) == 1 << 20


def test_more_segments_than_a_process_may_open_are_refused(monkeypatch):
    with pytest.raises(BrokerError, match=r"vm\.max_map_count"):
        measured_broker.make_room_for(1 << 31)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 20_000))
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    measured_broker.make_room_for(10_000)
    assert asked == [(12_000, 20_000)]

    def refuse(which, limits):
        raise ValueError

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(
        BrokerError, match=r"needs 32000 open files, the limit is 20000\..* or 18000 segments"
    ):
        measured_broker.make_room_for(30_000)


def test_a_load_drops_leader_epochs_that_begin_at_the_end():
    before, after = b"0\n3\n0 0\n1 2\n2 4\n", b"0\n2\n0 0\n1 2\n"
    assert drop_epochs_from(before, 4) == after
    assert drop_epochs_from(before, 5) == before
    assert drop_epochs_from(before, None) == before
