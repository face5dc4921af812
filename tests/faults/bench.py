"""A damaged state on the bench: as many runs from it as are wanted, and what must hold after each.

The state is copied to the same place for every run. What the undisturbed run leaves is what every disturbed one,
started again, must come to; what is in the log and in quarantine must at all times be all that was there.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from recovery.engine.report import CUT_LEDGER
from recovery.logdir.quarantine_place import INSIDE_FOLDER, JOURNAL
from recovery.plan.actions import TEMPORARY_SUFFIX
from recovery.write.quarantine import MANIFEST
from tests.faults.fork_server import Ended, ForkServer
from tests.faults.shim import Call, Fault, read_trace
from tests.faults.states import State
from tests.faults.told import Cuts, ToldTwiceError, told_cuts
from tests.logs.samples import LOCK, MARKER, SAMPLE_NAMES, Sample, differences, tree_of, unpack
from tests.runs.driving import is_as_saved, own_leftovers, quarantine_of, valid_batches

CLEAN_CODES = (0, 2)
"""Exit codes of a run that has done all that there was to do."""
_MOST_RUNS = 5


class Bench:
    """The samples and a fork server; a context manager. Everything happens below *root*.

    Args:
        syncs_each: see `ForkServer`.
    """

    def __init__(self, root: Path, *, syncs_each: bool = False) -> None:
        self.root = root
        self.samples = {name: unpack(name, root / "samples") for name in SAMPLE_NAMES}
        self.server = ForkServer(root / "control", syncs_each=syncs_each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.close()

    @contextlib.contextmanager
    def place(self, state: State) -> Iterator[StateBench]:
        """A bench for *state*; its folders are gone afterwards."""
        root = self.root / "state"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        try:
            yield StateBench(self, state, root)
        finally:
            shutil.rmtree(root)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that must not be."""

    state: str
    point: str  # what repeats it, after the state's name
    problem: str

    def __str__(self) -> str:
        return f"--state '{self.state}' --point '{self.point}': {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What an undisturbed `undo` leaves of an undisturbed recovery."""

    is_possible: bool
    calls: list[Call]
    tree: dict[str, bytes]


class StateBench:
    """One damaged state, and what an undisturbed run makes of it."""

    def __init__(self, bench: Bench, state: State, root: Path) -> None:
        self.state = state
        self.sample: Sample = bench.samples[state.sample]
        self._server = bench.server
        self._original = root / "original"
        self.work = root / "work"
        self._trace = root / "trace"
        self._seen: dict[str, bytes] | None = None
        self._found: dict[str, bytes] | None = None
        self._original.mkdir()
        state.make(bench.samples, self._original)
        self._start = tree_of(self._original)
        self.untouched = self._live(self._start)
        self.conservation = Conservation(self._logs(self._start))
        self.fresh()
        self.undisturbed = self.run(trace=True)
        self.calls: list[Call] = self.last_calls()
        self.expected = self.live_tree()
        self.problems = [
            f"undisturbed: {words}"
            for words in (*self.losses(), *self.leftovers(), *self.quarantine_problems())
        ]
        self.run()
        self.expected_again = self.live_tree()
        self.expected_unmarked = self._end_without_markers() if state.is_clean else self.expected
        self.undone = self._undone()

    def _end_without_markers(self) -> dict[str, bytes]:
        self.fresh()
        for log_dir in self.log_dirs:
            (log_dir / MARKER).unlink()
        self.run()
        return self.live_tree()

    # -- runs ------------------------------------------------------------------------------------------------

    def fresh(self) -> None:
        """Put a new copy of the damaged state on the bench."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self._original, self.work, symlinks=True)
        self.changed()

    def fresh_in_place(self) -> None:
        """Put a new copy into the work folder, which is empty and stays: something is mounted there."""
        shutil.copytree(self._original, self.work, symlinks=True, dirs_exist_ok=True)
        self.changed()

    @property
    def log_dirs(self) -> list[Path]:
        """The log dirs on the bench."""
        return self.state.paths(self.work)

    def _argv(self, command: str) -> list[str]:
        """The command line of a run."""
        sample = self.sample
        dirs = [command, "-c", str(sample.config), "--log-dirs", ",".join(map(str, self.log_dirs))]
        if command == "undo":
            return dirs
        return [
            *dirs, "--topic-config", str(sample.root / "topic-configs.json"), "--now", str(sample.now_ms),
            "--threads", "1", "--format", "json", "--progress", "none",
        ]  # fmt: skip

    def _undone(self) -> Undone:
        """What an undisturbed `undo` does."""
        self.fresh()
        self.run()
        ended = self.run(command="undo", trace=True)
        is_possible = ended.exit_code == 0 and "nothing to take back" not in ended.stdout
        return Undone(is_possible=is_possible, calls=self.last_calls(), tree=self.live_tree())

    def run(
        self,
        fault: Fault | None = None,
        *,
        command: str = "recover",
        trace: bool = False,
        with_data: bool = False,
        before: str = "",
        options: Sequence[str] = (),
    ) -> Ended:
        """Run the command line on what is on the bench, with more *options*."""
        self.changed()
        return self._server.run(
            [*self._argv(command), *options],
            self.work,
            fault,
            trace=self._trace if trace else None,
            with_data=with_data,
            before=before,
        )

    def last_calls(self) -> list[Call]:
        """The calls of the last traced run."""
        return list(read_trace(self._trace))

    # -- what must hold --------------------------------------------------------------------------------------

    def over(self) -> frozenset[str]:
        """The log dirs that have been handed over: a run after this one loads them a second time."""
        return frozenset(
            log_dir.name
            for log_dir in self.log_dirs
            if (log_dir / MARKER).exists()
            and not differences_below(self.expected, self.live_tree(), log_dir.name)
        )

    def unmarked(self) -> frozenset[str]:
        """The log dirs that were clean, and of which a run has left a part for the next one, to be loaded as unclean.

        The marker went before the first change, as with a broker; the journal went with the end of the run.
        """
        return frozenset(
            log_dir.name
            for log_dir in self.log_dirs
            if self.state.is_clean
            and not (log_dir / MARKER).exists()
            and not any((place / JOURNAL).exists() for place in quarantines_of(log_dir))
        )

    def differences(self, over: Collection[str] = (), unmarked: Collection[str] = ()) -> list[str]:
        """How the log dirs differ from the end of the undisturbed run, or in those *over* from the next run's.

        Those *unmarked* may also be what a run makes of the state without markers. Locks and `.deleted` files are left
        out.
        """
        found = self.live_tree()
        wrong = []
        for log_dir in self.log_dirs:
            here = differences_below(self.expected, found, log_dir.name)
            if here and log_dir.name in over:
                here = differences_below(self.expected_again, found, log_dir.name)
            if here and log_dir.name in unmarked:
                here = differences_by_file(self.expected, self.expected_unmarked, found, log_dir.name)
            wrong += here
        return wrong

    def false_markers(self) -> list[str]:
        """Words for the markers that vouch for a log dir that is neither untouched nor done, or such a log."""
        found = self.live_tree()
        over = self.over()
        return [
            f"a marker vouches for {log_dir.name}, which is not done"
            for log_dir in self.log_dirs
            if (log_dir / MARKER).exists()
            and log_dir.name not in over
            and differences_below(self.untouched, found, log_dir.name)
            and differences_below(self.expected_again, found, log_dir.name)
            and (not self.state.is_clean or self._has_log_halfway(log_dir.name, found))
        ]

    def _has_log_halfway(self, log_dir: str, found: Mapping[str, bytes]) -> bool:
        """Whether a log of *log_dir* is neither untouched nor done.

        What a killed run had staged there is in no broker's way, and a log that is then refused keeps it.
        """
        found = {name: data for name, data in found.items() if not name.endswith(TEMPORARY_SUFFIX)}
        names = (name.split("/") for name in found.keys() | self.untouched.keys())
        places = {"/".join(parts[:2]) for parts in names if len(parts) > 2 and parts[0] == log_dir}
        ends = (self.untouched, self.expected, self.expected_again)
        return any(all(differences_below(end, found, place) for end in ends) for place in places)

    def lost(self) -> list[str]:
        """The batches that are neither live nor in quarantine."""
        return self.conservation.lost(self._logs(self._whole_tree()))

    def losses(self) -> list[str]:
        """Words for these batches, if any."""
        lost = self.lost()
        return [f"{len(lost)} batches are lost: {', '.join(lost[:3])}"] if lost else []

    def leftovers(self) -> list[str]:
        """What a run that has ended must not leave: its own files in the log dirs, a journal."""
        found = [name for log_dir in self.log_dirs for name in own_leftovers(log_dir)]
        left = [f"left behind: {name}" for name in found if name != INSIDE_FOLDER]
        places = [place for log_dir in self.log_dirs for place in quarantines_of(log_dir)]
        return left + [
            f"left behind: {path.name} in {place.name}"
            for place in places
            for path in place.glob("*")
            if not path.is_dir()
        ]

    def quarantine_problems(self) -> list[str]:
        """What is not in quarantine as the manifests say."""
        return [f"quarantine: {error}" for log_dir in self.log_dirs for error in quarantine_errors(log_dir)]

    def account_problems(self, runs: Iterable[Ended]) -> list[str]:
        """What is wrong with the account that *runs* have given: together they tell of what an undisturbed one cuts.

        A report that was told and not acknowledged is told again, but none counts anything twice.
        """
        told: dict[str, Cuts] = {}
        for ended in runs:
            try:
                for partition, cuts in told_cuts(json.loads(ended.stdout)).items():
                    told.setdefault(partition, {}).update(cuts)
            except ToldTwiceError as error:
                return [str(error)]
            except ValueError:
                continue  # killed before it said anything
        wanted = told_cuts(json.loads(self.undisturbed.stdout))
        return [
            f"{partition}: told of {_bytes_of(told, partition)} bytes, not of {_bytes_of(wanted, partition)}"
            for partition in sorted(told.keys() | wanted.keys())
            if _bytes_of(told, partition) != _bytes_of(wanted, partition)
        ]

    def end_problems(
        self,
        ended: Ended,
        over: Collection[str] = (),
        unmarked: Collection[str] = (),
        *,
        is_crash: bool = False,
    ) -> list[str]:
        """What is wrong at the end of a run that nothing disturbed, whatever befell the one before.

        Args:
            over, unmarked: see `differences`.
            is_crash: whether the disk crashed before: a line of the manifest may be there without its file, which
                is then still live.
        """
        if ended.exit_code not in (*CLEAN_CODES, self.undisturbed.exit_code):
            return [
                f"exit code {ended.exit_code}: {ended.stderr.strip()[-300:]} {ended.stdout.strip()[-300:]}"
            ]
        found = self.differences(over, unmarked)
        if found:
            return [f"not the same end: {'; '.join(found[:4])}"]
        return [*self.losses(), *self.leftovers(), *([] if is_crash else self.quarantine_problems())]

    def rerun_problems(
        self,
        over: Collection[str] = (),
        unmarked: Collection[str] = (),
        *,
        is_crash: bool = False,
        before: Sequence[Ended] | None = None,
    ) -> list[str]:
        """Run once more, undisturbed, and return what is wrong then.

        From a disk that is that of the start it is the run that was seen first.

        Args:
            before: the runs before; None: who was told of what is not looked at.
        """
        if self._whole_tree() == self._start:
            return []
        ended = self.run()
        problems = self.end_problems(ended, over, unmarked, is_crash=is_crash)
        return problems or ([] if before is None else self.account_problems((*before, ended)))

    def undo_problems(self) -> list[str]:
        """Let an `undo` end, recover once more; return what is wrong then."""
        _, problems = self._undo()
        wrong = differences(self.undone.tree, self.live_tree())
        problems += [f"undone: not as before: {words}" for words in wrong[:3]]
        problems += [f"undone: {words}" for words in (*self.losses(), *self.leftovers())]
        problems = problems or self.all_undone_problems()
        return problems or [f"recovered again: {words}" for words in self.rerun_problems()]

    def all_undone_problems(self) -> list[str]:
        """Take back one run after the other; return what is wrong with what is then there.

        Nothing is looked at where an undisturbed `undo` is refused.
        """
        if not self.undone.is_possible:
            return []
        for _ in range(_MOST_RUNS):
            undone, problems = self._undo()
            if problems:
                return problems
            if "nothing to take back" in undone.stdout:
                return [
                    f"all undone: {words}" for words in differences(self.undone.tree, self.live_tree())[:3]
                ]
        return [f"there is something to take back after {_MOST_RUNS} undos"]

    def _undo(self) -> tuple[Ended, list[str]]:
        """Let an `undo` end; return how, and what is wrong with that."""
        undone = self.run(command="undo")
        if undone.exit_code == 0:
            return undone, []
        return undone, [f"undone: exit code {undone.exit_code}: {undone.stderr.strip()[-300:]}"]

    # -- trees -----------------------------------------------------------------------------------------------

    def live_tree(self) -> dict[str, bytes]:
        """The log dirs on the bench, locks and `.deleted` files aside: these go at the next start."""
        if self._found is None:
            self._found = self._live(self._whole_tree())
        return self._found

    def changed(self) -> None:
        """Forget what was seen: somebody else was at work on the bench."""
        self._seen = self._found = None

    def _whole_tree(self) -> dict[str, bytes]:
        """All that is on the bench, read once after each change."""
        if self._seen is None:
            self._seen = tree_of(self.work)
        return self._seen

    def _live(self, tree: Mapping[str, bytes]) -> dict[str, bytes]:
        return {
            name: data
            for name, data in tree.items()
            if not name.endswith(".deleted") and self._is_brokers(name.split("/"))
        }

    def _is_brokers(self, parts: Sequence[str]) -> bool:
        """Whether a path below the bench, by its parts, is in a log dir and no lock, no ledger and no quarantine."""
        log_dirs = [log_dir.name for log_dir in self.log_dirs]
        return parts[0] in log_dirs and parts[1] not in ("", LOCK, INSIDE_FOLDER, CUT_LEDGER)

    def _logs(self, tree: Mapping[str, bytes]) -> dict[str, bytes]:
        """Every `.log` in any stage, quarantine included, by path; `.deleted` only in quarantine."""
        return {
            path: data
            for path, data in tree.items()
            if ".log" in path.rpartition("/")[2]
            and not (path.endswith(".deleted") and self._is_brokers(path.split("/")))
        }


class Conservation:
    """The valid batches of a state, found once: after each run all of them must still be somewhere."""

    def __init__(self, before: Mapping[str, bytes]) -> None:
        self._before = dict(before)
        self._batches = {path: list(valid_batches(data)) for path, data in before.items()}

    def lost(self, now: Mapping[str, bytes]) -> list[str]:
        """Where a valid batch stood that is in none of the files *now*."""
        lost = []
        for path, data in self._before.items():
            here = now.get(path, b"")
            if here == data:
                continue
            for position, batch in self._batches[path]:
                if here[position : position + len(batch)] != batch and not any(
                    batch in other for other in now.values()
                ):
                    lost.append(f"{path} at {position} ({len(batch)} bytes)")
        return lost


def _bytes_of(told: Mapping[str, Cuts], partition: str) -> int:
    return sum(size_bytes for _, _, size_bytes in told.get(partition, {}))


def differences_below(expected: Mapping[str, bytes], found: Mapping[str, bytes], place: str) -> list[str]:
    """The differences below *place*, `d1` or `d1/late-0`, or of a file by that name."""
    prefix = f"{place}/"

    def below(tree: Mapping[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in tree.items() if name.startswith(prefix) or name == place}

    return differences(below(expected), below(found))


def differences_by_file(
    clean: Mapping[str, bytes], unclean: Mapping[str, bytes], found: Mapping[str, bytes], place: str
) -> list[str]:
    """The files below *place* that differ both from those of a clean load and from those of an unclean one.

    What was done by the rules of a clean log dir is recovered from its new recovery point on, and no further.
    """
    files = {words.partition(": ")[0] for words in differences_below(clean, found, place)}
    return [words for words in differences_below(unclean, found, place) if words.partition(": ")[0] in files]


def quarantines_of(log_dir: Path) -> tuple[Path, Path]:
    """The two places where the quarantine of *log_dir* may be."""
    return quarantine_of(log_dir), log_dir / INSIDE_FOLDER


def quarantine_errors(log_dir: Path) -> list[str]:
    """What the manifests name and quarantine does not hold. What a kill or a crash has torn names nothing."""
    errors = []
    for manifest in sorted(
        found for place in quarantines_of(log_dir) for found in place.glob(f"*/{MANIFEST}")
    ):
        for line in manifest.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if "sha256" not in entry or entry["sha256"] is None:
                continue  # no line about a file, or about one that may be rebuilt
            stored = manifest.parent / entry["stored"]
            data = stored.read_bytes() if stored.is_file() else b""
            if not is_as_saved(entry, data):
                errors.append(
                    f"{entry['stored']}: {len(data)} bytes, the manifest says {entry['size_bytes']}"
                )
    return errors


def _errors(ended: Ended) -> str:
    return f" {ended.stdout[-300:]}" if not ended.stderr.strip() else ""
