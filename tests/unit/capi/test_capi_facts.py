"""Facts about a Cluster that its objects do not have: each endpoint is probed at its own time."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from capi_builders import NAMESPACE, cluster, lb

from fairlead.api.capiside import ControlPlaneEndpoint
from fairlead.api.meta import ObjectKey
from fairlead.capi.facts import ClusterFacts
from fairlead.capi.view import CapiView
from fairlead.errors import NotFound
from fairlead.runtime.clock import SystemClock
from tests.scenario.any_api import until
from tests.worlds.listening import listening

ONE, OTHER = ObjectKey(NAMESPACE, "one"), ObjectKey(NAMESPACE, "other")
VIEW = CapiView(lb(), cluster())


@pytest.mark.req("C-66")
async def test_an_endpoint_is_not_probed_again_because_another_one_is_new():
    probed: Counter[str] = Counter()

    async def resolve(host: str) -> list[str]:
        probed[host] += 1
        return ["127.0.0.1"]

    async def get(*_args: Any) -> Any:
        raise NotFound("there is no such Secret")

    nothing: Any = SimpleNamespace(clock=SystemClock(), get=get)
    facts = ClusterFacts(nothing, changed=lambda _key: None, probe_s=3600.0, resolve=resolve)
    running = asyncio.create_task(facts.run())
    try:
        facts.want(ONE, ControlPlaneEndpoint("one.example", 1), VIEW, served=True)
        await until(lambda: facts.probe(ONE) is not None, what="the first probe")
        facts.want(OTHER, ControlPlaneEndpoint("other.example", 1), VIEW, served=True)
        facts.want(ONE, ControlPlaneEndpoint("one.example", 1), VIEW, served=True)
        await until(lambda: facts.probe(OTHER) is not None, what="the probe of the other")
        assert probed == {"one.example": 1, "other.example": 1}
    finally:
        running.cancel()


@pytest.mark.req("C-66")
async def test_an_endpoint_is_probed_once_it_is_served_and_not_before_its_time():
    nothing: Any = SimpleNamespace(clock=SystemClock())
    facts = ClusterFacts(nothing, changed=lambda _key: None, probe_s=3600.0)
    checked = CapiView(lb(healthCheck={"disabled": True}), cluster())
    running = asyncio.create_task(facts.run())
    try:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        async with listening(server) as port:
            endpoint = ControlPlaneEndpoint("127.0.0.1", port)
            facts.want(ONE, endpoint, checked, served=False)
            facts.want(OTHER, endpoint, checked, served=True)
            await until(lambda: facts.probe(OTHER) is not None, what="the probe of what is served")
            assert facts.probe(ONE) is None
            facts.want(ONE, endpoint, checked, served=True)
            await until(lambda: facts.probe(ONE) is not None, what="the probe of what is served now")
    finally:
        running.cancel()
