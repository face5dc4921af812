"""What Spark has no patience for on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.patience import LONGEST_WAIT_SECONDS

TOO_LATE = "Python worker failed to connect back"


def until_up(run: Callable[[], None]) -> None:
    """Run a streaming query; again where its Python process was not up within the ten seconds that Spark gives it.

    The query has done nothing then. Spark: PythonWorkerFactory.createSimpleWorker.
    """
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        try:
            return run()
        except Exception as error:
            if TOO_LATE not in str(error) or time.monotonic() > deadline:
                raise
