"""The keys that a change enqueues."""

from __future__ import annotations

import msgspec
import pytest
from agent_builders import HUB_NAMESPACE, TENANT, clusters, engine_of
from prometheus_client import CollectorRegistry

from fairlead.agent.engine import AgentMetrics, Engine
from fairlead.agent.sources.caches import IngressCaches, ServiceCaches
from fairlead.agent.sources.service.plan import Settings
from fairlead.agent.sources.service.source import ServiceSource
from fairlead.agent.sources.shared import Shared
from fairlead.agent.term import Offboarding, Refusals
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import TCPLoadBalancer

BEFORE = TCPLoadBalancer(metadata=ObjectMeta(name="shop.web", namespace=HUB_NAMESPACE, uid="u", generation=1))


def later(**changes: object) -> TCPLoadBalancer:
    return msgspec.structs.replace(BEFORE, metadata=msgspec.structs.replace(BEFORE.metadata, **changes))


@pytest.fixture
async def world() -> tuple[ServiceCaches, Engine]:
    member_and_hub = clusters()
    caches = ServiceCaches(hub_namespace=HUB_NAMESPACE, member=member_and_hub["member"], hub=member_and_hub["hub"])
    engine = engine_of(caches, **member_and_hub)
    settings = Settings(tenant=TENANT, namespace=HUB_NAMESPACE)
    http = IngressCaches(**member_and_hub, hub_namespace=HUB_NAMESPACE)
    member = member_and_hub["member"]
    ServiceSource(
        engine=engine,
        caches=caches,
        shared=Shared(engine=engine, member=member, services=caches, caches=http, settings=settings, fresh_s=60),
        settings=settings,
        metrics=AgentMetrics(CollectorRegistry()),
        refusals=Refusals(),
        offboarding=Offboarding(tenant=TENANT, caches=caches, changed=engine.enqueue_all),
    )
    return caches, engine


@pytest.mark.parametrize(
    ("old", "new", "exported"),
    [
        (None, BEFORE, True),
        (BEFORE, None, True),
        (BEFORE, later(resource_version="2"), False),
        (BEFORE, later(generation=2), True),
        (BEFORE, later(labels={"fairlead.dev/tenant": "west"}), True),
        (BEFORE, later(annotations={"fairlead.dev/origin": "elsewhere"}), True),
        (BEFORE, later(finalizers=["fairlead.dev/load-balancer"]), True),
        (BEFORE, later(deletion_timestamp="2026-11-23T00:00:00Z"), True),
        (BEFORE, later(uid="made-again"), True),
    ],
)
async def test_an_export_is_not_compared_again_for_a_status_of_the_hub(
    world: tuple[ServiceCaches, Engine], old: TCPLoadBalancer | None, new: TCPLoadBalancer | None, exported: bool
) -> None:
    caches, engine = world
    caches.load_balancers._notify(old, new)
    assert len(engine.lanes["services"].reports) == 1
    assert len(engine.lanes["services"].publications) == exported
