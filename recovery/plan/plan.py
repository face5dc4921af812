"""From the wanted tree to the ordered actions that make it; nothing is touched yet.

The order is a promise: after a kill between any two actions, a broker or the next run reaches the same end from the
folder. So what would be lost is saved first; what `.swap` files replace goes before they take its place, the
`.log.swap` first; a new segment, of a swap or of a split, comes after its new indexes, and those of a split before the
old one changes; segments after a cut go before the cut itself, the last one first; and a `.index`, whose presence
tells a broker that its segment is sound, is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recovery.load.model import (
    Content,
    Cut,
    Generated,
    Original,
    PartitionOutcome,
    PartitionTask,
    RemovalKind,
)
from recovery.plan.actions import (
    DERIVED_KINDS,
    INDEX_KINDS,
    Action,
    CopyPart,
    LinkFile,
    PartitionPlan,
    RemoveFile,
    RenameFile,
    Save,
    SaveFile,
    SaveTail,
    TruncateFile,
    WriteFile,
    is_derived,
)
from segfmt.filenames import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    SWAP_SUFFIX,
    FileKind,
    file_kind,
    log_name,
    offset_index_name,
    read_offset,
)


def plan_partition(
    task: PartitionTask,
    outcome: PartitionOutcome,
    read: Callable[[str], bytes],
    *,
    keep_deleted: bool = False,
) -> PartitionPlan:
    """Return the actions from *task*'s files to *outcome*'s tree.

    Args:
        read: returns the bytes of a file of the task; a made file that is already there as it should be is left
            alone.
        keep_deleted: whether `.deleted` files found at the start go to quarantine, too.
    """
    if _is_unchanged(task, outcome):
        return PartitionPlan(folder=task.folder, saves=(), actions=())
    planner = _Planner(task, outcome, read, keep_deleted)
    return PartitionPlan(folder=task.folder, saves=planner.saves(), actions=planner.actions())


class _Planner:
    def __init__(
        self, task: PartitionTask, outcome: PartitionOutcome, read: Callable[[str], bytes], keep_deleted: bool
    ) -> None:
        self._task = task
        self._outcome = outcome
        self._keep_deleted = keep_deleted
        self._cuts: dict[str, list[Cut]] = {}
        for cut in outcome.cuts:
            self._cuts.setdefault(cut.file, []).append(cut)
        self._moves: dict[str, str] = {}  # first name -> final name
        self._truncations: dict[str, int] = {}  # final name -> bytes
        self._writes: dict[str, Generated] = {}
        self._copies: dict[str, Original] = {}
        keepers = _keepers(outcome.tree)
        for name, content in outcome.tree.items():
            if isinstance(content, Original) and keepers[content.file] != name:
                self._copies[name] = content
            elif isinstance(content, Original):
                if content.file != name:
                    self._moves[content.file] = name
                if content.size_bytes < task.files[content.file].size_bytes:
                    self._truncations[name] = content.size_bytes
            elif keepers.get(name, name) != name or not self._is_already_there(name, content, read):
                self._writes[name] = content  # the file of that name gets another one, or has other bytes

    def _is_already_there(self, name: str, content: Generated, read: Callable[[str], bytes]) -> bool:
        stat = self._task.files.get(name)
        if stat is None or stat.size_bytes != content.size_bytes:
            return False
        return read(name) == bytes(content.data) + bytes(content.size_bytes - len(content.data))

    # -- quarantine -----------------------------------------------------------------------------------------

    def saves(self) -> tuple[Save, ...]:
        """Return what must be in quarantine before anything is touched."""
        saves: list[Save] = []
        for name in sorted(self._task.files):
            size_bytes = self._task.files[name].size_bytes
            reason = self._loss_of(name)
            last_name = self._moves.get(name, name)
            is_cut = last_name in self._truncations
            first_offset, last_offset = self._offsets_of(name)
            if reason is not None and (size_bytes or self._is_pending_deletion(name)):
                saves.append(
                    SaveFile(
                        name=name,
                        size_bytes=size_bytes,
                        reason=reason,
                        is_cut=is_cut,
                        is_derived=is_derived(name),
                        first_offset=first_offset,
                        last_offset=last_offset,
                        rule=self._rule_of(name),
                    )
                )
            elif is_cut and name not in self._writes:
                position = self._truncations[last_name]
                if any(cut.is_preallocated for cut in self._cuts.get(name, ())):
                    continue
                saves.append(
                    SaveTail(
                        name=name,
                        position=position,
                        size_bytes=size_bytes - position,
                        reason=self._reason_of(name, "cut to its valid bytes"),
                        is_derived=is_derived(last_name),
                        first_offset=first_offset,
                        last_offset=last_offset,
                        rule=self._rule_of(name),
                    )
                )
        return tuple(saves)

    def _is_pending_deletion(self, name: str) -> bool:
        """Whether *name* was pending deletion: no commit knows of it, so even an empty one must be saved."""
        return self._outcome.removed.get(name) in (RemovalKind.PENDING_DELETION, RemovalKind.CUT_OFF)

    def _offsets_of(self, name: str) -> tuple[int, int]:
        cuts = self._cuts.get(name, ())
        first_offset = min((cut.first_offset for cut in cuts if cut.first_offset >= 0), default=-1)
        last_offsets = [cut.known_last_offset for cut in cuts] or [-1]
        return first_offset, -1 if min(last_offsets) < 0 else max(last_offsets)

    def _reason_of(self, name: str, otherwise: str) -> str:
        cuts = self._cuts.get(name)
        return cuts[-1].reason if cuts else otherwise  # the last is the whole file's if it was cut before

    def _rule_of(self, name: str) -> str:
        cuts = self._cuts.get(name)
        return cuts[-1].rule if cuts else ""

    def _loss_of(self, name: str) -> str | None:
        """Return why the whole file *name* is lost from the live log, None if it is not."""
        if name in self._moves:
            if self._moves[name].endswith(DELETED_SUFFIX):
                return self._reason_of(name, "deleted with its segment")
            return None
        if name in self._writes:
            return "overwritten"
        if isinstance(self._outcome.tree.get(name), Generated):
            return None  # made again, with the same bytes
        kind = self._outcome.removed.get(name)  # another file may have its name now
        if kind is None or (kind is RemovalKind.PENDING_DELETION and not self._keep_deleted):
            return None
        is_swapped = kind is RemovalKind.COMPACTED  # whether or not by a cleaner
        return self._reason_of(name, "replaced by a .swap file" if is_swapped else kind.value)

    def _gone(self) -> dict[str, RemovalKind]:
        tree = self._outcome.tree
        gone = {name: kind for name, kind in self._outcome.removed.items() if name not in tree}
        # A snapshot that is written again comes late; until then the old one must not be mistaken for it.
        gone |= {
            name: kind
            for name, kind in self._outcome.removed.items()
            if name in self._writes and kind is RemovalKind.COMPACTED and file_kind(name) is FileKind.SNAPSHOT
        }
        return gone

    # -- actions --------------------------------------------------------------------------------------------

    def actions(self) -> tuple[Action, ...]:
        """Return the actions in the order that survives a kill."""
        gone = self._gone()
        overwritten = set(self._moves.values())
        removals = [
            RemoveFile(name=name, size_bytes=self._task.files[name].size_bytes, kind=gone[name])
            for name in sorted(gone, key=_removal_rank)
            if name not in overwritten
        ]
        swaps = [
            RenameFile(old=old, new=new)
            for old, new in sorted(self._moves.items(), key=_swap_rank)
            if old.endswith(SWAP_SUFFIX)
        ]
        deletions = [
            action
            for old, new in sorted(self._moves.items(), reverse=True)
            if not old.endswith(SWAP_SUFFIX)
            for action in self._deletion(old, new)
        ]
        copies = [self._copy(name) for name in sorted(self._copies, reverse=True)]
        added = [copy for copy in copies if copy.name not in self._task.files]
        replacing = [copy for copy in copies if copy.name in self._task.files]
        derived = [
            removal
            for removal in removals
            if file_kind(removal.name) in DERIVED_KINDS and removal.kind is not RemovalKind.COMPACTED
        ]
        derived_names = {removal.name for removal in derived}
        other_removals = [removal for removal in removals if removal.name not in derived_names]
        truncations = [
            TruncateFile(name=name, size_bytes=size) for name, size in sorted(self._truncations.items())
        ]
        writes = [
            WriteFile(name=name, data=content.data, size_bytes=content.size_bytes)
            for name, content in sorted(self._writes.items(), key=lambda item: self._write_rank(item[0]))
        ]
        first = [write for write in writes if self._is_first(write)]
        logs = {copy.name for copy in added} | {action.new for action in swaps}
        indexes = [
            write
            for write in writes
            if file_kind(write.name) in INDEX_KINDS and log_name(read_offset(write.name)) in logs
        ]
        early = {write.name for write in (*first, *indexes)}
        last = [write for write in writes if write.name not in early]
        return (
            *first, *other_removals, *indexes, *swaps, *added, *deletions, *replacing, *truncations, *derived, *last,
        )  # fmt: skip

    def _is_first(self, write: WriteFile) -> bool:
        """Whether *write* comes first: the empty epochs of a log that goes as a whole, which only its segments show."""
        return write.name == LEADER_EPOCH_CHECKPOINT and not any(
            file_kind(name) is FileKind.LOG and isinstance(content, Original)
            for name, content in self._outcome.tree.items()
        )

    def _write_rank(self, name: str) -> tuple[int, str]:
        """Rank what makes a broker recover a segment last: a missing offset index, a wrong transaction index."""
        order = {
            FileKind.LOG: 0,
            FileKind.SNAPSHOT: 1,
            FileKind.TXN_INDEX: 3,
            FileKind.TIME_INDEX: 4,
            FileKind.OFFSET_INDEX: 5,
        }
        kind = file_kind(name)
        is_cause_of_recovery = (
            kind is FileKind.TXN_INDEX and offset_index_name(read_offset(name)) in self._task.files
        )
        return 6 if is_cause_of_recovery else order.get(kind, 2), name

    def _deletion(self, old: str, new: str) -> list[Action]:
        """Return how *old* becomes *new* (`.deleted`): by a second name if a copy is to take the first one."""
        if old not in self._copies:
            return [RenameFile(old=old, new=new)]
        link = LinkFile(old=old, new=new)
        if new not in self._task.files:
            return [link]
        kind = self._outcome.removed[new]
        return [RemoveFile(name=new, size_bytes=self._task.files[new].size_bytes, kind=kind), link]

    def _copy(self, name: str) -> CopyPart:
        part = self._copies[name]
        return CopyPart(
            source=part.file, name=name, position=part.origin_position, size_bytes=part.size_bytes
        )


def _is_unchanged(task: PartitionTask, outcome: PartitionOutcome) -> bool:
    """Whether every file is to stay as it is, and none is added."""
    if outcome.removed or outcome.tree.keys() != task.files.keys():
        return False
    return all(
        isinstance(content, Original)
        and content.file == name
        and content.origin_position == 0
        and content.size_bytes == task.files[name].size_bytes
        for name, content in outcome.tree.items()
    )


def _keepers(tree: Mapping[str, Content]) -> dict[str, str]:
    """Return for each original file the name that keeps its inode: the one with most of its first bytes."""
    keepers: dict[str, tuple[int, str]] = {}
    for name, content in tree.items():
        if isinstance(content, Original) and content.origin_position == 0:
            keepers[content.file] = max(keepers.get(content.file, (-1, "")), (content.size_bytes, name))
    return {file: name for file, (_, name) in keepers.items()}


def _removal_rank(name: str) -> tuple[int, str]:
    """Rank interrupted swaps before the `.cleaned` that shows them to be unfinished.

    Kafka: LogLoader.removeTempFilesAndCollectSwapFiles.
    """
    order = {FileKind.DELETED: 0, FileKind.SWAP: 1, FileKind.CLEANED: 2}
    return order.get(file_kind(name), 3), name


def _swap_rank(move: tuple[str, str]) -> tuple[bool, str]:
    """Rank a `.log.swap` first: while it is there, other files at its offsets are deleted at the next start."""
    old, new = move
    return file_kind(new) is not FileKind.LOG, old
