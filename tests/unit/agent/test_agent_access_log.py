"""The access log and the traces in annotations of a Service, Gateway, IngressClass, Ingress or route."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import find
from fairlead.agent.sources.gateway.routes import plan_route
from fairlead.agent.sources.http import access_log_of, access_log_problem, tracing_of, tracing_problem
from fairlead.agent.sources.ingress.plan import ClassView, IngressView, plan_class, translate_ingress
from fairlead.api.kubernetes import IngressClass, IngressObject, Service, ServicePort, ServiceSpec
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import ANNOTATION_ACCESS_LOG, ANNOTATION_TRACING
from fairlead.publish.objects import Refused, ServiceOptions, read_options
from tests.unit.agent.gateway_builders import LOAD_BALANCER, http_route, ref, service
from tests.unit.agent.gateway_builders import view as route_view
from tests.unit.agent.gateway_objects import gateway, http, view

pytestmark = pytest.mark.req("F-14")

Obj = TypeVar("Obj", bound=KubeObject)
SLOW = '{"slowerThan": "1s"}'
WRONG = '{"sampling": 200}'
HALF = '{"samplingRate": {"numerator": 50}}'


def logged(obj: Obj, text: str, annotation: str = ANNOTATION_ACCESS_LOG) -> Obj:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations={annotation: text}))


@pytest.mark.parametrize(("text", "valid"), [("", True), ("off", True), ("json", True), (SLOW, True), (WRONG, False)])
def test_an_invalid_text_has_no_effect_and_is_named(text: str, valid: bool) -> None:
    ingress = logged(IngressObject(metadata=ObjectMeta(name="web", namespace="shop")), text)
    assert access_log_of(ingress) == (text if valid else "")
    problem = access_log_problem(ingress)
    assert bool(problem) is not valid
    assert valid or (ANNOTATION_ACCESS_LOG in problem and "sampling" in problem)


def test_a_gateway_and_its_routes_have_their_own() -> None:
    plan = plan_gateway(view(logged(gateway(http("web")), SLOW)))
    assert plan.spec is not None
    assert plan.spec.access_log == SLOW
    route = plan_route(route_view(logged(http_route({"backendRefs": [ref()]}), "off"), services=(service(),)))
    assert route.specs[LOAD_BALANCER].access_log == "off"
    wrong = plan_gateway(view(logged(gateway(http("web")), WRONG)))
    assert wrong.spec is not None
    programmed = find(wrong.judgements, "Programmed")
    assert wrong.spec.access_log == ""
    assert programmed is not None
    assert "sampling" in programmed.message


@pytest.mark.req("F-15")
def test_a_route_chooses_the_share_that_is_traced() -> None:
    route = logged(http_route({"backendRefs": [ref()]}), "off", ANNOTATION_TRACING)
    assert plan_route(route_view(route, services=(service(),))).specs[LOAD_BALANCER].tracing == "off"
    wrong = plan_route(route_view(logged(route, WRONG, ANNOTATION_TRACING), services=(service(),)))
    assert wrong.specs[LOAD_BALANCER].tracing == ""
    accepted = find(wrong.parents[0].judgements, "Accepted")
    assert accepted is not None
    assert (accepted.status, ANNOTATION_TRACING in accepted.message) == ("True", True)
    ingress = logged(IngressObject(metadata=ObjectMeta(name="web", namespace="shop")), WRONG, ANNOTATION_TRACING)
    assert tracing_of(ingress) == ""
    assert ANNOTATION_TRACING in tracing_problem(ingress)


@pytest.mark.req("F-15")
@pytest.mark.parametrize(
    ("text", "untraced_by", "named"), [(HALF, "plain", True), (HALF, "", False), ("off", "plain", False)]
)
def test_a_share_is_reported_where_the_class_traces_nothing(text: str, untraced_by: str, named: bool) -> None:
    parent = plan_gateway(msgspec.structs.replace(view(gateway(http("web"))), untraced_by=untraced_by))
    route = logged(http_route({"backendRefs": [ref()]}), text, ANNOTATION_TRACING)
    planned = plan_route(route_view(route, parent, services=(service(),)))
    accepted = find(planned.parents[0].judgements, "Accepted")
    assert accepted is not None
    ingress = logged(IngressObject(metadata=ObjectMeta(name="web", namespace="shop")), text, ANNOTATION_TRACING)
    problems = translate_ingress(IngressView(ingress, "lb", untraced_by=untraced_by)).problems
    assert accepted.status == "True"
    for said in (accepted.message, " ".join(problems)):
        assert (f"{ANNOTATION_TRACING} has no effect" in said and "plain" in said) is named
    assert planned.specs[LOAD_BALANCER].tracing == text, "counts as soon as the class traces"


def test_a_class_of_ingresses_has_its_own() -> None:
    plan = plan_class(ClassView(logged(IngressClass(metadata=ObjectMeta(name="fairlead")), SLOW), (), {}))
    assert plan.spec.access_log == SLOW


def test_a_service_has_its_own_and_an_invalid_one_is_refused() -> None:
    of = Service(metadata=ObjectMeta(name="dns", namespace="shop"), spec=ServiceSpec(ports=[ServicePort(53)]))
    options = read_options(logged(of, SLOW))
    assert isinstance(options, ServiceOptions)
    assert options.access_log == SLOW
    refused = read_options(logged(of, WRONG))
    assert isinstance(refused, Refused)
    assert ANNOTATION_ACCESS_LOG in refused.sentence
