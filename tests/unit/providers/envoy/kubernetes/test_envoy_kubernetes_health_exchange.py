"""The reports of a replica that is gone are deleted while the watch goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.api.names import LABEL_PROXY_HEALTH
from fairlead.providers.envoy.kubernetes import health_exchange
from fairlead.runtime.clock import VirtualClock


def _report(name: str, replica: str) -> object:
    return SimpleNamespace(label={LABEL_PROXY_HEALTH: replica}.get, metadata=SimpleNamespace(name=name))


async def test_the_watch_may_take_out_what_is_being_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = {name: _report(name, replica) for name, replica in (("a", "dead"), ("b", "alive"), ("c", "dead"))}

    class Cache:
        def __init__(self, *_args: object, **_named: object) -> None:
            self.values = reports.values
            self.on_change = id

    async def delete(_resource: object, _namespace: str, name: str) -> None:
        del reports[name]

    monkeypatch.setattr(health_exchange, "WatchCache", Cache)
    exchange = health_exchange.HealthExchange(
        cluster=cast("Any", SimpleNamespace(delete=delete)),
        replica="leader",
        streams=dict,
        changed=lambda _names: None,
        clock=VirtualClock(),
    )
    await exchange.drop("dead")
    assert sorted(reports) == ["b"]
