"""Checks what Envoy would refuse, before anything is published, so that the user gets a sentence.

In: a FrontendSpec or a Target. Out: reasons, empty when all is well. These are the checks that Envoy itself makes
by rejecting a whole frame, which would hold up the valid objects in it. It never raises and never changes
anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_network

from fairlead.model.desired import FrontendSpec, HealthCheck, Target
from fairlead.providers.envoy.clusters import is_dns_name
from fairlead.providers.envoy.names import NAME_PART

_DNS_NAME = re.compile(
    r"(?=.{1,253}\.?$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    r"(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?"
)
_LOOKS_NUMERIC = re.compile(r"[0-9.]+")
_MAX_WEIGHT = 65_535


def invalid_spec(spec: FrontendSpec, *, bind_addresses: Collection[str]) -> list[str]:
    """Return what is wrong with a load balancer, one sentence each; empty when nothing is."""
    reasons = [
        f"{what} {part!r} is not a valid name"
        for what, part in zip(("kind", "namespace", "name"), spec.key, strict=True)
        if not NAME_PART.fullmatch(part)
    ]
    if not spec.listeners:
        reasons.append("it has no ports; at least one is needed")
    keys = [listener.key for listener in spec.listeners]
    reasons += [f"port {key} is listed twice" for key in sorted({key for key in keys if keys.count(key) > 1})]
    binds = [(listener.protocol, listener.bind_port) for listener in spec.listeners]
    if len(set(keys)) == len(keys):
        reasons += [
            f"two ports would share the proxy port {protocol}/{port}"
            for protocol, port in sorted({bind for bind in binds if binds.count(bind) > 1})
        ]
    for listener in spec.listeners:
        reasons += [
            f"port {port} of {listener.key} is not in 1..65535"
            for port in sorted({listener.port, listener.bind_port})
            if not 1 <= port <= 65_535
        ]
    if not bind_addresses:
        reasons.append("no address is assigned")
    reasons += [f"address {address!r} is not an IP address" for address in bind_addresses if not _is_ip(address)]
    reasons += [
        f"source range {text!r} is not a CIDR such as 10.0.0.0/8" for text in spec.source_ranges if not _is_cidr(text)
    ]
    if spec.health_check is not None:
        reasons += _invalid_health_check(spec.health_check)
    return reasons


def invalid_target(target: Target) -> str:
    """Return what is wrong with a target; empty when nothing is."""
    address, port = target.key
    if not 1 <= port <= 65_535:
        return f"target {target.key}: port {port} is not in 1..65535"
    # A zone ("fe80::1%eth0") means something on one machine only.
    if "%" in address or (
        is_dns_name(address) and (_LOOKS_NUMERIC.fullmatch(address) or not _DNS_NAME.fullmatch(address))
    ):
        return f"target {target.key}: {address!r} is neither an IP address nor a DNS name"
    if not 0 <= target.weight <= _MAX_WEIGHT:
        return f"target {target.key}: weight {target.weight} is not in 0..{_MAX_WEIGHT}"
    return ""


def _invalid_health_check(check: HealthCheck) -> list[str]:
    reasons: list[str] = []
    if check.interval_s < 0.01 or check.timeout_s < 0.01:
        reasons.append("health check interval and timeout must be 10 ms or more")
    if check.unhealthy_threshold < 1 or check.healthy_threshold < 1:
        reasons.append("health check thresholds must be 1 or more")
    return reasons


def _is_ip(address: str) -> bool:
    return "%" not in address and not is_dns_name(address)


def _is_cidr(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True
