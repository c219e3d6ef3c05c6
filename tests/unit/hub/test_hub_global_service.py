"""GlobalServices in the hub: which members join, what wakes them, and what is allocated and recorded."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.globalservice import GlobalService
from fairlead.api.meta import ObjectKey
from fairlead.api.tenant import TenantStatus
from fairlead.api.times import wire_time
from fairlead.hub.intents.global_service import GlobalIntent, healthy_members
from fairlead.hub.intents.tcp import TCPIntent
from fairlead.hub.tenants.tenants import MemberHealth
from fairlead.kube.cluster import UNNAMED, Undecodable
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Health, MemberSeen, Observed
from fairlead.testing.builders import ABLE, agent_lease, decoded, endpoint_slice, lb_class, tcp, tenant
from fairlead.translate.addresses import AddressRanges
from fairlead.translate.global_service import member_statuses

KEY = LoadBalancerKey("GlobalService", "tenant-east", "web")
CAPABILITIES = {"memory": msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS)}


def global_service(*tenants, status=None, **spec):
    meta = {"name": "web", "namespace": "tenant-east", "uid": "u", "generation": 1, "resourceVersion": "1"}
    members = [{"tenant": name} for name in tenants]
    body = {"metadata": meta, "spec": {"service": "shop/web", "members": members, **spec}, "status": status or {}}
    return decoded(body, GlobalService)


def part(member, **spec):
    origin = {"kind": "Service", "namespace": "shop", "name": "web"}
    return tcp("shop.web", namespace=f"tenant-{member}", spec={"targets": "Pod", "origin": origin, **spec})


class Hub:
    def __init__(self):
        context = intent_context(pool=AddressRanges.parse("192.0.2.0/28"), capabilities=CAPABILITIES)
        self.inventory, self.clock = context.inventory, context.clock
        self.leases = self.inventory.leases
        self.members = MemberHealth(clock=self.clock, changed=lambda _namespace: None, leases=self.leases)
        context = msgspec.structs.replace(context, member_health=self.members)
        self.woken: list[LoadBalancerKey] = []
        self.inventory.on_wake(lambda key, _cause: self.woken.append(key))
        self.inventory.classes._store.put(lb_class())
        self.tcp, self.intent = TCPIntent(context), GlobalIntent(context)
        self.intent.watch()
        for name in ("east", "west"):
            self.put(self.inventory.tenants, tenant(name))

    @staticmethod
    def put(cache, obj):
        cache._notify(cache._store.put(obj), obj)

    def decide(self):
        view = self.intent.view(KEY)
        assert view is not None
        return self.intent.decide(view)

    def beat(self, member):
        now = wire_time(self.clock.now())
        self.members.lease_changed(None, agent_lease(f"tenant-{member}", renewed=now, stored=now))


@pytest.fixture
async def hub():
    hub = Hub()
    hub.put(hub.intent.objects.cache, global_service("east", "west"))
    hub.woken.clear()
    return hub


@pytest.mark.req("MC-9")
async def test_members_that_publish_the_service_join_and_get_one_address(hub):
    for member, address in (("east", "10.1.0.1"), ("west", "10.2.0.1")):
        hub.put(hub.tcp.objects.cache, part(member))
        hub.put(
            hub.inventory.slices,
            endpoint_slice(f"{member}-1", [address], namespace=f"tenant-{member}", load_balancer="shop.web"),
        )
    assert set(hub.woken) >= {KEY}
    decision = hub.decide()
    assert decision.allocation.address
    (targets,) = decision.desired.targets.values()
    assert {key.address: target.locality for key, target in targets.items()} == {"10.1.0.1": "east", "10.2.0.1": "west"}
    assert [listener.port for listener in decision.desired.spec.listeners] == [80]


@pytest.mark.req("MC-9")
async def test_only_members_that_are_listed_join(hub):
    hub.put(hub.intent.objects.cache, global_service("east"))
    hub.put(hub.tcp.objects.cache, part("west"))
    assert hub.decide().desired is None


async def test_changes_of_endpoints_nodes_and_members_wake_it(hub):
    hub.put(hub.tcp.objects.cache, part("west"))
    for change in (
        lambda: hub.put(
            hub.inventory.slices, endpoint_slice("w", ["10.2.0.1"], namespace="tenant-west", load_balancer="shop.web")
        ),
        lambda: hub.put(hub.inventory.slices, endpoint_slice("n", ["10.9.0.1"], namespace="tenant-west", nodes=True)),
        lambda: hub.put(hub.inventory.tenants, tenant("west", spec={"maxPorts": 7})),
        lambda: hub.put(hub.tcp.objects.cache, part("west", sessionAffinity="ClientIP")),
    ):
        hub.woken.clear()
        change()
        assert KEY in hub.woken
    hub.woken.clear()
    hub.put(hub.tcp.objects.cache, tcp("shop.other", namespace="tenant-west"))
    assert KEY not in hub.woken


@pytest.mark.req("MC-19")
async def test_a_deleted_and_an_unread_tenant_wake_its_services(hub):
    west = tenant("west")
    hub.inventory.tenants._notify(hub.inventory.tenants._store.remove(west.key), None)
    assert KEY in hub.woken
    hub.woken.clear()
    body = {**msgspec.to_builtins(west), "spec": {"maxPorts": "many"}}
    hub.inventory.tenants.broken[west.key] = Undecodable("x", msgspec.json.encode(body))
    assert KEY in hub.inventory.keys_of_namespace("tenant-west"), "its agent may fall silent"


@pytest.mark.req("MC-12")
async def test_the_health_of_members_is_read_from_the_report_of_proxies(hub):
    observed = Observed(health=Health(members=(MemberSeen("east", 1, 2), MemberSeen("west", 3, 3))))
    assert healthy_members(observed)["east"] == ("east", 1, 2, 0, 0)
    assert healthy_members(None) == {}


@pytest.mark.req("MC-9")
async def test_a_service_of_another_name_joins_by_its_annotation(hub):
    hub.put(hub.intent.objects.cache, global_service("east"))
    other = tcp("shop.other", namespace="tenant-east", spec={"targets": "Pod", "globalService": "web"})
    hub.woken.clear()
    hub.put(hub.tcp.objects.cache, other)
    assert KEY in hub.woken
    hub.put(
        hub.inventory.slices, endpoint_slice("o", ["10.1.0.7"], namespace="tenant-east", load_balancer="shop.other")
    )
    (targets,) = hub.decide().desired.targets.values()
    assert [key.address for key in targets] == ["10.1.0.7"]
    # One that is not listed, and asks all the same, does not join.
    hub.put(hub.tcp.objects.cache, tcp("x.y", namespace="tenant-west", spec={"targets": "Pod", "globalService": "web"}))
    assert {member.tenant for member in hub.decide().members} == {"east"}


@pytest.mark.req("MC-19")
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("unread", ["part", "tenant"])
async def test_an_unread_member_is_not_taken_for_one_that_left(hub, unread, named):
    hub.put(hub.tcp.objects.cache, part("east"))
    slices = endpoint_slice("e", ["10.1.0.1"], namespace="tenant-east", load_balancer="shop.web")
    hub.put(hub.inventory.slices, slices)
    assert not hub.decide().desired.stale
    hub.woken.clear()
    if unread == "part":
        hub.tcp.objects.cache.broken[ObjectKey("tenant-west", "shop.web") if named else UNNAMED] = "no port"
    else:
        hub.inventory.tenants._store.remove(ObjectKey("", "west"))
        hub.inventory.tenants.broken[ObjectKey("", "west") if named else UNNAMED] = "no namespace"
    assert KEY in hub.woken
    decision = hub.decide()
    assert "cannot be read" in decision.desired.stale
    assert "cannot be read" in next(member.why for member in decision.members if member.tenant == "west")


@pytest.mark.req("MC-19")
@pytest.mark.parametrize("lost", ["part", "tenant"])
@pytest.mark.parametrize("by_name", [True, False])
async def test_a_member_that_cannot_be_read_serves_as_it_is_on_record(hub, lost, by_name):
    if not by_name:
        hub.put(hub.intent.objects.cache, global_service("west", service=""))
    body = part("west", **({} if by_name else {"globalService": "web"}))
    spec = msgspec.to_builtins(body.spec)
    broken = {**msgspec.to_builtins(body), "spec": {**spec, "ports": "none"}, "status": {"accepted": spec}}
    slices = endpoint_slice("w", ["10.2.0.1"], namespace="tenant-west", load_balancer="shop.web")
    hub.put(hub.inventory.slices, slices)
    if lost == "part":
        hub.tcp.objects.cache.broken[ObjectKey("tenant-west", "shop.web")] = Undecodable(
            "x", msgspec.json.encode(broken)
        )
    else:
        hub.put(hub.tcp.objects.cache, body)
        west = {**msgspec.to_builtins(tenant("west")), "spec": {"maxPorts": "many"}}
        hub.inventory.tenants._store.remove(ObjectKey("", "west"))
        hub.inventory.tenants.broken[ObjectKey("", "west")] = Undecodable("x", msgspec.json.encode(west))
    decision = hub.decide()
    (targets,) = decision.desired.targets.values()
    assert {key.address: target.locality for key, target in targets.items()} == {"10.2.0.1": "west"}
    assert not decision.desired.stale
    resolved = next(each for each in decision.conditions if each.type == "ResolvedRefs")
    assert (resolved.status, resolved.reason) == (False, "Invalid")
    assert "cannot be read" in resolved.message


@pytest.mark.req("MC-12")
async def test_a_member_that_was_down_stays_down_over_a_restart_until_proxies_report(hub):
    for member, address in (("east", "10.1.0.1"), ("west", "10.2.0.1")):
        hub.put(hub.tcp.objects.cache, part(member))
        slices = endpoint_slice(member, [address], namespace=f"tenant-{member}", load_balancer="shop.web")
        hub.put(hub.inventory.slices, slices)
    members = [{"tenant": "east"}, {"tenant": "west", "minHealthyPercent": 50}]
    status = {"members": [{"tenant": "east", "state": "Serving"}, {"tenant": "west", "state": "Down"}]}
    hub.put(hub.intent.objects.cache, global_service(members=members, status=status))
    assert {member.tenant: member.state for member in hub.decide().members}["west"] == "Down"
    hub.put(hub.intent.objects.cache, global_service("east", "west", status=status))
    assert {member.tenant: member.state for member in hub.decide().members}["west"] != "Down"


@pytest.mark.req("MC-15")
@pytest.mark.parametrize(("is_checked", "served"), [(True, True), (True, False), (False, True)])
async def test_after_a_restart_a_member_that_has_served_returns_with_care(hub, is_checked, served):
    hub.put(hub.inventory.classes, lb_class(spec={"healthCheck": {"disabled": not is_checked}}))
    for member, address in (("east", "10.1.0.1"), ("west", "10.2.0.1")):
        hub.put(hub.tcp.objects.cache, part(member))
        slices = endpoint_slice(member, [address], namespace=f"tenant-{member}", load_balancer="shop.web")
        hub.put(hub.inventory.slices, slices)
    without = {"tenant": "west", "state": "NoEndpoints", "served": served}
    status = {"members": [{"tenant": "east", "state": "Serving"}, without]}
    obj = global_service("east", "west", status=status, ports=[{"port": 80}])
    returns = is_checked and served
    hub.put(hub.intent.objects.cache, obj)
    seen = {name: MemberSeen(name, 1, 1) for name in ("east", "west")} if is_checked else {}

    def west():
        hub.intent._global_views.judge(obj, seen)
        decision = hub.decide()
        return member_statuses(decision.members, decision.spillover, seen)[1].state

    assert hub.decide().members[1].state == ("Down" if returns else "Standby")
    states = [west()]
    for after_s in (16, 61):
        await hub.clock.advance(after_s)
        states.append(west())
    assert states == (["Down", "Returning", "Serving"] if returns else ["Serving"] * 3)


@pytest.mark.req("MC-15")
async def test_the_status_records_that_proxies_have_seen_a_member_healthy(hub):
    for member, address in (("east", "10.1.0.1"), ("west", "10.2.0.1")):
        hub.put(hub.tcp.objects.cache, part(member))
        slices = endpoint_slice(member, [address], namespace=f"tenant-{member}", load_balancer="shop.web")
        hub.put(hub.inventory.slices, slices)
    obj, served = global_service("east", "west"), []
    for healthy in (0, 1, 0):
        seen = (MemberSeen("east", 1, 1), MemberSeen("west", healthy, 1))
        status = hub.intent.status._rules.compose(obj, hub.decide(), [], Observed(health=Health(members=seen)))
        obj = msgspec.structs.replace(obj, status=status)
        served.append(status.served)
    assert served == [{"east"}, {"east", "west"}, {"east", "west"}]


#: policy -> fault -> the state of west after 8 minutes, and after 20; both policies are set to 10 minutes.
DARK = {
    "keep": {
        "agent killed": ("Serving", "Serving"),
        "API cut": ("Serving", "Serving"),
        "pods dead": ("Down", "Down"),
        "both": ("Down", "Down"),
        "one proxy cut": ("UnreachableFromSomeProxies", "UnreachableFromSomeProxies"),
        "hub cut": ("Serving", "Serving"),
    },
    "drain": {
        "agent killed": ("Serving", "Draining"),
        "API cut": ("Serving", "Draining"),
        "pods dead": ("Down", "Down"),
        "both": ("Down", "Down"),
        "one proxy cut": ("UnreachableFromSomeProxies", "UnreachableFromSomeProxies"),
        "hub cut": ("Serving", "Serving"),
    },
    "drop": {
        "agent killed": ("Serving", "Dropped"),
        "API cut": ("Serving", "Dropped"),
        "pods dead": ("Down", "Down"),
        "both": ("Down", "Dropped"),
        "one proxy cut": ("UnreachableFromSomeProxies", "UnreachableFromSomeProxies"),
        "hub cut": ("Serving", "Serving"),
    },
}
#: An agent that does not see its member sends no heartbeat, as one that is killed.
SILENCED = {"agent killed": ("west",), "API cut": ("west",), "both": ("west",), "hub cut": ("west", "east")}
SEEN_BY_PROXIES = {"pods dead": (0, 2, 2), "both": (0, 2, 2), "one proxy cut": (1, 1, 2)}


@pytest.mark.req("MC-18")
@pytest.mark.parametrize("by", ["Tenant", "GlobalService"])
@pytest.mark.parametrize(("policy", "fault"), [(policy, fault) for policy, faults in DARK.items() for fault in faults])
async def test_silent_agents_and_dead_pods_are_distinguished(hub, policy, fault, by):
    fields = {"drain": {"drainWhenLost": "10m"}, "drop": {"dropWhenLost": "10m"}}.get(policy, {})
    other = {"drainWhenLost": "never", "dropWhenLost": "never"} if not fields else {}
    for member, address in (("east", "10.1.0.1"), ("west", "10.2.0.1")):
        hub.put(hub.tcp.objects.cache, part(member))
        slices = endpoint_slice(member, [address], namespace=f"tenant-{member}", load_balancer="shop.web")
        hub.put(hub.inventory.slices, slices)
        # What the GlobalService says replaces what the Tenant says.
        of_tenant = fields if by == "Tenant" else {"drainWhenLost": "1s"} if policy == "keep" else {}
        engaged = msgspec.structs.replace(tenant(member, spec=of_tenant), status=TenantStatus(state="Engaged"))
        hub.put(hub.inventory.tenants, engaged)
    of_service = {**fields, **other} if by == "GlobalService" else {}
    hub.put(hub.intent.objects.cache, global_service("east", "west", **of_service))
    watching = asyncio.create_task(hub.members.run())
    for member in ("east", "west"):
        hub.beat(member)
    await hub.clock.advance(10)
    hub.leases.problem = "the server answered 502" if fault == "hub cut" else ""
    healthy, blind, proxies = SEEN_BY_PROXIES.get(fault, (1, 0, 2))
    seen = {"west": MemberSeen("west", healthy, 1, blind, proxies), "east": MemberSeen("east", 1, 1, 0, 2)}

    async def state_after(minutes):
        for _ in range(6 * minutes):
            for member in {"east", "west"} - set(SILENCED.get(fault, ())):
                hub.beat(member)
            await hub.clock.advance(10)
        return shown()

    def shown():
        decision = hub.decide()
        return {each.tenant: each for each in member_statuses(decision.members, decision.spillover, seen)}

    states = [(await state_after(minutes)) for minutes in (8, 12)]
    assert tuple(each["west"].state for each in states) == DARK[policy][fault]
    assert {each["east"].state for each in states} == {"Serving"}
    silent = fault in {"agent killed", "API cut", "both"}
    assert [bool(each["west"].silent_since) for each in states] == [silent, silent]
    hub.leases.problem = ""
    await hub.clock.advance(30)
    assert shown()["west"].state == DARK[policy][fault][1], "the hub has only begun to listen"
    hub.beat("west")
    decision = shown()["west"]
    assert decision.silent_since is None
    assert decision.state == DARK["keep"][fault][1]
    watching.cancel()


@pytest.mark.req("MC-15", "MC-16")
async def test_a_member_that_flaps_changes_its_state_three_times_at_most(hub):
    for member, address in (("east", "10.1.0.1"), ("west", "10.2.0.1")):
        hub.put(hub.tcp.objects.cache, part(member))
        slices = endpoint_slice(member, [address], namespace=f"tenant-{member}", load_balancer="shop.web")
        hub.put(hub.inventory.slices, slices)
    obj = hub.intent.objects.cache.get("tenant-east", "web")
    states, shares = [], []

    async def second(healthy):
        seen = {"west": MemberSeen("west", healthy, 1), "east": MemberSeen("east", 1, 1)}
        hub.intent._global_views.judge(obj, seen)
        decision = hub.decide()
        west = member_statuses(decision.members, decision.spillover, seen)[1]
        shares.append(int(west.share.removesuffix("%")))
        if states[-1:] != [west.state]:
            states.append(west.state)
        await hub.clock.advance(1)

    await second(1)
    for number in range(300):
        await second(number % 2)
    assert states == ["Serving", "Down", "Flapping"]
    assert not any(shares[1:]), "a member that flaps gets no new connections"
    shares.clear()
    for _ in range(80):
        await second(1)
    assert states == ["Serving", "Down", "Flapping", "Returning", "Serving"]
    assert shares == sorted(shares)
    assert set(shares[:14]) == {0}
    assert shares[-1] == 50


@pytest.mark.req("MC-15")
async def test_a_member_that_returns_is_reconciled_at_every_step_of_its_ramp(hub):
    obj = global_service("east", "west", returnDelay="10s", returnRamp="60s")
    hub.put(hub.intent.objects.cache, obj)

    def judge(healthy):
        return hub.intent._global_views.judge(obj, {"west": MemberSeen("west", healthy, 1)})

    assert judge(1) == (False, None)
    assert judge(0) == (True, None)
    changed, due_s = judge(1)
    parts = []
    while due_s is not None:
        await hub.clock.advance(due_s)
        changed, due_s = judge(1)
        if changed:
            _, returning = hub.intent._global_views._judged(obj)
            parts.append(returning["west"].part if returning else 1.0)
    assert len(parts) == 13
    assert (parts[0], parts[-1], parts) == (0.1, 1.0, sorted(parts))
    assert judge(1) == (False, None)


@pytest.mark.req("MC-15")
@pytest.mark.parametrize("is_checked", [True, False])
async def test_a_member_that_had_no_endpoints_returns_with_care_where_they_are_checked(hub, is_checked):
    def endpoints(member, *addresses):
        hub.put(hub.tcp.objects.cache, part(member))
        slices = endpoint_slice(member, addresses, namespace=f"tenant-{member}", load_balancer="shop.web")
        hub.put(hub.inventory.slices, slices)

    obj = hub.intent.objects.cache.get("tenant-east", "web")
    views = hub.intent._global_views

    def west(seen):
        reason = ConditionReason.SERVING if is_checked else ConditionReason.NOT_CHECKED
        hub.decide()
        views.note_checks(KEY, Health(reason=reason))
        views.judge(obj, seen if is_checked else {})
        decision = hub.decide()
        shown = member_statuses(decision.members, decision.spillover, seen if is_checked else {})[1]
        return shown.state, shown.share

    east, both = MemberSeen("east", 1, 1), {name: MemberSeen(name, 1, 1) for name in ("east", "west")}
    endpoints("east", "10.1.0.1")
    endpoints("west", "10.2.0.1")
    assert west(both) == ("Serving", "50%")
    endpoints("west")
    assert west(both)[0] == "NoEndpoints", "proxies may still have them"
    assert west({"east": east}) == ("NoEndpoints", "0%")
    endpoints("west", "10.2.0.1")
    if not is_checked:
        assert west(both) == ("Serving", "50%")
        return
    # Nothing is known of the new endpoint, then it is healthy: as after it was down.
    assert west({"east": east})[1] == "0%"
    assert west(both) == ("Down", "0%")
    await hub.clock.advance(16)
    state, share = west(both)
    assert state == "Returning"
    assert 0 < int(share.removesuffix("%")) < 50
    await hub.clock.advance(61)
    assert west(both) == ("Serving", "50%")
