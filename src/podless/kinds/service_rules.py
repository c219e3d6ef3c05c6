"""The checks of a Service, with the messages of Kubernetes."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, cast

from podless.failure import (
    Cause,
    duplicate_value,
    forbidden_field,
    immutable_field,
    invalid_value,
    required_value,
    unsupported_value,
)
from podless.kinds.names import DNS_LABEL, DNS_SUBDOMAIN, LABEL_RULE, PORT_RULE, SUBDOMAIN_RULE, check_key, check_labels
from podless.objects import Obj, at, child

SOURCE_RANGES_ANNOTATION = "service.beta.kubernetes.io/load-balancer-source-ranges"
TYPES = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
PROTOCOLS = ["SCTP", "TCP", "UDP"]
_ENUMS = {
    "type": TYPES,
    "sessionAffinity": ["ClientIP", "None"],
    "externalTrafficPolicy": ["Cluster", "Local"],
    "internalTrafficPolicy": ["Cluster", "Local"],
    "trafficDistribution": ["PreferClose", "PreferSameZone", "PreferSameNode"],
    "ipFamilyPolicy": ["SingleStack", "PreferDualStack", "RequireDualStack"],
}
_PORT_NAME_FAULTS = {
    "must be no more than 15 characters": re.compile(r".{16}"),
    "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": re.compile(r"[^-a-z0-9]"),
    "must contain at least one letter (a-z)": re.compile(r"^[^a-z]*$"),
    "must not contain consecutive hyphens": re.compile(r"--"),
    "must not begin or end with a hyphen": re.compile(r"^-|-$"),
}


def check_port_number(value: Any, field: str) -> list[Cause]:
    """Check a port number."""
    return [] if isinstance(value, int) and 1 <= value <= 65535 else [invalid_value(field, value, PORT_RULE)]


def _port_name_faults(name: str) -> list[str]:
    return [fault for fault, pattern in _PORT_NAME_FAULTS.items() if pattern.search(name)]


def validate_service(new: Obj, old: Obj | None) -> list[Cause]:
    """Return the causes for which a Service is invalid."""
    spec = child(new, "spec")
    causes: list[Cause] = []
    for field, allowed in _ENUMS.items():
        if spec.get(field) is not None and spec[field] not in allowed:
            causes.append(unsupported_value(f"spec.{field}", spec[field], allowed))
    headless = spec.get("clusterIP") == "None" or "None" in (spec.get("clusterIPs") or [])
    if not spec.get("ports") and spec.get("type") != "ExternalName" and not headless:
        causes.append(required_value("spec.ports"))
    if headless and spec.get("type") in {"NodePort", "LoadBalancer"}:
        causes.append(
            invalid_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {spec['type']} services")
        )
    causes += _check_ports(cast("list[Obj]", spec.get("ports") or []), str(spec.get("type")))
    causes += check_labels(spec.get("selector"), "spec.selector")
    causes += _check_type_fields(spec)
    if old is None or _source_ranges(old) != _source_ranges(new) or at(old, "spec", "type") != spec.get("type"):
        causes += _check_source_ranges(new, old)
    if old is None or at(old, "spec", "externalIPs") != spec.get("externalIPs"):
        causes += _check_external_ips(spec)
    if old is not None:
        causes += _check_changes(spec, child(old, "spec"))
    return causes


def _check_external_ips(spec: Obj) -> list[Cause]:
    causes: list[Cause] = []
    for index, text in enumerate(cast("list[str]", spec.get("externalIPs") or [])):
        why = ""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        else:
            if address.is_unspecified:
                why = "may not be unspecified (0.0.0.0 or ::)"
            elif address.is_loopback:
                why = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            elif address.is_link_local:
                why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
        if why:
            causes.append(invalid_value(f"spec.externalIPs[{index}]", text, why))
    return causes


def _check_ports(ports: list[Obj], kind: str) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        causes += _check_port(port, path, alone=len(ports) == 1, kind=kind)
        name, key = port.get("name") or "", (port.get("protocol"), port.get("port"))
        if name and name in names:
            causes.append(duplicate_value(f"{path}.name", name))
        if key in numbers:
            causes.append(duplicate_value(path, {"port": port.get("port"), "protocol": port.get("protocol")}))
        names.add(name)
        numbers.add(key)
    return causes


def _check_port(port: Obj, path: str, *, alone: bool, kind: str) -> list[Cause]:
    causes: list[Cause] = []
    name = port.get("name") or ""
    if not name and not alone:
        causes.append(required_value(f"{path}.name"))
    elif name and (len(name) > 63 or not DNS_LABEL.match(name)):
        causes.append(invalid_value(f"{path}.name", name, LABEL_RULE))
    causes += check_port_number(port.get("port", 0), f"{path}.port")
    if port.get("protocol") not in PROTOCOLS:
        causes.append(unsupported_value(f"{path}.protocol", port.get("protocol"), PROTOCOLS))
    target = port.get("targetPort")
    if isinstance(target, int):
        causes += check_port_number(target, f"{path}.targetPort")
    elif isinstance(target, str):
        causes += [invalid_value(f"{path}.targetPort", target, fault) for fault in _port_name_faults(target)]
    if port.get("appProtocol"):
        causes += check_key(port["appProtocol"], f"{path}.appProtocol")
    if port.get("nodePort") and kind in {"ClusterIP", "ExternalName"}:
        causes.append(forbidden_field(f"{path}.nodePort", f"may not be used when `type` is '{kind}'"))
    return causes


def _check_type_fields(spec: Obj) -> list[Cause]:
    causes: list[Cause] = []
    kind = spec.get("type")
    if kind == "ExternalName":
        name = spec.get("externalName") or ""
        if not name:
            causes.append(required_value("spec.externalName"))
        elif not DNS_SUBDOMAIN.match(name.rstrip(".")):
            causes.append(invalid_value("spec.externalName", name, SUBDOMAIN_RULE))
    if kind != "LoadBalancer":
        why = "may only be used when `type` is 'LoadBalancer'"
        fields = ("loadBalancerClass", "allocateLoadBalancerNodePorts")
        causes += [forbidden_field(f"spec.{field}", why) for field in fields if spec.get(field) is not None]
    elif spec.get("loadBalancerClass") is not None:
        causes += check_key(spec["loadBalancerClass"], "spec.loadBalancerClass")
    if kind not in {"NodePort", "LoadBalancer"} and spec.get("externalTrafficPolicy") and not spec.get("externalIPs"):
        why = "may only be set for externally-accessible services"
        causes.append(invalid_value("spec.externalTrafficPolicy", spec["externalTrafficPolicy"], why))
    check_port = spec.get("healthCheckNodePort")
    if check_port and (kind != "LoadBalancer" or spec.get("externalTrafficPolicy") != "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        causes.append(invalid_value("spec.healthCheckNodePort", check_port, why))
    seconds = at(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds")
    if seconds is not None and not 0 < seconds <= 86400:
        field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        causes.append(invalid_value(field, seconds, "must be greater than 0 and less than 86400"))
    return causes


def _check_changes(spec: Obj, before: Obj) -> list[Cause]:
    causes: list[Cause] = []
    held, external = before.get("clusterIP"), "ExternalName"
    if held and spec.get("type") != external and before.get("type") != external and spec.get("clusterIP") != held:
        causes.append(invalid_value("spec.clusterIPs[0]", [spec.get("clusterIP")], "may not change once set"))
    balanced = spec.get("type") == before.get("type") == "LoadBalancer"
    if balanced and spec.get("loadBalancerClass") != before.get("loadBalancerClass"):
        causes.append(invalid_value("spec.loadBalancerClass", spec.get("loadBalancerClass"), "may not change once set"))
    checked, wanted = before.get("healthCheckNodePort"), spec.get("healthCheckNodePort")
    if checked and wanted and wanted != checked:
        causes.append(immutable_field("spec.healthCheckNodePort", wanted))
    return causes


def _source_ranges(obj: Obj) -> list[tuple[str, str]]:
    """Return the source ranges of a Service, each with its field; the annotation counts without the field."""
    ranges = cast("list[Any]", at(obj, "spec", "loadBalancerSourceRanges") or [])
    if ranges:
        return [(f"spec.loadBalancerSourceRanges[{index}]", str(block)) for index, block in enumerate(ranges)]
    text = str(at(obj, "metadata", "annotations", SOURCE_RANGES_ANNOTATION) or "").strip()
    return [(f"metadata.annotations[{SOURCE_RANGES_ANNOTATION}]", block) for block in text.split(",") if text]


def _check_source_ranges(obj: Obj, old: Obj | None) -> list[Cause]:
    ranges = _source_ranges(obj)
    # Kubernetes names the field so in errors, and otherwise in warnings.
    named = [(field.replace("spec.load", "spec.Load"), block.strip()) for field, block in ranges]
    if named and at(obj, "spec", "type") != "LoadBalancer":
        field = named[0][0] if "annotations" in named[0][0] else named[0][0].partition("[")[0]
        return [forbidden_field(field, "may only be used when `type` is 'LoadBalancer'")]
    # What an earlier release accepted may stay.
    stored = {block.strip() for _, block in _source_ranges(old)} if old is not None else set[str]()
    causes = ((field, block, _cidr_problem(block)) for field, block in named if block not in stored)
    return [invalid_value(field, block, problem) for field, block, problem in causes if problem]


def warn_about_service(obj: Obj) -> list[str]:
    """Return what about a valid Service Kubernetes warns of."""
    return [f"{field}: {text}" for field, block in _source_ranges(obj) for text in cidr_warnings(block) or ()]


def _cidr_problem(text: str) -> str:
    """Return why Kubernetes refuses a new CIDR, since 1.36 also one with host bits; empty when it accepts it."""
    if cidr_warnings(text) is None:
        return "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    written, _, bits = text.partition("/")
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return "must not have leading 0s in IP or prefix length"
    if str(int(bits)) != bits:
        return "must not have leading 0s in IP or prefix length"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return "must not have an IPv4-mapped IPv6 address"
    network = ipaddress.ip_network((address, int(bits)), strict=False)
    return "" if address == network.network_address else "must not have bits set beyond the prefix length"


def cidr_warnings(text: str) -> list[str] | None:
    """Return the warnings about the CIDR in ``text``; None when it is not a CIDR.

    Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/4858-ip-cidr-validation
    """
    text = text.strip()
    written, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()) or len(bits) > 4 or "%" in written:
        return None
    decimal = _without_leading_zeros(written)
    try:
        address = ipaddress.ip_address(decimal)
        network = ipaddress.ip_network((address, int(bits)), strict=False)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped is not None and network.prefixlen >= 96:
        address, network = mapped, ipaddress.ip_network((mapped, network.prefixlen - 96), strict=False)
    warnings: list[str] = []
    if address != network.network_address:
        alone = f"{address}/{address.max_prefixlen}"
        warnings.append(f'CIDR value "{text}" is ambiguous in this context (should be "{network}" or "{alone}"?)')
    if mapped is not None or decimal != written or str(int(bits)) != bits:
        future = "will be considered invalid in a future Kubernetes release"
        warnings.append(f'non-standard CIDR value "{text}" {future}: use "{network}"')
    elif not warnings and address.version == 6 and str(network) != text:
        warnings.append(f'IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")')
    return warnings


def _without_leading_zeros(address: str) -> str:
    """Return an address with a decimal IPv4 part: Kubernetes reads ``010`` as 10 in fields like these."""
    head, colon, quad = address.rpartition(":")
    if quad.count(".") != 3:
        return address
    octets = [part.lstrip("0") or "0" if part.isascii() and part.isdigit() else part for part in quad.split(".")]
    return f"{head}{colon}{'.'.join(octets)}"
