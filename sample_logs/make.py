"""Make the sample logs again, with real brokers: `python sample_logs/make.py [NAME]...`.

Needs what the broker suites need (Java 17, Maven, see tests/brokers/__init__.py), about three minutes, and for
`crashed-v0-v1` the log dir of a crashed 2.8.2 broker: `--old-log-dir`, by default the one in the present
archive. The result is the same in kind, not in bytes: clocks and scheduling are real. README.md says what is
in it; the clocks and checksums there are brought up to date.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAMPLE_DIR = Path(__file__).parent
sys.path.insert(0, str(SAMPLE_DIR.parent))

from tests.brokers.broker import Broker, topic_configs_of  # noqa: E402
from tests.brokers.jars import KAFKA_VERSION, RELEASES  # noqa: E402
from tests.brokers.sample_brokers import start_writer  # noqa: E402
from tests.brokers.tiered_broker import make_tiered  # noqa: E402
from tests.logs.samples import (  # noqa: E402
    AIVEN_NAME,
    NEWEST_NAME,
    SAMPLE_NAMES,
    TIERED_NAME,
    read_properties,
    sha256_of,
    unpack,
)

ALL_NAMES = (*SAMPLE_NAMES, NEWEST_NAME, TIERED_NAME)
TIERED_SIZE = 5  # segments that each life of the broker adds to a partition
RECOVERY_DELAY_MS = 60_000  # now_ms of a sample: this long after its broker ended
CLUSTER_ID = "c2FtcGxlLWxvZ3MtMDAwMQ"

COMMON_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:29093
listeners=PLAINTEXT://localhost:29092,CONTROLLER://localhost:29093
advertised.listeners=PLAINTEXT://localhost:29092,CONTROLLER://localhost:29093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=@ROOT@/d1,@ROOT@/d2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
# Small indexes keep unpacked copies small.
log.index.size.max.bytes={index_bytes}
log.initial.task.delay.ms=1000
log.flush.start.offset.checkpoint.interval.ms=1000
log.flush.offset.checkpoint.interval.ms=9000000
"""
CRASHED_PROPERTIES = """\
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=2097152
remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
rsm.config.dir=@ROOT@/remote
remote.log.metadata.manager.listener.name=PLAINTEXT
rlmm.config.remote.log.metadata.topic.num.partitions=2
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.min.isr=1
remote.log.manager.task.interval.ms=500
remote.log.manager.copier.thread.pool.size=2
remote.log.manager.expiration.thread.pool.size=2
remote.log.reader.threads=2
# The tiered topic's closed segments go to remote storage while the broker runs, local copies go.
log.retention.check.interval.ms=1000
"""


def main() -> None:
    """Make the samples that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=ALL_NAMES)
    parser.add_argument("--old-log-dir", type=Path, help="log dir of a crashed 2.8.2 broker")
    parser.add_argument("--into", type=Path, default=SAMPLE_DIR, help="where the archives go")
    arguments = parser.parse_args()
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch) / name
            if name == "crashed":
                _make_crashed(root)
            elif name == "crashed-v0-v1":
                _make_crashed_v0_v1(root, arguments.old_log_dir)
            elif name == NEWEST_NAME:
                _make_crashed_newest(root)
            elif name == TIERED_NAME:
                make_tiered(root, size=TIERED_SIZE)
            else:
                _make_clean(root, life=name)
            _describe(root)
            _pack(root, arguments.into)
    if arguments.into == SAMPLE_DIR:
        _update_readme()


def _make_crashed(root: Path) -> None:
    broker = _new_broker(root, COMMON_PROPERTIES.format(index_bytes=262144) + CRASHED_PROPERTIES)
    with broker:
        for life in ("first", "second", "last"):
            broker.start()
            writer = start_writer(broker, life)
            if life == "last":
                _wait_for_tiering(root, broker)
                broker.kill()
            else:
                time.sleep(3)  # for the log cleaner
                broker.stop()
            writer.communicate()


def _make_crashed_newest(root: Path) -> None:
    properties = COMMON_PROPERTIES.format(index_bytes=65536)
    with _new_broker(root, properties, version=[*RELEASES.values()][-1]) as broker:
        broker.start()
        writer = start_writer(broker, "any-version")
        broker.kill()
        writer.communicate()


def _make_crashed_v0_v1(root: Path, old_log_dir: Path | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        if old_log_dir is None:
            old = unpack("crashed-v0-v1", Path(scratch))
            old_partitions = [path for log_dir in old.log_dirs for path in log_dir.iterdir()]
        else:
            old_partitions = list(old_log_dir.iterdir())
        with _new_broker(root, COMMON_PROPERTIES.format(index_bytes=65536)) as broker:
            broker.start()
            start_writer(broker, "old-topics").communicate()
            broker.stop()
        for log_dir in (root / "d1", root / "d2"):
            (log_dir / ".kafka_cleanshutdown").unlink()
            (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        for partition in old_partitions:
            if re.fullmatch(r"(old|up)-.*-0", partition.name):
                _replace_files(partition, next(root.glob(f"d?/{partition.name}")))


def _make_clean(root: Path, *, life: str) -> None:
    with _new_broker(root, COMMON_PROPERTIES.format(index_bytes=262144)) as broker:
        broker.start()
        start_writer(broker, life).communicate()
        time.sleep(3)  # the log start offset is checkpointed every second
        broker.stop()


def _new_broker(root: Path, properties: str, *, version: str = KAFKA_VERSION) -> Broker:
    root.mkdir()
    (root / "server.properties").write_text(properties)
    ready = read_properties(properties.replace("@ROOT@", str(root)))
    broker = Broker(
        [root / "d1", root / "d2"], work_dir=root.parent / "work", properties=ready, version=version
    )
    broker.format(CLUSTER_ID)
    return broker


def _wait_for_tiering(root: Path, broker: Broker) -> None:
    """Wait until nothing is left to copy or to delete locally: the same local segments for some seconds."""
    seen: list[str] = []
    since = time.monotonic()
    while time.monotonic() - since < 6:
        now = sorted(path.name for path in root.glob("d?/tiered-0/*.log"))
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.2)
    if not seen or seen[0].startswith("0" * 20):
        raise SystemExit(f"the tiered topic was not tiered: {seen}\n{broker.log[-4000:]}")


def _replace_files(source: Path, target: Path) -> None:
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy2(path, target)


def _describe(root: Path) -> None:
    """Write sample.json (log dirs, clock) and topic-configs.json (what the metadata log says of topics)."""
    newest = max(path.stat().st_mtime for path in root.rglob("*") if path.is_file())
    facts = {"log_dirs": ["d1", "d2"], "now_ms": int(newest * 1000) + RECOVERY_DELAY_MS}
    (root / "sample.json").write_text(json.dumps(facts, indent=1) + "\n")
    configs = topic_configs_of(root / "d1")
    (root / "topic-configs.json").write_text(json.dumps(configs, indent=1, sort_keys=True) + "\n")


def _pack(root: Path, into: Path) -> None:
    archive = into / f"{root.name}.tar.xz"
    options = ["--sparse", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner", "--sort=name"]
    command = ["tar", *options, "-C", str(root.parent), "-cf", "-", root.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tar, archive.open("wb") as out:
        subprocess.run(["xz", "-9e", "-T1"], stdin=tar.stdout, stdout=out, check=True)


def _update_readme() -> None:
    readme = SAMPLE_DIR / "README.md"
    text = readme.read_text()
    checksums = []
    for name in (*ALL_NAMES, AIVEN_NAME):
        archive = SAMPLE_DIR / f"{name}.tar.xz"
        checksums.append(f"{sha256_of(archive)}  {archive.name}")
        if name == AIVEN_NAME:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            now_ms = unpack(name, Path(scratch)).now_ms
        text = re.sub(rf"(\| `{re.escape(archive.name)}` \|.*\| )\S+( \|)", rf"\g<1>{now_ms}\g<2>", text)
    listing = "\n".join(checksums)
    readme.write_text(re.sub(r"```\n[0-9a-f]{64}  .*?\n```", f"```\n{listing}\n```", text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
