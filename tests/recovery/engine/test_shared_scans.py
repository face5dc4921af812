"""Scans shared among threads: each made once, in any order, errors included, and nobody waits for ever."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable

import pytest

from recovery.engine.shared_scans import SharedScans
from recovery.load.model import Original, ScanMode, ScanRequest
from tests.patience import LONGEST_WAIT_SECONDS


def request(number: int, mode: ScanMode = ScanMode.RECOVER, **fields: int) -> ScanRequest:
    part = Original(file=f"{number:020d}.log", size_bytes=100)
    return ScanRequest(part=part, base_offset=number, mode=mode, **fields)


class Scanner:
    """Makes "scans" that tell which one they are, slowly, and counts them."""

    def __init__(self, delay_s: float = 0.0, failing: int | None = None) -> None:
        self.made: list[tuple[int, str]] = []
        self._delay_s = delay_s
        self._failing = failing

    def __call__(self, asked: ScanRequest) -> object:
        self.made.append((asked.base_offset, threading.current_thread().name))
        time.sleep(self._delay_s * random.random())
        if asked.base_offset == self._failing:
            raise OSError(5, "Input/output error", asked.part.file)
        return ("scan", asked.base_offset)


def with_helpers(scans: SharedScans, count: int) -> list[threading.Thread]:
    def help_all() -> None:
        while scans.help():
            pass

    helpers = [threading.Thread(target=help_all, name=f"helper {number}") for number in range(count)]
    for helper in helpers:
        helper.start()
    return helpers


def join(helpers: list[threading.Thread]) -> None:
    for helper in helpers:
        helper.join(timeout=LONGEST_WAIT_SECONDS)
        assert not helper.is_alive(), "a helper waits for ever"


def in_time(scans: SharedScans, numbers: Iterable[int]) -> list[object]:
    """The fold's scans, asked for in a thread that must come to its end."""
    found: list[object] = []

    def fold() -> None:
        found.extend([scans.scan(request(number)) for number in numbers])

    thread = threading.Thread(target=fold, daemon=True)
    thread.start()
    thread.join(timeout=LONGEST_WAIT_SECONDS)
    assert not thread.is_alive(), "the fold waits for ever"
    return found


@pytest.mark.parametrize("helper_count", [0, 1, 3, 8])
def test_the_fold_gets_its_scans_in_its_order_and_each_is_made_once(helper_count: int) -> None:
    scanner = Scanner(delay_s=0.003)
    scans = SharedScans(scanner, [request(number) for number in range(40)])
    helpers = with_helpers(scans, helper_count)
    assert in_time(scans, range(40)) == [("scan", number) for number in range(40)]
    join(helpers)
    assert sorted(number for number, _ in scanner.made) == list(range(40))
    if helper_count:
        assert any(name.startswith("helper") for _, name in scanner.made)


def test_the_fold_may_ask_in_another_order_than_foreseen() -> None:
    scanner = Scanner(delay_s=0.002)
    order = list(range(30))
    random.Random(3).shuffle(order)
    scans = SharedScans(scanner, [request(number) for number in range(30)])
    helpers = with_helpers(scans, 3)
    assert in_time(scans, order) == [("scan", number) for number in order]
    join(helpers)
    assert len(scanner.made) == 30


def test_helpers_take_the_earliest_scan_that_nobody_has_begun() -> None:
    scanner = Scanner()
    scans = SharedScans(scanner, [request(number) for number in (3, 1, 2)])
    while scans.help():
        pass
    assert [number for number, _ in scanner.made] == [3, 1, 2]


def test_the_place_in_the_walk_does_not_make_another_scan_of_it() -> None:
    scanner = Scanner()
    scans = SharedScans(scanner, [request(0)])
    assert scans.help()
    assert scans.scan(request(0, ordinal=1, count=3)) == ("scan", 0)
    assert len(scanner.made) == 1


def test_what_was_not_foreseen_is_made_at_once() -> None:
    scanner = Scanner()
    scans = SharedScans(scanner, [request(0)])
    assert scans.scan(request(7)) == ("scan", 7)
    assert scans.has_pending()


@pytest.mark.parametrize("mode", [ScanMode.REPLAY, ScanMode.WALK, ScanMode.INDEX])
def test_other_scans_than_recoveries_are_not_shared(mode: ScanMode) -> None:
    scanner = Scanner()
    scans = SharedScans(scanner, [request(0)])
    assert scans.scan(request(0, mode)) == ("scan", 0)
    assert scans.has_pending()
    assert scans.scan(request(0)) == ("scan", 0)
    assert len(scanner.made) == 2


def test_a_second_request_for_a_scan_makes_it_again() -> None:
    scanner = Scanner()
    scans = SharedScans(scanner, [request(0)])
    assert scans.scan(request(0)) == scans.scan(request(0))
    assert len(scanner.made) == 2


@pytest.mark.parametrize("helper_count", [0, 4])
def test_an_error_reaches_the_fold_where_it_asks_for_that_scan(helper_count: int) -> None:
    scans = SharedScans(Scanner(delay_s=0.002, failing=5), [request(number) for number in range(10)])
    helpers = with_helpers(scans, helper_count)
    for number in range(5):
        assert scans.scan(request(number)) == ("scan", number)
    with pytest.raises(OSError, match=f"{5:020d}"):
        scans.scan(request(5))
    assert scans.scan(request(6)) == ("scan", 6)
    scans.cancel()
    join(helpers)


def test_an_error_behind_a_cut_is_nobodys() -> None:
    scans = SharedScans(Scanner(failing=1), [request(0), request(1)])
    while scans.help():
        pass
    assert scans.scan(request(0)) == ("scan", 0)
    scans.cancel()
    assert not scans.help()


def test_after_cancel_no_scan_is_begun() -> None:
    scanner = Scanner()
    scans = SharedScans(scanner, [request(number) for number in range(3)])
    scans.scan(request(0))
    scans.cancel()
    assert not scans.has_pending()
    assert not scans.help()
    assert len(scanner.made) == 1


def test_while_another_thread_makes_its_scan_the_fold_makes_the_next() -> None:
    begun, may_end = threading.Event(), threading.Event()
    made = []

    def scan(asked: ScanRequest) -> object:
        if asked.base_offset == 0:
            begun.set()
            assert may_end.wait(timeout=LONGEST_WAIT_SECONDS)
        else:
            made.append((asked.base_offset, threading.current_thread().name))
            may_end.set()
        return asked.base_offset

    scans = SharedScans(scan, [request(0), request(1)])
    helper = threading.Thread(target=scans.help)
    helper.start()
    assert begun.wait(timeout=LONGEST_WAIT_SECONDS)
    assert scans.scan(request(0)) == 0
    assert made == [(1, threading.current_thread().name)]
    join([helper])


def test_without_anything_else_to_do_the_fold_waits_for_the_other_thread() -> None:
    begun = threading.Event()

    def scan(asked: ScanRequest) -> object:
        begun.set()
        time.sleep(0.05)
        return asked.base_offset

    scans = SharedScans(scan, [request(4)])
    helper = threading.Thread(target=scans.help)
    helper.start()
    assert begun.wait(timeout=LONGEST_WAIT_SECONDS)
    assert in_time(scans, [4]) == [4]
    join([helper])
