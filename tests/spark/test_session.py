"""Sessions that the tool starts by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.spark.session import open_session
from tests.spark_cluster import settings

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark

_COMPILER = {f"spark.{side}.defaultJavaOptions": "-XX:TieredStopAtLevel=1" for side in ("driver", "executor")}


def test_jvms_of_one_run_compile_quickly(tmp_path: Path) -> None:
    spark = open_session(master="local[1]", is_for_one_run=True, settings=settings(tmp_path))
    try:
        context: SparkContext = spark.sparkContext
        once = dict(context.getConf().getAll())
        assert open_session() is spark  # the active one, as it is
    finally:
        spark.stop()
    assert _COMPILER.items() <= once.items()
    given = settings(tmp_path)["spark.executor.extraJavaOptions"]
    assert given in once["spark.executor.extraJavaOptions"]  # options of others stay
