"""The certificate for the names that the hub makes: when it is asked for, what is served with it, when it goes."""

from __future__ import annotations

import base64

import pytest
from hub_world import HubWorld
from names_world import gateway, owned, route

from fairlead.api.hostname import DNS_ZONES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import SECRETS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER
from fairlead.api.tenant import TENANTS
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.certificates import pair_digest
from fairlead.translate.generated import domain_certificate
from fairlead_demo.worlds.certificates import self_signed

DOMAIN = "east.lb.example.com"
CERTIFICATE = domain_certificate(DOMAIN, "internal")
OF_CLASS = {"kind": "IngressClass", "name": "fairlead"}
OF_GATEWAY = {"kind": "Gateway", "namespace": "shop", "name": "web", "uid": "uid-of-gateway"}


async def of_class(world, issuer):
    patch = {"metadata": {"annotations": {ANNOTATION_CERTIFICATE_ISSUER: issuer}}}
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "envoy", patch)


async def zone(world):
    spec = {"zone": "example.com", "provider": "rfc2136", "parameters": {"server": "127.0.0.1"}}
    await world.user.apply(DNS_ZONES, {"metadata": {"name": "corp"}, "spec": spec}, manager="operator")


async def issuer(world, **spec):
    # Nothing listens there: what is asked of it is looked at, and no answer.
    spec = {"server": "http://127.0.0.1:9/directory", "solvers": ["HTTP01", "DNS01"], **spec}
    await world.user.apply(CERTIFICATE_ISSUERS, {"metadata": {"name": "internal"}, "spec": spec}, manager="operator")


async def asked(world, member="east"):
    there = await world.user.list(MANAGED_CERTIFICATES, f"tenant-{member}")
    return {each.metadata.name: each.spec.hosts for each in there if not each.deleting}


@pytest.fixture
async def east(world: HubWorld):
    world.domain = "lb.example.com"
    hub = await world.start()
    await world.tenant()
    await zone(world)
    await gateway(world, origin=OF_CLASS)
    await route(world, "shop.example.com")
    await owned(world, f"web-shop.{DOMAIN}", "east")
    return hub


async def wait_asked(world, *hosts):
    async def check():
        return list((await asked(world)).values()) == [tuple(hosts)]

    await world.until(check, what=f"a certificate for {hosts} is asked for")


async def wait_none(world):
    async def check():
        return not await asked(world)

    await world.until(check, what="no certificate is asked for")


async def issue(world):
    """Do what the authority and the control of certificates do: write the Secret, and then which version it has."""
    chain, key = self_signed(f"*.{DOMAIN}")
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    meta = {"name": CERTIFICATE, "namespace": "tenant-east"}
    await world.user.apply(SECRETS, {"metadata": meta, "type": "kubernetes.io/tls", "data": data}, manager="authority")
    digest = pair_digest(chain, key)
    status = {"status": {"digest": digest}}
    await world.user.merge_patch(MANAGED_CERTIFICATES, "tenant-east", CERTIFICATE, status, subresource="status")
    return digest


def config(world, name="shop.gw"):
    return world.cloud.load_balancers[LoadBalancerKey("HTTPLoadBalancer", "tenant-east", name)].spec.l7


def secure(world, name="shop.gw"):
    return [(each.port, each.hostname) for each in config(world, name).listeners if each.protocol == "HTTPS"]


@pytest.mark.req("K-50", "K-53")
async def test_an_ingress_is_served_over_https_once_certified(world, east):
    await world.quiet()
    assert await asked(world) == {}
    await issuer(world)
    await of_class(world, "internal")
    await wait_asked(world, f"*.{DOMAIN}")
    assert list(await asked(world)) == [CERTIFICATE]
    assert secure(world) == []
    digest = await issue(world)
    await world.until(lambda: secure(world) == [(443, f"*.{DOMAIN}")], what="HTTPS at the name")
    assert config(world).certificates[CERTIFICATE].digest == digest
    (taken,) = config(world).routes
    assert ("generated/443", (f"web-shop.{DOMAIN}",)) in [(each.listener, each.hostnames) for each in taken.attachments]
    # A renewal is another version of the same certificate.
    renewed = await issue(world)
    await world.until(lambda: config(world).certificates[CERTIFICATE].digest == renewed, what="the renewed one")
    # A restart writes nothing, and serves what was served.
    await world.quiet()
    await world.stop(east)
    again = await world.start()
    await world.quiet()
    assert secure(world) == [(443, f"*.{DOMAIN}")]
    assert [each for each in again.written if "HTTPLoadBalancer" in each or "apply ManagedC" in each] == []
    await of_class(world, "")
    await wait_none(world)
    await world.until(lambda: secure(world) == [], what="HTTP only")


@pytest.mark.req("K-50", "K-53")
async def test_a_gateway_without_https_is_served_over_it_too(world, east):
    await gateway(world, name="gateway.shop.web", origin=OF_GATEWAY)
    await route(world, "shop.example.com", kind="HTTPRoute", name="of-gw", load_balancer="gateway.shop.web")
    await issuer(world)
    await of_class(world, "internal")
    await wait_asked(world, f"*.{DOMAIN}")
    await issue(world)
    name = f"web-shop-gw.{DOMAIN}"
    await world.until(lambda: secure(world, "gateway.shop.web") == [(443, name)], what="HTTPS at the name")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"solvers": ["HTTP01"]}, id="a-star-is-proven-by-dns-only"),
        pytest.param({"tenants": ["west"]}, id="for-another-member"),
        pytest.param({"domains": ["example.net"]}, id="for-another-domain"),
    ],
)
async def test_nothing_is_asked_of_an_issuer_that_would_not_issue(world, east, spec):
    await issuer(world, **spec)
    await of_class(world, "internal")
    await world.quiet()
    assert await asked(world) == {}
    await issuer(world, solvers=["DNS01"], tenants=[], domains=[])
    await wait_asked(world, f"*.{DOMAIN}")


async def test_the_generated_name_needs_a_domain_and_a_zone(world, east):
    await issuer(world)
    await of_class(world, "internal")
    await wait_asked(world, f"*.{DOMAIN}")
    digest = await issue(world)
    await world.until(lambda: secure(world) == [(443, f"*.{DOMAIN}")], what="HTTPS at the name")
    await world.user.merge_patch(TENANTS, "", "east", {"spec": {"domain": "apps.example.com"}})

    async def both():
        return sorted((await asked(world)).values()) == [("*.apps.example.com",), (f"*.{DOMAIN}",)]

    await world.until(both, what="a certificate for each domain")
    await world.until(lambda: config(world).certificates[CERTIFICATE].digest == digest, what="the former one serves")
    assert secure(world) == [(443, f"*.{DOMAIN}")]
    await world.user.merge_patch(TENANTS, "", "east", {"spec": {"keepFormerDomain": "0s"}})
    await wait_asked(world, "*.apps.example.com")
    await world.until(lambda: secure(world) == [], what="the former name is left")
    await world.user.merge_patch(TENANTS, "", "east", {"spec": {"domain": "apps.example.net"}})
    await wait_none(world)


async def test_a_certificate_is_served_after_its_issuer_or_zone_is_deleted(world, east):
    await issuer(world)
    await of_class(world, "internal")
    await wait_asked(world, f"*.{DOMAIN}")
    await issue(world)
    await world.until(lambda: secure(world) == [(443, f"*.{DOMAIN}")], what="HTTPS at the name")
    await world.user.delete(CERTIFICATE_ISSUERS, "", "internal")
    await world.user.delete(DNS_ZONES, "", "corp")
    await world.quiet()
    assert list(await asked(world)) == [CERTIFICATE]
    assert secure(world) == [(443, f"*.{DOMAIN}")]


async def test_requested_names_stay_while_an_object_is_unreadable(world, east):
    await issuer(world)
    await of_class(world, "internal")
    await wait_asked(world, f"*.{DOMAIN}")
    cache = east.hub.inventory.caches["dnszones"]
    cache.problem = "it cannot be read"
    await of_class(world, "")
    await world.quiet()
    assert list(await asked(world)) == [CERTIFICATE]
    cache.problem = ""
    await of_class(world, "another")
    await wait_none(world)


async def test_another_member_cannot_have_the_star_of_the_domain(world, east):
    await world.tenant("west")
    await issuer(world)
    spec = {"hosts": [f"*.{DOMAIN}"], "issuer": "internal"}
    meta = {"name": "acme.guess", "namespace": "tenant-west"}
    await world.user.apply(MANAGED_CERTIFICATES, {"metadata": meta, "spec": spec}, manager="agent")

    async def refused():
        there = await world.user.get(MANAGED_CERTIFICATES, "tenant-west", "acme.guess")
        return next((each for each in there.status.conditions or () if each.reason == "NotAllowed"), None)

    condition = await world.until(refused, what="it is refused")
    assert "is taken" in condition.message
    assert "east is" not in condition.message


@pytest.mark.req("E-16")
async def test_holds_end_when_no_load_balancer_names_the_target(world, east):
    for name in ("left", "used"):
        chain, key = self_signed(f"{name}.example.com")
        data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
        meta = {"name": name, "namespace": "tenant-east"}
        await world.user.apply(SECRETS, {"metadata": meta, "type": "kubernetes.io/tls", "data": data}, manager="agent")

    async def serve(*names):
        https = [
            {"name": name, "port": 443, "protocol": "HTTPS", "hostname": f"{name}.example.com", "certificates": [name]}
            for name in names
        ]
        spec = {"listeners": https, "certificates": [{"name": name} for name in names]}
        body = {"metadata": {"name": "secure", "namespace": "tenant-east"}, "spec": spec}
        await world.user.apply(HTTP_LOAD_BALANCERS, body, manager="agent")

    held = east.hub.intents["HTTPLoadBalancer"]._certificates._known
    await serve("left", "used")
    await world.until(lambda: {name for _, name in held} == {"left", "used"}, what="both are held")
    await serve("used")
    await world.until(lambda: {name for _, name in held} == {"used"}, what="one is held")
    await world.user.delete(HTTP_LOAD_BALANCERS, "tenant-east", "secure")
    await world.until(lambda: not held, what="none is held")
