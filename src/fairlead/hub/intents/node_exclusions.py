"""The nodes of a member that take no traffic."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.kubernetes import EndpointSlice
from fairlead.hub.intents.intent import Exclusion
from fairlead.translate.view import NodeAddresses


def excluded_nodes(slices: Iterable[EndpointSlice], nodes: NodeAddresses) -> tuple[Exclusion, ...]:
    """Return the nodes in ``slices`` that are not among ``nodes``, by one address each, ordered by it."""
    ready = {name for by_name in nodes.ready.values() for name in by_name}
    addresses: dict[str, str] = {}
    for each in slices:
        for endpoint in each.endpoints or ():
            if endpoint.addresses and (name := endpoint.node_name or endpoint.addresses[0]) not in ready:
                addresses.setdefault(name, endpoint.addresses[0])
    return tuple(Exclusion(each, "its member", "this node is not ready") for each in sorted(addresses.values()))
