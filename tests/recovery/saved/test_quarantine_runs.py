"""What is read out of quarantines, whole and damaged, and that nothing leads out of them."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recovery.plan.manifest
from recovery.logdir.quarantine_place import INSIDE_FOLDER, JOURNAL, quarantine_roots, started_ms_of
from recovery.plan.manifest import Line, is_below, read_lines, read_manifest
from recovery.saved.runs import QuarantineRun, check_run, exclusive_bytes, list_runs
from recovery.write.quarantine import Quarantine
from tests.logs.quarantine_builder import (
    DATA,
    NEW_RUN,
    OLD_RUN,
    RunBuilder,
    a_foreign_folder,
    save_file,
)


def only_run(root: Path) -> QuarantineRun:
    (run,) = list_runs(str(root))
    return run


class TestListing:
    def test_what_a_recovery_saves_is_found(self, log_dir: Path) -> None:
        quarantine = Quarantine(str(log_dir))
        segment = log_dir / "t-0" / "00000000000000000000.log"
        save_file(quarantine, str(segment), folder="t-0", reason="why", may_link=False)
        save_file(quarantine, str(log_dir / "meta.properties"), folder="log-dir", reason="else")
        quarantine.sync()
        run = only_run(Path(quarantine.root))
        assert run.path == quarantine.run_folder
        assert [entry.reason for entry in run.saved] == ["why", "else"]
        assert [(log.partition, log.size_bytes, log.reasons) for log in run.logs] == [
            ("t-0", len(DATA), ("why",))
        ]
        assert run.manifest.log_dir == str(log_dir)
        assert check_run(run) == []

    def test_runs_are_known_by_their_names_and_sorted(self, root: Path, log_dir: Path) -> None:
        for name in (NEW_RUN, OLD_RUN, f"{OLD_RUN}-1"):
            RunBuilder(root, name, log_dir)
        for other in ("notes", "20261321T000000Z", "20261121T141906", f"{NEW_RUN}.old"):
            (root / other).mkdir()
        (root / "20261121T141907Z").write_text("a file")
        (root / "20261121T141908Z").symlink_to(root / NEW_RUN)
        (root / "journal").write_text("not mine to read")
        assert [run.name for run in list_runs(str(root))] == [OLD_RUN, f"{OLD_RUN}-1", NEW_RUN]

    def test_no_quarantine(self, tmp_path: Path) -> None:
        assert list_runs(str(tmp_path / "none")) == []

    def test_the_name_is_the_time(self) -> None:
        assert started_ms_of("19700101T000001Z-17") == 1000
        assert started_ms_of("20261121T141906Z") == 1_795_270_746_000
        assert started_ms_of("20260230T000000Z") is None

    def test_kinds_of_later_versions_are_not_counted(self, builder: RunBuilder, root: Path) -> None:
        builder.save()
        builder.save("t-1/x.index", derived=True, sha256=None)
        builder.save("t-2/y", kind="of a later version")
        builder.enter(kind="change", partition="t-3", commit={}, after={})
        run = only_run(root)
        assert [entry.partition for entry in run.counted] == ["t-0", "t-1"]
        assert [entry.partition for entry in run.saved] == ["t-0"]
        assert check_run(run) == ["line 3 of the manifest is of a kind that this version does not know"]

    def test_what_left_the_logs_is_told_by_partition_the_most_first(
        self, builder: RunBuilder, root: Path
    ) -> None:
        builder.save("t-0/1.log", b"12", reason="a", first_offset=9, last_offset=12)
        builder.save("t-3/1.log", b"1", reason="a", first_offset=5, last_offset=8)
        builder.save("t-0/2.log.deleted", b"3", reason="b")
        builder.save("t-0/3.log.from-1", b"45", file="3.log", kind="tail", reason="a", first_offset=3)
        builder.save("t-1/4.log.swap", b"123456", first_offset="5", last_offset=True)
        builder.save("t-2/leader-epoch-checkpoint")
        builder.save("t-2/a.login")
        builder.save("t-2/5.index", derived=True)
        assert [
            (log.partition, log.size_bytes, log.first_offset, log.last_offset, log.reasons)
            for log in only_run(root).logs
        ] == [
            ("t-1", 6, None, None, ("a batch whose CRC does not match",)),
            ("t-0", 5, 3, None, ("a", "b")),
            ("t-3", 1, 5, 8, ("a",)),
        ]

    def test_a_later_line_for_the_same_file_counts(self, builder: RunBuilder, root: Path) -> None:
        builder.save(data=b"old", reason="old")
        builder.save(data=b"newer", reason="new")
        assert [entry.reason for entry in only_run(root).counted] == ["new"]
        assert check_run(only_run(root)) == []

    def test_a_file_with_a_second_name_frees_nothing(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        segment = log_dir / "t-0" / "00000000000000000000.log"
        builder.save(link=segment)
        manifest_bytes = (builder.path / "manifest.jsonl").stat().st_blocks * 512
        assert only_run(root).size_bytes > len(DATA)
        assert exclusive_bytes(only_run(root)) == manifest_bytes
        segment.unlink()
        assert exclusive_bytes(only_run(root)) >= manifest_bytes + len(DATA)

    def test_two_names_in_one_run_are_freed_together(self, builder: RunBuilder, root: Path) -> None:
        first = builder.save()
        before = exclusive_bytes(only_run(root))
        builder.save("t-0/again", link=first)
        assert exclusive_bytes(only_run(root)) == before


class TestManifest:
    def test_a_torn_end_is_damage_unless_the_run_goes_on(self, builder: RunBuilder, root: Path) -> None:
        builder.save()
        with (builder.path / "manifest.jsonl").open("a") as manifest:
            manifest.write('{"version": 1, "sto')
        run = only_run(root)
        assert run.manifest.has_torn_end
        assert len(run.counted) == 1
        (problem,) = check_run(run)
        assert "the last line of the manifest is cut off" in problem
        (root / JOURNAL).touch()
        assert check_run(run) == []

    def test_any_other_line_that_is_none_is(self, builder: RunBuilder, root: Path) -> None:
        for line in ("", "[]", "{", '"x"', "\udcff"):
            with (builder.path / "manifest.jsonl").open("a", errors="surrogateescape") as manifest:
                manifest.write(line + "\n")
        builder.save()
        run = only_run(root)
        assert len(run.counted) == 1
        assert check_run(run) == [
            f"line {number} of the manifest is not a JSON object" for number in range(1, 6)
        ]

    @pytest.mark.parametrize(
        "stored",
        ["/etc/passwd", "../x", "t-0/../../x", "t-0//x", "t-0/./x", "", "x", "t-0/\0", 5, None, ["t-0/x"]],
    )
    def test_a_path_that_leads_elsewhere_is_a_problem(
        self, builder: RunBuilder, root: Path, stored: object
    ) -> None:
        builder.save()
        builder.enter(
            kind="file", partition="t-0", file="x", size_bytes=1, sha256="0", reason="r", stored=stored
        )
        run = only_run(root)
        assert len(run.manifest.entries) == 1
        assert check_run(run) == ["line 2 of the manifest does not say which file below the run it means"]

    @given(st.binary())
    def test_any_bytes_are_read(self, data: bytes) -> None:
        read_manifest(read_lines(io.BytesIO(data).read))

    @given(st.lists(st.binary(max_size=9)), st.integers(1, 9), st.integers(0, 9))
    def test_lines_are_those_of_the_whole(self, pieces: list[bytes], most_read: int, most_line: int) -> None:
        data = b"\n".join(pieces)
        file = io.BytesIO(data)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recovery.plan.manifest, "MOST_LINE_BYTES", most_line)
            found = list(read_lines(lambda _: file.read(most_read)))
        *whole, rest = [line if len(line) <= most_line else b"" for line in data.split(b"\n")]
        expected = [Line(bytearray(line), is_whole=True) for line in whole]
        if not data.endswith(b"\n") and data:
            expected.append(Line(bytearray(rest), is_whole=False))
        assert found == expected

    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from(
                    ["kind", "partition", "file", "stored", "reason", "size_bytes", "sha256", "log_dir"]
                ),
                st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.lists(st.integers())),
            )
        )
    )
    def test_any_json_is_read(self, lines: list[dict[str, object]]) -> None:
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        found = read_manifest(read_lines(io.BytesIO(data).read))
        assert all(is_below(entry.stored) for entry in found.entries)


class TestChecking:
    def test_what_is_missing(self, builder: RunBuilder, root: Path) -> None:
        builder.save().unlink()
        assert check_run(only_run(root)) == ["t-0/00000000000000000000.log: missing"]

    def test_a_folder_that_is_missing(self, builder: RunBuilder, root: Path) -> None:
        saved = builder.save()
        saved.unlink()
        saved.parent.rmdir()
        assert check_run(only_run(root)) == ["t-0/00000000000000000000.log: missing"]

    def test_another_size(self, builder: RunBuilder, root: Path) -> None:
        builder.save().write_bytes(DATA[:-1])
        assert check_run(only_run(root)) == ["t-0/00000000000000000000.log: 16383 bytes instead of 16384"]

    def test_another_byte(self, builder: RunBuilder, root: Path) -> None:
        builder.save().write_bytes(DATA[:-1] + b"x")
        assert check_run(only_run(root)) == [
            "t-0/00000000000000000000.log: its SHA-256 is not the one in the manifest"
        ]

    def test_a_derived_file_has_no_checksum(self, builder: RunBuilder, root: Path) -> None:
        builder.save(derived=True, sha256=None).write_bytes(bytes(len(DATA)))
        assert check_run(only_run(root)) == []

    @pytest.mark.parametrize("what", ["file", "folder"])
    def test_a_link_is_not_followed(self, builder: RunBuilder, root: Path, tmp_path: Path, what: str) -> None:
        saved = builder.save()
        elsewhere = tmp_path / "elsewhere"
        place = saved if what == "file" else saved.parent
        place.rename(elsewhere)
        place.symlink_to(elsewhere)
        (problem,) = check_run(only_run(root))
        assert problem.startswith("t-0/00000000000000000000.log: ")

    def test_a_pipe_is_not_waited_for(self, builder: RunBuilder, root: Path) -> None:
        saved = builder.save()
        saved.unlink()
        os.mkfifo(saved)
        assert check_run(only_run(root)) == ["t-0/00000000000000000000.log: not a regular file"]

    def test_a_folder_that_was_moved_as_a_whole(self, builder: RunBuilder, root: Path, log_dir: Path) -> None:
        entry = {
            "kind": "moved",
            "partition": "log-dir",
            "file": "lost+found",
            "sha256": None,
            "size_bytes": 0,
        }
        builder.enter(**entry, stored="log-dir/lost+found", reason="foreign")
        assert check_run(only_run(root)) == ["log-dir/lost+found: missing"]
        (log_dir / "lost+found").mkdir()
        assert check_run(only_run(root)) == []  # the run was killed before it was moved
        (log_dir / "lost+found").rmdir()
        (builder.path / "log-dir" / "lost+found" / "deep").mkdir(parents=True)
        assert check_run(only_run(root)) == []


class TestAFolderThatWasMoved:
    """What is in it is compared with what was in it."""

    @pytest.fixture
    def moved(self, builder: RunBuilder, log_dir: Path) -> Path:
        return builder.move(a_foreign_folder(log_dir))

    def test_as_it_was(self, moved: Path, root: Path) -> None:
        assert check_run(only_run(root)) == []

    def test_what_is_missing(self, moved: Path, root: Path) -> None:
        shutil.rmtree(moved / "deep")
        (moved / "pipe").unlink()
        assert check_run(only_run(root)) == [
            f"log-dir/topic/{path}: missing"
            for path in ("deep", "deep/00000000000000000007.log", "deep/empty", "deep/link", "pipe")
        ]

    def test_what_is_another(self, moved: Path, root: Path) -> None:
        (moved / "a").write_bytes(b"12346")
        (moved / "deep" / "00000000000000000007.log").write_bytes(b"")
        (moved / "pipe").unlink()
        (moved / "pipe").mkdir()
        odd = os.fsdecode(b"\xff\xfe \n")
        (moved / odd).unlink()
        (moved / odd).symlink_to("a")
        assert check_run(only_run(root)) == [
            "log-dir/topic/a: its SHA-256 is not the one in the manifest",
            "log-dir/topic/deep/00000000000000000007.log: 0 bytes instead of 7",
            "log-dir/topic/pipe: a folder instead of neither a file nor a folder",
            f"log-dir/topic/{odd}: neither a file nor a folder instead of a file",
        ]

    def test_what_is_new(self, moved: Path, root: Path) -> None:
        (moved / "new").mkdir()
        (moved / "new" / "file").write_bytes(b"")
        (moved / "deep" / "00000000000000000009.log").write_bytes(b"")
        assert check_run(only_run(root)) == [
            "log-dir/topic/deep/00000000000000000009.log: not there when the folder was moved",
            "log-dir/topic/new: not there when the folder was moved",
        ]

    def test_all_of_it(self, moved: Path, root: Path, log_dir: Path) -> None:
        moved.rename(log_dir / "topic")
        assert check_run(only_run(root)) == []  # the run was killed before it was moved
        (log_dir / "topic").rename(log_dir / "elsewhere")
        assert check_run(only_run(root)) == ["log-dir/topic: missing"]
        moved.symlink_to(log_dir / "elsewhere")
        assert check_run(only_run(root))[0] == (
            "log-dir/topic: neither a file nor a folder instead of a folder"
        )

    def test_a_change_is_told_beside_another_one_in_its_old_place(
        self, moved: Path, root: Path, log_dir: Path
    ) -> None:
        (log_dir / "topic").mkdir()
        (moved / "a").unlink()
        assert check_run(only_run(root)) == ["log-dir/topic/a: missing"]

    def test_of_two_lines_about_one_folder_the_later_one_counts(
        self, builder: RunBuilder, root: Path, log_dir: Path
    ) -> None:
        """The run was killed between the line and the rename."""
        moved = builder.move(a_foreign_folder(log_dir))
        moved.rename(log_dir / "topic")
        (log_dir / "topic" / "new").write_bytes(b"new")
        builder.move(log_dir / "topic")
        assert check_run(only_run(root)) == []


class TestPlaces:
    def test_without_a_place_both_are_looked_at(self) -> None:
        assert quarantine_roots("/data/kafka", None) == (
            "/data/kafka.quarantine",
            f"/data/kafka/{INSIDE_FOLDER}",
        )
        assert quarantine_roots("/", None) == (f"/{INSIDE_FOLDER}",)

    def test_a_place_of_the_operator_is_the_one_that_recover_takes(self, tmp_path: Path) -> None:
        assert quarantine_roots("/data/kafka", str(tmp_path)) == (
            Quarantine("/data/kafka", root=str(tmp_path)).root,
        )
