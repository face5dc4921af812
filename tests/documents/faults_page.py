"""`docs/operate/faults.md`, written by causing each fault and running what an operator would type.

python -m tests.documents.faults_page    writes the page anew (as root: it mounts file systems)
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests import ROOT
from tests.logs.samples import unpack
from tests.patience import LONGEST_WAIT_SECONDS
from tests.recovery.cli.test_owners import GROUP, OWNER, give_away
from tests.recovery.cli.test_thread_limits import LIMITED
from tests.runs.command import RECOVERY
from tests.servers.file_systems import read_only, tmpfs

PAGE = ROOT / "docs" / "operate" / "faults.md"
_KAFKA_LOG_RECOVERY = "kafka-log-recovery"
_FOLDERS = ("codec-none-0", "late-0", "__cluster_metadata-0")
_MIDDLE = f"{35:020}.log"
_COLUMNS = 160
INTRODUCTION = "# Ten faults, and what to type\n\n" + textwrap.fill(
    "What was wrong in a log dir with the logs `codec-none-0` and `late-0`, what the tool said, what to type next. "
    "`-n` added to any `recover` shows the same and changes nothing. From the second fault on `...` stands for lines "
    "as in the first.\n",
    _COLUMNS,
)
_AS_IN_THE_FIRST = re.compile(
    r"CUT | {4}0| {4}kept in /data/|1 recovered .*, 1 cut,|cut: |/data/kafka: a broker will skip|"
    r"(done|planned) for a broker of |what was cut or replaced is kept; .* undo --log-dirs /data/kafka$"
)


@dataclass(slots=True, kw_only=True)
class Machine:
    """The machine of an operator, below a folder: /data/kafka, /etc/kafka, /spare."""

    root: Path
    log_dir: Path = field(init=False)
    config: Path = field(init=False)
    ours: Sequence[str] = RECOVERY

    def __post_init__(self) -> None:
        self.log_dir = self.root / "data" / "kafka"
        sample = unpack("crashed", self.root / "unpacked")
        self.log_dir.mkdir(parents=True)
        self.fill(sample.root / "d1")
        shutil.rmtree(self.root / "unpacked")
        self.config = self.root / "etc" / "kafka" / "server.properties"
        self.config.parent.mkdir(parents=True)
        self.config.write_text(f"node.id=1\nlog.dirs={self.log_dir}\n")
        (self.root / "spare").mkdir()
        (self.root / "backup").mkdir()

    def fill(self, sample: Path) -> None:
        """Put the logs of a crashed broker into the log dir, none of them flushed."""
        for folder in _FOLDERS:
            shutil.copytree(sample / folder, self.log_dir / folder)
        shutil.copy(sample / "meta.properties", self.log_dir)
        (self.log_dir / "recovery-point-offset-checkpoint").write_text("0\n2\ncodec-none 0 0\nlate 0 0\n")
        (self.log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")

    @property
    def first_log(self) -> Path:
        """The first segment of late-0."""
        return self.log_dir / "late-0" / f"{0:020}.log"

    def typed(self, command: str) -> Iterator[str]:
        """Yield *command* and what it prints, as on a terminal, with its exit code."""
        yield f"$ {command}"
        words = [self._real(word) for word in shlex.split(command)]
        is_ours = words[0] == _KAFKA_LOG_RECOVERY
        done = subprocess.run(
            [*self.ours, *words[1:], *(() if words[1] == "undo" else ("--progress", "none"))]
            if is_ours
            else words,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=not is_ours,
            timeout=LONGEST_WAIT_SECONDS,
        )
        yield from self.shown(done.stdout)
        if is_ours:
            yield f"exit code {done.returncode}"

    def shown(self, text: str) -> list[str]:
        """Return the lines of *text* with the paths of this machine, and without what differs from run to run."""
        text = text.replace(str(self.root)[1:].replace("/", "%2F") + "%2F", "")
        text = re.sub(r"\d{8}T\d{6}Z", "20261121T141906Z", text.replace(str(self.root), ""))
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-11-21T14:19:06Z", text)
        text = re.sub(r"[\d.]+ [GT]iB are free", "8.0 GiB are free", text)
        return re.sub(r"\d+\.\d s\b", "0.1 s", text).splitlines()

    def _real(self, word: str) -> str:
        option, equals, value = word.rpartition("=")
        return f"{option}{equals}{self.root}{value}" if value.startswith("/") else word


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        title: in a word or two.
        cause: brings it about, for as long as the first commands run.
        first: commands with which the operator meets it.
        advice: what the words mean, and what comes next.
        then: the commands that help.
        lasts: whether the cause is still there when these are typed.
    """

    title: str
    cause: Callable[[Machine], AbstractContextManager[Iterable[str] | None]]
    first: tuple[str, ...]
    advice: str
    then: tuple[str, ...]
    lasts: bool = False

    def text(self) -> str:
        """Return its part of the page."""
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            os.chmod(folder, 0o755)
            machine = Machine(root=Path(folder))
            with ExitStack() as stack:
                before = stack.enter_context(self.cause(machine)) or ()
                first = [*before, *(line for command in self.first for line in machine.typed(command))]
                if not self.lasts:
                    stack.close()
                then = [line for command in self.then for line in machine.typed(command)]
        if self is not FAULTS[0]:
            first, then = _without_known_lines(first), _without_known_lines(then)
        blocks = [_block(first), textwrap.fill(self.advice, _COLUMNS), _block(then)]
        return f"## {self.title}\n\n" + "\n\n".join(blocks) + "\n"


def page() -> str:
    """Return the whole page."""
    return "\n".join((f"{INTRODUCTION}\n", *(fault.text() for fault in FAULTS)))


def _without_known_lines(lines: list[str]) -> list[str]:
    """Return *lines* with `...` in place of those that are as in the first fault."""
    shown = ["..." if _AS_IN_THE_FIRST.match(line) else line for line in lines]
    return [
        line for line, before in zip(shown, ["", *shown], strict=False) if line != "..." or before != "..."
    ]


def _block(lines: list[str]) -> str:
    return "\n".join(("```text", *lines, "```"))


# -- the causes ----------------------------------------------------------------------------------------------------


def _flip_a_byte(machine: Machine) -> AbstractContextManager[Iterable[str] | None]:
    data = bytearray(machine.first_log.read_bytes())
    data[len(data) * 2 // 3] ^= 1
    machine.first_log.write_bytes(data)
    return nullcontext()


def _lose_a_segment(machine: Machine) -> AbstractContextManager[Iterable[str] | None]:
    (machine.log_dir / "late-0" / _MIDDLE).rename(machine.root / "backup" / _MIDDLE)
    return nullcontext()


_ROOM_BYTES = 26 << 12


@contextmanager
def _fill_the_disk(machine: Machine) -> Iterator[None]:
    """Leave room for the indexes, and none for what is cut."""
    _flip_a_byte(machine)
    kept = machine.log_dir.with_name("kept")
    machine.log_dir.rename(kept)
    with tmpfs(machine.log_dir, size="32m") as disk:
        shutil.copytree(kept, disk, dirs_exist_ok=True)
        room = os.statvfs(disk)
        (machine.log_dir / ".filler").write_bytes(bytes(room.f_bavail * room.f_frsize - _ROOM_BYTES))
        yield
    shutil.rmtree(kept)


def _add_a_folder(machine: Machine) -> AbstractContextManager[Iterable[str] | None]:
    (machine.log_dir / "backup").mkdir()
    return nullcontext()


def _give_to_root(machine: Machine) -> AbstractContextManager[Iterable[str] | None]:
    give_away(machine.root, OWNER, GROUP)
    os.chown(machine.first_log, 0, 0)
    machine.first_log.chmod(0o600)
    return nullcontext()


@contextmanager
def _mount_read_only(machine: Machine) -> Iterator[None]:
    with read_only(machine.log_dir):
        yield


@contextmanager
def _hold_the_lock(machine: Machine) -> Iterator[None]:
    """As a broker does: a lock of a file belongs to a process, so another one has it."""
    held, hold = os.pipe()
    holder = os.fork()
    if holder == 0:
        fcntl.lockf(os.open(machine.log_dir / ".lock", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
        os.write(hold, b".")
        signal.pause()
    os.read(held, 1)
    try:
        yield
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        os.close(held)
        os.close(hold)


@contextmanager
def _allow_one_thread(machine: Machine) -> Iterator[None]:
    give_away(machine.root, OWNER, GROUP)
    for folder in (machine.root, *machine.root.rglob("*")):
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    log_dir = str(machine.log_dir)
    machine.ours = (sys.executable, "-c", LIMITED, log_dir, log_dir, "1")
    yield
    machine.ours = RECOVERY


_KILLED_RUN = """
import os, signal, sys
import recovery.cli.main
rename, name = os.rename, sys.argv.pop(1)

def rename_and_die(source, *arguments, **options):
    rename(source, *arguments, **options)
    if str(source).endswith(name):
        os.kill(os.getpid(), signal.SIGKILL)

os.rename = rename_and_die
recovery.cli.main.main(sys.argv[1:])
"""


@contextmanager
def _kill_a_run(machine: Machine) -> Iterator[Iterable[str]]:
    """Kill a slow recovery when it has cut the first log; it looked like this on the terminal."""
    _flip_a_byte(machine)
    arguments = ("recover", "-c", str(machine.config), "--progress", "none")
    subprocess.run([sys.executable, "-c", _KILLED_RUN, _MIDDLE, *arguments], cwd=ROOT, check=False)
    yield f"$ {_RECOVER}", "Killed", "exit code 137"


_RECOVER = "kafka-log-recovery recover -c /etc/kafka/server.properties"

FAULTS = (
    Fault(
        title="A flipped byte",
        cause=_flip_a_byte,
        first=(_RECOVER,),
        advice=(
            "A broker would have cut the same batches, and deleted them. If another replica has these "
            "offsets and leads, start the broker: it fetches them again. Where all brokers are down, start those "
            "with whole replicas first: as leader this one would make them cut theirs. If none has them, they are "
            "in quarantine. To take everything back:"
        ),
        then=("kafka-log-recovery undo -c /etc/kafka/server.properties",),
    ),
    Fault(
        title="A segment in the middle is gone",
        cause=_lose_a_segment,
        first=(_RECOVER,),
        advice=(
            "Nothing was cut: the offsets were gone before. A broker would not mention them. Where the missing segment "
            "lies before the recovery point, which is not read, only `verify` reports it. If you have the file, put it "
            "back and recover with `--force`, because the log dir has a marker now."
        ),
        then=(
            f"cp /backup/{_MIDDLE} /data/kafka/late-0/",
            f"{_RECOVER} --force",
        ),
    ),
    Fault(
        title="A full disk",
        cause=_fill_the_disk,
        first=(_RECOVER,),
        advice="Nothing was touched. Make room, or put quarantine on another disk:",
        then=(f"{_RECOVER} --quarantine-dir /spare",),
        lasts=True,
    ),
    Fault(
        title="A foreign folder",
        cause=_add_a_folder,
        first=(_RECOVER,),
        advice=(
            "The logs are recovered; the log dir gets no marker while the folder is there. Move it away, or "
            "have it moved to quarantine:"
        ),
        then=(f"{_RECOVER} --repair",),
    ),
    Fault(
        title="A file of another owner",
        cause=_give_to_root,
        first=(_RECOVER,),
        advice="The broker, which runs as the owner of the log dir, could not open this file. Give it back:",
        then=(
            f"chown {OWNER}:{GROUP} /data/kafka/late-0/{0:020}.log",
            _RECOVER,
        ),
    ),
    Fault(
        title="A file system that is mounted read-only",
        cause=_mount_read_only,
        first=(_RECOVER, f"{_RECOVER} -n"),
        advice="The dry run shows that the data can be read. Once the disk is mounted read-write again:",
        then=(_RECOVER,),
    ),
    Fault(
        title="A broker that runs",
        cause=_hold_the_lock,
        first=(_RECOVER,),
        advice="Stop the broker, or find out who has the lock (`lslocks`). Then:",
        then=(_RECOVER,),
    ),
    Fault(
        title="A misspelled topic",
        cause=lambda _: nullcontext(),
        first=(f"{_RECOVER} --topic lat",),
        advice=(
            "Correct the name. A run with `--topic` ends with 4, as the log dir gets no marker before the same "
            "command without it has done the rest."
        ),
        then=(f"{_RECOVER} --topic late",),
    ),
    Fault(
        title="A system that allows no more threads",
        cause=_allow_one_thread,
        first=(f"{_RECOVER} --threads 8",),
        advice=(
            "Nothing is missing. For more threads: `TasksMax=` of the systemd unit, the container's limit of "
            "pids, `ulimit -u`."
        ),
        then=(f"{_RECOVER} --threads 8",),
    ),
    Fault(
        title="A run that was killed",
        cause=_kill_a_run,
        first=(),
        advice=(
            "The same command resumes, and reports what the killed run cut. Segments of 1 MiB and more that "
            "were finished are not read again, smaller ones are. A broker started in between does no harm, unless the "
            "log dir was clean before: then its marker is gone until this is finished."
        ),
        then=(_RECOVER,),
    ),
)


if __name__ == "__main__":
    PAGE.write_text(page())
