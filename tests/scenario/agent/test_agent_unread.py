"""What an API server does not let an agent read or write changes nothing that is published, also after a restart."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

import msgspec
import pytest
from agent_gateway_world import quiet, served
from agent_l7_objects import http_route, ingress, ingress_class, path
from agent_world import EVENT, HUB_NAMESPACE, USER, World, ensure_namespaces, until

from fairlead.api.gateway import (
    BACKEND_TLS_POLICIES,
    GATEWAYS,
    GRPC_ROUTES,
    HTTP_ROUTES,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    TCP_ROUTES,
    TLS_ROUTES,
    UDP_ROUTES,
)
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import CONFIG_MAPS, ENDPOINT_SLICES, NAMESPACES, SECRETS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead_demo.worlds.certificates import self_signed
from tests.scenario.any_api import hide
from tests.worlds.refusing_api import REFUSED_READS, Refusal, RefusingApi, status

SERVICES = {"web": "shop", "secure": "shop", "lb": "shop", "far": "other"}
#: What is unreadable at the same time: none of a group hides what another one changes.
GROUPS = (
    ("Bundle clients", "IngressObject shop", "MemberService lb", "Node n1"),
    ("ReferenceGrant all", "BackendTLSPolicy secure", "MemberService web"),
    ("Bundle ca", "MemberService far", "IngressClass fairlead"),
    ("ListenerSet more", "Secret tls"),
    ("Namespace shop",),
    ("Bundle pages",),
    ("GatewayClass fairlead", "Namespace other"),
    ("Gateway web", "MemberService secure"),
    ("HTTPRoute shop", "HTTPRoute far"),
    ("LoadBalancerClass envoy",),
)

#: Nothing that can be read waits for these.
SELF = (("HTTPRoute shop", "HTTPRoute far"),)


async def is_named(world: World, group: tuple[str, ...]) -> bool:
    """Return whether an Event on an object that waits names one of the group."""
    names = [name.removeprefix("Member").split()[1] for name in group]
    texts = [event.message for event in await world.member.list(EVENT) if event.reason == "ReferenceNotRead"]
    return any(f"{name} of " in text and "stays as it is" in text for text in texts for name in names)


async def published(world: World) -> dict[str, Any]:
    """Return what is published at the hub, by kind and name."""
    kinds = (HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, TCP_LOAD_BALANCERS)
    parts = [*((kind, "spec") for kind in kinds), (SECRETS, "data"), (ENDPOINT_SLICES, "endpoints")]
    return {
        f"{kind.kind} {obj.metadata.name}": obj.deleting or msgspec.to_builtins(getattr(obj, part))
        for kind, part in parts
        for obj in await world.hub.list(kind, HUB_NAMESPACE)
    }


CLIENT_CERTIFICATES = {
    "frontend": {
        "default": {"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "clients"}]}}
    }
}


async def fill(world: World) -> None:
    """Make one object of each kind that something published depends on."""

    async def apply(kind: Any, name: str, body: dict[str, Any], namespace: str = "shop", **meta: Any) -> None:
        await world.member.apply(
            kind, {"metadata": {"name": name, "namespace": namespace, **meta}, **body}, manager=USER
        )

    await served(world)
    await ensure_namespaces(world.member, "other")
    await world.member.merge_patch(NAMESPACES, "", "shop", {"metadata": {"labels": {"routes": "yes"}}})
    for name, namespace in SERVICES.items():
        kind = "LoadBalancer" if name == "lb" else "ClusterIP"
        await world.service(name, namespace=namespace, kind=kind)
    await list_pods(world, 1)
    body = {"metadata": {"name": "envoy"}, "spec": {"provider": "envoy", "targets": "Pod"}}
    await world.hub.apply(LOAD_BALANCER_CLASSES, body, manager="admin")
    chain, key = self_signed("shop.example.com", ends_in_days=90)
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    await apply(SECRETS, "tls", {"type": "kubernetes.io/tls", "data": data})
    for name, entries in (("ca", {"ca.crt": chain}), ("clients", {"ca.crt": chain}), ("pages", {"503": b"sorry"})):
        await apply(CONFIG_MAPS, name, {"data": {entry: text.decode() for entry, text in entries.items()}})
    selected = {"from": "Selector", "selector": {"matchLabels": {"routes": "yes"}}}
    tls = {"certificateRefs": [{"name": "tls"}]}
    spec = {
        "gatewayClassName": "fairlead",
        "listeners": [
            {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": selected}},
            {"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls},
        ],
        "tls": CLIENT_CERTIFICATES,
        "allowedListeners": {"namespaces": {"from": "Same"}},
    }
    await apply(GATEWAYS, "web", {"spec": spec}, annotations={"fairlead.dev/error-pages": "pages"})
    more = {"name": "more", "port": 8443, "protocol": "HTTPS", "tls": tls}
    await apply(LISTENER_SETS, "more", {"spec": {"parentRef": {"name": "web"}, "listeners": [more]}})
    origin = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop"}
    grant = {"from": [origin], "to": [{"group": "", "kind": "Service"}]}
    await apply(REFERENCE_GRANTS, "all", {"spec": grant}, namespace="other")
    authorities = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}
    policy = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "secure"}],
        "validation": {"hostname": "shop.example.com", **authorities},
    }
    await apply(BACKEND_TLS_POLICIES, "secure", {"spec": policy})
    await http_route(world)
    await http_route(world, "secure", host="secure.example.com", to="secure")
    far = {"backendRefs": [{"name": "far", "namespace": "other", "port": 80}]}
    spec = {"parentRefs": [{"name": "web"}], "hostnames": ["far.example.com"], "rules": [far]}
    await apply(HTTP_ROUTES, "far", {"spec": spec})
    await ingress_class(world)
    tls_section = {"hosts": ["ingress.example.com"], "secretName": "tls"}
    await ingress(world, "shop", path(), host="ingress.example.com", tls=[tls_section])


async def list_pods(world: World, number: int) -> list[str]:
    """List one pod for each Service, and return their addresses."""
    addresses = [f"10.{number}.0.{index}" for index in range(1, 1 + len(SERVICES))]
    for (name, namespace), address in zip(SERVICES.items(), addresses, strict=True):
        await world.slice(address, name=f"{name}-1", service=name, namespace=namespace)
    return addresses


@pytest.mark.req("CORE-03", "L4-2")
async def test_unreadable_objects_change_nothing_and_endpoints_are_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    await fill(world)
    agent = await world.start()

    async def are_listed(addresses: list[str]) -> bool:
        text = str(await published(world))
        return all(f"'{address}'" in text for address in addresses)

    await until(lambda: are_listed([f"10.1.0.{index}" for index in range(1, 5)]), what="endpoints")
    await quiet(agent)
    assert "8443" in str(await published(world))
    for number, group in enumerate(GROUPS, start=2):
        before = await published(world)
        assert len(before) == 14, sorted(before)
        await world.stop(agent)
        with monkeypatch.context() as patch:
            hide(patch, *group)
            agent = await world.start(exporting=False)
            await until(agent.leadership.may_write, what="leading")
            await quiet(agent)
            after = await published(world)
            assert {name: after.get(name) for name in before} == before, group
            addresses = await list_pods(world, number)
            await until(partial(are_listed, addresses), what=f"endpoints beside {group}")
            if group not in SELF:
                await until(partial(is_named, world, group), what=f"an Event about {group}")


#: Kinds with a status of the agent's, and an object of each.
WITH_STATUS = (
    *(f"{kind.kind} more" for kind in (GRPC_ROUTES, TCP_ROUTES, UDP_ROUTES, TLS_ROUTES, LISTENER_SETS)),
    *("HTTPRoute shop", "Gateway web", "BackendTLSPolicy secure", "GatewayClass fairlead", "Service lb"),
)
WEBHOOK = 'admission webhook "status.example.com" denied the request: not now'


async def add_routes(world: World) -> None:
    """Make a route of each other kind, and have the hub answer for a Service."""
    ports = {"GRPC": 81, "TLS": 8444, "TCP": 82, "UDP": 83}
    listeners: list[dict[str, Any]] = [
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "grpc", "port": 81, "protocol": "HTTP"},
    ]
    listeners.append({"name": "tls", "port": 8444, "protocol": "TLS", "tls": {"mode": "Passthrough"}})
    listeners += [{"name": kind.lower(), "port": ports[kind], "protocol": kind} for kind in ("TCP", "UDP")]
    spec: dict[str, Any] = {"gatewayClassName": "fairlead", "listeners": listeners}
    spec |= {"allowedListeners": {"namespaces": {"from": "Same"}}, "tls": CLIENT_CERTIFICATES}
    meta = {"namespace": "shop"}
    await world.member.apply(GATEWAYS, {"metadata": {"name": "web", **meta}, "spec": spec}, manager=USER)
    for kind in (GRPC_ROUTES, TLS_ROUTES, TCP_ROUTES, UDP_ROUTES):
        section = kind.kind.removesuffix("Route")
        hosts = {"hostnames": [f"{section.lower()}.example.com"]} if section in ("GRPC", "TLS") else {}
        rules = [{"backendRefs": [{"name": "web", "port": 80}]}]
        spec = {"parentRefs": [{"name": "web", "sectionName": section.lower()}], "rules": rules, **hosts}
        await world.member.apply(kind, {"metadata": {"name": "more", **meta}, "spec": spec}, manager=USER)


async def warned(world: World, reason: str, about: str = "") -> set[str]:
    """Return the kind and name of each object with an Event of this reason whose message contains ``about``."""
    return {
        f"{event.involved_object.get('kind')} {event.involved_object.get('name')}"
        for event in await world.member.list(EVENT)
        if event.reason == reason and about in event.message
    }


def refuse_status(refusal: Refusal | None, method: str, path: str) -> Refusal | None:
    """Refuse each write of a status; without ``refusal``, by a 404 that names the object, which is there."""
    if method not in ("PATCH", "PUT") or not path.endswith("/status"):
        return None
    *_, group, _version, plural, name, _ = path.replace("/namespaces/shop", "").split("/")
    details = {"name": name, "kind": plural, "group": "" if group == "api" else group}
    return refusal or status(404, "NotFound", f'{plural} "{name}" not found', **details)


@pytest.mark.req("CORE-03", "CORE-08")
@pytest.mark.parametrize(
    "refusal",
    [
        status(422, "Invalid", "status.parents: Too many: 33"),
        status(403, "Forbidden", 'User "agent" cannot patch resource'),
        status(403, "Forbidden", WEBHOOK),
        status(404, "NotFound", WEBHOOK),
        status(404, "NotFound", "the server could not find the requested resource"),
        None,
        status(409, "Conflict", WEBHOOK),
        status(409, "Conflict", "Operation cannot be fulfilled: please apply your changes to the latest version"),
    ],
    ids=["422", "403", "403 webhook", "404 webhook", "404 no status", "404", "409 webhook", "409"],
)
async def test_every_refused_status_is_an_event_and_endpoints_are_followed(world: World, refusal: Refusal | None):
    await fill(world)
    await add_routes(world)
    #: A conflict about a Service says that another controller has written its address.
    conflict = refusal is not None and refusal.code == 409 and WEBHOOK not in str(refusal.body)
    kinds = set(WITH_STATUS) - ({"Service lb"} if conflict else set())
    async with RefusingApi(world.member_url).running() as api:
        api.refuse(partial(refuse_status, refusal))
        agent = await world.start(exporting=False, member_url=api.url)
        await world.answer("192.0.2.1", "shop.lb")

        async def are(reason: str, about: str = "") -> bool:
            return kinds <= await warned(world, reason, about)

        await until(lambda: are("StatusRefused"), what="Events")
        addresses = await list_pods(world, 9)

        async def are_listed() -> bool:
            text = str(await published(world))
            return all(f"'{address}'" in text for address in addresses)

        await until(are_listed, what="the changed endpoints")
        api.refuse(lambda _method, _path: None)
        await until(lambda: are("Resolved", "StatusRefused"), what="statuses that are written again")
        await world.stop(agent)


@pytest.mark.req("CORE-03", "CORE-06")
@pytest.mark.parametrize("refusal", REFUSED_READS.values(), ids=REFUSED_READS)
async def test_kinds_that_are_refused_change_nothing_and_are_named(world: World, refusal: Refusal):
    await fill(world)
    await add_routes(world)
    async with RefusingApi(world.member_url).running() as member, RefusingApi(world.hub_url).running() as hub:
        urls: dict[str, Any] = {"member_url": member.url, "hub_url": hub.url}
        agent = await world.start(**urls)
        await until(lambda: published(world), what="objects at the hub")
        await quiet(agent)
        caches = (*agent.caches.all, *agent.http.all, *agent.gateways.all)
        plurals = {cache.resource.plural for cache in caches}
        before = await published(world)
        assert "8443" in str(before)
        assert agent.readiness() == []

        def refuse(method: str, path: str) -> Refusal | None:
            return refusal if method == "GET" and path.rsplit("/", 1)[1] in plurals else None

        for api in (member, hub):
            api.refuse(refuse)

        def unnamed() -> set[str]:
            text = " ".join(agent.readiness())
            return {plural for plural in plurals if plural not in text}

        await until(lambda: not unnamed(), what="readiness that names each kind")
        assert await published(world) == before
        await world.stop(agent)
        agent = await world.start(exporting=False, **urls)
        await until(lambda: {cache.resource.plural for cache in agent.caches.all} - unnamed(), what="readiness")
        assert await published(world) == before
        for api in (member, hub):
            api.refuse(lambda _method, _path: None)
        addresses = await list_pods(world, 9)

        async def are_listed() -> bool:
            text = str(await published(world))
            return all(f"'{address}'" in text for address in addresses)

        await until(are_listed, what="the changed endpoints")
        await until(lambda: agent.readiness() == [], what="ready again")
        assert (await published(world)).keys() == before.keys()
        await world.stop(agent)
