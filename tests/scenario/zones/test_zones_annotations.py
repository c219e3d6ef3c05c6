"""Hostnames as annotations of Services that external-dns writes into a real BIND's zone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from zones_world import ZonesWorld, needs_bind, zones_world

from fairlead.api.hostname import DNS_ZONES
from fairlead.api.kubernetes import SERVICES, Service
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.kube.config import ClusterConfig
from tests.worlds.external_dns import ExternalDNS

pytestmark = [needs_bind, pytest.mark.req("C-53")]
PREFIXES = ("external-dns.kubernetes.io", "external-dns.alpha.kubernetes.io")


@pytest.fixture
async def world(api: ClusterConfig, tmp_path: Path) -> AsyncIterator[ZonesWorld]:
    async with zones_world(api, tmp_path, "theirs A 192.0.2.99") as made:
        await made.start()
        given = {
            "zone": made.bind.zone,
            "provider": "external-dns-annotations",
            "parameters": {"server": made.bind.server},
        }
        await made.user.apply(DNS_ZONES, {"metadata": {"name": "test"}, "spec": given}, manager="kubectl")
        yield made
        for obj in await services(made):
            await made.user.delete(SERVICES, *obj.key)


@pytest.fixture
async def external_dns(world: ZonesWorld) -> AsyncIterator[ExternalDNS]:
    started = ExternalDNS(world.user, world.bind, source="service")
    started.start()
    yield started
    await started.stop()


async def services(world: ZonesWorld) -> list[Service]:
    return await world.user.list(SERVICES, SYSTEM_NAMESPACE)


def said(obj: Service, name: str) -> set[str]:
    return {obj.annotation(f"{prefix}/{name}") for prefix in PREFIXES}


async def test_a_name_is_annotations_of_a_service_and_goes_with_its_hostname(world: ZonesWorld):
    before = await world.bind.names()
    await world.name("1st", addresses=["192.0.2.1", "2001:db8::1"])
    await world.says("1st", "Programmed", "False", "answers 0 of 2 records")
    (obj,) = await services(world)
    assert said(obj, "hostname") == {"1st.example.test"}
    assert said(obj, "target") == {"192.0.2.1,2001:db8::1"}
    assert said(obj, "ttl") == {"60"}
    assert (obj.spec.cluster_ip, obj.spec.selector, obj.spec.ports) == ("None", None, None), "nothing is reached by it"
    assert await world.records() == ["192.0.2.1", "2001:db8::1"]
    external_dns = ExternalDNS(world.user, world.bind, source="service")
    external_dns.start()
    try:
        await world.answers("1st", "A", "192.0.2.1")
        await world.answers("1st", "AAAA", "2001:db8::1")
        await world.published("1st")
        await world.delete("1st")
        await world.gone("1st")
        await world.answers("1st", "A")
    finally:
        await external_dns.stop()
    await external_dns.sync()
    assert (await services(world), await world.records()) == ([], [])
    assert await world.bind.names() == before


async def test_an_address_is_exchanged_for_a_cname_in_one_write(world: ZonesWorld, external_dns: ExternalDNS):
    await world.name("www", addresses=["192.0.2.1"])
    await world.published("www")
    (before,) = await services(world)
    await world.name("www", cname="lb.example.net")
    await world.answers("www", "CNAME", "lb.example.net")
    await world.answers("www", "A")
    await world.published("www")
    (obj,) = await services(world)
    assert said(obj, "target") == {"lb.example.net"}
    assert obj.metadata.uid == before.metadata.uid


async def test_texts_are_refused_since_annotations_cannot_say_them(world: ZonesWorld, external_dns: ExternalDNS):
    await world.name("www", addresses=["192.0.2.1"])
    await world.published("www")
    await world.name("www", addresses=["192.0.2.1"], texts=["v=spf1 -all"])
    await world.says("www", "Accepted", "False", "spec.texts", "'external-dns-annotations'", "no TXT records")
    await world.answers("www", "A", "192.0.2.1")
    await world.name("www", addresses=["192.0.2.2"], texts=[])
    await world.answers("www", "A", "192.0.2.2")


@pytest.mark.parametrize(
    ("annotations", "status"),
    [
        ({"hostname": "www.example.test", "target": "192.0.2.7"}, {}),
        ({"hostname": "other.example.test, www.example.test."}, {"ingress": [{"ip": "192.0.2.7"}]}),
    ],
    ids=["target", "address"],
)
async def test_a_service_of_another_writer_is_left_alone_and_the_name_says_so(
    world: ZonesWorld, annotations: dict[str, str], status: dict[str, Any]
):
    by_hand = {
        "metadata": {
            "name": "by-hand",
            "namespace": SYSTEM_NAMESPACE,
            "annotations": {f"{PREFIXES[1]}/{name}": value for name, value in annotations.items()},
        },
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "others", "ports": [{"port": 80}]},
    }
    await world.user.create(SERVICES, by_hand)
    if status:
        patch = {"status": {"loadBalancer": status}}
        await world.user.merge_patch(SERVICES, SYSTEM_NAMESPACE, "by-hand", patch, subresource="status")
    before = await world.user.get(SERVICES, SYSTEM_NAMESPACE, "by-hand")
    await world.name("www", addresses=["192.0.2.1"])
    await world.says("www", "ResolvedRefs", "False", "that Fairlead did not create")
    await world.delete("www")
    await world.gone("www")
    assert await services(world) == [before]


async def test_a_hub_that_starts_again_writes_no_service(world: ZonesWorld, external_dns: ExternalDNS):
    await world.name("one", addresses=["192.0.2.1"])
    await world.published("one")
    (before,) = await services(world)
    await world.stop()
    await world.start()
    await world.name("later", addresses=["192.0.2.9"])
    await world.published("later")
    after = {obj.metadata.name: obj.metadata.resource_version for obj in await services(world)}
    assert after[before.metadata.name] == before.metadata.resource_version
    assert len(after) == 2
