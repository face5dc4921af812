"""Every target under hypothesis, and every input that was a finding once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz import kernels
from tests.fuzz.budget import Budget
from tests.fuzz.children import Note, in_child
from tests.fuzz.mutations import mutated
from tests.fuzz.targets import CASES, Target, targets

pytestmark = pytest.mark.long

_EXAMPLES = {"log_dir": 60, **{target.name: 100 for target in kernels.TARGETS}}
_USUAL_EXAMPLES = 150
_CASES = [(target, path) for target in targets().values() for path in target.cases()]


@pytest.fixture(params=targets().values(), ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    return request.param


def test_only_declared_errors_right_answers_and_bounded_costs(target: Target) -> None:
    """The same examples in every run; in a child, where a death by signal is a finding like any other."""
    corpus = tuple(target.corpus() or [b""])

    @settings(
        max_examples=_EXAMPLES.get(target.name, _USUAL_EXAMPLES),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.one_of(st.binary(max_size=200), mutated(corpus, target.longest_bytes)))
    def search(data: bytes) -> None:
        note.write(data)
        budget.run(data)

    budget = Budget(target)
    target.warm_up()  # compiled code is inherited
    note = Note()

    def work(shared: Note) -> None:
        nonlocal note
        note = shared
        search()

    outcome = in_child(work)
    assert outcome.error is None, f"{outcome.error}\ninput: {outcome.data!r}"


@pytest.mark.parametrize(("target", "path"), _CASES, ids=[f"{t.name}-{p.name}" for t, p in _CASES])
def test_what_was_found_once_is_not_found_again(target: Target, path: Path) -> None:
    budget = Budget(target)
    target.warm_up()
    outcome = in_child(lambda _: budget.run(path.read_bytes()))
    assert outcome.error is None, outcome.error


def test_every_kept_case_belongs_to_a_target() -> None:
    assert {path.name for path in CASES.iterdir()} <= {*targets(), "judge"}
    assert all(path.stat().st_size <= targets()[target.name].longest_bytes for target, path in _CASES)


def test_corpus_passes(target: Target) -> None:
    budget = Budget(target)
    for data in target.corpus():
        budget.run(data)
