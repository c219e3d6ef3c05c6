"""The view of one key: what a decision may depend on, and what is given away when it is decided."""

from __future__ import annotations

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.meta import ObjectKey
from fairlead.api.names import ANNOTATION_STALE, LABEL_ORIGIN_NAMESPACE, LABEL_SUBTENANT
from fairlead.hub.intents.http import HTTPIntent
from fairlead.hub.intents.tcp import TCPIntent
from fairlead.hub.tenants import tenants
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.keys import ListenerKey, Protocol
from fairlead.testing.builders import NAMESPACE, decoded, endpoint_slice, lb_class, lb_key, tcp, tenant
from fairlead.translate.addresses import AddressRanges, allocate_address

POOL = AddressRanges.parse("192.0.2.0/28")
PODS = {"targets": "Pod"}
CAPABILITIES = {"memory": Capabilities(allocation=AllocationKind.ADDRESS)}


class Gathering:
    def __init__(self, *, tenant_ports=0):
        context = intent_context(pool=POOL, capabilities=CAPABILITIES)
        context = msgspec.structs.replace(context, tenant_ports=tenant_ports)
        self.inventory, self.book = context.inventory, context.allocator
        self.inventory.tenants._store.put(tenant())
        self.inventory.classes._store.put(lb_class())
        self.leads = True
        self.quotas = context.quotas
        self.http = HTTPIntent(context)
        self.intent = TCPIntent(msgspec.structs.replace(context, leading=lambda: self.leads))
        self.objects, self.views = self.intent.objects, self.intent._views

    def put(self, load_balancer):
        self.objects.cache._notify(self.objects.cache._store.put(load_balancer), load_balancer)

    def view(self, name):
        return self.intent.view(lb_key(name))

    def decide(self, name, *, leads=True):
        self.leads = leads
        view = self.view(name)
        assert view is not None
        return self.intent.decide(view)


@pytest.fixture
async def gathering():
    return Gathering()


def refused(decision):
    """Return whether the load balancer is not given what it asks for."""
    return decision.desired is None or decision.serving_last_accepted


def rival_of(address):
    """Return a name whose first choice is ``address``."""
    return next(f"n{n}" for n in range(10_000) if allocate_address(lb_key(f"n{n}"), POOL, ()) == address)


@pytest.mark.req("I-6", "I-5")
async def test_b11_a_follower_learns_what_the_leader_gives(gathering):
    gathering.put(tcp("served", spec=PODS, status={"allocation": {"address": "192.0.2.5"}}))
    rival = rival_of("192.0.2.5")
    gathering.put(tcp(rival, spec=PODS))
    gathering.decide("served", leads=False)
    assert gathering.decide(rival, leads=False).allocation.address == ""
    given = gathering.decide(rival).allocation.address
    assert given not in {"", "192.0.2.5"}
    assert gathering.decide("served").allocation.address == "192.0.2.5"


@pytest.mark.req("I-6", "I-7")
async def test_a_refused_version_is_given_nothing_and_loses_nothing(gathering):
    status = {"allocation": {"address": "192.0.2.5"}, "accepted": {"ports": [{"port": 80}], "targets": "Pod"}}
    gathering.put(tcp("web", spec={**PODS, "address": "192.0.2.6", "proxyProtocol": "v2"}, status=status))
    assert gathering.decide("web").allocation.address == "192.0.2.5"
    gathering.put(tcp("new", spec={**PODS, "proxyProtocol": "v2"}))
    assert gathering.decide("new").allocation.address == ""
    assert len(gathering.book) == 0


async def test_the_class_of_the_accepted_version_is_in_view(gathering):
    gathering.put(tcp("web", spec={"className": "gold"}, status={"accepted": {"ports": [{"port": 80}]}}))
    view = gathering.view("web")
    assert view.load_balancer_class is None
    assert view.accepted_class.metadata.name == "envoy"
    before = gathering.intent.decision_on_record(view)
    assert before is not None
    assert (before.provider, before.serving_last_accepted) == ("memory", False)


async def test_an_object_never_accepted_has_no_earlier_view(gathering):
    gathering.put(tcp("web"))
    assert gathering.intent.decision_on_record(gathering.view("web")) is None


async def test_missing_objects_have_no_view(gathering):
    assert gathering.view("web") is None


@pytest.mark.req("KI-10")
async def test_a_quota_counts_those_that_are_served_first_and_then_the_oldest(gathering):
    gathering.inventory.tenants._store.put(tenant(spec={"maxLoadBalancers": 2}))
    gathering.put(tcp("z-served", spec=PODS, status={"accepted": {"ports": [{"port": 80}]}}))
    gathering.put(tcp("a", spec=PODS))
    gathering.put(tcp("b", spec=PODS))
    assert [bool(gathering.view(name).over_quota) for name in ("z-served", "a", "b")] == [False, False, True]


async def test_among_those_that_wait_the_oldest_comes_first_and_then_the_name(gathering):
    gathering.inventory.tenants._store.put(tenant(spec={"maxLoadBalancers": 1}))
    for name, created in (("a", "2030-01-02T00:00:00Z"), ("b", "2030-01-01T00:00:00Z"), ("c", "2030-01-01T00:00:00Z")):
        load_balancer = tcp(name, spec=PODS)
        metadata = msgspec.structs.replace(load_balancer.metadata, creation_timestamp=created)
        gathering.put(msgspec.structs.replace(load_balancer, metadata=metadata))
    assert [bool(gathering.view(name).over_quota) for name in ("a", "b", "c")] == [True, False, True]


async def test_of_hundreds_above_a_quota_not_each_counts_all_others(gathering, monkeypatch):
    ranked = []
    rank = tenants.MemberQuotas._rank
    monkeypatch.setattr(tenants.MemberQuotas, "_rank", lambda *args: ranked.append(args) or rank(*args))
    gathering.inventory.tenants._store.put(tenant(spec={"maxLoadBalancers": 1}))
    names = [f"lb-{number:03}" for number in range(200)]
    for name in names:
        gathering.put(tcp(name, spec=PODS))
    assert [name for name in names if not gathering.view(name).over_quota] == ["lb-000"]
    assert len(ranked) == len(names)
    gathering.put(tcp("a", spec=PODS))
    assert not gathering.view("lb-000").over_quota
    assert gathering.view("a").over_quota, "another one was found within it, and may be on its way to be served"


@pytest.mark.req("F-31")
async def test_a_quota_counts_load_balancers_of_both_kinds_together(gathering):
    gathering.inventory.tenants._store.put(tenant(spec={"maxLoadBalancers": 1}))
    metadata = {"name": "a-served", "namespace": NAMESPACE}
    served = decoded(
        {
            "metadata": metadata,
            "status": {"accepted": {"listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}},
        },
        HTTPLoadBalancer,
    )
    cache = gathering.http.objects.cache
    cache._notify(cache._store.put(served), served)
    gathering.put(tcp("b", spec=PODS))
    assert "uses 1 load balancer" in gathering.view("b").over_quota
    cache._notify(cache._store.remove(served.key), None)
    assert not gathering.view("b").over_quota


@pytest.mark.req("F-31")
async def test_a_new_load_balancer_waits_at_the_limit_of_targets(gathering):
    put = gathering.inventory.tenants._store.put
    put(tenant(spec={"maxTargets": 3}))
    gathering.put(tcp("web", spec=PODS, status={"accepted": {"ports": [{"port": 80}]}}))
    gathering.put(tcp("api", spec=PODS))
    gathering.quotas.note(lb_key("web"), 2)
    assert not gathering.view("api").over_quota
    gathering.quotas.note(lb_key("web"), 5)
    assert not gathering.view("web").over_quota
    assert "has 5 targets, and spec.maxTargets" in gathering.view("api").over_quota
    # A hub that has not decided about web yet trusts the status.
    gathering.quotas.note(lb_key("web"), None)
    assert not gathering.view("api").over_quota
    put(tenant(spec={"maxTargets": 3}, status={"used": {"targets": 4}}))
    assert "has 4 targets" in gathering.view("api").over_quota


@pytest.mark.req("F-33")
@pytest.mark.parametrize(
    ("labelled", "limits", "waits"),
    [
        ("payments", {"name": "payments", "maxLoadBalancers": 1}, True),
        ("", {"name": "shop", "maxLoadBalancers": 1}, True),
        ("payments", {"name": "shop", "maxLoadBalancers": 1}, False),
        ("payments", {"name": "*", "maxLoadBalancers": 1}, True),
        ("payments", {"name": "payments", "maxTargets": 2}, True),
        ("payments", {"name": "payments", "maxTargets": 3}, False),
    ],
)
async def test_a_sub_tenant_has_limits_of_its_own(gathering, labelled, limits, waits):
    def put(name, namespace, subtenant, **fields):
        labels = {LABEL_ORIGIN_NAMESPACE: namespace} | ({LABEL_SUBTENANT: subtenant} if subtenant else {})
        gathering.put(tcp(name, labels=labels, spec=PODS, **fields))

    gathering.inventory.tenants._store.put(tenant(spec={"subtenants": [limits], "maxLoadBalancers": 9}))
    put("shop.web", "shop", labelled, status={"accepted": {"ports": [{"port": 80}]}})
    gathering.quotas.note(lb_key("shop.web"), 2)
    put("shop.api", "shop", labelled)
    put("other.web", "other", "search")
    why = gathering.view("shop.api").over_quota
    assert bool(why) == waits
    assert not waits or f"sub-tenant {labelled or 'shop'}" in why
    assert not gathering.view("other.web").over_quota, "another sub-tenant"
    assert not gathering.view("shop.web").over_quota, "what is served stays"


@pytest.mark.req("F-33")
async def test_a_burst_over_the_namespaces_of_a_sub_tenant_stays_within_its_limit(gathering):
    """As in projectcapsule/capsule#49, where new objects in several namespaces together exceeded the quota."""
    gathering.inventory.tenants._store.put(tenant(spec={"subtenants": [{"name": "payments", "maxLoadBalancers": 2}]}))
    names = [f"{namespace}.{name}" for namespace in ("cart", "shop", "bank") for name in ("a", "b")]
    for name in names:
        labels = {LABEL_ORIGIN_NAMESPACE: name.partition(".")[0], LABEL_SUBTENANT: "payments"}
        gathering.put(tcp(name, labels=labels, spec=PODS))
    assert len([name for name in names if not gathering.view(name).over_quota]) == 2


@pytest.mark.req("F-31")
async def test_a_class_limits_the_load_balancers_of_each_tenant(gathering):
    for name in ("edge", "other"):
        gathering.inventory.classes._store.put(lb_class(name, spec={"maxPerTenant": 1 if name == "edge" else 0}))
    on_edge, on_other = ({**PODS, "className": name} for name in ("edge", "other"))
    served = {"accepted": {"ports": [{"port": 80}], "className": "other"}}
    gathering.put(tcp("a", spec=on_edge))
    gathering.put(tcp("b", spec=on_edge))
    gathering.put(tcp("c", spec=on_other, status=served))
    assert not gathering.view("a").over_quota
    why = gathering.view("b").over_quota
    assert "member east uses 1 load balancer of LoadBalancerClass edge, and spec.maxPerTenant" in why
    gathering.put(tcp("c", spec=on_edge, status=served))
    assert gathering.view("c").over_quota, "one that moves to the class needs room there"
    gathering.put(tcp("a", spec=on_other, status={"accepted": {"ports": [{"port": 80}], "className": "other"}}))
    assert not gathering.view("b").over_quota
    gathering.put(tcp("b", spec=on_edge, status={"accepted": {"ports": [{"port": 80}], "className": "edge"}}))
    gathering.put(tcp("d", spec=on_edge, status={"accepted": {"ports": [{"port": 80}], "className": "edge"}}))
    assert not gathering.view("d").over_quota, "what is served stays"


async def test_without_a_tenant_or_a_limit_there_is_no_quota(gathering):
    for name in ("a", "b"):
        gathering.put(tcp(name, spec=PODS))
    assert gathering.view("b").over_quota == ""
    gathering.inventory.tenants._store.remove(tenant().key)
    view = gathering.view("b")
    assert (view.tenant, view.over_quota) == (None, "")


@pytest.mark.parametrize(
    ("max_ports", "tenant_ports", "given"), [(0, 0, True), (1, 0, False), (2, 1, True), (0, 1, False), (0, 2, True)]
)
async def test_the_limit_of_ports_is_the_tenants_own_or_else_the_hubs(max_ports, tenant_ports, given):
    gathering = Gathering(tenant_ports=tenant_ports)
    gathering.inventory.tenants._store.put(tenant(spec={"maxPorts": max_ports}))
    gathering.put(tcp("web", spec=PODS, ports=[{"port": 80}, {"port": 81}]))
    decision = gathering.decide("web")
    assert (bool(decision.allocation.address), not refused(decision)) == (given, given)


async def test_without_its_class_nothing_is_allocated(gathering):
    gathering.put(tcp("web", spec={**PODS, "className": "gold"}))
    assert gathering.decide("web").allocation.address == ""
    assert len(gathering.book) == 0


async def test_an_object_in_deletion_has_no_view(gathering):
    load_balancer = tcp("web", spec=PODS)
    leaving = msgspec.structs.replace(load_balancer.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
    gathering.put(msgspec.structs.replace(load_balancer, metadata=leaving))
    assert gathering.view("web") is None


async def test_everything_recorded_is_held_before_anything_is_given(gathering):
    gathering.put(tcp("served", spec=PODS, status={"allocation": {"address": "192.0.2.5"}}))
    gathering.views.hold_recorded()
    rival = rival_of("192.0.2.5")
    gathering.put(tcp(rival, spec=PODS))
    assert gathering.decide(rival).allocation.address not in {"", "192.0.2.5"}


async def test_a_replica_that_follows_holds_the_ports_that_the_hub_opens_of_itself(gathering, monkeypatch):
    monkeypatch.setattr(gathering.views, "extra_listeners", lambda _view: [ListenerKey(Protocol.TCP, 443)])
    gathering.put(tcp("web", spec=PODS, status={"allocation": {"address": "192.0.2.5"}}))
    gathering.decide("web", leads=False)
    monkeypatch.undo()
    gathering.put(tcp("other", spec={**PODS, "address": "192.0.2.5"}, ports=[{"port": 443}]))
    assert refused(gathering.decide("other"))


async def test_the_ports_that_are_held_are_those_of_the_accepted_version(gathering):
    accepted = {"ports": [{"port": 80}, {"port": 81}], "targets": "Pod"}
    status = {"allocation": {"address": "192.0.2.5"}, "accepted": accepted}
    gathering.put(tcp("web", spec=PODS, ports=[{"port": 90}], status=status))
    gathering.views.hold_recorded()
    gathering.put(tcp("other", spec={**PODS, "address": "192.0.2.5"}, ports=[{"port": 81}]))
    assert refused(gathering.decide("other"))
    gathering.put(tcp("third", spec={**PODS, "address": "192.0.2.5"}, ports=[{"port": 90}]))
    assert not refused(gathering.decide("third"))


def nodes(version, *addresses, stale=""):
    annotations = {ANNOTATION_STALE: stale} if stale else None
    made = endpoint_slice("nodes", addresses, nodes=True, annotations=annotations)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, resource_version=version))


async def test_the_nodes_of_a_member_are_computed_once_for_each_version_of_its_slices(gathering):
    gathering.put(tcp("web", spec={"targets": "Node"}))
    gathering.inventory.slices._store.put(nodes("1", "10.0.0.1"))
    first = gathering.view("web").nodes
    assert (first.ready, first.stale) == ({"IPv4": {"10.0.0.1": "10.0.0.1"}, "IPv6": {}}, {})
    assert gathering.view("web").nodes is first
    gathering.inventory.slices._store.put(nodes("2", "10.0.0.1", "10.0.0.2", stale="the agent is behind"))
    second = gathering.view("web").nodes
    assert (list(second.ready["IPv4"]), second.stale) == (["10.0.0.1", "10.0.0.2"], {"IPv4": "the agent is behind"})


async def test_a_slice_that_cannot_be_decoded_makes_the_view_stale(gathering):
    gathering.put(tcp("web", spec=PODS))
    assert gathering.view("web").stale == ""
    gathering.inventory.slices.broken[ObjectKey(lb_key().namespace, "bad")] = "no addresses"
    assert "no addresses" in gathering.view("web").stale
    assert "no addresses; correct or delete" in gathering.view("web").unreadable


ACCEPTED = {"className": "gold", "ports": [{"port": 80}]}


@pytest.mark.parametrize(("known", "there"), [("memory", True), ("other", False), (None, False)])
async def test_the_class_in_force_names_the_provider_that_serves(gathering, known, there):
    if known is not None:
        gathering.inventory.classes._store.put(lb_class("gold", provider=known))
    entry = {"provider": "memory", "state": "Ensured", "serving": True}
    gathering.put(tcp("web", spec=PODS, status={"accepted": ACCEPTED, "provisioned": [entry]}))
    assert (gathering.view("web").accepted_class is not None) is there
    assert gathering.intent.decision_on_record(gathering.view("web")).provider == "memory"


async def test_a_class_that_is_gone_before_anything_was_served_is_gone(gathering):
    gathering.put(tcp("web", spec=PODS, status={"accepted": ACCEPTED}))
    assert gathering.view("web").accepted_class is None
