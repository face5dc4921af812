"""A broker that runs as a user of its own starts on what `recover`, run as root, has left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.brokers.broker import QUIET_PROPERTIES
from tests.brokers.jars import ORACLE_DIR
from tests.logs.samples import unpack
from tests.recovery.cli.test_owners import GROUP, OWNER, give_away, owners
from tests.runs.command import recover
from tests.servers.machine import OTHER_USERS, OTHERS_FILES, needs

pytestmark = [
    pytest.mark.java,
    pytest.mark.broker,
    needs(OTHERS_FILES, OTHER_USERS),
]

AS_OWNER = ["setpriv", "--reuid", str(OWNER), "--regid", str(GROUP), "--clear-groups"]


class BrokerOfAnotherUser(Broker):
    """A broker whose JVM runs as OWNER. The jars may lie where that user cannot reach them: it gets copies."""

    public: Path

    def _java(self, main_class: str, *arguments: str, **options: Any) -> list[str]:
        command = super()._java(main_class, *arguments, **options)
        at = command.index("-cp") + 1
        entries = [Path(entry.removesuffix("/*")) for entry in command[at].split(os.pathsep)]
        for entry in (*entries, ORACLE_DIR):
            copied = self.public / entry.name
            shutil.copytree(entry, copied) if entry.is_dir() else shutil.copy(entry, copied)
            os.chmod(copied, 0o755)
        command[at] = os.pathsep.join(
            str(self.public / entry.name) + ("/*" if any(entry.glob("*.jar")) else "") for entry in entries
        )
        return AS_OWNER + [
            argument.replace(str(ORACLE_DIR), str(self.public / ORACLE_DIR.name)) for argument in command
        ]


def test_a_broker_of_another_user_starts_on_what_root_has_recovered(ram_path: Path) -> None:
    os.chmod(ram_path, 0o755)
    sample = unpack("crashed", ram_path)
    give_away(sample.root, OWNER, GROUP)
    assert recover(sample).exit_code == 0
    properties = dict(sample.properties) | QUIET_PROPERTIES
    with BrokerOfAnotherUser(
        sample.log_dirs, work_dir=ram_path / "work", properties=properties, now_ms=sample.now_ms
    ) as broker:
        broker.public = ram_path / "public"
        broker.public.mkdir()
        broker.start()
        (line,) = [
            one
            for one in Path(f"/proc/{broker.pid}/status").read_text().splitlines()
            if one.startswith("Uid:")
        ]
        assert line.split()[1:] == [str(OWNER)] * 4
        assert "Skipping recovery of 15 logs" in broker.log
        broker.stop()
        assert "AccessDenied" not in broker.log
        assert "Permission denied" not in broker.log
    for log_dir in sample.log_dirs:
        assert owners(log_dir) == {(OWNER, GROUP)}
        assert (log_dir / ".kafka_cleanshutdown").exists()
