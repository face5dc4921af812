"""Where bytes go before they leave a log dir, and that nothing is there before the first of them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from recovery.logdir.quarantine_place import (
    INSIDE_FOLDER,
    SIBLING_SUFFIX,
    default_root,
    quarantine_root,
    run_order,
)
from recovery.plan.actions import PartitionPlan, SaveFile, SaveTail
from recovery.read.file_system import OddFileError
from recovery.saved.purge import runs_of, unfinished
from recovery.saved.undo import undo
from recovery.write import quarantine as module
from recovery.write.quarantine import Quarantine, manifest_entries
from segfmt.filenames import read_folder_name
from tests.logs.quarantine_builder import save_file
from tests.servers.machine import may_mount_apart

SEGMENT = "00000000000000000000.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "d1"
    (folder / "t-0").mkdir(parents=True)
    (folder / "t-0" / SEGMENT).write_bytes(bytes(range(256)) * 20)
    return folder


@pytest.fixture
def other_device(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than tmp_path."""
    for place in ("/dev/shm", "/var/tmp", "/tmp", str(Path.home())):
        if os.path.isdir(place) and os.stat(place).st_dev != os.stat(tmp_path).st_dev:
            folder = Path(tempfile.mkdtemp(dir=place))
            yield folder
            shutil.rmtree(folder)
            return
    pytest.fail("all of /dev/shm, /var/tmp, /tmp and the home folder are on one file system")


def save_tail(quarantine: Quarantine, path: str, position: int, *, reason: str) -> str:
    """Save what is behind *position* of the file *path* in t-0; return where it is."""
    folder, name = os.path.split(path)
    size_bytes = os.stat(path).st_size - position
    save = SaveTail(name=name, position=position, size_bytes=size_bytes, reason=reason, first_offset=7)
    (saved,) = quarantine.save(folder, PartitionPlan(folder="t-0", saves=(save,), actions=()))
    return saved


def manifest_of(quarantine: Quarantine) -> list[dict]:
    text = (Path(quarantine.run_folder) / "manifest.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


class TestNothingSaved:
    def test_nothing_is_created(self, log_dir: Path, tmp_path: Path) -> None:
        quarantine = Quarantine(str(log_dir))
        quarantine.sync()
        assert quarantine.run_folder is None
        assert sorted(path.name for path in tmp_path.iterdir()) == ["d1"]


class TestMoveAway:
    def test_a_file_goes_and_stands_in_the_manifest(self, log_dir: Path) -> None:
        file = log_dir / "t-0" / "foo.log"
        file.write_bytes(b"12345")
        quarantine = Quarantine(str(log_dir))
        target = Path(quarantine.move_away(str(file), folder="t-0", reason="foreign"))
        assert not file.exists()
        assert target.read_bytes() == b"12345"
        assert target == Path(quarantine.run_folder) / "t-0" / "foo.log"
        (entry,) = manifest_of(quarantine)
        assert (entry["kind"], entry["partition"], entry["file"]) == ("moved", "t-0", "foo.log")
        assert (entry["size_bytes"], entry["sha256"]) == (5, hashlib.sha256(b"12345").hexdigest())

    def test_a_folder_goes_as_a_whole(self, log_dir: Path) -> None:
        quarantine = Quarantine(str(log_dir))
        target = Path(quarantine.move_away(str(log_dir / "t-0"), folder="log-dir", reason="foreign"))
        assert not (log_dir / "t-0").exists()
        assert (target / SEGMENT).stat().st_size == 256 * 20
        (entry,) = manifest_of(quarantine)
        assert (entry["kind"], entry["file"], entry["sha256"]) == ("moved", "t-0", None)
        assert Path(quarantine.run_folder) / entry["stored"] == target

    def test_a_dangling_link_and_a_pipe_go_too(self, log_dir: Path) -> None:
        (log_dir / "t-0" / "link").symlink_to("nowhere")
        os.mkfifo(log_dir / "t-0" / "pipe")
        quarantine = Quarantine(str(log_dir))
        for name in ("link", "pipe"):
            target = quarantine.move_away(str(log_dir / "t-0" / name), folder="t-0", reason="foreign")
            assert os.path.lexists(target)
        assert os.listdir(log_dir / "t-0") == [SEGMENT]

    def test_a_file_may_go_to_another_file_system_and_a_folder_may_not(
        self, log_dir: Path, other_device: Path
    ) -> None:
        quarantine = Quarantine(str(log_dir), root=str(other_device))
        (log_dir / "t-0" / "foo.log").write_bytes(b"12345")
        target = quarantine.move_away(str(log_dir / "t-0" / "foo.log"), folder="t-0", reason="foreign")
        assert Path(target).read_bytes() == b"12345"
        with pytest.raises(OSError, match="another file system"):
            quarantine.move_away(str(log_dir / "t-0"), folder="log-dir", reason="foreign")
        assert (log_dir / "t-0" / SEGMENT).exists()
        assert len(manifest_of(quarantine)) == 1

    def test_a_file_is_in_quarantine_before_its_name_goes(self, log_dir: Path, monkeypatch) -> None:
        def fail(_path: str) -> None:
            raise OSError(5, "killed here")

        monkeypatch.setattr(os, "unlink", fail)
        quarantine = Quarantine(str(log_dir))
        with pytest.raises(OSError, match="killed here"):
            quarantine.move_away(str(log_dir / "t-0" / SEGMENT), folder="t-0", reason="foreign")
        assert (log_dir / "t-0" / SEGMENT).exists()
        (entry,) = manifest_of(quarantine)
        assert (Path(quarantine.run_folder) / entry["stored"]).exists()

    def test_its_bytes_are_on_disk_before_its_name_goes(self, log_dir: Path, monkeypatch) -> None:
        calls: list[str] = []
        quarantine = Quarantine(str(log_dir))
        for name, place, real in (("unlink", os, os.unlink), ("sync", quarantine, quarantine.sync)):
            monkeypatch.setattr(
                place, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))
            )
        quarantine.move_away(str(log_dir / "t-0" / SEGMENT), folder="t-0", reason="foreign")
        assert calls == ["sync", "unlink"]


class TestSaveFile:
    def test_a_whole_file_is_a_hard_link(self, log_dir: Path) -> None:
        quarantine = Quarantine(str(log_dir))
        path = log_dir / "t-0" / SEGMENT
        saved = Path(save_file(quarantine, str(path), folder="t-0", reason="why"))
        assert saved.samefile(path)
        assert saved == Path(quarantine.run_folder) / "t-0" / SEGMENT
        assert Path(quarantine.root) == log_dir.with_name("d1.quarantine")

    def test_it_is_still_there_when_the_original_is_gone(self, log_dir: Path) -> None:
        quarantine = Quarantine(str(log_dir))
        path = log_dir / "t-0" / SEGMENT
        data = path.read_bytes()
        saved = save_file(quarantine, str(path), folder="t-0", reason="why")
        path.unlink()
        assert Path(saved).read_bytes() == data

    def test_where_a_link_cannot_be_made_it_is_a_copy(self, log_dir: Path, monkeypatch) -> None:
        def refuse(*_args: object) -> None:
            raise PermissionError(1, "no links here")

        monkeypatch.setattr(os, "link", refuse)
        quarantine = Quarantine(str(log_dir))
        path = log_dir / "t-0" / SEGMENT
        path.chmod(0o640)
        saved = Path(save_file(quarantine, str(path), folder="t-0", reason="why"))
        assert not saved.samefile(path)
        assert saved.read_bytes() == path.read_bytes()
        assert saved.stat().st_mode == path.stat().st_mode
        assert manifest_of(quarantine)[0]["linked"] is False

    def test_on_another_device_it_is_a_copy(self, log_dir: Path, other_device: Path) -> None:
        quarantine = Quarantine(str(log_dir), root=str(other_device))
        path = log_dir / "t-0" / SEGMENT
        saved = Path(save_file(quarantine, str(path), folder="t-0", reason="why"))
        assert saved.is_relative_to(other_device)
        assert saved.stat().st_dev != path.stat().st_dev
        assert saved.read_bytes() == path.read_bytes()

    @pytest.mark.parametrize("may_link", [False, True])
    def test_a_file_is_never_saved_over_another(self, log_dir: Path, may_link: bool) -> None:
        quarantine = Quarantine(str(log_dir))
        path = log_dir / "t-0" / SEGMENT
        first = Path(save_file(quarantine, str(path), folder="t-0", reason="why", may_link=may_link))
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(b"another file")
        again = Path(save_file(quarantine, str(path), folder="t-0", reason="why", may_link=may_link))
        assert (first.read_bytes(), again.read_bytes()) == (data, b"another file")

    def test_an_interrupted_run_goes_on_in_its_folder(self, log_dir: Path) -> None:
        path = str(log_dir / "t-0" / SEGMENT)
        first = Quarantine(str(log_dir))
        saved = save_file(first, path, folder="t-0", reason="why")
        second = Quarantine(str(log_dir), run=os.path.basename(first.run_folder))
        assert save_file(second, path, folder="t-0", reason="why") == saved
        assert second.run_folder == first.run_folder

    def test_a_derived_file_is_kept_and_not_told(self, log_dir: Path, monkeypatch) -> None:
        index = log_dir / "t-0" / SEGMENT.replace(".log", ".index")
        index.touch()
        os.truncate(index, 2 << 20)
        save = SaveFile(name=index.name, size_bytes=2 << 20, reason="why", is_derived=True)
        plan = PartitionPlan(folder="t-0", saves=(save,), actions=())
        quarantine = Quarantine(str(log_dir))
        assert quarantine.save(str(log_dir / "t-0"), plan) == []  # nothing is lost with it
        (entry,) = manifest_of(quarantine)
        assert (entry["derived"], entry["linked"]) == (True, True)
        assert (entry["sha256"], entry["sha256_bytes"]) == (hashlib.sha256().hexdigest(), 0)  # all zeros
        monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError))
        another = Quarantine(str(log_dir), run="another")
        another.save(str(log_dir / "t-0"), plan)
        (copy,) = (Path(another.root) / "another").rglob("*.index")
        assert copy.read_bytes() == bytes(2 << 20)
        assert copy.stat().st_blocks == 0

    def test_a_copy_that_fails_is_an_error(self, log_dir: Path) -> None:
        quarantine = Quarantine(str(log_dir))
        with pytest.raises(FileNotFoundError):
            save_file(quarantine, str(log_dir / "t-0" / "gone.log"), folder="t-0", reason="why")


class TestSaveTail:
    def test_only_the_tail_is_copied_and_named_by_its_position(self, log_dir: Path) -> None:
        quarantine = Quarantine(str(log_dir))
        path = log_dir / "t-0" / SEGMENT
        saved = Path(save_tail(quarantine, str(path), 1000, reason="why"))
        assert saved.name == f"{SEGMENT}.from-1000"
        assert saved.read_bytes() == path.read_bytes()[1000:]

    def test_the_original_is_not_touched(self, log_dir: Path) -> None:
        path = log_dir / "t-0" / SEGMENT
        before, found = path.read_bytes(), path.stat()
        save_tail(Quarantine(str(log_dir)), str(path), 10, reason="why")
        assert path.read_bytes() == before
        assert path.stat().st_mtime_ns == found.st_mtime_ns

    @pytest.mark.parametrize("ends_in_zeros", [False, True])
    def test_zeros_stay_a_hole(self, log_dir: Path, ends_in_zeros: bool) -> None:
        path = log_dir / "t-0" / SEGMENT
        with path.open("wb") as file:
            file.write(b"x" * 100)
            file.truncate(64 << 20)
            if not ends_in_zeros:
                file.seek(0, os.SEEK_END)
                file.write(b"end")
        saved = Path(save_tail(Quarantine(str(log_dir)), str(path), 50, reason="why"))
        assert saved.stat().st_size == path.stat().st_size - 50
        assert saved.stat().st_blocks * 512 < 4 << 20
        with saved.open("rb") as copy:
            assert copy.read(60) == b"x" * 50 + bytes(10)
            copy.seek(-3, os.SEEK_END)
            assert copy.read() == (bytes(3) if ends_in_zeros else b"end")


class TestManifest:
    def test_one_line_for_each_thing_with_where_it_was_and_its_checksum(self, log_dir: Path) -> None:
        quarantine = Quarantine(str(log_dir))
        path = log_dir / "t-0" / SEGMENT
        save_tail(quarantine, str(path), 1000, reason="the last batch is torn")
        save_file(quarantine, str(path), folder="t-0", reason="deleted")
        quarantine.sync()
        tail, whole = manifest_of(quarantine)
        data = path.read_bytes()
        assert tail == {
            "version": 1,
            "log_dir": str(log_dir),
            "kind": "tail",
            "partition": "t-0",
            "file": SEGMENT,
            "position": 1000,
            "size_bytes": len(data) - 1000,
            "first_offset": 7,
            "last_offset": None,
            "stored": f"t-0/{SEGMENT}.from-1000",
            "linked": False,
            "derived": False,
            "sha256": hashlib.sha256(data[1000:]).hexdigest(),
            "rule": None,
            "reason": "the last batch is torn",
        }
        assert whole["kind"] == "file"
        assert whole["linked"] is True
        assert whole["sha256"] == hashlib.sha256(data).hexdigest()
        assert whole["size_bytes"] == len(data)

    def test_two_runs_in_one_second_do_not_meet(self, log_dir: Path, monkeypatch) -> None:
        monkeypatch.setattr(module.time, "strftime", lambda *_: "20260101T000000Z")
        path = log_dir / "t-0" / SEGMENT
        places = []
        for _ in range(3):
            quarantine = Quarantine(str(log_dir))
            save_file(quarantine, str(path), folder="t-0", reason="why")
            places.append(Path(quarantine.run_folder).name)
        assert places == ["20260101T000000Z", "20260101T000000Z-1", "20260101T000000Z-2"]

    def test_a_run_comes_after_all_others_whatever_the_clock_says(self, log_dir: Path, monkeypatch) -> None:
        path = log_dir / "t-0" / SEGMENT
        places = []
        for stamp in ("20260101T000000Z", "20010101T000000Z", "20260101T000000Z", "20260101T000001Z"):
            monkeypatch.setattr(module.time, "strftime", lambda *_, stamp=stamp: stamp)
            quarantine = Quarantine(str(log_dir))
            save_file(quarantine, str(path), folder="t-0", reason="why")
            places.append(Path(quarantine.run_folder).name)
        assert places == [
            "20260101T000000Z",
            "20260101T000000Z-1",
            "20260101T000000Z-2",
            "20260101T000001Z",
        ]
        assert sorted(places, key=run_order) == places

    def test_all_names_are_synced_before_sync_returns(self, log_dir: Path, monkeypatch) -> None:
        synced: list[str] = []
        monkeypatch.setattr(module, "sync_all", synced.extend)
        quarantine = Quarantine(str(log_dir))
        save_tail(quarantine, str(log_dir / "t-0" / SEGMENT), 5, reason="why")
        quarantine.sync()
        run = Path(quarantine.run_folder)
        assert set(synced) == {
            str(run / "t-0" / f"{SEGMENT}.from-5"),
            str(run / "t-0"),
            str(run / "manifest.jsonl"),
            str(run),
            str(run.parent),
            str(run.parent.parent),
        }


class TestPlace:
    def test_a_sibling_by_default(self, log_dir: Path) -> None:
        assert default_root(str(log_dir)) == f"{log_dir}.quarantine"
        assert default_root(f"{log_dir}/") == f"{log_dir}.quarantine"

    def test_each_log_dir_has_its_own_folder_in_the_operators_place(self, tmp_path: Path) -> None:
        roots = {Quarantine(path, root=str(tmp_path)).root for path in ("/data/a/logs", "/data/b/logs")}
        assert len(roots) == 2
        assert all(os.path.dirname(root) == str(tmp_path) for root in roots)

    def test_inside_where_the_parent_may_not_be_written(self, log_dir: Path, monkeypatch) -> None:
        monkeypatch.setattr(os, "access", lambda path, _mode: path != str(log_dir.parent))
        assert default_root(str(log_dir)) == str(log_dir / INSIDE_FOLDER)

    def test_beside_the_folder_itself_where_a_link_leads_to_it(
        self, other_device: Path, tmp_path: Path
    ) -> None:
        link = tmp_path / "d1"
        link.symlink_to(other_device)
        assert default_root(str(link)) == str(other_device) + SIBLING_SUFFIX

    def test_inside_where_the_log_dir_is_the_root_of_all(self) -> None:
        assert default_root("/") == f"/{INSIDE_FOLDER}"

    @pytest.mark.parametrize("mount", ["-t tmpfs none", "--bind $1"])
    def test_a_mount_point_gets_its_quarantine_inside(self, log_dir: Path, mount: str) -> None:
        """A bind mount is on the device of its parent, and no hard link leads out of it."""
        if not may_mount_apart():
            # Without the right to mount, /dev/shm is a mount point that is already there.
            assert default_root("/dev/shm").startswith("/dev/shm/")
            return
        script = (
            f"mount {mount} $1 && exec $2 -c 'from recovery.logdir.quarantine_place import default_root;"
            "import sys; print(default_root(sys.argv[1]))' $1"
        )
        found = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", str(log_dir), sys.executable],
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == str(log_dir / INSIDE_FOLDER)

    @pytest.mark.parametrize("name", ["d1.quarantine", f"d1/{INSIDE_FOLDER}"])
    def test_what_is_no_folder_holds_no_runs(self, log_dir: Path, name: str) -> None:
        assert log_dir.name == "d1"
        odd = log_dir.parent / name
        odd.write_text("mine")
        (undone,) = undo([str(log_dir)])
        assert undone.run is None
        assert runs_of(str(log_dir), None) == []
        assert unfinished(str(log_dir), None) == []
        if name == "d1.quarantine":
            with pytest.raises(OddFileError, match="not a folder, but quarantine belongs there"):
                quarantine_root(str(log_dir), None)
        else:
            assert quarantine_root(str(log_dir), None) == f"{log_dir}.quarantine"

    def test_a_broker_takes_the_inside_folder_for_one_of_its_metadata_log(self) -> None:
        # LogManager.loadLogs skips every folder whose topic parses as __cluster_metadata.
        assert read_folder_name(INSIDE_FOLDER).topic == "__cluster_metadata"


class TestOwner:
    def test_everything_belongs_to_the_owner_of_the_log_dir(self, log_dir: Path) -> None:
        path = log_dir / "t-0" / SEGMENT
        owner = (4711, 4712) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        for owned in (log_dir, log_dir / "t-0", path):
            os.chown(owned, *owner)
        quarantine = Quarantine(str(log_dir))
        save_tail(quarantine, str(path), 5, reason="why")
        quarantine.sync()
        root = Path(quarantine.root)
        for made in (root, *root.rglob("*")):
            found = made.stat()
            assert (found.st_uid, found.st_gid) == owner, made


class TestTornManifest:
    @pytest.mark.parametrize(
        "rubbish", [b'{"version": 1, "ki', bytes(40), b"\xff\xfe{}\n", b"[]\n", b"7", b"[" * 10**5]
    )
    def test_a_line_that_does_not_parse_names_nothing(self, log_dir: Path, rubbish: bytes) -> None:
        path = str(log_dir / "t-0" / SEGMENT)
        first = Quarantine(str(log_dir))
        save_file(first, path, folder="t-0", reason="why")
        manifest = Path(first.run_folder) / "manifest.jsonl"
        with manifest.open("ab") as file:
            file.write(rubbish)
        second = Quarantine(str(log_dir), run=Path(first.run_folder).name)
        save_tail(second, path, 5, reason="why")
        assert [entry["kind"] for entry in manifest_entries(first.run_folder)] == ["file", "tail"]


def test_nothing_is_saved_in_a_run_that_could_not_be_entered(log_dir: Path) -> None:
    """The next one who saves enters it again: else nobody would know to which run that belongs."""
    told: list[str] = []

    def enter(name: str) -> None:
        told.append(name)
        if len(told) == 1:
            raise OSError(errno.EIO, "Input/output error")

    quarantine = Quarantine(str(log_dir), on_created=enter)
    path = str(log_dir / "t-0" / SEGMENT)
    with pytest.raises(OSError, match="Input/output error"):
        save_tail(quarantine, path, 5000, reason="torn")
    assert quarantine.run_folder is None
    assert list(log_dir.with_name("d1.quarantine").iterdir()) == []
    save_tail(quarantine, path, 5000, reason="torn")
    quarantine.sync()
    assert quarantine.run_folder is not None
    assert [told[-1]] == [os.path.basename(quarantine.run_folder)]


def test_a_line_of_somebody_else_is_no_change(log_dir: Path) -> None:
    quarantine = Quarantine(str(log_dir))
    save_tail(quarantine, str(log_dir / "t-0" / SEGMENT), 5000, reason="torn")
    assert quarantine.run_folder is not None
    with open(f"{quarantine.run_folder}/manifest.jsonl", "a") as manifest:
        manifest.write('{"kind": "change", "partition": "x"}\n')
    again = Quarantine(str(log_dir), run=os.path.basename(quarantine.run_folder))
    assert again.run_folder == quarantine.run_folder
