"""Claims and Tenants for the tests of names, in the fewest words."""

from __future__ import annotations

from fairlead.api.meta import ObjectMeta
from fairlead.api.tenant import Tenant, TenantSpec, TenantStatus
from fairlead.hub.names.ownership import ClaimSource, NameClaimant, NameClaims
from fairlead.model.keys import LoadBalancerKey

ROUTE = "LoadBalancerRoute"


def load_balancer(member: str, name: str = "gw") -> LoadBalancerKey:
    return LoadBalancerKey("HTTPLoadBalancer", f"tenant-{member}", name)


def source(member: str, name: str = "web") -> ClaimSource:
    return ClaimSource(ROUTE, f"tenant-{member}", name)


def claimant(member: str, name: str = "web", *, age: int = 1, gw: str = "gw", **fields) -> NameClaimant:
    """Return a claimant that was created in minute ``age``."""
    return NameClaimant(
        space=f"tenant-{member}",
        member=member,
        kind="Ingress",
        namespace="shop",
        name=name,
        uid=f"uid-{name}",
        load_balancer=load_balancer(member, gw),
        created=f"2026-01-01T00:{age:02}:00Z",
        **fields,
    )


def ask(
    claims: NameClaims, member: str, *hosts: str, name: str = "web", age: int = 1, gw: str = "gw"
) -> frozenset[str]:
    who = claimant(member, name, age=age, gw=gw)
    return claims.put(source(member, name), dict.fromkeys(hosts, who))


def tenant(name: str, *domains: str, domain: str = "", created: str = "2026-01-01T00:00:00Z") -> Tenant:
    return Tenant(
        metadata=ObjectMeta(name=name, creation_timestamp=created),
        spec=TenantSpec(domains=list(domains)),
        status=TenantStatus(domain=domain),
    )
