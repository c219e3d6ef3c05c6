"""The alert rules speak of metrics and labels that are really exported, and each says what to do first."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import Any

import pytest
import typer
import yaml

from fairlead.agent.engine import LANES
from fairlead.cli.main import app
from tests.docs.docs_console import ROOT
from tools.dashboard import ROWS, Panel
from tools.registries import Family, registries

FILE = ROOT / "deploy" / "monitoring" / "alerts.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
EACH = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])

#: The label that names the process of a series in Prometheus.
INSTANCE = frozenset({"instance"})

_SERIES = re.compile(r"(fairlead_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'\s*(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"\s*')
_BY = re.compile(r"\bby \(([^)]*)\)")
_SHOWN = re.compile(r"\$labels\.(\w+)")


@cache
def families() -> dict[str, Family]:
    return {
        family.name: family
        for families_of_process in asyncio.run(registries()).values()
        for family in families_of_process
    }


def family_of(series: str) -> Family:
    for suffix in ("", "_bucket", "_sum", "_count"):
        family = families().get(series.removesuffix(suffix)) if series.endswith(suffix) else None
        if family is not None and (not suffix or family.kind == "histogram"):
            return family
    raise AssertionError(f"no process exports {series}")


def labels_of(expr: str) -> set[str]:
    """Return the labels that are on all series of an expression, as far as they are ours."""
    return {label for series, _ in _SERIES.findall(expr) for label in family_of(series).labels} | {"le"}


def check_query(expr: str, *, added: frozenset[str] = frozenset()) -> None:
    """Assert that each metric and label of a query is exported; ``added``: labels that Prometheus adds itself."""
    matches = _SERIES.findall(expr)
    assert matches, "a query about nothing of ours"
    for series, matchers in matches:
        labels = family_of(series).labels
        for matcher in filter(None, matchers.split(",")):
            parts = _MATCHER.fullmatch(matcher)
            assert parts is not None, matcher
            assert parts[1] in labels, f"{series} has no label {parts[1]}"
    for names in _BY.findall(expr):
        for name in names.split(","):
            assert name.strip() in labels_of(expr) | added


@EACH
def test_each_metric_and_label_of_a_rule_is_exported(rule: dict[str, Any]) -> None:
    check_query(rule["expr"], added=INSTANCE)


@pytest.mark.req("OP-1")
@pytest.mark.parametrize("panel", [panel for _, row in ROWS for panel in row], ids=lambda panel: panel.title)
def test_each_metric_and_label_of_the_dashboard_is_exported(panel: Panel) -> None:
    check_query(panel.expr, added=INSTANCE)
    kept = {name.strip() for names in _BY.findall(panel.expr) for name in names.split(",")}
    assert set(re.findall(r"{{(\w+)}}", panel.legend)) <= kept


@EACH
def test_what_a_rule_shows_survives_its_aggregation(rule: dict[str, Any]) -> None:
    kept = {name.strip() for names in _BY.findall(rule["expr"]) for name in names.split(",")}
    for text in rule["annotations"].values():
        assert set(_SHOWN.findall(text)) <= kept


@EACH
def test_each_rule_says_how_bad_it_is_and_what_to_do_first(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description"}
    text = rule["annotations"]["description"]
    root: Any = typer.main.get_command(app)
    verbs = re.findall(r"`fairlead ([a-z]+)", text)
    assert set(verbs) <= set(root.commands)
    pages = re.findall(r"docs/[\w/.-]+\.md", text)
    assert all((ROOT / page).is_file() for page in pages)
    assert verbs or pages or "kubectl" in text or "fairlead_" in text, "no next step"


@pytest.mark.req("OP-1")
def test_without_any_hub_the_alert_about_its_leader_fires() -> None:
    """The sum of an empty set is empty, so the alert would resolve when the last hub disappears."""
    expr = next(rule["expr"] for rule in RULES if rule["alert"] == "FairleadNobodyLeads")
    assert "or vector(0)" in expr


@pytest.mark.parametrize(
    "metric", ["fairlead_agent_hub_reachable", "fairlead_agent_last_sync_age_seconds", "fairlead_agent_nodes_stale"]
)
def test_an_agent_that_is_cut_off_or_behind_is_an_alert_of_that_agent(metric: str) -> None:
    """Each member has an agent of its own: a rule over all of them would be silent while another agent is well."""
    (expr,) = [rule["expr"] for rule in RULES if metric in rule["expr"]]
    assert "by (instance)" in expr


def test_the_controllers_that_the_rule_about_agents_names_are_those_of_agents() -> None:
    """Hubs export that metric, too, and a controller of a new name would be left out without a word."""
    (expr,) = [rule["expr"] for rule in RULES if rule["alert"] == "FairleadAgentErrors"]
    (pattern,) = re.findall(r'controller=~"([^"]*)"', expr)
    assert {name for lane in LANES.values() for name in lane} == set(pattern.split("|"))


def test_names_are_unique_and_documented() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    page = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    assert [name for name in names if name not in page] == []


def test_the_metrics_that_operators_were_promised_are_all_there() -> None:
    promised = {
        "fairlead_sync_pending": ("provider",),
        "fairlead_sync_oldest_pending_seconds": ("provider",),
        "fairlead_sync_retrying": ("provider",),
        "fairlead_sync_retries_total": ("provider",),
        "fairlead_sync_parked": ("provider",),
        "fairlead_sync_quarantined": ("provider",),
        "fairlead_sync_draining": ("provider",),
        "fairlead_sync_drift": ("provider",),
        "fairlead_sync_orphans": ("provider", "kind"),
        "fairlead_sync_changes_total": ("provider", "action", "result"),
        "fairlead_provider_calls_total": ("provider", "method", "result"),
        "fairlead_provider_call_seconds": ("provider", "method", "result"),
        "fairlead_webhook_calls_total": ("driver", "hook"),
        "fairlead_webhook_errors_total": ("driver", "hook"),
        "fairlead_webhook_fails_total": ("driver", "hook"),
        "fairlead_webhook_seconds": ("driver", "hook"),
        "fairlead_queue_depth": ("controller",),
        "fairlead_hub_conditions": ("condition",),
    }
    assert {name: families()[name].labels for name in promised if name in families()} == promised


def test_no_metric_breaks_the_rules_of_names() -> None:
    units = ("seconds", "bytes")
    for family in families().values():
        assert re.fullmatch(r"fairlead_[a-z]+_[a-z_]+", family.name), family.name
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        if family.kind == "histogram":
            assert family.name.endswith(units), family.name
        assert not {"namespace", "name", "pod", "service"} & set(family.labels), family.name
