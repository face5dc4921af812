"""Work in the background: beside whoever submits it, one piece at a time, in order, and waited for."""

from __future__ import annotations

import threading

from recovery.engine.committer import Committer
from tests.patience import LONGEST_WAIT_SECONDS


def test_one_at_a_time_in_order_beside_the_submitter() -> None:
    committer = Committer("background")
    may_end = [threading.Event(), threading.Event()]
    done: list[str] = []

    def work(number: int) -> None:
        assert may_end[number].wait(timeout=LONGEST_WAIT_SECONDS)
        done.append(f"{number} in {threading.current_thread().name}")

    committer.submit(lambda: work(0))
    assert not done  # it goes on meanwhile
    submitter = threading.Thread(target=lambda: committer.submit(lambda: work(1)))
    submitter.start()
    may_end[1].set()
    submitter.join(timeout=0.05)
    assert submitter.is_alive()  # the first is not done
    may_end[0].set()
    submitter.join(timeout=LONGEST_WAIT_SECONDS)
    committer.drain()
    assert done == ["0 in background", "1 in background"]


def test_nothing_to_wait_for() -> None:
    committer = Committer("background")
    committer.drain()
    committer.submit(lambda: None)
    committer.drain()
    committer.drain()
