"""Objects that are stored with a wrong type: named where they may matter, and looked at again once they are mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hub_world
import msgspec
import pytest
from group_shop import Shop
from hub_world import EVENT, NAMESPACE, Event, HubWorld, RunningHub, store

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import condition_of
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.model.keys import LoadBalancerKey
from fairlead.testing.builders import lb_key, slice_body, tcp_body
from fairlead.testing.faults import FaultyProvider
from tests.worlds.refusing_api import REFUSED_READS, Refusal, RefusingApi


def wrong_endpoints(obj: Any) -> None:
    obj["endpoints"] = [{"addresses": "10.1.0.2"}]


def wrong_spec(obj: Any) -> None:
    obj["spec"]["ports"] = 80


def without_finalizers(obj: Any) -> None:
    obj["metadata"].pop("finalizers", None)


def wrong_ports(obj: Any) -> None:
    obj["spec"]["static"] = "10.9.0.2:8080"


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("mended", [False, True], ids=["deleted", "corrected"])
async def test_a_slice_is_named_and_nothing_is_removed_until_it_is_mended(
    world: HubWorld, hub: RunningHub, *, mended: bool, restarted: bool
) -> None:
    await world.lb("web")
    await world.slice("web", "10.1.0.1")
    second = slice_body("web-2", ["10.1.0.2"], load_balancer="web")
    await world.user.apply(ENDPOINT_SLICES, second, manager="kubectl")
    await world.until(lambda: world.at_cloud() == {"10.1.0.1:8080", "10.1.0.2:8080"})
    if restarted:
        await world.stop(hub)
    store(world, ENDPOINT_SLICES, NAMESPACE, "web-2", wrong_endpoints)
    if restarted:
        await world.start()
    condition = await world.said("ResolvedRefs", "False")
    assert condition.reason == "Invalid"
    for text in ("EndpointSlice", "web-2", "cannot be read", "correct or delete"):
        assert text in condition.message
    await world.slice("web", "10.1.0.3")
    await world.until(lambda: "10.1.0.3:8080" in world.at_cloud())
    await world.quiet(60)
    assert world.at_cloud() == {"10.1.0.1:8080", "10.1.0.2:8080", "10.1.0.3:8080"}
    if mended:
        await world.user.apply(ENDPOINT_SLICES, second, manager="kubectl", force=True)
    else:
        await world.user.delete(ENDPOINT_SLICES, NAMESPACE, "web-2")
    await world.said("ResolvedRefs", "True")
    # A hub that starts while it cannot be read has never known of what it had.
    unknown = {"10.1.0.2:8080"} if restarted and not mended else set[str]()
    wanted = {"10.1.0.3:8080", *({"10.1.0.2:8080"} if mended else ())}
    await world.until(lambda: world.at_cloud() - unknown == wanted, what=f"{wanted}, there are {world.at_cloud()}")


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("mended", [False, True], ids=["deleted", "corrected"])
async def test_a_group_is_named_and_nothing_is_removed_until_it_is_mended(
    world: HubWorld, hub: RunningHub, *, mended: bool, restarted: bool
) -> None:
    shop = Shop(world)
    await shop.open()
    await shop.group("one", static=["10.9.0.1:8080"])
    await shop.group("two", static=["10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(2)
    if restarted:
        await world.stop(hub)
    store(world, BACKEND_GROUPS, "shop", "two", wrong_ports)
    if restarted:
        await world.start()

    async def said(status: str) -> Any:
        given = await world.find(LOAD_BALANCERS, "shop", "shared")
        conditions = (given.status.conditions or ()) if given else ()
        return next((each for each in conditions if (each.type, each.status) == ("ResolvedRefs", status)), None)

    condition = await world.until(lambda: said("False"), what="the group is named")
    for text in ("BackendGroup", "two", "cannot be read", "correct or delete"):
        assert text in condition.message
    await shop.group("one", static=["10.9.0.3:8080"])
    await world.until(lambda: "10.9.0.3:8080" in shop.at_cloud())
    await world.quiet(60)
    assert shop.at_cloud() == {"10.9.0.1:8080", "10.9.0.2:8080", "10.9.0.3:8080"}
    if mended:
        await shop.group("two", static=["10.9.0.2:8080"])
    else:
        await world.user.delete(BACKEND_GROUPS, "shop", "two")
    await world.until(lambda: said("True"), what="the group is not named any more")
    await shop.until(*(("10.9.0.3", "10.9.0.2") if mended else ("10.9.0.3",)))


@pytest.mark.parametrize("mended", [False, True], ids=["deleted", "corrected"])
async def test_targets_of_an_unreadable_slice_are_restored(world: HubWorld, hub: RunningHub, *, mended: bool) -> None:
    await world.lb("web")
    await world.slice("web", "10.1.0.1")
    second = slice_body("web-2", ["10.1.0.2"], load_balancer="web")
    await world.user.apply(ENDPOINT_SLICES, second, manager="kubectl")
    await world.until(lambda: world.at_cloud() == {"10.1.0.1:8080", "10.1.0.2:8080"})
    store(world, ENDPOINT_SLICES, NAMESPACE, "web-2", wrong_endpoints)
    await world.said("ResolvedRefs", "False")

    async def held() -> bool:
        return (await world.user.get(TCP_LOAD_BALANCERS, NAMESPACE, "web")).status.held_total == 1

    await world.until(held, what="what is held is in the status")
    for _ in range(2):
        await world.stop(world.hubs[0])
        # As proxies that are sent all that there is: what the hub does not bring is not there.
        world.cloud.load_balancers.clear()
        await world.start()
        await world.quiet(60)
        assert world.at_cloud() == {"10.1.0.1:8080", "10.1.0.2:8080"}
    guarded = await world.said("Guarded", "True")
    assert "10.1.0.2:8080" in guarded.message
    assert "web-2" in guarded.message
    if mended:
        await world.user.apply(ENDPOINT_SLICES, second, manager="kubectl", force=True)
    else:
        await world.user.delete(ENDPOINT_SLICES, NAMESPACE, "web-2")
    await world.said("ResolvedRefs", "True")
    wanted = {"10.1.0.1:8080", *({"10.1.0.2:8080"} if mended else ())}
    await world.until(lambda: world.at_cloud() == wanted, what=f"{wanted}, there are {world.at_cloud()}")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> set[LoadBalancerKey]:
    """What the proxies have to keep, though the hub has not read it."""
    keys: set[LoadBalancerKey] = set()

    class KeepingProvider(FaultyProvider):
        """A class of its own: Python remembers which classes fit a protocol, so FaultyProvider must not change."""

        def keep(self, key: LoadBalancerKey, *, unread: bool) -> None:
            (keys.add if unread else keys.discard)(key)

    monkeypatch.setattr(hub_world, "FaultyProvider", KeepingProvider)
    return keys


@pytest.mark.parametrize("mended", [False, True], ids=["deleted", "corrected"])
async def test_proxies_keep_what_a_hub_that_starts_cannot_read(
    world: HubWorld, kept: set[LoadBalancerKey], *, mended: bool
) -> None:
    hub = await world.start()
    await world.tenant()
    for name in ("web", "api"):
        await world.lb(name)
        await world.slice(name, "10.1.0.1")
        await world.programmed(name)
    assert kept == set()
    await world.stop(hub)
    mended_api = tcp_body("api", ports=[{"port": 80}], spec={"targets": "Pod"})
    store(world, TCP_LOAD_BALANCERS, NAMESPACE, "api", wrong_spec)
    store(world, ENDPOINT_SLICES, NAMESPACE, "web-1", wrong_endpoints)
    await world.start()
    assert kept == {lb_key("web"), lb_key("api")}
    if mended:
        await world.user.apply(TCP_LOAD_BALANCERS, mended_api, manager="kubectl", force=True)
        await world.slice("web", "10.1.0.1")
    else:
        await world.user.delete(ENDPOINT_SLICES, NAMESPACE, "web-1")
        store(world, TCP_LOAD_BALANCERS, NAMESPACE, "api", without_finalizers)
        await world.user.delete(TCP_LOAD_BALANCERS, NAMESPACE, "api")
        gone = lb_key("api")
        await world.until(lambda: gone not in world.cloud.load_balancers, what="what is gone is not at the proxies")
        kept.discard(gone)  # as proxies do of what is deleted
    await world.until(lambda: not kept, what=f"nothing is kept any more, and {kept} is")


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_an_unreadable_load_balancer_reports_that_deletion_waits(
    world: HubWorld, hub: RunningHub, *, restarted: bool
) -> None:
    await world.lb("web")
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    if restarted:
        await world.stop(hub)
    store(world, TCP_LOAD_BALANCERS, NAMESPACE, "web", wrong_spec)
    if restarted:
        await world.start()

    async def warned(start: str) -> Event | None:
        events: list[Event] = await world.user.list(EVENT, NAMESPACE)
        of_it = (each for each in events if each.involved_object.get("name") == "web" and each.reason == "Invalid")
        return next((each for each in of_it if each.message.startswith(start)), None)

    event = await world.until(lambda: warned("the object cannot be read"), what="an Event says that it cannot be read")
    assert event.involved_object["uid"]
    assert "ports" in event.message
    await world.user.delete(TCP_LOAD_BALANCERS, NAMESPACE, "web")
    await world.until(lambda: warned("the deletion waits: the object cannot be read"), what="it says why it waits")
    assert world.at_cloud() == {"10.1.0.1:8080"}
    await world.lb("web")
    await world.until(
        lambda: lb_key("web") not in world.cloud.load_balancers, what="it is released when it can be read"
    )


@pytest.mark.req("X-39")
async def test_the_warning_of_an_object_that_can_be_read_again_is_resolved(world: HubWorld, hub: RunningHub) -> None:
    await world.lb("web")
    await world.slice("web", "10.1.0.1")
    await world.programmed()

    async def event(reason: str) -> Event | None:
        events: list[Event] = await world.user.list(EVENT, NAMESPACE)
        return next((e for e in events if e.involved_object.get("name") == "web" and e.reason == reason), None)

    store(world, TCP_LOAD_BALANCERS, NAMESPACE, "web", wrong_spec)
    warned = await world.until(lambda: event("Invalid"), what="an Event says that it cannot be read")
    assert await event("Resolved") is None
    await world.lb("web")
    resolved = await world.until(lambda: event("Resolved"), what="an Event says that it can be read")
    assert warned.message in resolved.message
    assert resolved.involved_object["uid"] == warned.involved_object["uid"]


def wrong_allocation(obj: Any) -> None:
    obj["status"]["allocation"] = "198.51.100.1"


def wrong_accepted_spec(obj: Any) -> None:
    obj["spec"]["ports"] = 80
    obj["status"]["accepted"] = 80


@pytest.mark.req("CORE-03")
@pytest.mark.parametrize("change", [wrong_spec, wrong_accepted_spec])
async def test_the_address_of_a_load_balancer_that_cannot_be_read_stays_its_own(
    world: HubWorld, hub: RunningHub, change: Callable[[Any], object]
) -> None:
    await world.lb("web")
    await world.slice("web", "10.1.0.1")
    taken = await world.programmed("web")
    await world.stop(hub)
    store(world, TCP_LOAD_BALANCERS, NAMESPACE, "web", change)
    await world.start()
    for number in range(6):
        await world.lb(f"n{number}")
        await world.slice(f"n{number}", "10.1.0.2")
    await world.quiet(15)
    addresses = [(await lb_of(world, f"n{number}")).status.address for number in range(6)]
    assert taken not in addresses
    assert sum(map(bool, addresses)) == 5, "all others of the pool are given"
    await world.lb("same", ports=[{"port": 8443}], spec={"address": taken})
    await world.slice("same", "10.1.0.2")
    if change is wrong_spec:
        assert await world.programmed("same") == taken, "its ports are those that were accepted"
    else:
        assert (await world.said("Programmed", "False", name="same")).reason == "PortConflict"


async def lb_of(world: HubWorld, name: str) -> Any:
    return await world.user.get(TCP_LOAD_BALANCERS, NAMESPACE, name)


@pytest.mark.req("CORE-03")
async def test_while_an_allocation_cannot_be_read_no_address_is_assigned(world: HubWorld, hub: RunningHub) -> None:
    await world.lb("web")
    await world.slice("web", "10.1.0.1")
    await world.programmed("web")
    await world.lb("kept")
    await world.slice("kept", "10.1.0.1")
    kept = await world.programmed("kept")
    await world.stop(hub)
    store(world, TCP_LOAD_BALANCERS, NAMESPACE, "web", wrong_allocation)
    await world.start()
    await world.lb("new")
    await world.slice("new", "10.1.0.2")
    condition = await world.said("Programmed", "False", name="new")
    assert (condition.reason, "tenant-east/web" in condition.message) == ("AddressNotAssigned", True)
    assert await world.programmed("kept") == kept
    store(world, TCP_LOAD_BALANCERS, NAMESPACE, "web", without_finalizers)
    await world.delete_lb("web")
    await world.programmed("new")


@pytest.mark.req("CORE-03")
async def test_a_name_whose_record_or_domain_cannot_be_read_goes_to_no_other(world: HubWorld) -> None:
    hub = await world.start()
    await world.tenant("east", domains=["east.example.com"])
    await world.tenant("west")
    host = "shop.example.com"
    await world.lb("a")
    await world.slice("a", "10.1.0.1")
    await world.programmed("a")
    await world.lb("b", namespace="tenant-west", spec={"hostnames": [host, "www.east.example.com"]})
    await world.slice("b", "10.2.0.1", namespace="tenant-west")
    await world.until(lambda: world.find(HOSTNAMES, SYSTEM_NAMESPACE, host))
    await world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, "a", {"spec": {"hostnames": [host]}})
    await world.quiet(3)
    await world.stop(hub)
    store(world, HOSTNAMES, SYSTEM_NAMESPACE, host, lambda obj: obj["status"].update(waiting="many"))
    store(world, TENANTS, "", "east", lambda obj: obj["spec"].update(maxPorts="one"))
    hub = await world.start()
    await world.quiet(15)
    raw = await world.user.raw("GET", HOSTNAMES.path(SYSTEM_NAMESPACE, host))
    assert msgspec.json.decode(raw)["spec"]["owner"]["member"] == "west"
    assert await world.find(HOSTNAMES, SYSTEM_NAMESPACE, "www.east.example.com") is None
    # Not even the domains can be read: no name gets an owner.
    await world.stop(hub)
    store(world, TENANTS, "", "east", lambda obj: obj["spec"].update(domains="east.example.com"))
    await world.start()
    await world.quiet(15)
    assert await world.find(HOSTNAMES, SYSTEM_NAMESPACE, "www.east.example.com") is None


@pytest.mark.req("CORE-03")
async def test_a_pool_that_cannot_be_read_does_not_make_every_address_free(world: HubWorld) -> None:
    hub = await world.start(pool="")
    await world.tenant("east")
    await world.user.create(ADDRESS_POOLS, {"metadata": {"name": "p"}, "spec": {"addresses": ["198.51.100.0/29"]}})
    await world.quiet(3)
    await world.lb("x", spec={"address": "10.0.0.5"})
    await world.slice("x", "10.1.0.1")
    assert (await world.said("Programmed", "False", name="x")).reason == "AddressNotUsable"
    await world.stop(hub)
    store(world, ADDRESS_POOLS, "", "p", lambda obj: obj["spec"].update(addresses="198.51.100.0/29"))
    await world.start(pool="")
    await world.quiet(8)
    condition = await world.said("Programmed", "False", name="x")
    assert (condition.reason, "AddressPool p" in condition.message) == ("AddressNotUsable", True)
    assert not (await lb_of(world, "x")).status.allocation.address


@pytest.mark.req("CORE-03")
async def test_a_tenant_with_a_load_balancer_that_cannot_be_read_is_held(world: HubWorld, hub: RunningHub) -> None:
    await world.lb("web")
    await world.slice("web", "10.1.0.1")
    await world.programmed("web")
    await world.stop(hub)
    store(world, TCP_LOAD_BALANCERS, NAMESPACE, "web", wrong_spec)
    await world.start()
    await world.user.delete(TENANTS, "", "east")
    await world.quiet(20)
    tenant = await world.user.get(TENANTS, "", "east")
    ready = condition_of(tenant.status.conditions, "Ready")
    assert ready is not None
    assert (ready.reason, "tenant-east/web" in ready.message) == ("InUse", True)


@pytest.mark.req("CORE-03", "CORE-06")
@pytest.mark.parametrize("refusal", REFUSED_READS.values(), ids=REFUSED_READS)
async def test_kinds_that_the_api_refuses_to_a_hub_change_nothing_and_are_named(world: HubWorld, refusal: Refusal):
    async with RefusingApi(world.server.url).running() as api:
        world.hub_url = api.url
        running = await world.start()
        await world.tenant()
        await world.lb()
        await world.slice("web", "10.1.0.1")
        await world.until(lambda: world.at_cloud() == {"10.1.0.1:8080"})
        await world.until(lambda: not running.hub.not_ready(), what="ready")
        caches = running.hub.inventory.caches
        plurals = {cache.resource.plural for cache in caches.values()}

        def refuse(method: str, path: str) -> Refusal | None:
            return refusal if method == "GET" and path.rsplit("/", 1)[1] in plurals else None

        api.refuse(refuse)

        def are_named() -> bool:
            reasons = running.hub.not_ready()
            return all(any(reason.startswith(f"{name}: ") for reason in reasons) for name in caches)

        await world.until(are_named, what="each kind is named")
        await world.slice("web", "10.1.0.2")
        await world.quiet(60.0)
        assert world.at_cloud() == {"10.1.0.1:8080"}
        assert not running.task.done()
        api.refuse(lambda _method, _path: None)
        await world.until(lambda: world.at_cloud() == {"10.1.0.2:8080"}, what="the changed endpoint")
        await world.until(lambda: not running.hub.not_ready(), what="ready again")
        await world.stop(running)
