"""A cluster of a controller and two brokers, 2 and 3, on loopback."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.brokers.broker import NEVER_FENCED, Broker, BrokerError
from tests.patience import LONGEST_WAIT_SECONDS
from tests.servers.s3_server import free_port

NODES = (2, 3)
# What the tools' clients wait for a controller, or a leader, that other work on the machine keeps from answering.
_PATIENCE = ("default.api.timeout.ms", "delivery.timeout.ms", "max.block.ms")
_PATIENCE_MS = 500_000


class BrokerPair:
    """A controller, and brokers 2 and 3, formatted and not started. Each leads until it is stopped or killed.

    Args:
        root: gets the log dirs `d2` and `d3`.
        work_dir: gets the rest.
        stack: kills them at its end.
        cluster_id: of the new cluster.
        properties: of all three.
        plugins: folders of classes for all three.
    """

    def __init__(
        self,
        root: Path,
        work_dir: Path,
        stack: ExitStack,
        cluster_id: str,
        properties: dict[str, str],
        *,
        plugins: Sequence[Path] = (),
    ) -> None:
        # Nothing but the test elects a leader: Kafka's own look at them, after 5 minutes, comes to slow runs alone.
        properties = properties | NEVER_FENCED | {"auto.leader.rebalance.enable": "false"}
        controller_port = free_port()
        self.controller = stack.enter_context(
            Broker(
                [work_dir / "controller"],
                work_dir=work_dir / "1",
                properties=properties | {"process.roles": "controller", "node.id": "1"},
                heap="256m",
                plugins=plugins,
                ports=(0, controller_port),
            )
        )
        self.brokers = {
            node: stack.enter_context(
                Broker(
                    [root / f"d{node}"],
                    work_dir=work_dir / str(node),
                    properties=properties | {"process.roles": "broker", "node.id": str(node)},
                    heap="384m",
                    plugins=plugins,
                    ports=(free_port(), controller_port),
                )
            )
            for node in NODES
        }
        self._patient = work_dir / "clients.properties"
        self._patient.write_text("".join(f"{key}={_PATIENCE_MS}\n" for key in _PATIENCE))
        for one in (self.controller, *self.brokers.values()):
            one.format(cluster_id)

    def create(self, topic: str, settings: Mapping[str, str], *, replicas: str = "2:3") -> None:
        """Create a topic of one partition whose first replica leads."""
        configs = [word for key, value in settings.items() for word in ("--config", f"{key}={value}")]
        self.ask("TopicCommand", "--create", "--topic", topic, "--replica-assignment", replicas, *configs)

    def ask(self, tool: str, *arguments: str, node: int = 2) -> str:
        """Run one of Kafka's tools against broker *node*; what it printed."""
        broker = self.brokers[node]
        client = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(self._patient))
        return broker.run_tool(f"org.apache.kafka.tools.{tool}", *client, *arguments)

    def wait_for_leader(self, node: int, *topics: str, replicas: int) -> None:
        """Wait until broker *node* leads all partitions of *topics*, and so many replicas are in sync."""
        in_sync = ",".join(("2", "3") if replicas == 2 else (str(node),))

        def leads() -> bool:
            described = self.ask("TopicCommand", "--describe", "--topic", "|".join(topics), node=node)
            lines = [line for line in described.splitlines() if "Leader:" in line]
            fields = [
                dict(one.split(": ", 1) for one in line.strip().split("\t") if ": " in one) for line in lines
            ]
            found = [(one["Leader"], ",".join(sorted(one["Isr"].split(",")))) for one in fields]
            return bool(found) and set(found) == {(str(node), in_sync)}

        self.wait_until(leads)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until the brokers are so far."""
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                logs = (one.log[-4000:] for one in (self.controller, *self.brokers.values()))
                raise BrokerError("the brokers did not come so far:\n" + "\n".join(logs))
            time.sleep(0.2)

    def start(self, *nodes: int) -> None:
        """Start brokers. A controller started anew has forgotten the sessions of those that were stopped."""
        if self.controller.runs:
            self.controller.stop()
        self.controller.start()
        for node in nodes:
            self.brokers[node].launch()
        for node in nodes:
            self.brokers[node].wait_until_running()

    def kill(self, node: int) -> None:
        """Kill broker *node*, and tell the controller, which does not find out: others may lead at once."""
        self.brokers[node].kill()
        controller = ("--bootstrap-controller", self.controller.bootstrap_controllers)
        client = ("--command-config", str(self._patient), "--id", str(node))
        self.controller.run_tool("org.apache.kafka.tools.ClusterTool", "unregister", *controller, *client)

    def stop(self) -> None:
        """End all of them cleanly, the controller last."""
        for one in (*self.brokers.values(), self.controller):
            one.stop()
