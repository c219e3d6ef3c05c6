"""Services beyond their schema: defaults, cluster IPs, node ports, and the status that follows the type.

In: a Service before and after a write. Out: the Service as kube-apiserver would store it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from podless.failure import (
    ApiFailure,
    Cause,
    duplicate_value,
    forbidden_field,
    invalid,
    invalid_value,
    unsupported_value,
)
from podless.kinds.allocations import Allocations
from podless.kinds.kind import Behaviour, ObjectChange
from podless.kinds.service_rules import validate_service, warn_about_service
from podless.objects import Obj, at, child, items, meta

EXTERNAL = frozenset({"NodePort", "LoadBalancer"})


def needs_node_ports(spec: Obj) -> bool:
    """Return whether node ports are allocated for a Service with this spec."""
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def _ports(spec: Obj) -> list[Obj]:
    return [port for port in cast("list[Any]", spec.get("ports") or []) if isinstance(port, dict)]


def _needs_health_port(spec: Obj) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _name_first_ip(spec: Obj) -> None:
    """Set ``clusterIP`` from ``clusterIPs``, or the reverse, where only one of them is set."""
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif spec.get("clusterIPs") and not spec.get("clusterIP"):
        spec["clusterIP"] = spec["clusterIPs"][0]


class ServiceBehaviour(Behaviour):
    """Services."""

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations

    def default(self, obj: Obj) -> None:
        """Set the defaults, in place."""
        spec = child(obj, "spec")
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        seconds = at(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds")
        if spec["sessionAffinity"] == "ClientIP" and seconds is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
        for port in _ports(spec):
            port.setdefault("protocol", "TCP")
            if not port.get("targetPort"):
                port["targetPort"] = port.get("port")
        if spec["type"] in EXTERNAL:
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        child(child(obj, "status"), "loadBalancer")

    def on_create(self, obj: Obj) -> None:
        """Set an empty status, and the requested families."""
        obj["status"] = {"loadBalancer": {}}
        spec = child(obj, "spec")
        _name_first_ip(spec)
        complete_families(spec, {}, self._allocations.families)

    def on_update(self, change: ObjectChange) -> None:
        """Keep allocated cluster IPs and node ports, and remove the fields that the new type does not have."""
        new, old = change.new, change.old
        spec, before = child(new, "spec"), child(old or {}, "spec")
        if not change.status:
            self._keep(spec, before)
            self._drop(spec, before)
            complete_families(spec, before, self._allocations.families)
        if spec.get("type") != "LoadBalancer" and not change.status:
            new["status"] = child(new, "status") | {"loadBalancer": {}}

    @staticmethod
    def _keep(spec: Obj, before: Obj) -> None:
        if spec.get("type") == "ExternalName":
            return
        same_ips = not spec.get("clusterIPs") or spec["clusterIPs"] == before.get("clusterIPs")
        same_ip = spec.get("clusterIP") in (None, "", before.get("clusterIP"))
        if before.get("type") != "ExternalName" and same_ip and same_ips:
            spec |= {key: before[key] for key in ("clusterIP", "clusterIPs") if key in before}
        _name_first_ip(spec)
        for key in ("ipFamilies", "ipFamilyPolicy"):
            if key in before:
                spec.setdefault(key, before[key])
        if spec.get("type") in EXTERNAL and before.get("type") in EXTERNAL:
            node_ports = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in _ports(before)}
            for port in _ports(spec):
                held = node_ports.get((port.get("port"), port.get("protocol")))
                if held and not port.get("nodePort") and needs_node_ports(spec):
                    port["nodePort"] = held
            if _needs_health_port(spec) and "healthCheckNodePort" in before:
                spec.setdefault("healthCheckNodePort", before["healthCheckNodePort"])

    @staticmethod
    def _drop(spec: Obj, before: Obj) -> None:
        kind, changed = spec.get("type"), spec.get("type") != before.get("type")
        if changed and kind not in EXTERNAL:
            old_ports = {port.get("nodePort") for port in _ports(before)}
            for port in _ports(spec):
                if port.get("nodePort") in old_ports:
                    port.pop("nodePort", None)
            if spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy"):
                spec.pop("externalTrafficPolicy", None)
        if changed and kind != "LoadBalancer":
            for key in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
                if spec.get(key) == before.get(key):
                    spec.pop(key, None)
        if not _needs_health_port(spec) and spec.get("healthCheckNodePort") == before.get("healthCheckNodePort"):
            spec.pop("healthCheckNodePort", None)
        if kind == "ExternalName":
            for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                spec.pop(key, None)
        elif changed and before.get("type") == "ExternalName":
            spec.pop("externalName", None)
        if spec.get("sessionAffinity") != "ClientIP":
            spec.pop("sessionAffinityConfig", None)

    def warnings(self, new: Obj) -> list[str]:
        """Return what about a valid Service its writer is warned of."""
        return warn_about_service(new)

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Return the causes for which the new Service is invalid."""
        new, old = change.new, change.old
        if change.status:
            if items(new, "status", "loadBalancer", "ingress") and at(new, "spec", "type") != "LoadBalancer":
                why = 'may only be used when `spec.type` is "LoadBalancer"'
                return [forbidden_field("status.loadBalancer.ingress", why)]
            return []
        spec, before = child(new, "spec"), child(old or {}, "spec")
        return [*validate_service(new, old), *family_causes(spec, before, self._allocations.families)]

    def allocate(self, new: Obj) -> None:
        """Allocate cluster IPs and node ports; raises 422 when a requested one is not available."""
        spec = child(new, "spec")
        owner = (str(meta(new).get("namespace", "")), str(meta(new).get("name", "")))
        causes = [cause for cause in (*self._take_ip(spec, owner), *self._take_ports(spec, owner)) if cause]
        if causes:
            raise invalid("Service", "", owner[1], causes)

    def _take_ip(self, spec: Obj, owner: tuple[str, str]) -> list[Cause | None]:
        if spec.get("type") == "ExternalName":
            return []
        ips = list(cast("list[str]", spec.get("clusterIPs") or []))
        if ips[:1] == ["None"]:
            return []
        for family in cast("list[str]", spec["ipFamilies"])[len(ips) :]:
            free = self._allocations.free_ip(family)
            if free is None:
                raise ApiFailure(500, "InternalError", "failed to allocate a serviceIP: range is full")
            ips.append(free)
        spec["clusterIP"], spec["clusterIPs"] = ips[0], ips
        return [self._allocations.check_ip(ip, owner) for ip in ips]

    def _take_ports(self, spec: Obj, owner: tuple[str, str]) -> list[Cause | None]:
        causes: list[Cause | None] = []
        if spec.get("type") not in EXTERNAL:
            return causes
        taken: set[int] = {port["nodePort"] for port in _ports(spec) if port.get("nodePort")}
        for index, port in enumerate(_ports(spec)):
            field = f"spec.ports[{index}].nodePort"
            if port.get("nodePort"):
                causes.append(self._allocations.check_port(port["nodePort"], port.get("protocol", "TCP"), owner, field))
            elif needs_node_ports(spec):
                port["nodePort"] = self._next_port(taken)
        if _needs_health_port(spec):
            if not spec.get("healthCheckNodePort"):
                spec["healthCheckNodePort"] = self._next_port(taken)
            check = self._allocations.check_port(spec["healthCheckNodePort"], "TCP", owner, "spec.healthCheckNodePort")
            causes.append(check)
        return causes

    def _next_port(self, taken: set[int]) -> int:
        port = self._allocations.free_port(taken)
        if port is None:
            raise ApiFailure(500, "InternalError", "failed to allocate a nodePort: range is full")
        taken.add(port)
        return port


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
