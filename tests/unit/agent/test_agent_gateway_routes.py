"""A whole route: what is published by load balancer, what is reported by parent, where it is attached."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.agent.sources.gateway.plan import AttachedListener, BackendPolicy, ParentJudgement, ParentKey, RoutePlan
from fairlead.agent.sources.gateway.routes import parents_named, plan_route, services_named
from fairlead.api.gateway import ParentReference, TCPRoute, TLSRoute
from fairlead.model.http import Attachment, BackendTls
from tests.unit.agent.gateway_builders import (
    GATEWAY,
    LOAD_BALANCER,
    SET,
    gateway_plan,
    grant,
    http_route,
    listener,
    ref,
    route,
    service,
    view,
)

OTHER = ParentKey("Gateway", "infra", "other")
TO_SET = {"name": "more", "namespace": "infra", "kind": "ListenerSet"}
RULE: dict[str, Any] = {"backendRefs": [ref()]}


def reasons(parent: ParentJudgement) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in parent.judgements}


def only(plan: RoutePlan) -> dict[str, tuple[str, str]]:
    (parent,) = plan.parents
    return reasons(parent)


@pytest.mark.req("G-18", "G-19", "G-45")
def test_a_route_of_a_gateway() -> None:
    plan = plan_route(view(http_route(RULE, hostnames=["a.com"]), services=(service(),)))
    spec = plan.specs[LOAD_BALANCER]
    assert (spec.kind, spec.created) == ("HTTP", "2026-01-01T00:00:00Z")
    assert (spec.origin.kind, spec.origin.namespace, spec.origin.name) == ("HTTPRoute", "infra", "r")
    assert spec.attachments == (Attachment("http", ("a.com",)),)
    assert [backend.name for backend in spec.backends] == ["infra/web:80"]
    assert plan.services == {("infra", "web")}
    assert plan.attached == {AttachedListener(LOAD_BALANCER, "http")}
    (parent,) = plan.parents
    assert parent.parent_ref == ParentReference("gateway.networking.k8s.io", "Gateway", "infra", "main")
    assert parent.load_balancer == LOAD_BALANCER
    assert reasons(parent) == {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("True", "ResolvedRefs")}


@pytest.mark.req("G-18")
def test_parents_of_others_get_no_entry() -> None:
    parents = [{"name": "theirs"}, {"name": "web", "kind": "Service", "group": ""}]
    assert plan_route(view(http_route(RULE, parents=parents))) == RoutePlan({}, (), frozenset(), frozenset())


@pytest.mark.req("G-19", "G-53")
def test_both_conditions_are_judged_apart() -> None:
    plan = plan_route(view(http_route({"backendRefs": [ref("none")]})))
    assert only(plan) == {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("False", "BackendNotFound")}
    assert plan.specs[LOAD_BALANCER].rules[0].backends[0].backend == ""
    assert plan.services == frozenset()
    elsewhere = [{"name": "main", "namespace": "infra", "sectionName": "none"}]
    plan = plan_route(view(http_route(RULE, parents=elsewhere), services=(service(),)))
    assert only(plan) == {"Accepted": ("False", "NoMatchingParent"), "ResolvedRefs": ("True", "ResolvedRefs")}
    assert (plan.specs, plan.attached, plan.services) == ({}, frozenset(), frozenset())


@pytest.mark.req("G-52")
def test_a_route_of_two_gateways_is_published_for_each() -> None:
    parents = [{"name": "main"}, {"name": "other"}, {"name": "other", "sectionName": "b"}]
    plans = (
        gateway_plan(listener()),
        gateway_plan(listener("a", parent=OTHER), listener("b", parent=OTHER), gateway=OTHER),
    )
    plan = plan_route(view(http_route(RULE, parents=parents), *plans, services=(service(),)))
    assert {name: [each.listener for each in spec.attachments] for name, spec in plan.specs.items()} == {
        LOAD_BALANCER: ["http"],
        "gateway.infra.other": ["other/a", "other/b"],
    }
    assert [parent.parent_ref.section_name for parent in plan.parents] == [None, None, "b"]


@pytest.mark.req("G-104", "G-106")
def test_a_listener_set_shares_the_load_balancer_of_its_gateway() -> None:
    of_gateway = gateway_plan(listener("a"), listener("b", parent=SET, port=81))
    plan = plan_route(view(http_route(RULE, parents=[TO_SET]), of_gateway, services=(service(),)))
    assert [each.listener for each in plan.specs[LOAD_BALANCER].attachments] == ["more/b"]
    assert [parent.parent_ref.kind for parent in plan.parents] == ["ListenerSet"]
    both = http_route(RULE, parents=[TO_SET, {"name": "main"}])
    plan = plan_route(view(both, of_gateway, services=(service(),)))
    assert sorted(each.listener for each in plan.specs[LOAD_BALANCER].attachments) == ["a", "more/b"]


@pytest.mark.req("G-23")
def test_a_listener_that_is_not_served_counts_and_is_not_published() -> None:
    plans = gateway_plan(listener("a", served=False), listener("b"))
    plan = plan_route(view(http_route(RULE), plans, services=(service(),)))
    assert [each.listener for each in plan.specs[LOAD_BALANCER].attachments] == ["b"]
    assert plan.attached == {AttachedListener(LOAD_BALANCER, "a"), AttachedListener(LOAD_BALANCER, "b")}
    plan = plan_route(view(http_route(RULE), gateway_plan(listener(served=False)), services=(service(),)))
    assert (plan.specs, len(plan.attached)) == ({}, 1)


@pytest.mark.req("G-20")
def test_rules_that_cannot_be_programmed() -> None:
    bad = {"name": "bad", "filters": [{"type": "ExtensionRef"}], **RULE}
    plan = plan_route(view(http_route(RULE, bad), services=(service(),)))
    assert only(plan)["Accepted"] == ("True", "Accepted")
    assert only(plan)["PartiallyInvalid"] == ("True", "UnsupportedValue")
    assert plan.parents[0].judgements[2].message == (
        "Dropped Rule(s) bad, which answer 500 now: rule bad: the filter ExtensionRef is not supported"
    )
    assert len(plan.attached) == 1
    plan = plan_route(view(http_route(bad, {**bad, "name": "worse"}), services=(service(),)))
    assert only(plan) == {"Accepted": ("False", "UnsupportedValue"), "ResolvedRefs": ("True", "ResolvedRefs")}
    assert plan.attached == frozenset()
    # Its requests are answered 500 and do not reach the rules of other routes.
    assert [rule.backends for rule in plan.specs[LOAD_BALANCER].rules] == [(), ()]
    assert plan.services == frozenset()


@pytest.mark.req("G-84", "G-86")
def test_the_client_certificate_of_a_gateway_is_shown_to_backends_with_tls_only() -> None:
    policies = {("infra", "web", ""): BackendPolicy(BackendTls(server_name="web", system_ca=True))}
    rule = {"backendRefs": [ref(), ref("plain")]}
    plans = gateway_plan(listener(), certificate="tls.infra.client")
    plan = plan_route(view(http_route(rule), plans, services=(service(), service("plain")), policies=policies))
    certificates = {each.name: each.tls and each.tls.client_certificate for each in plan.specs[LOAD_BALANCER].backends}
    assert certificates == {"infra/plain:80": None, "infra/web:80/tls": "tls.infra.client"}


@pytest.mark.req("G-92", "G-98")
def test_a_tls_route_follows_the_mode_of_its_listeners() -> None:
    policies = {("infra", "web", ""): BackendPolicy(BackendTls(server_name="web", system_ca=True))}
    through, ended = (listener(mode, protocol="TLS", passthrough=mode == "through") for mode in ("through", "ended"))
    tls = route(TLSRoute, hostnames=["a.com"], rules=[RULE])

    def planned(*listeners: Any) -> RoutePlan:
        return plan_route(view(tls, gateway_plan(*listeners), services=(service(),), policies=policies))

    assert [each.name for each in planned(through).specs[LOAD_BALANCER].backends] == ["infra/web:80/tcp"]
    assert [each.name for each in planned(ended).specs[LOAD_BALANCER].backends] == ["infra/web:80/tcp/tls"]
    assert only(planned(through, ended))["ResolvedRefs"] == ("False", "UnsupportedProtocol")


@pytest.mark.req("G-99", "G-100")
def test_a_tcp_route() -> None:
    tcp = route(TCPRoute, rules=[RULE])
    spec = plan_route(view(tcp, gateway_plan(listener(protocol="TCP")), services=(service(),))).specs[LOAD_BALANCER]
    assert (spec.kind, spec.attachments) == ("TCP", (Attachment("http"),))


def test_what_a_route_names() -> None:
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": ref("mirror")}}
    other = {"type": "RequestMirror", "requestMirror": {"backendRef": ref("inner", namespace="other")}}
    backends = [ref(filters=[other]), ref("bucket", kind="Bucket", group="example.com"), ref()]
    parents = [{"name": "main"}, TO_SET, {"name": "main", "sectionName": "x"}, {"name": "s", "kind": "Service"}]
    named = http_route({"filters": [mirror], "backendRefs": backends}, {"backendRefs": None}, parents=parents)
    assert services_named(named) == [("infra", "mirror"), ("infra", "web"), ("other", "inner")]
    assert parents_named(named) == [GATEWAY, SET]
    assert services_named(route(TCPRoute, rules=[RULE])) == [("infra", "web")]
    assert services_named(http_route()) == []


@pytest.mark.req("G-57")
def test_a_grant_opens_another_namespace() -> None:
    of_other = http_route({"backendRefs": [ref(namespace="other")]})
    services = (service(namespace="other"),)
    assert only(plan_route(view(of_other, services=services)))["ResolvedRefs"] == ("False", "RefNotPermitted")
    plan = plan_route(view(of_other, services=services, grants=(grant(),)))
    assert plan.services == {("other", "web")}
