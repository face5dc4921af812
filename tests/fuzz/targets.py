"""What is fuzzed: a target is a function of bytes that raises where the software does what it must not.

A target raises whatever the code under test raises undeclared, and AssertionError where an answer is wrong: a
value that does not survive its encoder, two CPU paths that disagree, a batch that is lost. The same targets run
under hypothesis in the suite, over the kept cases, and under atheris in the campaign.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from segfmt.errors import FormatError
from tests import ROOT

GOLDEN = ROOT / "tests/segfmt/golden"
CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing to fuzz.

    Attributes:
        run: raises on a finding; returns whatever it likes.
        instruments: modules whose branches guide the campaign.
        seeds: names of golden files to begin with.
        longest_bytes: of an input; a case grows no further.
    """

    name: str
    run: Callable[[bytes], object]
    instruments: tuple[str, ...] = ("segfmt",)
    seeds: tuple[str, ...] = ()
    more_seeds: Callable[[], list[bytes]] = list
    longest_bytes: int = 4096

    def warm_up(self) -> None:
        """Load and compile what the first case would load and compile."""
        for data in (b"", *self.corpus()[:1]):
            self.run(data)

    def corpus(self) -> list[bytes]:
        """The inputs to begin with: golden files, made ones, and every kept case."""
        files = [*(GOLDEN / name for name in self.seeds), *self.cases()]
        return [*(path.read_bytes() for path in files), *self.more_seeds()]

    def cases(self) -> list[Path]:
        """Inputs that were findings once."""
        return sorted((CASES / self.name).glob("*"))


def assert_within(error: FormatError, data: bytes) -> None:
    """An error's position is one in the bytes that were read, or just behind them."""
    assert 0 <= error.position <= len(data), f"{error} at {error.position} of {len(data)} bytes"


@functools.cache
def targets() -> dict[str, Target]:
    """All targets by name."""
    from tests.fuzz import (
        binary_files,
        kernels,
        planted_quarantine,
        quarantine_files,
        records,
        remote_files,
        text_files,
        whole_dirs,
    )

    found = [
        *text_files.TARGETS,
        *binary_files.TARGETS,
        *records.TARGETS,
        *kernels.TARGETS,
        *quarantine_files.TARGETS,
        *planted_quarantine.TARGETS,
        *remote_files.TARGETS,
        *whole_dirs.TARGETS,
    ]
    return {target.name: target for target in found}
