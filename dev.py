#!/usr/bin/env python3
"""Make this project's environment, then run the demonstration or the tests in it.

    python3 dev.py demo            recover a copy of sample_logs, and logs of 2 GiB that are made for it
    python3 dev.py test            run all tests; further arguments go to pytest
    python3 dev.py test --quick    those that need no JVM, no server and no package index: the gate for a change
    python3 dev.py check           ruff, mypy and the import contracts
    python3 dev.py docs            build the site of the documents into build/site; a dead link or anchor is an error
    python3 dev.py release         build wheel, sources and site from the last commit into dist; --tag vX.Y.Z
    python3 dev.py run ...         kafka-log-recovery with these arguments
    python3 dev.py clean           remove what all of these have made: environments, caches, build and dist

Needs Python 3.11 or newer, and for the suites that compare with the real Kafka Java 17 and Maven. The environment is
`.venv`, made again when pyproject.toml changes: 330 MB, and 1.3 GB once `test` or `check` add their tools. That of
`docs` is `.venv-docs`, that of `release` `.venv-release`, made from requirements.txt in docs and in deploy. Compiled
kernels and Kafka's jars go into the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / "made-from"
MADE_FOR_DEVELOPERS = "made-for-developers"
"""The stamp of an environment with all that tests and checks need."""
RELEASE_ENVIRONMENT = ROOT / ".venv-release"
SITE_ENVIRONMENT = ROOT / ".venv-docs"  # apart, so that neither demo nor tests wait for it
MADE_HERE = (
    *(".venv", ".venv-docs", ".venv-release", "build", "dist", "kafka_log_recovery.egg-info"),
    *(".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
)
ALONE = ("check", "docs", "clean")  # what takes no arguments
OWN_PROCESS = ("-n", "--numprocesses", "--dist", "--pdb", "--trace", "-s", "--capture")  # options of pytest


def main(arguments: list[str]) -> int:
    """Run one of the commands above and return its exit code."""
    commands = {
        "demo": demo,
        "test": test,
        "check": check,
        "docs": docs,
        "release": release,
        "run": run,
        "clean": clean,
    }
    if sys.version_info < (3, 11):  # noqa: UP036 - this is the file that tells
        print(f"dev.py: Python 3.11 or newer is needed, this is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    if arguments[:1] in (["-h"], ["--help"], ["help"]):
        print(__doc__)
        return 0
    if not arguments or arguments[0] not in commands:
        print(__doc__, file=sys.stderr)
        if arguments:
            print(f"dev.py: {arguments[0]}: not one of {', '.join(commands)}", file=sys.stderr)
        return 1
    if arguments[0] in ALONE and arguments[1:]:
        if arguments[1] in ("-h", "--help"):
            print(f"{arguments[0]}: {commands[arguments[0]].__doc__}")
            return 0
        print(f"dev.py: {arguments[0]} takes no arguments: {' '.join(arguments[1:])}", file=sys.stderr)
        return 1
    if arguments[0] not in ("docs", "release", "clean") and not make_environment(
        for_developers=arguments[0] in ("test", "check")
    ):
        return 1
    return commands[arguments[0]](arguments[1:])


def demo(arguments: list[str]) -> int:
    """Recover the logs of a killed broker, then some that are large enough to watch."""
    return python("-m", "benchmarks.demonstration", *arguments).returncode


def test(arguments: list[str]) -> int:
    """Run the tests; what this machine lacks is said first, and what needs it is skipped, with the reason."""
    # The tests start thousands of processes: without byte code each of them would compile every module once more.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    python("-m", "tests.servers.machine")
    if "--quick" not in arguments:
        print(
            f"What these tests need beside this is downloaded once, for all of them about 1 GB, into {cache()} and the "
            "caches of Maven, Go and pip. All of them take an hour of one processor.",
            file=sys.stderr,
            flush=True,
        )
    return python("-m", "pytest", *workers(arguments), *arguments).returncode


def workers(arguments: list[str]) -> list[str]:
    """Return pytest's options for suites side by side, unless *arguments* say how many, or want the terminal."""
    if "no:xdist" in " ".join(arguments) or any(argument.startswith(OWN_PROCESS) for argument in arguments):
        return []
    # One more than there are CPUs, as much of a test is waiting; not many, as each has a JVM, and brokers.
    return ["-n", str(min((os.cpu_count() or 1) + 1, 5)), "--dist", "worksteal"]


def check(_arguments: list[str]) -> int:
    """Run what CI runs beside the tests."""
    commands = (
        ("-m", "ruff", "check"),
        ("-m", "ruff", "format", "--check"),
        ("-m", "mypy"),
        (
            "-c",
            "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())",
        ),
    )
    return max([python(*command).returncode for command in commands])


def docs(_arguments: list[str]) -> int:
    """Build the site of the documents; what leads nowhere in them is an error."""
    if not required(ROOT / "docs" / "requirements.txt", SITE_ENVIRONMENT):
        return 1
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # an advertisement of the theme
    return python("-m", "mkdocs", "build", "--strict", environment=SITE_ENVIRONMENT).returncode


def release(arguments: list[str]) -> int:
    """Build what a release consists of; nothing is published."""
    if not required(ROOT / "deploy" / "requirements.txt", RELEASE_ENVIRONMENT):
        return 1
    return python("-m", "deploy.release", *arguments, environment=RELEASE_ENVIRONMENT).returncode


def run(arguments: list[str]) -> int:
    """Run the command line from this checkout."""
    return python("-m", "recovery", *arguments).returncode


def clean(_arguments: list[str]) -> int:
    """Remove what the other commands have made, here and in the user's cache; Maven's, Go's and pip's caches stay."""
    for place in (*(ROOT / name for name in MADE_HERE), *ROOT.rglob("__pycache__"), cache()):
        if place.is_dir() and not place.is_symlink():
            print(f"removing {place}", flush=True)
            shutil.rmtree(place)
    return 0


def cache() -> Path:
    """Return where tests keep what they download and build, and every run its kernels."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-log-recovery"


def make_environment(*, for_developers: bool) -> bool:
    """Create `.venv` and install the project, and if need be its developers' tools, unless that is done already."""
    source, more = ROOT / "pyproject.toml", ENVIRONMENT / MADE_FOR_DEVELOPERS
    if for_developers:
        return environment_made(ENVIRONMENT, more, source, ("-e", ".[dev]"), is_kept=True)
    is_more = more.exists() and more.read_text() == made_from(source)
    return is_more or environment_made(ENVIRONMENT, STAMP, source, ("-e", "."))


def required(requirements: Path, place: Path) -> bool:
    """Create the environment *place* with what *requirements* lists, unless that is done already."""
    return environment_made(place, place / "made-from", requirements, ("-r", str(requirements)))


def environment_made(
    place: Path, stamp: Path, source: Path, packages: tuple[str, ...], *, is_kept: bool = False
) -> bool:
    """Create the environment *place* and install *packages* there, unless *stamp* says that *source* has not changed.

    Args:
        is_kept: whether an environment with fewer packages, of the same source, is added to.

    Returns:
        Whether it is there; if not, what failed has said why.
    """
    wanted = made_from(source)
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    is_kept &= STAMP.exists() and STAMP.read_text() == wanted
    print(
        f"Making the environment in {place.name} (once; some minutes on a slow line) ...",
        file=sys.stderr,
        flush=True,
    )
    try:
        if not is_kept:
            venv.create(place, with_pip=True, clear=True)
    except (subprocess.CalledProcessError, OSError) as error:
        print(
            f"dev.py: no environment can be made in {place.name}: {error}. Remedy: install Python's venv and ensurepip "
            "(python3-venv on Debian and Ubuntu), and see that this folder can be written",
            file=sys.stderr,
        )
        return False
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    if python(*pip, environment=place).returncode:
        print(
            "dev.py: the packages could not be installed, see above. Remedy: give pip access to a package index, and "
            "start again",
            file=sys.stderr,
        )
        return False
    stamp.write_text(wanted)
    return True


def made_from(source: Path) -> str:
    """Return what an environment is made from, as a digest."""
    return hashlib.sha256(source.read_bytes() + sys.version.encode()).hexdigest()


def python(
    *arguments: str, capture: bool = False, environment: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the Python of an *environment*, `.venv` unless given, in the project's folder."""
    interpreter = str((environment or ENVIRONMENT) / "bin" / "python")
    output = subprocess.PIPE if capture else None
    return subprocess.run([interpreter, *arguments], cwd=ROOT, text=True, check=capture, stdout=output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
