"""deploy/prometheus-alerts.yml, held by promtool against series in which each alert fires, and does not."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.watch.gauges import Gauges
from recovery.watch.http.metrics import families
from tests import ROOT
from tests.servers.machine import PROMETHEUS, needs
from tests.servers.prometheus import promtool

RULES = ROOT / "deploy" / "prometheus-alerts.yml"
CASES = Path(__file__).parent / "alerts.yml"
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())


def mutants() -> Iterator[tuple[str, str]]:
    """The rules with another number in one expression, or another time for which it must hold; and whose it is."""
    text = RULES.read_text()
    for rule in re.finditer(r"- alert: (\w+)\n(?:\s+#.*\n)*\s+expr:(.*?)\n\s+labels:", text, re.DOTALL):
        for number in re.finditer(r"\b\d+(?=m?\b)", rule[2]):
            at = rule.start(2) + number.start()
            other = {"0": "1", "1": "0"}.get(number[0], str(2 * int(number[0])))
            yield rule[1], text[:at] + other + text[at + len(number[0]) :]


MUTANTS = list(mutants())
_METRIC = re.compile(r"\bkafka_log_\w+")


def metric_names() -> set[str]:
    """The names of all metrics of this tool."""
    found = families(Gauges().values())
    return {family.name + ("_total" if family.type == "counter" else "") for family in found}


@pytest.mark.prometheus
@needs(PROMETHEUS)
class TestPromtool:
    def test_the_rules_are_valid(self) -> None:
        exit_code, printed = promtool("check", "rules", RULES)
        assert exit_code == 0, printed
        assert f"SUCCESS: {len(ALERTS)} rules found" in printed

    def test_each_alert_fires_where_it_should_and_nowhere_else(self, tmp_path: Path) -> None:
        exit_code, printed = _tested(tmp_path, RULES.read_text())
        assert exit_code == 0, printed

    @pytest.mark.parametrize("mutant", range(len(MUTANTS)))
    def test_another_number_in_an_expression_is_noticed(self, tmp_path: Path, mutant: int) -> None:
        alert, rules = MUTANTS[mutant]
        exit_code, printed = _tested(tmp_path, rules)
        assert exit_code == 1
        assert alert in printed


def test_each_alert_has_cases_in_which_it_fires_and_in_which_it_does_not() -> None:
    cases = CASES.read_text()
    for alert in ALERTS:
        expected = re.findall(rf"alertname: {alert}\b,?\s+exp_alerts:\s*(\S*)", cases)
        assert "[]}" in expected, alert
        assert set(expected) - {"[]}"}, alert


def test_the_rules_ask_for_metrics_that_there_are() -> None:
    asked = set(_METRIC.findall(re.sub(r"#.*", "", RULES.read_text())))
    assert asked <= metric_names()


def _tested(folder: Path, rules: str) -> tuple[int, str]:
    """What `promtool test rules` says of *rules*: paths in its cases go by the folder of the cases."""
    (folder / RULES.name).write_text(rules)
    shutil.copy(CASES, folder)
    return promtool("test", "rules", CASES.name, folder=folder)
