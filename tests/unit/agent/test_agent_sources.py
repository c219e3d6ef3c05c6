"""Caches of Gateway API count as current only when all is known, so that nothing is removed too early."""

from __future__ import annotations

import pytest

from fairlead.agent.identity import published_meta
from fairlead.agent.sources.caches import IngressCaches
from fairlead.agent.sources.gateway.caches import GatewayCaches
from fairlead.api.gateway import Gateway
from fairlead.api.httploadbalancer import LoadBalancerRoute
from fairlead.api.meta import ObjectMeta
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig


class Known:
    """ServiceCaches without servers."""

    def __init__(self) -> None:
        config = ClusterConfig(server="http://127.0.0.1:1")
        member, hub = Cluster(config, name="member"), Cluster(config, name="hub")
        self.l7 = IngressCaches(member=member, hub=hub, hub_namespace="tenant-east")
        self.gateway = GatewayCaches(member=member, http=self.l7)

    def publish(self, kind: str) -> None:
        meta = published_meta((kind, "shop", "web"), "any", namespace="tenant-east", tenant="east")
        self.l7.routes._store.put(LoadBalancerRoute(metadata=meta))

    @property
    def fresh(self) -> bool:
        return self.gateway.is_fresh(fresh_s=60)


@pytest.fixture
async def known() -> Known:
    return Known()


@pytest.mark.req("K-36")
async def test_before_discovery_has_answered_nothing_is_known(known: Known) -> None:
    assert not known.fresh
    assert not known.gateway.ready


@pytest.mark.req("K-36")
async def test_without_gateway_api_nothing_of_it_holds_a_removal(known: Known) -> None:
    known.gateway.discovery.asked = True
    assert known.fresh


@pytest.mark.req("K-36")
async def test_a_kind_that_is_not_served_has_not_lost_what_is_published(known: Known) -> None:
    known.gateway.discovery.asked = True
    known.publish("HTTPRoute")
    assert not known.fresh


async def test_what_a_cache_holds_of_a_kind_that_is_not_served_stays(known: Known) -> None:
    known.gateway.discovery.asked = True
    known.gateway.gateways.serve("v1")
    known.gateway.gateways._store.put(Gateway(metadata=ObjectMeta(name="web", namespace="shop")))
    known.gateway.gateways.serve("")
    assert known.gateway.gateways.get("shop", "web") is not None


async def test_an_older_version_of_a_kind_is_read_by_that_version(known: Known) -> None:
    cache = known.gateway.routes["TCPRoute"]
    cache.serve("v1alpha2")
    assert cache.resource.version == "v1alpha2"
    assert not cache.settled
    cache.serve("")
    assert cache.settled
