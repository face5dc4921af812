"""Real Spark: a standalone cluster of separate processes, and a Spark Connect server, of the pyspark that is imported.

Everything runs on loopback, the workers on addresses of their own, as Spark takes them for hosts. Each process leads a
process group, and a worker's executors belong to its group, so that a worker is killed as a host would be lost.
Executors take the Python that runs the tests, and this checkout.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import ROOT
from tests.patience import LONGEST_WAIT_SECONDS
from tests.servers.s3_server import free_port

_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # these JVMs live for seconds
_MASTER_HOST = "127.0.0.1"


class SparkProcessError(RuntimeError):
    """A process of Spark did not do what it should; the message ends with its log."""


def settings(work_dir: Path) -> dict[str, str]:
    """What every session of these tests is configured with, wherever it runs; files go below *work_dir*."""
    return {
        "spark.driver.host": _MASTER_HOST,
        "spark.driver.bindAddress": _MASTER_HOST,
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": _QUICK_START,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": _QUICK_START,
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.local.dir": str(work_dir),
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }


class SparkProcess:
    """One JVM of Spark, with a log, in a process group of its own.

    Args:
        arguments: of `spark-class`.
        name: of its log and its folder in *work_dir*.
    """

    def __init__(
        self, *arguments: str, name: str, work_dir: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log_path = work_dir / f"{name}.log"
        local_dir = work_dir / name
        local_dir.mkdir(parents=True)
        left_out = ("SPARK_", "PYSPARK_")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        own = {
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_DIRS": str(local_dir),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK_START,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [str(spark_home() / "bin" / "spark-class"), *arguments],
                env=inherited | own | dict(environment or {}),
                cwd=local_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The JVM's pid, which is its process group's, too: spark-class ends in an exec."""
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything it printed."""
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until *pattern* is in its log."""
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while True:
            found = re.search(pattern, self.log)
            if found is not None:
                return found
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise SparkProcessError(f"no {pattern!r}:\n{self.log[-6000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to it and to its children."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


class StandaloneCluster:
    """A master and workers: `spark://` at `url`, each worker on a host (127.0.0.1, 127.0.0.2, ...) and of one core.

    Args:
        work_dir: a new folder for logs and all that the processes write.
        workers: how many.
    """

    def __init__(self, work_dir: Path, *, workers: int = 2) -> None:
        work_dir.mkdir(parents=True)
        self.work_dir = work_dir
        port = free_port()
        self.url = f"spark://{_MASTER_HOST}:{port}"
        self.master = SparkProcess(
            *("org.apache.spark.deploy.master.Master", "--host", _MASTER_HOST),
            *("--port", str(port), "--webui-port", "0"),
            name="master",
            work_dir=work_dir,
            environment={"SPARK_LOCAL_IP": _MASTER_HOST},
        )
        self.workers: list[SparkProcess] = []
        try:
            self.master.wait_for("New state: ALIVE")
            for number in range(1, workers + 1):
                self.workers.append(self._start_worker(number))
            for worker in self.workers:
                worker.wait_for("Successfully registered with master")
        except SparkProcessError:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def settings(self) -> dict[str, str]:
        """What a session on this cluster is configured with."""
        own = {
            "spark.master": self.url,
            # No task starts before all workers have their executors: else one may do all the work.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.cores.max": str(len(self.workers)),
        }
        return settings(self.work_dir / "driver") | own

    def kill_worker(self, number: int) -> None:
        """Let a worker, from 0 on, be lost as with its host: its JVM and its executors get SIGKILL."""
        self.workers[number].kill()

    def replace_worker(self, number: int) -> None:
        """Start a worker on the host of one that was killed."""
        self.workers[number] = self._start_worker(number + 1, generation=len(self.workers) + 1)
        self.workers[number].wait_for("Successfully registered with master")

    def stop(self) -> None:
        """End all processes, by their pids."""
        for process in (*self.workers, self.master):
            process.kill()

    def _start_worker(self, number: int, *, generation: int = 0) -> SparkProcess:
        host = f"127.0.0.{number}"
        return SparkProcess(
            *("org.apache.spark.deploy.worker.Worker", "--host", host, "--port", "0", "--webui-port", "0"),
            *(
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(self.work_dir / f"work-{number}-{generation}"),
            ),
            self.url,
            name=f"worker-{number}-{generation}" if generation else f"worker-{number}",
            work_dir=self.work_dir,
            environment={"SPARK_LOCAL_IP": host},
        )


class ConnectServer:
    """A Spark Connect server over `local[2]`; clients find it at `url`.

    Args:
        work_dir: a new folder for its log and all that it writes.
        master: where its tasks run.
    """

    def __init__(self, work_dir: Path, *, master: str = "local[2]") -> None:
        work_dir.mkdir(parents=True)
        port = free_port()
        self.url = f"sc://{_MASTER_HOST}:{port}"
        configured = settings(work_dir / "driver") | {
            "spark.connect.grpc.binding.address": _MASTER_HOST,
            "spark.connect.grpc.binding.port": str(port),
        }
        options = [word for name, value in configured.items() for word in ("--conf", f"{name}={value}")]
        self.process = SparkProcess(
            *("org.apache.spark.deploy.SparkSubmit", "--master", master, *options),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
            name="connect",
            work_dir=work_dir,
            environment={"SPARK_LOCAL_IP": _MASTER_HOST, "SPARK_DAEMON_MEMORY": "768m"},
        )
        self.process.wait_for("Spark Connect server started")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, by its pid."""
        self.process.kill()


def spark_home() -> Path:
    """The folder of the pyspark that is imported: it holds Spark as a whole."""
    import pyspark

    return Path(pyspark.__file__).parent
