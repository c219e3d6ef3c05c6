"""What the controller writes against a real API: held names, names that are not its own, and one that does not lead."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import ObjectKey
from fairlead.api.names import FINALIZER_CLEANUP, LABEL_ORIGIN_NAMESPACE, MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.api.tenant import TENANTS
from fairlead.api.times import wire_time
from fairlead.errors import NotFound
from fairlead.hub.intents.backend_groups import LoadBalancerObjects
from fairlead.hub.intents.global_service import GlobalObjects
from fairlead.hub.intents.hostname import HostnameObjects
from fairlead.hub.intents.http import HTTPObjects
from fairlead.hub.intents.tcp import TCPObjects
from fairlead.hub.names.controller import HELD_AGAIN_S, Names
from fairlead.hub.names.ownership import ClaimSource
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.writes import apply_status
from fairlead.runtime.clock import SystemClock
from tests.scenario.installed_kinds import server_with_kinds
from tests.unit.hub.hub_parts import intent_context

TOKEN = "for-these-tests-only"
HOST = "shop.example.com"
SOURCE = "LoadBalancerRoute"
LIMIT_S = 180.0


class World:
    """An API with two Tenants, and the names of a hub whose keys the test reconciles itself."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.leads = cluster, True
        context = intent_context(cluster=cluster)
        self.inventory = context.inventory
        self.routes = HTTPObjects(cluster, self.inventory).routes
        TCPObjects(cluster, self.inventory)
        LoadBalancerObjects(cluster, self.inventory)
        GlobalObjects(context)
        HostnameObjects(cluster, self.inventory)
        self.names = Names(
            cluster=cluster, inventory=self.inventory, clock=SystemClock(), leading=lambda: self.leads, domain=""
        )
        self.names.watch()

    async def route(self, member: str, *hosts: str, labels: dict[str, str] | None = None) -> None:
        spec = {"loadBalancer": "gw", "attachments": [{"listener": "http", "hostnames": list(hosts)}]}
        body = {"metadata": {"name": "web", "namespace": f"tenant-{member}", "labels": labels or {}}, "spec": spec}
        written = await self.cluster.apply(LOAD_BALANCER_ROUTES, body, manager="agent")
        await self.sees(lambda: self._version(member) == written.metadata.resource_version)

    def _version(self, member: str) -> str:
        there = self.routes.get(f"tenant-{member}", "web")
        return there.metadata.resource_version if there is not None else ""

    async def remove(self, member: str) -> None:
        await self.cluster.delete(LOAD_BALANCER_ROUTES, f"tenant-{member}", "web")
        await self.sees(lambda: not self._version(member))

    async def sees(self, check) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not check():  # noqa: ASYNC110 - what is waited for is another task's
                await asyncio.sleep(0.01)

    def version(self) -> str:
        there = self.inventory.hostnames.get(SYSTEM_NAMESPACE, HOST)
        return there.metadata.resource_version if there is not None else ""

    async def tenant(self, member: str, **spec) -> None:
        written = await self.cluster.apply(TENANTS, {"metadata": {"name": member}, "spec": spec}, manager="kubectl")
        await self.sees(
            lambda: (
                self.inventory.tenants.get("", member).metadata.resource_version == written.metadata.resource_version
            )
        )

    async def settled(self) -> None:
        """Reconcile names until none is queued, with what the caches show of it."""
        quiet = 0
        while quiet < 5:
            quiet += 1
            while len(self.names.hosts):
                quiet = 0
                host = await self.names.hosts.get()
                await self.names.reconcile_host(host)
                self.names.hosts.done(host)
            await asyncio.sleep(0.05)

    async def recorded(self, member: str) -> set[str]:
        """Return the names that are recorded for a member and stay."""
        there = await self.cluster.list(HOSTNAMES, SYSTEM_NAMESPACE)
        return {each.spec.host for each in there if each.spec.owner.member == member and not each.deleting}

    def route_names(self, member: str):
        return self.routes.get(f"tenant-{member}", "web").status.names

    async def owner(self, host: str = HOST) -> str | None:
        try:
            there = await self.cluster.get(HOSTNAMES, SYSTEM_NAMESPACE, host)
        except NotFound:
            return None
        return None if there.deleting else there.spec.owner.member


@pytest.fixture
async def world():
    server = await server_with_kinds(admin_token=TOKEN)
    await server.start()
    config = ClusterConfig(server=server.url, sign_in=bearer(TOKEN))
    try:
        async with Cluster(config, name="hub", qps=0) as cluster:
            for name in (SYSTEM_NAMESPACE, "tenant-east", "tenant-west"):
                with contextlib.suppress(Exception):
                    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
            for name in ("east", "west"):
                await cluster.apply(TENANTS, {"metadata": {"name": name}, "spec": {}}, manager="kubectl")
            zone = {"metadata": {"name": "com"}, "spec": {"zone": "com", "provider": "rfc2136"}}
            await cluster.apply(DNS_ZONES, zone, manager="kubectl")
            made = World(cluster)
            tasks = [asyncio.create_task(cache.run()) for cache in made.inventory.caches.values()]
            try:
                for cache in made.inventory.caches.values():
                    await cache.wait_synced(LIMIT_S)
                yield made
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await server.stop()


@pytest.mark.req("KI-9")
async def test_a_name_keeps_its_owner_while_an_object_of_the_owner_cannot_be_read(world):
    await world.route("east", HOST)
    assert await world.names.reconcile_host(HOST) is None
    assert await world.owner() == "east"
    await world.remove("east")
    await world.route("west", HOST)
    world.routes.broken[ObjectKey("tenant-east", "other")] = "spec is no object"
    assert await world.names.reconcile_host(HOST) == HELD_AGAIN_S
    assert await world.owner() == "east"
    world.routes.broken.clear()
    world.routes.problem = "the server does not answer"
    assert await world.names.reconcile_host(HOST) == HELD_AGAIN_S
    assert await world.owner() == "east"
    world.routes.problem = ""
    assert await world.names.reconcile_host(HOST) is None
    assert await world.owner() == "west"


async def test_a_name_has_its_finalizer_from_its_first_write_on_and_keeps_it(world):
    await world.route("east", HOST)
    await world.names.reconcile_host(HOST)
    there = await world.cluster.get(HOSTNAMES, SYSTEM_NAMESPACE, HOST)
    assert there.held_by(FINALIZER_CLEANUP)
    await world.route("west", HOST)
    await world.remove("east")
    await world.names.reconcile_host(HOST)
    again = await world.cluster.get(HOSTNAMES, SYSTEM_NAMESPACE, HOST)
    assert (again.spec.owner.member, again.held_by(FINALIZER_CLEANUP)) == ("west", True)


@pytest.mark.req("KI-9")
async def test_a_broken_object_of_one_member_holds_no_name_of_another(world):
    await world.route("east", HOST)
    await world.names.reconcile_host(HOST)
    await world.remove("east")
    world.routes.broken[ObjectKey("tenant-west", "other")] = "spec is no object"
    assert await world.names.reconcile_host(HOST) is None
    assert await world.owner() is None


async def test_a_hostname_of_the_operator_is_never_changed(world):
    body = {
        "metadata": {"name": HOST, "namespace": SYSTEM_NAMESPACE},
        "spec": {"host": HOST, "addresses": ["192.0.2.9"]},
    }
    await world.cluster.apply(HOSTNAMES, body, manager="kubectl")
    await world.sees(lambda: world.inventory.hostnames.get(SYSTEM_NAMESPACE, HOST) is not None)
    await world.route("east", HOST)
    await world.names.reconcile_host(HOST)
    there = await world.cluster.get(HOSTNAMES, SYSTEM_NAMESPACE, HOST)
    assert (there.spec.owner.member, there.spec.addresses) == ("", ["192.0.2.9"])
    await world.names.reconcile_source(await world.names.sources.get())
    route = await world.cluster.get(LOAD_BALANCER_ROUTES, "tenant-east", "web")
    assert [each.reason for each in route.status.names.conditions] == ["HostnameTaken"]


async def test_a_replica_that_does_not_lead_writes_nothing(world):
    world.leads = False
    await world.route("east", HOST)
    assert await world.names.reconcile_host(HOST) is None
    assert await world.owner() is None


@pytest.mark.req("KI-9")
async def test_a_member_with_a_wildcard_takes_no_name_below_it_from_another(world):
    await world.route("east", "*.example.com")
    await world.names.reconcile_host("*.example.com")
    await world.route("west", HOST)
    await world.names.reconcile_host(HOST)
    assert await world.owner() == "west"


@pytest.mark.req("KI-9")
async def test_a_wildcard_over_a_zone_waits_for_a_grant(world):
    zone = {"metadata": {"name": "example"}, "spec": {"zone": "example.com", "provider": "rfc2136"}}
    await world.cluster.apply(DNS_ZONES, zone, manager="kubectl")
    await world.sees(lambda: world.inventory.caches[DNS_ZONES.plural].get("", "example") is not None)
    await world.route("east", "*.example.com")
    await world.names.reconcile_host("*.example.com")
    await world.names.reconcile_source(ClaimSource(SOURCE, "tenant-east", "web"))
    route = await world.cluster.get(LOAD_BALANCER_ROUTES, "tenant-east", "web")
    (condition,) = route.status.names.conditions
    assert (condition.reason, condition.status) == ("WildcardNotGranted", "False")
    assert condition.message.startswith("host *.example.com: ")
    assert "spec.domains of the Tenant" in condition.message
    assert list(world.inventory.hostnames.values()) == []
    await world.cluster.apply(
        TENANTS, {"metadata": {"name": "east"}, "spec": {"domains": ["example.com"]}}, manager="k"
    )
    await world.sees(lambda: world.inventory.tenants.get("", "east").spec.domains == ["example.com"])
    await world.names.reconcile_host("*.example.com")
    await world.sees(lambda: [each.spec.owner.member for each in world.inventory.hostnames.values()] == ["east"])


async def test_the_tenants_limit_of_names_holds_for_simultaneous_requests(world):
    await world.tenant("east", maxHostnames=2)
    hosts = [f"h{number}.example.com" for number in range(40)]
    await world.route("east", *hosts)
    await world.route("west", HOST)
    await asyncio.gather(*(world.names.reconcile_host(host) for host in [*hosts, HOST]))
    assert len(await world.recorded("east")) == 2
    assert await world.recorded("west") == {HOST}, "the quota of one member is not another's"
    await world.names.reconcile_source(ClaimSource(SOURCE, "tenant-east", "web"))
    (condition,) = (await world.cluster.get(LOAD_BALANCER_ROUTES, "tenant-east", "web")).status.names.conditions
    assert (condition.reason, condition.status) == ("QuotaExceeded", "False")
    assert "and 35 more" in condition.message
    assert "spec.maxHostnames" in condition.message


async def test_waiting_names_are_recorded_when_there_is_room(world):
    await world.tenant("east", maxHostnames=1)
    hosts = [f"h{number}.example.com" for number in range(3)]
    await world.route("east", *hosts)
    await world.settled()
    (first,) = await world.recorded("east")
    left = [host for host in hosts if host != first]
    await world.route("east", *left)
    await world.settled()
    assert len(await world.recorded("east")) == 1
    await world.tenant("east", maxHostnames=0)
    await world.settled()
    assert await world.recorded("east") == set(left)
    await world.tenant("east", maxHostnames=1)
    await world.settled()
    assert await world.recorded("east") == set(left), "what it has already stays"


@pytest.mark.req("F-33")
async def test_a_sub_tenant_has_a_limit_of_names(world):
    hosts, shop = [f"h{number}.example.com" for number in range(3)], {LABEL_ORIGIN_NAMESPACE: "shop"}
    await world.tenant("east", subtenants=[{"name": "*", "maxHostnames": 2}])
    await world.route("east", *hosts, labels=shop)
    await world.settled()
    kept = await world.recorded("east")
    assert len(kept) == 2
    assert {hostname.spec.owner.subtenant for hostname in world.inventory.hostnames.values()} == {"shop"}
    await world.names.reconcile_source(ClaimSource(SOURCE, "tenant-east", "web"))
    (condition,) = (await world.cluster.get(LOAD_BALANCER_ROUTES, "tenant-east", "web")).status.names.conditions
    assert (condition.reason, "spec.subtenants.maxHostnames" in condition.message) == ("QuotaExceeded", True)
    await world.tenant("east", subtenants=[{"name": "shop", "maxHostnames": 1}])
    await world.settled()
    assert await world.recorded("east") == kept, "what it has stays"
    await world.tenant("east", subtenants=[{"name": "search", "maxHostnames": 1}])
    await world.settled()
    assert await world.recorded("east") == set(hosts), "without a limit, the third name is recorded"


@pytest.mark.req("KI-10")
async def test_unwritten_records_are_reported_to_the_requester(world):
    await world.route("east", HOST)
    await world.names.reconcile_host(HOST)
    source = ClaimSource(SOURCE, "tenant-east", "web")
    assert await world.names.reconcile_source(source) is None
    for status, since, expected in (
        ("False", wire_time(SystemClock().now()), None),
        ("False", "2020-01-01T00:00:00Z", "False"),
        ("True", wire_time(SystemClock().now()), "True"),
    ):
        condition = {"type": "Programmed", "status": status, "reason": "DNSTimeout", "lastTransitionTime": since}
        body = {
            "metadata": {"name": HOST, "namespace": SYSTEM_NAMESPACE},
            "status": {"conditions": [{**condition, "message": "", "observedGeneration": 1}]},
        }
        written = await world.cluster.apply(HOSTNAMES, body, manager=MANAGER_HUB, subresource="status")
        await world.sees(lambda version=written.metadata.resource_version: world.version() == version)
        again_s = await world.names.reconcile_source(source)
        assert (again_s is not None) == (expected is None)
        names = (await world.cluster.get(LOAD_BALANCER_ROUTES, "tenant-east", "web")).status.names
        shown = {each.type: each.status for each in names.conditions or ()}
        assert shown == ({"HostnamesPublished": expected} if expected else {})
        await world.sees(lambda shown=names: world.route_names("east") == shown)


async def test_a_route_host_without_a_zone_costs_no_hostname(world):
    host = "shop.example.net"
    await world.route("east", host)
    await world.route("west", host)
    await world.settled()
    assert await world.recorded("east") == await world.recorded("west") == set()
    assert world.names.member_of(host) == "east"
    zone = {"metadata": {"name": "net"}, "spec": {"zone": "example.net", "provider": "rfc2136"}}
    await world.cluster.apply(DNS_ZONES, zone, manager="kubectl")
    await world.sees(lambda: world.inventory.caches[DNS_ZONES.plural].get("", "net") is not None)
    await world.settled()
    assert await world.recorded("east") == {host}
    assert world.names.member_of(host) is None, "the Hostname says it"


@pytest.mark.req("MC-22")
async def test_an_address_that_fails_is_unhealthy_where_other_hubs_answer(world):
    address = "192.0.2.1"
    body = {
        "metadata": {"name": "gw", "namespace": "tenant-east"},
        "spec": {"listeners": [{"name": "http", "port": 80}]},
    }
    gateway = await world.cluster.apply(HTTP_LOAD_BALANCERS, body, manager="agent")
    await world.route("east", HOST)

    async def unhealthy(type_: str, reason: str, *, ago_s: float, lease_s: int, status: str = "False") -> list[str]:
        spec = {"zone": "com", "provider": "rfc2136", "peerLeaseSeconds": lease_s}
        await world.cluster.apply(DNS_ZONES, {"metadata": {"name": "com"}, "spec": spec}, manager="kubectl")
        since = wire_time(datetime.now(UTC) - timedelta(seconds=ago_s))
        condition = {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": since}
        answer = {"loadBalancer": {"ingress": [{"ip": address}]}, "conditions": [condition]}
        written = await apply_status(world.cluster, HTTP_LOAD_BALANCERS, gateway, answer, manager=MANAGER_HUB)
        cache, version = world.inventory.caches[HTTP_LOAD_BALANCERS.plural], written.metadata.resource_version
        await world.sees(lambda: cache.get("tenant-east", "gw").metadata.resource_version == version)
        zones = world.inventory.caches[DNS_ZONES.plural]
        await world.sees(lambda: zones.get("", "com").spec.peer_lease_seconds == lease_s)
        await world.settled()
        there = await world.cluster.get(HOSTNAMES, SYSTEM_NAMESPACE, HOST)
        assert there.spec.addresses == [address], "it stays an address of the name"
        return there.spec.unhealthy_addresses

    assert await unhealthy("Programmed", "NoProxyConnected", ago_s=60, lease_s=0) == []
    assert await unhealthy("Programmed", "NoProxyConnected", ago_s=60, lease_s=30) == [address]
    assert await unhealthy("Programmed", "NoProxyConnected", ago_s=0, lease_s=30) == [], "it may be a restart"
    assert await unhealthy("Serving", "NoHealthyTargets", ago_s=60, lease_s=30) == [address]
    assert await unhealthy("Serving", "Serving", ago_s=60, lease_s=30, status="True") == []
    assert await unhealthy("Serving", "ProxiesSilent", ago_s=60, lease_s=30, status="Unknown") == []
    assert await unhealthy("Serving", "UnreachableFromSomeProxies", ago_s=60, lease_s=30) == []
