"""The objects by which a member's users serve HTTP, and the addresses that they get for them.

In: a member. Out: objects and certificates of the namespace ``default``, written as ``kubectl apply`` would, and the
address once it is shown. What listens where is decided by the caller.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS
from fairlead.api.kubernetes import INGRESS_CLASSES, INGRESSES, SECRETS
from fairlead.api.meta import JSONObject, Resource, is_true
from fairlead.api.names import GATEWAY_CONTROLLER, INGRESS_CONTROLLER
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from podless.offline import gateway_definitions

#: The IngressClass or GatewayClass of a member.
CLASS = "fairlead"


async def put(member: Member, kind: Resource[Any], name: str, spec: Mapping[str, Any]) -> None:
    """Write an object as its user: of the namespace ``default``, where its kind has namespaces."""
    meta: JSONObject = {"name": name, "namespace": "default"} if kind.namespaced else {"name": name}
    await member.cluster.apply(kind, {"metadata": meta, "spec": dict(spec)}, manager="user")


async def put_class(member: Member, kind: Resource[Any]) -> None:
    """Write the class of Ingresses or of Gateways; the kinds of Gateway API are installed first."""
    if kind is INGRESSES:
        await put(member, INGRESS_CLASSES, CLASS, {"controller": INGRESS_CONTROLLER})
        return
    if problems := await install_crds(member.cluster, gateway_definitions(), "user"):
        raise ExpectationFailed(problems[0])
    await put(member, GATEWAY_CLASSES, CLASS, {"controllerName": GATEWAY_CONTROLLER})


def https_spec(kind: Resource[Any], host: str, service: str) -> JSONObject:
    """Return the spec of an Ingress that leads to ``service``, or of a Gateway, for ``host`` with the Secret cert."""
    if kind is INGRESSES:
        backend = {"service": {"name": service, "port": {"number": 80}}}
        path = {"path": "/", "pathType": "Prefix", "backend": backend}
        return {
            "ingressClassName": CLASS,
            "tls": [{"hosts": [host], "secretName": "cert"}],
            "rules": [{"host": host, "http": {"paths": [path]}}],
        }
    https = {
        "name": "https",
        "port": service_port(443),
        "protocol": "HTTPS",
        "hostname": host,
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": "cert"}]},
    }
    return {"gatewayClassName": CLASS, "listeners": [https]}


async def certificate(member: Member, host: str, name: str = "cert") -> bytes:
    """Write a Secret with a new certificate for ``host``; return the certificate, PEM."""
    chain, key = self_signed(host)
    await write_certificate(member, chain, key, name)
    return chain


async def write_certificate(member: Member, chain: bytes, key: bytes, name: str = "cert") -> None:
    """Write a Secret with a certificate and its key, both PEM."""
    body: JSONObject = {
        "metadata": {"name": name, "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()},
    }
    await member.cluster.apply(SECRETS, body, manager="user")


async def ingress_address(member: Member, name: str) -> str:
    """Return the address that an Ingress shows, once it has one."""

    async def address() -> str:
        shown = await member.cluster.get(INGRESSES, "default", name)
        return next((entry.ip for entry in shown.status.load_balancer.ingress or ()), "")

    async def has_one() -> bool:
        return bool(await address())

    await wait_until(has_one, f"Ingress {name} of {member.name} has an address")
    return await address()


async def gateway_address(member: Member, name: str) -> str:
    """Return the address that a Gateway shows, once it is programmed."""

    async def address() -> str:
        shown = await member.cluster.get(GATEWAYS, "default", name)
        programmed = is_true(shown.status.conditions, "Programmed")
        return next((address.value for address in shown.status.addresses or ()), "") if programmed else ""

    async def has_one() -> bool:
        return bool(await address())

    await wait_until(has_one, f"Gateway {name} of {member.name} is programmed")
    return await address()
