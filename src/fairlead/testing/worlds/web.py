"""The objects by which a member's users serve HTTP, and the addresses that they get for them.

In: a member. Out: objects and certificates of the namespace ``default``, written as ``kubectl apply`` would, and the
address once it is shown. What listens where is decided by the caller.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from fairlead.api.conditions import is_true
from fairlead.api.gateway import GATEWAYS
from fairlead.api.ingress import INGRESSES
from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import JSONObject, Resource
from fairlead.testing.certificates import self_signed
from fairlead.testing.worlds.member import Member
from fairlead.testing.worlds.processes import wait_until


async def put(member: Member, kind: Resource[Any], name: str, spec: Mapping[str, Any]) -> None:
    """Write an object as its user: of the namespace ``default``, where its kind has namespaces."""
    meta: JSONObject = {"name": name, "namespace": "default"} if kind.namespaced else {"name": name}
    await member.cluster.apply(kind, {"metadata": meta, "spec": dict(spec)}, manager="user")


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
        return next((each.ip for each in shown.status.load_balancer.ingress or ()), "")

    async def has_one() -> bool:
        return bool(await address())

    await wait_until(has_one, f"Ingress {name} of {member.name} has an address")
    return await address()


async def gateway_address(member: Member, name: str) -> str:
    """Return the address that a Gateway shows, once it is programmed."""

    async def address() -> str:
        shown = await member.cluster.get(GATEWAYS, "default", name)
        programmed = is_true(shown.status.conditions, "Programmed")
        return next((each.value for each in shown.status.addresses or ()), "") if programmed else ""

    async def has_one() -> bool:
        return bool(await address())

    await wait_until(has_one, f"Gateway {name} of {member.name} is programmed")
    return await address()
