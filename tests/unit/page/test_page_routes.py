"""A row for each Ingress and route says what its clients get; the chain names the part that is at fault."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fairlead.api.httploadbalancer import (
    HTTP_LOAD_BALANCERS,
    LOAD_BALANCER_ROUTES,
    FailingRoute,
    HTTPLoadBalancer,
    HTTPLoadBalancerSpec,
    LoadBalancerRoute,
    LoadBalancerRouteSpec,
    MaintenanceStatus,
    RefusedPartStatus,
    RouteKey,
)
from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import AGENT_LEASE, ANNOTATION_REFUSED, LABEL_MANAGED_BY, MANAGED_BY
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.tenant import TENANTS
from fairlead.hub.intents.http import HTTPObjects
from fairlead.hub.inventory import Inventory
from fairlead.model.http import Attachment, Backend, BackendRef, L7Listener, Rule
from fairlead.page.routes import MOST_PARTS, ChainBackend, RouteRows, ServedRoutes, chain_of, route_row
from fairlead.status.fleet import Trouble, load_balancer_row
from fairlead.status.machines import AnnouncedRow
from fairlead_demo.worlds.processes import wait_until
from tests.fleet_objects import EAST, GOOD, condition, http_load_balancer

KEY = RouteKey("Ingress", "tenant-east", "shop", "web")
EDGE = "ingressclass.edge"


def edge(*conditions: Any, **status: Any) -> HTTPLoadBalancer:
    lb = http_load_balancer(*(conditions or GOOD))
    listeners = (L7Listener("http", 80), L7Listener("https", 443, "HTTPS", "*.example.com"))
    return msgspec.structs.replace(
        lb, spec=HTTPLoadBalancerSpec(listeners=listeners), status=msgspec.structs.replace(lb.status, **status)
    )


def route(name: str, backend: str, *hosts: str, origin: str = "web") -> LoadBalancerRoute:
    return LoadBalancerRoute(
        metadata=ObjectMeta(namespace="tenant-east", name=name),
        spec=LoadBalancerRouteSpec(
            load_balancer=EDGE,
            attachments=(Attachment("http", hosts),),
            rules=(Rule(backends=(BackendRef(backend, 1),)),),
            backends=(Backend(backend, service=backend.partition(":")[0]),),
            origin=Origin(kind="Ingress", namespace="shop", name=origin),
        ),
    )


ROUTES = [route("web.a", "shop/web:80", "a.example.com"), route("web.b", "shop/api:80", "b.example.com")]


def row(lb: HTTPLoadBalancer | None):
    return route_row(KEY, ROUTES, {EDGE: ServedRoutes.of(lb) if lb is not None else None}, EAST)


def failing(name: str, backend: str) -> FailingRoute:
    return FailingRoute(name, "Ingress", "shop", "web", ("a.example.com",), (backend,))


@pytest.mark.req("X-31")
@pytest.mark.parametrize(
    ("lb", "state", "says"),
    [
        (edge(), Trouble.NONE, ""),
        (None, Trouble.NOT_SERVING, f"load balancer {EDGE} does not exist"),
        (
            edge(*GOOD, condition("Serving", "False", "NoHealthyTargets", "none is healthy")),
            Trouble.NOT_SERVING,
            "load balancer east/edge does not serve: none is healthy",
        ),
        (edge(refused=(RefusedPartStatus("route", "web.a", "too long"),)), Trouble.ATTENTION, "not served: too long"),
        (
            edge(refused=(RefusedPartStatus("rule", "web.a", "too long"),)),
            Trouble.ATTENTION,
            "a rule is not served: too long",
        ),
        (
            edge(failing_routes=(failing("web.a", "shop/web:80"),)),
            Trouble.ATTENTION,
            "requests for a.example.com fail: no healthy target behind backend shop/web:80",
        ),
        (
            edge(failing_routes=(failing("web.a", "shop/web:80"), failing("web.b", "shop/api:80"))),
            Trouble.NOT_SERVING,
            "requests for a.example.com fail: no healthy target behind backend shop/web:80",
        ),
        (
            edge(maintenance=(MaintenanceStatus("b.example.com", "2030-01-01T00:00:00Z"),)),
            Trouble.ATTENTION,
            "host b.example.com is in maintenance until 2030-01-01T00:00:00Z",
        ),
        (
            edge(*GOOD, condition("Serving", "Unknown", "ProxySilent", "no proxy reports")),
            Trouble.UNCONFIRMED,
            "load balancer east/edge is not known to serve yet: no proxy reports",
        ),
        (edge(routes=0), Trouble.UNCONFIRMED, "load balancer east/edge has not reported a route yet"),
        (
            edge(failing_routes=tuple(failing(f"other.{number}", "x") for number in range(200))),
            Trouble.UNCONFIRMED,
            "load balancer east/edge has more failing routes than its status lists",
        ),
    ],
)
def test_a_row_says_what_the_clients_of_a_route_get(lb, state, says):
    item = row(lb)
    assert (item.state, item.problems[:1]) == (state, (says,) if says else ())


def test_a_row_names_its_hosts_services_and_load_balancers():
    item = row(edge())
    assert (item.title, item.hosts, item.targets) == (
        "ingress/east/shop/web",
        "a.example.com, b.example.com",
        "web, api",
    )
    assert item.load_balancers == (f"HTTPLoadBalancer/tenant-east/{EDGE}",)
    assert (item.address, item.command) == ("127.200.0.2", "fairlead explain ingress/east/shop/web")


BACKENDS = [
    ChainBackend("shop/web:80", "10.0.0.1:8080", "Pod/shop/web-1", Trouble.NOT_SERVING, "Unhealthy"),
    ChainBackend("shop/api:80", "10.0.0.2:8080", "Pod/shop/api-1", Trouble.NONE, ""),
]


@pytest.mark.req("OP-10")
def test_a_chain_leads_from_client_to_backend_and_is_coloured_where_it_breaks():
    lb = edge(failing_routes=(failing("web.a", "shop/web:80"),))
    announced = [AnnouncedRow("127.200.0.2", [], problem="no machine is ready")]
    chain = chain_of(lb, load_balancer_row(lb), ROUTES, BACKENDS, announced)
    assert [column.title for column in chain.columns] == [
        "Clients", "Address", "Listener", "Route", "Service", "Backends",
    ]  # fmt: skip
    states = {node.id: node.state for column in chain.columns for node in column.nodes}
    assert {name for name, state in states.items() if state == "NotServing"} == {
        "address 127.200.0.2", "route web.a", "service shop/web", "backend 10.0.0.1:8080",
    }  # fmt: skip
    assert set(states.values()) == {"NotServing", "Serving"}
    assert [node.state for node in chain.columns[3].nodes] == ["NotServing", "Serving"]
    assert {("listener http", "route web.a"), ("route web.a", "service shop/web"),
            ("service shop/web", "backend 10.0.0.1:8080")} <= set(chain.links)  # fmt: skip
    assert ("service shop/web", "backend 10.0.0.2:8080") not in chain.links


@pytest.mark.parametrize(
    ("lb", "states"),
    [
        (edge(*GOOD, condition("Serving", "Unknown", "ProxySilent", "none reports")), {"NotKnownYet", "NotServing"}),
        (edge(routes=0), {"Idle", "NotKnownYet", "NotServing"}),
    ],
)
def test_no_part_of_a_chain_is_green_while_its_state_is_unknown(lb, states):
    chain = chain_of(lb, load_balancer_row(lb), ROUTES, BACKENDS)
    assert {node.state for column in chain.columns for node in column.nodes} == states
    assert chain.columns[-1].nodes[0].state == "NotServing"  # a fault that is known stays one


@pytest.mark.parametrize(
    ("before", "after", "marked"),
    [
        (edge(), edge(targets="1/3"), []),
        (edge(), edge(failing_routes=(failing("web.a", "shop/web:80"),)), ["a"]),
        (edge(refused=(RefusedPartStatus("rule", "web.b", "x"),)), edge(), ["b"]),
        (edge(), edge(maintenance=(MaintenanceStatus("b.example.com", "2030-01-01T00:00:00Z"),)), ["b"]),
        (edge(), edge(maintenance=(MaintenanceStatus("", "2030-01-01T00:00:00Z"),)), ["a", "b"]),
        (edge(), edge(*GOOD, condition("Serving", "False", "NoHealthyTargets")), ["a", "b"]),
        (None, edge(), ["a", "b"]),
    ],
)
def test_a_change_of_a_load_balancer_marks_the_touched_routes_only(before, after, marked):
    routes = [route(f"web.{name}", "shop/web:80", f"{name}.example.com", origin=name) for name in "ab"]
    table = table_of(routes, after)
    seen: list[RouteKey] = []
    table.watch(seen.append)
    table._load_balancers.changed(before, after)
    assert [key.name for key in seen] == marked


def table_of(routes: list[LoadBalancerRoute], lb: HTTPLoadBalancer) -> Any:
    """Return the table of a load balancer with these routes, with the caches that it needs."""

    class Cache:
        changed: Any = None

        def on_change(self, call: Any) -> None:
            self.changed = call

        def get(self, _namespace: str, _name: str) -> HTTPLoadBalancer:
            return lb

        def indexed(self, _name: str, _key: object) -> list[LoadBalancerRoute]:
            return routes

        by_index = indexed

    class Parts:
        leases = Cache()

    parts: Any = Parts()
    caches: Any = [Cache(), Cache()]
    return RouteRows(parts, *caches)


def test_a_chain_is_bounded_and_keeps_what_is_at_fault():
    backends = [
        ChainBackend(
            "shop/web:80", f"10.0.0.{number}:80", "", Trouble.NOT_SERVING if number == 99 else Trouble.NONE, ""
        )
        for number in range(100)
    ]
    chain = chain_of(edge(), load_balancer_row(edge()), ROUTES[:1], backends)
    last = chain.columns[-1]
    assert (len(last.nodes), last.more, last.nodes[0].text) == (MOST_PARTS, 100 - MOST_PARTS, "10.0.0.99:80")
    listed = {node.id for column in chain.columns for node in column.nodes}
    assert all(listed.issuperset(link) for link in chain.links)


@pytest.mark.req("OP-10", "X-34")
async def test_rows_follow_routes_load_balancers_and_what_agents_reject(cluster):
    async with asyncio.TaskGroup() as group:
        inventory = Inventory(cluster)
        objects = HTTPObjects(cluster, inventory)
        table, marked = RouteRows(inventory, objects.routes, objects.cache), []
        table.watch(marked.append)
        caches = (inventory.tenants, inventory.leases, objects.routes, objects.cache)
        tasks = [group.create_task(cache.run()) for cache in caches]

        async def until(check: Any, what: str) -> None:
            async def ask() -> Any:
                return check()

            await wait_until(ask, what)

        def shown(key: RouteKey) -> Any:
            visible = table.visible_item(key)
            return visible.item if visible is not None else None

        await cluster.create(NAMESPACES, {"metadata": {"name": "tenant-east"}})
        await cluster.create(TENANTS, {"metadata": {"name": "east"}, "spec": {}})
        spec = msgspec.to_builtins(ROUTES[0].spec)
        body = {"metadata": {"namespace": "tenant-east", "name": "web.a"}, "spec": spec}
        await cluster.create(LOAD_BALANCER_ROUTES, body)
        await until(lambda: KEY in marked and inventory.tenant_of("tenant-east"), "the route is marked")
        assert shown(KEY).reason == "NoLoadBalancer"
        marked.clear()
        listeners = [{"name": "http", "port": 80}]
        lb = {"metadata": {"namespace": "tenant-east", "name": EDGE}, "spec": {"listeners": listeners}}
        await cluster.create(HTTP_LOAD_BALANCERS, lb)
        await until(lambda: KEY in marked and shown(KEY).reason == "Pending", "a load balancer marks its routes")
        rejected = '{"shop/bad": "annotation drain: 2 h is not a duration", "Ingress/shop/web": "no class edge"}'
        meta = {"namespace": "tenant-east", "name": AGENT_LEASE, "annotations": {ANNOTATION_REFUSED: rejected},
                "labels": {LABEL_MANAGED_BY: MANAGED_BY}}  # fmt: skip
        await cluster.create(LEASES, {"metadata": meta, "spec": {"holderIdentity": "agent-1"}})
        service = RouteKey("Service", "tenant-east", "shop", "bad")
        await until(lambda: service in marked, "what an agent rejects is marked")
        assert (shown(service).title, shown(service).state) == ("svc/east/shop/bad", "NotServing")
        assert table.visible_item(service).resource == "tcploadbalancers"
        assert shown(KEY).problems[-1] == "no class edge"
        assert {KEY, service} == set(table.all_keys())
        await cluster.delete(LOAD_BALANCER_ROUTES, "tenant-east", "web.a")
        await cluster.merge_patch(
            LEASES, "tenant-east", AGENT_LEASE, {"metadata": {"annotations": {ANNOTATION_REFUSED: None}}}
        )
        await until(lambda: shown(KEY) is None and shown(service) is None, "both are gone")
        for task in tasks:
            task.cancel()
