"""The page of a run in a real browser: it shows what `/api/v1/status` says, whatever files are called."""

from __future__ import annotations

import functools
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recovery.printable import printable
from recovery.quantity import bytes_text, duration_text, rate_text
from tests.logs.large_log_dirs import make_large
from tests.logs.samples import Sample, unpack
from tests.patience import LONGEST_WAIT_SECONDS
from tests.runs.command import run, start
from tests.runs.paused import resume, start_paused
from tests.servers.chromium import Chromium, Tab
from tests.servers.machine import CHROMIUM, needs

pytestmark = [pytest.mark.browser, needs(CHROMIUM)]

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
MARKUP = "<img src=x onerror=window.pwned=1>"
SCRIPT = "<script>window.pwned=1<script>-7"
WATCH = ("watch", "-", "--forever", "--metrics-port", "0", "--progress", "log")
PAGE = re.compile(r"http://127\.0\.0\.1:\d+/(?!metrics)")
DASH = "\N{EN DASH}"
SHOWN = """(() => {
  const texts = (root, query) => [...root.querySelectorAll(query)].map((one) => one.textContent);
  const rows = (query) => [...document.querySelectorAll(query)].map((row) => texts(row, "th, td"));
  return {
    status: seen.status,
    left: texts(at("left"), ":scope > *")[0] && at("left").firstChild.textContent,
    figures: texts(at("now"), "dd"),
    dirs: rows("#dir-rows tr"),
    sum: rows("#sum-row tr"),
    threads: rows("#thread-rows tbody tr:not(.dir)"),
    notices: texts(at("notices"), "li"),
  };
})()"""
"""What the page shows, and the answer that it shows it of, at one moment."""


@pytest.fixture
def hostile(tmp_path: Path) -> Sample:
    """Large log dirs below a folder named like an element, with a damaged partition named like a script."""
    sample = make_large(tmp_path / MARKUP, copies=4, large_partitions=2, segment_mib=4)
    large = sample.log_dirs[0] / "large-0"
    with (large / f"{0:020}.log").open("ab") as log:
        log.write(b"torn" * 8)
    large.rename(large.with_name(SCRIPT))
    return sample


def recovering(sample: Sample) -> tuple[object, ...]:
    return ("recover", "-c", sample.config, "--now", sample.now_ms, "--format", "json")


@contextmanager
def served(
    command: Iterable[object], folder: Path, *more: object, port: int = 0
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run, and the address of its page."""
    told = folder / "standard-error"
    arguments = (*command, "--metrics-port", port, "--progress", "log", *more)
    with told.open("w") as stderr, ended(start(*map(str, arguments), stderr=stderr)) as process:
        yield process, address_in(told, process)


def address_in(told: Path, process: subprocess.Popen[str]) -> str:
    """Return the address of the page as soon as *process* has *told* it."""
    while (found := PAGE.search(told.read_text())) is None:
        assert process.poll() is None, told.read_text()
        time.sleep(0.05)
    return found.group()


@contextmanager
def held(arguments: Iterable[object], event: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run that waits at the first such event, and the address of its page."""
    with ended(start_paused(event, 1, *arguments, "--metrics-port", 0, "--progress", "log")) as process:
        assert process.stderr is not None
        found = PAGE.search(process.stderr.readline())
        assert found
        yield process, found.group()


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Kill *process* at the end, if it is still there."""
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


def asked(url: str) -> Any:
    with urllib.request.urlopen(f"{url}api/v1/status", timeout=LONGEST_WAIT_SECONDS) as answer:
        return json.loads(answer.read())


def of(done: int, total: int) -> str:
    return f"{done:,}/{total:,}"


def bytes_of(figures: dict[str, Any]) -> str:
    total = figures["bytes_total"]
    return f"{bytes_text(total - figures['remaining_bytes'])} of {bytes_text(total)}" if total else DASH


def rate_of(figures: dict[str, Any]) -> str:
    rate = figures["bytes_per_second"]
    return DASH if rate is None else rate_text(rate)


def left_of(figures: dict[str, Any]) -> str:
    eta = figures["eta_seconds"]
    return DASH if eta is None else duration_text(eta)


def share_of(figures: dict[str, Any], *, is_done: bool) -> str:
    names = ("remaining_bytes", "bytes_total") if figures["bytes_total"] else ("", "log_count")
    total = figures[names[1]]
    done = total - figures["remaining_bytes"] if names[0] else figures["finished_logs"]
    return f"{100 if is_done else int(min(done / total, 0.99) * 100)} %"


def trouble_of(log_dirs: list[dict[str, Any]]) -> str:
    counts = {
        how: sum(d["partitions"].get(how, 0) for d in log_dirs) for how in ("refused", "failed", "damaged")
    }
    return ", ".join(f"{count:,} {how}" for how, count in counts.items() if count)


def notice_of(notice: dict[str, Any]) -> str:
    place, text = f"{notice['log_dir']}/{notice['partition']}", notice["text"]
    return printable(text if place in text else f"{place}: {text}")


def thread_row_of(thread: dict[str, Any]) -> list[str]:
    left = thread["remaining_segments"] if thread["partition"] or thread["remaining_segments"] else None
    return [str(thread["thread_num"]), thread["partition"] or DASH, DASH if left is None else f"{left:,}"]


def segments_of(figures: dict[str, Any], *, is_watched: bool) -> str:
    is_known = figures["segment_count"] or not is_watched
    return of(figures["finished_segments"], figures["segment_count"]) if is_known else DASH


def row_of(name: str, figures: dict[str, Any], *, is_done: bool, left: str, is_watched: bool) -> list[str]:
    cut = figures["truncated_bytes"]
    return [
        name + " cordoned" * bool(figures.get("is_cordoned")),
        share_of(figures, is_done=is_done),
        of(figures["finished_logs"], figures["log_count"]),
        segments_of(figures, is_watched=is_watched),
        bytes_of(figures),
        DASH if is_done else rate_of(figures),
        bytes_text(cut) if cut else DASH,
        left,
    ]


def expected_of(status: dict[str, Any]) -> dict[str, Any]:
    """What the page must show of an answer."""
    log_dirs, is_over = status["log_dirs"], status["exit_code"] is not None
    are_done = all(log_dir["is_finished"] for log_dir in log_dirs)
    cut = status["truncated_bytes"]
    batches = f", {status['truncated_batches']:,} batch{'es' * (status['truncated_batches'] != 1)}"
    overall = (
        rate_text(status["scanned_bytes"] / status["elapsed_seconds"]) if status["scanned_bytes"] else DASH
    )
    is_watched = status["source"] == "watch"
    nothing, none = (DASH, DASH) if is_watched else ("nothing", "none")
    row = functools.partial(row_of, is_watched=is_watched)
    rank = ["error", "warning", "info"]
    notices = list(reversed(status["notices"]))
    notices.sort(key=lambda notice: rank.index(notice["level"]))
    return {
        "left": "Done" if is_over else left_of(status),
        "figures": [
            of(status["finished_logs"], status["log_count"]),
            segments_of(status, is_watched=is_watched),
            bytes_of(status),
            overall if is_over else rate_of(status),
            None,
            duration_text(status["elapsed_seconds"]),
            bytes_text(cut) + (batches if status["truncated_batches"] else "") if cut else nothing,
            trouble_of(log_dirs) or none,
        ],
        "dirs": [
            row(d["log_dir"], d, is_done=d["is_finished"], left="done" if d["is_finished"] else left_of(d))
            for d in log_dirs
        ],
        "sum": [row("all", status, is_done=are_done, left="done" if are_done else left_of(status))],
        "threads": [
            thread_row_of(t) for d in log_dirs for t in d["threads"] if not d["is_finished"] and not is_over
        ],
        "notices": [f"{one['level'].capitalize()}{notice_of(one)}" for one in notices],
    }


def assert_shown(tab: Tab) -> dict[str, Any]:
    """Hold what the page shows against the answer it shows, and return that."""
    shown = tab.value(SHOWN)
    status: dict[str, Any] = shown.pop("status")
    assert re.fullmatch(r"(\d+ \w+ )?\d\d:\d\d:\d\d", shown["figures"][4])  # in the zone of the browser
    shown["figures"][4] = None
    assert shown == expected_of(status)
    assert status in tab.answers("/api/v1/status")
    return status


def assert_harmless(tab: Tab, url: str) -> None:
    """Nothing was run or fetched that is not the page's own."""
    assert tab.complaints() == []
    assert {address for address in tab.requested() if not address.startswith((url, "data:"))} == set()
    assert tab.value("[document.scripts.length, document.images.length, typeof pwned]") == [1, 0, "undefined"]


def assert_narrow(tab: Tab) -> None:
    """Nothing is wider than the view."""
    widths = tab.value("[...document.querySelectorAll('html, body *')].map((one) => one.scrollWidth)")
    assert max(widths) <= tab.value("innerWidth")


def test_it_shows_the_status_of_a_run_and_keeps_the_last_when_the_process_ends(
    hostile: Sample, chromium: Chromium
) -> None:
    slowly = (*recovering(hostile), "--max-bytes-per-second", "3m")
    with (
        held(slowly, "LogDirStarted") as (process, url),
        chromium.open(url, **DESKTOP) as tab,
    ):
        tab.wait_for("seen.status?.state === 'recovering'")  # a slow browser misses nothing
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        earlier = 0
        for share in (0.1, 0.4, 0.7):
            tab.wait_for(f"seen.status?.scanned_bytes >= {share} * seen.status?.bytes_total")
            status, later = assert_shown(tab), asked(url)
            assert status["state"] == "recovering"
            assert status["started_ms"] == later["started_ms"]
            assert earlier < status["scanned_bytes"] <= later["scanned_bytes"]
            earlier = status["scanned_bytes"]
        assert any(thread["partition"] for log_dir in status["log_dirs"] for thread in log_dir["threads"])
        process.communicate(timeout=LONGEST_WAIT_SECONDS)
        assert process.returncode == 2
        tab.wait_for("at('link').textContent.startsWith('no answer since')")
        assert assert_shown(tab) == tab.answers("/api/v1/status")[-1]
        assert "last figures, of" in tab.text("#motion")
        assert_harmless(tab, url)


def test_names_are_text(hostile: Sample, chromium: Chromium) -> None:
    with held(recovering(hostile), "RunFinished") as (process, url), chromium.open(url, **PHONE) as tab:
        tab.wait_for("seen.status?.exit_code === 2")
        status = assert_shown(tab)
        assert all(MARKUP in log_dir["log_dir"] for log_dir in status["log_dirs"])
        assert any(SCRIPT in text for text in tab.texts("#notices li"))
        assert MARKUP in tab.text("#worst")
        assert_narrow(tab)
        assert_harmless(tab, url)
        assert resume(process)[0] == 2


def test_a_new_process_is_picked_up(tmp_path: Path, chromium: Chromium) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sample = unpack("crashed", tmp_path)
    slowly = ("--max-bytes-per-second", "100k", "--dry-run")
    with (
        served(recovering(sample), tmp_path, *slowly, port=port) as (first, url),
        chromium.open(url, **DESKTOP) as tab,
    ):
        tab.wait_for("chart.points.length > 1")
        started_ms = tab.value("seen.status.started_ms")
        first.kill()
        tab.wait_for("document.body.dataset.is === 'lost'")
        assert tab.text("#state").startswith("No answer: Recovering 2 log dirs (dry run")
        first.communicate()
        with served(recovering(sample), tmp_path, *slowly, port=port):
            tab.wait_for(f"seen.status.started_ms > {started_ms} && seen.status.state === 'recovering'")
            assert_shown(tab)
            assert tab.value("!chart.points.length || chart.points[0].ms >= seen.status.started_ms")


def test_a_broker_that_is_watched(tmp_path: Path, chromium: Chromium) -> None:
    sample = unpack("crashed", tmp_path)
    lines = run(*map(str, recovering(sample)), "--progress", "log").stderr.splitlines(keepends=True)
    told = tmp_path / "standard-error"
    with told.open("w") as stderr, ended(start(*WATCH, stderr=stderr)) as process:
        assert process.stdin is not None
        tenth = [number for number, line in enumerate(lines, 1) if "Completed load of" in line][9]
        process.stdin.writelines(lines[:tenth])
        process.stdin.flush()
        with chromium.open(address_in(told, process), **DESKTOP) as tab:
            tab.wait_for("seen.status?.finished_logs === 10")
            assert assert_shown(tab)["source"] == "watch"
            assert tab.text("#state") == "Broker: recovering 2 log dirs"
            process.stdin.writelines(lines[tenth:])
            process.stdin.flush()
            tab.wait_for("seen.status.state === 'complete'")
            assert assert_shown(tab)["finished_logs"] == 29
            assert tab.text("#state") == "Broker: recovered 2 log dirs"


def test_what_is_not_known_is_a_dash(tmp_path: Path, chromium: Chromium) -> None:
    begun = held(recovering(unpack("crashed", tmp_path)), "RunStarted")
    with begun as (process, url), chromium.open(url, **DESKTOP) as tab:
        tab.wait_for("seen.status")
        shown = tab.value(SHOWN)
        assert shown["left"] == DASH
        assert shown["figures"][:4] == [DASH] * 4
        assert [row[1:] for row in shown["dirs"]] == [[DASH] * 7] * 2
        assert not re.search("NaN|undefined|null|Infinity", tab.value("document.body.innerText"))
        assert resume(process)[0] == 0


def test_many_log_dirs_with_long_names_fit_a_phone(tmp_path: Path, chromium: Chromium) -> None:
    original = next(unpack("crashed", tmp_path).root.glob("*/codec-none-0"))
    log_dirs = [tmp_path / ("deep-" * 20) / f"kafka-log-dir-{number}" for number in range(24)]
    for number, log_dir in enumerate(log_dirs):
        shutil.copytree(original, log_dir / f"{'a-very-long-name-of-a-topic.' * 7}-{number}")
        (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    command = ("recover", "--log-dirs", ",".join(map(str, log_dirs)), "--threads", "4", "--format", "json")
    with held(command, "SegmentRecovered") as (process, url), chromium.open(url, **PHONE) as tab:
        tab.wait_for("seen.status")
        assert len(tab.texts("#dir-rows tr")) == 24
        tab.value("at('thread-details').open = true")
        assert max(map(len, tab.texts("#threads .name"))) > 190
        for width in (390, 320):
            tab.resize(width, 844)
            assert_narrow(tab)
        nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
        roles = {node["role"]["value"] for node in nodes if not node["ignored"]}
        assert roles >= {
            "table",
            "row",
            "columnheader",
            "rowheader",
            "cell",
            "progressbar",
            "heading",
            "main",
        }
        # Not every browser knows the cells of a table that is laid out in another way, unless they say what they are
        cells = (
            "[...document.querySelectorAll(':is(#dirs, #threads) :is(tr, th, td)')].map((one) => one.role)"
        )
        assert set(tab.value(cells)) == {"row", "columnheader", "rowheader", "cell"}
        assert resume(process)[0] == 4  # they have no meta.properties


def test_without_javascript_it_says_where_the_figures_are(tmp_path: Path, chromium: Chromium) -> None:
    begun = held(recovering(unpack("intact", tmp_path)), "LogDirStarted")
    with begun as (process, url), chromium.open(url, **PHONE, script=False) as tab:
        assert "This page needs JavaScript" in tab.value("document.body.innerText")
        links = tab.value("[...document.querySelectorAll('noscript a')].map(a => a.href)")
        assert links == [f"{url}metrics", f"{url}api/v1/status"]
        assert resume(process)[0] == 0


SIZES = [0, 1, 999, 999.4, 999.5, 1000, 1023, 1152, 1408, 10_235, 102_348, 2**60, 2**70]
TIMES = [0, 0.2, 1, 59.2, 60, 3599.1, 3600, 86399.5, 86400, 1e7]
NAMES = ["a/b-0", "\x1b[2J", "\u202eevil", "\udcff", "\U000e0001", "caf\u00e9", "\u65e5"]


@pytest.mark.parametrize(
    ("name", "function", "values"),
    [
        ("bytesText", bytes_text, SIZES),
        ("bytesText", bytes_text, [round(1.37**n) for n in range(150)]),
        ("durationText", duration_text, TIMES),
        ("printable", printable, NAMES),
    ],
)
def test_figures_and_names_are_written_as_on_the_terminal(
    name: str, function: Callable[[Any], str], values: list[Any], tmp_path: Path, chromium: Chromium
) -> None:
    begun = held(recovering(unpack("intact", tmp_path)), "RunStarted")
    with begun as (process, url), chromium.open(url, **DESKTOP) as tab:
        written = tab.value(f"{json.dumps(values)}.map((value) => {name}(value))")
        assert written == [function(value) for value in values]
        assert resume(process)[0] == 0
