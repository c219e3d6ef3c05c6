"""The address families of a load balancer, and those of them that are missing.

    ipFamilies      ipFamilyPolicy      addresses
    -------------   -----------------   ---------------------------------------------------
    none            -                   one: of the family of spec.address, else of ``default``
    one             -                   one of that family, or none
    both            RequireDualStack    one of each, or none
    both            any other           one of each as far as there are any, in that order

In: the spec of a load balancer that a member asks for. Out: values and sentences. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from fairlead.model.keys import ANY_FAMILY, Family, WantedFamilies, by_family, family_of, requested_addresses

REQUIRE = "RequireDualStack"


class FamilySpec(Protocol):
    """The family fields of a spec."""

    @property
    def address(self) -> str:
        """Return the address that it asks for, or one of each family after a comma; empty for any."""
        ...

    @property
    def ip_families(self) -> Sequence[Family]:
        """Return the families of the addresses."""
        ...

    @property
    def ip_family_policy(self) -> str:
        """Return whether one of two families is enough."""
        ...


def wanted_families(spec: FamilySpec, default: tuple[Family, ...] = ()) -> WantedFamilies:
    """Return the address families that ``spec`` needs; ``default`` if it names none."""
    families = tuple(spec.ip_families)
    if families:
        return WantedFamilies(families, spec.ip_family_policy == REQUIRE)
    return WantedFamilies(default) if default and not by_family(requested_addresses(spec.address)) else ANY_FAMILY


def families_problem(spec: FamilySpec, *, ipv6: bool) -> str:
    """Return what is wrong with the families of ``spec``, empty when nothing is; ``ipv6``: the class serves it."""
    families = tuple(spec.ip_families)
    if len(set(families)) < len(families):
        return f"spec.ipFamilies: {families[0]} is there twice; name each family once"
    required = spec.ip_family_policy == REQUIRE
    if required and len(families) < 2:
        return "spec.ipFamilyPolicy: RequireDualStack needs both families; set spec.ipFamilies to IPv4 and IPv6"
    if not ipv6 and (families == ("IPv6",) or (required and families)):
        return "spec.ipFamilies: this class does not serve IPv6; ask for IPv4 alone, or choose another class"
    return ""


def missing_families(wanted: WantedFamilies, addresses: Collection[str]) -> str:
    """Return what is wrong with the addresses that a provider has found, empty when they are as wanted.

    A host name may resolve to addresses of both families, and is never wrong.
    """
    present = set(map(family_of, addresses))
    missing = [family for family in wanted.families if family not in present]
    enough = not wanted.all_required and len(missing) < len(wanted.families)
    if not addresses or not missing or None in present or enough:
        return ""
    return (
        f"has {', '.join(addresses)} and no address of {' or '.join(missing)}, which spec.ipFamilies requests; the "
        f"class gives none: choose another class, or leave out {' and '.join(missing)}"
    )
