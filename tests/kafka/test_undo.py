"""A recovery is taken back as long as no broker has been started on it, and not afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.sample_brokers import broker_of
from tests.logs.samples import differences, tree_of, unpack
from tests.runs.command import recover, run

pytestmark = [pytest.mark.java, pytest.mark.broker]


def live(root: Path) -> dict[str, bytes]:
    """The log dirs without `.deleted` files, which are gone for good."""
    return {
        name: data
        for name, data in tree_of(root).items()
        if name.startswith(("d1/", "d2/")) and not name.endswith(".deleted")
    }


def test_a_broker_that_was_started_cannot_be_taken_back(tmp_path: Path) -> None:
    sample = unpack("crashed", tmp_path)
    before = live(sample.root)
    assert recover(sample).exit_code == 0
    assert run("undo", "-c", sample.config).exit_code == 0
    assert differences(before, live(sample.root)) == []
    assert recover(sample).exit_code == 0
    with broker_of(sample, tmp_path / "work") as broker:
        broker.start()
        assert run("undo", "-c", sample.config).exit_code == 3  # it is locked
        broker.stop()
    found = tree_of(sample.root)
    refused = run("undo", "-c", sample.config)
    assert refused.exit_code == 3
    assert "changed since run " in refused.stderr
    assert differences(found, tree_of(sample.root)) == []
