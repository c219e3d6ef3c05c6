"""Deployments and Services: what is applied, when, and what is taken away again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import Terminal, Unreachable
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.envoy.kubernetes.deployment_manifests import DeploymentSettings, Manifest, group_manifests
from fairlead.providers.envoy.kubernetes.fleet import DeploymentFleet, ObjectRef, ServiceStatus, ref_of
from fairlead.providers.envoy.kubernetes.service_manifests import service_manifest, service_name
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.resources import ResourceType


class FakeKube:
    """A cluster in a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[ObjectRef, Manifest] = {}
        self.writes = 0
        self.broken = ""
        self._notify: list[Callable[[ServiceStatus], None]] = []

    async def apply(self, manifest: Manifest) -> None:
        if self.objects.get(ref_of(manifest)) != manifest:
            self.writes += 1
            self.objects[ref_of(manifest)] = manifest

    async def certify(self, ref: ObjectRef, *, group: str, labels: Mapping[str, str]) -> None:
        self.objects.setdefault(ref, {"group": group, "labels": labels})

    async def delete(self, ref: ObjectRef) -> None:
        await asyncio.sleep(0)  # others run meanwhile, as they would
        if ref.kind == self.broken:
            raise Unreachable("the API server is away")
        self.objects.pop(ref, None)

    async def owned(self) -> Sequence[ObjectRef]:
        return list(self.objects)

    def on_service_status(self, notify: Callable[[ServiceStatus], None]) -> None:
        self._notify.append(notify)

    def assign(self, name: str, *addresses: str) -> None:
        for notify in self._notify:
            notify(ServiceStatus("a", name, addresses))

    def refuse(self, name: str, problem: str) -> None:
        for notify in self._notify:
            notify(ServiceStatus("a", name, (), problem))

    def kinds(self) -> list[str]:
        return sorted(ref.kind for ref in self.objects)


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
    told: list[LoadBalancerKey] = []
    fleet.on_change(told.append)
    one = spec("one")
    assert "has no address yet" in (await fleet.ensure(one)).message
    kube.assign(service_name(one.key), "203.0.113.7", "lb.example.com")
    kube.assign(service_name(one.key), "203.0.113.7", "lb.example.com")
    kube.assign("somebody-else", "203.0.113.8")
    assert told == [one.key]
    assert (await fleet.ensure(one)).addresses == ("203.0.113.7", "lb.example.com")


async def test_service_that_is_refused_says_why(kube: FakeKube, fleet: DeploymentFleet) -> None:
    one = spec("one")
    await fleet.ensure(one)
    kube.refuse(service_name(one.key), "quota exceeded")
    assert fleet.addresses(one.key).message == "quota exceeded"
    kube.assign(service_name(one.key))
    assert "has no address yet" in fleet.addresses(one.key).message


async def test_each_group_has_its_own_namespace(kube: FakeKube) -> None:
    fleet = DeploymentFleet(kube=kube)
    await fleet.ensure(spec("one"))
    await fleet.ensure(spec("one", group="b"))
    assert {ref.namespace for ref in kube.objects} == {"a", "b"}
    together = DeploymentFleet(kube=kube, settings=DeploymentSettings(namespace="all"))
    await together.ensure(spec("one"))
    assert {ref.namespace for ref in kube.objects} == {"a", "b", "all"}


async def test_what_was_deleted_while_we_were_dead_is_swept(kube: FakeKube, fleet: DeploymentFleet) -> None:
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
    for one, matched in ((hidden, False), (seen, True)):
        await provider.ensure(one)
        found = provider.store.group("a").wanted(ResourceType.LISTENER, "TCPLoadBalancer/a/one/TCP/80")
        assert found is not None
        assert (b"10.0.0.0" in found.field) is matched
        service = service_manifest(one, DeploymentSettings())["spec"]
        assert service["loadBalancerSourceRanges"] == ["10.0.0.0/8"]  # type: ignore[index]
    row = TargetChange(seen.key, seen.listeners[0].key, Target(TargetKey("10.0.0.1", 1)), Action.REGISTER, Reason.NEW)
    assert (await provider.apply([row]))[0].status == "Done"
    await provider.close()


@given(st.text(max_size=80), st.text(max_size=80))
def test_service_names_are_dns_labels(namespace: str, name: str) -> None:
    found = service_name(LoadBalancerKey("TCPLoadBalancer", namespace, name))
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", found)
    assert found != service_name(LoadBalancerKey("TCPLoadBalancer", namespace, name + "x"))


def test_pods_are_locked_down() -> None:
    (deployment,) = [each for each in group_manifests("a", DeploymentSettings()) if each["kind"] == "Deployment"]
    text = msgspec.json.encode(deployment).decode()
    for wanted in (
        '"readOnlyRootFilesystem":true', '"runAsNonRoot":true', '"drop":["ALL"]',
        '"automountServiceAccountToken":false',
        '"allowPrivilegeEscalation":false', '"RuntimeDefault"', "topologySpreadConstraints", "podAntiAffinity",
    ):  # fmt: skip
        assert wanted in text
