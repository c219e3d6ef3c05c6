"""One load balancer in detail: what is registered is listed in order, with what is seen of it."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from fairlead.api.globalservice import GlobalService
from fairlead.api.httploadbalancer import (
    HTTPLoadBalancerStatus,
    LoadBalancerRoute,
    LoadBalancerRouteSpec,
    RefusedPartStatus,
)
from fairlead.api.intent import IntentObject
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import Origin
from fairlead.hub.inspect.preview import KeyState
from fairlead.hub.inventory import Inventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.change import Reason
from fairlead.model.http import Attachment, BackendRef, Filters, PathMatch, Redirect, RequestMatch, Rule
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.tables import MOST_BACKENDS, RegisteredStatus, detail_of, target_status_of
from fairlead.status.machines import AnnouncedRow
from fairlead.sync.plan import Registered
from fairlead.testing.builders import HTTP, decoded, lb_key, target
from tests.fleet_objects import http_load_balancer

KEY = lb_key()
EDGE = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "ingressclass.edge")


class Objects:
    """A cache of one object."""

    def __init__(self, obj: IntentObject) -> None:
        self._obj = obj

    def get(self, _namespace: str, _name: str) -> IntentObject:
        return self._obj


def route(name: str, *rules: Rule, hosts: tuple[str, ...] = (), load_balancer: str = EDGE.name) -> LoadBalancerRoute:
    return LoadBalancerRoute(
        metadata=ObjectMeta(namespace=EDGE.namespace, name=name, resource_version="1"),
        spec=LoadBalancerRouteSpec(
            load_balancer=load_balancer,
            attachments=(Attachment("http", hosts), Attachment("https", hosts)),
            rules=rules,
            origin=Origin(kind="Ingress", namespace="shop", name=name),
        ),
    )


@pytest.fixture
def inventory() -> Inventory:
    return Inventory(Cluster(ClusterConfig(server="http://192.0.2.1", sign_in=bearer("none")), name="hub"))


def test_what_nothing_is_known_of_has_no_detail(inventory: Inventory) -> None:
    assert detail_of(KEY, None, inventory) is None


def test_backends_are_listed_by_address_with_what_is_seen_of_them(inventory: Inventory) -> None:
    registered = [
        Registered(target("4"), draining_since=8.0, since=8.0, reason=Reason.ABSENT),
        Registered(target("3", draining=True)),
        Registered(target("1"), since=5.0, reason=Reason.NEW),
        Registered(target("2"), since=5.0, reason=Reason.NEW),
    ]
    standing = {
        (HTTP, each.target.key): target_status_of(
            each, "at {:.0f}".format, unhealthy=each.target.key.address == "10.0.0.2", unhealthy_since="at 7"
        )
        for each in registered
    }
    state = KeyState("TCPLoadBalancer", KEY.namespace, KEY.name, True, [], [])
    detail = detail_of(KEY, state, inventory, standing)
    assert detail is not None
    assert [(each.address, each.state, each.since, each.why) for each in detail.backends] == [
        ("10.0.0.1:8080", "Served", "at 5", ""),
        ("10.0.0.2:8080", "Unhealthy", "at 7", "the health checks of its proxies fail"),
        ("10.0.0.3:8080", "Draining", "", "no new connections"),
        ("10.0.0.4:8080", "Draining", "at 8", "Absent: disappeared without being reported as terminating"),
    ]
    assert (detail.more_backends, detail.held, detail.routes) == (0, [], [])


def test_more_backends_than_a_page_takes_are_counted(inventory: Inventory) -> None:
    targets = [target("1", port) for port in range(1, MOST_BACKENDS + 4)]
    registered = {(HTTP, each.key): RegisteredStatus(each) for each in targets}
    state = KeyState("TCPLoadBalancer", KEY.namespace, KEY.name, True, [], [])
    detail = detail_of(KEY, state, inventory, registered)
    assert detail is not None
    assert (len(detail.backends), detail.more_backends) == (MOST_BACKENDS, 3)


@pytest.mark.req("OP-10")
def test_routes_say_what_they_take_and_where_it_goes_those_that_are_refused_first(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = Rule(
        matches=(RequestMatch(path=PathMatch("PathPrefix", "/cart"), method="GET"),),
        backends=(BackendRef("shop/cart:80", 9), BackendRef("shop/canary:80", 1)),
    )
    moved = Rule(filters=Filters(redirect=Redirect(scheme="https")))
    routes = [
        route("web", split, moved, hosts=("shop.example.com",)),
        route("zoo", split),
        route("partly", split, moved),
        route("of", load_balancer="x"),
    ]
    monkeypatch.setattr(Inventory, "caches", {"loadbalancerroutes": {each.key: each for each in routes}})
    refused = (
        RefusedPartStatus("route", "zoo", "its regular expression is too large"),
        RefusedPartStatus("rule", "partly", "rule 1: bad"),
        RefusedPartStatus("rule", "partly", "rule 2: worse"),
    )
    lb = msgspec.structs.replace(http_load_balancer(), status=HTTPLoadBalancerStatus(refused=refused))
    monkeypatch.setattr(inventory, "intents", {EDGE.kind: SimpleNamespace(cache=Objects(lb))})
    detail = detail_of(EDGE, KeyState(*EDGE, True, [], []), inventory)
    assert detail is not None
    assert [(each.origin, each.refused, each.hosts) for each in detail.routes] == [
        ("shop/partly", "rule 1: bad; rule 2: worse", ()),
        ("shop/zoo", "its regular expression is too large", ()),
        ("shop/web", "", ("shop.example.com",)),
    ]
    assert [(rule.takes, rule.goes) for rule in detail.routes[2].rules] == [
        (("PathPrefix /cart, method GET",), ("shop/cart:80 90 %", "shop/canary:80 10 %")),
        (("PathPrefix /",), ("answered with 302, a redirect: scheme https",)),
    ]


@pytest.mark.req("OP-10", "P-27")
def test_addresses_name_who_announces_them(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    row = AnnouncedRow("192.0.2.9", ["m1"])
    monkeypatch.setattr(inventory, "intents", {EDGE.kind: SimpleNamespace(cache=Objects(http_load_balancer()))})
    detail = detail_of(EDGE, KeyState(*EDGE, True, [], []), inventory, announced=lambda _obj: [row])
    assert detail is not None
    assert detail.announced == [row]


@pytest.mark.req("MC-9", "MC-11", "OP-10")
def test_a_global_service_has_its_members_with_shares_states_and_backends(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [
        {"tenant": "west", "service": "shop/web", "share": "100%", "state": "Serving", "endpoints": "1/1 healthy"},
        {"tenant": "east", "share": "0%", "state": "Down", "message": "none of 1 endpoints is healthy"},
        {"tenant": "north", "tier": 1, "share": "0%", "state": "Standby", "silentSince": "2029-12-31T00:00:00Z"},
    ]
    ports = [{"port": 80}]
    body = {
        "metadata": {"name": "web", "namespace": "tenant-west"},
        "spec": {"members": [{"tenant": "west"}], "ports": ports},
        "status": {"members": members, "address": "192.0.2.9", "addresses": ["192.0.2.9"]},
    }
    key = LoadBalancerKey("GlobalService", "tenant-west", "web")
    cache = Objects(decoded(body, GlobalService))
    monkeypatch.setattr(inventory, "intents", {key.kind: SimpleNamespace(cache=cache)})
    registered = {
        (HTTP, at.key): RegisteredStatus(msgspec.structs.replace(at, locality=name), state)
        for at, name, state in ((target("1"), "west", "Served"), (target("2"), "east", "Unhealthy"))
    }
    detail = detail_of(key, KeyState(*key, True, [], []), inventory, registered)
    assert detail is not None
    assert [(each.member, each.share, each.tier, each.trouble) for each in detail.members] == [
        ("west", "100%", 0, "Serving"),
        ("east", "down", 0, "NotServing"),
        ("north", "standby", 1, "Idle"),
    ]
    assert [each.member for each in detail.backends] == ["west", "east"]
    assert detail.chain is not None
    (column,) = (column for column in detail.chain.columns if column.title == "Members")
    notes = {node.text: node.note for node in column.nodes}
    assert notes["east"] == "down, tier 0; none of 1 endpoints is healthy"
    assert {link for link in detail.chain.links if link[1].startswith("backend ")} == {
        ("service west", "backend 10.0.0.1:8080"),
        ("service east", "backend 10.0.0.2:8080"),
    }
    # As with HAProxy.
    weighed = {
        place: RegisteredStatus(msgspec.structs.replace(at.target, locality="")) for place, at in registered.items()
    }
    detail = detail_of(key, KeyState(*key, True, [], []), inventory, weighed)
    assert detail is not None
    assert detail.chain is not None
    assert [(column.title, len(column.nodes)) for column in detail.chain.columns[-2:]] == [
        ("Service", 1),
        ("Backends", 2),
    ]
