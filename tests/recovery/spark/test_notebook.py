"""The notebook in docs/archives/dataframes.md runs as it stands, but for the names of bucket, topic and output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import ROOT
from tests.logs.samples import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOCUMENT = ROOT / "docs/archives/dataframes.md"


def test_it_finds_rebuilds_and_counts(
    local_spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, output = unpack("crashed", tmp_path).root, tmp_path / "checked"
    (folder,) = root.glob("d?/codec-zstd-0")
    index = min(folder.glob("*.index"))
    expected = index.read_bytes()
    index.unlink()
    log = max(folder.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    notebook = DOCUMENT.read_text().partition("## A notebook")[2]
    code = re.search(r"```python\n(.*?)```", notebook, re.DOTALL)
    assert code is not None
    text = code[1].replace("s3://backups/kafka", str(root)).replace("s3://backups/checked", str(output))
    exec(text.replace('"orders"', '"codec-zstd"'), {"spark": local_spark})
    shown = capsys.readouterr().out
    assert f"DAMAGED {log.relative_to(root)} at byte 0: checksum" in shown
    assert re.search(r"\|missing-index\|\s+NULL\|", shown)
    assert re.search(r"\|2026-11-21 \d\d:00:00\|\s+NULL\|\s+\d+\|", shown)
    assert re.search(r"\|checksum: the st\S*\|\s+\d+\|", shown)
    (rebuilt,) = (output / "recovered").rglob(index.name)
    assert rebuilt.read_bytes() == expected
