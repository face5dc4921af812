"""What `verify` is to say of each damage of tests/damage/mutilate.py: found at the damaged file, or no damage, and why.

Every damage has an entry. One without reasons is found in every case; with reasons, some partitions and draws leave
what a sound log can be. A reason is not taken on trust: `holds` looks at what a recovery makes of it, or at the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recovery.engine.report import RecoveryReport
from segfmt.errors import FormatError
from segfmt.filenames import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FileKind, file_kind
from segfmt.partition_metadata import read_partition_metadata
from tests.damage.damaged_partition import END, FOLDER, NEIGHBOUR, SEGMENT, DamagedPartition, Tree
from tests.runs.driving import valid_batches

_READ_FILES = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
_UNREAD_KINDS = (FileKind.OTHER, FileKind.DELETED)
_INDEX_SUFFIXES = (".index", ".timeindex")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a case is no damage to `verify`.

    Attributes:
        holds: whether that is so of a case.
    """

    words: str
    holds: Callable[[DamagedPartition], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is expected of a kind of damage.

    Attributes:
        places: kinds of files that may be named instead of the changed ones.
        reasons: for not being found; the first that holds counts.
    """

    places: frozenset[str] = frozenset()
    reasons: tuple[Reason, ...] = ()


def _expected(*reasons: Reason, places: tuple[str, ...] = ()) -> Expected:
    return Expected(places=frozenset(places), reasons=reasons)


# -- what reasons look at ----------------------------------------------------------------------------------


def _is_refused(report: RecoveryReport) -> bool:
    return any(one.status in ("refused", "failed") for one in report.partitions) or any(
        one.status == "offline" for one in report.log_dirs
    )


def _read_files(tree: Mapping[str, bytes]) -> Tree:
    """The files that a broker reads."""
    return {
        name: data
        for name, data in tree.items()
        if name in _READ_FILES or (file_kind(name) not in _UNREAD_KINDS and name[-1] not in "/@|")
    }


def _log_bytes(tree: Mapping[str, bytes]) -> bytes:
    """The batches of a log, whatever its segments are."""
    return b"".join(tree[name] for name in sorted(tree) if name.endswith(".log"))


def _is_loaded_alike(damaged: DamagedPartition, view: Callable[[Tree], object]) -> bool:
    """Whether nothing is refused, and a recovery leaves the same as without the damage, seen through *view*."""
    report, tree = damaged.recovered()
    _, sound = damaged.recovered(is_damaged=False)
    return not _is_refused(report) and view(tree) == view(sound)


def _is_same(damaged: DamagedPartition) -> bool:
    return _is_loaded_alike(damaged, _read_files)


def _is_in_log_dir(damaged: DamagedPartition) -> bool:
    """Whether only files of the log dir itself are changed, and the same batches are live afterwards."""
    return not damaged.changed_files and _is_loaded_alike(damaged, _log_bytes)


def _is_finished(damaged: DamagedPartition) -> bool:
    return any(
        file_kind(name).value in ("swap", "cleaned", "deleted") for name in damaged.changed_files
    ) and (_is_loaded_alike(damaged, _log_bytes))


def _is_older_snapshot(damaged: DamagedPartition) -> bool:
    def view(tree: Tree) -> object:
        return _log_bytes(tree), max(item for item in tree.items() if item[0].endswith(".snapshot"))

    return all(name.endswith(".snapshot") for name in damaged.changed_files) and _is_loaded_alike(
        damaged, view
    )


def _is_shorter_index(damaged: DamagedPartition) -> bool:
    before, after = damaged.files(damaged.before), damaged.files(damaged.after)
    last = max(damaged.logs(damaged.after), default="").removesuffix(".log")
    for name in damaged.changed_files:
        if not name.endswith(_INDEX_SUFFIXES) or name not in before:
            return False
        data, sound = after.get(name, b"?"), before[name]
        if not sound.startswith(data.rstrip(b"\0") if name.startswith(f"{last}.") else data):
            return False
    return True


def _is_compacted(damaged: DamagedPartition) -> bool:
    topic = damaged.victim.topic_partition[0]
    policy = damaged.sample.topic_configs.get(topic, {}).get("cleanup.policy", "delete")
    return topic.startswith("__") or "compact" in policy or _has_lost_records(damaged.logs(damaged.before))


def _has_lost_records(logs: Tree) -> bool:
    """Whether a batch has fewer records than offsets: the topic was compacted once."""
    return any(
        batch[16] >= 2 and int.from_bytes(batch[57:61], "big") <= int.from_bytes(batch[23:27], "big")
        for data in logs.values()
        for _, batch in valid_batches(data)
    )


def _is_aborted_unknown(damaged: DamagedPartition) -> bool:
    return _is_compacted(damaged) and all(name.endswith(".txnindex") for name in damaged.changed_files)


def _left_logs(damaged: DamagedPartition) -> tuple[set[str], Tree] | None:
    """The names of the logs that are gone or empty now, and those that are left; None where one is another."""
    before, after = damaged.logs(damaged.before), damaged.logs(damaged.after)
    after = {name: data for name, data in after.items() if data or not before.get(name)}
    is_same = all(before.get(name) == data for name, data in after.items())
    return (before.keys() - after.keys(), after) if is_same else None


def _is_retained(damaged: DamagedPartition) -> bool:
    found = _left_logs(damaged)
    return found is not None and bool(found[1]) and max(found[0], default="") < min(found[1])


def _is_cut_off(damaged: DamagedPartition) -> bool:
    """Whether the last batches alone are gone, of one segment or of several."""
    before, after = (
        [batch for name in sorted(logs) for batch in _batches(logs[name])]
        for logs in (damaged.logs(damaged.before), damaged.logs(damaged.after))
    )
    return before[: len(after)] == after != before and not _is_refused(damaged.recovered()[0])


def _is_hole(damaged: DamagedPartition) -> bool:
    """Batches of a compacted topic are gone, and the others are as they were."""
    before, after = damaged.logs(damaged.before), damaged.logs(damaged.after)
    is_less = all(_is_part(_batches(data), _batches(before.get(name, b""))) for name, data in after.items())
    return _is_compacted(damaged) and is_less and not _is_refused(damaged.recovered()[0])


def _batches(data: bytes) -> list[bytes]:
    return [batch for _, batch in valid_batches(data)]


def _is_part(some: list[bytes], of: list[bytes]) -> bool:
    """Whether *some* are in *of* in the same order."""
    rest = iter(of)
    return all(batch in rest for batch in some)


def _is_other_offset(damaged: DamagedPartition) -> bool:
    """Whether batches of a compacted topic have other base offsets, and nothing else is changed."""
    before, after = (
        [batch[8:] for name in sorted(logs) for batch in _batches(logs[name])]
        for logs in (damaged.logs(damaged.before), damaged.logs(damaged.after))
    )
    return _is_compacted(damaged) and before == after and _is_kept(damaged)


def _is_compacting_swap(damaged: DamagedPartition) -> bool:
    is_swap = any(".log.swap" in name for name in damaged.changed_files)
    return is_swap and _is_compacted(damaged) and not _is_refused(damaged.recovered()[0])


def _is_kept(damaged: DamagedPartition) -> bool:
    """Whether a recovery of all segments keeps every byte of the logs, preallocated zeros aside."""
    report, tree = damaged.recovered(is_forced=True)
    logs = damaged.logs(damaged.after)
    return not _is_refused(report) and all(
        tree.get(name, b"?").rstrip(b"\0") == data.rstrip(b"\0") for name, data in logs.items()
    )


def _is_taken(damaged: DamagedPartition) -> bool:
    """Whether all that was there is there, and what lies behind it is kept."""
    before, after = damaged.logs(damaged.before), damaged.logs(damaged.after)
    return _is_kept(damaged) and all(
        after.get(name, b"").startswith(data.rstrip(b"\0")) for name, data in before.items()
    )


def _is_another(damaged: DamagedPartition) -> bool:
    """Whether nothing is left of the log before, and the one that is there now is kept."""

    def batches(tree: Tree) -> set[bytes]:
        return {batch for data in damaged.logs(tree).values() for batch in _batches(data)}

    return batches(damaged.before).isdisjoint(batches(damaged.after)) and _is_kept(damaged)


def _is_other_topic_id(damaged: DamagedPartition) -> bool:
    try:
        read_partition_metadata(damaged.files(damaged.after).get(PARTITION_METADATA, b""))
    except FormatError:
        return False
    return damaged.changed_files == {PARTITION_METADATA} and not _is_refused(damaged.recovered()[0])


def _is_empty_log(damaged: DamagedPartition) -> bool:
    return not _log_bytes(damaged.files(damaged.before)).strip(b"\0")


def _is_unneeded_epochs(damaged: DamagedPartition) -> bool:
    return (
        damaged.changed_files == {LEADER_EPOCH_CHECKPOINT}
        and _is_loaded_alike(damaged, _log_bytes)
        and (
            not damaged.files(damaged.before).get(LEADER_EPOCH_CHECKPOINT, b"").splitlines()[2:]
            or _is_empty_log(damaged)
        )
    )


NOTHING = Reason(words="the bytes are the same as before", holds=lambda damaged: not damaged.changed)
SAME = Reason(words="a recovery leaves what it leaves without it", holds=_is_same)
LOG_DIR = Reason(
    words="a checkpoint says what can be, or the marker comes or goes at a whole log", holds=_is_in_log_dir
)
FINISHED = Reason(
    words="a broker finishes what was interrupted, and has the same batches", holds=_is_finished
)
SNAPSHOT = Reason(
    words="producers are read from the snapshot before, and from the log", holds=_is_older_snapshot
)
INDEX = Reason(
    words="an index may have fewer entries than it could, the active one zeros behind",
    holds=_is_shorter_index,
)
ABORTED = Reason(
    words="compaction takes batches of aborted transactions away: the index cannot be held against the rest",
    holds=_is_aborted_unknown,
)
RETENTION = Reason(words="the first segments are gone, as retention leaves it", holds=_is_retained)
CUT_OFF = Reason(words="the last batches are gone, and nothing is left to tell of them", holds=_is_cut_off)
COMPACTED = Reason(words="a compacted topic has holes", holds=_is_hole)
OFFSET = Reason(
    words="a compacted topic has holes: another offset between its neighbours", holds=_is_other_offset
)
COMPACTING = Reason(words="a compaction that was interrupted", holds=_is_compacting_swap)
TAKEN = Reason(words="batches that a broker takes as they are", holds=_is_taken)
ANOTHER = Reason(words="another log, which a broker takes as it is", holds=_is_another)
TOPIC_ID = Reason(words="another topic id, which only a metadata log could tell", holds=_is_other_topic_id)
EMPTY = Reason(words="the log was empty", holds=_is_empty_log)
EPOCHS = Reason(words="a log without epochs needs no file of them", holds=_is_unneeded_epochs)

_FIELDS = (
    "length", "leader epoch", "magic", "crc", "attributes", "last offset delta", "base timestamp",
    "max timestamp", "producer id", "producer epoch", "base sequence", "record count", "records",
)  # fmt: skip
_ALWAYS = _expected()

EXPECTED: dict[str, Expected] = {
    # logs
    "torn tail": _ALWAYS,
    "junk tail": _ALWAYS,
    "zero tail": _ALWAYS,
    "header tail": _ALWAYS,
    **{f"flipped {field}, {where}": _ALWAYS for field in _FIELDS for where in ("unflushed", "flushed")},
    "flipped base offset, unflushed": _expected(OFFSET),
    "flipped base offset, flushed": _expected(OFFSET),
    "other magic": _expected(NOTHING),
    "old messages": _expected(TAKEN),
    "zeroed page": _expected(NOTHING),
    "swapped batches": _ALWAYS,
    "missing or doubled batch": _expected(CUT_OFF, COMPACTED, places=(SEGMENT,)),
    # derived files
    "missing offset index": _expected(EMPTY),
    "missing time index": _expected(EMPTY),
    "missing transaction index": _expected(ABORTED),
    "missing snapshot": _expected(SNAPSHOT),
    "broken offset index": _expected(NOTHING, INDEX),
    "broken time index": _expected(NOTHING, INDEX),
    "broken transaction index": _expected(NOTHING, ABORTED),
    "broken snapshot": _expected(NOTHING),
    "oversized index": _expected(NOTHING, INDEX),
    "wrong index entry": _expected(NOTHING, INDEX),
    "wrong aborted transaction": _expected(ABORTED),
    "orphaned indexes": _ALWAYS,
    "stray snapshots": _expected(NOTHING, SAME, SNAPSHOT),
    # checkpoints
    "recovery point": _expected(LOG_DIR),
    "log start offset": _expected(LOG_DIR),
    "malformed recovery points": _expected(LOG_DIR),
    "malformed log start offsets": _expected(LOG_DIR),
    "malformed epochs": _expected(NOTHING, SAME, EPOCHS),
    "wrong epochs": _expected(NOTHING, SAME, EPOCHS),
    "missing epochs": _expected(EPOCHS),
    "broken epochs": _expected(NOTHING, SAME, EPOCHS),
    "missing partition.metadata": _ALWAYS,
    "broken partition.metadata": _expected(NOTHING, TOPIC_ID),
    "malformed partition.metadata": _expected(NOTHING, TOPIC_ID),
    "lying marker": _expected(LOG_DIR, places=(FOLDER,)),
    "leftover temporary file": _expected(SAME),
    # leftovers
    "leftover files": _expected(
        SAME, FINISHED, COMPACTING, CUT_OFF, RETENTION, places=(SEGMENT, NEIGHBOUR, END)
    ),
    "leftovers of several segments": _expected(
        SAME, FINISHED, COMPACTING, CUT_OFF, RETENTION, places=(SEGMENT, NEIGHBOUR, END)
    ),
    "broken swap": _expected(
        SAME, FINISHED, COMPACTING, CUT_OFF, RETENTION, places=(SEGMENT, NEIGHBOUR, END)
    ),
    "leftover indexes and snapshots": _expected(SAME),
    "compacted": _expected(SAME, FINISHED, COMPACTING),
    "interrupted split": _expected(SAME, FINISHED, COMPACTING, places=(SEGMENT, NEIGHBOUR, END)),
    "interrupted merge": _expected(SAME, FINISHED, COMPACTING, places=(SEGMENT, NEIGHBOUR, END)),
    # segments
    "missing segment": _expected(RETENTION, CUT_OFF, COMPACTED, EMPTY, places=(SEGMENT, NEIGHBOUR, END)),
    "empty segment": _expected(NOTHING, CUT_OFF, COMPACTED, places=(SEGMENT, END)),
    "doubled segment": _expected(NOTHING, EMPTY),
    "renamed segment": _expected(NOTHING, EMPTY, places=(SEGMENT,)),
    "huge file": _expected(INDEX),
    "offset overflow": _ALWAYS,
    "extreme offsets": _ALWAYS,
    "no segments": _expected(SAME, EMPTY, places=(FOLDER,)),
    # names
    "odd file name": _expected(SAME, FINISHED),
    "odd folder name": _expected(SAME),
    "doubled folder": _expected(SAME),
    "link for a file": _expected(SAME),
    "link where nothing was": _expected(SAME),
    "link for a folder": _expected(SAME),
    "FIFO for a file": _expected(SAME),
    "folder for a file": _expected(SAME),
    # producers
    "senseless control batch": _expected(TAKEN, places=(SEGMENT, END)),
    "broken transaction": _expected(TAKEN, places=(SEGMENT, END)),
    "odd producer": _expected(TAKEN, places=(SEGMENT, END)),
    "many producers": _expected(TAKEN, places=(SEGMENT, END)),
    "crowded log": _expected(ANOTHER, places=(SEGMENT, END)),
}
"""By the name of the damage."""
