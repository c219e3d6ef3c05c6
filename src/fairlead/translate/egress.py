"""Egress identities: pods that leave their cluster with the address of one of its load balancers.

    member: label of a pod ──► Service ──► addresses of its pods, annotation of its TCPLoadBalancer
    hub:    these addresses ──► those that a member may use, and one load balancer for each ──► machines

A label names a Service in the pod's own namespace, so a pod gets no address of another namespace or member. Counts are
computed from the present objects, never incremented. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from fairlead.api.kubernetes import Pod, Service
from fairlead.api.meta import ObjectKey
from fairlead.api.names import LABEL_EGRESS, LABEL_MANAGED_BY, MANAGED_BY
from fairlead.model.condition import ObjectEvent, warning_event
from fairlead.model.in_words import listed
from fairlead.model.machine import EgressIdentity
from fairlead.translate.endpoints import TargetPolicy, admit

INVALID_LABEL, NOT_POSSIBLE = "InvalidEgressLabel", "EgressNotPossible"
#: The source ports that Linux uses; connections from these ports keep them.
FIRST_PORT, LAST_PORT = 32_768, 60_999
#: Minimum number of source ports of an identity.
_FEWEST_PORTS = 1_024
_MOST_SOURCES = 8_192
_SERVICE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENDED = ("Succeeded", "Failed")


class EgressPods(msgspec.Struct, frozen=True):
    """Pod addresses by the Service whose address they use, and errors in the labels of other pods."""

    sources: Mapping[ObjectKey, tuple[str, ...]] = msgspec.field(default_factory=dict[ObjectKey, tuple[str, ...]])
    problems: Mapping[ObjectKey, ObjectEvent] = msgspec.field(default_factory=dict[ObjectKey, ObjectEvent])


def egress_pods(
    pods: Iterable[Pod], service_of: Callable[[ObjectKey], Service | None], why_not: Callable[[Service], str]
) -> EgressPods:
    """Return which labelled pods use which Service's address; ``why_not`` says why a Service has no address of ours."""
    sources: dict[ObjectKey, set[str]] = {}
    problems: dict[ObjectKey, ObjectEvent] = {}
    owners: dict[str, Pod] = {}
    # The newest pod comes first: a reused address no longer belongs to a pod that is terminating.
    for pod in sorted(pods, key=lambda pod: (not pod.deleting, pod.age_order), reverse=True):
        if pod.status.phase in _ENDED:
            continue
        service, problem = _service_of(pod, service_of, why_not)
        addresses = addresses_of(pod)
        if (
            not problem
            and (other := next((owners[address] for address in addresses if address in owners), None)) is not None
        ):
            problem = _impossible(pod, f"Pod {'/'.join(other.key)} has the same address")
        if problem is not None:
            problems[pod.key] = problem
            continue
        owners.update(dict.fromkeys(addresses, pod))
        sources.setdefault(service, set()).update(addresses)
    return EgressPods(
        {service: tuple(sorted(of_service)) for service, of_service in sources.items() if of_service}, problems
    )


def addresses_of(pod: Pod) -> tuple[str, ...]:
    """Return the addresses of a pod."""
    listed_ips = [entry.ip for entry in pod.status.pod_ips or ()]
    return tuple(dict.fromkeys(filter(None, (pod.status.pod_ip or "", *listed_ips))))


def _service_of(
    pod: Pod, service_of: Callable[[ObjectKey], Service | None], why_not: Callable[[Service], str]
) -> tuple[ObjectKey, ObjectEvent | None]:
    name = pod.label(LABEL_EGRESS)
    key = ObjectKey(pod.metadata.namespace, name)
    if not _SERVICE_NAME.fullmatch(name):
        text = (
            f"label {LABEL_EGRESS} is {name!r}, which cannot name a Service; write the name of a LoadBalancer Service"
        )
        return key, warning_event(INVALID_LABEL, f"{text} of namespace {key.namespace}")
    service = service_of(key)
    if service is not None and service.label(LABEL_MANAGED_BY) == MANAGED_BY:
        text = f"label {LABEL_EGRESS} names Service {name}, which Fairlead made for itself; name a LoadBalancer Service"
        return key, warning_event(INVALID_LABEL, text)
    if service is None:
        return key, _impossible(pod, f"there is no Service {name} in namespace {key.namespace}; create it")
    if why := why_not(service):
        return key, _impossible(pod, f"Service {name} has no address of Fairlead: {why}")
    if pod.spec.host_network:
        return key, _impossible(pod, "the pod shares the address of its node (hostNetwork)")
    return key, None


def _impossible(pod: Pod, why: str) -> ObjectEvent:
    sentence = f"Pod {pod.metadata.name} cannot leave with the address of Service {pod.label(LABEL_EGRESS)}: {why}"
    return warning_event(NOT_POSSIBLE, sentence)


class EgressRequest(msgspec.Struct, frozen=True):
    """The pods of one load balancer as its member wrote them (``text``), in the order of their age.

    ``policy`` is None while the rights of the member are unknown.
    """

    name: str
    order: tuple[str, ObjectKey]
    text: str
    addresses: tuple[str, ...]
    policy: TargetPolicy | None


class Egress(msgspec.Struct, frozen=True):
    """All identities; by load balancer, how many pods use its address and why others do not.

    ``kept`` are addresses whose pods are unknown: present pods continue to use them, and new pods do not.
    """

    identities: tuple[EgressIdentity, ...] = ()
    kept: tuple[str, ...] = ()
    sources: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    problems: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


def decide_egress(
    requests: Iterable[EgressRequest], *, ports: Mapping[str, Collection[int]], reserved: Collection[str]
) -> Egress:
    """Return the identities of all load balancers.

    ``ports`` are the listening ports of load balancers by address. ``reserved`` are the addresses of load balancers and
    machines, which are not pods. A source belongs to one load balancer, the oldest one that names it.
    """
    owners: dict[str, str] = {}
    identities: list[EgressIdentity] = []
    sources: dict[str, int] = {}
    problems: dict[str, str] = {}
    kept: set[str] = set()
    for request in sorted(requests, key=lambda request: request.order):
        if request.policy is None:
            kept.update(request.addresses)
            sources[request.name] = 0
            problems[request.name] = (
                "the Tenant cannot be read; machines keep the pods that they have. Correct the Tenant"
            )
            continue
        names = [text.strip() for text in request.text.split(",")]
        refused = set(names[_MOST_SOURCES:])
        mine: dict[int, set[str]] = {4: set(), 6: set()}
        taken: list[str] = []
        for name in names[:_MOST_SOURCES]:
            source = admit(name, request.policy)
            if source is None or source in reserved:
                refused.add(name)
            elif owners.setdefault(source, request.name) != request.name:
                taken.append(source)
            else:
                mine[ip_address(source).version].add(source)
        sentences: list[str] = []
        if refused:
            sentences.append(
                f"{listed(sorted(refused), 3)} cannot be pods of this member; the operator of the hub admits ranges in "
                "the Tenant's spec.targetRanges"
            )
        if taken:
            sentences.append(f"{listed(sorted(taken), 3)} leave with another load balancer; give pods other addresses")
        count = 0
        for version, of_family in sorted(mine.items()):
            address = next((address for address in request.addresses if ip_address(address).version == version), "")
            if not of_family:
                continue
            if not address:
                sentences.append(f"{listed(sorted(of_family), 3)} have no IPv{version} address to leave with")
                continue
            first, last = free_ports(ports.get(address, ()))
            if last - first < _FEWEST_PORTS:
                sentences.append(f"the listeners of {address} leave too few of the ports {FIRST_PORT}-{LAST_PORT}")
                continue
            count += len(of_family)
            identities.append(
                EgressIdentity(address=address, sources=tuple(sorted(of_family)), first_port=first, last_port=last)
            )
        sources[request.name], problems[request.name] = count, "; ".join(sentences)
    return Egress(_merged(identities), tuple(sorted(kept)), sources, problems)


def free_ports(listening: Collection[int]) -> tuple[int, int]:
    """Return the first and last port of the largest range without a listener; the lowest of equally large ones."""
    ends = [FIRST_PORT - 1, *sorted(port for port in set(listening) if FIRST_PORT <= port <= LAST_PORT), LAST_PORT + 1]
    gaps = [(below + 1, above - 1) for below, above in pairwise(ends)]
    return max(gaps, key=lambda gap: gap[1] - gap[0])


def _merged(identities: Iterable[EgressIdentity]) -> tuple[EgressIdentity, ...]:
    """Return one identity for each address: load balancers may share it."""
    by_address: dict[str, EgressIdentity] = {}
    for identity in identities:
        other = by_address.get(identity.address)
        sources = (*(other.sources if other is not None else ()), *identity.sources)
        by_address[identity.address] = replace(identity, sources=tuple(sorted(sources)))
    return tuple(identity for _, identity in sorted(by_address.items()))
