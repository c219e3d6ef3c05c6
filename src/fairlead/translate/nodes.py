"""The addresses at which the nodes of a member are reached, for a load balancer of these families.

    families       a node with          is reached at
    -------------  -------------------  -----------------------------------------------
    IPv4           IPv4, or both        its IPv4 address
    IPv6           IPv6, or both        its IPv6 address
    IPv4, IPv6     both                 its address of the first: one node, one target
    any            none of them         none: it takes no traffic, and a condition says so

A node port answers in the families of its Service only, so no other one is tried.
In: the slices of nodes. Out: addresses, and sentences. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.names import ANNOTATION_STALE
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.keys import IPV4, IPV6, Family, family_of
from fairlead.translate.conditions import first_three, unresolved
from fairlead.translate.endpoints import EndpointState, state_of
from fairlead.translate.view import NodeAddresses


def nodes_from_slices(slices: Iterable[EndpointSlice]) -> NodeAddresses:
    """Return the nodes that are listed as ready, and those that are reported as terminating, in each family."""
    ready: dict[Family, dict[str, str]] = {IPV4: {}, IPV6: {}}
    leaving: dict[Family, dict[str, tuple[str, bool]]] = {IPV4: {}, IPV6: {}}
    stale: dict[Family, str] = {}
    for each in slices:
        if why := each.annotation(ANNOTATION_STALE):
            stale.setdefault(IPV6 if each.address_type == IPV6 else IPV4, why)
        for endpoint in each.endpoints or ():
            if not endpoint.addresses:
                continue
            # An invalid address is rejected where the others are admitted, and named there.
            address = endpoint.addresses[0]
            family, name = family_of(address) or IPV4, endpoint.node_name or address
            if endpoint.ready:
                ready[family][name] = address
            elif endpoint.terminating:
                leaving[family][name] = (address, endpoint.serving)
    return NodeAddresses(ready, stale, leaving)


def node_families(families: Sequence[Family], *, ipv6: bool) -> tuple[Family, ...]:
    """Return the families in which nodes are reached; ``ipv6``: the provider can. None named is IPv4."""
    return tuple(each for each in tuple(families) or (IPV4,) if ipv6 or each == IPV4)


def addresses_in(nodes: NodeAddresses, families: Sequence[Family]) -> dict[str, EndpointState]:
    """Return one address of each node: of the first of ``families`` in which it has one."""
    chosen: dict[str, tuple[str, EndpointState]] = {}
    for family in reversed(families):
        for name, (address, serves) in nodes.leaving.get(family, {}).items():
            chosen[name] = (address, EndpointState.SERVING if serves else EndpointState.GONE)
    for family in reversed(families):
        for name, address in nodes.ready.get(family, {}).items():
            chosen[name] = (address, EndpointState.READY)
    return dict(chosen.values())


def local_addresses(
    slices: Iterable[EndpointSlice], nodes: NodeAddresses, families: Sequence[Family]
) -> dict[str, EndpointState]:
    """Return one address of each node with a local endpoint, and the state of its endpoints there.

    With externalTrafficPolicy Local a node answers by its own endpoints alone, so each has the state of the best of
    them. Only nodes that are Ready themselves count.
    """
    local: dict[str, EndpointState] = {}
    for each in slices:
        for endpoint in each.endpoints or ():
            if endpoint.addresses:
                state = state_of(endpoint)
                local[endpoint.addresses[0]] = max(state, local.get(endpoint.addresses[0], state))
    chosen: dict[str, str] = {}
    for family in reversed(families):
        for name, address in nodes.ready.get(family, {}).items():
            if address in local and (name not in chosen or local[address] >= local[chosen[name]]):
                chosen[name] = address
    return {address: local[address] for address in chosen.values()}


def without_family(nodes: NodeAddresses, families: Sequence[Family]) -> Condition | None:
    """Return condition ResolvedRefs when nodes that are ready have no address of ``families``, None when all have.

    It names the first three and no number: a node more must not be a status write for each load balancer.
    """
    there = {name for by_name in nodes.ready.values() for name in by_name}
    missing = there - {name for family in families for name in nodes.ready.get(family, {})}
    if not missing or not families:
        return None
    family = " or ".join(families)
    if missing == there:
        message = (
            f"no node of the member has an {family} address ({first_three(missing)} have none). Add one to their "
            "status.addresses, set spec.ipFamilies to a family that they have, or spec.targets to Pod"
        )
    else:
        message = (
            f"nodes without an {family} address take no traffic ({first_three(missing)}): add one to their "
            "status.addresses; all other nodes are served"
        )
    return unresolved(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, message)
