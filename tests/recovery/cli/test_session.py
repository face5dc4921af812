"""A signal while a library is at work that takes it for an error of its own."""

from __future__ import annotations

import logging
import signal

import pytest

from recovery.cli.session import Signals
from recovery.errors import InterruptedRecoveryError, UsageError


def test_a_signal_is_no_error_of_the_library_that_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    signals = Signals()

    def wait() -> None:
        try:
            signals.receive(signal.SIGTERM, None)
        except Exception as error:
            logging.exception("Exception while sending command.")
            raise UsageError("no Spark session") from error

    with pytest.raises(InterruptedRecoveryError) as interrupted, signals.ending():
        wait()
    assert interrupted.value.signal_exit_code == 143
    assert caplog.records == []
    logging.error("again")
    assert len(caplog.records) == 1


def test_an_error_without_a_signal_stays_what_it_is() -> None:
    with pytest.raises(UsageError, match="no Spark session"), Signals().ending():
        raise UsageError("no Spark session")
