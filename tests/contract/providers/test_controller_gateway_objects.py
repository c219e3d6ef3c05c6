"""The objects for another Gateway controller, at an API server with the definitions of Gateway API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead.agent.sources.gateway.routes import method_path
from fairlead.api.gateway import GATEWAYS, GRPC_ROUTES, HTTP_ROUTES, LISTENER_SETS, GRPCMethod
from fairlead.api.kubernetes import CRDS, NAMESPACES
from fairlead.kube.cluster import Cluster
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    Cors,
    Filters,
    FixedAnswer,
    HeaderModifier,
    HeaderValue,
    L7Config,
    L7Listener,
    PathMatch,
    Redirect,
    RequestMatch,
    RetryRule,
    Route,
    Rule,
    ValueMatch,
)
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.controller.gateway import create
from fairlead.providers.controller.provider import ControllerProvider
from fairlead_demo.worlds.apis import EmbeddedApis
from podless.offline import gateway_definitions
from tests.scenario.any_api import until

NAMESPACE = "shop"
HTTP = (L7Listener("http", 80),)
BACKENDS = (Backend("shop/web:80", "shop/web"), Backend("shop/grpc:80", "shop/grpc", protocol="HTTP2"))
TO_WEB = (BackendRef("shop/web:80"),)


def route(name: str, *rules: Rule, host: str = "bad.example.com") -> Route:
    return Route(name, "HTTP", (Attachment("http", (host,)),), rules)


GOOD = route("good", Rule(backends=TO_WEB), host="good.example.com")


def spec(
    *routes: Route, listeners: tuple[L7Listener, ...] = HTTP, answers: tuple[FixedAnswer, ...] = ()
) -> FrontendSpec:
    ports = tuple(Listener(port) for port in sorted({each.port for each in listeners}))
    config = L7Config(listeners, routes, BACKENDS, answers=answers)
    key = LoadBalancerKey("HTTPLoadBalancer", NAMESPACE, "lb")
    return FrontendSpec(key, NAMESPACE, ports, parameters={"controllerClass": "other"}, l7=config)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Cluster]:
    apis = EmbeddedApis(tmp_path, ["hub"])
    await apis.start()
    async with Cluster.from_kubeconfig(apis.kubeconfig("hub"), name="hub") as cluster:
        await cluster.apply(NAMESPACES, {"metadata": {"name": NAMESPACE}}, manager="user")
        for crd in gateway_definitions():
            await cluster.apply(CRDS, crd, manager="user")

        async def served() -> bool:
            return [await cluster.list(kind, NAMESPACE) for kind in (GATEWAYS, LISTENER_SETS, HTTP_ROUTES)] != []

        await until(served)
        yield cluster
    await apis.close()


async def names(cluster: Cluster) -> list[str]:
    return sorted(each.metadata.name for each in await cluster.list(HTTP_ROUTES, NAMESPACE))


async def refused(provider: ControllerProvider, wanted: FrontendSpec) -> list[tuple[str, str]]:
    observed = await provider.observe(wanted.key)
    assert observed is not None
    return [(each.kind, each.name) for each in observed.refused]


@pytest.mark.req("EDGE-07")
@pytest.mark.parametrize(
    "rules",
    [
        (Rule(backends=TO_WEB, request_timeout_ms=120_000, backend_timeout_ms=99_999),),
        (Rule(backends=TO_WEB, retry=RetryRule((500,), 2, 150_000)),),
        tuple(Rule(matches=(RequestMatch(PathMatch("PathPrefix", f"/{at}")),), backends=TO_WEB) for at in range(40)),
        (Rule(matches=tuple(RequestMatch(PathMatch("PathPrefix", f"/{at}")) for at in range(200)), backends=TO_WEB),),
        (Rule(filters=Filters(redirect=Redirect(scheme="https")), backends=TO_WEB),),
    ],
    ids=["2 minutes", "backoff", "40 rules", "200 matches", "redirect with a backend"],
)
async def test_what_gateway_api_can_express_is_accepted(hub: Cluster, rules: tuple[Rule, ...]) -> None:
    provider, wanted = create(hub), spec(route("bad", *rules), GOOD)
    await provider.ensure(wanted)
    assert await refused(provider, wanted) == []
    shown = await hub.list(HTTP_ROUTES, NAMESPACE)
    assert {each.metadata.name.partition(".")[0] for each in shown} == {"bad", "good"}
    paths = {m.path.value for each in shown for rule in each.spec.rules or () for m in rule.matches or () if m.path}
    assert {match.path.value for rule in rules for match in rule.matches} <= paths


@pytest.mark.req("EDGE-07")
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Rule(matches=(RequestMatch(PathMatch("PathPrefix", "//x")),), backends=TO_WEB), "//"),
        (Rule(matches=(RequestMatch(headers=tuple(ValueMatch(f"h{at}", "x") for at in range(17))),), backends=TO_WEB),
         "headers"),
        (Rule(filters=Filters(cors=Cors(("*",), max_age=0)), backends=TO_WEB), "maxAge"),
        (Rule(filters=Filters(request_headers=HeaderModifier(set=tuple(HeaderValue(f"h{n}", "x") for n in range(17)))),
              backends=TO_WEB), "set"),
        (Rule(backends=TO_WEB * 17), "backendRefs"),
        (Rule(backends=TO_WEB, requests_per_second=5), "requests per second"),
        (Rule(backends=TO_WEB, request_timeout_ms=400_000 * 3_600_000), "hours"),
    ],
)  # fmt: skip
async def test_a_route_that_is_refused_is_left_out_alone(hub: Cluster, rule: Rule, reason: str) -> None:
    provider, wanted = create(hub), spec(route("bad", rule), GOOD)
    before = spec(route("bad", Rule(backends=TO_WEB)), GOOD)
    await provider.ensure(before)
    ensured = await provider.ensure(wanted)
    assert await names(hub) == ["good"]
    observed = await provider.observe(wanted.key)
    assert observed is not None
    assert [(each.kind, each.name) for each in observed.refused] == [("route", "bad")]
    assert reason in observed.refused[0].reason
    restarted = create(hub)
    restarted.restore(wanted, ensured.info or {})
    assert await restarted.observe(wanted.key) == observed
    await provider.ensure(before)
    assert (await names(hub), await refused(provider, before)) == (["bad", "good"], [])


@pytest.mark.req("EDGE-07")
async def test_rules_that_are_refused_are_closed_and_the_others_serve(hub: Cluster) -> None:
    paths = [(RequestMatch(PathMatch("PathPrefix", f"/{at}")),) for at in range(5)]
    many = HeaderModifier(set=tuple(HeaderValue(f"h{number}", "x") for number in range(17)))
    bad = {1: Filters(cors=Cors(("*",), max_age=0)), 3: Filters(request_headers=many)}
    rules = [Rule(matches=path, filters=bad.get(at, Filters()), backends=TO_WEB) for at, path in enumerate(paths)]
    provider, wanted = create(hub), spec(route("bad", *rules), GOOD)
    ensured = await provider.ensure(wanted)
    observed = await provider.observe(wanted.key)
    assert observed is not None
    assert [(part.kind, part.name) for part in observed.refused] == [("rule", "bad")] * 2
    assert {at for at in bad for part in observed.refused if f"rules[{at}]" in part.reason} == bad.keys()
    shown = await hub.get(HTTP_ROUTES, NAMESPACE, "bad")
    assert [len(rule.backend_refs or ()) for rule in shown.spec.rules or ()] == [1, 0, 1, 0, 1]
    assert all(rule.matches for rule in shown.spec.rules or ()), "no other rule takes their requests"
    restarted = create(hub)
    restarted.restore(wanted, ensured.info or {})
    assert await restarted.observe(wanted.key) == observed
    await provider.ensure(spec(route("bad", *(Rule(matches=path, backends=TO_WEB) for path in paths)), GOOD))
    assert await refused(provider, wanted) == []


@pytest.mark.req("EDGE-07")
async def test_more_listeners_than_a_gateway_may_have_are_in_listener_sets(hub: Cluster) -> None:
    listeners = tuple(
        L7Listener(f"l{at}", 443, "HTTPS", f"h{at}.example.com", certificates=(f"c{at}",)) for at in range(150)
    )
    of_all = Route("all", "HTTP", tuple(Attachment(each.name, (each.hostname,)) for each in listeners), GOOD.rules)
    provider, wanted = create(hub), spec(of_all, listeners=listeners)
    await provider.ensure(wanted)
    assert await refused(provider, wanted) == []
    (gateway,) = await hub.list(GATEWAYS, NAMESPACE)
    sets = await hub.list(LISTENER_SETS, NAMESPACE)
    assert sorted(len(each.spec.listeners or ()) for each in (gateway, *sets)) == [22, 64, 64]
    there = {(kind.kind, each.metadata.name, listener.name) for kind, holders in
             ((GATEWAYS, [gateway]), (LISTENER_SETS, sets)) for each in holders
             for listener in each.spec.listeners or ()}  # fmt: skip
    shown = await hub.list(HTTP_ROUTES, NAMESPACE)
    named = {(ref.kind, ref.name, ref.section_name) for each in shown for ref in each.spec.parent_refs or ()}
    assert named == there
    served = {(ref.section_name, name) for each in shown for ref in each.spec.parent_refs or ()
              for name in each.spec.hostnames or ()}  # fmt: skip
    assert len(served) == 150 * 150, "each listener takes its own of the hostnames"
    fewer = msgspec.structs.replace(wanted, l7=L7Config(listeners[:2], (of_all,), BACKENDS))
    await provider.ensure(fewer)
    assert await hub.list(LISTENER_SETS, NAMESPACE) == []


@pytest.mark.req("EDGE-07")
async def test_a_gateway_that_is_refused_is_an_error_of_the_load_balancer(hub: Cluster) -> None:
    provider = create(hub)
    wanted = spec(GOOD, listeners=(L7Listener("http", 80, hostname="under_score.example.com"),))
    with pytest.raises(Exception, match="hostname"):
        await provider.ensure(wanted)


@pytest.mark.req("EDGE-07")
@pytest.mark.parametrize(
    "method",
    [
        GRPCMethod(service="shop.Cart", method="Add"),
        GRPCMethod(service="shop.Cart"),
        GRPCMethod(method="Login"),
        GRPCMethod(type="RegularExpression", service="shop.*", method="Get.*"),
        GRPCMethod(type="RegularExpression", service="(?:a|b)"),
        GRPCMethod(type="RegularExpression", method="Get(?:A|B)"),
        None,
    ],
)
async def test_methods_of_grpc_are_as_the_member_wrote_them(hub: Cluster, method: GRPCMethod | None) -> None:
    matches = (RequestMatch(method_path(method)),)
    rule = Rule(matches=matches, backends=(BackendRef("shop/grpc:80"),))
    provider, wanted = create(hub), spec(Route("grpc", "GRPC", (Attachment("http", ("g.example.com",)),), (rule,)))
    await provider.ensure(wanted)
    assert await refused(provider, wanted) == []
    (shown,) = await hub.list(GRPC_ROUTES, NAMESPACE)
    ((match,),) = [rule.matches or [] for rule in shown.spec.rules or ()]
    assert method_path(match.method) == matches[0].path


@pytest.mark.req("EDGE-07")
async def test_an_answer_that_another_controller_cannot_give_is_refused(hub: Cluster) -> None:
    answer = FixedAnswer("good.example.com", "/.well-known/acme-challenge/x", "x.thumb")
    provider, wanted = create(hub), spec(GOOD, answers=(answer,))
    await provider.ensure(wanted)
    assert await refused(provider, wanted) == [("answer", "good.example.com/.well-known/acme-challenge/x")]
