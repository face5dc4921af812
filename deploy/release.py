"""Build what a release consists of, from the last commit, into `dist`: nothing is published.

    python3 dev.py release [--tag vX.Y.Z] [--url URL]

    kafka_log_recovery-X.Y.Z-py3-none-any.whl     the wheel, built from the source distribution
    kafka_log_recovery-X.Y.Z.tar.gz               that
    kafka-log-recovery-docs-X.Y.Z.tar.gz          the site of the documents
    SHA256SUMS                                    of these

The version is said in several places, and must be the same in all of them; with `--tag` the changelog has to have its
heading, too.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


class ReleaseError(Exception):
    """Why nothing can be released."""


def main(arguments: list[str]) -> int:
    """Build a release and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="dev.py release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tag", help="of the release: v and the version")
    parser.add_argument("--url", help="page of the repository; without it the long description has no links")
    options = parser.parse_args(arguments)
    try:
        version = version_of(ROOT, options.tag)
        with tempfile.TemporaryDirectory(prefix="kafka-log-recovery-release-") as name:
            source = Path(name) / "source"
            export(source)
            shutil.rmtree(DIST, ignore_errors=True)
            os.environ["KAFKA_LOG_RECOVERY_URL"] = options.url or ""
            python("-m", "build", "--outdir", str(DIST), str(source))
        python("-m", "twine", "check", "--strict", *map(str, DIST.iterdir()))
        pack_site(version)
        write_sums()
    except ReleaseError as error:
        print(f"dev.py release: {error}", file=sys.stderr)
        return 1
    print(f"{version}, in dist:", *sorted(path.name for path in DIST.iterdir()), sep="\n  ")
    return 0


def version_of(root: Path, tag: str | None) -> str:
    """Return the version of the project in the folder *root*.

    Raises:
        ReleaseError: it is not the same everywhere, or not that of *tag*.
    """
    said = {
        "pyproject.toml": r'^version = "(.+)"$',
        "recovery/version.py": r'^VERSION: Final = "(.+)"$',
        "deploy/Dockerfile": r"kafka-log-recovery:([0-9][\w.]*)",
        "CHANGELOG.md": r"^## (?:\[Unreleased\] |\[)([0-9][\w.]*)",
    }
    found = {}
    for name, pattern in said.items():
        match = re.search(pattern, (root / name).read_text(), re.MULTILINE)
        found[name] = match[1] if match else "none"
    (version, *others) = dict.fromkeys(found.values())
    if others:
        raise ReleaseError(
            f"the version differs: {', '.join(f'{value} in {name}' for name, value in found.items())}"
        )
    if tag is not None and tag != f"v{version}":
        raise ReleaseError(f"--tag {tag}: the version is {version}")
    if tag is not None and f"## [{version}]" not in (root / "CHANGELOG.md").read_text():
        raise ReleaseError(
            f"CHANGELOG.md has no heading '## [{version}]' with a date: it still says Unreleased"
        )
    return version


def export(folder: Path) -> None:
    """Write the last commit to the new *folder*: what is not committed is in no release.

    Raises:
        ReleaseError: there are changes.
    """
    if run("git", "status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed. Remedy: commit them, or take them back")
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    run("git", "archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def pack_site(version: str) -> None:
    """Build the site of the documents, and pack it."""
    run(sys.executable, "dev.py", "docs")
    with tarfile.open(DIST / f"kafka-log-recovery-docs-{version}.tar.gz", "w:gz") as packed:
        packed.add(ROOT / "build" / "site", "docs")


def write_sums() -> None:
    """Write the file that `sha256sum --check` reads."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(DIST.iterdir())
    ]
    (DIST / "SHA256SUMS").write_text("\n".join([*lines, ""]))


def python(*arguments: str) -> None:
    """Run a module of this environment."""
    run(sys.executable, *arguments)


def run(*command: str) -> str:
    """Run *command* in the project's folder, and return what it printed.

    Raises:
        ReleaseError: it failed.
    """
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
