"""The slices of the Services that the routes of a load balancer name, kept up to date with what changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api.httploadbalancer import LoadBalancerRoute
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.names import LABEL_BACKEND, backend_label
from fairlead.hub.intents.http import HTTPObjects
from fairlead.hub.inventory import Inventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.model.keys import LoadBalancerKey
from fairlead.testing.builders import NAMESPACE, decoded, slice_body
from tests.call_count import count_calls

NAMES = st.sampled_from(["a", "b", "c"])
KEYS = [LoadBalancerKey("HTTPLoadBalancer", NAMESPACE, name) for name in ("one", "two")]


def route(name: str, load_balancer: str, services: frozenset[str], *, leaving: bool) -> LoadBalancerRoute:
    backends = [{"name": each, "service": f"shop/{each}"} for each in sorted(services)]
    meta: dict[str, object] = {"name": name, "namespace": NAMESPACE}
    if leaving:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return decoded({"metadata": meta, "spec": {"loadBalancer": load_balancer, "backends": backends}}, LoadBalancerRoute)


def slice_of(name: str, service: str) -> EndpointSlice:
    body = slice_body(name, ["10.0.0.1"])
    body["metadata"]["labels"][LABEL_BACKEND] = backend_label(f"shop/{service}")
    return decoded(body, EndpointSlice)


class Hub:
    """The objects of a hub, which learn of changes as from their caches, without a server."""

    def __init__(self) -> None:
        cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.inventory = Inventory(cluster)
        self.objects = HTTPObjects(cluster, self.inventory)

    def change(self, cache: Any, name: str, new: Any) -> None:
        old = cache.get(NAMESPACE, name)
        if new is not None:
            cache._store.put(new)
        elif old is not None:
            cache._store.remove(old.key)
        if old is not None or new is not None:
            cache._notify(old, new)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("route"), NAMES, st.sampled_from(["one", "two"]), st.frozensets(NAMES), st.booleans()),
            st.tuples(st.just("slice"), NAMES, NAMES),
            st.tuples(st.sampled_from(["no route", "no slice"]), NAMES),
        ),
        max_size=25,
    ),
    st.integers(0, 3),
)
@settings(max_examples=200, deadline=None)
def test_slices_of_routes_follow_every_change(steps: list[tuple[Any, ...]], asked: int) -> None:
    hub = Hub()
    routes, slices = hub.objects.routes, hub.inventory.slices
    for number, (what, name, *rest) in enumerate(steps):
        if what.endswith("route"):
            hub.change(routes, name, route(name, *rest[:2], leaving=rest[2]) if rest else None)
        else:
            hub.change(slices, name, slice_of(name, *rest) if rest else None)
        for key in KEYS if number >= asked else ():
            named = {each.service for at in hub.objects.routes_of(key) for each in at.spec.backends}
            expected = {each: hub.inventory.backend_slices_of(NAMESPACE, each) for each in named}
            assert hub.objects.slices_of(key) == expected


@given(st.lists(st.tuples(NAMES, st.sampled_from(["one", "two", ""]), st.booleans()), max_size=25), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_the_routes_of_a_load_balancer_follow_every_change(steps: list[tuple[str, str, bool]], asked: int) -> None:
    hub = Hub()
    for number, (name, load_balancer, leaving) in enumerate(steps):
        new = route(name, load_balancer, frozenset(), leaving=leaving) if load_balancer else None
        hub.change(hub.objects.routes, name, new)
        for key in KEYS if number >= asked else ():
            indexed = hub.objects.routes.by_index("lb", key)
            assert hub.objects.routes_of(key) == tuple(route for route in indexed if not route.deleting)


def test_a_new_route_costs_as_much_among_many_as_among_few() -> None:
    def cost(count: int) -> int:
        hub = Hub()
        for number in range(count):
            hub.change(hub.objects.routes, f"r{number}", route(f"r{number}", "one", frozenset({"a"}), leaving=False))
        hub.objects.routes_of(KEYS[0])
        new = route("r1x", "one", frozenset({"a"}), leaving=False)
        return count_calls(lambda: (hub.change(hub.objects.routes, "r1x", new), hub.objects.routes_of(KEYS[0])))

    assert cost(1000) < cost(10) + 30


def test_a_changed_slice_leaves_those_of_other_services_as_they_are() -> None:
    hub = Hub()
    for name in ("a", "b"):
        hub.change(hub.objects.routes, name, route(name, "one", frozenset({name}), leaving=False))
        hub.change(hub.inventory.slices, name, slice_of(name, name))
    before = hub.objects.slices_of(KEYS[0])
    assert hub.objects.slices_of(KEYS[0]) is before
    hub.change(hub.inventory.slices, "a", slice_of("a", "a"))
    after = hub.objects.slices_of(KEYS[0])
    assert [service for service in after if after[service] is not before[service]] == ["shop/a"]
