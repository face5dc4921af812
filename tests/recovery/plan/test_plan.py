"""Plans as text, and what their order promises."""

from __future__ import annotations

import random

import pytest

from recovery.errors import PartitionRefusedError
from recovery.load.model import LogSettings
from recovery.plan.actions import (
    PartitionPlan,
    RemoveFile,
    RenameFile,
    Save,
    SaveFile,
    SaveTail,
    TruncateFile,
    WriteFile,
    action_words,
    is_derived,
)
from recovery.plan.plan import plan_partition
from tests.recovery.load.memory import Folded, name, partition
from tests.recovery.load.test_partition import SIZE, TestOverflow, flipped, segment, three_segments


def plan_of(folded: Folded, *, keep_deleted: bool = False) -> PartitionPlan:
    return plan_partition(folded.task, folded.outcome, folded.source.read, keep_deleted=keep_deleted)


def short(text: str) -> str:
    """Names without their leading zeros."""
    return " ".join(word[18:] if word.startswith("0" * 18) else word for word in text.split())


def derived_saves(plan: PartitionPlan) -> list[Save]:
    return [save for save in plan.saves if save.is_derived]


def words(plan: PartitionPlan) -> list[str]:
    saves = [
        f"save {save.name} ({save.reason})" if isinstance(save, SaveFile)
        else f"save {save.name} from {save.position} ({save.reason})"
        for save in plan.saves if save not in derived_saves(plan)
    ]  # fmt: skip
    return [short(text) for text in (*saves, *map(action_words, plan.actions))]


class TestAsText:
    def test_a_log_that_is_as_it_should_be(self) -> None:
        recovered = Folded(three_segments()).tree
        plan = plan_of(Folded(recovered))
        assert plan.is_empty
        assert words(plan) == []

    def test_a_crashed_log(self) -> None:
        assert words(plan_of(Folded(three_segments()))) == [
            "save leader-epoch-checkpoint (overwritten)",
            "write 10.snapshot (10 bytes)",
            "write 20.snapshot (10 bytes)",
            "write 30.snapshot (10 bytes)",
            "write leader-epoch-checkpoint (18 bytes)",
            "write 00.timeindex (60 bytes)",
            "write 10.timeindex (60 bytes)",
            "write 20.timeindex (60 bytes)",
            "write 00.index (32 bytes)",
            "write 10.index (32 bytes)",
            "write 20.index (32 bytes)",
        ]

    def test_a_bad_batch_in_the_first_segment(self) -> None:
        recovered = Folded(three_segments()).tree
        recovered[name(0)] = flipped(recovered[name(0)], 4 * SIZE + 65)
        assert words(plan_of(Folded(recovered))) == [
            f"save 00.log from {4 * SIZE} (a batch whose CRC does not match)",
            "save 10.log (after the cut in 00.log)",
            "save 20.log (after the cut in 00.log)",
            "save leader-epoch-checkpoint (overwritten)",
            "rename 20.timeindex to 20.timeindex.deleted",
            "rename 20.log to 20.log.deleted",
            "rename 20.index to 20.index.deleted",
            "rename 10.timeindex to 10.timeindex.deleted",
            "rename 10.log to 10.log.deleted",
            "rename 10.index to 10.index.deleted",
            f"truncate 00.log to {4 * SIZE} bytes",
            "remove 10.snapshot (10 bytes, derived)",
            "remove 20.snapshot (10 bytes, derived)",
            "remove 30.snapshot (10 bytes, derived)",
            "write 04.snapshot (10 bytes)",
            "write leader-epoch-checkpoint (8 bytes)",
            "write 00.timeindex (24 bytes)",
            "write 00.index (8 bytes)",
        ]

    def test_an_index_that_is_made_again_as_the_one_that_goes(self) -> None:
        """Of the same bytes, but the file by that name has become a `.deleted` one."""
        recovered = Folded(three_segments()).tree | {name(10, ".index"): b""}
        recovered[name(0)] = flipped(recovered[name(0)], 65)
        actions = words(plan_of(Folded(recovered, log_start_offset=10)))
        assert "rename 10.index to 10.index.deleted" in actions
        assert "write 10.index (0 bytes)" in actions

    def test_a_finished_cleaning(self) -> None:
        recovered = Folded(three_segments()).tree
        swap = segment(10, 4)
        files = recovered | {
            name(10, ".log.swap"): swap,
            name(10, ".index.swap"): b"",
            name(10, ".timeindex.swap"): b"",
        }
        assert words(plan_of(Folded(files, recovery_point=20))) == [
            "save 10.log (replaced by a segment that does not hold these offsets)",
            "remove 10.snapshot (10 bytes, compacted)",
            "rename 10.log.swap to 10.log",
            "rename 10.index.swap to 10.index",
            "rename 10.timeindex.swap to 10.timeindex",
        ]

    def test_an_unfinished_cleaning(self) -> None:
        files = Folded(three_segments()).tree | {
            name(10, ".log.swap"): b"s",
            name(10, ".log.cleaned"): b"cc",
            name(20, ".index.cleaned"): b"i",
            name(0, ".log.deleted"): b"ddd",
        }
        assert words(plan_of(Folded(files))) == [
            "save 10.log.cleaned (leftover)",
            "save 10.log.swap (leftover)",
            "remove 00.log.deleted (3 bytes, pending deletion)",
            "remove 10.log.swap (1 bytes, leftover)",
            "remove 10.log.cleaned (2 bytes, leftover)",
            "remove 20.index.cleaned (1 bytes, leftover)",
        ]

    def test_pending_deletions_are_kept_when_asked_for(self) -> None:
        files = Folded(three_segments()).tree | {
            name(0, ".log.deleted"): b"ddd",
            name(0, ".index.deleted"): b"i",
        }
        assert plan_of(Folded(files)).saves == ()
        assert [save.name for save in plan_of(Folded(files), keep_deleted=True).saves] == [
            name(0, ".index.deleted"),
            name(0, ".log.deleted"),
        ]

    def test_derived_files_that_change_are_kept_for_undo(self) -> None:
        recovered = Folded(three_segments()).tree
        recovered[name(0)] = flipped(recovered[name(0)], 4 * SIZE + 65)
        assert [save.name for save in derived_saves(plan_of(Folded(recovered)))] == [
            name(0, ".index"),
            name(0, ".timeindex"),
            *(name(base, suffix) for base in (10, 20) for suffix in (".index", ".snapshot", ".timeindex")),
            name(30, ".snapshot"),
        ]

    def test_a_split(self) -> None:
        far = TestOverflow.FAR
        files = partition({0: segment(0, 5) + segment(far, 3)})
        plan = words(plan_of(Folded(files)))
        order = [
            f"write {name(far, '.index')} (8 bytes)",
            f"copy {3 * SIZE} bytes of 00.log from byte {5 * SIZE} to {name(far)}",
            "link 00.log to 00.log.deleted",
            f"copy {5 * SIZE} bytes of 00.log from byte 0 to 00.log",
        ]
        positions = [plan.index(short(text)) for text in order]
        assert positions == sorted(positions)

    def test_a_log_that_ends_before_its_start(self) -> None:
        plan = words(plan_of(Folded(Folded(three_segments()).tree, log_start_offset=100)))
        changes = [text for text in plan if not text.startswith("save")]
        assert changes[0] == "write leader-epoch-checkpoint (4 bytes)"
        assert changes[1] == "rename 20.log to 20.log.deleted"

    def test_preallocated_zeros_are_cut_and_not_saved(self) -> None:
        files = three_segments()
        files[name(20)] += bytes(5000)
        folded = Folded(files, settings=LogSettings(index_interval_bytes=100, preallocate=True))
        plan = words(plan_of(folded))
        assert f"truncate 20.log to {10 * SIZE} bytes" in plan
        assert not any(text.startswith("save 20.log") for text in plan)

    def test_a_segment_that_is_cut_and_then_deleted_is_saved_whole(self) -> None:
        files = Folded(three_segments()).tree
        files[name(20)] = files[name(20)][:-5]
        saves = plan_of(Folded(files, log_start_offset=100)).saves
        assert [save.name for save in saves if save.name == name(20)] == [name(20)]
        (save,) = (save for save in saves if save.name == name(20))
        assert isinstance(save, SaveFile)
        assert save.is_cut  # a hard link would be cut with it


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("1.log", False),
        ("1.index", True),
        ("1.timeindex.deleted", True),
        ("1.txnindex.swap", True),
        ("1.snapshot.cleaned", True),
        ("leader-epoch-checkpoint", False),
        ("1.log.deleted", False),
    ],
)
def test_what_the_log_rebuilds(file: str, expected: bool) -> None:
    assert is_derived(file) is expected


def random_plans() -> list[tuple[Folded, PartitionPlan]]:
    """Plans for damage of all kinds."""
    plans = []
    for seed in range(150):
        rng = random.Random(seed)
        files = dict(Folded(three_segments()).tree)
        for file in rng.sample(sorted(files), rng.randint(1, 3)):
            data = files.pop(file)
            if rng.random() < 0.7 and data:
                files[file] = flipped(data, rng.randrange(len(data)))
        if rng.random() < 0.3:
            files[name(10, ".log.swap")] = segment(10, rng.randrange(10))
        if rng.random() < 0.2:
            files[name(10, ".log.cleaned")] = b"x"
        try:
            folded = Folded(
                files, recovery_point=rng.choice([0, 10, 30]), log_start_offset=rng.choice([0, 0, 13, 99])
            )
        except PartitionRefusedError:
            continue
        plans.append((folded, plan_of(folded)))
    assert len(plans) > 80
    return plans


@pytest.fixture(scope="module")
def plans() -> list[tuple[Folded, PartitionPlan]]:
    return random_plans()


def test_a_plan_makes_the_tree(plans: list[tuple[Folded, PartitionPlan]]) -> None:
    for folded, plan in plans:
        files = dict(folded.source.files)
        for action in plan.actions:
            match action:
                case RemoveFile(name=file, size_bytes=size_bytes):
                    assert len(files.pop(file)) == size_bytes
                case RenameFile(old=old, new=new):
                    files[new] = files.pop(old)
                case TruncateFile(name=file, size_bytes=size_bytes):
                    assert size_bytes < len(files[file])
                    files[file] = files[file][:size_bytes]
                case WriteFile(name=file, data=data, size_bytes=size_bytes):
                    files[file] = data + bytes(size_bytes - len(data))
        assert files == folded.tree


def test_whatever_is_lost_and_not_derived_is_saved(plans: list[tuple[Folded, PartitionPlan]]) -> None:
    for folded, plan in plans:
        kept = {data for file, data in folded.tree.items() if not file.endswith(".deleted")}
        for file, data in folded.source.files.items():
            if is_derived(file) or data in kept or not data:
                continue
            save = next(save for save in plan.saves if save.name == file)
            if isinstance(save, SaveTail):
                assert folded.tree[file] == data[: save.position]
                assert save.size_bytes == len(data) - save.position
            else:
                assert save.size_bytes == len(data)


def test_the_segments_behind_a_cut_go_before_it_the_last_one_first(
    plans: list[tuple[Folded, PartitionPlan]],
) -> None:
    seen = 0
    for _, plan in plans:
        deleted = [
            action.old
            for action in plan.actions
            if isinstance(action, RenameFile) and action.new.endswith("deleted")
        ]
        logs = [file for file in deleted if file.endswith(".log")]
        assert logs == sorted(logs, reverse=True)
        kinds = [type(action) for action in plan.actions]
        if logs and TruncateFile in kinds:
            seen += 1
            first_cut = kinds.index(TruncateFile)
            assert all(not isinstance(action, RenameFile) for action in plan.actions[first_cut:])
    assert seen > 5


def test_an_index_that_was_missing_is_written_last(plans: list[tuple[Folded, PartitionPlan]]) -> None:
    seen = 0
    for folded, plan in plans:
        for base in (0, 10, 20):
            if name(base) in folded.tree and name(base, ".index") not in folded.source.files:
                written = [action.name for action in plan.actions if isinstance(action, WriteFile)]
                own = [file for file in written if file.startswith(name(base, ""))]
                if name(base, ".index") in own:
                    seen += 1
                    assert own[-1] == name(base, ".index")
    assert seen > 5


def test_what_is_as_it_should_be_is_not_written(plans: list[tuple[Folded, PartitionPlan]]) -> None:
    for folded, plan in plans:
        for action in plan.actions:
            if isinstance(action, WriteFile) and action.name in folded.source.files:
                before = folded.source.files[action.name]
                assert before != action.data + bytes(action.size_bytes - len(action.data)) or any(
                    isinstance(other, RemoveFile) and other.name == action.name for other in plan.actions
                )
