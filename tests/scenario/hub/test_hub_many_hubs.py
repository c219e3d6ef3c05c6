"""Two hubs with separate APIs, the same members and one hostname: partitions, death and return, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta

import pytest
from hub_world import HubWorld, RunningHub, new_world

from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, Hostname
from fairlead.api.kubernetes import SECRETS
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES
from fairlead.api.meta import condition_of
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import Retry
from fairlead.hub.certificates.issuance import challenge_host
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.zones.plan import EMPTY, Edit, RRKey, RRSet, RRSets, host_of_marks, mark_key
from fairlead.providers.zones.provider import DNSProvider
from fairlead_demo.worlds.acme_server import AcmeServer

HOST = "web.example.test"
NAME = RRKey(HOST, "A")
KEY = LoadBalancerKey(GLOBAL_SERVICES.kind, "tenant-east", "web")
POOLS = {"a": "10.200.1.0/28", "b": "10.200.2.0/28"}
LEASE_S = 30


class Zone:
    """The records of a zone, with every answer that it has given for the name."""

    def __init__(self) -> None:
        self.records: dict[RRKey, RRSet] = {}
        self.serial = 1
        self.answers: list[frozenset[str]] = []

    @property
    def answer(self) -> set[str]:
        return set(self.records.get(NAME, EMPTY).values)


class Door:
    """The zone as one hub reaches it."""

    immediate = True

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.closed = False
        self.writes = 0

    async def check(self) -> int:
        return await self.serial()

    async def serial(self) -> int:
        self._pass()
        return self.zone.serial

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        self._pass()
        return {key: self.zone.records[key] for key in keys if key in self.zone.records}

    answers = kept = read

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        self._pass()
        records = self.zone.records
        if any(records.get(edit.key, EMPTY).values != there.get(edit.key, EMPTY).values for edit in edits):
            return False
        for edit in edits:
            now = records.get(edit.key, EMPTY)
            values = now.values | {edit.value} if edit.add else now.values - {edit.value}
            records[edit.key] = RRSet(values, edit.ttl if edit.add else now.ttl)
            self.writes += edit.key == NAME or host_of_marks(edit.key) is not None
        self.zone.serial += 1
        self.zone.answers.append(records.get(NAME, EMPTY).values)
        return True

    async def close(self) -> None:
        """Keep what there is."""

    def _pass(self) -> None:
        if self.closed:
            raise Retry("the DNS server cannot be reached", reason="DNSUnreachable")


class Site:
    """A hub with its own API and proxies, to which agents of both members report."""

    def __init__(self, name: str, world: HubWorld, zone: Zone) -> None:
        self.name, self.world, self.door = name, world, Door(zone)
        self.hub: RunningHub | None = None
        self.address = ""
        #: The members whose agents reach this hub.
        self.heard = {"east", "west"}
        world.factories["rfc2136"] = lambda: DNSProvider(
            make=lambda _settings: self.door, own=frozenset(), clock=world.clock, leases=True
        )

    async def start(self) -> None:
        self.hub = await self.world.start(pool=POOLS[self.name])

    async def kill(self) -> None:
        """End the hub; its proxies go on, and its lease is not renewed."""
        assert self.hub is not None
        await self.world.stop(self.hub)
        self.hub = None

    async def prepare(self) -> None:
        world = self.world
        parameters = {"server": "192.0.2.53"}
        spec = {"zone": "example.test", "provider": "rfc2136", "parameters": parameters, "ownerId": f"hub-{self.name}"}
        spec |= {"peerLeaseSeconds": LEASE_S}
        await world.user.apply(DNS_ZONES, {"metadata": {"name": "example"}, "spec": spec}, manager="operator")
        for number, member in enumerate(("east", "west"), 1):
            await world.tenant(member)
            await world.heartbeat(f"tenant-{member}")
            await world.lb("shop.web", namespace=f"tenant-{member}")
            await world.slice("shop.web", f"10.{number}.0.1", namespace=f"tenant-{member}")
        members = [{"tenant": "east"}, {"tenant": "west"}]
        service = {"service": "shop/web", "members": members, "hostnames": [HOST]}
        body = {"metadata": {"name": "web", "namespace": "tenant-east"}, "spec": service}
        await world.user.apply(GLOBAL_SERVICES, body, manager="operator")

        async def address() -> str:
            return (await world.user.get(GLOBAL_SERVICES, "tenant-east", "web")).status.address

        self.address = await world.until(address, what="an address of the GlobalService")

    async def endpoints(self, member: str, *addresses: str) -> None:
        if member in self.heard:
            await self.world.slice("shop.web", *addresses, namespace=f"tenant-{member}")

    def served(self) -> set[str]:
        return {str(target) for _, target in self.world.cloud.members(KEY)}

    async def request_certificate(self, directory: str) -> None:
        issuer = {"metadata": {"name": "ca"}, "spec": {"server": directory, "solvers": ["HTTP01", "DNS01"]}}
        await self.world.user.apply(CERTIFICATE_ISSUERS, issuer, manager="operator")
        meta = {"name": "acme.web", "namespace": "tenant-east"}
        body = {"metadata": meta, "spec": {"hosts": [HOST], "issuer": "ca"}}
        await self.world.user.apply(MANAGED_CERTIFICATES, body, manager="agent")

    async def certificate(self) -> bytes:
        """Return what the hub has stored of its certificate, empty while it has none."""
        shown = await self.world.user.get(MANAGED_CERTIFICATES, "tenant-east", "acme.web")
        if shown.status.state != "Issued":
            return b""
        secret = await self.world.user.get(SECRETS, "tenant-east", "acme.web")
        return (secret.data or {})["tls.crt"].encode()

    async def hostname(self) -> Hostname:
        return await self.world.user.get(HOSTNAMES, SYSTEM_NAMESPACE, HOST)


class Sites:
    """Both sites, whose times pass together."""

    def __init__(self, a: Site, b: Site, zone: Zone) -> None:
        self.a, self.b, self.zone = a, b, zone
        self.both = (a, b)
        self.addresses = {site.address for site in self.both}

    async def passes(self, seconds: float) -> None:
        for _ in range(int(seconds / 5)):
            for site in self.both:
                for member in sorted(site.heard):
                    await site.world.heartbeat(f"tenant-{member}")
            await asyncio.gather(*(site.world.quiet(5) for site in self.both))

    async def answers(self, addresses: set[str], *, limit_s: float = 180.0) -> None:
        for _ in range(int(limit_s / 5)):
            if self.zone.answer == addresses:
                return
            await self.passes(5)
        raise AssertionError(f"the answer is {self.zone.answer}, not {addresses}")


@pytest.fixture
async def sites() -> AsyncIterator[Sites]:
    async with contextlib.AsyncExitStack() as stack:
        worlds = [await stack.enter_async_context(new_world()) for _ in range(2)]
        zone = Zone()
        a, b = (Site(name, world, zone) for name, world in zip(POOLS, worlds, strict=True))
        for site in (a, b):
            await site.start()
            await site.prepare()
        made = Sites(a, b, zone)
        await made.answers(made.addresses)
        yield made


@pytest.fixture
async def authority(sites: Sites) -> AsyncIterator[AcmeServer]:
    """An authority that validates by the zone; nothing answers HTTP-01."""

    async def texts(host: str) -> list[str]:
        return [value.strip('"') for value in sites.zone.records.get(RRKey(host, "TXT"), EMPTY).values]

    # The clock of the hubs is years ahead of that of the authority.
    life = timedelta(days=3650)
    async with AcmeServer(where=lambda _host: ("127.0.0.1", 1), texts=texts, life=life) as server:
        yield server


@pytest.mark.req("MC-20", "MC-21")
async def test_hubs_that_hear_different_members_keep_all_and_do_not_fight(sites: Sites):
    a, b = sites.a, sites.b
    assert sites.zone.records[NAME].ttl == 30
    assert len(sites.zone.records[mark_key(HOST, "A")].values) == 2
    everything = {"10.1.0.1:8080", "10.2.0.1:8080"}
    assert a.served() == b.served() == everything
    a.heard, b.heard = {"west"}, {"east"}
    writes = [site.door.writes for site in sites.both]
    for site in sites.both:
        await site.endpoints("east", "10.1.0.1", "10.1.0.2")
        await site.endpoints("west", "10.2.0.2")
    await sites.passes(60)
    assert a.served() == {"10.1.0.1:8080", "10.2.0.2:8080"}, "a hears west only"
    assert b.served() == {"10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.1:8080"}, "b hears east only"
    assert sites.zone.answer == sites.addresses
    for site in sites.both:
        site.heard = {"east", "west"}
        await site.endpoints("east", "10.1.0.1", "10.1.0.2")
        await site.endpoints("west", "10.2.0.2")
    await sites.passes(60)
    assert a.served() == b.served() == {"10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.2:8080"}
    for site in sites.both:
        assert site.hub is not None
        site.hub.cluster.written.clear()
    await sites.passes(30)
    assert [site.hub.written for site in sites.both if site.hub is not None] == [[], []]
    assert [site.door.writes for site in sites.both] == writes, "no hub touches the addresses"


@pytest.mark.req("MC-21", "MC-22", "MC-23")
async def test_a_hub_leaves_the_answer_with_its_proxies_or_itself(sites: Sites, authority: AcmeServer):
    a, b, zone = sites.a, sites.b, sites.zone
    zone.answers.clear()
    for site in sites.both:
        await site.request_certificate(authority.directory)
    targets = {TargetKey(f"10.{number}.0.1", 8080) for number in (1, 2)}
    b.world.cloud.unhealthy |= targets
    b.world.cloud.changed((KEY,))
    await sites.answers({a.address})
    await sites.passes(10)
    hostname = await b.hostname()
    assert hostname.spec.unhealthy_addresses == [b.address]
    serving = condition_of(hostname.status.conditions, "Serving")
    assert serving is not None
    assert (serving.status, serving.reason) == ("False", "Withdrawn")
    # The other site fails too: what fails last stays, since the answer must not be empty.
    a.world.cloud.unhealthy |= targets
    a.world.cloud.changed((KEY,))
    await sites.passes(40)
    assert zone.answer == {a.address}
    for site in sites.both:
        site.world.cloud.unhealthy.clear()
        site.world.cloud.changed((KEY,))
    await sites.answers(sites.addresses)
    chains = {await site.certificate() for site in sites.both}
    assert len(chains - {b""}) == 2, "each hub has a certificate of its own"
    assert not zone.records.get(RRKey(challenge_host(HOST), "TXT"), EMPTY).values, "the proofs are removed"
    await b.kill()
    await sites.passes(LEASE_S - 15)
    assert zone.answer == sites.addresses
    await sites.answers({a.address})
    await b.start()
    await sites.answers(sites.addresses)
    # Cut off from the zone, b cannot renew its lease; nor can a, later.
    b.door.closed = True
    await sites.answers({a.address}, limit_s=90)
    a.door.closed, b.door.closed = True, False
    await sites.answers(sites.addresses)
    await sites.answers({b.address}, limit_s=90)
    a.door.closed = False
    await sites.answers(sites.addresses)
    assert all(zone.answers), "the answer was never empty"
