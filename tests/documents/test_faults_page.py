"""`docs/operate/faults.md` shows what the tool says today."""

from __future__ import annotations

import pytest

from tests.documents.faults_page import FAULTS, INTRODUCTION, PAGE, Fault
from tests.servers.machine import MOUNTS, OTHER_USERS, OTHERS_FILES, needs

pytestmark = [pytest.mark.long, needs(MOUNTS, OTHERS_FILES, OTHER_USERS)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title)
def test_what_an_operator_sees_is_on_the_page(fault: Fault) -> None:
    text = fault.text()
    assert text in PAGE.read_text(), f"python -m tests.documents.faults_page writes the page anew\n{text}"


def test_there_is_nothing_else_on_the_page() -> None:
    text = PAGE.read_text()
    assert text.startswith(INTRODUCTION)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [one.title for one in FAULTS]
