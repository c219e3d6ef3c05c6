"""The panels of the Grafana dashboard: a table, written as JSON to deploy/monitoring/dashboard.json.

In: nothing but the table. Out: the dashboard's JSON. A test holds every metric and label in it to what is exported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Panel:
    """One panel: what it shows, the query, how a series is called, and the unit as Grafana calls it."""

    title: str
    expr: str
    legend: str = ""
    unit: str = "short"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Load balancers",
        (
            Panel("Replicas that lead (should be 1)", "sum(fairlead_hub_leading)"),
            Panel(
                "Load balancers, Serving", "sum by (serving, reason) (fairlead_hub_serving)", "{{serving}} {{reason}}"
            ),
            Panel(
                "Load balancers, Programmed",
                "sum by (programmed, reason) (fairlead_hub_load_balancers)",
                "{{programmed}} {{reason}}",
            ),
            Panel("Targets", "sum by (state) (fairlead_hub_targets)", "{{state}}"),
            Panel("Members", "max by (state) (fairlead_hub_members)", "{{state}}"),
            Panel(
                "Addresses given, share of each pool",
                "max by (pool) (fairlead_hub_addresses_used) / (max by (pool) (fairlead_hub_addresses) > 0)",
                "{{pool}}",
                unit="percentunit",
            ),
        ),
    ),
    (
        "Is the hub up to date?",
        (
            Panel("Age of the caches", "max by (kind) (fairlead_hub_cache_age_seconds)", "{{kind}}", "s"),
            Panel("Waiting keys", "max by (controller) (fairlead_queue_depth)", "{{controller}}"),
            Panel(
                "Reconcile, p99",
                "histogram_quantile(0.99, sum by (le, controller) (rate(fairlead_reconcile_seconds_bucket[5m])))",
                "{{controller}}",
                "s",
            ),
            Panel(
                "Requests to the API that failed",
                'sum by (verb, code) (rate(fairlead_kube_requests_total{code!~"2.."}[5m]))',
                "{{verb}} {{code}}",
                "reqps",
            ),
        ),
    ),
    (
        "Proxies (xDS)",
        (
            Panel("Connected", "sum(fairlead_xds_streams)"),
            Panel(
                "Pushes that changed something",
                "sum by (type) (rate(fairlead_xds_changing_pushes_total[5m]))",
                "{{type}}",
                "ops",
            ),
            Panel("Refused by Envoy", "sum by (type) (increase(fairlead_xds_nacks_total[5m]))", "{{type}}"),
            Panel("Bytes sent", "sum(rate(fairlead_xds_bytes_sent_total[5m]))", unit="Bps"),
        ),
    ),
    (
        "Other providers",
        (
            Panel(
                "Load balancers that differ from what should be",
                "max by (provider) (fairlead_sync_pending)",
                "{{provider}}",
            ),
            Panel(
                "Oldest change that waits",
                "max by (provider) (fairlead_sync_oldest_pending_seconds)",
                "{{provider}}",
                "s",
            ),
            Panel(
                "Calls, by result",
                "sum by (provider, result) (rate(fairlead_provider_calls_total[5m]))",
                "{{provider}} {{result}}",
                "ops",
            ),
            Panel(
                "Calls, p99",
                "histogram_quantile(0.99, sum by (le, provider) (rate(fairlead_provider_call_seconds_bucket[5m])))",
                "{{provider}}",
                "s",
            ),
            Panel("Changed by others", "max by (provider) (fairlead_sync_drift)", "{{provider}}"),
            Panel("Refused, apart from the rest", "max by (provider) (fairlead_sync_quarantined)", "{{provider}}"),
        ),
    ),
    (
        "Proxy machines",
        (
            Panel(
                "Addresses by number of owners",
                "sum by (announcement, owners) (fairlead_machine_addresses)",
                "{{announcement}} {{owners}}",
            ),
            Panel("Ready", "min by (machine) (fairlead_machine_ready)", "{{machine}}"),
            Panel("Announced", "max by (machine) (fairlead_machine_announced_addresses)", "{{machine}}"),
            Panel(
                "Take-overs",
                "sum by (machine, cause) (increase(fairlead_machine_takeovers_total[5m]))",
                "{{machine}} {{cause}}",
            ),
            Panel(
                "Withdrawals",
                "sum by (machine, cause) (increase(fairlead_machine_withdrawals_total[5m]))",
                "{{machine}} {{cause}}",
            ),
            Panel(
                "Prefixes at routers",
                "max by (machine, peer) (fairlead_machine_session_prefixes)",
                "{{machine}} {{peer}}",
            ),
        ),
    ),
    (
        "Agents",
        (
            Panel("Reach their hub", "min by (instance) (fairlead_agent_hub_reachable)", "{{instance}}"),
            Panel(
                "Age of the member's oldest news",
                "max by (instance) (fairlead_agent_last_sync_age_seconds)",
                "{{instance}}",
                "s",
            ),
            Panel("Services that cannot be served", "max by (reason) (fairlead_agent_refused_services)", "{{reason}}"),
            Panel("Services exported", "max by (instance) (fairlead_agent_exported_load_balancers)", "{{instance}}"),
        ),
    ),
)

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _ACROSS = 8, 7, 3


def text() -> str:
    """Return the dashboard as indented JSON."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": _place(0, y, 24, 1)})
        y += 1
        for number, panel in enumerate(row):
            x, down = number % _ACROSS * _WIDTH, number // _ACROSS * _HEIGHT
            panels.append(_panel(panel, len(panels) + 1, _place(x, y + down, _WIDTH, _HEIGHT)))
        y += -(-len(row) // _ACROSS) * _HEIGHT
    board = {
        "uid": "fairlead",
        "title": "Fairlead",
        "tags": ["fairlead"],
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }
    return json.dumps(board, indent=2) + "\n"


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [{"refId": "A", "datasource": _SOURCE, "expr": panel.expr, "legendFormat": panel.legend}],
    }
