"""Which certificate is asked for the names that the hub makes for one member; caches are filled by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hub_parts import intent_context

from fairlead.api.hostname import DNS_ZONES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS
from fairlead.api.meta import AnyResource, JSONObject
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER
from fairlead.api.tenant import TENANTS
from fairlead.hub.certificates.control import DomainCertificates
from fairlead.hub.intents.hostname import HostnameObjects
from fairlead.hub.intents.http import HTTPObjects
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.testing.builders import decoded
from fairlead.translate.generated import domain_certificate

SPACE, DOMAIN = "tenant-east", "east.lb.example.com"


class Noted(Cluster):
    """A cluster that notes what is applied to it."""

    def __init__(self) -> None:
        super().__init__(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.applied: list[JSONObject] = []

    async def apply(self, resource: AnyResource, obj: JSONObject, **text: Any) -> Any:
        self.applied.append(obj)


class World:
    """One member with an IngressClass whose class names an issuer, and a zone."""

    def __init__(self) -> None:
        self.cluster = Noted()
        context = intent_context(cluster=self.cluster)
        HTTPObjects(self.cluster, context.inventory)
        HostnameObjects(self.cluster, context.inventory)
        self.inventory = context.inventory
        self.domains = DomainCertificates(context)
        self.put(TENANTS, "east", status={"domain": DOMAIN})
        self.put(DNS_ZONES, "corp", spec={"zone": "example.com", "provider": "rfc2136"})
        self.put(LOAD_BALANCER_CLASSES, "envoy", annotations={ANNOTATION_CERTIFICATE_ISSUER: "internal"})
        self.put(CERTIFICATE_ISSUERS, "internal", spec={"server": "https://ca", "solvers": ["DNS01"]})
        self.load_balancer("IngressClass")

    def load_balancer(self, kind: str) -> None:
        spec = {"listeners": [{"name": "http", "port": 80}], "origin": {"kind": kind, "name": "web"}}
        self.put(HTTP_LOAD_BALANCERS, "web", namespace=SPACE, spec=spec)

    def put(self, resource: AnyResource, name: str, *, namespace: str = "", **body: Any) -> None:
        meta = {"name": name, "namespace": namespace, "uid": name, "annotations": body.pop("annotations", {})}
        obj = decoded({"metadata": meta, **body}, resource.type)
        self.inventory.caches[resource.plural]._store.put(obj)

    async def asked(self) -> list[tuple[str, list[str], str]]:
        await self.domains.reconcile(SPACE)
        return [
            (each["metadata"]["name"], each["spec"]["hosts"], each["spec"]["issuer"]) for each in self.cluster.applied
        ]


@pytest.mark.req("K-53")
async def test_the_star_of_the_domain_is_asked_of_the_issuer_of_the_class():
    assert await World().asked() == [(domain_certificate(DOMAIN, "internal"), [f"*.{DOMAIN}"], "internal")]


async def test_a_load_balancer_without_generated_names_needs_none():
    world = World()
    world.load_balancer("")
    assert await world.asked() == []


async def test_a_domain_that_an_older_member_has_is_not_asked_for():
    world = World()
    for name, created in (("east", "2030-01-02T00:00:00Z"), ("west", "2030-01-01T00:00:00Z")):
        body = {"metadata": {"name": name, "creationTimestamp": created}, "status": {"domain": DOMAIN}}
        world.inventory.tenants._store.put(decoded(body, TENANTS.type))
    assert await world.asked() == []


@pytest.mark.parametrize(
    ("resource", "name", "body"),
    [
        pytest.param(DNS_ZONES, "corp", {"spec": {"zone": "example.net", "provider": "rfc2136"}}, id="no-zone"),
        pytest.param(LOAD_BALANCER_CLASSES, "envoy", {}, id="no-issuer-is-named"),
        pytest.param(CERTIFICATE_ISSUERS, "internal", {"spec": {"server": "https://ca"}}, id="no-dns-01"),
        pytest.param(TENANTS, "east", {}, id="no-domain"),
    ],
)
async def test_nothing_is_asked_without(resource, name, body):
    world = World()
    world.put(resource, name, **body)
    assert await world.asked() == []


async def test_a_hub_of_one_region_leaves_it_to_the_hub_that_serves_all():
    world = World()
    world.inventory.region = "north"
    assert await world.asked() == []
