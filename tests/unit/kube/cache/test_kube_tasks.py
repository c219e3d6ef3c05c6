"""The tasks that follow an API server go on after any error, and whatever it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from kube_scripted import ScriptedApi, service
from structlog.testing import capture_logs
from watching import QuickClock

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import Discovery, OptionalCache
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import Heartbeat
from fairlead.runtime.background import end


class Tasks:
    """One of each task that runs as long as the process, over one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cache: WatchCache[Service] = WatchCache(cluster, SERVICES)
        self.optional: OptionalCache[Service] = OptionalCache(cluster, SERVICES)
        self.optional.serve("v1")
        self.events = EventRecorder(cluster, component="test")
        self.heartbeat = Heartbeat(cluster, namespace="a", name="beat", identity="me", interval_s=0.5)
        self.discovery = Discovery(cluster, "example.com", {}, look_s=0.5)
        self.runs: Mapping[str, Callable[[], Awaitable[None]]] = {
            "cache": self.cache.run,
            "optional": self.optional.run,
            "events": self.events.run,
            "heartbeat": self.heartbeat.run,
            "discovery": self.discovery.run,
        }

    def emit(self, name: str) -> None:
        self.events.emit(
            kind="Service",
            api_version="v1",
            namespace="a",
            name=name,
            uid="",
            type="Normal",
            reason="Tried",
            message=name,
        )

    def works(self, api: ScriptedApi) -> bool:
        return (
            len(self.cache) > 0
            and len(self.optional) > 0
            and bool(api.objects.get("events"))
            and bool(api.objects.get("leases"))
            and self.discovery.asked
        )


@pytest.mark.req("CORE-06")
@pytest.mark.parametrize("error", [OverflowError("too large"), KeyError("x"), RecursionError("deep"), TypeError("no")])
async def test_a_task_that_fails_unexpectedly_starts_again(
    api: ScriptedApi, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api.cluster(clock=QuickClock()) as cluster:
        tasks, failing = Tasks(cluster), True

        def failing_while(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **named: Any) -> Any:
                if failing:
                    raise error
                return method(*args, **named)

            return call

        for method in ("watch", "listing", "create", "apply", "raw", "get"):
            monkeypatch.setattr(cluster, method, failing_while(getattr(cluster, method)))
        api.put("services", service("web"))
        running = [asyncio.ensure_future(run()) for run in tasks.runs.values()]
        try:
            with capture_logs() as logs:
                tasks.emit("first")
                await api.until(lambda: len({log["task"] for log in logs if log["event"] == "task restarts"}) == 4)
            failing = False
            tasks.emit("second")
            await api.until(lambda: tasks.works(api))
            assert not any(task.done() for task in running)
        finally:
            await end(*running)
