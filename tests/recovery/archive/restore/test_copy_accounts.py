"""A restore from a copy goes by what the copy says of itself, wherever its manifest is."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from recovery.archive.copy.manifest import MANIFEST_KEY
from recovery.archive.copy.options import CopyOptions
from recovery.archive.copy.run import copy
from recovery.archive.options import ArchiveOptions
from recovery.archive.restore.options import RestoreOptions
from recovery.archive.restore.report import RestoredPartition
from recovery.archive.restore.run import restore
from recovery.archive.stores.local_store import LocalStore
from recovery.engine.options import RecoverOptions
from recovery.errors import UsageError
from segfmt.checkpoint import read_offset_checkpoint
from tests.logs.samples import Sample, unpack

NAME = "plain-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A broker, and copies of its log dirs that were made before it lost a partition."""

    sample: Sample
    log_dir: Path
    output: Path

    @property
    def folder(self) -> Path:
        """Of the partition, in the copy."""
        return self.output / self.log_dir.name / NAME

    def copy(self) -> int:
        return copy(
            CopyOptions(output=str(self.output), log_dirs=tuple(map(str, self.sample.log_dirs)))
        ).exit_code

    def lose(self, name: str = NAME) -> None:
        for log_dir in self.sample.log_dirs:
            shutil.rmtree(log_dir / name, ignore_errors=True)

    def restore(self, archive: Path | None = None, name: str = NAME, **options: object) -> RestoredPartition:
        report = restore(
            RestoreOptions(
                archive=ArchiveOptions(url=str(archive or self.output), partitions=(name,)),
                broker=RecoverOptions(
                    config=self.sample.properties, is_config_complete=True, now_ms=self.sample.now_ms
                ),
                **options,  # type: ignore[arg-type]  # by name
            )
        )
        (one,) = report.partitions
        return one


@pytest.fixture
def place(tmp_path: Path) -> Place:
    sample = unpack("intact", tmp_path)
    (log_dir,) = (one for one in sample.log_dirs if (one / NAME).is_dir())
    return Place(sample=sample, log_dir=log_dir, output=tmp_path / "copies" / "of" / "broker")


def mark_unfinished(place: Place) -> None:
    manifest = place.output / MANIFEST_KEY
    head, _, rest = manifest.read_text().partition("\n")
    document = json.loads(head) | {"unfinished": [f"{place.log_dir.name}/{NAME}/"]}
    manifest.write_text(f"{json.dumps(document)}\n{rest}")


ARCHIVES: dict[str, Callable[[Place], Path]] = {
    "the copy": lambda place: place.output,
    "the log dir": lambda place: place.output / place.log_dir.name,
    "the folder": lambda place: place.folder,
    "above": lambda place: place.output.parent,
    "far above": lambda place: place.output.parent.parent,
    "a link": lambda place: link_to(place.output / place.log_dir.name, place.output.parent.parent / "link"),
}


def link_to(target: Path, link: Path) -> Path:
    link.symlink_to(target)
    return link


@pytest.mark.parametrize("name", ARCHIVES)
def test_what_is_unfinished_is_refused_from_wherever_it_is_named(place: Place, name: str) -> None:
    assert place.copy() == 0
    place.lose()
    mark_unfinished(place)
    archive = ARCHIVES[name](place)
    one = place.restore(archive)
    assert (one.status, one.reasons[0].partition(".")[0]) == (
        "refused",
        "archive copy has not copied all of it",
    )
    (place.output / MANIFEST_KEY).unlink()
    assert place.restore(archive).status == "restored"


def _lose(index: int) -> Callable[[Place], str]:
    def lose(place: Place) -> str:
        log = sorted(place.folder.glob("*.log"))[index]
        log.unlink()
        return f"{log.name} was copied, and is not there"

    return lose


def _lose_epochs(place: Place) -> str:
    (place.folder / "leader-epoch-checkpoint").unlink()
    return "leader-epoch-checkpoint was copied, and is not there"


def _shorten(place: Place) -> str:
    log = min(place.folder.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    return f"{log.name} has "


def _flip(position: int) -> Callable[[Place], str]:
    def flip(place: Place) -> str:
        log = max(place.folder.glob("*.log"))
        data = bytearray(log.read_bytes())
        data[position] ^= 0x10
        log.write_bytes(data)
        return f"{log.name}: its bytes are not those that were copied, by their SHA-256"

    return flip


@pytest.mark.parametrize(
    "change",
    [_lose(0), _lose(-1), _lose_epochs, _shorten, _flip(7), _flip(12)],
    ids=["first", "last", "epochs", "shortened", "base offset", "leader epoch"],
)
@pytest.mark.parametrize("is_folder", [False, True], ids=["the copy", "the folder"])
def test_what_is_not_as_it_was_copied_is_refused(
    place: Place, change: Callable[[Place], str], is_folder: bool
) -> None:
    assert place.copy() == 0
    place.lose()
    said = change(place)
    one = place.restore(place.folder if is_folder else None)
    assert one.status == "refused"
    assert one.reasons[0].startswith(said)
    assert "Remedy: copy it again (archive copy --restart); or" in one.reasons[0]


def test_missing_indexes_do_not_matter(place: Place) -> None:
    assert place.copy() == 0
    place.lose()
    for index in place.folder.glob("*index"):
        index.unlink()
    assert place.restore().status == "restored"


def cut_at_the_source(place: Place) -> int:
    """The log ends earlier, and its last segment is longer than in the copy, as in a topic that was made again."""
    folder = place.log_dir / NAME
    logs = sorted(folder.glob("*.log"))
    logs[1].write_bytes(b"".join(log.read_bytes() for log in logs[1:]))
    for log in logs[2:]:
        for path in folder.glob(f"{log.stem}*"):
            path.unlink()
    for path in folder.glob(f"{logs[1].stem}*index"):
        path.unlink()
    return int(logs[2].stem)


def test_segments_that_are_gone_at_the_source_are_left_out(place: Place) -> None:
    assert place.copy() == 0
    stale = cut_at_the_source(place)
    assert place.copy() == 0
    expected = {log.name: log.read_bytes() for log in (place.log_dir / NAME).glob("*.log")}
    place.lose()
    assert (place.folder / f"{stale:020}.log").exists()
    one = place.restore()
    assert one.status == "restored", one.reasons
    assert {log.name: log.read_bytes() for log in (place.log_dir / NAME).glob("*.log")} == expected
    (place.output / MANIFEST_KEY).unlink()
    place.lose()
    one = place.restore()
    assert one.status == "refused"
    assert f"and the next one begins at {stale}: they are not of one log" in one.reasons[0]


def test_an_earlier_copy_of_a_log_that_was_cut_is_no_part_of_it(place: Place) -> None:
    """It can be put back."""
    assert place.copy() == 0
    expected = {log.name: log.read_bytes() for log in (place.log_dir / NAME).glob("*.log")}
    first = min((place.log_dir / NAME).glob("*.log"))
    os.truncate(first, 0)
    assert place.copy() == 0
    place.lose()
    one = place.restore()
    assert one.status == "refused"
    assert f"{first.name}.earlier, of a file that then lost bytes" in one.reasons[0]
    assert "put it in the place of the later one, and move kafka-log-recovery-copy.jsonl" in one.reasons[0]
    (place.folder / f"{first.name}.earlier").rename(place.folder / first.name)
    (place.output / MANIFEST_KEY).unlink()
    (place.folder / f"{first.name}.earlier").write_bytes(b"of a log that was cut on purpose")
    one = place.restore()
    assert one.status == "restored", one.reasons
    assert any(text.startswith(f"{first.name}.earlier, of a file that then") for text in one.warnings)
    assert {log.name: log.read_bytes() for log in (place.log_dir / NAME).glob("*.log")} == expected


def test_a_log_that_is_gone_at_the_source_and_kept_at_the_output_is_called_gone(place: Place) -> None:
    """Its indexes are there: the log dir lost it, which no broker does."""
    assert place.copy() == 0
    log = min((place.log_dir / NAME).glob("*.log"))
    data = log.read_bytes()
    log.unlink()
    assert place.copy() == 0
    place.lose()
    one = place.restore()
    assert one.status == "refused"
    assert one.reasons[0].startswith(
        "segment 0: its log had gone from its log dir when that was copied last, and its indexes had not. Remedy: "
    )
    (place.output / MANIFEST_KEY).unlink()
    assert place.restore().status == "restored"
    assert log.read_bytes() == data


def _with_zeros(place: Place, *, of_last: bool = True, then: bytes = b"") -> tuple[Path, bytes]:
    """Put zeros behind a log, as `preallocate` does, and copy it."""
    log = sorted((place.log_dir / NAME).glob("*.log"))[-1 if of_last else 0]
    data = log.read_bytes()
    log.write_bytes(data + bytes(5 << 20) + then)
    assert place.copy() == 0
    place.lose()
    return log, data


def test_zeros_behind_the_last_batch_are_left_out(place: Place) -> None:
    log, data = _with_zeros(place)
    for status in ("restored", "unchanged"):
        one = place.restore()
        assert one.status == status
        assert any(
            text.startswith(f"{log.name}: 5,242,880 zeros behind its last batch") for text in one.warnings
        )
    assert log.read_bytes() == data


@pytest.mark.parametrize(("of_last", "then"), [(True, b"\1"), (False, b"")])
def test_zeros_elsewhere_are_no_batches(place: Place, of_last: bool, then: bytes) -> None:
    log, _ = _with_zeros(place, of_last=of_last, then=then)
    one = place.restore()
    assert one.status == "refused"
    assert f"{log.name}: " in one.reasons[0]
    assert "are no batch" in one.reasons[0]


def test_zeros_are_what_was_copied_too(place: Place) -> None:
    log, _ = _with_zeros(place)
    manifest = place.output / MANIFEST_KEY
    text = manifest.read_text()
    digest = hashlib.sha256((place.folder / log.name).read_bytes()).hexdigest()
    assert digest in text
    manifest.write_text(text.replace(digest, "0" * 64))
    assert "not those that were copied, by their SHA-256" in place.restore().reasons[0]


def test_a_partition_that_is_gone_can_still_be_had(place: Place) -> None:
    assert place.copy() == 0
    place.lose()
    assert place.copy() == 0
    one = place.restore()
    assert one.status == "restored"
    (gone,) = (
        text for text in one.warnings if text.startswith("it had gone from its log dir when that was copied")
    )
    assert gone.endswith("so records that were deleted (kafka-delete-records) may come back")


def test_of_two_copies_that_is_taken_which_is_not_gone(place: Place) -> None:
    """A broker has moved the log to its other log dir."""
    assert place.copy() == 0
    (other,) = (log_dir for log_dir in place.sample.log_dirs if log_dir != place.log_dir)
    shutil.move(place.log_dir / NAME, other / NAME)
    assert place.copy() == 0
    place.lose()
    one = place.restore()
    assert one.status == "restored"
    assert not any("gone" in text for text in one.warnings)


@pytest.mark.parametrize("text", ['{"version": 9}', '{"version": 1}', "{"])
def test_a_manifest_of_another_version_is_refused(place: Place, text: str) -> None:
    assert place.copy() == 0
    place.lose()
    (place.output / MANIFEST_KEY).write_text(text)
    for archive in (place.output, place.folder, place.output.parent):
        with pytest.raises(UsageError, match="whether the copy is whole is not known"):
            place.restore(archive)


def test_deleted_records_stay_deleted_by_the_line_of_the_target(place: Place) -> None:
    name = "deleted-records-0"
    (log_dir,) = (one for one in place.sample.log_dirs if (one / name).is_dir())
    checkpoint = log_dir / "log-start-offset-checkpoint"
    start = read_offset_checkpoint(checkpoint.read_bytes())["deleted-records", 0]
    assert start > 0
    assert place.copy() == 0
    place.lose(name)
    manifest = place.output / MANIFEST_KEY
    lines = manifest.read_text().splitlines(keepends=True)
    head = json.loads(lines[0]) | {"unfinished": [f"{log_dir.name}/"], "files": len(lines) - 2}
    rest = [line for line in lines[1:] if not line.startswith(f'["{log_dir.name}/{checkpoint.name}"')]
    manifest.write_text(json.dumps(head) + "\n" + "".join(rest))
    (place.output / log_dir.name / checkpoint.name).unlink()
    assert place.restore(name=name).log_start_offset == start
    place.lose(name)
    checkpoint.unlink()
    one = place.restore(name=name)
    assert one.log_start_offset == 0
    assert any(
        "records that were deleted (kafka-delete-records) may come back" in text for text in one.warnings
    )


def test_a_file_in_the_place_of_a_folder_is_one_refusal(place: Place) -> None:
    assert place.copy() == 0
    place.lose()
    (place.log_dir / NAME).write_text("hi")
    one = place.restore()
    assert one.status == "refused"
    assert one.reasons[0] == f"{place.log_dir / NAME}: not a folder. Remedy: move it out of the log dir"


@pytest.mark.parametrize("restart", [(), ("plain",), ("transactions",)], ids=["no", "its topic", "another"])
def test_what_no_run_has_named_is_left_out_as_well(place: Place, restart: tuple[str, ...]) -> None:
    """A copy that was killed before it named them, or whose manifest was moved away, and a log that was cut since."""
    assert place.copy() == 0
    stale = cut_at_the_source(place)
    (place.output / MANIFEST_KEY).unlink()
    assert place.copy() == 0
    log_dirs = tuple(map(str, place.sample.log_dirs))
    if restart:
        copy(CopyOptions(output=str(place.output), log_dirs=log_dirs, topics=restart, restart=True))
    expected = {log.name: log.read_bytes() for log in (place.log_dir / NAME).glob("*.log")}
    place.lose()
    assert (place.folder / f"{stale:020}.log").exists()
    assert place.restore().status == "restored"
    assert {log.name: log.read_bytes() for log in (place.log_dir / NAME).glob("*.log")} == expected


def test_a_restart_keeps_what_is_gone(place: Place) -> None:
    assert place.copy() == 0
    cut_at_the_source(place)
    assert place.copy() == 0
    log_dirs = tuple(map(str, place.sample.log_dirs))
    assert copy(CopyOptions(output=str(place.output), log_dirs=log_dirs, restart=True)).exit_code == 0
    expected = {log.name for log in (place.log_dir / NAME).glob("*.log")}
    place.lose()
    assert place.restore().status == "restored"
    assert {log.name for log in (place.log_dir / NAME).glob("*.log")} == expected


def test_a_link_to_nothing_is_not_gone(place: Place, tmp_path: Path) -> None:
    """As a disk that is not mounted looks."""
    log = min((place.log_dir / NAME).glob("*.log"))
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    assert place.copy() == 0
    (tmp_path / "elsewhere").rename(tmp_path / "unmounted")
    assert place.copy() == 4
    place.lose()
    one = place.restore()
    assert (one.status, one.reasons[0].partition(".")[0]) == (
        "refused",
        "archive copy has not copied all of it",
    )


@pytest.mark.parametrize("lost", ["folder", "log dir"])
def test_a_partition_that_is_missing_from_the_copy_is_missed(place: Place, lost: str) -> None:
    assert place.copy() == 0
    place.lose()
    shutil.rmtree(place.folder if lost == "folder" else place.folder.parent)
    one = place.restore()
    assert one.status == "refused"
    assert one.reasons[0].startswith("it was copied, and is not there. Remedy: copy it again")


def test_a_log_dir_that_was_not_there_is_missed(place: Place) -> None:
    away = place.log_dir.with_name("away")
    place.log_dir.rename(away)
    assert place.copy() == 4
    away.rename(place.log_dir)
    report = restore(
        RestoreOptions(
            archive=ArchiveOptions(url=str(place.output)),
            broker=RecoverOptions(
                config=place.sample.properties,
                is_config_complete=True,
                now_ms=place.sample.now_ms,
                dry_run=True,
            ),
        )
    )
    assert report.exit_code == 4
    assert report.to_text().startswith(
        f"NOT WHOLE {place.output}/{place.log_dir.name}/: archive copy has not copied all of this log dir"
    )
    log_dirs = tuple(map(str, place.sample.log_dirs))
    assert copy(CopyOptions(output=str(place.output), log_dirs=log_dirs, topics=("plain",))).exit_code == 0
    head = json.loads((place.output / MANIFEST_KEY).read_text().partition("\n")[0])
    assert f"{place.log_dir.name}/" in head["unfinished"]
    assert place.copy() == 0
    assert json.loads((place.output / MANIFEST_KEY).read_text().partition("\n")[0])["unfinished"] == []


def test_what_the_output_had_no_room_for_is_not_called_unread(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    last, real = place.sample.log_dirs[-1].name, LocalStore.send

    def send(self: LocalStore, key: str, *given: object, **named: object) -> str:
        if key.startswith(f"{last}/"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), key)
        return real(self, key, *given, **named)  # type: ignore[arg-type]  # handed on

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "send", send)
        assert place.copy() == 1
    dry = RecoverOptions(
        config=place.sample.properties, is_config_complete=True, now_ms=place.sample.now_ms, dry_run=True
    )
    report = restore(RestoreOptions(archive=ArchiveOptions(url=str(place.output)), broker=dry))
    assert [text.partition(", so ")[0] for text in report.in_part] == [
        f"{place.output}/{last}/: archive copy has not copied all of this log dir"
    ]


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", f"{NAME}/leader-epoch-checkpoint"])
def test_small_files_are_held_against_the_copy_as_well(place: Place, name: str) -> None:
    assert place.copy() == 0
    place.lose()
    path = place.output / place.log_dir.name / name
    data = path.read_bytes()
    path.write_bytes(data[:-2] + b"9\n")
    assert path.read_bytes() != data
    one = place.restore()
    assert one.status == "refused"
    assert f"{path.name} has other bytes than were copied" in one.reasons[0]


def test_a_log_start_above_the_archives_end_is_known_beforehand(place: Place) -> None:
    assert place.copy() == 0
    place.lose()
    checkpoint = place.log_dir / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nplain 1 500\n")
    one = place.restore()
    assert one.status == "refused"
    assert "says that it begins at offset 500, and the archive ends at 106" in one.reasons[0]
    checkpoint.write_text("0\n1\nplain 1 60\n")
    one = place.restore()
    assert (one.status, one.log_start_offset) == ("restored", 60)
    assert any(text.startswith("offsets 0 to 59 are left out") for text in one.warnings)


@pytest.mark.parametrize("data", [bytes(6), b"junk", b"0\n1\n"])
def test_a_malformed_checkpoint_of_the_target_is_known_beforehand(place: Place, data: bytes) -> None:
    assert place.copy() == 0
    place.lose()
    (place.log_dir / "log-start-offset-checkpoint").write_bytes(data)
    one = place.restore()
    assert one.status == "refused"


def test_a_name_that_is_not_utf8_does_not_make_a_copy_unsound(place: Place) -> None:
    (place.log_dir / NAME / "x\udcff").write_bytes(b"x")
    assert place.copy() == 0
    place.lose()
    assert place.restore().status == "restored"


def test_a_manifest_in_a_log_dir_is_not_copied(place: Place) -> None:
    (place.log_dir / MANIFEST_KEY).write_text("junk")
    assert place.copy() == 0
    place.lose()
    assert place.restore().status == "restored"


def test_an_unfinished_folder_that_has_moved_on_gives_way(place: Place) -> None:
    assert place.copy() == 0
    mark_unfinished(place)
    (other,) = (log_dir for log_dir in place.sample.log_dirs if log_dir != place.log_dir)
    shutil.move(place.log_dir / NAME, other / NAME)
    assert place.copy() == 0
    place.lose()
    assert place.restore().status == "restored"


def test_leader_epochs_that_cannot_be_read_are_made_of_the_batches(place: Place) -> None:
    checkpoint = place.log_dir / NAME / "leader-epoch-checkpoint"
    intact = checkpoint.read_bytes()
    checkpoint.write_bytes(b"no checkpoint")
    place.copy()
    checkpoint.write_bytes(intact)
    place.lose()
    one = place.restore()
    assert one.status == "refused"
    assert one.reasons[0].startswith("leader-epoch-checkpoint: ")
    assert "Remedy: move leader-epoch-checkpoint away, and " in one.reasons[0]
    (place.folder / checkpoint.name).unlink()
    (place.output / MANIFEST_KEY).unlink()
    assert place.restore().status == "restored"
    assert checkpoint.read_bytes() == intact
