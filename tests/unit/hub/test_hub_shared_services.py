"""Routes to a Service that is part of a GlobalService: the requests go to all of its members."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.globalservice import GlobalService
from fairlead.api.httploadbalancer import HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import ObjectKey
from fairlead.api.names import LABEL_BACKEND, backend_label
from fairlead.hub.intents.global_service import GlobalIntent
from fairlead.hub.intents.http import HTTPIntent
from fairlead.hub.intents.tcp import TCPIntent
from fairlead.kube.cluster import Undecodable
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import Locality
from fairlead.model.keys import LoadBalancerKey, backend_key
from fairlead.model.observed import RefusedPart
from fairlead.providers.memory import MemoryProvider
from fairlead.runtime.clock import settle
from fairlead.testing.builders import ABLE, decoded, endpoint_slice, lb_class, slice_body, tcp, tenant
from fairlead.translate.addresses import AddressRanges

GLOBAL = LoadBalancerKey("GlobalService", "tenant-east", "web")
GATEWAY = LoadBalancerKey("HTTPLoadBalancer", "tenant-west", "gateway")
CAPABILITIES = {"memory": msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS, l7=True)}

SERVED = {"provisioned": [{"provider": "memory", "serving": True}]}


def shared_by(*members, name="web", generation=1, **spec):
    meta = {"name": name, "namespace": "tenant-east", "uid": name, "generation": generation, "resourceVersion": "1"}
    return decoded({"metadata": meta, "spec": {"service": "shop/web", "members": list(members), **spec}}, GlobalService)


def accepted_as(obj, accepted):
    ports = [{"port": 80, "name": "", "protocol": "TCP"}]
    status = {"accepted": {**msgspec.to_builtins(accepted.spec), "ports": ports}, **SERVED}
    return decoded({**msgspec.to_builtins(obj), "status": status}, GlobalService)


class Hub:
    """Two members that publish shop/web, and a Gateway of west with a route to it."""

    def __init__(self, capabilities=None, served=None):
        pool, capabilities = AddressRanges.parse("192.0.2.0/28"), capabilities or CAPABILITIES
        context = intent_context(pool=pool, capabilities=capabilities, served=served)
        self.context, self.providers = context, context.providers
        self.inventory = context.inventory
        self.woken: set[LoadBalancerKey] = set()
        self.inventory.on_wake(lambda key, _cause: self.woken.add(key))
        self.inventory.classes._store.put(lb_class())
        self.http, self.tcp, self.shared = HTTPIntent(context), TCPIntent(context), GlobalIntent(context)
        for intent in (self.http, self.tcp, self.shared):
            intent.watch()
        origin = {"kind": "Service", "namespace": "shop", "name": "web"}
        for number, name in enumerate(("west", "east"), 1):
            self.put(self.inventory.tenants, tenant(name))
            spec = {"targets": "Pod", "origin": origin}
            ports = [{"port": 80, "name": f"http-{name}"}]
            self.put(self.tcp.objects.cache, tcp("shop.web", namespace=f"tenant-{name}", ports=ports, spec=spec))
            self.endpoints(name, f"10.{number}.0.1")
        own = slice_body("route", ["10.1.0.1"], namespace="tenant-west", ports=[{"port": 8080, "name": "http-west"}])
        own["metadata"]["labels"][LABEL_BACKEND] = backend_label("shop/web")
        self.put(self.inventory.slices, decoded(own, EndpointSlice))
        meta = {"name": "gateway", "namespace": "tenant-west", "uid": "g", "generation": 1}
        listeners = {"listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}], "targets": "Pod"}
        gateway = {"metadata": meta, "spec": listeners, "status": SERVED}
        self.put(self.http.objects.cache, decoded(gateway, HTTPLoadBalancer))
        route = {
            "loadBalancer": "gateway",
            "attachments": [{"listener": "http"}],
            "rules": [{"backends": [{"backend": "web"}]}],
            "backends": [{"name": "web", "service": "shop/web", "portName": "http-west"}],
        }
        meta = {"name": "route", "namespace": "tenant-west"}
        self.put(self.http._http_objects.routes, decoded({"metadata": meta, "spec": route}, LoadBalancerRoute))

    @staticmethod
    def put(cache, obj):
        cache._notify(cache._store.put(obj), obj)

    def endpoints(self, member, *addresses):
        ports = [{"port": 8080, "name": f"http-{member}"}]
        namespace = f"tenant-{member}"
        body = endpoint_slice(f"{member}-1", addresses, namespace=namespace, load_balancer="shop.web", ports=ports)
        self.put(self.inventory.slices, body)

    def reconcile(self):
        """Decide about the GlobalServices that were woken, as its worker does."""
        for key in [key for key in self.woken if key.kind == GLOBAL.kind]:
            view = self.shared.view(key)
            if view is None:
                self.shared.forget(key)
            else:
                self.shared.decide(view)

    def desired(self):
        view = self.http.view(GATEWAY)
        assert view is not None
        desired = self.http.decide(view).desired
        assert desired is not None
        return desired

    def localities(self):
        shares = self.desired().spec.backend_shares.get("web")
        return shares.localities if shares is not None else ()

    def targets(self):
        return {key.address: target.locality for key, target in self.desired().targets[backend_key("web")].items()}


@pytest.fixture
async def hub():
    return Hub()


@pytest.mark.req("MC-9", "MC-10")
async def test_a_route_to_a_shared_service_has_a_locality_for_each_member(hub):
    assert hub.targets() == {"10.1.0.1": ""}
    hub.woken.clear()
    hub.put(hub.shared.objects.cache, shared_by({"tenant": "west", "weight": 60}, {"tenant": "east", "priority": 1}))
    assert GATEWAY not in hub.woken
    hub.reconcile()
    assert GATEWAY in hub.woken
    assert hub.targets() == {"10.1.0.1": "west", "10.2.0.1": "east"}
    assert hub.localities() == (Locality("east", 100, 1), Locality("west", 60))
    # Each member goes without a guard once it has left.
    assert hub.desired().owners[backend_key("web")] == {"Member/west/shop/web", "Member/east/shop/web"}


@pytest.mark.req("MC-9")
async def test_changes_of_members_reach_the_routes_to_them_and_nothing_else(hub):
    hub.put(hub.shared.objects.cache, shared_by({"tenant": "west"}, {"tenant": "east"}))
    hub.reconcile()
    before = hub.desired()
    other = shared_by({"tenant": "west"}, {"tenant": "east", "weight": 7}, generation=2)
    for change, changes in (
        (lambda: hub.endpoints("east", "10.2.0.1", "10.2.0.2"), True),
        (lambda: hub.endpoints("east", "10.2.0.1", "10.2.0.2"), False),
        (lambda: hub.put(hub.shared.objects.cache, other), True),
    ):
        hub.woken.clear()
        change()
        hub.reconcile()
        assert (GATEWAY in hub.woken) == changes
    after = hub.desired()
    assert after.spec.l7 is before.spec.l7, "routes and listeners stay as they are"
    assert hub.targets() == {"10.1.0.1": "west", "10.2.0.1": "east", "10.2.0.2": "east"}


@pytest.mark.req("MC-9")
async def test_a_service_is_single_again_once_it_is_not_shared(hub):
    obj = shared_by({"tenant": "west"}, {"tenant": "east"})
    hub.put(hub.shared.objects.cache, obj)
    hub.reconcile()
    assert hub.targets().keys() == {"10.1.0.1", "10.2.0.1"}
    hub.shared.objects.cache._store.remove(obj.key)
    hub.woken.clear()
    hub.shared.objects.cache._notify(obj, None)
    hub.reconcile()
    assert GATEWAY in hub.woken
    assert hub.targets() == {"10.1.0.1": ""}
    assert hub.desired().spec.backend_shares == {}


@pytest.mark.req("MC-9")
async def test_the_route_of_another_member_gets_a_service_that_is_shared_already(hub):
    hub.put(hub.shared.objects.cache, shared_by({"tenant": "west"}, {"tenant": "east"}))
    hub.context.shared.of("tenant-east")
    hub.reconcile()
    assert hub.localities() == (Locality("east", 100), Locality("west", 100))


@pytest.mark.req("MC-10")
async def test_the_last_valid_version_serves_routes_as_well(hub):
    accepted = shared_by({"tenant": "west", "weight": 60}, {"tenant": "east", "weight": 40})
    invalid = shared_by({"tenant": "west", "weight": 0}, {"tenant": "east", "weight": 0})
    hub.put(hub.shared.objects.cache, invalid)
    hub.reconcile()
    assert hub.localities() == ()
    hub.put(hub.shared.objects.cache, accepted_as(invalid, accepted))
    hub.reconcile()
    assert hub.localities() == (Locality("east", 40), Locality("west", 60))


@pytest.mark.req("MC-9")
async def test_the_first_of_two_global_services_with_one_service_has_it(hub):
    hub.put(hub.shared.objects.cache, shared_by({"tenant": "west"}, {"tenant": "east"}, name="web"))
    hub.put(hub.shared.objects.cache, shared_by({"tenant": "west", "weight": 3}, name="another"))
    hub.reconcile()
    assert hub.localities() == (Locality("west", 3),)


@pytest.mark.req("MC-19")
async def test_nothing_of_a_route_is_removed_while_a_member_is_unread(hub):
    hub.put(hub.shared.objects.cache, shared_by({"tenant": "west"}, {"tenant": "east"}))
    hub.reconcile()
    assert hub.desired().stale == ""
    place = ObjectKey("tenant-east", "shop.web")
    hub.tcp.objects.cache._store.remove(place)
    hub.woken.clear()
    hub.tcp.objects.cache.broken[place] = "spec: no integer"
    hub.reconcile()
    assert GATEWAY in hub.woken
    assert "spec: no integer" in hub.desired().stale


@pytest.mark.req("MC-19")
@pytest.mark.parametrize(("members", "holds"), [("none", True), (["west"], True), (["east"], False)])
async def test_routes_lose_no_member_while_a_global_service_is_unread(hub, members, holds):
    assert hub.desired().stale == ""
    listed = [{"tenant": name} for name in members] if isinstance(members, list) else members
    obj = {
        **msgspec.to_builtins(shared_by({"tenant": "west"})),
        "spec": {"service": "shop/web", "members": listed, "ports": 7},
    }
    place = ObjectKey(GLOBAL.namespace, GLOBAL.name)
    hub.woken.clear()
    hub.shared.objects.cache.broken[place] = Undecodable("spec: no list", msgspec.json.encode(obj))
    assert GATEWAY in hub.woken
    assert ("spec: no list" in hub.desired().stale) == holds
    hub.woken.clear()
    del hub.shared.objects.cache.broken[place]
    assert GATEWAY in hub.woken
    assert hub.desired().stale == ""


@pytest.mark.req("MC-9")
async def test_a_class_that_knows_no_members_serves_its_own_endpoints():
    hub = Hub({"memory": msgspec.structs.replace(CAPABILITIES["memory"], localities=False)})
    hub.put(hub.shared.objects.cache, shared_by({"tenant": "west"}, {"tenant": "east"}))
    hub.reconcile()
    assert hub.targets() == {"10.1.0.1": ""}


class Proxies(MemoryProvider):
    """Proxies of one provider: how many have all of the Gateway, and which routes they cannot serve."""

    acknowledged = 2
    refused: tuple[RefusedPart, ...] = ()

    @property
    def capabilities(self):
        return CAPABILITIES["memory"]

    async def observe(self, key):
        seen = await super().observe(key)
        here = self.acknowledged if key == GATEWAY else 2
        counts = {"programmed": here == 2, "proxies": 2, "acknowledged": here, "refused": self.refused}
        return msgspec.structs.replace(seen, **counts) if seen is not None else None


@pytest.mark.req("MC-14")
async def test_the_weights_of_a_step_are_applied_once_the_proxies_of_routes_have_them():
    provider = Proxies()
    hub = Hub(served={"memory": provider})
    runner = hub.providers.served["memory"]
    working = asyncio.create_task(runner.worker.run())

    async def weigh(west):
        obj = shared_by({"tenant": "west", "weight": west}, {"tenant": "east"}, generation=west)
        hub.put(hub.shared.objects.cache, accepted_as(obj, obj))
        view = hub.shared.view(GLOBAL)
        assert view is not None
        await put(hub.shared.decide(view).desired)

    async def put(desired):
        runner.tracker.put(desired)
        runner.worker.trigger()
        await settle()

    async def why():
        return await hub.shared._unapplied(GLOBAL)

    try:
        await weigh(1)
        assert await why() == f"routes of {GATEWAY}: waiting for the provider"
        await put(hub.desired())
        assert await why() == ""
        await weigh(2)
        assert "waiting for the provider" in await why(), "the Gateway has not been reconciled"
        provider.acknowledged = 1
        await put(hub.desired())
        assert await why() == f"routes of {GATEWAY}: 1 of 2 proxies have it"
        provider.acknowledged, provider.refused = 2, (RefusedPart("route", "other", "no such filter"),)
        assert await why() == "", "a route that is not served leads nowhere"
        # Another GlobalService divides the Service from now on.
        hub.put(hub.shared.objects.cache, shared_by({"tenant": "west", "weight": 7}, name="another"))
        hub.reconcile()
        await put(hub.desired())
        assert await why() == ""
    finally:
        working.cancel()
