"""The objects that are members of a load balancer, and the address of each.

    selector empty                      -> cluster-name and load balancer's name
    selected, of another cluster        -> no member, and named in a condition
    InternalIP, else ExternalIP         -> the first one of the family of the endpoint, else the first
    none of these                       -> no address: what is registered of it stays

In: the spec, and objects. Out: a ``Selection``. Never: an object of another Cluster as a member.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

import msgspec

from fairlead.api.capiside import TargetSelector
from fairlead.api.clusterapi import LABEL_CLUSTER_NAME, MARKER_NAME, MachineAddress, TargetObject
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.selectors import BadSelector, Selector, from_label_selector

_TYPES = ("InternalIP", "ExternalIP")


class Selection(msgspec.Struct, frozen=True):
    """The members by name, and the names of those of other clusters; ``text`` is the selector in force."""

    text: str
    members: tuple[TargetObject, ...] = ()
    foreign: tuple[str, ...] = ()
    problem: str = ""


def selector_of(load_balancer: LoadBalancer) -> TargetSelector:
    """Return the selector in force: that of the spec, else the default."""
    selector = load_balancer.spec.selector
    if selector is not None and not selector.empty:
        return selector
    name = load_balancer.metadata.name
    return TargetSelector(match_labels={LABEL_CLUSTER_NAME: load_balancer.spec.cluster_name, MARKER_NAME: name})


def select(load_balancer: LoadBalancer, objects: Iterable[TargetObject]) -> Selection:
    """Return which of ``objects`` are members."""
    in_force = selector_of(load_balancer)
    text = selector_text(in_force)
    try:
        selector: Selector = from_label_selector(msgspec.to_builtins(in_force))
    except BadSelector as error:
        return Selection(text, problem=f"spec.selector: {error}; nothing is added or removed until it is corrected")
    matched = sorted((obj for obj in objects if selector.matches(obj.metadata.labels)), key=lambda obj: obj.key)
    cluster = load_balancer.spec.cluster_name
    members = tuple(obj for obj in matched if obj.cluster == cluster)
    return Selection(text, members, tuple(obj.metadata.name for obj in matched if obj.cluster != cluster))


def stays_in_cluster(load_balancer: LoadBalancer) -> bool:
    """Return whether the selector in force can only choose objects of the load balancer's own Cluster."""
    labels = selector_of(load_balancer).match_labels or {}
    return labels.get(LABEL_CLUSTER_NAME) == load_balancer.spec.cluster_name


def selector_text(selector: TargetSelector) -> str:
    """Return a selector in the syntax of ``kubectl -l``."""
    terms = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    for term in selector.match_expressions or ():
        values = ",".join(term.values or ())
        match term.operator:
            case "Exists":
                terms.append(term.key)
            case "DoesNotExist":
                terms.append(f"!{term.key}")
            case _:
                terms.append(f"{term.key} {term.operator.lower()} ({values})")
    return ",".join(terms)


def address_of(addresses: Sequence[MachineAddress] | None, *, like: str = "") -> str:
    """Return the address of a member, preferably of the family of ``like``; empty when it has none."""
    for kind in _TYPES:
        known = [each.address for each in addresses or () if each.type == kind and _version(each.address)]
        if known:
            family = _version(like)
            return next((address for address in known if _version(address) == family), known[0])
    return ""


def all_addresses(addresses: Sequence[MachineAddress] | None) -> list[str]:
    """Return the distinct IP addresses of a member, in their order."""
    return list(dict.fromkeys(each.address for each in addresses or () if _version(each.address)))


def _version(address: str) -> int:
    """Return the IP version of ``text``: 4 or 6, 0 when it is not an IP address."""
    try:
        return ip_address(address).version
    except ValueError:
        return 0
