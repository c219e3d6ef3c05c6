"""Which nodes of a member take no traffic."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.kubernetes import EndpointSlice
from fairlead.hub.intents.intent import Exclusion


def excluded_nodes(slices: Iterable[EndpointSlice], ready: frozenset[str]) -> tuple[Exclusion, ...]:
    """Return the nodes in ``slices`` whose address is not in ``ready``, ordered by address."""
    addresses = {
        endpoint.addresses[0]
        for endpoint_slice in slices
        for endpoint in endpoint_slice.endpoints or ()
        if endpoint.addresses
    }
    return tuple(Exclusion(address, "its member", "this node is not ready") for address in sorted(addresses - ready))
