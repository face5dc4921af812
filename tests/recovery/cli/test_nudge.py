"""A signal that does not interrupt the main thread's system call by itself."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from recovery.cli.session import ENDING_SIGNALS, watched_signals
from recovery.errors import InterruptedRecoveryError
from tests.patience import LONGEST_WAIT_SECONDS


@pytest.mark.parametrize("number", ENDING_SIGNALS, ids=lambda number: number.name)
def test_a_signal_that_another_thread_gets_ends_the_wait(number: signal.Signals) -> None:
    """As one that comes just before the call: Python notes it, and the call goes on."""
    reader, writer = os.pipe()
    # one that came before the wait would end it too, and show nothing
    signalling = threading.Timer(0.5, lambda: signal.pthread_kill(threading.get_ident(), number))
    giving_up = threading.Timer(LONGEST_WAIT_SECONDS, os.close, (writer,))
    giving_up.daemon = True
    giving_up.start()
    with watched_signals():
        signalling.start()
        with pytest.raises(InterruptedRecoveryError) as ended:
            os.read(reader, 1)
    giving_up.cancel()
    os.close(reader)
    os.close(writer)
    assert ended.value.signal_number == number


def test_nothing_of_it_stays() -> None:
    earlier = set(threading.enumerate())
    with watched_signals():
        (nudging,) = set(threading.enumerate()) - earlier
        assert signal.getsignal(signal.SIGURG) is not signal.SIG_DFL
    nudging.join(LONGEST_WAIT_SECONDS)
    assert not nudging.is_alive()
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == -1
