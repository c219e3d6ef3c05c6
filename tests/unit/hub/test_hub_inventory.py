"""Which load balancers a change concerns: all of them, and no others."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.loadbalancerclass import LoadBalancerClassStatus
from fairlead.api.multicluster import ExportedService
from fairlead.hub.intents.tcp import TCPObjects
from fairlead.hub.inventory import Inventory, addresses_of_slice
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.testing.builders import decoded, endpoint_slice, lb_class, lb_key, slice_body, tcp, tenant


class Watched:
    """An inventory that learns of changes as from its caches, without a server."""

    def __init__(self):
        cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.inventory = Inventory(cluster)
        self.objects = TCPObjects(cluster, self.inventory)
        self.inventory.slices.on_change(self.objects.slice_changed)
        self.woken: list[str] = []
        self.causes: set[str] = set()
        self.inventory.on_wake(self._wake)

    def _wake(self, key, cause):
        self.woken.append(key.name)
        self.causes.add(cause)

    def change(self, cache, new, old=None):
        """Store what is new as the cache would, and notify."""
        self.woken.clear()
        if new is not None:
            cache._store.put(new)
        elif old is not None:
            cache._store.remove(old.key)
        cache._notify(old, new)
        return sorted(set(self.woken))


@pytest.fixture
async def watched():
    woken = Watched()
    inventory = woken.inventory
    woken.change(inventory.tenants, tenant())
    woken.change(inventory.classes, lb_class())
    woken.change(woken.objects.cache, tcp("a"))
    woken.change(woken.objects.cache, tcp("b", spec={"targets": "Pod", "className": "gold"}))
    woken.change(woken.objects.cache, tcp("c", namespace="tenant-west"))
    return woken


async def test_a_slice_concerns_the_load_balancer_it_is_labelled_with(watched):
    cache = watched.inventory.slices
    mine = endpoint_slice("s", ["10.0.0.1"], load_balancer="b")
    assert watched.change(cache, mine) == ["b"]
    assert watched.inventory.slices_of(lb_key("b")) == (mine,)
    moved = endpoint_slice("s", ["10.0.0.1"], load_balancer="a")
    assert watched.change(cache, moved, mine) == ["a", "b"]
    assert watched.change(cache, None, moved) == ["a"]
    assert watched.inventory.slices_of(lb_key("a")) == ()


@pytest.mark.req("K-16", "K-17", "K-32")
async def test_nodes_concern_all_load_balancers_of_nodes_of_that_member(watched):
    nodes = endpoint_slice("n", ["10.0.0.1"], nodes=True)
    assert watched.change(watched.inventory.slices, nodes) == ["a"]
    assert watched.inventory.node_slices_of("tenant-east") == (nodes,)
    assert watched.inventory.node_slices_of("tenant-west") == ()


async def test_a_class_concerns_its_load_balancers_also_when_it_comes_late(watched):
    assert watched.change(watched.inventory.classes, lb_class("gold")) == ["b"]
    assert "LoadBalancerClass gold changed" in watched.causes
    assert watched.change(watched.inventory.classes, None, lb_class("gold")) == ["b"]
    assert watched.change(watched.inventory.classes, lb_class(), lb_class(spec={"drain": "1s"})) == ["a", "c"]
    counted = msgspec.structs.replace(lb_class(), status=LoadBalancerClassStatus(load_balancers=2))
    assert watched.change(watched.inventory.classes, lb_class(), counted) == []


@pytest.mark.req("X-12")
async def test_load_balancers_are_served_while_the_default_class_returns(watched):
    inventory, classes = watched.inventory, watched.inventory.classes
    drained = lb_class("envoy", spec={"drain": "7s"})
    watched.change(classes, drained)
    metadata = msgspec.structs.replace(drained.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
    deleted = msgspec.structs.replace(drained, metadata=metadata)
    watched.change(classes, deleted, drained)
    assert inventory.load_balancer_class("") == drained
    watched.change(classes, None, deleted)
    assert inventory.load_balancer_class("envoy") == drained
    watched.change(classes, None, lb_class("gold"))
    assert inventory.load_balancer_class("gold") is None


async def test_a_tenant_concerns_its_load_balancers_when_its_spec_changes(watched):
    east = tenant()
    limited = tenant(spec={"maxLoadBalancers": 1})
    assert watched.change(watched.inventory.tenants, limited, east) == ["a", "b"]
    assert watched.change(watched.inventory.tenants, limited, limited) == []
    assert watched.change(watched.inventory.tenants, None, limited) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "woken"),
    [
        pytest.param({"status": {"address": "192.0.2.1"}}, [], id="address"),
        pytest.param({"status": {"targets": "1/2", "conditions": [{"type": "Accepted"}]}}, [], id="conditions"),
        pytest.param({"status": {"allocation": {"address": "192.0.2.1"}}}, ["a"], id="allocation"),
        pytest.param({"status": {"accepted": {"ports": [{"port": 1}]}}}, ["a"], id="accepted"),
        pytest.param({"annotations": {"fairlead.dev/paused": "true"}}, ["a"], id="annotation"),
        pytest.param({"spec": {"sessionAffinity": "ClientIP"}, "generation": 2}, ["a"], id="spec"),
    ],
)
@pytest.mark.req("KI-6")
async def test_what_we_write_ourselves_wakes_no_key(watched, text, woken):
    assert watched.change(watched.objects.cache, tcp("a", **text), tcp("a")) == woken


async def test_coming_and_going_wakes(watched):
    assert watched.change(watched.objects.cache, tcp("d")) == ["d"]
    assert watched.change(watched.objects.cache, None, tcp("d")) == ["d"]


async def test_a_long_name_is_found_by_its_label(watched):
    name = "x" * 253
    watched.change(watched.objects.cache, tcp(name))
    assert watched.change(watched.inventory.slices, endpoint_slice("s", [], load_balancer=name)) == [name]


async def test_slices_without_our_labels_concern_no_key(watched):
    body = slice_body("s", ["10.0.0.1"])
    assert watched.change(watched.inventory.slices, decoded(body, EndpointSlice)) == []


async def test_a_broken_cache_is_a_problem_of_the_whole_view(watched):
    assert watched.inventory.problem == ""
    watched.inventory.slices.problem = "unreachable"
    assert watched.inventory.problem == "endpointslices: unreachable"


async def test_keys(watched):
    assert sorted(key.name for key in watched.inventory.all_keys()) == ["a", "b", "c"]
    assert [key.name for key in watched.inventory.keys_of_namespace("tenant-west")] == ["c"]
    assert watched.inventory.intent(lb_key("a")).metadata.name == "a"
    assert watched.objects.key(tcp("a")) == lb_key("a")
    assert watched.inventory.tenant_of("tenant-east").metadata.name == "east"
    assert watched.inventory.tenant_of("nobodys") is None


def test_a_slice_is_indexed_by_its_addresses_without_ports():
    addresses = [f"10.1.{number // 250}.{number % 250 + 1}" for number in range(1000)]
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 20_001)]
    assert len(addresses_of_slice(endpoint_slice("s", addresses, ports=ports))) == 1000


async def test_endpoints_are_found_by_address_and_port(watched):
    inventory, slices = watched.inventory, watched.inventory.slices
    ports = [{"name": "a", "port": 80, "protocol": "TCP"}, {"name": "b", "port": 81, "protocol": "TCP"}]
    watched.change(slices, endpoint_slice("s", ["::ffff:10.1.0.1"], load_balancer="b", ports=ports))
    assert [each.metadata.name for each in inventory.slices_at("10.1.0.1", [81, 99])] == ["s"]
    assert watched.objects.with_targets("10.1.0.1", [81]) == {lb_key("b")}
    assert watched.objects.with_targets("10.1.0.1", [99]) == set()
    assert watched.objects.with_targets("10.1.0.2", [81]) == set()


@pytest.mark.req("MC-2")
async def test_an_export_counts_only_under_the_name_of_its_service(watched):
    def exported(object_name, **spec):
        return decoded({"metadata": {"name": object_name, "namespace": "tenant-east"}, "spec": spec}, ExportedService)

    exports = watched.inventory.exports
    watched.change(exports, exported("shop.web", namespace="shop", name="web"))
    watched.change(exports, exported("made-up", namespace="shop", name="web"))
    assert [export.metadata.name for export in exports.by_index("service", ("shop", "web"))] == ["shop.web"]
