"""Ingresses of a member: what is published for them at the hub, and what users read on them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from agent_l7_objects import ingress, ingress_class, path
from agent_world import HUB_NAMESPACE, World, until, writes

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import ENDPOINT_SLICES, INGRESS_CLASSES, INGRESSES, LEASES, NAMESPACES, SECRETS, SERVICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.names import (
    AGENT_LEASE,
    ANNOTATION_CERTIFICATE_ISSUER,
    ANNOTATION_REFUSED,
    DEFAULT_CLASS,
    LABEL_ORIGIN_UID,
    LABEL_SUBTENANT,
)
from fairlead.errors import NotFound
from fairlead.model.http import Attachment, ExternalAuth, Rule
from fairlead_demo.worlds.certificates import self_signed

USER = "kubectl"
NAME = "ingressclass.fairlead"


async def secret(world: World, host: str, name: str = "cert", chain: bytes | None = None) -> bytes:
    made, key = self_signed(host)
    data = {"tls.crt": base64.b64encode(chain or made).decode(), "tls.key": base64.b64encode(key).decode()}
    body = {"metadata": {"name": name, "namespace": "shop"}, "type": "kubernetes.io/tls", "data": data}
    await world.member.apply(SECRETS, body, manager=USER)
    return made


async def routes(world: World) -> list[Any]:
    return await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)


async def load_balancer(world: World) -> Any:
    try:
        return await world.hub.get(HTTP_LOAD_BALANCERS, HUB_NAMESPACE, NAME)
    except NotFound:
        return None


async def backend_slices(world: World) -> dict[str, list[str]]:
    shown = await world.hub.list(ENDPOINT_SLICES, HUB_NAMESPACE, label_selector="fairlead.dev/backend")
    return {
        each.label("fairlead.dev/backend"): [endpoint.addresses[0] for endpoint in each.endpoints or ()]
        for each in shown
    }


async def answer(
    world: World,
    address: str = "192.0.2.9",
    refused: tuple[dict[str, str], ...] = (),
    serving: tuple[str, str] = ("Unknown", "WaitingForFirstCheck"),
    failing: tuple[dict[str, Any], ...] = (),
) -> None:
    """Write the status of the HTTPLoadBalancer as the hub does."""
    shown = await load_balancer(world)
    conditions = [
        {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": "",
            "observedGeneration": shown.metadata.generation,
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
        for kind, value, reason in (
            ("Programmed", "False", "RoutesRefused") if refused else ("Programmed", "True", "Programmed"),
            ("Serving", *serving),
        )
    ]
    status = {"address": address, "loadBalancer": {"ingress": [{"ip": address}]}, "conditions": conditions}
    status["refused"], status["failingRoutes"] = list(refused), list(failing)
    await world.hub.merge_patch(
        HTTP_LOAD_BALANCERS, HUB_NAMESPACE, NAME, {"status": status}, subresource="status", manager="fairlead-hub"
    )


async def served(world: World) -> None:
    await world.service(kind="ClusterIP")
    await world.slice("10.1.0.1", "10.1.0.2")
    await ingress_class(world)


@pytest.mark.req("K-36", "K-37", "K-43", "GI-1", "GI-2", "GI-3", "K-40", "K-61", "E-13")
async def test_an_ingress_becomes_listeners_a_route_and_backends(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path(), path(value="/exact", kind="Exact"))
    await world.start()
    (route,) = await until(lambda: routes(world), what="a route")
    assert route.spec.load_balancer == NAME
    assert route.spec.attachments == (Attachment("http", ("shop.example.com",)),)
    assert [(rule.matches[0].path.type, rule.matches[0].path.value) for rule in route.spec.rules] == [
        ("PathPrefix", "/"),
        ("Exact", "/exact"),
    ]
    assert route.spec.rules[0].backends[0].backend == "shop/web:80"
    assert (await backend_slices(world)) == {"shop.web": ["10.1.0.1", "10.1.0.2"]}
    shown = await load_balancer(world)
    assert [(each.name, each.port, each.protocol) for each in shown.spec.listeners] == [("http", 80, "HTTP")]
    # Its backends have no load balancer, and so no address, of their own.
    assert await world.load_balancers() == {}


async def reasons(world: World, *expected: str) -> None:
    """Wait until the Ingress has Events of these reasons, and of no other."""

    async def check() -> bool:
        return {reason for _, reason, _ in await world.events("shop")} == set(expected)

    await until(check, what=f"the Events {expected}")


@pytest.mark.req("X-1", "X-2", "GI-9")
async def test_events_say_when_its_load_balancer_begins_and_ends_to_serve(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)
    await reasons(world, "Programmed")
    await answer(world, serving=("True", "Serving"))
    await reasons(world, "Programmed", "EnsuredLoadBalancer")
    await answer(world, serving=("True", "SomeBackendsUnhealthy"))
    await answer(world, serving=("False", "NoHealthyTargets"))
    await reasons(world, "Programmed", "EnsuredLoadBalancer", "ServingStopped")
    await answer(world, serving=("True", "Serving"))
    await answer(world, serving=("False", "NoTargets"))
    await reasons(world, "Programmed", "EnsuredLoadBalancer", "ServingStopped", "NoTargets")
    types = {reason: kind for kind, reason, _ in await world.events("shop")}
    assert (types["EnsuredLoadBalancer"], types["ServingStopped"], types["NoTargets"]) == (
        "Normal",
        "Warning",
        "Warning",
    )


@pytest.mark.req("GI-9")
async def test_an_invalid_address_from_the_hub_changes_no_ingress(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    await until(lambda: load_balancer(world))
    await answer(world, address="192.0.2.9\n198.51.100.1", serving=("True", "Serving"))
    await reasons(world, "AddressNotUsable")
    assert (await world.member.get(INGRESSES, "shop", "shop")).status.load_balancer.ingress is None


@pytest.mark.req("K-46", "GI-9")
async def test_the_address_comes_back_once_it_is_programmed_and_not_before(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    agent = await world.start()
    await until(lambda: load_balancer(world))
    await world.settled(agent)
    assert (await world.member.get(INGRESSES, "shop", "shop")).status.load_balancer.ingress is None
    await answer(world)

    async def address_shown() -> bool:
        shown = await world.member.get(INGRESSES, "shop", "shop")
        return [each.ip for each in shown.status.load_balancer.ingress or ()] == ["192.0.2.9"]

    await until(address_shown)
    # It is given to another controller: our address goes, and so does what was published.
    await ingress_class(world, "other", "example.com/other")
    await ingress(world, "shop", path(), ingressClassName="other")

    async def gone() -> bool:
        shown = await world.member.get(INGRESSES, "shop", "shop")
        return not shown.status.load_balancer.ingress and not await routes(world) and not await backend_slices(world)

    await until(gone)


@pytest.mark.req("G-20", "W-14")
async def test_a_route_rejected_by_proxies_is_reported_on_its_ingress(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await ingress(world, "api", path(), host="api.example.com")
    await world.start()
    named = {route.spec.origin.name: route.metadata.name for route in await until(lambda: two_routes(world))}
    await answer(world, refused=({"kind": "route", "name": named["api"], "reason": "its path is too long"},))

    async def said_of_api() -> bool:
        return any("its path is too long" in message for _, _, message in await world.events("api"))

    await until(said_of_api)
    assert not any("too long" in message for _, _, message in await world.events("shop"))


@pytest.mark.req("F-15")
async def test_an_ingress_says_that_its_class_traces_nothing(world: World) -> None:
    body: dict[str, Any] = {"metadata": {"name": DEFAULT_CLASS}, "spec": {"provider": "envoy", "parameters": {}}}
    body["spec"]["parameters"] = {"tracing": "{}", "tracingSink": "otlp://192.0.2.1:4317"}
    await world.hub.apply(LOAD_BALANCER_CLASSES, body, manager=USER)
    await served(world)
    await ingress(world, "shop", path())
    half = {"fairlead.dev/tracing": '{"samplingRate": {"numerator": 50}}'}
    await world.member.merge_patch(INGRESSES, "shop", "shop", {"metadata": {"annotations": half}}, manager=USER)
    await world.start()

    async def is_traced() -> bool:
        return any(route.spec.tracing for route in await routes(world))

    await until(is_traced)
    await reasons(world)
    patch = {"spec": {"parameters": {"tracing": "off"}}}
    await world.hub.merge_patch(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS, patch, manager=USER)
    await reasons(world, "Invalid")


@pytest.mark.req("X-31")
async def test_an_ingress_whose_own_requests_fail_is_warned_and_no_other(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await ingress(world, "api", path(), host="api.example.com")
    await world.start()
    await until(lambda: two_routes(world))
    await answer(world, serving=("True", "Serving"))
    await reasons(world, "Programmed", "EnsuredLoadBalancer")
    failing = {"kind": "Ingress", "namespace": "shop", "object": "api", "backends": ["shop/web:80"]}
    await answer(world, serving=("True", "SomeBackendsUnhealthy"), failing=(failing,))

    async def warned() -> bool:
        return ("Warning", "ServingStopped") in {(kind, reason) for kind, reason, _ in await world.events("api")}

    await until(warned)
    await reasons(world, "Programmed", "EnsuredLoadBalancer")
    await answer(world, serving=("True", "Serving"))

    async def well() -> bool:
        events = await world.events("api")
        return [reason for _, reason, _ in events].count("EnsuredLoadBalancer") >= 1

    await until(well)


async def test_a_path_of_an_older_ingress_is_reported_on_the_younger_one(world: World) -> None:
    await served(world)
    await ingress(world, "api", path(value="/v1/"), path(value="/v2"), host="api.example.com")
    await world.start()
    await ingress(world, "late", path(value="/v1"), path(value="/v2", kind="Exact"), host="api.example.com")
    sentence = "host api.example.com, path /v1: Ingress shop/api is older and has it too"
    await until(lambda: said_of(world, "late", sentence), what=sentence)
    assert not await said_of(world, "late", "exact path /v2")
    assert not await said_of(world, "api", "is older")


async def said_of(world: World, name: str, sentence: str) -> bool:
    return any(sentence in message for _, _, message in await world.events(name))


async def two_routes(world: World) -> list[Any]:
    there = await routes(world)
    return there if len(there) == 2 else []


@pytest.mark.req("K-37", "GI-5", "GI-6")
async def test_ports_by_name_a_default_backend_and_what_cannot_be_served(world: World) -> None:
    await served(world)
    resource = {"pathType": "Prefix", "path": "/r", "backend": {"resource": {"kind": "Bucket", "name": "b"}}}
    missing, wrong = path("nothing", "/m"), path("web", "/p", {"name": "metrics"})
    default = {"service": {"name": "web", "port": {"name": "http"}}}
    await ingress(world, "shop", path("web", "/", {"name": "http"}), resource, missing, wrong, defaultBackend=default)
    await world.start()

    async def both() -> Any:
        shown = {route.spec.attachments[0].hostnames: route for route in await routes(world)}
        return shown if len(shown) == 2 else None

    shown = await until(both)
    of_host, of_all = shown["shop.example.com",], shown[()]
    assert [rule.backends[0].backend for rule in of_host.spec.rules] == ["shop/web:80", "", "", "", "shop/web:80"]
    assert [rule.matches for rule in of_all.spec.rules] == [()]
    for sentence in ("Bucket b cannot be a backend", "no Service nothing", "no TCP port metrics"):
        await until(lambda sentence=sentence: said(world, sentence), what=sentence)


async def said(world: World, sentence: str) -> bool:
    return any(sentence in message for _, _, message in await world.events("shop"))


async def certificates(world: World) -> dict[str, str]:
    """Return the digests of the certificates that the load balancer names."""
    return {each.name: each.digest for each in (await load_balancer(world)).spec.certificates}


@pytest.mark.req("GI-9")
async def test_names_without_a_certificate_get_a_stable_placeholder(world: World) -> None:
    await served(world)
    await secret(world, "other.example.com", name="other")
    await ingress(world, "shop", path(), tls=[{"hosts": ["shop.example.com"], "secretName": "missing"}])
    tls = [{"hosts": ["other.example.com"], "secretName": "other"}]
    await ingress(world, "other", path(), host="other.example.com", tls=tls)
    agent = await world.start()

    async def fallback() -> Any:
        shown = await load_balancer(world)
        return next((each for each in shown.spec.listeners if each.name == "https"), None) if shown else None

    listener = await until(fallback)
    assert (listener.hostname, listener.certificates) == ("", ("fallback.fairlead",))
    digest = (await certificates(world))["fallback.fairlead"]
    await until(lambda: said(world, "shop.example.com gets the fallback certificate"))

    async def attached() -> bool:
        by_host = {host: each for each in await routes(world) for host in each.spec.attachments[0].hostnames}
        listeners = {host: each.spec.attachments[-1].listener for host, each in by_host.items()}
        return listeners == {"shop.example.com": "https", "other.example.com": "https/other.example.com"}

    await until(attached)
    # Another agent shows the same; it goes with the class.
    await world.stop(agent)
    await world.start()
    await until(fallback)
    assert (await certificates(world))["fallback.fairlead"] == digest
    await world.member.delete(INGRESS_CLASSES, "", "fairlead")

    async def gone() -> bool:
        copies = await world.hub.list(SECRETS, HUB_NAMESPACE, label_selector="fairlead.dev/origin-kind=IngressClass")
        return not copies

    await until(gone)


@pytest.mark.req("GI-7", "G-43", "W-14", "E-28")
async def test_a_certificate_is_copied_rotated_and_kept_when_it_breaks(world: World) -> None:
    await served(world)
    first = await secret(world, "shop.example.com")
    await ingress(world, "shop", path(), tls=[{"hosts": ["shop.example.com"], "secretName": "cert"}])
    await world.start()

    async def https() -> Any:
        shown = await load_balancer(world)
        of_hosts = [each for each in shown.spec.listeners if each.hostname] if shown else []
        return next(iter(of_hosts), None)

    listener = await until(https)
    assert (listener.hostname, listener.certificates) == ("shop.example.com", ("tls.shop.cert",))

    async def copied() -> bytes:
        shown = await world.hub.get(SECRETS, HUB_NAMESPACE, "tls.shop.cert")
        return base64.b64decode(shown.data["tls.crt"])

    assert await copied() == first
    digest = (await certificates(world))["tls.shop.cert"]
    second = await secret(world, "shop.example.com")

    async def rotated() -> bool:
        return (await certificates(world))["tls.shop.cert"] != digest and await copied() == second

    await until(rotated)
    await secret(world, "shop.example.com", chain=b"nothing")
    await until(lambda: said(world, "the previous version is still served"))
    assert (await copied(), await https()) == (second, listener)
    (route,) = await routes(world)
    assert Attachment("https/shop.example.com", ("shop.example.com",)) in route.spec.attachments
    # Nothing refers to the Secret now, so its copy is deleted.
    await ingress(world, "shop", path())

    async def no_copy() -> bool:
        return not await world.hub.list(SECRETS, HUB_NAMESPACE, label_selector="fairlead.dev/origin-kind=Secret")

    await until(no_copy)


@pytest.mark.req("L7-13")
async def test_a_certificate_that_clients_refuse_is_an_event_on_its_ingress(world: World) -> None:
    await served(world)
    await secret(world, "b.example.com")
    await ingress(world, "shop", path(), tls=[{"hosts": ["shop.example.com"], "secretName": "cert"}])
    await world.start()
    await until(lambda: said(world, "Secret cert: the certificate is not valid for shop.example.com"))
    expired, key = self_signed("shop.example.com", ends_in_days=-1)
    data = {"tls.crt": base64.b64encode(expired).decode(), "tls.key": base64.b64encode(key).decode()}
    body = {"metadata": {"name": "cert", "namespace": "shop"}, "type": "kubernetes.io/tls", "data": data}
    await world.member.apply(SECRETS, body, manager=USER)
    await until(lambda: said(world, "Secret cert: the certificate expired at"))


@pytest.mark.req("GI-1", "E-20")
async def test_the_default_class_counts_and_a_foreign_one_does_not(world: World) -> None:
    await world.service(kind="ClusterIP")
    await ingress_class(world, annotations={"ingressclass.kubernetes.io/is-default-class": "true"})
    await ingress_class(world, "other", "example.com/other")
    await ingress(world, "shop", path(), ingressClassName=None)
    await ingress(world, "foreign", path(), ingressClassName="other")
    await ingress(world, "unknown", path(), ingressClassName="some-invalid-class-name")
    agent = await world.start()
    (route,) = await until(lambda: routes(world))
    assert route.spec.origin.name == "shop"
    await world.settled(agent)
    assert len(await routes(world)) == 1


@pytest.mark.req("K-36", "E-25")
async def test_a_restarted_agent_writes_nothing_and_removes_what_went_meanwhile(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await ingress(world, "api", path(), host="api.example.com")
    agent = await world.start()

    async def two() -> bool:
        return len(await routes(world)) == 2

    await until(two)
    await world.stop(agent)
    again = await world.start()
    await until(lambda: not any(len(queue) or queue.processing for queue in again.engine.queues))
    assert writes(again) == 0
    await world.stop(again)
    await world.member.delete(INGRESSES, "shop", "api")
    await world.start()

    async def shop_alone() -> bool:
        return [route.spec.origin.name for route in await routes(world)] == ["shop"]

    await until(shop_alone)


@pytest.mark.req("L7-12")
async def test_an_ingress_whose_protection_would_be_ignored_is_withdrawn(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    await until(lambda: routes(world))
    await answer(world)

    async def addresses() -> list[str]:
        shown = await world.member.get(INGRESSES, "shop", "shop")
        return [each.address for each in shown.status.load_balancer.ingress or ()]

    await until(addresses)
    protection = "nginx.ingress.kubernetes.io/whitelist-source-range"
    patch = {"metadata": {"annotations": {protection: "10.0.0.0/8"}}}
    await world.member.merge_patch(INGRESSES, "shop", "shop", patch, manager=USER)

    async def withdrawn() -> bool:
        return not await routes(world) and not await addresses()

    await until(withdrawn, what="no route and no address")
    await reasons(world, "Programmed", "Invalid", "AnnotationsIgnored")
    patch = {"metadata": {"annotations": {"fairlead.dev/ignored-annotations": "whitelist-source-range"}}}
    await world.member.merge_patch(INGRESSES, "shop", "shop", patch, manager=USER)
    await until(lambda: routes(world))
    await until(addresses)


@pytest.mark.req("F-8")
async def test_an_ingress_with_an_invalid_list_keeps_its_last_valid_one(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    await until(lambda: routes(world))

    async def annotate(text: str) -> None:
        patch = {"metadata": {"annotations": {"fairlead.dev/allowed-sources": text}}}
        await world.member.merge_patch(INGRESSES, "shop", "shop", patch, manager=USER)

    async def allowed() -> set[tuple[str, ...]]:
        return {rule.allowed_sources for route in await routes(world) for rule in route.spec.rules}

    async def holds(*sources: str) -> bool:
        return await allowed() == {sources}

    await annotate("192.0.2.0/24")
    await until(lambda: holds("192.0.2.0/24"))
    await annotate("192.0.2.1/24")
    await reasons(world, "Invalid")
    assert await allowed() == {("192.0.2.0/24",)}
    await annotate("198.51.100.0/24")
    await until(lambda: holds("198.51.100.0/24"))


_KEYS = '{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}'
_TOKENS = json.dumps({"providers": [{"issuer": "https://login.example.com", "localJWKS": {"inline": _KEYS}}]})


@pytest.mark.req("F-19", "F-20")
@pytest.mark.parametrize(
    ("annotation", "valid"),
    [("fairlead.dev/external-auth", '{"service": "web", "port": 80}'), ("fairlead.dev/jwt", _TOKENS)],
)
async def test_an_ingress_whose_protection_is_invalid_is_closed(world: World, annotation: str, valid: str) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    await until(lambda: routes(world))

    async def annotate(text: str) -> None:
        patch = {"metadata": {"annotations": {annotation: text}}}
        await world.member.merge_patch(INGRESSES, "shop", "shop", patch, manager=USER)

    async def rules() -> list[Rule]:
        return [rule for route in await routes(world) for rule in route.spec.rules]

    async def is_closed() -> bool:
        return all(rule.filters.auth == ExternalAuth() for rule in await rules())

    async def asks() -> bool:
        return all(rule.jwt or (rule.filters.auth is not None and rule.filters.auth.backend) for rule in await rules())

    assert not await is_closed()
    await annotate(" ")
    await until(is_closed, what="rules that answer 500")
    await reasons(world, "Invalid")
    await annotate(valid)
    await until(asks)
    await annotate("{}")

    async def is_reported() -> bool:
        return any(annotation in message for _, _, message in await world.events("shop"))

    await until(is_reported, what="an Event about the annotation")
    assert await asks(), "the last version that asked"


@pytest.mark.req("F-21")
async def test_a_class_has_the_requests_of_its_ingresses_inspected(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    await until(lambda: routes(world))

    async def annotate(text: str | None) -> None:
        patch = {"metadata": {"annotations": {"fairlead.dev/external-processor": text}}}
        await world.member.merge_patch(INGRESS_CLASSES, "", "fairlead", patch, manager=USER)

    async def processors() -> set[str | None]:
        rules = [rule for route in await routes(world) for rule in route.spec.rules]
        return {rule.processor.backend if rule.processor is not None else None for rule in rules}

    def are(expected: str | None) -> Any:
        async def check() -> bool:
            return await processors() == {expected}

        return check

    assert await processors() == {None}
    await annotate('{"service": "waf", "namespace": "security", "port": 80}')
    await until(are(""), what="a processor that does not exist")
    await reasons(world, "Invalid")
    body = {"metadata": {"name": "waf", "namespace": "security"}, "spec": {"ports": [{"name": "http", "port": 80}]}}
    await world.member.apply(NAMESPACES, {"metadata": {"name": "security"}}, manager=USER)
    await world.member.apply(SERVICES, body, manager=USER)
    of_service = {"name": "waf-1", "namespace": "security", "labels": {"kubernetes.io/service-name": "waf"}}
    ports, endpoints = [{"name": "http", "port": 8080}], [{"addresses": ["10.1.0.9"]}]
    waf = {"metadata": of_service, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}
    await world.member.apply(ENDPOINT_SLICES, waf, manager=USER)
    await until(are("security/waf:80/http2"), what="the Service of the class")

    def has_endpoints(*addresses: str) -> Any:
        async def check() -> bool:
            return (await backend_slices(world)).get("security.waf", []) == [*addresses]

        return check

    await until(has_endpoints("10.1.0.9"), what="the endpoints of the service")
    await annotate("[]")

    async def is_reported() -> bool:
        return any("external-processor: " in message for _, _, message in await world.events("shop"))

    await until(is_reported)
    assert await processors() == {"security/waf:80/http2"}, "the last valid version"
    await annotate(None)
    await until(are(None))
    await until(has_endpoints(), what="endpoints that are removed")


@pytest.mark.req("L4-6")
async def test_an_ingress_that_a_finalizer_holds_gives_up_its_address(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    await until(lambda: load_balancer(world))
    await answer(world)

    async def shown() -> list[str]:
        held = await world.member.get(INGRESSES, "shop", "shop")
        return [each.ip for each in held.status.load_balancer.ingress or ()]

    await until(shown)
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await world.member.merge_patch(INGRESSES, "shop", "shop", hold, manager="another")
    await world.member.delete(INGRESSES, "shop", "shop")

    async def given_up() -> bool:
        return not await shown() and not await routes(world)

    await until(given_up)
    assert (await world.member.get(INGRESSES, "shop", "shop")).deleting


@pytest.mark.req("F-10")
async def test_an_ingress_reaches_its_backends_over_tls_as_its_secret_says_now(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    await until(lambda: routes(world))
    annotation = json.dumps({"hostname": "web.internal", "secret": "cert"})
    patch = {"metadata": {"annotations": {"fairlead.dev/backend-tls": annotation}}}
    await world.member.merge_patch(INGRESSES, "shop", "shop", patch, manager=USER)

    async def bundles() -> set[str]:
        backends = [backend for route in await routes(world) for backend in route.spec.backends]
        return {backend.tls.ca_bundle if backend.tls else "" for backend in backends}

    async def trusts(bundle: str) -> bool:
        return await bundles() == {bundle}

    async def is_closed() -> bool:
        return all(rule.filters.auth == ExternalAuth() for route in await routes(world) for rule in route.spec.rules)

    async def is_reported(part: str) -> bool:
        return any(part in message for _, _, message in await world.events("shop"))

    await until(is_closed, what="no request in plain text")
    await until(lambda: is_reported("Secret shop/cert"), what="an Event about the Secret")
    await secret(world, "client")
    await until(lambda: is_reported("ca.crt"), what="an Event about the authorities")
    assert await is_closed()
    # Other authorities alone are a change, too.
    for host in ("one.internal", "two.internal"):
        bundle = self_signed(host)[0].decode()
        data = {"data": {"ca.crt": base64.b64encode(bundle.encode()).decode()}}
        await world.member.merge_patch(SECRETS, "shop", "cert", data, manager=USER)
        await until(lambda text=bundle: trusts(text), what="the backend with these authorities")
    (certificate,) = (await load_balancer(world)).spec.certificates
    assert {backend.tls.client_certificate for route in await routes(world) for backend in route.spec.backends} == {
        certificate.name
    }
    await world.member.delete(SECRETS, "shop", "cert")
    await until(lambda: is_reported("last version"), what="an Event about the deleted Secret")
    assert await trusts(bundle)
    assert [ref.name for ref in (await load_balancer(world)).spec.certificates] == [certificate.name]


@pytest.mark.req("X-41", "X-42")
async def test_a_missing_secret_and_a_misspelt_class_reach_the_hub(world: World) -> None:
    await served(world)
    tls = [{"hosts": ["shop.example.com"], "secretName": "cert"}]
    await ingress(world, "shop", path(), tls=tls)
    await ingress(world, "lost", path(), host="lost.example.com", ingressClassName="fairlaed")
    await world.start(heartbeat_s=0.2)

    async def refused() -> dict[str, str]:
        lease = await world.hub.get(LEASES, HUB_NAMESPACE, AGENT_LEASE)
        return json.loads(lease.annotation(ANNOTATION_REFUSED) or "{}")

    async def both() -> bool:
        return set(await refused()) == {"Ingress/shop/shop", "Ingress/shop/lost"}

    await until(both)
    assert "Secret cert" in (await refused())["Ingress/shop/shop"]
    assert "Did you mean 'fairlead'?" in (await refused())["Ingress/shop/lost"]
    await secret(world, "shop.example.com")
    await ingress(world, "lost", path(), host="lost.example.com")

    async def none() -> bool:
        return await refused() == {}

    await until(none)
    assert "cert" in await world.event("Resolved", "shop")


@pytest.mark.req("L4-2")
async def test_a_backend_whose_address_another_pod_has_is_reported_as_gone(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())

    async def listed(name: str, service: str, *pods: tuple[str, str]) -> None:
        await world.slice(*(address for address, _ in pods), name=name, service=service)
        endpoints = [
            {"addresses": [address], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": uid}}
            for address, uid in pods
        ]
        patch = {"endpoints": endpoints}
        await world.member.merge_patch(ENDPOINT_SLICES, "shop", name, patch, manager="endpointslice-controller")

    await listed("web-1", "web", ("10.1.0.7", "first"))
    await world.start()

    async def conditions() -> list[tuple[str, bool, bool]]:
        slices = await world.hub.list(ENDPOINT_SLICES, HUB_NAMESPACE, label_selector="fairlead.dev/backend")
        every = [each for slice_ in slices for each in slice_.endpoints or ()]
        return [(each.addresses[0], each.ready, each.terminating) for each in every]

    async def has(expected: list[tuple[str, bool, bool]]) -> bool:
        return await conditions() == expected

    await until(lambda: has([("10.1.0.7", True, False)]), what="its endpoint")
    await listed("web-1", "web")
    await until(lambda: has([]), what="an empty list")
    await listed("other-1", "other", ("10.1.0.7", "second"))
    await until(lambda: has([("10.1.0.7", False, True)]), what="a report that it is gone")


@pytest.mark.req("X-44")
async def test_a_backend_that_is_not_there_is_named_with_those_that_are(world: World) -> None:
    await served(world)
    await world.member.create(NAMESPACES, {"metadata": {"name": "other"}})
    await world.service("moved", namespace="other", kind="ClusterIP")
    await ingress(world, "shop", path("moved"), path("web", "/a", {"number": 81}))
    await world.start()

    async def both() -> bool:
        said = " ".join(message for _, _, message in await world.events("shop"))
        return "there is one in namespace other" in said and "has no TCP port 81; it has 80/TCP" in said

    await until(both)


@pytest.mark.req("L4-9")
async def test_slices_of_a_backend_say_which_service_they_are_of(world: World) -> None:
    await served(world)
    await ingress(world, "shop", path())
    await world.start()
    former = (await world.member.get(SERVICES, "shop", "web")).metadata.uid
    first = (await world.member.get(ENDPOINT_SLICES, "shop", "web-1")).endpoints[0].addresses[0]

    async def owned() -> dict[str, str]:
        slices = await world.hub.list(ENDPOINT_SLICES, HUB_NAMESPACE, label_selector="fairlead.dev/backend")
        return {each.label(LABEL_ORIGIN_UID): each.endpoints[0].addresses[0] for each in slices if each.endpoints}

    async def has(uid: str, address: str) -> bool:
        return await owned() == {uid: address}

    await until(lambda: has(former, first), what="slices of the first Service")
    # The garbage collector has not deleted its slice yet.
    owner = [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": former}]
    patch = {"metadata": {"ownerReferences": owner}}
    await world.member.merge_patch(ENDPOINT_SLICES, "shop", "web-1", patch, manager="endpointslice-controller")
    await world.member.delete(SERVICES, "shop", "web")
    await world.service("web")
    await world.slice("10.1.0.99", name="web-2")
    current = (await world.member.get(SERVICES, "shop", "web")).metadata.uid
    assert current != former
    await until(lambda: has(current, "10.1.0.99"), what="slices of the second one only")


@pytest.mark.req("F-33")
async def test_published_objects_have_the_sub_tenant_of_their_namespace(world: World):
    async def subtenants() -> list[str]:
        certificates = await world.hub.list(MANAGED_CERTIFICATES, HUB_NAMESPACE)
        published = [*await routes(world), *(await world.load_balancers()).values(), *certificates]
        return [obj.label(LABEL_SUBTENANT) for obj in published]

    async def are(*expected: str) -> bool:
        return await subtenants() == list(expected)

    async def label(value: str | None) -> None:
        await world.member.merge_patch(NAMESPACES, "", "shop", {"metadata": {"labels": {LABEL_SUBTENANT: value}}})

    await label("payments")
    await world.service()
    of_class = {"name": DEFAULT_CLASS, "annotations": {ANNOTATION_CERTIFICATE_ISSUER: "ours"}}
    await world.hub.apply(LOAD_BALANCER_CLASSES, {"metadata": of_class, "spec": {"provider": "envoy"}}, manager=USER)
    await ingress_class(world)
    await ingress(world, "shop", path("web"), tls=[{"hosts": ["shop.example.com"], "secretName": "cert"}])
    agent = await world.start()
    await until(lambda: are("payments", "payments", "payments"))
    await label("search")
    await until(lambda: are("search", "search", "search"))
    await world.stop(agent)
    await label(None)
    agent = await world.start()
    await until(lambda: are("", "", ""))
    writes_before = world.written()
    agent.engine.enqueue_all()
    await world.settled(agent)
    assert world.written() == writes_before
