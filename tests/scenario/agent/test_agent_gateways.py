"""Gateways and routes of a member: what is published for them at the hub, and what users read on them."""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from typing import Any

import msgspec
import pytest
from agent_gateway_world import (
    NAME,
    USER,
    answer,
    backends,
    condition,
    load_balancer,
    programmed,
    quiet,
    routes,
    served,
)
from agent_l7_objects import HTTP, gateway, gateway_class
from agent_l7_objects import http_route as route
from agent_world import HUB_NAMESPACE, World, until, writes

from fairlead.agent.engine import CountPace
from fairlead.agent.identity import Key, route_name
from fairlead.agent.sources import shared
from fairlead.agent.sources.gateway.reports import GatewayReports
from fairlead.api.gateway import BACKEND_TLS_POLICIES, GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import CRDS, ENDPOINT_SLICES, LEASES, SECRETS, SERVICES
from fairlead.api.names import AGENT_LEASE, ANNOTATION_REFUSED, GATEWAY_CONTROLLER
from fairlead_demo.worlds.certificates import self_signed
from tests.argocd import built_in


@pytest.mark.req("K-36", "K-41", "K-43")
async def test_a_gateway_becomes_listeners_and_its_route_a_route(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world)
    await world.start()
    (shown,) = await until(lambda: routes(world), what="a route")
    assert shown.spec.load_balancer == NAME
    assert [rule.backends[0].backend for rule in shown.spec.rules] == ["shop/web:80"]
    at_hub = await load_balancer(world)
    assert [(each.port, each.protocol) for each in at_hub.spec.listeners] == [(80, "HTTP")]
    assert await backends(world) == ["shop.web"]
    assert await world.load_balancers() == {}


@pytest.mark.req("F-20")
async def test_a_route_with_invalid_tokens_is_closed_unless_it_asked_before(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world)
    await world.start()
    await until(lambda: routes(world), what="a route")

    async def annotate(text: str) -> None:
        patch = {"metadata": {"annotations": {"fairlead.dev/jwt": text}}}
        await world.member.merge_patch(HTTP_ROUTES, "shop", "shop", patch, manager=USER)

    async def is_closed() -> bool:
        return not any(rule.backends for shown in await routes(world) for rule in shown.spec.rules)

    async def asks() -> bool:
        return all(rule.jwt and rule.backends for shown in await routes(world) for rule in shown.spec.rules)

    async def is_refused() -> bool:
        parents = (await world.member.get(HTTP_ROUTES, "shop", "shop")).status.parents
        return any(each.reason == "UnsupportedValue" for entry in parents for each in entry.conditions)

    await annotate("")
    await until(is_closed, what="rules that answer 500")
    keys = {"inline": json.dumps({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]})}
    await annotate(json.dumps({"providers": [{"issuer": "https://login.example.com", "localJWKS": keys}]}))
    await until(asks, what="rules that ask for tokens")
    await annotate("{}")
    await until(is_refused, what="the condition Accepted")
    assert await asks(), "the last version that asked"


@pytest.mark.req("F-21")
async def test_routes_follow_the_processor_of_their_gateway(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world)
    await world.start()
    await until(lambda: routes(world), what="a route")

    async def annotate(text: str | None) -> None:
        patch = {"metadata": {"annotations": {"fairlead.dev/external-processor": text}}}
        await world.member.merge_patch(GATEWAYS, "shop", "web", patch, manager=USER)

    async def inspected_by(backend: str | None) -> bool:
        backends_named = {
            rule.processor.backend if rule.processor else None
            for shown in await routes(world)
            for rule in shown.spec.rules
        }
        return backends_named == {backend}

    await annotate('{"service": "waf", "port": 80}')
    await until(lambda: inspected_by(""), what="rules that answer 500: there is no Service waf")
    await world.service("waf", kind="ClusterIP")
    await world.slice("10.1.0.9", name="waf-1", service="waf")
    await until(lambda: inspected_by("shop/waf:80/http2"), what="rules with a processor")
    await until(lambda: _are(world, ["shop.waf", "shop.web"]), what="endpoints of the processor")
    await annotate("[]")

    async def is_refused() -> bool:
        return condition((await world.member.get(GATEWAYS, "shop", "web")).status, "Accepted")[0] == "False"

    await until(is_refused, what="the condition of the Gateway")
    await world.slice("10.1.0.10", name="waf-1", service="waf")

    async def follow() -> bool:
        shown = await world.hub.list(ENDPOINT_SLICES, HUB_NAMESPACE, label_selector="fairlead.dev/backend=shop.waf")
        return [each.addresses for of_waf in shown for each in of_waf.endpoints or ()] == [["10.1.0.10"]]

    await until(follow, what="endpoints of the last valid version")
    assert await inspected_by("shop/waf:80/http2")
    await annotate(None)
    await until(lambda: inspected_by(None), what="rules without a processor")
    await until(lambda: _are(world, ["shop.web"]), what="no endpoints of the processor")


async def _are(world: World, names: list[str]) -> bool:
    return await backends(world) == names


@pytest.mark.req("K-46", "G-16", "G-17", "G-22")
async def test_the_statuses_come_back_once_the_hub_has_answered(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world)
    await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)
    shown = await programmed(world, 1)
    assert [each.value for each in shown.status.addresses] == ["192.0.2.9"]
    assert condition(shown.status, "Accepted") == ("True", "Accepted", shown.metadata.generation)
    assert "192.0.2.9" in await world.event("Programmed")
    of_class = await world.member.get(GATEWAY_CLASSES, "", "fairlead")
    assert condition(of_class.status, "Accepted") == ("True", "Accepted", of_class.metadata.generation)
    features = [each.name for each in of_class.status.supported_features]
    assert features == sorted(features)
    assert "HTTPRoute" in features


@pytest.mark.req("G-18", "G-19")
async def test_a_route_status_keeps_the_entries_of_others(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world, to="missing")
    # The API server requires a message, also an empty one.
    accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
    accepted |= {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 0}
    entry = {"parentRef": {"name": "foreign"}, "controllerName": "example.com/other", "conditions": [accepted]}
    patch = {"status": {"parents": [entry]}}
    await world.member.merge_patch(HTTP_ROUTES, "shop", "shop", patch, subresource="status", manager="other")
    (theirs,) = (await raw(world, HTTP_ROUTES, "shop"))["status"]["parents"]
    await world.start()

    async def shown() -> Any:
        parents = (await world.member.get(HTTP_ROUTES, "shop", "shop")).status.parents
        return parents if len(parents or ()) == 2 else None

    foreign, ours = await until(shown)
    assert (await raw(world, HTTP_ROUTES, "shop"))["status"]["parents"][0] == theirs
    assert (foreign.controller_name, ours.controller_name) == ("example.com/other", GATEWAY_CONTROLLER)
    assert ours.parent_ref.kind == "Gateway"
    assert condition(ours, "Accepted")[:2] == ("True", "Accepted")
    assert condition(ours, "ResolvedRefs")[:2] == ("False", "BackendNotFound")
    assert "missing" in await world.event("BackendNotFound", name="shop")
    # Of a Gateway that is no longer ours our entry goes, and the other one stays.
    await gateway_class(world, "other", "example.com/other")
    await gateway(world, of_class="other")

    async def gone() -> bool:
        parents = (await world.member.get(HTTP_ROUTES, "shop", "shop")).status.parents
        return [each.controller_name for each in parents or ()] == ["example.com/other"] and not await routes(world)

    await until(gone)


async def raw(world: World, resource: Any, name: str) -> dict[str, Any]:
    return msgspec.json.decode(await world.member.raw("GET", resource.path("shop", name)))


@pytest.mark.req("F-25")
async def test_argocd_sees_health_and_no_parent_of_before(world: World) -> None:
    """A Gateway without a route becomes Healthy, and so does a route that had another parent before the agent ran."""
    await served(world)
    await gateway(world)
    agent = await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)
    shown = await programmed(world, 0)
    assert built_in(await raw(world, GATEWAYS, "web")) == "Healthy"
    assert {each.observed_generation for each in shown.status.conditions} == {shown.metadata.generation}
    await world.stop(agent)
    await route(world)
    refused = {
        "type": "Accepted",
        "status": "False",
        "reason": "NoMatchingParent",
        "message": "gone",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    former = {"parentRef": {"name": "former"}, "controllerName": GATEWAY_CONTROLLER, "conditions": [refused]}
    await route(world, "alone", to="web")
    await world.member.merge_patch(HTTP_ROUTES, "shop", "alone", {"spec": {"parentRefs": [{"name": "of-others"}]}})
    for name in ("shop", "alone"):
        patch = {"status": {"parents": [former]}}
        await world.member.merge_patch(HTTP_ROUTES, "shop", name, patch, subresource="status", manager="before")
    assert built_in(await raw(world, HTTP_ROUTES, "shop")) == "Degraded"
    await world.start()

    async def healthy() -> bool:
        alone = (await raw(world, HTTP_ROUTES, "alone"))["status"]["parents"]
        return not alone and built_in(await raw(world, HTTP_ROUTES, "shop")) == "Healthy"

    await until(healthy)
    parents = (await raw(world, HTTP_ROUTES, "shop"))["status"]["parents"]
    assert [entry["parentRef"]["name"] for entry in parents] == ["web"]


@pytest.mark.req("K-36", "G-4", "E-25")
async def test_a_restarted_agent_writes_nothing_and_removes_what_went_meanwhile(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world)
    await route(world, "api", host="api.example.com")
    agent = await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)
    await programmed(world, 2)
    await quiet(agent)
    await world.stop(agent)
    again = await world.start()
    await quiet(again)
    assert writes(again) == 0
    await world.stop(again)
    await world.member.delete(HTTP_ROUTES, "shop", "api")
    last = await world.start()
    await programmed(world, 1)
    assert [each.spec.origin.name for each in await routes(world)] == ["shop"]
    await world.member.delete(GATEWAYS, "shop", "web")

    async def nothing() -> bool:
        return not await routes(world) and await load_balancer(world) is None and not await backends(world)

    await until(nothing)
    assert last.working


@pytest.mark.req("G-67")
async def test_the_infrastructure_of_a_gateway_is_in_its_namespace(world: World) -> None:
    await served(world)
    body = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "gatewayClassName": "fairlead",
            "listeners": [HTTP],
            "infrastructure": {"labels": {"team": "shop"}, "annotations": {"example.com/cost": "low"}},
        },
    }
    await world.member.apply(GATEWAYS, body, manager=USER)
    await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)

    async def beside() -> Any:
        shown = await world.member.list(SERVICES, "shop", label_selector="gateway.networking.k8s.io/gateway-name=web")
        return shown[0] if shown else None

    service = await until(beside)
    assert service.label("team") == "shop"
    assert service.annotation("example.com/cost") == "low"
    assert [each.port for each in service.spec.ports] == [80]

    async def addresses() -> list[str]:
        slices = await world.member.list(
            ENDPOINT_SLICES, "shop", label_selector="app.kubernetes.io/managed-by=fairlead"
        )
        return [address for each in slices for endpoint in each.endpoints or () for address in endpoint.addresses]

    await until(addresses)
    assert await addresses() == ["192.0.2.9"]
    # The Service of the Gateway requests no load balancer, and is deleted without infrastructure.
    assert await world.load_balancers() == {}
    await gateway(world)

    async def alone() -> bool:
        return await beside() is None and not await addresses()

    await until(alone)


@pytest.mark.req("K-36", "G-8")
async def test_a_kind_that_is_no_longer_served_removes_nothing(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world)
    agent = await world.start()
    await until(lambda: routes(world))
    await quiet(agent)
    before = writes(agent)
    for cache in agent.gateways.of_group:
        cache.serve("")
    await world.slice("10.1.0.1", "10.1.0.3")

    async def followed() -> bool:
        slices = await world.hub.list(ENDPOINT_SLICES, HUB_NAMESPACE, label_selector="fairlead.dev/backend")
        return any("10.1.0.3" in (endpoint.addresses or ()) for each in slices for endpoint in each.endpoints or ())

    await until(followed)
    assert len(await routes(world)) == 1
    assert await load_balancer(world) is not None
    assert writes(agent) == before + 1


@pytest.mark.req("K-36", "G-8")
async def test_one_changed_route_is_one_write_at_the_hub_and_one_status(world: World) -> None:
    await served(world)
    await gateway(world)
    for number in range(20):
        await route(world, f"route-{number}", host=f"host-{number}.example.com")
    agent = await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)
    await programmed(world, 20)
    await quiet(agent)
    at_hub = writes(agent)
    await route(world, "route-7", host="changed.example.com")

    async def changed() -> bool:
        return any("changed.example.com" in each.spec.attachments[0].hostnames for each in await routes(world))

    await until(changed)
    await quiet(agent)
    assert writes(agent) == at_hub + 1
    versions = {each.metadata.name: each.status.parents for each in await world.member.list(HTTP_ROUTES, "shop")}
    assert {entry.conditions[0].observed_generation for entry in versions["route-7"]} == {2}
    for name in ("route-1", "route-19"):
        assert {entry.conditions[0].observed_generation for entry in versions[name]} == {1}


@pytest.mark.req("K-36")
async def test_a_new_route_is_one_write_at_the_hub_and_two_statuses(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world)
    agent = await world.start()
    await until(lambda: load_balancer(world), what="the load balancer")
    await answer(world)
    await programmed(world, 1)
    await quiet(agent)
    before = world.written()
    await route(world, "more", host="more.example.com")
    await programmed(world, 2)
    await quiet(agent)
    own = Counter({"patch httproutes": 1})
    statuses = Counter({"patch httproutes/status": 1, "patch gateways/status": 1})
    assert world.written() - before - own == statuses + Counter({"patch loadbalancerroutes": 1})
    before = world.written()
    await world.member.delete(HTTP_ROUTES, "shop", "more")
    await programmed(world, 1)
    await quiet(agent)
    own = Counter({"delete httproutes": 1})
    assert world.written() - before - own == {"delete loadbalancerroutes": 1, "patch gateways/status": 1}


@pytest.mark.req("K-36")
async def test_many_new_routes_are_one_status_each_and_few_of_their_gateway(world: World) -> None:
    await served(world)
    await gateway(world)
    await route(world)
    agent = await world.start()
    await until(lambda: load_balancer(world), what="the load balancer")
    await answer(world)
    await programmed(world, 1)
    await quiet(agent)
    before, began_s = world.written(), time.monotonic()
    for number in range(60):
        await route(world, f"route-{number}", host=f"host-{number}.example.com")
    await programmed(world, 61)
    seconds = time.monotonic() - began_s
    await quiet(agent)
    written = world.written() - before
    assert (written["patch httproutes/status"], written["patch loadbalancerroutes"]) == (60, 60)
    # Counts that keep changing are written once a second; on a busy machine they may settle in between.
    assert written["patch gateways/status"] <= 1 + seconds / CountPace.QUIET_S


@pytest.mark.req("K-36")
async def test_endpoints_of_an_abandoned_service_outlive_the_change_of_its_route(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub watches both apart, and may see the removal of endpoints before the change of the route."""
    monkeypatch.setattr(shared, "LEAVE_S", 3600.0)
    await served(world)
    await world.service("other", kind="ClusterIP")
    await world.slice("10.1.0.9", name="other-1", service="other")
    await gateway(world)
    await route(world)
    agent = await world.start()

    async def goes_to(service: str) -> bool:
        return [rule.backends[0].backend for each in await routes(world) for rule in each.spec.rules] == [
            f"shop/{service}:80"
        ]

    await until(lambda: goes_to("web"), what="the route at the hub")
    await route(world, to="other")
    await until(lambda: goes_to("other"), what="the changed route at the hub")
    await quiet(agent)
    assert await backends(world) == ["shop.other", "shop.web"]
    monkeypatch.setattr(shared, "LEAVE_S", 0.0)
    agent.engine.publish((shared.BACKEND, "shop", "web"))

    async def only_the_other() -> bool:
        return await backends(world) == ["shop.other"]

    await until(only_the_other, what="the endpoints of the abandoned Service are gone")


@pytest.mark.req("G-87")
async def test_an_unmet_policy_lists_the_gateways_of_current_routes(world: World) -> None:
    """Such a policy keeps requests from its Service, so no route needs the Service; its status changes all the same."""
    await served(world)
    await gateway(world)
    agent = await world.start()
    await until(lambda: load_balancer(world), what="the load balancer")
    missing = {"group": "", "kind": "ConfigMap", "name": "missing"}
    spec = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
        "validation": {"hostname": "web.example.com", "caCertificateRefs": [missing]},
    }
    body = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    await world.member.apply(BACKEND_TLS_POLICIES, body, manager=USER)

    async def gateways() -> list[str]:
        policy = await world.member.get(BACKEND_TLS_POLICIES, "shop", "web")
        return [each.ancestor_ref.name for each in policy.status.ancestors or ()]

    async def shown() -> bool:
        return await gateways() == ["web"]

    async def gone() -> bool:
        return await gateways() == []

    await world.settled(agent)
    assert await gateways() == []
    await route(world)
    await until(shown, what="the Gateway in the status of the policy")
    await world.member.delete(HTTP_ROUTES, "shop", "shop")
    await until(gone, what="a policy without a Gateway")


@pytest.mark.req("G-17", "K-46")
async def test_a_gateway_with_a_typo_keeps_its_address_and_what_was_accepted_before(world: World) -> None:
    """Listeners, routes and endpoints stay at the hub, also over a restart of the agent, until it is right again."""
    await served(world)
    await gateway(world)
    await route(world)
    agent = await world.start()
    await until(lambda: backends(world), what="endpoints at the hub")
    await answer(world)
    before = await programmed(world, 1)

    async def refused() -> Any:
        shown = await world.member.get(GATEWAYS, "shop", "web")
        there = condition(shown.status, "Accepted")
        return shown if there and there[0] == "False" and there[2] == shown.metadata.generation else None

    await gateway(world, {**HTTP, "protocol": "HTTPP"})
    shown = await until(refused, what="Accepted=False")
    assert [each.value for each in shown.status.addresses or ()] == ["192.0.2.9"]
    messages = [each.message for each in shown.status.conditions if each.type == "Programmed"]
    assert "the previous version is still served" in messages[0]
    await world.stop(agent)
    again = await world.start()
    await world.settled(again)
    there = await load_balancer(world)
    assert not there.deleting
    assert [each.protocol for each in there.spec.listeners] == ["HTTP"]
    assert len(await routes(world)) == 1
    assert await backends(world) == ["shop.web"]
    # Right again: nothing has to be made again.
    await gateway(world)
    await answer(world)
    after = await programmed(world, 1)
    assert (await load_balancer(world)).metadata.uid == there.metadata.uid
    assert after.status.addresses == before.status.addresses
    # A Gateway that goes takes everything along, also while it is refused.
    await gateway(world, {**HTTP, "protocol": "HTTPP"})
    await until(refused, what="Accepted=False again")
    await world.member.delete(GATEWAYS, "shop", "web")

    async def gone() -> bool:
        there = await load_balancer(world)
        return (there is None or there.deleting) and not await routes(world)

    await until(gone, what="everything is gone")


async def test_everything_is_reconciled_now_and_then_without_a_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.agent.engine.RESYNC_S", 0.2)
    await served(world)
    await gateway(world)
    await route(world)
    agent = await world.start()
    await until(lambda: backends(world), what="endpoints at the hub")
    await answer(world)
    await programmed(world, 1)
    seen: set[str] = set()
    source = agent.engine._sources["Gateway"]
    publish = source.publish

    async def look(origin: Any) -> bool:
        seen.add(origin[0])
        return await publish(origin)

    monkeypatch.setattr(source, "publish", look)
    versions = [each.metadata.resource_version for each in (*await routes(world), await load_balancer(world))]

    async def all_kinds() -> bool:
        return {"Gateway", "HTTPRoute"} <= seen

    await until(all_kinds, what="a resync")
    await world.settled(agent)
    assert [each.metadata.resource_version for each in (*await routes(world), await load_balancer(world))] == versions


@pytest.mark.req("G-36")
async def test_listeners_that_come_and_go_change_the_status_lists_and_no_other_listener(world: World) -> None:
    await served(world)
    second = {"name": "second", "port": 8080, "protocol": "HTTP"}
    await gateway(world)
    await route(world)
    await world.start()
    await until(lambda: backends(world), what="endpoints at the hub")
    await answer(world)
    await programmed(world, 1)

    async def shown() -> dict[str, int]:
        status = (await world.member.get(GATEWAYS, "shop", "web")).status
        return {each.name: each.attached_routes for each in status.listeners or ()}

    async def at_hub() -> list[int]:
        return [each.port for each in (await load_balancer(world)).spec.listeners]

    for listeners, ports in (((HTTP, second), [80, 8080]), ((second,), [8080])):
        await gateway(world, *listeners)
        expected = {str(each["name"]): 1 for each in listeners}

        async def follows(expected: dict[str, int] = expected, ports: list[int] = ports) -> bool:
            return (await shown(), await at_hub()) == (expected, ports)

        await until(follows, what=f"listeners {list(expected)}")


@pytest.mark.req("L7-13")
async def test_a_certificate_for_another_host_is_an_event_on_its_gateway(world: World) -> None:
    await served(world)
    chain, key = self_signed("b.example.com")
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    body = {"metadata": {"name": "cert", "namespace": "shop"}, "type": "kubernetes.io/tls", "data": data}
    await world.member.apply(SECRETS, body, manager=USER)
    https = {
        "name": "https",
        "port": 443,
        "protocol": "HTTPS",
        "hostname": "a.example.com",
        "tls": {"certificateRefs": [{"name": "cert"}]},
    }
    await gateway(world, https)
    await world.start()
    message = await world.event("InvalidCertificateRef", "web")
    assert "Secret shop/cert" in message
    assert "not valid for a.example.com" in message
    assert "b.example.com" in message


@pytest.mark.req("X-41")
async def test_an_expired_certificate_of_a_listener_reaches_the_hub(world: World) -> None:
    await served(world)

    async def certificate(ends_in_days: int) -> None:
        chain, key = self_signed("a.example.com", ends_in_days=ends_in_days)
        data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
        body = {"metadata": {"name": "cert", "namespace": "shop"}, "type": "kubernetes.io/tls", "data": data}
        await world.member.apply(SECRETS, body, manager=USER)

    async def refused() -> dict[str, str]:
        lease = await world.hub.get(LEASES, HUB_NAMESPACE, AGENT_LEASE)
        return json.loads(lease.annotation(ANNOTATION_REFUSED) or "{}")

    async def is_named() -> bool:
        return "Secret shop/cert: the certificate expired at" in (await refused()).get("Gateway/shop/web", "")

    async def is_over() -> bool:
        return await refused() == {}

    await certificate(-1)
    https = {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "a.example.com"}
    await gateway(world, {**https, "tls": {"certificateRefs": [{"name": "cert"}]}})
    await world.start(heartbeat_s=0.2)
    await until(is_named, what="the expired certificate in the lease")
    await certificate(90)
    await until(is_over, what="an empty list")
    assert "expired at" in await world.event("Resolved", "web")


@pytest.mark.req("L7-11")
async def test_a_gateway_may_ask_for_no_records_of_its_wildcards(world: World) -> None:
    await served(world)
    await gateway(world, {**HTTP, "hostname": "*.dev.example.com"})
    await world.start()
    at_hub = await until(lambda: load_balancer(world), what="a load balancer")
    assert at_hub.spec.wildcard_records

    async def annotate(value: str) -> None:
        body = {"metadata": {"annotations": {"fairlead.dev/wildcard-records": value}}}
        await world.member.merge_patch(GATEWAYS, "shop", "web", body)

    await annotate("false")

    async def without() -> bool:
        return not (await load_balancer(world)).spec.wildcard_records

    await until(without, what="no wildcard records")
    await annotate("never")
    assert "it must be true or false" in await world.event("Invalid", "web")


@pytest.mark.req("L4-4")
async def test_a_gateway_that_the_schema_of_the_hub_refuses_says_so(world: World) -> None:
    definition = json.loads(await world.hub.raw("GET", CRDS.path("", "httploadbalancers.fairlead.dev")))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["className"]["maxLength"] = 1
    patch = {"spec": {"versions": definition["spec"]["versions"]}}
    await world.hub.merge_patch(CRDS, "", "httploadbalancers.fairlead.dev", patch, manager=USER)
    await served(world)
    await gateway(world)
    await world.start()

    async def refused() -> bool:
        shown = await world.member.get(GATEWAYS, "shop", "web")
        conditions = {each.type: each for each in shown.status.conditions or ()}
        programmed = conditions.get("Programmed")
        return programmed is not None and programmed.reason == "Invalid" and "className" in programmed.message

    await until(refused, what="condition Programmed")
    assert "className" in await world.event("Invalid")


async def test_only_routes_that_fail_or_are_refused_are_reported_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served(world)
    await gateway(world)
    for name in "abcd":
        await route(world, name, host=f"{name}.example.com")
    agent = await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)
    await programmed(world, 4)
    await quiet(agent)
    reported: set[str] = set()
    report = GatewayReports.report

    async def counted(reports: GatewayReports, key: Key) -> float | None:
        reported.add(key[2])
        return await report(reports, key)

    monkeypatch.setattr(GatewayReports, "report", counted)
    failing = [{"kind": "HTTPRoute", "namespace": "shop", "object": "b", "backends": ["shop/web:80"]}]
    refused = [{"kind": "rule", "name": route_name(("HTTPRoute", "shop", "c"), NAME), "reason": "rule 1: refused"}]
    status = {"failingRoutes": failing, "refused": refused}
    await world.hub.merge_patch(
        HTTP_LOAD_BALANCERS, HUB_NAMESPACE, NAME, {"status": status}, subresource="status", manager="fairlead-hub"
    )
    await world.event("ServingStopped", "b")
    await until(lambda: refused_rule(world, "c"), what="the refused rule")
    await quiet(agent)
    assert reported == {"web", "b", "c"}


async def refused_rule(world: World, name: str) -> bool:
    shown = await world.member.get(HTTP_ROUTES, "shop", name)
    return "rule 1: refused" in str(msgspec.json.encode(shown.status))


@pytest.mark.req("L4-6")
async def test_a_gateway_that_a_finalizer_holds_gives_up_its_address(world: World) -> None:
    await served(world)
    await gateway(world)
    await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)
    shown = await programmed(world, 0)
    assert shown.status.addresses
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await world.member.merge_patch(GATEWAYS, "shop", "web", hold, manager="another")
    await world.member.delete(GATEWAYS, *shown.key)

    async def given_up() -> bool:
        held = await world.member.get(GATEWAYS, *shown.key)
        return held.deleting and not held.status.addresses

    await until(given_up, what="a Gateway without address")


@pytest.mark.req("X-42")
async def test_a_misspelt_class_and_parent_reach_the_hub(world: World) -> None:
    await served(world)
    await gateway(world)
    await gateway(world, name="lost", of_class="fairlaed")
    await route(world, parent="wbe")
    await world.start(heartbeat_s=0.2)

    async def refused() -> dict[str, str]:
        lease = await world.hub.get(LEASES, HUB_NAMESPACE, AGENT_LEASE)
        return json.loads(lease.annotation(ANNOTATION_REFUSED) or "{}")

    async def both() -> bool:
        return set(await refused()) == {"Gateway/shop/lost", "HTTPRoute/shop/shop"}

    await until(both)
    assert all("Did you mean" in text for text in (await refused()).values())
    spec = {"parentRefs": [{"name": "web", "sectionName": "htpt"}]}
    await world.member.apply(
        HTTP_ROUTES, {"metadata": {"name": "shop", "namespace": "shop"}, "spec": spec}, manager=USER
    )

    async def section() -> bool:
        return "htpt" in (await refused()).get("HTTPRoute/shop/shop", "")

    await until(section, what="the listener that is not there")
    await gateway(world, name="lost")
    await route(world)

    async def none() -> bool:
        return await refused() == {}

    await until(none)
