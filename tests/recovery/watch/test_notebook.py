"""The line of a notebook's cell, and when it is shown."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from recovery.spark import archive
from recovery.watch.gauges import Gauges
from recovery.watch.notebook import NotebookLine, is_notebook
from tests.brokers.tiered_broker import TieredArchive
from tests.runs.event_streams import checking

SHELLS = {"kernel": SimpleNamespace(kernel=object()), "terminal": SimpleNamespace(), "none": None}


@pytest.fixture
def within(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Within IPython: its kernel, its terminal, or a program that only has it imported."""
    shell = SHELLS[request.param]
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return request.param == "kernel"


@pytest.mark.parametrize("within", SHELLS, indirect=True)
def test_verify_and_recover_show_it_in_a_notebook_alone(
    within: bool, stored_archive: TieredArchive, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_notebook() == within
    url, output = str(stored_archive.path), str(tmp_path)
    for run in (archive.verify, archive.recover):
        report = run(url, output=output, topics=["plain"])
        shown = capsys.readouterr()
        assert shown.err == ""
        last = shown.out.rpartition("\r")[2]
        logs = f"{report.summary.partitions}/{report.summary.partitions} logs, "
        assert (last.startswith(logs) and last.endswith("\n")) == within
        assert within or not shown.out


def test_it_can_be_asked_for_and_left_out(
    stored_archive: TieredArchive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.verify(str(stored_archive.path), topics=["plain"], progress=True)
    assert "segments" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SHELLS["kernel"]))
    archive.verify(str(stored_archive.path), topics=["plain"], progress=False)
    assert capsys.readouterr().out == ""


def test_a_shorter_text_leaves_nothing_of_a_longer_one() -> None:
    stream, gauges = io.StringIO(), Gauges()
    line = NotebookLine(stream, gauges)
    url = f"s3://bucket/{'long/' * 30}"
    for event in checking("archive verify", url):
        gauges(event)
        line(event)
    _, listing, *figures = stream.getvalue().removesuffix("\n").split("\r")
    assert listing == f"listing {url}"
    assert len(figures[0]) == len(listing)
    assert figures[-1].rstrip().startswith("2/2 logs, ")
