"""What a newcomer runs first: `python3 dev.py demo`."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT


def test_the_demonstration_recovers_and_finds_nothing_left(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    # In the environment that there is: another one would be made for a checkout that has none.
    monkeypatch.setattr(dev, "ENVIRONMENT", Path(sys.prefix))
    monkeypatch.setattr(dev, "make_environment", lambda: None)
    assert dev.main(["demo"]) == 0
    said = capfd.readouterr()
    first, second = said.out.split("Once more: there is nothing left to do.")
    assert re.search(r"^29 partitions: 29 recovered", first, re.MULTILINE)
    assert re.search(r"^29 partitions: 29 unchanged", second, re.MULTILINE)
    assert "Traceback" not in said.err
