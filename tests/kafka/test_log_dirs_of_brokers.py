"""`log-dirs --describe --bootstrap-server` with real brokers: protocols, rights, versions, brokers that are down."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import recovery
from recovery.describe import brokers as asked
from recovery.describe.client_config import client_options
from tests.brokers import Broker
from tests.brokers.broker import NEVER_FENCED, QUIET_PROPERTIES
from tests.brokers.jars import KAFKA_VERSION, oracle_classes
from tests.kafka.test_log_dirs import as_admin, create, describe, fill
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.command import Done, assert_one_line
from tests.servers.certificates import Authority
from tests.servers.s3_server import free_port

pytestmark = [pytest.mark.java, pytest.mark.broker]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER, PASSWORD = "al=ice,1", "se;cret"
OLDER = "3.9.1"


class Guarded:
    """A broker with a listener for each protocol, which lets `bob` in and tells him nothing."""

    def __init__(self, root: Path, version: str) -> None:
        self._authority = Authority(root)
        server = self._authority.certify("server", hosts=("localhost",))
        self._client = self._authority.certify("client", password="unlock")
        self.version = version
        self._ports = {name: free_port() for name in ("USERS", "TLS", "BOTH")}
        self.broker = Broker(
            [root / "a", root / "b"], work_dir=root / "work", properties=QUIET_PROPERTIES, version=version
        )
        text = self.broker.config.read_text()
        listeners = next(line for line in text.splitlines() if line.startswith("listeners="))
        listeners += "".join(f",{name}://localhost:{port}" for name, port in self._ports.items())
        tls = {
            f"listener.name.{name}.{key}": value
            for name in ("tls", "both")
            for key, value in {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(server.store),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._authority.file),
            }.items()
        }
        users = f'{PLAIN} required username="x" password="x" user_pat="{PASSWORD}" user_bob="{PASSWORD}";'
        properties = {
            "advertised.listeners": listeners.removeprefix("listeners="),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "USERS:SASL_PLAINTEXT,TLS:SSL,BOTH:SASL_SSL",
            **tls,
            "listener.name.tls.ssl.client.auth": "required",
            "listener.name.users.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.users.plain.sasl.jaas.config": users,
            "listener.name.users.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.both.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.both.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{USER};User:pat;User:CN=client",
        }
        lines = [listeners, *(f"{key}={value}" for key, value in properties.items())]
        self.broker.config.write_text(text + "\n".join(lines) + "\n")  # of two lines the last one counts
        self._folder = root

    def start(self) -> None:
        self.broker.format()
        self.broker.start()
        create(self.broker, "t", 3)
        fill(self.broker, "t", 50)
        tool, client = "kafka.admin.ConfigCommand", ("--bootstrap-server", self.broker.bootstrap_servers)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            users = ("--alter", "--entity-type", "users", "--entity-name", USER)
            self.broker.run_tool(tool, *client, *users, "--add-config", f"{mechanism}=[password={PASSWORD}]")

    def by_admin(self) -> dict[str, dict[str, Any]]:
        after = [oracle_classes()]  # with the clients of the newest release: those of 3.9 know of no cordons
        command = self.broker.tool_command(
            "LogDirDescriptions", self.broker.bootstrap_servers, "1", after=after, version=KAFKA_VERSION
        )
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        answer: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["1"]
        return answer

    def describe(self, listener: str, properties: Mapping[str, str]) -> Done:
        file = self._folder / "client.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        server = f"localhost:{self._ports[listener]}"
        given = ("--bootstrap-server", server, "--command-config", file)
        return describe(*given, prefix=self.broker.inside)

    @property
    def tls(self) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.file),
        }

    @property
    def shown(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._client.store),
            "ssl.key.password": "unlock",
        }


def sasl(mechanism: str, user: str, password: str = PASSWORD) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


@pytest.fixture(scope="module", params=[KAFKA_VERSION, OLDER])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("guarded"), request.param)
    with guarded.broker:
        guarded.start()
        yield guarded


def test_each_protocol(guarded: Guarded) -> None:
    expected = guarded.by_admin()
    assert sum(len(one["partitions"]) for one in expected.values()) == 3
    plaintext = describe("--bootstrap-server", guarded.broker.bootstrap_servers, prefix=guarded.broker.inside)
    runs = [
        plaintext,
        guarded.describe("USERS", sasl("PLAIN", "pat")),
        guarded.describe("USERS", sasl("SCRAM-SHA-512", USER)),
        guarded.describe("TLS", guarded.tls | guarded.shown),
        guarded.describe(
            "BOTH", guarded.tls | sasl("SCRAM-SHA-256", USER) | {"security.protocol": "SASL_SSL"}
        ),
    ]
    for done in runs:
        assert (done.exit_code, done.stderr) == (0, "")
        found = as_admin(done)
        for path, one in found.items():  # other processes use the same disk
            assert abs(one.pop("usableBytes") - expected[path]["usableBytes"]) < 1 << 32
        hidden = {
            path: {k: v for k, v in one.items() if k != "usableBytes"} for path, one in expected.items()
        }
        assert found == hidden


@pytest.mark.parametrize(
    ("listener", "what", "words"),
    [
        ("USERS", "wrong password", "assword"),
        ("USERS", "no rights", "broker 1: no answer: ClusterAuthorizationException"),
        ("TLS", "no certificate", "bad certificate"),
        ("TLS", "no trust", "certificate verify failed"),
    ],
)
def test_who_is_not_let_in(guarded: Guarded, listener: str, what: str, words: str) -> None:
    properties = {
        "wrong password": sasl("SCRAM-SHA-512", USER, "wrong"),
        "no rights": sasl("PLAIN", "bob"),
        "no certificate": guarded.tls,
        "no trust": {"security.protocol": "SSL"},
    }[what]
    done = guarded.describe(listener, properties | {"request.timeout.ms": "5000"})
    assert done.exit_code == 1
    if what == "wrong password" and "uthentication" in done.stderr:
        words = "uthentication"  # unless the broker hangs up before that is read
    assert_one_line(done, words)
    assert PASSWORD not in done.stderr


def test_nobody_there() -> None:
    port = free_port()
    done = describe("--bootstrap-server", f"localhost:{port}", timeout=LONGEST_WAIT_SECONDS)
    assert done.exit_code == 1
    assert_one_line(done, f"--bootstrap-server localhost:{port}: ", "Connection refused", "Remedy: ")


@pytest.fixture(scope="module", params=[KAFKA_VERSION, OLDER])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers on loopback; the first is the controller, too."""
    root = tmp_path_factory.mktemp("pair")
    controller_port = free_port()
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                Broker(
                    [root / f"d{node}"],
                    work_dir=root / f"work{node}",
                    properties=QUIET_PROPERTIES
                    | NEVER_FENCED
                    | {"process.roles": roles, "node.id": str(node)},
                    version=request.param,
                    heap="384m",
                    ports=(free_port(), controller_port),
                )
            )
            for node, roles in ((1, "broker,controller"), (2, "broker"))
        ]
        for broker in both:
            broker.format()
            broker.launch()
        for broker in both:
            broker.wait_for("RECOVERY to RUNNING")
        create(both[0], "t", 2)
        yield both[0], both[1]


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")  # in the client library
@pytest.mark.parametrize("api_version", [(2, 0), (2, 6), (3, 2), (3, 3), (4, 3)])
def test_each_version_of_the_request(
    pair: tuple[Broker, Broker], api_version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions 1 to 5, those that brokers of these releases have; the answer to a newer one has more in it."""
    if api_version == (4, 3) and pair[0].version == OLDER:
        api_version = (3, 9)
    newest = recovery.describe_log_dirs(bootstrap_servers=pair[0].bootstrap_servers)
    monkeypatch.setattr(
        asked, "client_options", lambda properties: client_options(properties) | {"api_version": api_version}
    )
    report = recovery.describe_log_dirs(bootstrap_servers=pair[0].bootstrap_servers)
    assert [broker.broker for broker in report.brokers] == [1, 2]
    for one, same in zip(report.log_dirs, newest.log_dirs, strict=True):
        assert (one.log_dir, one.error, one.replicas) == (same.log_dir, None, same.replicas)
        assert one.total_bytes == (same.total_bytes if api_version >= (3, 3) else -1)
        assert (one.usable_bytes >= 0) == (api_version >= (3, 3))


def test_one_broker_of_two(pair: tuple[Broker, Broker]) -> None:
    server = pair[0].bootstrap_servers
    both = describe("--bootstrap-server", server)
    assert both.exit_code == 0
    assert [broker["broker"] for broker in json.loads(both.stdout)["brokers"]] == [1, 2]
    one = describe("--bootstrap-server", server, "--broker-list", "2")
    assert [broker["broker"] for broker in json.loads(one.stdout)["brokers"]] == [2]
    none = describe("--bootstrap-server", server, "--broker-list", "2,9")
    assert none.exit_code == 1
    assert_one_line(none, "--broker-list: no broker 9. Remedy: choose from 1, 2")
    none = describe("--bootstrap-server", server, "--topic-list", "nope")
    assert none.exit_code == 1
    assert_one_line(none, "--topic-list: no replica of nope")


def test_one_broker_was_stopped(pair: tuple[Broker, Broker]) -> None:
    """Last but one, as a controller that has not forgotten it does not let it come back."""
    pair[1].stop()
    fenced = pair[0].version != OLDER  # 3.9 does not tell of fenced brokers
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        found = describe("--bootstrap-server", pair[0].bootstrap_servers)
        if ("fenced" in found.stderr) if fenced else not found.exit_code:
            break
        assert time.monotonic() < deadline, found
    assert [broker["broker"] for broker in json.loads(found.stdout)["brokers"]] == [1]
    if fenced:
        assert found.exit_code == 4
        assert "broker 2: no answer: " in found.stderr


def test_one_broker_is_down(pair: tuple[Broker, Broker]) -> None:
    """Its log dirs are described from their files."""
    # The controller last: who cannot take its leave may not come back for an hour.
    for broker in reversed(pair):
        if broker.runs:
            broker.stop()
    for broker in pair:
        broker.start()
    pair[1].kill()
    found = describe("--bootstrap-server", pair[0].bootstrap_servers, "--broker-list", "1,2")
    assert found.exit_code == 4
    assert [broker["broker"] for broker in json.loads(found.stdout)["brokers"]] == [1]
    assert "broker 2: no answer: " in found.stderr
    text = describe("-c", pair[1].config)
    assert text.exit_code == 0, text.stderr
    assert json.loads(text.stdout)["brokers"][0]["broker"] == 2
