"""Hostnames as DNSEndpoints that external-dns writes into a real BIND's zone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from zones_world import ZonesWorld, needs_bind, zones_world

from fairlead.api.hostname import DNS_ENDPOINTS, DNS_ZONES, DNSEndpoint
from fairlead.api.kubernetes import CRDS
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import NotFound
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds
from tests.worlds.external_dns import ExternalDNS, external_dns_crd

pytestmark = [needs_bind, pytest.mark.req("C-53")]


@pytest.fixture
async def world(api: ClusterConfig, tmp_path: Path) -> AsyncIterator[ZonesWorld]:
    async with zones_world(api, tmp_path, "theirs A 192.0.2.99") as made:
        await made.start()
        yield made
        with contextlib.suppress(NotFound):  # a test that did not install it
            await made.user.delete(CRDS, "", f"{DNS_ENDPOINTS.plural}.{DNS_ENDPOINTS.group}")


async def install(world: ZonesWorld) -> None:
    assert not await install_crds(world.user, [external_dns_crd()], "kubectl")


async def zone(world: ZonesWorld, **spec: Any) -> None:
    given = {"zone": world.bind.zone, "provider": "external-dns", "parameters": {"server": world.bind.server}, **spec}
    await world.user.apply(DNS_ZONES, {"metadata": {"name": "test"}, "spec": given}, manager="kubectl")


async def objects(world: ZonesWorld) -> list[DNSEndpoint]:
    return await world.user.list(DNS_ENDPOINTS, SYSTEM_NAMESPACE)


async def test_a_name_is_published_by_external_dns_and_goes_with_its_hostname(world: ZonesWorld):
    await install(world)
    external_dns = ExternalDNS(world.user, world.bind)
    before = await world.bind.names()
    await zone(world)
    await world.name("www", addresses=["192.0.2.1", "2001:db8::1"])
    await world.says("www", "Programmed", "False", "answers 0 of 2 records")
    (obj,) = await objects(world)
    assert [(each.dns_name, each.record_type, each.record_ttl, each.targets) for each in obj.spec.endpoints or []] == [
        ("www.example.test", "A", 60, ["192.0.2.1"]),
        ("www.example.test", "AAAA", 60, ["2001:db8::1"]),
    ]
    assert await world.records() == ["192.0.2.1", "2001:db8::1"]
    external_dns.start()
    try:
        await world.answers("www", "A", "192.0.2.1")
        await world.published("www")
        await world.delete("www")
        await world.gone("www")
        await world.answers("www", "A")
        await world.answers("www", "AAAA")
    finally:
        await external_dns.stop()
    await external_dns.sync()
    assert (await objects(world), await world.records()) == ([], [])
    assert await world.bind.names() == before


async def test_without_its_kind_the_name_says_what_to_install_and_then_goes_on(world: ZonesWorld):
    await zone(world)
    await world.name("www", addresses=["192.0.2.1"])
    await world.says("www", "Programmed", "False", "dnsendpoints.externaldns.k8s.io", "CustomResourceDefinition")
    await install(world)
    external_dns = ExternalDNS(world.user, world.bind)
    external_dns.start()
    try:
        await world.published("www")
    finally:
        await external_dns.stop()


async def test_an_endpoint_of_another_writer_is_left_alone_and_the_name_says_so(world: ZonesWorld):
    await install(world)
    await zone(world)
    by_hand = {
        "metadata": {"name": "by-hand", "namespace": SYSTEM_NAMESPACE},
        "spec": {"endpoints": [{"dnsName": "www.example.test", "recordType": "A", "targets": ["192.0.2.7"]}]},
    }
    before = await world.user.create(DNS_ENDPOINTS, by_hand)
    await world.name("www", addresses=["192.0.2.1"])
    await world.says("www", "ResolvedRefs", "False", "that Fairlead did not create")
    await world.delete("www")
    await world.gone("www")
    assert await objects(world) == [before]


async def test_a_dry_run_makes_no_object_until_it_ends(world: ZonesWorld):
    await install(world)
    await zone(world, dryRun=True)
    await world.name("www", addresses=["192.0.2.1"])
    await world.says("www", "Paused", "True", "spec.dryRun of DNSZone test is set", "Register 192.0.2.1")
    assert (await objects(world), await world.records()) == ([], [])
    await zone(world, dryRun=False)
    await world.says("www", "Programmed", "False", "answers 0 of 1 records")
    assert len(await objects(world)) == 1


async def test_a_hub_that_starts_again_writes_no_object(world: ZonesWorld):
    await install(world)
    await zone(world)
    external_dns = ExternalDNS(world.user, world.bind)
    external_dns.start()
    try:
        for number in (1, 2, 3):
            await world.name(f"n{number}", addresses=[f"192.0.2.{number}"])
        for number in (1, 2, 3):
            await world.published(f"n{number}")
        before = {obj.metadata.name: obj.metadata.resource_version for obj in await objects(world)}
        await world.stop()
        await world.start()
        await world.name("later", addresses=["192.0.2.9"])
        await world.published("later")
    finally:
        await external_dns.stop()
    after = {obj.metadata.name: obj.metadata.resource_version for obj in await objects(world)}
    assert {name: after[name] for name in before} == before
