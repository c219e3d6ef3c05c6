"""What ``fairlead status`` says of the load balancers of Ingress classes, and of their routes."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from fairlead.api.httploadbalancer import RefusedPartStatus
from fairlead.cli.run import EXIT_CODE_OF, OK
from fairlead.cli.status import Filter, filtered, names_of, only_problems, print_status
from fairlead.status.fleet import FleetStatus, Trouble
from tests.fleet_objects import EAST, GOOD, condition, fleet_of, http_load_balancer, lease, load_balancer


def shown(fleet: FleetStatus, *, wide: bool = False) -> str:
    out = io.StringIO()
    print_status(fleet, Console(file=out), wide=wide)
    return out.getvalue()


def test_an_http_load_balancer_is_listed_with_its_routes() -> None:
    fleet = fleet_of(
        tenants=[EAST],
        leases={"tenant-east": lease(1.0)},
        load_balancers=[load_balancer(*GOOD), http_load_balancer(*GOOD)],
    )
    assert fleet.healthy
    assert fleet.members[0].load_balancers == 2
    text = shown(fleet)
    (header,) = [line for line in text.splitlines() if line.startswith("LOAD BALANCER ")]
    assert header.split()[-2:] == ["ROUTES", "TARGETS"]
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith("east/")}
    assert rows["east/edge"][-2:] == ["2", "2/3"]
    assert rows["east/default/web"][-2:] == ["-", "2/3"]
    assert list(names_of(fleet)) == ["tcplb/tenant-east/default.web", "httplb/tenant-east/ingressclass.edge"]


def test_without_any_there_is_no_column_of_routes() -> None:
    assert "ROUTES" not in shown(fleet_of(load_balancers=[load_balancer(*GOOD)]))


def test_none_of_its_backends_ready_is_not_green() -> None:
    row = fleet_of(load_balancers=[http_load_balancer(*GOOD, targets="0/3")]).load_balancers[0]
    assert (row.kind, row.state, row.reason) == ("HTTPLoadBalancer", Trouble.NOT_SERVING, "NoBackendReady")


def test_a_load_balancer_without_routes_is_idle() -> None:
    fleet = fleet_of(load_balancers=[http_load_balancer(*GOOD, routes=0, targets="0/0"), load_balancer(*GOOD)])
    assert (fleet.healthy, fleet.state, fleet.problems) == (True, Trouble.NONE, [])
    (row,) = [row for row in fleet.load_balancers if row.kind == "HTTPLoadBalancer"]
    assert (row.state, row.reason) == (Trouble.IDLE, "NoRoute")
    assert row.message == "no Ingress or route is attached yet"
    assert "2 load balancers: 1 serves, 1 is idle" in shown(fleet)
    assert EXIT_CODE_OF[fleet.state] == EXIT_CODE_OF[row.state] == OK
    assert only_problems(fleet).load_balancers == []


def test_everything_is_healthy_only_while_every_backend_is_ready() -> None:
    fleet = fleet_of(load_balancers=[load_balancer(*GOOD), http_load_balancer(*GOOD, targets="1/3")])
    assert fleet.healthy
    text = shown(fleet)
    assert "everything is healthy" not in text
    assert "everything serves; east/default/web has 2 of 3 backends ready, and of 1 other some" in text
    whole = fleet_of(load_balancers=[http_load_balancer(*GOOD, targets="3/3")])
    assert "✓ everything is healthy" in shown(whole)


def test_worse_problems_precede_a_missing_route() -> None:
    bad = condition("Programmed", "False", "NoAddress", "no address is left")
    fleet = fleet_of(load_balancers=[http_load_balancer(GOOD[0], bad, routes=0, targets="0/0")])
    assert (fleet.state, fleet.load_balancers[0].reason) == (Trouble.NOT_SERVING, "NoAddress")


def test_a_part_that_the_proxies_refuse_is_named_with_why() -> None:
    refused = (RefusedPartStatus("route", "ingress.shop.web.1", "the path is no path"),)
    lb = http_load_balancer(*GOOD)
    fleet = fleet_of(
        load_balancers=[msgspec.structs.replace(lb, status=msgspec.structs.replace(lb.status, refused=refused))]
    )
    assert fleet.state is Trouble.ATTENTION
    assert [
        "route ingress.shop.web.1" in problem and "the path is no path" in problem for problem in fleet.problems
    ] == [True]


def test_the_object_is_found_by_kind_and_name() -> None:
    fleet = fleet_of(load_balancers=[load_balancer(*GOOD), http_load_balancer(*GOOD)])
    for name in ("httplb/edge", "httplb/ingressclass.edge", "httplb/tenant-east/ingressclass.edge", "east/edge"):
        (row,) = filtered(fleet, Filter((name,))).load_balancers
        assert row.kind == "HTTPLoadBalancer", name
    (row,) = filtered(fleet, Filter(("svc/web",))).load_balancers
    assert row.kind == "TCPLoadBalancer"
