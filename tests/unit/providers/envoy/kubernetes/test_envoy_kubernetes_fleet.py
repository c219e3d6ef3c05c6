"""Deployments and Services: what is applied, when, and what is deleted again."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from fairlead.errors import Terminal, Unreachable
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.http import L7Config, L7Listener
from fairlead.model.keys import Family, LoadBalancerKey, TargetKey, WantedFamilies
from fairlead.providers.envoy.kubernetes.fleet import DeploymentFleet
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings, service_manifest, service_name
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.resources import ResourceType
from tests.unit.providers.envoy.kubernetes.fake_kube import FakeKube


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.fixture
def fleet(kube: FakeKube) -> DeploymentFleet:
    return DeploymentFleet(kube=kube)


def spec(name: str, *, group: str = "a", port: int = 10_001) -> FrontendSpec:
    key = LoadBalancerKey("TCPLoadBalancer", group, name)
    return FrontendSpec(key=key, group=group, listeners=(Listener(80, proxy_port=port),))


GROUP_KINDS = ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret", "ServiceAccount"]


@pytest.mark.req("K-28")
@pytest.mark.req("K-29")
async def test_one_deployment_for_a_group_and_one_service_for_each(kube: FakeKube, fleet: DeploymentFleet) -> None:
    await fleet.ensure(spec("one"))
    await fleet.ensure(spec("two", port=10_002))
    assert kube.kinds() == sorted([*GROUP_KINDS, "Service", "Service"])
    writes = kube.writes
    await fleet.ensure(spec("one"))
    assert kube.writes == writes, "nothing has changed, nothing is written"


@pytest.mark.req("E-32")
async def test_last_load_balancer_takes_the_deployment_with_it(kube: FakeKube, fleet: DeploymentFleet) -> None:
    await fleet.ensure(spec("one"))
    await fleet.ensure(spec("two", port=10_002))
    await fleet.delete(spec("one").key)
    assert kube.kinds() == sorted([*GROUP_KINDS, "Service"])
    await fleet.delete(spec("two").key)
    await fleet.delete(spec("two").key)
    assert kube.objects == {}
    await fleet.ensure(spec("two"))
    assert "Deployment" in kube.kinds()


async def test_group_that_is_wanted_again_while_it_goes_is_there_in_the_end(
    kube: FakeKube, fleet: DeploymentFleet
) -> None:
    await fleet.ensure(spec("one"))
    await asyncio.gather(fleet.delete(spec("one").key), fleet.ensure(spec("two", port=10_002)))
    assert kube.kinds() == sorted([*GROUP_KINDS, "Service"])


async def test_delete_that_fails_half_way_is_finished_the_next_time(kube: FakeKube, fleet: DeploymentFleet) -> None:
    await fleet.ensure(spec("one"))
    kube.broken = "Deployment"
    with pytest.raises(Unreachable):
        await fleet.delete(spec("one").key)
    kube.broken = ""
    await fleet.delete(spec("one").key)
    assert kube.objects == {}


async def test_groups_do_not_share(kube: FakeKube, fleet: DeploymentFleet) -> None:
    await fleet.ensure(spec("one"))
    await fleet.ensure(spec("one", group="b"))
    assert kube.kinds().count("Deployment") == 2
    moved = msgspec.structs.replace(spec("one"), group="b")
    await fleet.ensure(moved)
    assert kube.kinds().count("Deployment") == 1


async def test_address_comes_from_the_service_status(kube: FakeKube, fleet: DeploymentFleet) -> None:
    notified: list[LoadBalancerKey] = []
    fleet.on_change(notified.append)
    web = spec("one")
    assert "has no address yet" in (await fleet.ensure(web)).message
    kube.assign(service_name(web.key), "203.0.113.7", "lb.example.com")
    kube.assign(service_name(web.key), "203.0.113.7", "lb.example.com")
    kube.assign("another-service", "203.0.113.8")
    assert notified == [web.key]
    assert (await fleet.ensure(web)).addresses == ("203.0.113.7", "lb.example.com")


@pytest.mark.req("K-4", "K-58")
@pytest.mark.parametrize(
    ("families", "bound", "addresses"),
    [
        ((), ("0.0.0.0",), ("203.0.113.7", "2001:db8::7")),
        (("IPv6",), ("::",), ("2001:db8::7",)),
        (("IPv6", "IPv4"), ("0.0.0.0", "::"), ("2001:db8::7", "203.0.113.7")),
    ],
)
async def test_proxies_listen_in_the_families_that_are_asked_for(
    kube: FakeKube,
    fleet: DeploymentFleet,
    families: tuple[Family, ...],
    bound: tuple[str, ...],
    addresses: tuple[str, ...],
) -> None:
    web = msgspec.structs.replace(spec("one"), families=WantedFamilies(families))
    assert fleet.bind_addresses(web) == bound
    await fleet.ensure(web)
    kube.assign(service_name(web.key), "203.0.113.7", "2001:db8::7")
    assert fleet.addresses(web.key).addresses == addresses


async def test_service_that_is_refused_says_why(kube: FakeKube, fleet: DeploymentFleet) -> None:
    web = spec("one")
    await fleet.ensure(web)
    kube.refuse(service_name(web.key), "quota exceeded")
    assert fleet.addresses(web.key).message == "quota exceeded"
    kube.assign(service_name(web.key))
    assert "has no address yet" in fleet.addresses(web.key).message


def test_one_port_has_half_of_the_connections_of_a_members_own_proxy(kube: FakeKube) -> None:
    assert DeploymentFleet(kube=kube).connections_per_cluster == 25_000
    assert DeploymentFleet(kube=kube, settings=DeploymentSettings(max_connections=900)).connections_per_cluster == 450


async def test_each_group_has_its_own_namespace(kube: FakeKube) -> None:
    fleet = DeploymentFleet(kube=kube)
    await fleet.ensure(spec("one"))
    await fleet.ensure(spec("one", group="b"))
    assert {ref.namespace for ref in kube.objects} == {"a", "b"}
    together = DeploymentFleet(kube=kube, settings=DeploymentSettings(namespace="all"))
    await together.ensure(spec("one"))
    assert {ref.namespace for ref in kube.objects} == {"a", "b", "all"}


async def test_objects_deleted_during_downtime_are_swept(kube: FakeKube, fleet: DeploymentFleet) -> None:
    await fleet.ensure(spec("kept"))
    await fleet.ensure(spec("gone", port=10_002))
    await fleet.ensure(spec("gone", group="b"))
    heir = DeploymentFleet(kube=kube)
    await heir.ensure(spec("kept"))
    await heir.sweep()
    assert kube.kinds() == sorted([*GROUP_KINDS, "Service"])


async def test_proxy_port_must_be_allocated(fleet: DeploymentFleet) -> None:
    with pytest.raises(Terminal, match="no proxy port"):
        await fleet.ensure(spec("one", port=0))
    assert fleet.allocation is AllocationKind.PROXY_PORT


async def test_source_ranges_are_left_to_the_service_where_clients_are_hidden(fleet: DeploymentFleet) -> None:
    provider = EnvoyProvider(fleet=fleet, xds_address="127.0.0.1:0")
    hidden = msgspec.structs.replace(spec("one"), source_ranges=("10.0.0.0/8",))
    seen = msgspec.structs.replace(hidden, local_traffic_only=True)
    for wanted, matched in ((hidden, False), (seen, True)):
        await provider.ensure(wanted)
        listener = provider.store.group("a").wanted(ResourceType.LISTENER, "TCPLoadBalancer/a/one/TCP/80")
        assert listener is not None
        assert (b"10.0.0.0" in listener.field) is matched
        service = service_manifest(wanted, DeploymentSettings())["spec"]
        assert service["loadBalancerSourceRanges"] == ["10.0.0.0/8"]  # type: ignore[index]
    row = TargetChange(seen.key, seen.listeners[0].key, Target(TargetKey("10.0.0.1", 1)), Action.REGISTER, Reason.NEW)
    assert (await provider.apply([row]))[0].status == "Done"
    await provider.close()


@pytest.mark.req("F-9")
async def test_http3_waits_for_the_udp_port_of_the_service(kube: FakeKube, fleet: DeploymentFleet) -> None:
    l7 = L7Config((L7Listener("https", 443, "HTTPS"), L7Listener("plain", 80)), (), ())
    web = FrontendSpec(
        LoadBalancerKey("HTTPLoadBalancer", "a", "web"),
        group="a",
        listeners=(Listener(80, proxy_port=10_001), Listener(443, proxy_port=10_002)),
        l7=l7,
        parameters={"http3": "true"},
    )
    name = service_name(web.key)
    assert "TCP and UDP on one Service" in (await fleet.ensure(web)).message
    service = next(manifest for ref, manifest in kube.objects.items() if ref.kind == "Service")
    ports = cast("dict[str, list[dict[str, object]]]", service["spec"])["ports"]
    assert [tuple(port.values()) for port in ports] == [
        ("tcp-80", "TCP", 80, 10_001),
        ("tcp-443", "TCP", 443, 10_002),
        ("http3-443", "UDP", 443, 10_002),
    ]
    assert "no address" in fleet.http3_problem(web)
    kube.assign(name, udp={443: "reports LoadBalancerMixedProtocolNotSupported"})
    assert fleet.addresses(web.key).message.startswith("reports LoadBalancerMixedProtocolNotSupported; ")
    kube.assign(name, "203.0.113.7")
    assert "does not have UDP/443" in fleet.http3_problem(web)
    kube.assign(name, "203.0.113.7", udp={443: "rejected"})
    assert fleet.http3_problem(web) == "rejected"
    kube.assign(name, "203.0.113.7", udp={443: ""})
    assert not fleet.http3_problem(web)
    assert not fleet.http3_problem(msgspec.structs.replace(web, parameters={}))
    kube.refuse(name, "the API rejects it")
    assert fleet.http3_problem(web), "the Service has lost its address"
