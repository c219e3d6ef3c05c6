"""A record may be of a kind that this hub does not serve: it is left alone, and stops nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs

from fairlead.hub.app import Hub
from fairlead.hub.intents.intent import Intents
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.history import Report

KEY = LoadBalancerKey("OfALaterRelease", "shop", "one")


async def test_a_report_of_an_unknown_kind_ends_nothing_and_is_logged_once() -> None:
    recorded: list[object] = []
    parts = SimpleNamespace(
        intents=Intents(cast("Any", None), ()),
        history=SimpleNamespace(record=recorded.append),
        _migration=SimpleNamespace(reported=None),
        _queue=KeyedQueue[LoadBalancerKey](),
    )
    hub, report = cast("Hub", parts), cast("Report", SimpleNamespace(load_balancer=KEY, computed_s=0.0))
    with capture_logs() as logs:
        for _ in range(2):
            Hub._reported(hub, report)
        assert await Hub._write_status(hub, KEY) is None
    assert recorded == [report, report]
    assert [(entry["log_level"], entry["load_balancer"]) for entry in logs] == [("warning", str(KEY))]
