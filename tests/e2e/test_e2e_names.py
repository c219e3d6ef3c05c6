"""Names of two members' Ingresses with real processes: the name that the hub makes routes through Envoy, and a host
that another member has is refused in words while its requests are served."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from fairlead.api.hostname import HOSTNAMES
from fairlead.api.kubernetes import INGRESSES
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.tenant import TENANTS
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.web import ingress_address
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_http import HttpClient, answers, service
from tests.e2e.e2e_own import no_ingresses, own_class

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        service_port(80) != 80, reason="an Ingress is served at ports 80 and 443, which this user may not open"
    ),
]

HOST = "named.example.com"
CLASS = "of-names"
DOMAIN = "east.lb.example.com"
GENERATED = f"hosted-default.{DOMAIN}"


class Regarding(msgspec.Struct, frozen=True, gc=False):
    """The object that an Event is about."""

    name: str = ""


class Event(KubeObject, frozen=True, gc=False, rename="camel"):
    """A core/v1 Event."""

    involved_object: Regarding = Regarding()
    reason: str = ""
    message: str = ""


EVENTS = Resource("", "v1", "Event", "events", True, Event)


@pytest_asyncio.fixture(loop_scope="session")
async def named(fleet: Fleet) -> AsyncIterator[Fleet]:
    """The fleet, where member east has a domain for the length of a test."""

    async def domain(name: str) -> None:
        patch = {"spec": {"domain": name}}
        await fleet.cluster.merge_patch(TENANTS, "", "east", patch, manager="operator")

    await domain(DOMAIN)
    yield fleet
    for member in (fleet.members["east"], fleet.members["west"]):
        await no_ingresses(fleet, member, CLASS, "hosted")
        await member.delete("hosted")
    await domain("")

    async def no_name() -> bool:
        there = await fleet.cluster.list(HOSTNAMES, SYSTEM_NAMESPACE)
        return not {each.spec.host for each in there} & {HOST, GENERATED}

    await wait_until(no_name, "the names are given up with their Ingresses")


async def ingress(member: Member) -> None:
    await own_class(member, CLASS)
    to = {"service": {"name": "hosted", "port": {"number": 80}}}
    rules = [{"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": to}]}}]
    body = {"metadata": {"name": "hosted", "namespace": "default"}, "spec": {"ingressClassName": CLASS, "rules": rules}}
    await member.cluster.apply(INGRESSES, body, manager="user")


async def shown(member: Member) -> list[str]:
    """Return the host names in the status of the Ingress."""
    there = await member.cluster.get(INGRESSES, "default", "hosted")
    return [each.hostname for each in there.status.load_balancer.ingress or () if each.hostname]


@pytest.mark.req("KI-9", "K-47", "K-48", "K-49", "K-50")
async def test_a_name_that_the_hub_made_routes_and_a_taken_host_is_refused_in_words(named: Fleet) -> None:
    east, west = named.members["east"], named.members["west"]
    ours, theirs = east.new_address(), west.new_address()
    async with echoes((ours, 8080, "east"), (theirs, 8080, "west")):
        await service(east, "hosted", ours)
        await service(west, "hosted", theirs)
        await ingress(east)

        async def is_shown() -> bool:
            return await shown(east) == [GENERATED]

        await wait_until(is_shown, f"{GENERATED} in the status of the Ingress")
        client = HttpClient(await ingress_address(east, "hosted"))
        await answers(lambda: client.get(GENERATED), (200, "east"))
        await answers(lambda: client.get(HOST), (200, "east"))

        await ingress(west)

        async def refusals() -> list[str]:
            there = await west.cluster.list(EVENTS, "default")
            ours = [each for each in there if each.involved_object.name == "hosted"]
            return [each.message for each in ours if each.reason == "HostnameTaken"]

        async def is_refused() -> bool:
            return bool(await refusals())

        await wait_until(is_refused, "the Event HostnameTaken at the other member's Ingress")
        assert all(HOST in text and "east" not in text for text in await refusals())
        elsewhere = HttpClient(await ingress_address(west, "hosted"))
        await answers(lambda: elsewhere.get(HOST), (200, "west"))
        assert await shown(west) == []
        # No DNSZone could serve the host: its owner is decided, and nothing is written.
        assert [hostname.spec.host for hostname in await named.cluster.list(HOSTNAMES)] == [GENERATED]
