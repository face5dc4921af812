"""A copy by a user who may not read everything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.logs.samples import tree_of, unpack
from tests.recovery.cli.test_owners import GROUP, OWNER, give_away
from tests.runs.command import run
from tests.servers.machine import OTHER_USERS, OTHERS_FILES, needs

AS_ANOTHER_USER = f"""
import os, sys
import recovery.cli.main
# The interpreter may lie where that user cannot reach it: all that a run loads is loaded before.
command = ["archive", "copy", "--progress", "none", "--log-dirs"]
recovery.cli.main.main([*command, sys.argv[1], "--output", sys.argv.pop(2)])
os.setgroups([])
os.setgid({GROUP})
os.setuid({OWNER})
sys.exit(recovery.cli.main.main([*command, *sys.argv[1:]]))
"""

pytestmark = [pytest.mark.long, needs(OTHERS_FILES, OTHER_USERS)]


def test_what_this_user_may_not_read_is_named_and_the_rest_is_copied(ram_path: Path) -> None:
    sample = unpack("crashed", ram_path)
    os.chmod(ram_path, 0o777)
    log_dir = sample.log_dirs[0]
    give_away(sample.root, OWNER, GROUP)
    denied = min(log_dir.rglob("*.log"))
    folder = max(path for path in log_dir.iterdir() if path.is_dir() and path != denied.parent)
    for path in (denied, folder):
        os.chown(path, 0, 0)
        os.chmod(path, 0o600)
    before = tree_of(log_dir, ignore=[".lock"])
    done = run(
        str(log_dir), str(ram_path / "first"), "--output", str(ram_path / "copy"), "--format", "json",
        command=(sys.executable, "-c", AS_ANOTHER_USER), cwd="/",
    )  # fmt: skip
    report = done.stdout[done.stdout.index("{") :]
    assert done.exit_code == 4, done.stderr
    assert [line for line in report.splitlines() if '"file"' in line] == [
        f'          "file": "{path}",' for path in sorted((str(denied), str(folder)))
    ]
    assert (
        report.count('"error": "Permission denied. Remedy: run this as the broker\'s user, or as root"') == 2
    )
    copied = tree_of(ram_path / "copy" / log_dir.name)
    whole = {
        name: data
        for name, data in before.items()
        if not name.startswith((str(denied.relative_to(log_dir)), f"{folder.name}/"))
        and not name.endswith("/")
    }
    assert {name: data for name, data in copied.items() if not name.endswith("/")} == whole
    assert tree_of(log_dir, ignore=[".lock"]) == before
