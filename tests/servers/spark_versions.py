"""The oldest Spark that is supported, beside the newest one in the environment.

Spark's package is 450 MB of jars, so there is no second environment: pip puts the older one alone into a folder of the
cache, and a process that has this folder first on its path runs with it and with everything else as it is.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.servers.build_cache import cached

OLDEST = "4.1.4"


class SparkUnavailableError(RuntimeError):
    """There is no Java for Spark, or pip could not fetch its package."""


@functools.cache
def oldest_spark() -> Path:
    """The folder with pyspark 4.1; fetched where it is not in the cache yet, which takes a minute."""

    def fetch(into: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-cache-dir",
        ]
        done = subprocess.run(
            [*command, "--no-deps", "--target", str(into), f"pyspark=={OLDEST}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SparkUnavailableError(f"pip could not fetch pyspark {OLDEST}:\n{done.stderr[-3000:]}")

    return cached("pyspark", [], [OLDEST], fetch)


def environment_of_oldest_spark() -> dict[str, str]:
    """The environment of a process that runs with pyspark 4.1 from this checkout."""
    left_out = ("SPARK_", "PYSPARK_", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return environment | {"PYTHONPATH": os.pathsep.join([str(oldest_spark()), str(ROOT)])}
