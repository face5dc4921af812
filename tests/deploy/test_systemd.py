"""deploy/systemd/kafka-log-recovery.service under a real systemd: the order, exit codes, kills, a broker's restart."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.generate import Shape, generate
from tests import ROOT
from tests.brokers import Broker, kafka_jars
from tests.servers.machine import SYSTEMD, needs
from tests.servers.systemd import Systemd

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.long, needs(SYSTEMD)]

RECOVERY, KAFKA = "kafka-log-recovery", "kafka"
UNIT = ROOT / "deploy" / "systemd" / "kafka-log-recovery.service"
DATA, INSTALLED, JARS = "/var/lib/kafka", "/opt/kafka-log-recovery", "/opt/kafka/libs"
_UNITS, _CONFIG = "etc/systemd/system", "etc/kafka/server.properties"
_PROGRAM = f"""\
#!/bin/sh
PYTHONPATH={INSTALLED}/source exec {INSTALLED}/venv/bin/python -m recovery "$@"
"""
_STAND_IN = f"""\
[Service]
User=kafka
ExecStart=/bin/sh -c 'cd {DATA} && test -f d1/.kafka_cleanshutdown && test -f d2/.kafka_cleanshutdown && sleep 9999'
"""
_REAL = f"""\
[Service]
User=kafka
ExecStart=java -Xmx512m -Doracle.log.level=INFO \
  -Dlog4j2.configurationFile={INSTALLED}/source/tests/oracle/broker-log4j2.properties \
  -cp {JARS}/* kafka.Kafka /{_CONFIG}
SuccessExitStatus=143
Restart=on-failure
RestartSec=1
"""
_RECOVERS = re.compile(r"Recovering \d+ logs from ")
_SLOWLY = "--max-bytes-per-second 1000000"


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log dirs d1 and d2 of a killed broker."""
    root = tmp_path_factory.mktemp("crashed") / "data"
    generate(root, Shape(bytes_total=60 << 20, batch_bytes=16 << 10, partitions=8, segments=3))
    return root


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    """The machine with the unit as it is, the tool where the unit looks for it, and Kafka's jars."""
    binds = {f"{INSTALLED}/source": ROOT, f"{INSTALLED}/venv": Path(sys.prefix)}
    config = Broker(
        [f"{DATA}/d1", f"{DATA}/d2"], work_dir=tmp_path_factory.mktemp("config"), ports=(29092, 29093)
    ).config
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="systemd-") as folder,
        Systemd(Path(folder), binds) as machine,
    ):
        machine.run("useradd", "--system", "kafka")
        shutil.copytree(kafka_jars(), _inside(machine, JARS))  # where they are, root alone may read them
        machine.run("chmod", "755", JARS)
        machine.run("mkdir", "-p", f"{INSTALLED}/bin", "/etc/kafka", DATA)
        for place, text in (
            (f"{INSTALLED}/bin/kafka-log-recovery", _PROGRAM),
            (_CONFIG, config.read_text()),
            (f"{_UNITS}/{RECOVERY}.service", UNIT.read_text()),
        ):
            _write(machine, place, text)
        machine.run("chmod", "755", f"{INSTALLED}/bin/kafka-log-recovery")
        yield machine


@pytest.fixture
def machine(booted: Systemd, crashed: Path) -> Iterator[Systemd]:
    """The machine with the log dirs, kafka.service (a stand-in), and the unit enabled."""
    booted.run("rm", "-rf", f"{DATA}/d1", f"{DATA}/d2", f"{DATA}/d1.quarantine", f"{DATA}/d2.quarantine")
    for name in ("d1", "d2"):
        shutil.copytree(crashed / name, _inside(booted, f"{DATA}/{name}"))
    booted.run("chown", "-R", "kafka:kafka", DATA)
    _kafka_is(booted, _STAND_IN)
    booted.run("systemctl", "enable", RECOVERY)
    yield booted
    booted.run("systemctl", "stop", KAFKA, RECOVERY)
    booted.run("systemctl", "reset-failed")
    booted.run("rm", "-rf", f"/{_UNITS}/{RECOVERY}.service.d")
    booted.run("journalctl", "--rotate")
    booted.run("journalctl", "--vacuum-time=1s")


def test_systemd_finds_nothing_to_say(machine: Systemd) -> None:
    done = machine.run("systemd-analyze", "verify", f"/{_UNITS}/{RECOVERY}.service")
    assert (done.stdout, done.stderr) == ("", "")


def test_a_broker_starts_on_what_is_recovered_and_after_a_kill_too(machine: Systemd) -> None:
    _kafka_is(machine, _REAL)
    machine.run("systemctl", "start", KAFKA)
    machine.wait_for(KAFKA, text="Kafka Server started")
    assert "Skipping recovery of" in machine.journal(KAFKA)
    assert not _RECOVERS.search(machine.journal(KAFKA))
    assert machine.run("find", DATA, "!", "-user", "kafka").stdout == ""
    cached = machine.run("find", "/var/cache/kafka-log-recovery", "-type", "f", "-user", "kafka").stdout
    assert cached.splitlines()
    runs = machine.journal(RECOVERY).count("Finished ")
    _kill(machine, KAFKA)
    machine.wait_for(RECOVERY, text="Finished ")
    _wait_for_starts(machine, 2)
    assert machine.journal(RECOVERY).count("Finished ") == runs + 1
    assert not _RECOVERS.search(machine.journal(KAFKA))  # not by the broker: the restart recovers first, too


def test_a_run_that_is_killed_keeps_the_broker_down_and_is_resumed_by_the_next_start(
    machine: Systemd,
) -> None:
    _start_slowly(machine)
    _kill(machine, RECOVERY)
    machine.wait_for(RECOVERY, state="failed")
    assert machine.state(KAFKA) == "inactive"
    assert machine.state(KAFKA, "Job") in ("", "0")
    _at_full_speed(machine)
    machine.run("systemctl", "start", KAFKA)
    assert machine.state(KAFKA) == "active"
    assert "resum" in machine.journal(RECOVERY)


def test_stopping_the_broker_ends_a_run(machine: Systemd) -> None:
    _start_slowly(machine)
    machine.run("systemctl", "stop", KAFKA)
    machine.wait_for(RECOVERY, text="Interrupted; start the same command again to resume.")
    machine.wait_for(RECOVERY, state="failed")
    _at_full_speed(machine)
    machine.run("systemctl", "start", KAFKA)
    assert machine.state(KAFKA) == "active"


def test_a_cut_lets_the_broker_start_unless_the_line_is_removed(machine: Systemd) -> None:
    log = sorted(_inside(machine, f"{DATA}/d1").glob("bench-*/*.log"))[0]
    with log.open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"damage")
    done = machine.run("systemctl", "start", KAFKA)
    assert done.returncode == 0
    assert machine.state(RECOVERY, "ExecMainStatus") == "2"
    assert machine.state(KAFKA) == "active"


def test_a_refused_log_keeps_the_broker_down(machine: Systemd) -> None:
    log = sorted(_inside(machine, f"{DATA}/d1").glob("bench-*/*.log"))[0]
    (log.parent / "foo.log").write_bytes(b"")
    machine.run("chown", "-R", "kafka:kafka", DATA)
    done = machine.run("systemctl", "start", KAFKA, check=False)
    assert done.returncode != 0
    assert "dependency" in done.stderr
    assert machine.state(RECOVERY, "ExecMainStatus") == "4"
    assert machine.state(KAFKA) == "inactive"


def test_after_a_clean_shutdown_it_is_done_at_once_each_time(machine: Systemd) -> None:
    machine.run("systemctl", "start", KAFKA)
    machine.run("systemctl", "restart", KAFKA)
    journal = machine.journal(RECOVERY)
    assert journal.count("Finished ") == 2
    assert journal.count("Skipping recovery of ") == 2
    assert machine.state(KAFKA) == "active"


def _kill(machine: Systemd, unit: str) -> None:
    """Kill its main process. Of all that it has, systemctl would read a list, in which one that has just died is 0."""
    machine.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", unit)


def _start_slowly(machine: Systemd) -> None:
    """Start the broker, wait until its log dirs are being recovered, and come back in the middle of that."""
    command = next(line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    _write(
        machine, f"{_UNITS}/{RECOVERY}.service.d/slowly.conf", f"[Service]\nExecStart=\n{command} {_SLOWLY}\n"
    )
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "--no-block", KAFKA)
    machine.wait_for(RECOVERY, text="Completed load of ")
    assert machine.state(RECOVERY) == "activating"
    assert machine.state(KAFKA) == "inactive"


def _at_full_speed(machine: Systemd) -> None:
    machine.run("rm", "-rf", f"/{_UNITS}/{RECOVERY}.service.d")
    machine.run("systemctl", "daemon-reload")


def _wait_for_starts(machine: Systemd, count: int) -> None:
    while machine.journal(KAFKA).count("Kafka Server started") < count:
        machine.wait_for(KAFKA)


def _kafka_is(machine: Systemd, unit: str) -> None:
    _write(machine, f"{_UNITS}/{KAFKA}.service", unit)
    machine.run("systemctl", "daemon-reload")


def _write(machine: Systemd, place: str, text: str) -> None:
    path = _inside(machine, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _inside(machine: Systemd, place: str) -> Path:
    return machine.root / place.lstrip("/")
