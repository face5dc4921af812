"""A machine with a systemd of its own: this machine's root file system under an overlay, booted by systemd-nspawn.

    with Systemd(folder, {"/opt/source": ROOT}) as machine:
        machine.run("systemctl", "start", "kafka")

Only what basic.target wants is started. What it writes is in *folder*, and gone with it; it has loopback alone.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.patience import LONGEST_WAIT_SECONDS, wait_until
from tests.servers.file_systems import mounting

PROGRAM = "systemd-nspawn"


class Systemd:
    """The machine, until the end of the context.

    Args:
        folder: on a file system that can be the upper layer of an overlay (a tmpfs, say).
        binds: folders of this machine by their names in that one, read-only there.
    """

    def __init__(self, folder: Path, binds: Mapping[str, Path]) -> None:
        self._folder = folder
        self._binds = binds
        self.root = folder / "root"
        self._leader = 0

    def __enter__(self) -> Systemd:
        with ExitStack() as stack:
            for name in ("upper", "work", "root"):
                (self._folder / name).mkdir()
            options = f"lowerdir=/,upperdir={self._folder / 'upper'},workdir={self._folder / 'work'}"
            stack.enter_context(mounting(self.root, "overlay", options))
            stack.callback(self._power_off)
            self._boot()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run *command* there, as root."""
        enter = ("nsenter", "-t", str(self._leader), "--all", "--wd=/")
        done = subprocess.run(
            [*enter, *command], capture_output=True, text=True, check=False, timeout=LONGEST_WAIT_SECONDS
        )
        assert done.returncode == 0 or not check, (command, done.stdout[-3000:], done.stderr[-3000:])
        return done

    def journal(self, unit: str) -> str:
        """What *unit* and systemd have said of it since the boot."""
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", unit).stdout

    def state(self, unit: str, name: str = "ActiveState") -> str:
        """A property of *unit*."""
        return self.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()

    def wait_for(self, unit: str, *, text: str = "", state: str = "") -> None:
        """Wait until the journal of *unit* holds *text*, and it is in *state*."""
        wait_until(
            lambda: text in self.journal(unit) and (not state or self.state(unit) == state),
            lambda: (unit, text, self.state(unit), self.journal(unit)[-5000:]),
            pause_seconds=0.2,
        )

    def _boot(self) -> None:
        command = [PROGRAM, "--directory", str(self.root), "--boot", "--register=no", "--keep-unit"]
        command += ["--private-network", "--link-journal=no", "--console=pipe"]
        command += [f"--bind-ro={folder}:{name}" for name, folder in self._binds.items()]
        with (self._folder / "console.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "systemd.unit=basic.target"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until_s = time.monotonic() + LONGEST_WAIT_SECONDS
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while True:
            assert self._process.poll() is None, self._console()
            assert time.monotonic() < until_s, self._console()
            self._leader = int((children.read_text().split() or ["0"])[0])
            ready = self._leader and self.run("systemctl", "is-active", "basic.target", check=False).stdout
            if ready == "active\n":
                return
            time.sleep(0.2)

    def _power_off(self) -> None:
        self._process.terminate()  # an orderly end
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _console(self) -> str:
        return (self._folder / "console.log").read_text(errors="replace")
