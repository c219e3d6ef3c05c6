"""Whatever a route says: what is published can be stored at the hub, and a status that was written stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.agent.sources.gateway.plan import BackendPolicy, RoutePlan
from fairlead.agent.sources.gateway.routes import plan_route
from fairlead.agent.sources.gateway.status import route_status
from fairlead.api.gateway import AnyRoute, GRPCRoute, HTTPRoute, TCPRoute, TLSRoute, UDPRoute
from fairlead.api.httploadbalancer import LoadBalancerRouteSpec
from fairlead.model.http import BackendTls, Rule
from tests.unit.agent.gateway_builders import gateway_plan, grant, listener, service, view

TYPES: list[type[AnyRoute]] = [HTTPRoute, GRPCRoute, TLSRoute, TCPRoute, UDPRoute]
ODD = st.sampled_from(["", "/", "x", "*.a.com", "a.com", "b.a.com", "1s", "5", "\n", "(", "é" * 200, "y" * 300])
#: The API server refuses other hostnames of a route.
HOSTNAME = st.sampled_from(["a.com", "*.a.com", "b.a.com", "other.org"])
Json = dict[str, Any]


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


def listed(values: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[list[Any] | None]:
    return st.none() | st.lists(values, max_size=most)


NUMBERS = st.sampled_from([0, 1, 80, 301, 418, 500, 99_999])
REFERENCE = {
    "name": st.sampled_from(["web", "none", "secure"]),
    "namespace": st.sampled_from(["infra", "other"]),
    "kind": st.sampled_from(["Service", "Bucket"]),
    "port": st.sampled_from([80, 81]),
}
TYPE = st.sampled_from(["Exact", "PathPrefix", "RegularExpression", "Cookie", "Header", "ReplaceFullPath", "Later"])
PAIRS = listed(some(name=ODD, value=ODD, type=TYPE))
PATH = some(type=TYPE, value=ODD, replaceFullPath=ODD, replacePrefixMatch=ODD)
FILTER = some(
    type=st.sampled_from(
        ["RequestHeaderModifier", "RequestMirror", "RequestRedirect", "URLRewrite", "CORS", "ExtensionRef", "Later"]
    ),
    requestHeaderModifier=some(set=PAIRS, add=PAIRS, remove=listed(ODD)),
    requestMirror=some(backendRef=some(**REFERENCE), percent=NUMBERS, fraction=some(numerator=NUMBERS)),
    requestRedirect=some(scheme=ODD, hostname=ODD, path=PATH, port=NUMBERS, statusCode=NUMBERS),
    urlRewrite=some(hostname=ODD, path=PATH),
    cors=some(allowOrigins=listed(ODD), allowCredentials=st.booleans(), maxAge=NUMBERS),
)
FILTERS = listed(FILTER)
HTTP_MATCH = some(path=PATH, method=ODD, headers=PAIRS, queryParams=PAIRS)
GRPC_MATCH = some(method=some(type=TYPE, service=ODD, method=ODD), headers=PAIRS)


def rules(match: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json] | None]:
    rule = some(
        name=st.sampled_from(["", "n"]),
        matches=listed(match),
        filters=FILTERS,
        backendRefs=listed(some(**REFERENCE, weight=NUMBERS, filters=FILTERS)),
        timeouts=some(request=ODD, backendRequest=ODD),
        retry=some(codes=listed(NUMBERS), attempts=NUMBERS, backoff=ODD),
        sessionPersistence=some(sessionName=ODD, absoluteTimeout=ODD, idleTimeout=ODD, type=TYPE),
    )
    return listed(rule)


def specs(match: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    sections = {"sectionName": st.sampled_from(["http", "b"]), "port": st.just(80)}
    parent = st.fixed_dictionaries({"name": st.just("main")}, optional=sections)
    parents = st.lists(parent, min_size=1, max_size=3, unique_by=str)
    return some(parentRefs=parents, hostnames=listed(HOSTNAME), rules=rules(match))


@st.composite
def routes(draw: st.DrawFn) -> AnyRoute:
    kind = draw(st.sampled_from(TYPES))
    spec = draw(specs(GRPC_MATCH if kind is GRPCRoute else HTTP_MATCH))
    return msgspec.convert({"metadata": {"name": "r", "namespace": "infra", "generation": 1}, "spec": spec}, kind)


def planned(route: AnyRoute) -> RoutePlan:
    return plan_route(
        view(
            route,
            gateway_plan(listener(), listener("b", hostname="*.a.com", protocol="TLS", passthrough=True)),
            services=(service(), service("secure"), service(namespace="other")),
            grants=(grant(),),
            policies={("infra", "secure", ""): BackendPolicy(BackendTls(server_name="secure", system_ca=True))},
        )
    )


def named(rule: Rule) -> Iterator[str]:
    for mirror in rule.filters.mirrors:
        yield mirror.backend
    for backend in rule.backends:
        yield backend.backend
        for mirror in backend.filters.mirrors:
            yield mirror.backend


@settings(max_examples=60)
@given(routes())
@pytest.mark.req("G-18", "G-19")
def test_any_route(route: AnyRoute) -> None:
    plan = planned(route)
    assert len(plan.parents) == len(route.spec.parent_refs or ())
    for parent in plan.parents:
        assert [each.type for each in parent.judgements][:2] == ["Accepted", "ResolvedRefs"]
    for spec in plan.specs.values():
        assert msgspec.json.decode(msgspec.json.encode(spec), type=LoadBalancerRouteSpec) == spec
        backends = {backend.name for backend in spec.backends}
        assert {name for rule in spec.rules for name in named(rule)} - {""} == backends
    status = route_status(plan, route, now="2026-01-01T00:00:00Z")
    written = msgspec.structs.replace(route, status=status)
    assert route_status(plan, written, now="2027-01-01T00:00:00Z") == status
