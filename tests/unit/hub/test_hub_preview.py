"""What the hub would do, from caches that are filled by hand and a provider that is only read."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.intent import asked_of
from fairlead.api.names import ANNOTATION_PAUSED, DEFAULT_CLASS
from fairlead.errors import Retry
from fairlead.hub.inspect import preview as inspected
from fairlead.hub.inspect.preview import LOOK_LIMIT_S, SLOW_S, Previewed, served_plan
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.model.change import Action, Reason
from fairlead.model.contract import Provider
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.plan import Plan
from fairlead.testing.builders import HTTP, decoded, desired, endpoint_slice, lb_class, lb_key, target, tcp, tenant
from fairlead.translate.view import Decision

KEY = lb_key()
PODS = {"targets": "Pod", "className": "gold"}


class Readable:
    """A provider whose ``observe`` the test scripts; everything else would be a change."""

    def __init__(self, clock):
        self.clock = clock
        self.capabilities = MemoryProvider(cloud=MemoryCloud(clock=clock)).capabilities
        self.answer: Observed | Exception | None = None
        self.takes_s = 0.0
        self.asked = []

    def on_change(self, notify):
        """Notice nothing."""

    async def observe(self, key):
        self.asked.append(key)
        if self.takes_s:
            await self.clock.sleep(self.takes_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Restorable(Readable):
    def restore(self, spec, info):
        """Make nothing of it."""


class Bench:
    def __init__(self, provider_type=Restorable):
        self.clock = VirtualClock()
        self.parts = inspected._Parts(Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub"))
        self.parts.clock = self.clock
        self.provider = provider_type(self.clock)
        self.parts.providers._factories = {"cloud": lambda: cast("Provider", self.provider)}
        self.inventory = self.parts.inventory
        self.inventory.tenants._store.put(tenant())
        self.inventory.classes._store.put(lb_class("gold", provider="cloud"))
        self.inventory.classes._store.put(lb_class(DEFAULT_CLASS, provider=DEFAULT_CLASS))
        self.objects = self.inventory.intents[KEY.kind].cache._store
        self.records = self.inventory.records._store

    async def previewed(self, only=None):
        return await inspected._Preview(self.parts).all(only)

    async def one_previewed(self):
        (previewed,) = await self.previewed()
        return previewed


@pytest.fixture
async def bench():
    return Bench()


def ensured(*addresses, spec=None, **status):
    """Return a TCPLoadBalancer that the provider has, as it was asked for."""
    asked = msgspec.to_builtins(asked_of(spec or desired([], address="").spec))
    entry = {"provider": "cloud", "state": "Ensured", "serving": True, "asked": asked, "addresses": list(addresses)}
    return tcp(spec=PODS, status={"provisioned": [entry], **status})


def record(name="r", *, load_balancer="web", provider="cloud", address="10.0.0.1"):
    body = {
        "metadata": {"name": name, "namespace": KEY.namespace, "uid": name},
        "spec": {
            "loadBalancer": {"kind": KEY.kind, "namespace": KEY.namespace, "name": load_balancer, "provider": provider},
            "listener": {"port": 80, "protocol": "TCP"},
            "target": {"address": address, "port": 8080},
        },
        "status": {"state": "Registered"},
    }
    return decoded(body, BackendRecord)


async def test_a_new_load_balancer_would_be_made_with_its_targets(bench):
    bench.objects.put(tcp(spec=PODS))
    bench.inventory.slices._store.put(endpoint_slice("web-1", ["10.0.0.1"], load_balancer="web"))
    previewed = await bench.one_previewed()
    assert (previewed.key, previewed.provider, previewed.class_name) == (KEY, "cloud", "gold")
    assert (previewed.plan.frontend.action, previewed.plan.frontend.reason) == (Action.ENSURE, Reason.NEW)
    assert [change.action for change in previewed.plan.changes] == [Action.REGISTER]
    assert (previewed.observed, previewed.unread, previewed.drift.ours) == (None, "", 0)


async def test_records_are_compared_with_the_observed_state(bench):
    bench.objects.put(ensured("192.0.2.1"))
    bench.records.put(record())
    bench.records.put(record("q", address="10.0.0.2"))
    bench.provider.answer = Observed(programmed=True, targets=(ObservedTarget(HTTP, target("1").key),), foreign=("x",))
    previewed = await bench.one_previewed()
    assert previewed.observed is bench.provider.answer
    assert [at for _, at in previewed.drift.missing] == [target("2").key]
    assert (previewed.drift.foreign, len(previewed.records)) == (("x",), 2)


@pytest.mark.parametrize(
    ("provider_type", "answer", "unread", "gone"),
    [
        (Restorable, None, "", True),
        (Readable, None, "only the running hub knows", False),
        (Restorable, Observed(message="the socket is closed"), "the socket is closed", False),
        (Restorable, Retry("connection refused"), "connection refused", False),
    ],
)
async def test_what_could_not_be_read_back_is_not_called_gone(provider_type, answer, unread, gone):
    bench = Bench(provider_type)
    bench.objects.put(ensured("192.0.2.1"))
    bench.provider.answer = answer
    previewed = await bench.one_previewed()
    assert previewed.unread.startswith(unread)
    assert bool(previewed.unread) is bool(unread)
    assert (previewed.drift.gone, previewed.observed) == (gone, None)


async def test_possibly_requested_parts_are_not_gone(bench):
    entry = {"provider": "cloud", "state": "Ensuring", "asked": msgspec.to_builtins(asked_of(desired([]).spec))}
    bench.objects.put(tcp(spec=PODS, status={"provisioned": [entry]}))
    previewed = await bench.one_previewed()
    assert (previewed.drift.gone, previewed.unread) == (False, "")


async def test_a_pause_holds_the_frontend_and_names_who_set_it(bench):
    changed = ensured("192.0.2.1", spec=desired([], ports=(81,)).spec)
    paused = msgspec.structs.replace(changed.metadata, annotations={ANNOTATION_PAUSED: "true"})
    bench.objects.put(msgspec.structs.replace(changed, metadata=paused))
    held_class = lb_class("gold", provider="cloud")
    metadata = msgspec.structs.replace(held_class.metadata, annotations={ANNOTATION_PAUSED: ""})
    bench.inventory.classes._store.put(msgspec.structs.replace(held_class, metadata=metadata))
    previewed = await bench.one_previewed()
    assert previewed.paused == (f"TCPLoadBalancer/{KEY.namespace}/web", "LoadBalancerClass/gold")
    assert previewed.plan.frontend is None
    assert previewed.held_frontend.action is Action.ENSURE


@pytest.mark.parametrize("value", [None, "false"])
async def test_without_a_pause_nothing_is_held(bench, value):
    obj = tcp(spec=PODS, annotations={ANNOTATION_PAUSED: value} if value else None)
    bench.objects.put(obj)
    previewed = await bench.one_previewed()
    assert (previewed.paused, previewed.held_frontend) == ((), None)


async def test_a_load_balancer_whose_object_is_gone_would_be_deleted(bench):
    bench.records.put(record())
    previewed = await bench.one_previewed()
    assert (previewed.gone, previewed.class_name, previewed.provider) == (True, "", "cloud")
    assert (previewed.plan.frontend.action, previewed.plan.changes[0].action) == (Action.DELETE, Action.DEREGISTER)


async def test_a_load_balancer_that_is_being_deleted_would_be_deleted(bench):
    obj = ensured("192.0.2.1")
    leaving = msgspec.structs.replace(obj.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
    bench.objects.put(msgspec.structs.replace(obj, metadata=leaving))
    previewed = await bench.one_previewed()
    assert (previewed.gone, previewed.plan.frontend.action) == (False, Action.DELETE)


async def test_a_provider_that_is_not_installed_here_is_named(bench):
    bench.records.put(record(provider="vendor"))
    previewed = await bench.one_previewed()
    assert (previewed.provider, previewed.unread) == (
        "vendor",
        "provider 'vendor' is not installed where this command runs",
    )


async def test_what_no_provider_was_ever_asked_for_has_no_plan(bench):
    bench.objects.put(tcp(spec={"className": "silver"}))
    previewed = await bench.one_previewed()
    assert (previewed.provider, previewed.plan.empty, previewed.unread) == ("", True, "")


async def test_the_provider_that_holds_it_counts_when_the_class_is_gone(bench):
    obj = ensured("192.0.2.1")
    bench.objects.put(msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, class_name="silver")))
    previewed = await bench.one_previewed()
    assert (previewed.provider, previewed.class_name) == ("cloud", "silver")


async def test_only_the_one_that_is_asked_for_is_read(bench):
    for name in ("api", "web"):
        bench.records.put(record(name, load_balancer=name))
    assert [previewed.key for previewed in await bench.previewed()] == [lb_key("api"), KEY]
    bench.provider.asked.clear()
    assert [previewed.key for previewed in await bench.previewed(KEY)] == [KEY]
    assert bench.provider.asked == [KEY]
    assert await bench.previewed(lb_key("nothing")) == []


@pytest.mark.parametrize(
    ("takes_s", "asked"), [(0.0, 2), (SLOW_S, 1), (LOOK_LIMIT_S + 1, 1)], ids=["fails at once", "slow", "no answer"]
)
async def test_a_provider_that_is_slow_to_fail_is_asked_once(bench, takes_s, asked):
    bench.provider.answer = Retry("connection refused")
    bench.provider.takes_s = takes_s
    for name in ("api", "web"):
        bench.records.put(record(name, load_balancer=name))
    looking = asyncio.create_task(bench.previewed())
    await bench.clock.advance(100)
    previewed = await looking
    assert len(bench.provider.asked) == asked
    assert all(each.unread for each in previewed)
    advised = ["check the provider" in each.unread for each in previewed]
    assert advised == [asked == 1] * 2


# --- of the hub's own proxies ----------------------------------------------------------------------------------


def served(obj, *, wanted=True):
    translation = Decision(desired([target("1")]) if wanted else None, (), provider=DEFAULT_CLASS)
    return served_plan(Previewed(key=KEY, provider=DEFAULT_CLASS, plan=Plan(KEY), translation=translation), obj)


@pytest.mark.parametrize(
    ("generation", "observed", "reason"),
    [(1, 0, Reason.NEW), (3, 2, Reason.CHANGED), (3, 3, None)],
    ids=["never seen", "changed since", "up to date"],
)
def test_the_hub_has_still_to_look_at_a_newer_generation(generation, observed, reason):
    previewed = served(tcp(generation=generation, status={"observedGeneration": observed}))
    frontend = previewed.plan.frontend
    assert (frontend.reason if frontend else None) is reason


def test_undesired_targets_are_not_planned():
    assert served(tcp(), wanted=False).plan.frontend is None


def test_what_the_hub_holds_is_listed_and_the_rest_is_counted():
    row = {
        "action": "Drain", "reason": "Absent", "heldBy": "StaleView", "message": "behind", "protocol": "TCP",
        "port": 80, "address": "10.0.0.1", "backendPort": 8080,
    }  # fmt: skip
    previewed = served(tcp(status={"observedGeneration": 1, "held": [row], "heldTotal": 40}))
    assert [(held.change.action, held.reason) for held in previewed.plan.held] == [(Action.DRAIN, "StaleView")]
    assert previewed.more_held == 39


async def test_a_load_balancer_of_the_default_class_is_not_read_back(bench):
    bench.objects.put(tcp(spec={"targets": "Pod"}))
    previewed = await bench.one_previewed()
    assert (previewed.served, previewed.provider, bench.provider.asked) == (True, DEFAULT_CLASS, [])
    assert previewed.plan.frontend.reason is Reason.NEW
