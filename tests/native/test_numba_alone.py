"""KAFKA_LOG_RECOVERY_KERNELS=numba: what our linker, loader and cache do, numba does by itself, to the same end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from native import kernels
from native.errors import UnknownKernelsError
from tests.logs.samples import differences, tree_of, unpack

pytestmark = pytest.mark.long

QUARANTINE_RUN = r"\d{8}T\d{6}Z"
"""Named by the clock."""


class Outcome(NamedTuple):
    """What a recovery and a look at its result said, and what it left."""

    recovered: dict[str, Any]
    verified: dict[str, Any]
    trees: list[dict[str, bytes]]


def run(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run a command that prints JSON; return it as it would be in any folder at any time."""
    finished = subprocess.run(
        [sys.executable, "-m", "recovery", *arguments, "--progress", "none", "--format", "json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode in (0, 2), finished.stderr
    text = re.sub(QUARANTINE_RUN, "RUN", finished.stdout.replace(str(folder), ""))
    document: dict[str, Any] = json.loads(text)
    for part in (document, *document["logDirs"]):
        for of_the_moment in ("durationMs", "phases", "freeBytes"):
            part.pop(of_the_moment, None)
    return document


def outcome(folder: Path, **environment: str) -> Outcome:
    """Recover the crashed sample below *folder*, then verify it."""
    folder.mkdir()
    sample = unpack("crashed", folder)
    common = ("-c", str(sample.config))
    recovered = run(folder, "recover", *common, "--now", str(sample.now_ms), **environment)
    verified = run(folder, "verify", *common, **environment)
    return Outcome(recovered, verified, [tree_of(log_dir) for log_dir in sample.log_dirs])


def test_numba_alone_does_the_same(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    ours = outcome(tmp_path / "ours")
    numbas = outcome(
        tmp_path / "numbas", XDG_CACHE_HOME=str(cache), NUMBA_CACHE_DIR="", KAFKA_LOG_RECOVERY_KERNELS="numba"
    )
    assert not cache.exists()
    assert [differences(*pair) for pair in zip(ours.trees, numbas.trees, strict=True)] == [[]] * 2
    assert ours.recovered["kernels"].pop("origin") in ("cache", "compiled")
    assert numbas.recovered["kernels"].pop("origin") == "memory"
    assert numbas.recovered == ours.recovered
    assert numbas.verified == ours.verified


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.ENVIRONMENT, "gcc")
    with pytest.raises(UnknownKernelsError, match="KAFKA_LOG_RECOVERY_KERNELS: 'gcc' is none of: numba"):
        kernels.target.__wrapped__()
