"""Secrets that users, or cert-manager for them, put into a member: the last good version is served, whatever comes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from agent_l7_objects import ingress_class, path
from agent_world import HUB_NAMESPACE, USER, World, until

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import INGRESSES, SECRETS, SERVICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER, DEFAULT_CLASS
from fairlead.errors import NotFound
from fairlead_demo.worlds.certificates import self_signed

HOST = "shop.example.com"
COPY = "tls.shop.cert"


async def secret(world: World, chain: bytes, key: bytes) -> None:
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    body = {"metadata": {"name": "cert", "namespace": "shop"}, "type": "kubernetes.io/tls", "data": data}
    await world.member.apply(SECRETS, body, manager=USER)


async def secure(world: World, **annotations: str) -> None:
    """Write a Service, a class, and an Ingress whose certificate is in the Secret ``cert``."""
    await world.service(kind="ClusterIP")
    await world.slice("10.1.0.1")
    await ingress_class(world)
    meta = {"name": "shop", "namespace": "shop", "annotations": annotations}
    rules = [{"host": HOST, "http": {"paths": [path()]}}]
    spec = {"ingressClassName": "fairlead", "rules": rules, "tls": [{"hosts": [HOST], "secretName": "cert"}]}
    await world.member.apply(INGRESSES, {"metadata": meta, "spec": spec}, manager=USER)


async def copy(world: World) -> bytes:
    """Return the chain that the hub has, empty for none."""
    try:
        shown = await world.hub.get(SECRETS, HUB_NAMESPACE, COPY)
    except NotFound:
        return b""
    return base64.b64decode((shown.data or {})["tls.crt"])


async def digest(world: World) -> str:
    """Return the version of the copy that the load balancer names, empty for none."""
    shown = await world.hub.list(HTTP_LOAD_BALANCERS, HUB_NAMESPACE)
    return next((each.digest for obj in shown for each in obj.spec.certificates if each.name == COPY), "")


async def said(world: World, *parts: str) -> bool:
    messages = [message for _, _, message in await world.events("shop")]
    return any(all(word in message for word in parts) for message in messages)


@pytest.mark.req("K-53", "E-16", "GI-7")
@pytest.mark.parametrize("case", ["the wrong key", "no key", "no certificate", "deleted"])
async def test_the_last_good_version_is_served_when_a_secret_breaks_or_goes(world: World, case: str) -> None:
    chain, key = self_signed(HOST)
    await secret(world, chain, key)
    await secure(world)
    await world.start()

    async def is_copied() -> bool:
        return await copy(world) == chain and bool(await digest(world))

    await until(is_copied, what="a copy at the hub")
    before = await digest(world)
    if case == "deleted":
        await world.member.delete(SECRETS, "shop", "cert")
    else:
        other_chain, other_key = self_signed(HOST)
        broken = {
            "the wrong key": (chain, other_key),
            "no key": (chain, b"nothing"),
            "no certificate": (b"nothing", key),
        }[case]
        assert other_chain != chain
        await secret(world, *broken)
    why = {
        "the wrong key": "tls.key is not the key of the first certificate in tls.crt",
        "no key": "tls.key has no private key in PEM",
        "no certificate": "tls.crt has no certificate in PEM",
        "deleted": "the Secret does not exist",
    }[case]
    await until(
        lambda: said(world, "Secret cert", why, "the previous version is still served"), what=f"an Event: {why}"
    )
    assert (await copy(world), await digest(world)) == (chain, before)
    # What is good again is served again.
    chain, key = self_signed(HOST)
    await secret(world, chain, key)
    await until(is_copied, what="the new version at the hub")
    assert await digest(world) != before


@pytest.mark.req("X-41")
async def test_a_secret_of_another_type_and_a_missing_one_are_named_apart(world: World) -> None:
    chain, key = self_signed(HOST)
    await secure(world)
    await world.start()
    await until(lambda: said(world, "Secret cert", "does not exist"), what="an Event that it is missing")
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    body = {"metadata": {"name": "cert", "namespace": "shop"}, "type": "Opaque", "data": data}
    await world.member.apply(SECRETS, body, manager=USER)
    await touch(world)
    await until(lambda: said(world, "Secret cert", "type is Opaque", "kubectl create secret tls cert -n shop"))
    await world.member.delete(SECRETS, "shop", "cert")
    await secret(world, chain, key)

    async def is_resolved() -> bool:
        events = await world.events("shop")
        return any(reason == "Resolved" and "type is Opaque" in message for _, reason, message in events)

    await until(is_resolved, what="a Resolved Event")

    async def is_copied() -> bool:
        return await copy(world) == chain

    await until(is_copied, what="a copy at the hub")


async def touch(world: World) -> None:
    """Change the Ingress, so that the agent looks at once and not within a minute."""
    body = {"metadata": {"annotations": {"example.com/touched": "true"}}}
    await world.member.merge_patch(INGRESSES, "shop", "shop", body, manager=USER)


@pytest.mark.req("K-53", "E-16")
async def test_a_certificate_that_has_ended_is_served_as_its_user_wrote_it(world: World) -> None:
    chain, key = self_signed(HOST, ends_in_days=-1)
    await secret(world, chain, key)
    await secure(world)
    await world.start()

    async def is_served() -> bool:
        return await copy(world) == chain and bool(await digest(world))

    await until(is_served, what="a copy at the hub")


@pytest.mark.req("K-53", "GI-7")
@pytest.mark.parametrize("kind", ["ImplementationSpecific", "Exact"])
async def test_cert_manager_answers_its_challenge_and_its_late_secret_is_served(world: World, kind: str) -> None:
    """The objects of cert-manager's Ingress shim and HTTP-01 solver, with the type of path of both its versions."""
    name, token = "cm-acme-http-solver-x7k2p", "/.well-known/acme-challenge/LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowy"
    await secure(world, **{"cert-manager.io/cluster-issuer": "letsencrypt"})
    # The hub's own issuer leaves it to cert-manager, also where it is that of the class.
    of_class = {"name": DEFAULT_CLASS, "annotations": {ANNOTATION_CERTIFICATE_ISSUER: "ours"}}
    await world.hub.apply(LOAD_BALANCER_CLASSES, {"metadata": of_class, "spec": {"provider": "envoy"}}, manager=USER)
    await world.start()
    labels = {"acme.cert-manager.io/http01-solver": "true", "acme.cert-manager.io/http-domain": "1078230412"}
    ports = [{"name": "http", "port": 8089, "targetPort": 8089, "protocol": "TCP"}]
    service = {
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {"type": "NodePort", "ports": ports, "selector": labels},
    }
    await world.member.apply(SERVICES, service, manager="cert-manager")
    solver = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": labels,
            "annotations": {"nginx.ingress.kubernetes.io/whitelist-source-range": "0.0.0.0/0,::/0"},
        },
        "spec": {
            "ingressClassName": "fairlead",
            "rules": [{"host": HOST, "http": {"paths": [path(name, token, {"number": 8089}, kind)]}}],
        },
    }
    await world.member.apply(INGRESSES, solver, manager="cert-manager")

    async def routes() -> dict[str, Any]:
        shown = await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)
        return {each.spec.origin.name: each for each in shown}

    async def solves() -> bool:
        return {"shop", name} <= set(await routes())

    await until(solves, what="the route of the solver")
    (rule,) = (await routes())[name].spec.rules
    (match,) = rule.matches
    assert (match.path.value, match.path.type) == (token, "Exact" if kind == "Exact" else "PathPrefix")
    assert [each.backend for each in rule.backends] == [f"shop/{name}:8089"]
    # The challenge is over, and the Secret is there.
    await world.member.delete(INGRESSES, "shop", name)
    await world.member.delete(SERVICES, "shop", name)
    assert await digest(world) == ""
    chain, key = self_signed(HOST)
    await secret(world, chain, key)

    async def is_served() -> bool:
        return await copy(world) == chain and bool(await digest(world))

    await until(is_served, what="the late Secret at the hub")

    async def withdrawn() -> bool:
        return set(await routes()) == {"shop"}

    await until(withdrawn, what="the solver's route is gone")
    assert await world.hub.list(MANAGED_CERTIFICATES, HUB_NAMESPACE) == []
