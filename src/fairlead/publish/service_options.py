"""The options of a Service besides its ports, validated.

In: a Service that is ours. Out: ``ServiceOptions``, or ``Refused`` with the exact value that is wrong.
Never guesses: a wrong value is refused, and what worked before stays.
"""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from fairlead.api.cidrs import IPNetwork, parse_cidr
from fairlead.api.hostnames import host_problem
from fairlead.api.kubernetes import Service
from fairlead.api.names import (
    ANNOTATION_HOSTNAME,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_TARGET,
)
from fairlead.api.naming import did_you_mean
from fairlead.model.condition import ConditionReason
from fairlead.model.families import family_of, requested_addresses
from fairlead.publish.publication import Refused, families_of

#: Kubernetes' own, older spelling of ``spec.loadBalancerSourceRanges``; counts only when that field is empty.
ANNOTATION_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"

#: The annotations that ``read_options`` reads.
OPTION_ANNOTATIONS = frozenset(
    {
        ANNOTATION_HOSTNAME,
        ANNOTATION_PROXY_PROTOCOL,
        ANNOTATION_REQUESTED_ADDRESS,
        ANNOTATION_SOURCE_RANGES,
        ANNOTATION_TARGET,
    }
)

#: In the annotation for names: the hub is to make one.
GENERATE = "generate"
MAX_HOSTNAMES = 32

TargetOption = Literal["", "Node", "Pod"]


class ServiceOptions(msgspec.Struct, frozen=True):
    """Options of a Service. ``source_ranges`` are canonical CIDRs of its families, sorted; empty means any source.

    ``hostnames`` are DNS names, sorted; ``generate_hostname`` asks for one in the member's domain. ``warnings`` name
    the source ranges that are accepted, and ambiguous.
    """

    target: TargetOption = ""
    proxy_protocol: str = ""
    address: str = ""
    source_ranges: tuple[str, ...] = ()
    hostnames: tuple[str, ...] = ()
    generate_hostname: bool = False
    warnings: tuple[str, ...] = ()


def read_options(service: Service, *, of_cloud: bool = False) -> ServiceOptions | Refused:
    """Read the annotations and fields of ``service`` that concern us.

    ``of_cloud``: the member's own cloud serves it too, so that spec.loadBalancerIP is for that load balancer.
    """
    target = service.annotation(ANNOTATION_TARGET)
    if target not in {"", "Node", "Pod"}:
        return _wrong(f"annotation {ANNOTATION_TARGET}", target, "Node or Pod", did_you_mean(target, ("Node", "Pod")))
    proxy_protocol = service.annotation(ANNOTATION_PROXY_PROTOCOL)
    if proxy_protocol not in {"", "v1", "v2"}:
        hint = did_you_mean(proxy_protocol, ("v1", "v2"))
        return _wrong(f"annotation {ANNOTATION_PROXY_PROTOCOL}", proxy_protocol, "v1 or v2", hint)
    address = _address(service, of_cloud=of_cloud)
    if isinstance(address, Refused):
        return address
    warnings: list[str] = []
    ranges = _source_ranges(service, warnings)
    if isinstance(ranges, Refused):
        return ranges
    hostnames = _hostnames(service)
    if isinstance(hostnames, Refused):
        return hostnames
    return ServiceOptions(
        target=cast("TargetOption", target),
        proxy_protocol=proxy_protocol,
        address=address,
        source_ranges=ranges,
        hostnames=tuple(sorted(hostnames - {GENERATE})),
        generate_hostname=GENERATE in hostnames,
        warnings=tuple(warnings),
    )


def _hostnames(service: Service) -> frozenset[str] | Refused:
    where = f"annotation {ANNOTATION_HOSTNAME}"
    names = frozenset(filter(None, (text.strip() for text in service.annotation(ANNOTATION_HOSTNAME).split(","))))
    for name in sorted(names):
        if problem := host_problem(name, wildcard=True):
            return Refused(ConditionReason.HOSTNAME_INVALID, f"{where} has {name!r}, which is no DNS name: {problem}.")
    if len(names) > MAX_HOSTNAMES:
        sentence = f"{where} has {len(names)} names: {MAX_HOSTNAMES} are allowed, use another Service for the others."
        return Refused(ConditionReason.HOSTNAME_INVALID, sentence)
    return names


def _address(service: Service, *, of_cloud: bool) -> str | Refused:
    by_field = "" if of_cloud else service.spec.load_balancer_ip
    by_annotation = service.annotation(ANNOTATION_REQUESTED_ADDRESS)
    text = (by_annotation or by_field).strip()
    if not text:
        return ""
    where = f"annotation {ANNOTATION_REQUESTED_ADDRESS}" if by_annotation else "spec.loadBalancerIP"
    addresses, families = requested_addresses(text), families_of(service)
    by_address = [family_of(address) for address in addresses]
    if not addresses or None in by_address or len(set(by_address)) < len(by_address):
        return _wrong(where, text, "an IP address, or one of each family such as 192.0.2.10,2001:db8::10")
    if other := next((each for each in addresses if family_of(each) not in families), ""):
        sentence = (
            f"{where} is {text!r}: {other} is not of {' or '.join(families)}, the spec.ipFamilies of this Service; ask "
            "for an address of these, or add the other family (spec.ipFamilyPolicy: PreferDualStack)."
        )
        return Refused(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, sentence)
    return ",".join(addresses)


def _source_ranges(service: Service, warnings: list[str]) -> tuple[str, ...] | Refused:
    """Return the canonical source ranges; adds to ``warnings`` what is ambiguous about them."""
    where, values = "spec.loadBalancerSourceRanges", [*(service.spec.load_balancer_source_ranges or ())]
    if not values:
        where, values = (
            f"annotation {ANNOTATION_SOURCE_RANGES}",
            service.annotation(ANNOTATION_SOURCE_RANGES).split(","),
        )
    networks: set[IPNetwork] = set()
    families, ignored = families_of(service), ""
    for value in (text.strip() for text in values):
        if not value:
            continue
        cidr = parse_cidr(value)
        if cidr is None:
            return _wrong(where, value, "a CIDR such as 203.0.113.0/24")
        network = cidr.network
        if cidr.warnings:
            warnings.append(f"{where} has {value!r}, which is read as {network}: write it so, or correct it.")
        if family_of(str(network.network_address)) in families:
            networks.add(network)
        else:
            ignored = value
    if ignored and not networks:
        # Dropping it would leave an empty list, which means any source: the opposite of what is asked.
        family = " or ".join(families)
        sentence = f"{where} has no range of {family}, the spec.ipFamilies of this Service ({ignored!r}): add one."
        return Refused(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, sentence)
    return tuple(str(network) for network in sorted(networks, key=_order))


def _order(network: IPNetwork) -> tuple[int, int, int]:
    return network.version, int(network.network_address), network.prefixlen


def _wrong(where: str, value: str, allowed: str, hint: str = "") -> Refused:
    return Refused(ConditionReason.INVALID, f"{where} is {value!r}: it must be {allowed}.{hint}")
