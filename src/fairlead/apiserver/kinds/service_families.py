"""The IP families of a Service: completed as a Kubernetes API server does, or refused with its messages.

    ipFamilyPolicy      on an API of one family            on an API of both
    ------------------  ---------------------------------  ------------------------------------
    none                SingleStack, on an update: as before; RequireDualStack where headless without selector
    SingleStack         one: that named, else the first    one: that named, else the first
    PreferDualStack     the same                           both, that named first
    RequireDualStack    refused                            both, that named first

In: the spec after and before a write, the families of the API in their order. Out: the spec, completed in place, and
causes. A second family is removed only by SingleStack; an unchanged PreferDualStack Service keeps its families.
Source: https://kubernetes.io/docs/concepts/services-networking/dual-stack/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from fairlead.apiserver.failure import Cause, duplicate_value, invalid_value, unsupported_value
from fairlead.apiserver.objects import Obj

FAMILIES = ["IPv4", "IPv6"]
_SINGLE, _PREFER, _REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
_SEVERAL = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
_REDUCED = "must be 'SingleStack' to release the secondary {}"


def family_of_ip(address: str) -> str:
    """Return the family of a cluster IP."""
    return "IPv6" if ":" in address else "IPv4"


def complete_families(spec: Obj, before: Obj, configured: Sequence[str]) -> None:
    """Set ``ipFamilyPolicy`` and ``ipFamilies`` in place; ``before`` is empty for a new Service."""
    if spec.get("type") == "ExternalName" or _is_same_preference(spec, before):
        return
    without_selector = _is_headless(spec) and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or (_REQUIRE if without_selector else _SINGLE)
    policy = spec["ipFamilyPolicy"]
    if before and policy == _SINGLE:
        for field in ("clusterIPs", "ipFamilies"):
            if _list(spec, field) == _list(before, field):
                spec[field] = _list(spec, field)[:1]
    if policy != _SINGLE and _is_reduced(spec, before, "ipFamilies"):
        return  # it will be refused: fields that the user has removed are not set again
    families = list(_list(spec, "ipFamilies"))
    of_ips = (family_of_ip(ip) for ip in _list(spec, "clusterIPs")[len(families) :] if ip and ip != "None")
    families.extend(family for family in of_ips if family in configured)
    families = families or [configured[0]]
    both = without_selector or len(configured) == 2
    if policy in (_PREFER, _REQUIRE) and len(families) == 1 and both:
        families += [family for family in FAMILIES if family != families[0]]
    spec["ipFamilies"] = families


def family_causes(spec: Obj, before: Obj, configured: Sequence[str]) -> list[Cause]:
    """Return the causes for which the families of a completed spec are invalid."""
    if spec.get("type") == "ExternalName":
        return []
    policy, families, ips = spec.get("ipFamilyPolicy"), _list(spec, "ipFamilies"), _list(spec, "clusterIPs")
    causes: list[Cause] = []
    for index, family in enumerate(families):
        if family not in FAMILIES:
            causes.append(unsupported_value(f"spec.ipFamilies[{index}]", family, FAMILIES))
        elif family in families[:index]:
            causes.append(duplicate_value(f"spec.ipFamilies[{index}]", family))
    if not _is_headless(spec):
        for index, (ip, family) in enumerate(zip(ips, families, strict=False)):
            if ip and family in FAMILIES and family_of_ip(ip) != family:
                why = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                causes.append(invalid_value(f"spec.clusterIPs[{index}]", ip, why))
    return causes or [*_policy_causes(spec, before, policy), *_configured_causes(spec, policy, families, configured)]


def _policy_causes(spec: Obj, before: Obj, policy: Any) -> list[Cause]:
    named = (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family"))
    if policy != _SINGLE:
        reduced = [_REDUCED.format(noun) for field, noun in named if _is_reduced(spec, before, field)]
        return [invalid_value("spec.ipFamilyPolicy", policy, why) for why in reduced]
    several = (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families"))
    too_many = [_SEVERAL.format(noun) for field, noun in several if len(_list(spec, field)) == 2]
    return [invalid_value("spec.ipFamilyPolicy", policy, why) for why in too_many]


def _configured_causes(spec: Obj, policy: Any, families: Sequence[Any], configured: Sequence[str]) -> list[Cause]:
    if _is_headless(spec) and not spec.get("selector"):
        return []  # it gets no cluster IP, and its endpoints are the user's
    causes: list[Cause] = []
    if policy == _REQUIRE and len(configured) < 2:
        causes.append(
            invalid_value("spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services")
        )
    for index, family in enumerate(families):
        if family not in configured:
            causes.append(invalid_value(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    return causes


def _is_same_preference(spec: Obj, before: Obj) -> bool:
    """Return whether a PreferDualStack Service keeps its policy, families and cluster IPs in this update."""
    fields = ("ipFamilyPolicy", "ipFamilies", "clusterIPs")
    same = all(spec.get(field) == before.get(field) for field in fields)
    return same and before.get("ipFamilyPolicy") == _PREFER and bool(before.get("clusterIPs"))


def _is_reduced(spec: Obj, before: Obj, field: str) -> bool:
    return 0 < len(_list(spec, field)) < len(_list(before, field))


def _is_headless(spec: Obj) -> bool:
    return spec.get("clusterIP") == "None" or "None" in _list(spec, "clusterIPs")[:1]


def _list(spec: Obj, field: str) -> list[Any]:
    return cast("list[Any]", spec.get(field) or [])
