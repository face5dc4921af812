"""The page as it is sent: small, whole, and held to itself by its policy; and in a browser, in all states.

tests/recovery/cli/test_page.py looks at that of real runs.
"""

import hashlib
import re
from base64 import b64encode
from contextlib import contextmanager
from html.parser import HTMLParser

import pytest

from recovery.watch.events import Remark
from recovery.watch.http.page import page
from tests.recovery.watch.test_http import serving
from tests.runs.event_streams import (
    A,
    B,
    at,
    dir_started,
    log_finished,
    log_started,
    one_of_each,
    run_started,
    sampled,
    scanned,
)
from tests.servers.machine import CHROMIUM, needs

MOST_BYTES = 64 << 10
FETCHING = ("src", "href", "srcset", "action", "data", "poster", "background", "style")


class Elements(HTMLParser):
    """All elements, each with its attributes and the text up to the next tag."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.is_inside = False
        self.feed(page().body.decode())

    def handle_starttag(self, tag, attributes):
        self.found.append([tag, dict(attributes), ""])
        self.is_inside = True

    def handle_endtag(self, tag):
        self.is_inside = False

    def handle_data(self, data):
        if self.is_inside:
            self.found[-1][2] += data


def directives():
    policy = page().headers["Content-Security-Policy"]
    return {name: values for name, *values in (part.split() for part in policy.split(";"))}


@pytest.mark.parametrize("tag", ["script", "style"])
def test_the_policy_lets_the_only_script_and_style_of_the_page_and_no_other(tag):
    ((_, attributes, text),) = [one for one in Elements().found if one[0] == tag]
    assert attributes == {}
    assert directives()[f"{tag}-src"] == [
        f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    ]


def test_the_policy_lets_nothing_else():
    assert directives() | {"script-src": [], "style-src": []} == {
        "default-src": ["'none'"],
        "script-src": [],
        "style-src": [],
        "connect-src": ["'self'"],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
        "require-trusted-types-for": ["'script'"],
        "trusted-types": ["'none'"],
    }


def test_the_page_is_small():
    assert len(page().body) <= MOST_BYTES


def test_nothing_comes_from_elsewhere():
    """Links of its own server are relative, so that a proxy may serve it below a path."""
    named = {
        value
        for _, attributes, _ in Elements().found
        for name, value in attributes.items()
        if name in FETCHING
    }
    assert named == {"data:,", "metrics", "api/v1/status"}
    addresses = set(re.findall(rb"[a-z]+://[^\s\"'`]+", page().body))
    assert addresses == {b"http://www.w3.org/2000/svg"}  # a name, which nobody asks for
    assert b"@import" not in page().body
    assert b"url(" not in page().body


def test_no_attribute_is_a_script():
    assert not [name for _, attributes, _ in Elements().found for name in attributes if name.startswith("on")]


def test_identifiers_are_unique_and_labels_lead_somewhere():
    attributes = [one[1] for one in Elements().found]
    identifiers = [one["id"] for one in attributes if "id" in one]
    assert len(identifiers) == len(set(identifiers))
    referred = [
        one[name] for one in attributes for name in ("aria-labelledby", "aria-describedby") if name in one
    ]
    assert referred
    assert set(referred) <= set(identifiers)
    asked = set(re.findall(r'\bat\("([\w-]+)"\)', page().body.decode()))
    assert asked <= set(identifiers)


def test_without_javascript_the_page_says_where_the_figures_are():
    text = page().body.decode()
    (inside,) = re.findall("<noscript>(.*?)</noscript>", text, re.DOTALL)
    assert "needs JavaScript" in inside
    assert re.findall('href="([^"]+)"', inside) == ["metrics", "api/v1/status"]


# -- contrast -------------------------------------------------------------------------


def colours(scheme):
    first, second = re.findall(r":root \{(.*?)\}", page().body.decode(), re.DOTALL)[:2]
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text)) for text in (first, second))
    return light if scheme == "light" else light | dark


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("text", ["text", "soft", "busy", "good", "warn", "bad"])
@pytest.mark.parametrize("ground", ["ground", "card"])
def test_text_stands_out(scheme, text, ground):
    """By WCAG 2 AA, 4.5 to 1."""
    found = colours(scheme)
    low, high = sorted((luminance(found[text]), luminance(found[ground])))
    assert (high + 0.05) / (low + 0.05) >= 4.5


# -- in a browser ---------------------------------------------------------------------

in_browser = [pytest.mark.browser, needs(CHROMIUM)]
DASH = "\N{EN DASH}"


@contextmanager
def shown(chromium, *stream, monotonic_s=1000.0, width=1280, script="", **options):
    """The page of a server that was told *stream*, after the first answer."""
    with serving(**options) as served:
        served.monotonic_s = monotonic_s
        served.tell(*stream)
        with chromium.open(f"http://127.0.0.1:{served.port}/", width=width, height=900, before=script) as tab:
            tab.wait_for("seen.status")
            yield served, tab
            assert tab.complaints() == []


def tell(served, tab, *stream):
    """Tell the server more, and wait until the page has asked after that."""
    served.tell(*stream)
    tab.value("seen.status = null")
    tab.wait_for("seen.status")  # which may have been asked for before
    tab.value("seen.status = null")
    tab.wait_for("seen.status")


class TestInABrowser:
    pytestmark = in_browser

    def test_a_run_that_has_stalled_says_so(self, chromium):
        with shown(chromium, run_started(), dir_started(), scanned(300, **at(1)), monotonic_s=1001.2) as (
            served,
            tab,
        ):
            assert tab.text("#motion") == "Moving"
            served.monotonic_s = 1009.0
            tell(served, tab)
            assert tab.text("#motion") == "Nothing has moved for 8s"
            served.monotonic_s = 1361.0
            tell(served, tab)
            assert tab.text("#motion") == "Stalled: nothing has moved for 6m 00s"
            assert tab.text("#announcement") == "Stalled"
            assert tab.value("at('now').dataset.tone") == "bad"

    def test_what_was_cut_and_refused(self, chromium):
        with shown(chromium, *one_of_each(), monotonic_s=1001.0) as (_, tab):
            assert tab.text("#state") == "Recovered in part: 2 log dirs"
            assert tab.text("#motion") == "Exit code 4: not all could be recovered"
            assert tab.text("#cut") == "548 B, 5 batches"
            assert tab.text("#trouble") == "1 refused"
            cells = [tab.texts(f"#dir-rows tr:nth-child({row}) td") for row in (1, 2)]
            assert [row[1] for row in cells] == ["2/2", "0/1"]
            assert [row[-1] for row in cells] == ["done", "offline"]
            assert cells[1][0] == DASH
            assert tab.text("#worst").startswith("Error (1 of ")

    def test_a_broker_that_is_watched(self, chromium):
        with shown(chromium, source="watch") as (served, tab):
            assert tab.text("#state") == "Waiting for a recovery"
            assert [tab.text(f"#{name}") for name in ("logs", "bytes", "cut", "trouble")] == [DASH] * 4
            tell(served, tab, run_started(), dir_started(bytes_total=0), log_started(recover_bytes=0))
            assert tab.text("#state") == "Broker: recovering 2 log dirs"
            assert tab.text("#logs") == "0/2"
            assert [tab.text(f"#{name}") for name in ("bytes", "cut", "trouble")] == [DASH] * 3
            assert tab.texts("#dir-rows td.bytes") == [DASH, DASH]

    def test_large_figures_fit_views_of_any_width(self, chromium):
        large = {"log_count": 123_456_789, "segment_count": 987_654_321, "bytes_total": 123 << 40}
        lost = {"truncated_bytes": 123 << 30, "truncated_batches": 1_234_567}
        stream = (
            log_started(),
            scanned(99 << 40, **at(1)),
            log_finished(status="truncated", **lost, **at(2)),
        )
        begun = (
            run_started(log_dirs=("/data/" * 20, A)),
            dir_started(**large),
            dir_started("/data/" * 20, **large),
        )
        with shown(chromium, *begun, *stream, monotonic_s=1003.0) as (_, tab):
            for width in (320, 390, 600, 641, 800, 900, 1000, 1080, 1090, 1120, 1200, 1900):
                tab.resize(width, 900)
                inner = tab.value(
                    "[...document.querySelectorAll('section')].map((one) => one.scrollWidth - one.clientWidth)"
                )
                assert (width, max(inner)) == (width, 0)
                assert tab.value("document.documentElement.scrollWidth") == width

    def test_a_cordoned_log_dir(self, chromium):
        with shown(chromium, run_started(cordoned_log_dirs=(B,)), dir_started(), dir_started(B)) as (_, tab):
            assert tab.texts("#dir-rows th") == [A, f"{B} cordoned"]

    def test_the_gauges_of_a_broker(self, chromium):
        """They tell of logs, and of the segments of the log in hand, but not which log that is."""
        begun = (
            run_started(log_dirs=(A,), command="watch"),
            dir_started(log_count=40, segment_count=0, bytes_total=0),
        )
        samples = [sampled(40 - second, (2, 1), **at(second)) for second in range(9)]
        with shown(chromium, *begun, *samples, source="watch", monotonic_s=1008.0) as (served, tab):
            assert [tab.text(f"#{name}") for name in ("logs", "segments", "bytes")] == ["8/40", DASH, DASH]
            assert tab.text("#percent") == "20 %"
            assert tab.text("#left").endswith("sleft")
            rows = tab.value(
                "[...document.querySelectorAll('#threads tr:not(.dir)')].map((row) => row.textContent)"
            )
            assert rows[1:] == [f"0{DASH}2", f"1{DASH}1"]
            served.monotonic_s = 1010.0
            tell(served, tab, sampled(30, (1, 1), **at(10)))
            assert "logs/min" in tab.text("#rate-text")

    def test_the_worst_of_many_notices_is_at_the_top(self, chromium):
        remarks = [Remark(text=f"remark {i}", level="warning", **at(0)) for i in range(150)]
        remarks[70] = Remark(text="the worst", level="error", **at(0))
        with shown(chromium, run_started(), *remarks) as (_, tab):
            assert tab.text("#worst") == "Error (1 of 150): the worst"
            assert tab.text("#notice-text") == "150 in all, the latest 100 of them here, the worst first."
            assert tab.texts("#notice-rows li")[:2] == ["Errorthe worst", "Warningremark 149"]
            assert len(tab.texts("#notice-rows li")) == 5
            assert len(tab.texts("#more-rows li")) == 95

    def test_nothing_jumps_when_there_is_news(self, chromium):
        places = "[...document.querySelectorAll('section')].map((one) => one.getBoundingClientRect().top)"
        for width in (1280, 390):
            with shown(chromium, run_started(), dir_started(), width=width) as (served, tab):
                before = tab.value(places)
                served.monotonic_s = 1003.0
                news = (
                    log_started(),
                    scanned(300, **at(1)),
                    Remark(text="long " * 50, level="error", **at(2)),
                )
                tell(served, tab, *news)
                assert tab.text("#rate") != DASH
                after = tab.value(places)
                assert after[:3] == before[:3]

    def test_it_asks_less_often_when_nobody_looks_or_nobody_answers(self, chromium):
        record = "window.waits = []; const set = setTimeout; setTimeout = (f, ms) => (waits.push(ms), set(f, ms / 50))"
        with shown(chromium, run_started(), script=record) as (_, tab):
            assert tab.wait_for("waits.length > 2 && waits.at(-1)") == 1000
            tab.value("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
            tab.wait_for("waits.at(-1) === 10000")
            tab.value("delete document.hidden; window.fetch = () => Promise.reject(new Error('gone'))")
            tab.wait_for("waits.at(-1) === 15000")
            found = tab.value(
                "waits.slice(waits.lastIndexOf(10000) + 1).filter((ms, i, all) => ms !== all[i - 1])"
            )
            assert found == [1000, 2000, 4000, 8000, 15000]

    def test_the_chart_remembers_all_of_a_long_run_in_little_memory(self, chromium):
        feed = """(() => {
          for (let second = 1; second <= 20000; second++) {
            remember({ ...seen.status, now_ms: seen.status.now_ms + second * 1000, scanned_bytes: second * second });
          }
          const [first, last] = [chart.points[0], chart.points.at(-1)];
          return [chart.points.length, last.amount - first.amount, last.ms - first.ms];
        })()"""
        with shown(chromium, run_started(), dir_started(), monotonic_s=1002.0) as (_, tab):
            count, read_bytes, span_ms = tab.value(feed)
            assert 500 < count <= 1201
            assert read_bytes == 20000 * 20000
            assert span_ms == 20000 * 1000

    def test_below_a_path_of_a_proxy_it_asks_below_that_path(self, chromium):
        with shown(chromium, run_started()) as (served, tab):
            tab.value("history.replaceState(null, '', '/proxy/of/broker-1/')")
            tab.wait_for("seen.failures > 0")
            assert tab.requested()[-1] == f"http://127.0.0.1:{served.port}/proxy/of/broker-1/api/v1/status"
            tab.value("history.replaceState(null, '', '/')")
            tab.wait_for("!seen.failures")
