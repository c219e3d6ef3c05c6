"""The Tenant that holds each domain.

In: the Tenants. Out: the holder of each domain: of two that name one, the older has it, and a former domain is that of
the Tenant that names it now; and what to say of a Tenant whose domain another one has. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from fairlead.api.tenant import Tenant
from fairlead.model.condition import Condition, ConditionReason, ConditionType


def domain_holders(tenants: Iterable[Tenant]) -> dict[str, Tenant]:
    """Return the holder of each domain that a Tenant names, or names are made in, or were."""
    holders: dict[str, Tenant] = {}
    ordered = sorted((tenant for tenant in tenants if not tenant.refused), key=attrgetter("age_order"))
    for tenant in ordered:
        for domain in domains_of(tenant):
            holders.setdefault(domain, tenant)
    for tenant in ordered:
        for domain in tenant.name_domains[1:]:
            holders.setdefault(domain, tenant)
    return holders


def domains_of(tenant: Tenant | None) -> frozenset[str]:
    """Return the domains that a Tenant names, and the one that its names are made in; none for one that is refused."""
    if tenant is None or tenant.refused:
        return frozenset()
    return frozenset({*tenant.spec.domains, tenant.status.domain} - {""})


def held_domains(tenant: Tenant | None) -> frozenset[str]:
    """Return the same, with the former domains whose names are kept."""
    if tenant is None or tenant.refused:
        return frozenset()
    return domains_of(tenant) | frozenset(tenant.name_domains[1:])


def build_domains_taken(tenant: Tenant, tenants: Iterable[Tenant]) -> Condition | None:
    """Return the condition of a Tenant with a domain that an older one has, None when there is none."""
    holders = domain_holders(each for each in tenants if not each.deleting)
    fields = [("spec.domain", tenant.status.domain)] if tenant.status.domain else []
    fields += [("spec.domains", domain) for domain in sorted(tenant.spec.domains)]
    for field, domain in fields:
        holder = holders.get(domain, tenant).metadata.name
        if holder != tenant.metadata.name:
            text = (
                f"{field}: {domain} belongs to Tenant {holder}, which is older, and no other member gets names in it; "
                "remove it from one of the two"
            )
            return Condition(ConditionType.HOSTNAMES_ACCEPTED, False, ConditionReason.DOMAIN_RESERVED, text)
    return None
