"""deploy/grafana-dashboard.json by itself: what Grafana needs of it, and that it asks for metrics that there are."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from tests import ROOT
from tests.deploy.test_rules import metric_names

DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"bytes", "Bps", "dtdurations", "short"}
_COLUMNS = 24
_METRIC = re.compile(r"\bkafka_log_\w+")
_OF_BROKERS = {
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_log_logmanager_cordonedlogdirectorycount",
}
"""Of a broker at least: by jmx_exporter, from its own gauges."""


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    """All queries, with the titles of their panels."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target


def test_it_can_be_imported_twice_and_stays_one() -> None:
    assert DASHBOARD["uid"] == "kafka-log-recovery"
    assert "id" not in DASHBOARD  # Grafana gives it one
    assert DASHBOARD["schemaVersion"] >= 36  # before that data sources were named, and the migration guesses
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == [
        "datasource",
        "job",
        "instance",
    ]


def test_panels_have_ids_places_and_words_of_their_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= _COLUMNS
        of_panel = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
            )
        )
        assert not cells & of_panel, panel["title"]
        cells |= of_panel
    assert all(panel["description"] for panel in PANELS)
    assert {panel["type"] for panel in PANELS} == {
        "stat",
        "timeseries",
        "table",
    }  # `graph`, `singlestat` are gone


def test_figures_have_units_and_what_is_not_known_is_no_zero() -> None:
    for panel in PANELS:
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] != "table":
            assert defaults["unit"] in UNITS, panel["title"]
        if panel["type"] == "stat":
            assert defaults["noValue"] == "-"
            first, *others = defaults["thresholds"]["steps"]
            assert first["value"] is None
            assert others == sorted(others, key=lambda step: step["value"])
        if panel["type"] == "timeseries":
            assert defaults["custom"]["spanNulls"] is False


def test_every_query_goes_to_the_data_source_that_was_chosen_and_to_the_jobs_and_instances() -> None:
    for panel in PANELS:
        assert panel["datasource"] == DATASOURCE
    for title, target in targets():
        assert target["datasource"] == DATASOURCE
        selectors = re.findall(r"\bkafka_log_\w+(\{[^}]*\})?", target["expr"])
        assert selectors
        assert all('job=~"$job", instance=~"$instance"' in selector for selector in selectors), title


def test_the_panels_ask_for_metrics_that_there_are() -> None:
    asked = {name for _, target in targets() for name in _METRIC.findall(target["expr"])}
    assert asked <= metric_names() | _OF_BROKERS
