"""A part of a status is asked for by name, namespace or labels, and its exit code is of that part."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from fairlead.api.tcploadbalancer import Origin
from fairlead.cli.options import Output
from fairlead.cli.output import encoded
from fairlead.cli.status import Filter, filtered, names_of, only_problems, print_status
from fairlead.errors import BadConfiguration, NotFound
from fairlead.status.fleet import Problem, Trouble
from tests.fleet_objects import GOOD, fleet_of, http_load_balancer, load_balancer, many


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        (Filter(names=("svc/s7",)), 1),
        (Filter(names=("s7", "svc/shop/s8", "svc/east/shop/s9")), 3),
        (Filter(names=("tcplb/shop.s7",)), 1),
        (Filter(namespace="shop"), 30),
        (Filter(namespace="tenant-east"), 30),
        (Filter(selector="app=web"), 15),
    ],
)
def test_filters_show_what_is_asked_for_and_the_exit_code_is_of_that(asked: Filter, count: int) -> None:
    fleet = filtered(many(30, 1), asked)
    assert len(fleet.load_balancers) == count
    assert fleet.healthy is all(row.state is Trouble.NONE for row in fleet.load_balancers)


@pytest.mark.parametrize(
    "asked",
    [Filter(names=("svc/bad",)), Filter(names=("east/cafe/bad",)), Filter(names=("bad",)), Filter(namespace="cafe")],
)
def test_a_service_that_its_agent_refuses_is_found_though_it_has_no_load_balancer(asked: Filter) -> None:
    fleet = many(3, 0)
    refused = Problem(Trouble.NOT_SERVING, "Service", "cafe", "bad", "Refused", "it is refused", "east")
    fleet = filtered(msgspec.structs.replace(fleet, troubles=[*fleet.troubles, refused]), asked)
    assert (fleet.troubles, fleet.load_balancers, fleet.state) == ([refused], [], Trouble.NOT_SERVING)


def test_unknown_names_and_invalid_selectors_are_reported() -> None:
    with pytest.raises(NotFound, match="No load balancer is named 'svc/none'"):
        filtered(many(3, 0), Filter(names=("svc/none",)))
    with pytest.raises(BadConfiguration, match=r"--selector: .*app=web"):
        filtered(many(3, 0), Filter(selector="a in"))


def test_a_service_and_a_gateway_of_one_name_have_their_kinds_in_their_titles() -> None:
    service, gateway = load_balancer(*GOOD), http_load_balancer(*GOOD)
    annotations = {"fairlead.dev/origin": "east/default/web"}
    metadata = msgspec.structs.replace(gateway.metadata, name="gateway.default.web", annotations=annotations)
    spec = msgspec.structs.replace(gateway.spec, origin=Origin("Gateway", "default", "web"))
    fleet = fleet_of(load_balancers=[service, msgspec.structs.replace(gateway, metadata=metadata, spec=spec)])
    titles = ["svc/east/default/web", "gateway/east/default/web"]
    assert [row.title for row in fleet.load_balancers] == titles
    for title in titles:
        assert [row.title for row in filtered(fleet, Filter(names=(title,))).load_balancers] == [title]
    assert len(filtered(fleet, Filter(names=("east/default/web",))).load_balancers) == 2
    assert fleet_of(load_balancers=[service]).load_balancers[0].title == "east/default/web"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Filter(namespace="other"), "is in namespace 'other'"),
        (Filter(selector="a=b"), "has the labels 'a=b' at the hub"),
        (Filter(namespace="other", selector="a=b"), "is in namespace 'other' and has the labels 'a=b' at the hub"),
    ],
)
def test_a_namespace_and_labels_that_nothing_has_are_refused_as_names_are(asked: Filter, said: str) -> None:
    for fleet in (many(3, 0), many(0, 0)):
        with pytest.raises(NotFound) as refused:
            filtered(fleet, asked)
        assert refused.value.sentence == f"No load balancer {said}; to list them: fairlead status -o name"


def test_a_fleet_without_problems_is_not_called_empty() -> None:
    out = Console(file=io.StringIO(), width=200)
    print_status(only_problems(many(3, 0)), out, every=True)
    assert isinstance(out.file, io.StringIO)
    assert "No members yet" not in out.file.getvalue()
    assert "everything is healthy" in out.file.getvalue()


def test_only_problems_and_names_and_yaml() -> None:
    fleet = only_problems(many(30, 2))
    assert list(names_of(fleet)) == ["tcplb/tenant-east/shop.s0", "tcplb/tenant-east/shop.s1"]
    assert "loadBalancers:\n- kind: TCPLoadBalancer\n" in encoded(fleet, Output.YAML)
