"""Which dynamic settings a broker uses while it loads its logs: those in its newest metadata snapshot."""

import shutil
from pathlib import Path

import pytest

from recovery.logdir.metadata_files import load_cluster_metadata
from tests.brokers import Broker
from tests.brokers.broker import QUIET_PROPERTIES
from tests.patience import wait_until

pytestmark = [pytest.mark.java, pytest.mark.broker]

INDEX = "t-0/00000000000000000000.index"
INTERVAL = "log.index.interval.bytes"


def index_entries(log_dir):
    return (log_dir / INDEX).stat().st_size // 8


def test_dynamic_settings_behind_the_snapshot_come_too_late(tmp_path):
    log_dir, crashed = tmp_path / "logs", tmp_path / "crashed"

    def new_broker(**properties):
        return Broker([log_dir], work_dir=tmp_path / "work", properties=QUIET_PROPERTIES | properties)

    with new_broker() as broker:
        broker.format()
        broker.start()
        client = ["--bootstrap-server", broker.bootstrap_servers]
        broker.run_tool(
            "org.apache.kafka.tools.TopicCommand", *client, "--create", "--topic", "t", "--partitions", "1"
        )
        load = "--topic t --num-records 500 --record-size 100 --throughput -1 --producer-props batch.size=500"
        broker.run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *load.split(),
            f"bootstrap.servers={broker.bootstrap_servers}",
        )
        alter = ["--alter", "--entity-type", "brokers", "--entity-default", "--add-config", f"{INTERVAL}=64"]
        broker.run_tool("kafka.admin.ConfigCommand", *client, *alter)
        broker.kill()
    shutil.copytree(log_dir, crashed)
    metadata = load_cluster_metadata(str(crashed / "__cluster_metadata-0"))
    assert INTERVAL not in metadata.cluster_default
    assert metadata.cluster_default_after_load[INTERVAL] == "64"

    with new_broker(**{"metadata.log.max.snapshot.interval.ms": "500"}) as broker:
        broker.start()
        folder = str(log_dir / "__cluster_metadata-0")
        wait_until(
            lambda: any(not path.name.startswith("0" * 20) for path in Path(folder).glob("*.checkpoint"))
        )
        broker.stop()
    without = index_entries(log_dir)
    assert load_cluster_metadata(folder).cluster_default[INTERVAL] == "64"

    shutil.rmtree(log_dir / "t-0")
    shutil.copytree(crashed / "t-0", log_dir / "t-0")
    shutil.copy(crashed / "recovery-point-offset-checkpoint", log_dir)
    (log_dir / ".kafka_cleanshutdown").unlink()
    with new_broker() as broker:
        broker.start()
        broker.stop()
    log_size = (log_dir / INDEX).with_suffix(".log").stat().st_size
    assert without <= log_size // 4096
    assert index_entries(log_dir) > 5 * without
