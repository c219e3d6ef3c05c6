"""The address families that an IngressClass or a Gateway requests.

In: the annotation fairlead.dev/ip-families, and the addresses that a Gateway asks for. Out: fields of the spec at the
hub, or a sentence. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api.intent import FamilyPolicy
from fairlead.api.meta import KubeObject
from fairlead.api.names import ANNOTATION_IP_FAMILIES
from fairlead.model.keys import IPV4, IPV6, Family, family_of

_KNOWN: dict[str, Family] = {"ipv4": IPV4, "ipv6": IPV6}


def families_by_annotation(obj: KubeObject) -> tuple[Family, ...]:
    """Return the families that an object names, in its order; none when it names none, or something else."""
    parts = [part.strip().lower() for part in obj.annotation(ANNOTATION_IP_FAMILIES).split(",") if part.strip()]
    if len(set(parts)) < len(parts) or not _KNOWN.keys() >= set(parts):
        return ()
    return tuple(_KNOWN[part] for part in parts)


def annotation_problem(obj: KubeObject) -> str:
    """Return what is wrong with the annotation, empty when nothing is."""
    text = obj.annotation(ANNOTATION_IP_FAMILIES)
    if not text.strip() or families_by_annotation(obj):
        return ""
    return f"annotation {ANNOTATION_IP_FAMILIES} is {text[:60]!r}: it must be IPv4, IPv6, or both with a comma between"


def policy_of(families: Sequence[Family], *, required: bool = False) -> FamilyPolicy:
    """Return whether one of two families is enough; ``required``: it is not."""
    return "" if len(families) < 2 else "RequireDualStack" if required else "PreferDualStack"


def of_each_family(addresses: Sequence[str]) -> bool:
    """Return whether these are IP addresses, one of a family at the most."""
    families = [family_of(address) for address in addresses]
    return None not in families and len(set(families)) == len(families)
