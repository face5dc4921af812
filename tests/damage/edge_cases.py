"""The edge cases of docs/reference/recovery-rules.md, by their numbers there: a table of what can be wrong with a log.

The log has three segments of twelve offsets, with transactions, leader epochs and snapshots, as Kafka left
it. `U`: everything is unflushed; `F`: only the active segment is; `C`: the log dir has its marker.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.damage.judgement import IDENTICAL, OUT_OF_ORDER, REFUSED, REWRITTEN, WAITING
from tests.logs import builders
from tests.logs.edge_log import BASES, END, MAX_LONG, NOW_MS, PROPERTIES, Log, segment
from tests.logs.samples import MARKER

__all__ = ["BASES", "CASES", "END", "NOW_MS", "PROPERTIES", "EdgeCase", "Log", "segment"]

State = str


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCase:
    """A row of the table, in one of its states, with a verdict for each release."""

    row: int
    state: State
    damage: Callable[[Log], None]
    verdicts: dict[str, str]
    configs: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.row}-{self.state}-{self.damage.__name__}"


CASES: list[EdgeCase] = []


def case(
    row: int,
    states: str,
    verdict: str = IDENTICAL,
    *,
    in_4_4: Mapping[State, str] | None = None,
    **configs: str,
) -> Callable[[Callable[[Log], None]], Callable[[Log], None]]:
    """Put the decorated damage into the table, once for each of *states*.

    Args:
        in_4_4: the verdicts that differ from 4.4 on, by state.
    """

    def add(damage: Callable[[Log], None]) -> Callable[[Log], None]:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        for state in states:
            verdicts = {"4.3": verdict, "4.4": (in_4_4 or {}).get(state, verdict)}
            CASES.append(EdgeCase(row=row, state=state, damage=damage, verdicts=verdicts, configs=named))
        return damage

    return add


# -- the end of a segment --------------------------------------------------------------------------


@case(1, "U")
def one_byte_behind(log: Log) -> None:
    log.append(12, b"\x01")


@case(1, "U")
def seventeen_bytes_behind(log: Log) -> None:
    log.append(12, bytes(range(17)))


@case(2, "U")
def torn_last_batch(log: Log) -> None:
    log.file(24).write_bytes(log.file(24).read_bytes()[:-5])


@case(2, "U")
def torn_batch_in_the_middle_segment(log: Log) -> None:
    log.file(12).write_bytes(log.file(12).read_bytes()[:-5])


@case(3, "U")
def zeros_behind(log: Log) -> None:
    log.append(24, bytes(18))


@case(4, "U")
def negative_size(log: Log) -> None:
    log.append(12, struct.pack(">qi", 24, -1) + bytes(100))


@case(4, "U")
def size_below_14(log: Log) -> None:
    log.append(12, struct.pack(">qi", 24, 13) + bytes(100))


@case(5, "U")
def batch_shorter_than_its_header(log: Log) -> None:
    log.append(12, struct.pack(">qiib", 24, 20, 0, 2) + bytes(15))


@case(6, "U")
def bad_crc(log: Log) -> None:
    log.flip(12, log.positions(12)[3] + 70)


@case(7, "FC")
def bad_crc_flushed(log: Log) -> None:
    log.flip(0, log.positions(0)[3] + 70)


@case(8, "F")
@case(9, "U")
def bad_crc_without_index(log: Log) -> None:
    log.flip(12, log.positions(12)[3] + 70)
    log.file(12, ".index").unlink()


# -- index files -----------------------------------------------------------------------------------


@case(10, "FC")
@case(11, "U")
def index_missing(log: Log) -> None:
    log.file(0, ".index").unlink()


@case(10, "FC")
def all_indexes_missing(log: Log) -> None:
    log.remove(".index", ".timeindex", ".txnindex")


@case(12, "FC")
def time_index_missing(log: Log) -> None:
    log.file(0, ".timeindex").unlink()


@case(13, "F")
def index_garbage(log: Log) -> None:
    log.file(0, ".index").write_bytes(bytes(range(48)))
    log.file(0, ".timeindex").write_bytes(bytes(range(48)))


@case(13, "F")
def index_garbage_without_snapshots(log: Log) -> None:
    index_garbage(log)
    log.remove(".snapshot")


@case(14, "C")
def index_behind_the_end(log: Log) -> None:
    size = log.file(24, ".index").stat().st_size
    log.patch(24, size - 4, struct.pack(">i", 1 << 20), ".index")


@case(14, "C")
def index_offset_behind_the_end(log: Log) -> None:
    size = log.file(24, ".index").stat().st_size
    log.patch(24, size - 8, struct.pack(">i", 1000), ".index")


@case(15, "C", REFUSED)
def index_into_a_batch(log: Log) -> None:
    size = log.file(24, ".index").stat().st_size
    log.patch(24, size - 4, struct.pack(">i", log.positions(24)[1] + 4), ".index")


@case(16, "C")
def index_preallocated(log: Log) -> None:
    log.file(24, ".index").write_bytes(bytes(4096))
    log.file(24, ".timeindex").write_bytes(bytes(4092))


@case(17, "FC")
def index_with_a_rest(log: Log) -> None:
    for suffix in (".index", ".timeindex"):
        log.file(0, suffix).write_bytes(log.file(0, suffix).read_bytes() + b"\x01\x02\x03")
        log.file(24, suffix).write_bytes(log.file(24, suffix).read_bytes() + b"\x01\x02\x03")


@case(17, "C")
def index_with_a_rest_where_the_log_end_falls_back(log: Log) -> None:
    """The end lies in the segment before the active one: a flush opens the indexes of that one."""
    log.file(24).rename(log.file(100))
    for suffix in (".index", ".timeindex"):
        log.file(100, suffix).touch()
        log.file(24, suffix).unlink()
        for base in (0, 12):
            log.file(base, suffix).write_bytes(log.file(base, suffix).read_bytes() + b"\x01\x02\x03")


@case(18, "C", REFUSED, segment_index_bytes="16")
def active_index_too_long(log: Log) -> None:
    pass


@case(19, "U", REFUSED, segment_index_bytes="16")
def too_many_entries(log: Log) -> None:
    pass


@case(20, "UFC")
def orphans(log: Log) -> None:
    for suffix in (".index", ".timeindex", ".txnindex"):
        shutil.copy(log.file(12, ".index"), log.file(5, suffix))


@case(21, "UFC")
def txn_index_below_its_base(log: Log) -> None:
    log.file(24, ".txnindex").write_bytes(struct.pack(">hqqqq", 0, 200, 3, 6, 7))


@case(22, "UFC", REFUSED)
def txn_index_of_a_high_version(log: Log) -> None:
    log.file(12, ".txnindex").write_bytes(struct.pack(">hqqqq", 256, 200, 15, 18, 19))


@case(22, "UFC", in_4_4={"U": REWRITTEN, "F": REFUSED, "C": REFUSED})
def txn_index_of_version_1(log: Log) -> None:
    log.file(12, ".txnindex").write_bytes(struct.pack(">hqqqq", 1, 200, 15, 18, 19))


@case(23, "UFC")
def txn_index_with_a_rest(log: Log) -> None:
    log.file(12, ".txnindex").write_bytes(log.file(12, ".txnindex").read_bytes() + b"\x00\x01\x02")


# -- leftovers -------------------------------------------------------------------------------------


def swap(log: Log, base: int, *suffixes: str) -> None:
    for suffix in suffixes:
        shutil.copy(log.file(base, suffix), log.file(base, suffix + ".swap"))


@case(24, "UFC")
def finished_swap(log: Log) -> None:
    swap(log, 12, ".log", ".index", ".timeindex", ".txnindex")


@case(24, "UFC")
def finished_swap_and_files_at_its_last_offset_and_behind(log: Log) -> None:
    finished_swap(log)
    for offset in (11, 12, 23, 24):
        log.file(offset, ".txt").write_bytes(b"numbered")


@case(25, "UFC")
def swap_of_an_unfinished_split(log: Log) -> None:
    swap(log, 12, ".log", ".index")
    shutil.copy(log.file(12), log.file(12, ".log.cleaned"))


@case(26, "UFC")
def cleaned_only(log: Log) -> None:
    shutil.copy(log.file(12), log.file(12, ".log.cleaned"))
    shutil.copy(log.file(12), log.file(12, ".index.cleaned"))


@case(27, "UFC")
def swap_without_its_index(log: Log) -> None:
    swap(log, 12, ".log")
    log.file(12, ".index").unlink()


@case(28, "UFC")
def swap_of_indexes_only(log: Log) -> None:
    swap(log, 12, ".index", ".timeindex")


@case(29, "UFC")
def deleted_files(log: Log) -> None:
    for name in ("00000000000000000003.log.deleted", "foo.deleted", "00000000000000000003.snapshot.deleted"):
        (log.folder / name).write_bytes(b"gone")


@case(29, "UFC")
def deleted_checkpoint_stays(log: Log) -> None:
    (log.folder / "00000000000000000003-0000000001.checkpoint.deleted").write_bytes(b"not ours")


def named(name: str) -> Callable[[Log], None]:
    def damage(log: Log) -> None:
        (log.folder / name).write_bytes(b"")

    damage.__name__ = name
    return damage


for _name in ("foo.log", "foo.index", "foo.swap", "foo.cleaned", "foo.snapshot"):
    case(30, "UC", REFUSED)(named(_name))
for _name in ("foo.txt", "foo", "foo.deleted", "12345.backup"):
    case(31, "UC")(named(_name))


@case(31, "UC")
def folder_in_the_folder(log: Log) -> None:
    (log.folder / "00000000000000000099.log").mkdir()


@case(32, "UFC")
def unpadded_name(log: Log) -> None:
    (log.folder / "40.log").write_bytes(log.file(24).read_bytes())


@case(33, "UFC")
def two_names_of_one_base(log: Log) -> None:
    (log.folder / "12.log").write_bytes(log.file(12).read_bytes()[:100])


# -- segments that are empty or not there ----------------------------------------------------------


@case(34, "UFC")
def empty_active_segment(log: Log) -> None:
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        if log.file(24, suffix).exists():
            log.file(24, suffix).write_bytes(b"")


@case(35, "UFC")
def empty_segment_in_the_middle(log: Log) -> None:
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        if log.file(12, suffix).exists():
            log.file(12, suffix).write_bytes(b"")


@case(36, "UFC")
def no_log_at_all(log: Log) -> None:
    log.remove(".log")


@case(36, "UFC")
def no_log_at_all_behind_a_log_start(log: Log) -> None:
    log.remove(".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    log.log_start(17)


@case(37, "UFC")
def segment_missing(log: Log) -> None:
    log.file(12).unlink()


# -- offsets ---------------------------------------------------------------------------------------


def batch(base_offset: int, count: int = 3, **fields: object) -> bytes:
    return builders.data_batch(base_offset, count, leader_epoch=1, **fields)


@case(38, "U", REFUSED)
def batch_below_its_segment(log: Log) -> None:
    log.replace_batch(12, 3, batch(5, 2))


@case(39, "U")
def batch_that_begins_below_its_segment(log: Log) -> None:
    log.replace_batch(12, 0, batch(11, 4))


@case(39, "U", REFUSED)
def batch_that_begins_below_zero(log: Log) -> None:
    log.replace_batch(0, 0, builders.data_batch(-1, 4))
    (log.folder / "leader-epoch-checkpoint").unlink()


@case(40, "U")
def offset_beyond_the_segment(log: Log) -> None:
    log.append(24, builders.data_batch(2**31 + 100, 3, leader_epoch=3))


@case(41, "UFC")
def offset_beyond_the_segment_without_index(log: Log) -> None:
    offset_beyond_the_segment(log)
    log.file(24, ".index").unlink()


@case(40, "U")
@case(41, "FC")
def offset_beyond_the_segment_where_another_one_is(log: Log) -> None:
    far = 2**31 + 100
    log.file(far).write_bytes(builders.data_batch(far, 5, leader_epoch=3) + builders.data_batch(far + 5, 3))
    log.append(24, builders.data_batch(far, 3, leader_epoch=3))
    if not (log.log_dir / MARKER).exists() and log.recovered_from() == 0:
        return
    log.file(24, ".index").unlink()


@case(40, "U")
def offset_beyond_a_segment_that_begins_behind_its_base(log: Log) -> None:
    log.replace_batch(24, 0, b"")
    offset_beyond_the_segment(log)


@case(41, "UFC")
def the_same_without_index(log: Log) -> None:
    offset_beyond_a_segment_that_begins_behind_its_base(log)
    log.file(24, ".index").unlink()


@case(42, "U", OUT_OF_ORDER)
def out_of_order_at_an_index_point(log: Log) -> None:
    log.replace_batch(12, 4, batch(14, 2))


@case(43, "U", REFUSED)
def out_of_order_without_index(log: Log) -> None:
    out_of_order_at_an_index_point(log)
    log.file(12, ".index").unlink()


@case(44, "U", index_interval_bytes="100000")
def out_of_order_between_index_points(log: Log) -> None:
    log.replace_batch(12, 3, batch(14, 2))


@case(45, "U", index_interval_bytes="100000")
def negative_last_offset_delta(log: Log) -> None:
    log.append(24, builders.data_batch(36, 3, leader_epoch=3, last_offset_delta=-4))


@case(46, "U")
def magic_3(log: Log) -> None:
    log.patch(12, log.positions(12)[3] + 16, b"\x03")


@case(46, "U")
def magic_127(log: Log) -> None:
    log.patch(12, log.positions(12)[3] + 16, b"\x7f")


@case(47, "U")
def magic_0(log: Log) -> None:
    log.patch(12, log.positions(12)[3] + 16, b"\x00")


@case(47, "U")
def magic_1(log: Log) -> None:
    log.patch(12, log.positions(12)[3] + 16, b"\x01")


@case(47, "U")
def magic_below_zero(log: Log) -> None:
    log.patch(12, log.positions(12)[3] + 16, b"\xff")


@case(48, "U")
def leader_epoch_flipped(log: Log) -> None:
    log.patch(12, log.positions(12)[3] + 12, b"\x40")


@case(49, "U")
def base_offset_flipped_upward(log: Log) -> None:
    log.patch(24, log.positions(24)[4] + 6, b"\x01")


# -- producers -------------------------------------------------------------------------------------


def control(base_offset: int, records: bytes, **fields: object) -> bytes:
    return builders.record_batch(
        base_offset=base_offset,
        records=records,
        control=True,
        transactional=True,
        producer_id=200,
        producer_epoch=0,
        leader_epoch=1,
        **fields,
    )


@case(50, "U", REFUSED)
def control_of_an_unknown_type(log: Log) -> None:
    log.replace_batch(12, 2, control(18, builders.control_record(9)))


@case(51, "U", REFUSED)
def control_that_does_not_parse(log: Log) -> None:
    log.replace_batch(12, 2, control(18, builders.record(key=b"\x00", value=b"")))


@case(52, "U", REFUSED)
def outside_of_an_open_transaction(log: Log) -> None:
    log.replace_batch(12, 2, batch(18, 1, producer_id=200, producer_epoch=0, base_sequence=6))


@case(53, "U")
def stale_epochs_and_gaps(log: Log) -> None:
    log.append(24, batch(36, 3, producer_id=100, producer_epoch=5, base_sequence=900))
    log.append(24, batch(39, 3, producer_id=100, producer_epoch=2, base_sequence=0))
    log.append(24, batch(42, 3, producer_id=100, producer_epoch=2, base_sequence=0))


@case(54, "U")
def data_batch_of_an_unknown_codec(log: Log) -> None:
    log.append(24, batch(36, 3, codec=7))


@case(54, "U")
def data_batch_of_garbage(log: Log) -> None:
    log.append(
        24, builders.record_batch(base_offset=36, records=b"\xff" * 30, record_count=3, leader_epoch=3)
    )


@case(54, "U", REFUSED)
def control_batch_of_an_unknown_codec(log: Log) -> None:
    log.replace_batch(12, 2, control(18, builders.control_record(0), codec=7))


# -- snapshots -------------------------------------------------------------------------------------


@case(55, "UFC")
def snapshot_truncated(log: Log) -> None:
    for file in log.folder.glob("*.snapshot"):
        file.write_bytes(file.read_bytes()[:-3])


@case(55, "UFC")
def snapshot_with_a_bad_crc(log: Log) -> None:
    newest = max(log.folder.glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x77")


@case(55, "UFC")
def snapshot_of_version_2(log: Log) -> None:
    newest = max(log.folder.glob("*.snapshot"))
    newest.write_bytes(b"\x00\x02" + newest.read_bytes()[2:])


@case(56, "UF")
@case(57, "C")
def no_snapshots(log: Log) -> None:
    log.remove(".snapshot")


@case(58, "UFC")
def snapshot_behind_the_log(log: Log) -> None:
    shutil.copy(log.file(END, ".snapshot"), log.file(END + 10, ".snapshot"))


@case(58, "UFC")
def snapshots_below_the_log_start(log: Log) -> None:
    shutil.copy(log.file(END, ".snapshot"), log.file(5, ".snapshot"))
    log.log_start(13)


@case(59, "UFC")
def stray_snapshots(log: Log) -> None:
    for offset in (5, 7, 29, 31):
        shutil.copy(log.file(END, ".snapshot"), log.file(offset, ".snapshot"))


# -- small files -----------------------------------------------------------------------------------


def epochs(log: Log, text: str) -> None:
    (log.folder / "leader-epoch-checkpoint").write_text(text)


@case(60, "UFC")
def epochs_missing(log: Log) -> None:
    (log.folder / "leader-epoch-checkpoint").unlink()


@case(60, "UFC")
def epochs_empty(log: Log) -> None:
    epochs(log, "")


@case(60, "F")
def epochs_missing_and_an_index(log: Log) -> None:
    epochs_missing(log)
    log.file(12, ".index").unlink()


@case(61, "UFC", REFUSED)
def epochs_of_another_version(log: Log) -> None:
    epochs(log, "7\n0\n")


@case(61, "UFC", REFUSED)
def epochs_of_another_count(log: Log) -> None:
    epochs(log, "0\n2\n0 0\n")


@case(61, "UFC", REFUSED)
def epochs_with_three_tokens(log: Log) -> None:
    epochs(log, "0\n1\n0 0 0\n")


@case(62, "UFC", REFUSED)
def epochs_that_are_no_numbers(log: Log) -> None:
    epochs(log, "0\n1\nx 0\n")


@case(62, "UFC", REFUSED)
def epochs_below_zero(log: Log) -> None:
    epochs(log, "0\n1\n-1 0\n")


@case(63, "UFC")
def epochs_out_of_order(log: Log) -> None:
    epochs(log, "0\n4\n0 0\n5 20\n1 12\n3 24\n")


@case(64, "UFC")
def epochs_behind_the_end(log: Log) -> None:
    epochs(log, "0\n4\n0 0\n1 12\n3 24\n9 36\n")


@case(65, "U")
def recovery_point_behind_the_end(log: Log) -> None:
    log.recovery_point(END + 1000)
    log.append(24, b"\x01")


@case(66, "U")
def recovery_point_below_zero(log: Log) -> None:
    log.recovery_point(-5)


@case(66, "U")
def recovery_point_below_the_first_segment(log: Log) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        log.file(0, suffix).unlink()
    log.recovery_point(3)


@case(67, "U")
def recovery_point_of_max_long(log: Log) -> None:
    log.recovery_point(MAX_LONG)


@case(67, "U", REFUSED)
def recovery_point_of_max_long_and_a_bad_tail(log: Log) -> None:
    log.recovery_point(MAX_LONG)
    log.append(24, bytes(18))


@case(68, "U", REFUSED)
def recovery_points_of_another_version(log: Log) -> None:
    (log.log_dir / "recovery-point-offset-checkpoint").write_text("1\n0\n")


@case(68, "U")
def recovery_points_that_are_no_numbers(log: Log) -> None:
    (log.log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 x\n")


@case(69, "UFC")
def log_start_behind_the_end(log: Log) -> None:
    log.log_start(END + 64)


@case(70, "UFC")
def log_start_inside_a_segment(log: Log) -> None:
    log.log_start(15)


@case(71, "UFC")
def partition_metadata_missing(log: Log) -> None:
    (log.folder / "partition.metadata").unlink()


@case(72, "UC", REFUSED)
def partition_metadata_empty(log: Log) -> None:
    (log.folder / "partition.metadata").write_bytes(b"")


@case(72, "UC", REFUSED)
def partition_metadata_truncated(log: Log) -> None:
    (log.folder / "partition.metadata").write_text("version: 0\n")


@case(72, "UC", REFUSED)
def partition_metadata_without_a_uuid(log: Log) -> None:
    (log.folder / "partition.metadata").write_text("version: 0\ntopic_id: !!\n")


@case(73, "U", preallocate="true")
def preallocated_after_a_crash(log: Log) -> None:
    log.append(24, bytes(10_000))


# -- the folder and the log dir --------------------------------------------------------------------


@case(76, "U")
@case(76, "C", WAITING)
def folder_that_waits_for_its_deletion(log: Log) -> None:
    log.folder.rename(log.log_dir / f"t-0.{'a' * 32}-delete")
    (log.log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")


@case(78, "U", REFUSED)
def log_of_more_than_2_gib(log: Log) -> None:
    with log.file(0).open("r+b") as file:
        file.truncate(2**31)


@case(79, "U", REFUSED)
def folder_that_is_no_log(log: Log) -> None:
    (log.log_dir / "lost+found").mkdir()


@case(80, "U", REFUSED)
def two_folders_of_one_partition(log: Log) -> None:
    shutil.copytree(log.folder, log.log_dir / "t-00")


@case(81, "C")
def partial_batch_behind(log: Log) -> None:
    log.append(24, segment(24)[:100])


@case(82, "C", REFUSED)
def zeros_behind_a_clean_log(log: Log) -> None:
    log.append(24, bytes(18))


@case(82, "C", REFUSED)
def short_header_behind_a_clean_log(log: Log) -> None:
    log.append(24, struct.pack(">qiib", 36, 20, 0, 2) + bytes(15))


@case(83, "U")
def old_messages(log: Log) -> None:
    for base in BASES:
        magic = int(base > 0)
        log.file(base).write_bytes(
            b"".join(builders.message(base + i, magic=magic, value=bytes(150)) for i in range(12))
        )
    log.remove(".snapshot", "leader-epoch-checkpoint")


@case(84, "C")
def marker_empty(log: Log) -> None:
    (log.log_dir / MARKER).write_bytes(b"")


@case(84, "C")
def marker_of_garbage(log: Log) -> None:
    (log.log_dir / MARKER).write_bytes(b"\xff{")
