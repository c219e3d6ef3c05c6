"""Problems name their object, reason and next step: classes, groups, members, refused Services."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.term import refusals_text
from fairlead.api.backendgroup import BackendGroup, BackendGroupSpec, BackendGroupStatus
from fairlead.api.httploadbalancer import FailingRoute, HTTPLoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass, LoadBalancerClassSpec, LoadBalancerClassStatus
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_REFUSED
from fairlead.api.tenant import TenantState, TenantStatus
from fairlead.cli.run import EXIT_CODE_OF
from fairlead.status.fleet import Trouble
from tests.fleet_objects import EAST, GOOD, condition, fleet_of, http_load_balancer, lease, load_balancer


@pytest.mark.req("X-18")
def test_a_broken_class_is_named() -> None:
    accepted = condition("Accepted", "False", "NoSuchProvider", "this hub does not run 'x'")
    broken = LoadBalancerClass(
        metadata=ObjectMeta(name="edge"),
        spec=LoadBalancerClassSpec(provider="x"),
        status=LoadBalancerClassStatus(conditions=[accepted]),
    )
    gone = LoadBalancerClass(
        metadata=ObjectMeta(name="old", deletion_timestamp="2030-01-01T00:00:00Z"),
        status=LoadBalancerClassStatus(conditions=[condition("InUse", "True", "InUse", "it was deleted: used by 3")]),
    )
    paused = LoadBalancerClass(metadata=ObjectMeta(name="held", annotations={"fairlead.dev/paused": "true"}))
    fleet = fleet_of(classes=[broken, gone, paused])
    assert fleet.problems == [
        "class edge: this hub does not run 'x'",
        "class held: the class is paused; resume it with: fairlead resume class/held",
        "class old: it was deleted: used by 3",
    ]
    assert EXIT_CODE_OF[fleet.state] == 4


@pytest.mark.parametrize("reason", ["MemberLost", "NodesOutOfDate"])
def test_the_pods_of_a_member_that_is_lost_or_leaves_are_not_asked_for(reason: str) -> None:
    why = "Tenant east is being removed; its backends are drained"
    lb = load_balancer(*GOOD, condition("Serving", "False", "NoTargets", "no target"))
    stale = condition("Stale", "True", reason, why)
    lb = msgspec.structs.replace(
        lb, status=msgspec.structs.replace(lb.status, targets="0/0", conditions=[*(lb.status.conditions or ()), stale])
    )
    said, other = fleet_of(load_balancers=[lb]).problems
    assert ("kubectl" in said) is (reason != "MemberLost")
    assert said.startswith("load balancer east/default/web: no target")
    assert other == f"load balancer east/default/web: {why}"


@pytest.mark.req("X-18")
def test_a_broken_group_and_a_tenant_that_is_not_ready_are_named() -> None:
    group = BackendGroup(
        metadata=ObjectMeta(namespace="shop", name="web"),
        spec=BackendGroupSpec(load_balancers=["shared"]),
        status=BackendGroupStatus(conditions=[condition("Programmed", "False", "NoSuchLoadBalancer", "no shared")]),
    )
    tenant = msgspec.structs.replace(
        EAST, status=TenantStatus(conditions=[condition("Ready", "False", "Skew", "skew")])
    )
    fleet = fleet_of(groups=[group], tenants=[tenant], leases={"tenant-east": lease(1.0)})
    assert fleet.problems == ["member east: skew", "group shop/web: no shared"]
    assert fleet.state is Trouble.ATTENTION


@pytest.mark.parametrize("state", ["Pending", "Stale", "Lost"])
def test_an_agent_that_reports_is_not_called_silent_by_what_the_hub_wrote_before(state: TenantState) -> None:
    ready = condition("Ready", "False", "MemberLost", "its agent last reported at noon; look at the agent's log")
    east = msgspec.structs.replace(EAST, status=TenantStatus(state=state, conditions=[ready]))
    fleet = fleet_of(tenants=[east], leases={"tenant-east": lease(1.0)})
    assert (fleet.members[0].state, fleet.problems) == ("Engaged", [])
    east = msgspec.structs.replace(east, status=msgspec.structs.replace(east.status, state="Engaged"))
    assert len(fleet_of(tenants=[east], leases={"tenant-east": lease(1.0)}).problems) == 1


@pytest.mark.req("X-18")
def test_services_that_an_agent_refused_are_named_with_its_words() -> None:
    refusals = {("default", f"s{number:02}"): "spec.ports: no ports" for number in range(20)}
    annotations = {ANNOTATION_REFUSED: refusals_text(refusals)}
    heard = lease(1.0)
    heard = msgspec.structs.replace(heard, metadata=msgspec.structs.replace(heard.metadata, annotations=annotations))
    fleet = fleet_of(tenants=[EAST], leases={"tenant-east": heard})
    assert fleet.problems[0] == "Service east/default/s00: rejected by the agent: spec.ports: no ports"
    assert fleet.problems[-1] == "member east: 4 more objects are refused; the Warnings on them say why"
    assert (len(fleet.problems), fleet.state) == (17, Trouble.NOT_SERVING)


@pytest.mark.req("X-31")
@pytest.mark.parametrize("serving", ["True", "Unknown"])
def test_each_failing_route_is_a_problem_of_its_own(serving: str) -> None:
    some = condition("Serving", serving, "SomeBackendsUnhealthy", "requests to these backends fail: shop/a:80")
    refs = condition("ResolvedRefs", "False", "BackendNotFound", "no ready endpoint for shop/a:80")
    lb = http_load_balancer(*GOOD, refs, some)
    failing = tuple(
        FailingRoute(f"ingress.shop.{name}", "Ingress", "shop", name, (f"{name}.example.com",), ("shop/a:80",))
        for name in ("blog", "web")
    )
    fleet = fleet_of(load_balancers=[with_status(lb, failing_routes=failing)])
    assert (fleet.state, EXIT_CODE_OF[fleet.state]) == (Trouble.ATTENTION, 4)
    assert fleet.load_balancers[0].state is Trouble.ATTENTION
    assert [each.reason for each in fleet.troubles] == ["NoHealthyTargets"] * 2
    blog, web = fleet.problems
    assert blog.startswith("Ingress east/shop/blog on load balancer ")
    assert "blog.example.com" in blog
    assert "shop/a:80" in web
    of_older_hub = fleet_of(load_balancers=[lb])
    assert (of_older_hub.state, len(of_older_hub.problems)) == (Trouble.ATTENTION, 1)


def with_status(lb: HTTPLoadBalancer, **fields: Any) -> HTTPLoadBalancer:
    return msgspec.structs.replace(lb, status=msgspec.structs.replace(lb.status, **fields))


@pytest.mark.req("X-41", "X-42")
def test_other_objects_that_an_agent_cannot_serve_are_named_with_their_kind() -> None:
    refusals: dict[tuple[str, ...], str] = {
        ("Ingress", "shop", "web"): "Secret tls: it is not there",
        ("default", "web"): "no ports",
    }
    heard = lease(1.0)
    annotations = {ANNOTATION_REFUSED: refusals_text(refusals)}
    heard = msgspec.structs.replace(heard, metadata=msgspec.structs.replace(heard.metadata, annotations=annotations))
    fleet = fleet_of(tenants=[EAST], leases={"tenant-east": heard})
    assert [(each.kind, each.member, each.namespace, each.name, each.trouble) for each in fleet.troubles] == [
        ("Service", "east", "default", "web", Trouble.NOT_SERVING),
        ("Ingress", "east", "shop", "web", Trouble.ATTENTION),
    ]
    assert fleet.problems[1] == "Ingress east/shop/web: Secret tls: it is not there"
