"""Random sequences of all that is done to log dirs: recovered, killed, recovered otherwise, undone, purged, started.

    python -m tests.damage.sequences [--cases N] [--seed S] [--only SEED/NUMBER] [--folder DIR] [--places A,B]

Each case is a damaged state (`tests/faults/states.py`) in a place: in memory, with quarantine on another file system,
or on an overlay; `--folder` is a folder on any other file system. After every step what is live, in quarantine and
reported must add up to what there was:

* each valid batch is live or in quarantine, unless it was purged there, or a broker has cut it;
* a partition from which batches are gone has a heard report that says so: the exit code was 2 (or 4, where another
  partition was refused), and the sums of its cuts are those of an undisturbed run;
* `undo` leaves the tree that was there before the first run that it names, or nothing is touched and the code is 3;
* once a run has ended and was heard, the next one has nothing to tell.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from recovery.engine.report import CUT_LEDGER
from recovery.logdir.quarantine_place import INSIDE_FOLDER
from tests.brokers import Oracle
from tests.faults.fork_server import Ended, ForkServer
from tests.faults.shim import Action, Fault
from tests.faults.states import MADE_STATES, State, seeded_state
from tests.faults.told import ToldTwiceError, told_cuts
from tests.logs.samples import LOCK, SAMPLE_NAMES, Sample, differences, tree_of, unpack
from tests.runs.driving import own_leftovers, quarantine_of, valid_batches
from tests.servers.file_systems import overlay, tmpfs

PLACES = ("memory", "two file systems", "overlay")
_MOST_STEPS = 9
_LIVE_SUFFIXES = (".log", ".log.swap", ".log.cleaned")
Tree = dict[str, bytes]
Sums = tuple[int, int]
"""Bytes and batches."""


class OpenAccountError(Exception):
    """What must hold does not."""


@dataclass(slots=True, kw_only=True)
class _Moment:
    """How the log dirs were before a run, and what had been told of them."""

    tree: Tree
    told: dict[str, dict[tuple[str, int, int], int]]


@dataclass(slots=True)
class _Account:
    """What there was since the last broker, what an undisturbed run cuts of it, and what was told so far.

    Attributes:
        live: the valid batches that were live at its beginning, by partition (`d1/t-0`).
        expected: what an undisturbed run says that it cuts, by partition.
        dropped: what then is gone, also where a cleaner had the right to remove it.
        told: by partition, each cut once: file, position and bytes, and its batches.
        is_loadable: whether nothing is refused, with which a broker would not start.
        owed: partitions from which something was gone when a broker came, and nobody had been told.
    """

    live: dict[str, set[bytes]]
    expected: dict[str, Sums]
    dropped: dict[str, set[bytes]]
    is_loadable: bool
    told: dict[str, dict[tuple[str, int, int], int]] = field(default_factory=dict)
    owed: set[str] = field(default_factory=set)


class Case:
    """One sequence on one state.

    Args:
        root: where the log dirs d1, d2, .. are.
        elsewhere: a folder on another file system, for quarantine.
    """

    def __init__(
        self,
        rng: random.Random,
        server: ForkServer,
        oracle: Oracle,
        sample: Sample,
        state: State,
        root: Path,
        elsewhere: Path,
    ) -> None:
        self._rng = rng
        self._server = server
        self._oracle = oracle
        self._sample = sample
        self._state = state
        self._root = root
        self._elsewhere = elsewhere
        self._log_dirs = state.paths(root)
        self._moments: dict[str, _Moment] = {}
        self._must_stay = self._valid(self._everything())
        self._account = self._opened_account()
        self.steps: list[str] = []

    # -- steps ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Take the steps, then let runs end the story."""
        kinds: dict[str, Callable[[], None]] = {
            "recover": self._recover,
            "kill": self._kill,
            "undo": self._undo,
            "purge": self._purge,
            "broker": self._broker,
        }
        names = ["recover"] * 3 + ["kill"] * 4 + ["undo"] * 4 + ["purge"] + ["broker"]
        for _ in range(self._rng.randint(2, _MOST_STEPS)):
            kinds[self._rng.choice(names)]()
        self._finish()

    def _recover(self) -> None:
        options = self._options()
        moment = self._moment()
        ended = self._run("recover", *options)
        self._note_runs(moment)
        if ended.exit_code == 3:
            self._must_be_untouched(moment, "recover")
        elif ended.exit_code in (0, 2, 4):
            self._hear(ended)
            self._must_add_up()
        else:
            raise OpenAccountError(
                f"recover ended with {ended.exit_code}: {ended.stderr[-500:]} {ended.stdout[-500:]}"
            )

    def _kill(self) -> None:
        options = self._options()
        moment = self._moment()
        action = self._rng.choice((Action.KILL_BEFORE, Action.KILL_AFTER, Action.TEAR))
        at = self._rng.randint(1, self._rng.choice((60, 300, 900)))
        ended = self._run("recover", *options, fault=Fault(action=action, at=at))
        self.steps[-1] += f" killed at {ended.hit or 'nothing'}"
        self._note_runs(moment)
        if _has_report(ended) and (ended.is_killed or ended.exit_code in (0, 2, 4)):
            self._hear(ended)
            self._must_add_up()

    def _undo(self) -> None:
        moment = self._moment()
        options = self._rng.choice(((), ("--dry-run",), ("--run",)))
        if options == ("--run",):
            runs = sorted(self._moments)
            if not runs:
                return
            options = ("--run", self._rng.choice(runs).split("/")[1])
        place = self._places()
        ended = self._run("undo", *options, *place, "--format", "json")
        if ended.exit_code in (1, 3) or options == ("--dry-run",):
            self._must_be_untouched(moment, "undo")
            return
        if ended.exit_code != 0:
            raise OpenAccountError(f"undo ended with {ended.exit_code}: {ended.stderr[-500:]}")
        undone = [
            (Path(one["logDir"]).name, _run_key(Path(one["logDir"]).name, one["run"], bool(place)))
            for one in json.loads(ended.stdout)["logDirs"]
            if one["run"] is not None
        ]
        by_dir = dict(undone)  # the last one of each
        for _, run in undone:
            if run not in by_dir.values():
                self._moments.pop(run, None)
        for log_dir, run in by_dir.items():
            then = self._moments.pop(run, None)
            if then is None:
                continue
            wanted = _without_pending(self._below(self._live(then.tree), log_dir))
            found = _without_pending(self._below(self._live(tree_of(self._root)), log_dir))
            if wrong := differences(wanted, found):
                raise OpenAccountError(f"undo of {run} leaves: {'; '.join(wrong[:4])}")
            for partition in [one for one in self._account.told if one.startswith(f"{log_dir}/")]:
                del self._account.told[partition]
            for partition, told in then.told.items():
                if partition.startswith(f"{log_dir}/"):
                    self._account.told[partition] = dict(told)

    def _purge(self) -> None:
        moment = self._moment()
        ended = self._run("quarantine", "purge", "--all", *self._places())
        if ended.exit_code not in (0, 3, 4):
            raise OpenAccountError(f"purge ended with {ended.exit_code}: {ended.stderr[-500:]}")
        if ended.exit_code == 3:
            self._must_be_untouched(moment, "purge")
        if wrong := differences(self._live(moment.tree), self._live(tree_of(self._root))):
            raise OpenAccountError(f"purge has changed the log dirs: {'; '.join(wrong[:4])}")
        gone = set(self._runs_before) - set(self._runs())
        for run in gone:
            self._moments.pop(run, None)
        self._must_stay = self._valid(self._everything())

    def _broker(self) -> None:
        """A broker starts on what is there, and is stopped cleanly; what it cuts is its own."""
        if not (self._state.keeps_broker and self._account.is_loadable):
            return
        self.steps.append("broker")
        for partition, batches in self._gone().items():
            may_go = partition not in self._account.expected and batches <= self._account.dropped.get(
                partition, set()
            )
            if batches and not may_go and not self._is_told(partition):
                self._account.owed.add(partition)
        sample = self._sample
        outcome = self._oracle.load(
            self._log_dirs,
            now_ms=sample.now_ms,
            properties=sample.properties,
            topic_configs=sample.topic_configs,
        )
        if outcome.outcome != "loaded":
            raise OpenAccountError(f"the broker does not start: {outcome.outcome}: {outcome.error}")
        owed = self._account.owed
        self._moments.clear()
        self._must_stay = self._valid(self._everything())
        self._account = self._opened_account()
        self._account.owed = owed

    def _finish(self) -> None:
        """Let runs end, and be heard, until nothing is left to tell."""
        codes = []
        elsewhere = ("--quarantine-dir", str(self._elsewhere))
        # What was interrupted is forgotten in both places; a run that has taken a marker goes on where it was.
        restarts = (("--restart", *elsewhere), ("--restart",))
        for options in (self._places(), *restarts, elsewhere, (), self._places()):
            ended = self._run("recover", *options)
            codes.append(ended.exit_code)
            if ended.exit_code == 3:
                continue
            if ended.exit_code not in (0, 2, 4):
                raise OpenAccountError(f"recover ended with {ended.exit_code}: {ended.stderr[-500:]}")
            self._hear(ended)
            self._must_add_up()
        if self._account.owed:
            raise OpenAccountError(f"never told: {sorted(self._account.owed)}")
        if codes[-1] not in (0, 4) or any(told_cuts(json.loads(ended.stdout)).values()):
            raise OpenAccountError(
                f"there is still something to tell: {codes}, {ended.stderr} {ended.stdout[-500:]}"
            )
        for log_dir in self._log_dirs:
            if left := [name for name in own_leftovers(log_dir) if name != INSIDE_FOLDER]:
                raise OpenAccountError(f"left behind: {left}")

    # -- runs -------------------------------------------------------------------------------------------------

    def _options(self) -> list[str]:
        rng, options = self._rng, self._places()
        for option, odds in (
            ("--restart", 0.2),
            ("--force", 0.1),
            ("--keep-deleted", 0.15),
            ("--repair", 0.1),
        ):
            if rng.random() < odds:
                options.append(option)
        if rng.random() < 0.2:
            options += ["--handoff", rng.choice(("recovery-point", "none"))]
        return options

    def _places(self) -> list[str]:
        return ["--quarantine-dir", str(self._elsewhere)] if self._rng.random() < 0.3 else []

    def _run(self, *words: str, fault: Fault | None = None) -> Ended:
        self._runs_before = self._runs()
        self.steps.append(" ".join(words))
        ended = self._server.run(self._arguments(*words, log_dirs=self._log_dirs), self._root, fault)
        if "Traceback" in ended.stderr or "Traceback" in ended.stdout:
            raise OpenAccountError(f"a traceback: {ended.stderr[-1500:]}")
        if words[0] == "undo":  # pending deletions that were kept are pending again
            self._must_stay -= self._valid(self._everything(), may_be_pending=True) - self._valid(
                self._everything()
            )
        if words[:2] != ("quarantine", "purge"):
            self._must_conserve()
        return ended

    def _arguments(self, *words: str, log_dirs: Sequence[Path]) -> list[str]:
        sample = self._sample
        count = 2 if words[0] == "quarantine" else 1
        dirs = ["-c", str(sample.config), "--log-dirs", ",".join(map(str, log_dirs))]
        arguments = [*words[:count], *dirs, *words[count:]]
        if words[0] == "recover":
            arguments += [
                "--topic-config",
                str(sample.root / "topic-configs.json"),
                "--now",
                str(sample.now_ms),
            ]
            arguments += ["--threads", "1", "--format", "json", "--progress", "none"]
        return arguments

    def _note_runs(self, moment: _Moment) -> None:
        for run in self._runs():
            if run not in self._runs_before:
                self._moments[run] = moment

    def _runs(self) -> list[str]:
        """The runs in quarantine; of those elsewhere the log dir is the last word of the folder's name."""
        found = []
        for log_dir in self._log_dirs:
            places = [
                quarantine_of(log_dir),
                log_dir / INSIDE_FOLDER,
                *self._elsewhere.glob(f"*%2F{log_dir.name}"),
            ]
            for place in places:
                found += [f"{log_dir.name}/{run.name}" for run in place.glob("*T*Z*") if run.is_dir()]
        return found

    def _moment(self) -> _Moment:
        told = {partition: dict(cuts) for partition, cuts in self._account.told.items()}
        return _Moment(tree=tree_of(self._root), told=told)

    # -- what must hold ---------------------------------------------------------------------------------------

    def _opened_account(self) -> _Account:
        """Begin to count from what is there now; an undisturbed run on a copy shows what becomes of it."""
        live = self._live_batches(tree_of(self._root))
        copy = self._elsewhere.with_name("copy")
        shutil.copytree(self._root, copy, symlinks=True)
        log_dirs = [copy / one.name for one in self._log_dirs]
        for log_dir in log_dirs:
            (log_dir / CUT_LEDGER).unlink(missing_ok=True)
        ended = self._server.run(self._arguments("recover", "--restart", log_dirs=log_dirs), copy)
        if "taken the clean-shutdown marker away" in ended.stderr:
            ended = self._server.run(self._arguments("recover", log_dirs=log_dirs), copy)
        expected: dict[str, Sums] = {}
        dropped: dict[str, set[bytes]] = {}
        if ended.exit_code in (0, 2, 4):
            expected = {
                partition: _sums(cuts) for partition, cuts in told_cuts(json.loads(ended.stdout)).items()
            }
            left = self._live_batches(tree_of(copy))
            dropped = {partition: batches - left.get(partition, set()) for partition, batches in live.items()}
        shutil.rmtree(copy)
        return _Account(live=live, expected=expected, dropped=dropped, is_loadable=ended.exit_code in (0, 2))

    def _hear(self, ended: Ended) -> None:
        document = json.loads(ended.stdout)
        cuts = told_cuts(json.loads(ended.stdout))
        if any(cuts.values()) and document["exitCode"] not in (2, 4):
            raise OpenAccountError(f"exit code {document['exitCode']}, and {cuts}")
        if document["exitCode"] == 2 and not any(cuts.values()) and '"holes": [' not in ended.stdout:
            raise OpenAccountError("exit code 2, and nothing is told")
        for partition, told in cuts.items():
            self._account.owed.discard(partition)
            self._account.told.setdefault(partition, {}).update(told)

    def _must_add_up(self) -> None:
        """Behind a run that has ended and was heard."""
        for partition, batches in self._gone().items():
            if not batches or partition in self._account.owed:
                continue
            told, expected = self._account.told.get(partition), self._account.expected.get(partition)
            is_as_undisturbed = batches <= self._account.dropped.get(partition, set())
            if told is None:
                if is_as_undisturbed and expected is None:
                    continue  # a cleaner had the right to remove them
                raise OpenAccountError(f"{partition}: {len(batches)} batches are gone, and nobody was told")
            if expected is None:
                continue
            if batches == self._account.dropped.get(partition) and _sums(told) != expected:
                raise OpenAccountError(
                    f"{partition}: told of {_sums(told)}, and it is {expected} that is gone"
                )
            # By bytes: behind a damaged header nobody can count batches.
            gone_bytes, told_bytes = sum(map(len, batches)), _sums(told)[0]
            if told_bytes > max(expected[0], gone_bytes) or told_bytes < (
                expected[0] if is_as_undisturbed else gone_bytes
            ):
                raise OpenAccountError(
                    f"{partition}: {gone_bytes} bytes of batches are gone, told of {told_bytes}, undisturbed {expected}"
                )

    def _is_told(self, partition: str) -> bool:
        return bool(self._account.told.get(partition))

    def _gone(self) -> dict[str, set[bytes]]:
        now = self._live_batches(tree_of(self._root))
        return {partition: live - now.get(partition, set()) for partition, live in self._account.live.items()}

    def _must_conserve(self) -> None:
        lost = self._must_stay - self._valid(self._everything())
        if lost:
            raise OpenAccountError(f"{len(lost)} batches are neither live nor in quarantine")

    def _must_be_untouched(self, moment: _Moment, what: str) -> None:
        if wrong := differences(self._live(moment.tree), self._live(tree_of(self._root))):
            raise OpenAccountError(f"{what} refused, and changed: {'; '.join(wrong[:4])}")

    def _everything(self) -> list[Tree]:
        return [tree_of(self._root), tree_of(self._elsewhere)]

    def _valid(self, trees: Sequence[Tree], *, may_be_pending: bool = False) -> set[bytes]:
        """The valid batches that are live, or in quarantine."""
        return {
            batch
            for tree in trees
            for path, data in tree.items()
            if ".log" in path.rpartition("/")[2]
            and (may_be_pending or not (path.endswith(".deleted") and self._is_in_log(path)))
            for _, batch in valid_batches(data)
        }

    def _live_batches(self, tree: Mapping[str, bytes]) -> dict[str, set[bytes]]:
        found: dict[str, set[bytes]] = {}
        for path, data in tree.items():
            if path.endswith(_LIVE_SUFFIXES) and self._is_in_log(path):
                found.setdefault(path.rpartition("/")[0], set()).update(
                    batch for _, batch in valid_batches(data)
                )
        return found

    def _is_in_log(self, path: str) -> bool:
        parts = path.split("/")
        return parts[0] in {one.name for one in self._log_dirs} and INSIDE_FOLDER not in parts

    def _live(self, tree: Mapping[str, bytes]) -> Tree:
        return {
            path: data
            for path, data in tree.items()
            if self._is_in_log(path) and path.split("/")[1] not in ("", LOCK, CUT_LEDGER)
        }

    @staticmethod
    def _below(tree: Mapping[str, bytes], log_dir: str) -> Tree:
        return {path: data for path, data in tree.items() if path.startswith(f"{log_dir}/")}


def _run_key(log_dir: str, run: str, is_elsewhere: bool) -> str:
    """What a run is known by: two in two places may have begun in the same second."""
    return f"{log_dir}/{run}/{'elsewhere' if is_elsewhere else 'here'}"


def _has_report(ended: Ended) -> bool:
    """Whether a whole report was printed; a run may be killed behind that, too, when it has forgotten what it told."""
    return ended.stdout.endswith("}\n")


def _without_pending(tree: Mapping[str, bytes]) -> Tree:
    return {path: data for path, data in tree.items() if not path.endswith((".deleted", ".recovery-tmp"))}


def _sums(cuts: Mapping[tuple[str, int, int], int]) -> Sums:
    return sum(size for _, _, size in cuts), sum(cuts.values())


# -- the campaign ---------------------------------------------------------------------------------------------


class Campaign:
    """Cases by seed; a context manager.

    Args:
        root: for what a campaign needs itself.
        folder: where the cases are made.
        places: which of `PLACES`, in turn.
    """

    def __init__(self, root: Path, folder: Path | None = None, places: Sequence[str] = PLACES) -> None:
        self._root = root
        self._folder = root if folder is None else folder
        self._places = places
        self._stack = ExitStack()
        self._samples = {name: unpack(name, root / "samples") for name in SAMPLE_NAMES}

    def __enter__(self) -> Campaign:
        self._server = self._stack.enter_context(ForkServer(self._root / "control"))
        self._oracle = self._stack.enter_context(Oracle())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, seed: int, number: int) -> str | None:
        """Run a case; return what is wrong, with its steps, None where nothing is."""
        rng = random.Random(f"sequence {seed}/{number}")
        place = self._places[number % len(self._places)]
        state = rng.choice([*MADE_STATES.values(), seeded_state(seed, number), seeded_state(seed, number)])
        work = self._folder / "case"
        with _placed(place, state, self._samples, work) as (root, elsewhere):
            case = Case(rng, self._server, self._oracle, self._samples[state.sample], state, root, elsewhere)
            try:
                case.run()
            except (OpenAccountError, ToldTwiceError) as error:
                return f"{seed}/{number}, {state.name}, {place}: {error}\n    " + "\n    ".join(case.steps)
        return None


@contextmanager
def _placed(
    place: str, state: State, samples: Mapping[str, Sample], work: Path
) -> Iterator[tuple[Path, Path]]:
    shutil.rmtree(work, ignore_errors=True)
    root, elsewhere = work / "root", work / "elsewhere"
    root.mkdir(parents=True)
    with ExitStack() as stack:
        if place == "two file systems":
            stack.enter_context(tmpfs(elsewhere))
        else:
            elsewhere.mkdir()
        state.make(samples, root)
        if place == "overlay":
            root = stack.enter_context(overlay(work / "overlay", root))
        yield root, elsewhere
    shutil.rmtree(work)


def main(arguments: Sequence[str]) -> int:
    """Run the campaign; the exit code is 1 where anything is open."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.damage.sequences", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="SEED/NUMBER")
    parser.add_argument(
        "--folder", metavar="DIR", help="where the log dirs are made; memory, if nothing is said"
    )
    parser.add_argument("--places", metavar="A,B", default=",".join(PLACES), help="of: %(default)s")
    options = parser.parse_args(arguments)
    cases = [(options.seed, number) for number in range(options.cases)]
    if options.only:
        seed, _, number = options.only.partition("/")
        cases = [(int(seed), int(number))]
    open_count = 0
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with (
        tempfile.TemporaryDirectory(dir=memory, prefix="sequences-") as root,
        tempfile.TemporaryDirectory(dir=options.folder or memory, prefix="sequences-") as folder,
        Campaign(Path(root), Path(folder), options.places.split(",")) as campaign,
    ):
        for seed, number in cases:
            if problem := campaign.run(seed, number):
                open_count += 1
                print(problem, flush=True)
    print(f"{len(cases)} sequences, {open_count} open")
    return int(bool(open_count))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
