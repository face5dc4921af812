"""The verdict on one damaged case: what a broker leaves, what the recovery leaves, and what the difference is called.

    identical       the trees are the same, file by file and byte by byte
    refused         a broker dies, hangs or takes the log dir offline; here the partition, or the log dir, is refused
                    and untouched, and everything else is what a broker leaves that does not have it
    out of order    a deliberate difference: a batch whose offset is out of order costs its tail, not its
                    whole segment. The tree is what the broker leaves where the log was torn in that batch
    waiting         a deliberate difference: a folder that waits for its deletion, in a log dir with a clean marker,
                    is left as it is
    link            a deliberate difference: a file that is a link is refused, and not written through
    I/O error       a deliberate difference: where an error meets the recovery of a segment, or something that is no
                    file is in the way, no segment is emptied: the partition is refused, or the log dir offline
    name            a deliberate difference: a topic name that no checkpoint can hold is refused
    rewritten       a deliberate difference: a `.txnindex` whose version stops a broker from 4.4 on, in a segment that
                    is recovered, is written anew. The tree is what the broker leaves where the version is 0
    unexplained     anything else, a batch that is lost, or a report that does not say what was done

docs/reference/differences.md says more of each. Whatever the verdict: a dry run before changes nothing and announces
what is then done, and every valid batch is afterwards in the log or in quarantine, which holds what its manifest says.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from recovery.engine.report import PartitionReport, RecoveryReport
from recovery.load.model import Cut
from segfmt.checkpoint import read_offset_checkpoint
from segfmt.errors import MalformedCheckpointError
from segfmt.transaction_index import view_transaction_index
from tests.brokers import Oracle, OracleOutcome
from tests.damage.loss_account import account_errors
from tests.damage.mutilations.victim import CHECKPOINTS, topic_partition_of
from tests.logs.samples import MARKER, Sample, differences, tree_of, write_tree
from tests.runs.driving import (
    footprint,
    log_bytes,
    lost_batches,
    manifest_errors,
    own_leftovers,
    recover,
    settings_of,
)

IDENTICAL, REFUSED, OUT_OF_ORDER, WAITING = "identical", "refused", "out of order", "waiting"
IO_ERROR, NAME, LINK, REWRITTEN, UNEXPLAINED = "I/O error", "name", "link", "rewritten", "unexplained"
VERDICTS = (IDENTICAL, REFUSED, OUT_OF_ORDER, WAITING, IO_ERROR, NAME, LINK, REWRITTEN, UNEXPLAINED)
OUT_OF_ORDER_REASON = "a batch whose offset is out of order"
NAME_REASON = "no topic can have this name"
IN_THE_WAY = re.compile("a [a-z ]+ where (a file is (needed|to be written)|an index must be)")
DUPLICATE_REASON = "lies in 2 folders"
HANG_SECONDS = 120.0
"""A recovery that takes longer hangs."""

Tree = dict[str, bytes]
Trees = dict[str, Tree]
"""By the name of the log dir."""


class HangError(Exception):
    """The recovery does not end. Not an `OSError`, which the recovery would take for the disk's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict, and why."""

    verdict: str
    details: tuple[str, ...] = ()


class Judge:
    """Lets a broker and the recovery do the same log dirs."""

    def __init__(self, oracle: Oracle, sample: Sample) -> None:
        self._oracle = oracle
        self._sample = sample

    def compare(
        self, log_dirs: Sequence[Path], work: Path, *, thread_counts: Sequence[int] = (2,)
    ) -> Judgement:
        """Let the oracle load copies of *log_dirs* below *work*, recover *log_dirs* themselves, and judge.

        Args:
            log_dirs: all of one broker, of different names.
            work: a folder for copies.
            thread_counts: recover once for each; the trees must be the same.
        """
        before = {log_dir.name: tree_of(log_dir) for log_dir in log_dirs}
        logs = {log_dir: log_bytes(log_dir) for log_dir in log_dirs}
        outcome, broker_trees = self.load(before, work / "broker")
        try:
            with _deadline():
                report, problems = self._dry_and_wet(log_dirs, thread_counts[0])
        except Exception:
            words = traceback.format_exc().splitlines()[-8:]
            return Judgement(verdict=UNEXPLAINED, details=(_broker_words(outcome), *words))
        problems += [line for log_dir in log_dirs for line in _not_kept(logs[log_dir], log_dir)]
        after = {log_dir.name: tree_of(log_dir) for log_dir in log_dirs}
        for count in thread_counts[1:]:
            problems += self._recover_again(before, after, work / f"threads-{count}", count)
        problems += _wrong_accounts(self._sample, before, after, report)
        is_judged = outcome.outcome == "loaded" or self._oracle.release == "4.3"
        readable = before if is_judged else _with_known_versions(before, report)
        if readable != before:
            outcome, broker_trees = self.load(readable, work / "readable")
            after = {name: _with_known_deleted(tree) for name, tree in after.items()}
        case = _Case(self, readable, broker_trees, after, outcome, report, work)
        problems += [*_bad_refusals(report), *case.differences()]
        kinds = [*case.kinds(), *([REWRITTEN] if readable != before else [])]
        if problems or UNEXPLAINED in kinds:
            lines = report.to_text().splitlines()
            return Judgement(
                verdict=UNEXPLAINED,
                details=(_broker_words(outcome), *kinds, *problems, "the report says:", *lines),
            )
        return Judgement(verdict=max(kinds, key=VERDICTS.index))

    def load(self, trees: Mapping[str, Tree], place: Path) -> tuple[OracleOutcome, Trees]:
        """Let a broker load *trees*, written below *place* for it, and return what it leaves."""
        for name, tree in trees.items():
            write_tree(tree, place / name)
        outcome = self._oracle.load(
            [place / name for name in trees],
            now_ms=self._sample.now_ms,
            properties=self._sample.properties,
            topic_configs=self._sample.topic_configs,
            may_hang=_has_fifo(trees),
        )
        left = {name: tree_of(place / name) for name in trees}
        shutil.rmtree(place)
        return outcome, left

    def _recover(
        self, log_dirs: Sequence[Path], thread_count: int, *, dry_run: bool = False
    ) -> RecoveryReport:
        release = self._oracle.release
        return recover(self._sample, log_dirs, thread_count=thread_count, release=release, dry_run=dry_run)

    def _dry_and_wet(self, log_dirs: Sequence[Path], thread_count: int) -> tuple[RecoveryReport, list[str]]:
        """Run a dry run and the recovery; return its report, and what the dry run did or did not say."""
        found = [footprint(log_dir) for log_dir in log_dirs]
        announced = self._recover(log_dirs, thread_count, dry_run=True)
        problems = []
        if [footprint(log_dir) for log_dir in log_dirs] != found:
            problems.append("the dry run has changed the log dir")
        report = self._recover(log_dirs, thread_count)
        if any(one.status == "offline" for one in report.log_dirs):
            return report, problems  # a dry run writes nothing, so it does not meet an error of writing
        problems += [
            f"the dry run announced {told}, the run says {done}"
            for told, done in zip(promises(announced), promises(report), strict=True)
            if told != done
        ]
        return report, problems

    def _recover_again(self, before: Trees, after: Trees, place: Path, thread_count: int) -> list[str]:
        for name, tree in before.items():
            write_tree(tree, place / name)
        self._recover([place / name for name in before], thread_count)
        return [
            f"{thread_count} threads: {name}/{line}"
            for name in before
            for line in differences(after[name], tree_of(place / name))
        ]


class _Case:
    """One case after both have done it."""

    def __init__(
        self,
        judge: Judge,
        before: Trees,
        broker_trees: Trees,
        after: Trees,
        outcome: OracleOutcome,
        report: RecoveryReport,
        work: Path,
    ) -> None:
        self._judge = judge
        self._before = before
        self._broker_trees = broker_trees
        self._after = after
        self._outcome = outcome
        self._work = work
        self._log_dirs = {Path(one.log_dir).name: one for one in report.log_dirs}
        self._partitions = [
            (Path(one.log_dir).name, one)
            for one in report.partitions
            if self._log_dirs[Path(one.log_dir).name].status != "offline"
        ]
        self._refused = [(name, one) for name, one in self._partitions if one.status == "refused"]
        self._waiting = [
            (name, one)
            for name, one in self._partitions
            if one.folder.endswith("-delete") and one.status == "unchanged" and MARKER in before[name]
        ]
        self._cuts = [
            (name, one.folder, cut)
            for name, one in self._partitions
            for cut in (*one.cuts, *_cuts_of_doubled(one))
            if cut.reason == OUT_OF_ORDER_REASON
        ]

    def kinds(self) -> list[str]:
        """By which rights the dirs are not simply as the broker leaves them; `identical` where they are."""
        kinds = [self._refusal_kind(name, one) for name, one in self._refused]
        for name, one in self._waiting:
            folder = _folder_of(self._broker_trees[name], one.folder)
            kinds.append(IDENTICAL if folder == _folder_of(self._before[name], one.folder) else WAITING)
        kinds += [OUT_OF_ORDER for _ in self._cuts]
        for name in self._offline():
            kinds.append(self._offline_kind(name))
        if not kinds:
            return [IDENTICAL if self._outcome.outcome == "loaded" else UNEXPLAINED]
        return kinds

    def differences(self) -> list[str]:
        """How what is left differs from what is expected."""
        found: list[str] = []
        expected = self._broker_trees
        if self._refused or self._waiting or self._cuts or self._offline():
            expected, found = self._without()
        elif self._outcome.outcome != "loaded":
            return ["recovered although the broker does not load it"]
        for name, after in self._after.items():
            if name in self._offline():
                found += [f"{name}/{line}" for line in self._offline_differences(name)]
            else:
                found += [f"{name}/{line}" for line in differences(expected[name], after)]
        found = [
            line for line in found if not line.startswith(self._cut_in_swaps()) or ".deleted: " not in line
        ]
        for name, folder, _ in self._cuts:
            kept, brokers = (
                _live_bytes(_folder_of(trees[name], _real_folder(trees[name], folder)))
                for trees in (self._after, self._broker_trees)
            )
            if self._outcome.outcome == "loaded" and kept < brokers:
                found.append(f"{name}/{folder}: {kept} bytes are live, the broker keeps {brokers}")
        return found

    def _cut_in_swaps(self) -> tuple[str, ...]:
        """The folders with a `.swap` that was cut: a torn one ends elsewhere, and replaces what else is deleted."""
        return tuple(
            f"{name}/{_real_folder(self._before[name], folder)}/"
            for name, folder, cut in self._cuts
            if cut.file.endswith(".swap")
        )

    def _without(self) -> tuple[Trees, list[str]]:
        """What a broker leaves without what was refused, cut or left alone; and that put back."""
        start = {name: dict(tree) for name, tree in self._before.items() if name not in self._offline()}
        left_out = [*self._refused, *self._waiting]
        for name, one in left_out:
            for path in _folder_of(start[name], one.folder):
                del start[name][path]
        for name, folder, cut in self._cuts:
            log = f"{_real_folder(start[name], folder)}/{cut.file}"
            start[name][log] = start[name][log][: cut.position + 1]
        if not start:
            return {}, []
        outcome, trees = self._judge.load(start, self._work / "without")
        found = [] if outcome.outcome == "loaded" else [f"without what was refused: {_broker_words(outcome)}"]
        for name, one in left_out:
            trees[name] |= _folder_of(self._before[name], one.folder)
        for name in {name for name, _ in self._refused}:
            if all(one.status == "refused" for found_in, one in self._partitions if found_in == name):
                trees[name] = dict(self._before[name])  # nothing is recovered there, and nothing written
                continue
            folders = [one.folder for refused_in, one in self._refused if refused_in == name]
            _keep_lines(trees[name], self._before[name], folders)
            if MARKER in self._after[name] and MARKER not in self._before[name]:
                found.append(f"{name}: a marker in a log dir with a refused partition")
            trees[name].pop(MARKER, None)
            if MARKER in self._after[name]:
                trees[name][MARKER] = b""
        return trees, found

    def _refusal_kind(self, name: str, one: PartitionReport) -> str:
        reasons = " ".join(one.reasons)
        if NAME_REASON in reasons:
            return NAME
        if DUPLICATE_REASON in reasons:
            return UNEXPLAINED if self._outcome.outcome == "loaded" else REFUSED
        kind = _kind_of(reasons)
        if len(self._partitions) == 1 and len(self._before) == 1:
            return kind if self._outcome.outcome == "loaded" else REFUSED
        alone = {path: data for path, data in self._before[name].items() if "/" not in path}
        alone |= _folder_of(self._before[name], one.folder)
        outcome, _ = self._judge.load({name: alone}, self._work / "alone")
        return kind if outcome.outcome == "loaded" else REFUSED

    def _offline(self) -> list[str]:
        return [name for name, one in self._log_dirs.items() if one.status == "offline"]

    def _is_io_error(self, name: str) -> bool:
        return _names_errno(self._log_dirs[name].error or "")

    def _offline_kind(self, name: str) -> str:
        if self._is_io_error(name):
            return IO_ERROR
        is_loaded = self._outcome.outcome == "loaded"
        return _kind_of(self._log_dirs[name].error or "") if is_loaded else REFUSED

    def _offline_differences(self, name: str) -> list[str]:
        """A log dir that a checkpoint takes offline is untouched; after an I/O error no `.log` is changed but as the
        broker does it."""
        if not self._is_io_error(name):
            return differences(self._before[name], self._after[name])
        logs = [path for path in self._before[name] if path.endswith(".log")]
        return [
            f"{path} is neither as it was nor as the broker leaves it"
            for path in logs
            if self._after[name].get(path)
            not in (self._before[name][path], self._broker_trees[name].get(path, b"?"))
        ]


def _cuts_of_doubled(report: PartitionReport) -> Iterator[Cut]:
    """What was cut and is no loss, since the log has the same batches in another place."""
    for warning in report.warnings:
        found = re.match(r"(\S+) from byte (\d+): (\d+) bytes cut: (.*); other segments have", warning)
        if found:
            file, position, size_bytes, reason = found.groups()
            yield Cut(
                file=file,
                base_offset=-1,
                position=int(position),
                size_bytes=int(size_bytes),
                batch_count=0,
                rule="unknown",
                reason=reason,
            )


@contextmanager
def _deadline() -> Iterator[None]:
    """Raise where the block takes too long, which it does for ever where a FIFO is opened: nobody writes into it."""

    def ring(_signal: int, _frame: object) -> None:
        raise HangError("the recovery hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def promises(report: RecoveryReport) -> list[object]:
    """What a dry run and the run after it must say alike, one item a partition and one a log dir."""

    def of(partition: PartitionReport) -> object:
        return (
            partition.log_dir, partition.folder, partition.status,
            partition.actions, partition.to_quarantine, partition.cuts, partition.reasons, partition.warnings,
            partition.log_start_offset, partition.log_end_offset, partition.segment_count,
            partition.recovered_segments, partition.scanned_bytes, partition.recovered_bytes,
        )  # fmt: skip

    return [
        *(of(partition) for partition in report.partitions),
        *(
            (one.log_dir, one.status, one.repairs, one.actions, one.marker, one.error)
            for one in report.log_dirs
        ),
    ]


def _with_known_versions(before: Trees, report: RecoveryReport) -> Trees:
    """The trees with version 0 where a transaction index has one that stops a broker only from 4.4 on.

    What was refused stays as it is, and so does a log dir that is offline.
    """
    offline = {Path(one.log_dir).name for one in report.log_dirs if one.status == "offline"}
    refused = {(Path(one.log_dir).name, one.folder) for one in report.partitions if one.status == "refused"}
    return {
        name: {
            path: _with_known_version(data)
            if path.endswith((".txnindex", ".txnindex.swap"))
            and "/" in path  # what lies in the log dir itself is where a link leads, which is refused
            and name not in offline
            and (name, path.partition("/")[0]) not in refused
            else data
            for path, data in tree.items()
        }
        for name, tree in before.items()
    }


def _with_known_deleted(after: Tree) -> Tree:
    """The same, of what the recovery has marked as deleted: such a file is renamed, and not written again."""
    return {
        path: _with_known_version(data) if path.endswith(".txnindex.deleted") else data
        for path, data in after.items()
    }


def _with_known_version(data: bytes) -> bytes:
    entries = view_transaction_index(data).copy()
    entries["version"][entries["version"] >> 8 <= 0] = 0
    return entries.tobytes() + data[entries.nbytes :]


def _not_kept(before: Mapping[str, bytes], log_dir: Path) -> list[str]:
    """What is lost, or is in quarantine and not as its manifest says, or is left behind."""
    lost = lost_batches(before, log_dir)
    return [
        *([f"{len(lost)} batches are lost: {', '.join(lost[:5])}"] if lost else []),
        *(f"quarantine: {error}" for error in manifest_errors(log_dir)),
        *(f"left behind: {name}" for name in own_leftovers(log_dir)),
    ]


def _wrong_accounts(sample: Sample, before: Trees, after: Trees, report: RecoveryReport) -> list[str]:
    """What reports say of losses that is not so, or do not say."""
    found = []
    offline = {one.log_dir for one in report.log_dirs if one.status == "offline"}
    for one in report.partitions:
        name = Path(one.log_dir).name
        is_looked_at = one.status in ("unchanged", "recovered", "truncated") and one.log_dir not in offline
        if not is_looked_at or one.folder.endswith("-delete") or f"{one.folder}@" in before[name]:
            continue
        trees = (
            {path.partition("/")[2]: data for path, data in _folder_of(tree[name], one.folder).items()}
            for tree in (before, after)
        )
        errors = account_errors(
            *trees,
            one,
            log_start_offset=_log_start_offset(before[name], one.folder),
            is_compacted=settings_of(sample)(one.topic).is_compacted,
        )
        found += [f"account: {name}/{one.folder}: {error}" for error in errors]
    return found


def _log_start_offset(tree: Tree, folder: str) -> int:
    topic, number = topic_partition_of(folder)
    try:
        offsets = read_offset_checkpoint(tree.get("log-start-offset-checkpoint", b"0\n0\n"))
    except MalformedCheckpointError:
        return 0
    return offsets.get((topic, int(number)), 0)


def _bad_refusals(report: RecoveryReport) -> list[str]:
    """Refusals without a remedy, errors without a name, a wrong exit code."""
    found = [
        f"{one.folder}: no remedy in {one.reasons}"
        for one in report.partitions
        if one.status == "refused" and not any("Remedy:" in reason for reason in one.reasons)
    ]
    found += [
        f"no remedy and no errno in {one.error}"
        for one in report.log_dirs
        if one.status == "offline" and "Remedy:" not in str(one.error) and not _names_errno(str(one.error))
    ]
    if report.exit_code not in (1, 4) and any(
        one.status in ("partial", "offline") for one in report.log_dirs
    ):
        found.append(f"exit code {report.exit_code}")
    return found


def _kind_of(reason: str) -> str:
    if re.search(r"a (dangling )?link\b", reason):
        return LINK
    return IO_ERROR if IN_THE_WAY.search(reason) else UNEXPLAINED


def _folder_of(tree: Tree, folder: str) -> Tree:
    """The part of *tree* that is the folder itself, a link to it, and what is in it."""
    return {
        path: data for path, data in tree.items() if path.startswith(f"{folder}/") or path == f"{folder}@"
    }


def _real_folder(tree: Tree, folder: str) -> str:
    """The folder, or where the link leads that has its name: to another place in the log dir."""
    return os.path.normpath(os.fsdecode(tree.get(f"{folder}@", os.fsencode(folder))))


def _keep_lines(tree: Tree, before: Tree, folders: Sequence[str]) -> None:
    """Add the checkpoint lines of *folders*, which were left alone, as a broker has read them."""
    places = [topic_partition_of(folder) for folder in folders]
    keys = {(topic, int(number)) for topic, number in places if re.fullmatch(r"[+-]?\d+", number)}  # t-00: 0
    for name in CHECKPOINTS:
        try:
            offsets = read_offset_checkpoint(before.get(name, b"0\n0\n"))
        except MalformedCheckpointError:  # the broker knows no line of it, and writes another
            continue
        lines = [b"%s %d %d" % (key[0].encode(), key[1], offsets[key]) for key in keys & offsets.keys()]
        if lines and name in tree:
            kept = sorted({*tree[name].splitlines()[2:], *lines})
            tree[name] = b"\n".join([b"0", str(len(kept)).encode(), *kept, b""])


def _live_bytes(tree: Tree) -> int:
    return sum(len(data) for path, data in tree.items() if path.endswith(".log"))


def _has_fifo(trees: Mapping[str, Tree]) -> bool:
    return any(path.endswith("|") for tree in trees.values() for path in tree)


def _broker_words(outcome: OracleOutcome) -> str:
    return f"the broker: {outcome.outcome} {outcome.error or ''}".rstrip()


def _names_errno(text: str) -> bool:
    return any(os.strerror(number) in text for number in errno.errorcode)
