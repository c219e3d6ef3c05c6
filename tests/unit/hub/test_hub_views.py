"""The view of one key: what a decision may depend on, and what is given away while it is gathered."""

from __future__ import annotations

import pytest
from hub_parts import intent_context

from fairlead.hub.intents.member_intent import with_accepted_spec
from fairlead.hub.intents.tcp.objects import TCPObjects
from fairlead.hub.intents.tcp.view import TCPViews
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.testing.builders import lb_class, lb_key, tcp, tenant
from fairlead.translate.allocate import AddressPool, allocate_address

POOL = AddressPool.parse("192.0.2.0/28")
PODS = {"targets": "Pod"}
CAPABILITIES = {"memory": Capabilities(allocation=AllocationKind.ADDRESS)}


class Gathering:
    def __init__(self):
        context = intent_context(pool=POOL, capabilities=CAPABILITIES)
        self.inventory, self.book = context.inventory, context.allocator
        self.inventory.tenants._store.put(tenant())
        self.inventory.classes._store.put(lb_class())
        self.objects = TCPObjects(context.cluster, self.inventory)
        self.views = TCPViews(context, self.objects)

    def put(self, load_balancer):
        self.objects.cache._store.put(load_balancer)

    def view(self, name, *, allocate=True):
        return self.views.view(lb_key(name), allocate=allocate)


@pytest.fixture
async def gathering():
    return Gathering()


def rival_of(address):
    """Return a name whose first choice is ``address``."""
    return next(f"n{n}" for n in range(10_000) if allocate_address(lb_key(f"n{n}"), POOL, ()) == address)


@pytest.mark.req("I-6", "I-5")
async def test_b11_a_follower_learns_what_the_leader_gives(gathering):
    gathering.put(tcp("served", spec=PODS, status={"allocation": {"address": "192.0.2.5"}}))
    rival = rival_of("192.0.2.5")
    gathering.put(tcp(rival, spec=PODS))
    gathering.view("served", allocate=False)
    assert gathering.view(rival, allocate=False).allocation.address == ""
    given = gathering.view(rival).allocation.address
    assert given not in {"", "192.0.2.5"}
    assert gathering.view("served").allocation.address == "192.0.2.5"


@pytest.mark.req("I-6", "I-7")
async def test_a_refused_version_is_given_nothing_and_loses_nothing(gathering):
    status = {"allocation": {"address": "192.0.2.5"}, "accepted": {"ports": [{"port": 80}], "targets": "Pod"}}
    gathering.put(tcp("web", spec={**PODS, "address": "192.0.2.6", "proxyProtocol": "v2"}, status=status))
    assert gathering.view("web").allocation.address == "192.0.2.5"
    gathering.put(tcp("new", spec={**PODS, "proxyProtocol": "v2"}))
    assert gathering.view("new").allocation.address == ""
    assert len(gathering.book) == 0


async def test_the_class_of_the_accepted_version_is_in_view(gathering):
    gathering.put(tcp("web", spec={"className": "gold"}, status={"accepted": {"ports": [{"port": 80}]}}))
    view = gathering.view("web")
    assert view.load_balancer_class is None
    assert view.accepted_class.metadata.name == "envoy"
    before = with_accepted_spec(view)
    assert (before.load_balancer.spec.class_name, before.load_balancer_class) == ("envoy", view.accepted_class)


async def test_what_was_never_accepted_has_no_earlier_view(gathering):
    gathering.put(tcp("web"))
    assert with_accepted_spec(gathering.view("web")) is None


async def test_what_is_not_there_has_no_view(gathering):
    assert gathering.view("web") is None


@pytest.mark.req("KI-10")
async def test_a_quota_counts_those_that_are_served_first_and_then_the_oldest(gathering):
    gathering.inventory.tenants._store.put(tenant(spec={"maxLoadBalancers": 2}))
    gathering.put(tcp("z-served", spec=PODS, status={"accepted": {"ports": [{"port": 80}]}}))
    gathering.put(tcp("a", spec=PODS))
    gathering.put(tcp("b", spec=PODS))
    assert [bool(gathering.view(name).over_quota) for name in ("z-served", "a", "b")] == [False, False, True]
