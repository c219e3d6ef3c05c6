"""cert-manager's own kinds at an API server: installed as they are released, written as its controllers write them.

The definitions come with its module (`python -m conformance.certmanager`); without them these tests are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest
import yaml

from conformance.certmanager import definitions, why_not
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.errors import Invalid
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds

pytestmark = pytest.mark.skipif(bool(why_not(program=False)), reason=why_not(program=False) or "-")
SPACE, HOST, ACME = "shop", "shop.example.com", "acme.cert-manager.io"
ISSUER = {"name": "letsencrypt", "kind": "Issuer", "group": "cert-manager.io"}
GATEWAY = {"name": "web", "namespace": SPACE, "kind": "Gateway", "group": "gateway.networking.k8s.io"}


def _kind(group: str, kind: str, plural: str) -> Resource[KubeObject]:
    return Resource(group, "v1", kind, plural, True, KubeObject)


ISSUERS = _kind("cert-manager.io", "Issuer", "issuers")
CERTIFICATES = _kind("cert-manager.io", "Certificate", "certificates")
REQUESTS = _kind("cert-manager.io", "CertificateRequest", "certificaterequests")
ORDERS = _kind(ACME, "Order", "orders")
CHALLENGES = _kind(ACME, "Challenge", "challenges")

SPECS: dict[Resource[KubeObject], dict[str, Any]] = {
    ISSUERS: {
        "acme": {
            "server": "https://acme.example.com/directory",
            "privateKeySecretRef": {"name": "account"},
            "solvers": [
                {"http01": {"ingress": {"ingressClassName": "fairlead"}}},
                {"selector": {"dnsNames": [HOST]}, "http01": {"gatewayHTTPRoute": {"parentRefs": [GATEWAY]}}},
            ],
        }
    },
    CERTIFICATES: {
        "secretName": "shop-tls",
        "dnsNames": [HOST],
        "issuerRef": ISSUER,
        "usages": ["digital signature", "key encipherment"],
    },
    REQUESTS: {"request": "Q1NS", "issuerRef": ISSUER, "username": "system:serviceaccount:cert-manager:cert-manager"},
    ORDERS: {"request": "Q1NS", "issuerRef": ISSUER, "dnsNames": [HOST]},
    CHALLENGES: {
        "url": "https://acme.example.com/chall/1",
        "authorizationURL": "https://acme.example.com/authz/1",
        "dnsName": HOST,
        "type": "HTTP-01",
        "token": "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowy",
        "key": "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowy.thumbprint",
        "solver": {"http01": {"ingress": {"ingressClassName": "fairlead"}}},
        "issuerRef": ISSUER,
    },
}
READY = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2030-01-01T00:00:00Z"}
#: What their controllers write of each.
STATUSES: dict[Resource[KubeObject], dict[str, Any]] = {
    ISSUERS: {"acme": {"uri": "https://acme.example.com/acct/1"}, "conditions": [READY]},
    CERTIFICATES: {"conditions": [READY], "revision": 1, "notAfter": "2030-04-01T00:00:00Z"},
    REQUESTS: {"conditions": [{**READY, "reason": "Issued"}], "certificate": "UEVN"},
    ORDERS: {"url": "https://acme.example.com/order/1", "state": "ready"},
    CHALLENGES: {"processing": True, "presented": True, "state": "pending", "reason": "waiting for propagation"},
}
#: What each must refuse: a field that is missing, or has a value that it does not know.
WRONG: dict[Resource[KubeObject], tuple[str, Any]] = {
    CERTIFICATES: ("secretName", None),
    REQUESTS: ("issuerRef", None),
    ORDERS: ("request", None),
    CHALLENGES: ("type", "HTTP-02"),
}


@pytest.fixture
async def cluster(api: ClusterConfig) -> AsyncIterator[Cluster]:
    async with Cluster(api, name="member", qps=0) as member:
        crds: list[JSONObject] = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in definitions()]
        assert await install_crds(member, crds, "helm") == []
        await member.apply(NAMESPACES, {"metadata": {"name": SPACE}}, manager="user")
        yield member


async def read(cluster: Cluster, resource: Resource[KubeObject]) -> dict[str, Any]:
    return msgspec.json.decode(await cluster.raw("GET", resource.path(SPACE, "shop")))


@pytest.mark.req("K-53")
@pytest.mark.parametrize("resource", SPECS, ids=lambda each: each.plural)
async def test_objects_are_stored_as_controllers_write_them(cluster: Cluster, resource) -> None:
    body = {"metadata": {"name": "shop", "namespace": SPACE}, "spec": SPECS[resource]}
    await cluster.create(resource, body)
    # The controllers apply their status, and the spec stays as it is.
    part = {"metadata": {"name": "shop", "namespace": SPACE}, "status": STATUSES[resource]}
    await cluster.apply(resource, part, manager="cert-manager", subresource="status")
    there = await read(cluster, resource)
    assert {key: there["spec"][key] for key in SPECS[resource]} == SPECS[resource]
    assert {key: there["status"][key] for key in STATUSES[resource]} == STATUSES[resource]
    await cluster.delete(resource, SPACE, "shop")


@pytest.mark.parametrize("resource", WRONG, ids=lambda each: each.plural)
async def test_what_its_definitions_refuse_is_refused(cluster: Cluster, resource) -> None:
    spec = deepcopy(SPECS[resource])
    field, value = WRONG[resource]
    spec.pop(field) if value is None else spec.update({field: value})
    with pytest.raises(Invalid, match=field):
        await cluster.create(resource, {"metadata": {"name": "wrong", "namespace": SPACE}, "spec": spec})
