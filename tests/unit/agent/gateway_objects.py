"""Gateways, ListenerSets and what they refer to, as short as a test wants them."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.agent.sources.gateway.plan import GatewayPlan, GatewayView, Judgement, ListenerPlan
from fairlead.agent.sources.http import CertificateState
from fairlead.api.gateway import Gateway, ListenerSet, ReferenceGrant
from fairlead.model.http import L7Listener

CREATED = "2026-01-01T00:00:00Z"
GROUP = "gateway.networking.k8s.io"
CA = {"kind": "ConfigMap", "name": "ca"}


def gateway(*listeners: dict[str, Any], generation: int = 1, **spec: Any) -> Gateway:
    meta = {"name": "main", "namespace": "infra", "uid": "uid-1", "generation": generation}
    fields = {"gatewayClassName": "fairlead", "listeners": list(listeners), **spec}
    return msgspec.convert({"metadata": meta, "spec": fields}, Gateway)


def listener_set(
    *listeners: dict[str, Any], name: str = "more", namespace: str = "infra", created: str = CREATED
) -> ListenerSet:
    meta = {"name": name, "namespace": namespace, "generation": 1, "creationTimestamp": created}
    spec = {"parentRef": {"name": "main", "namespace": "infra"}, "listeners": list(listeners)}
    return msgspec.convert({"metadata": meta, "spec": spec}, ListenerSet)


def http(name: str = "http", port: int = 80, **fields: Any) -> dict[str, Any]:
    return {"name": name, "port": port, "protocol": "HTTP", **fields}


def https(name: str = "https", port: int = 443, secret: str = "cert", **fields: Any) -> dict[str, Any]:
    return {"name": name, "port": port, "protocol": "HTTPS", "tls": certificate(name=secret), **fields}


def certificate(**reference: Any) -> dict[str, Any]:
    return {"mode": "Terminate", "certificateRefs": [reference]}


def grant(
    *, source: str = "Gateway", kind: str = "Secret", namespace: str = "certs", of: str = "infra"
) -> ReferenceGrant:
    spec = {"from": [{"group": GROUP, "kind": source, "namespace": of}], "to": [{"group": "", "kind": kind}]}
    return msgspec.convert({"metadata": {"name": "grant", "namespace": namespace}, "spec": spec}, ReferenceGrant)


def view(of: Gateway, *sets: ListenerSet, **fields: Any) -> GatewayView:
    defaults: dict[str, Any] = {
        "certificates": {("infra", "cert"): CertificateState("d1"), ("certs", "cert"): CertificateState("d2")},
        "namespaces": {"infra": {"team": "infra"}, "shop": {"team": "shop"}, "certs": {}},
    }
    return GatewayView(gateway=of, listener_sets=sets, **{**defaults, **fields})


def reasons(judgements: tuple[Judgement, ...]) -> dict[str, str]:
    """Return "status/reason" by type."""
    return {each.type: f"{each.status}/{each.reason}" for each in judgements}


def kinds(plan: ListenerPlan) -> list[str]:
    return [each.kind for each in plan.kinds]


def served(plan: GatewayPlan) -> dict[str, L7Listener]:
    return {each.name: each for each in plan.spec.listeners} if plan.spec is not None else {}
