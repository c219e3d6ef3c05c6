"""Code shared by Ingress and Gateway API: names, versions of certificates, the origin of an object."""

from __future__ import annotations

import base64

import pytest
from agent_builders import HUB_NAMESPACE, clusters, engine_of

from fairlead.agent.sources.caches import IngressCaches, ServiceCaches
from fairlead.agent.sources.service.plan import Settings
from fairlead.agent.sources.shared import Shared
from fairlead.api.httploadbalancer import LoadBalancerRoute
from fairlead.api.kubernetes import EndpointSlice, Secret
from fairlead.api.loadbalancerclass import LoadBalancerClass, LoadBalancerClassSpec
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_DIGEST
from fairlead.errors import Retry
from fairlead_demo.worlds.certificates import self_signed


class World:
    """A shared part over caches without servers."""

    def __init__(self) -> None:
        both = clusters()
        self.services = ServiceCaches(hub_namespace=HUB_NAMESPACE, member=both["member"], hub=both["hub"])
        self.caches = IngressCaches(hub_namespace=HUB_NAMESPACE, **both)
        self.shared = Shared(
            engine=engine_of(self.services, **both),
            member=both["member"],
            services=self.services,
            caches=self.caches,
            settings=Settings(tenant="east", namespace=HUB_NAMESPACE, target="Pod"),
            fresh_s=60.0,
        )

    def secret(self, chain: bytes, key: bytes, version: str = "1") -> None:
        data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
        meta = ObjectMeta(name="cert", namespace="shop", resource_version=version)
        self.caches.secrets._store.put(Secret(metadata=meta, type="kubernetes.io/tls", data=data))


@pytest.fixture
async def world() -> World:
    return World()


async def test_the_present_version_of_a_secret_is_served(world: World) -> None:
    assert world.shared.certificate("shop", "cert").digest == ""
    assert "does not exist" in world.shared.certificate("shop", "cert").problem
    world.secret(*self_signed("shop.example.com"))
    first = world.shared.certificate("shop", "cert")
    assert first.digest
    assert first.problem == ""
    world.secret(*self_signed("shop.example.com"), version="2")
    assert world.shared.certificate("shop", "cert").digest not in {"", first.digest}


@pytest.mark.req("G-43")
async def test_of_a_broken_secret_the_last_good_copy_is_served(world: World) -> None:
    meta = world.shared.meta(("Secret", "shop", "cert"), "tls.shop.cert")
    copy = ObjectMeta(
        name=meta.name, namespace=HUB_NAMESPACE, labels=meta.labels, annotations={ANNOTATION_DIGEST: "good"}
    )
    world.caches.certificates._store.put(Secret(metadata=copy, type="kubernetes.io/tls"))
    _, key = self_signed("shop.example.com")
    world.secret(b"nothing", key)
    shown = world.shared.certificate("shop", "cert")
    assert shown.digest == "good"
    assert shown.problem


async def test_an_object_at_the_hub_is_of_its_origin(world: World) -> None:
    origin = ("HTTPRoute", "shop", "web")
    route = LoadBalancerRoute(metadata=world.shared.meta(origin, "any"))
    assert world.shared.origin_of(route) == origin
    # A slice of a Service's load balancer has no L7 origin.
    meta = world.shared.meta(("Service", "shop", "web"), "slice")
    assert world.shared.origin_of(EndpointSlice(metadata=meta)) is None
    assert world.shared.origin_of(LoadBalancerRoute(metadata=ObjectMeta(name="foreign"))) is None


async def test_targets_are_those_of_the_class_of_the_hub(world: World) -> None:
    assert world.shared.targets("envoy") == "Pod"
    of_nodes = LoadBalancerClass(
        metadata=ObjectMeta(name="nodes"), spec=LoadBalancerClassSpec(provider="envoy", targets="Node")
    )
    world.services.classes._store.put(of_nodes)
    assert world.shared.targets("nodes") == "Node"


async def test_the_first_problem_of_several_secrets_is_raised(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: set[tuple[str, str]] = set()

    async def copy(namespace: str, name: str) -> bool:
        if name == "refused":
            raise Retry("the hub is busy")
        copied.add((namespace, name))
        return False

    monkeypatch.setattr(world.shared, "secret", copy)
    keys = {("shop", f"tls-{number}") for number in range(40)}
    await world.shared.secrets(keys)
    assert copied == keys
    with pytest.raises(Retry, match="the hub is busy"):
        await world.shared.secrets([("shop", "refused")])
