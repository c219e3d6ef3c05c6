"""Names of BackendRecords: the same for the same load balancer, listener and address, on every replica."""

from __future__ import annotations

from fairlead.api.naming import short_hash
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey

_HEAD = 40


def record_name(load_balancer: LoadBalancerKey, listener: ListenerKey, target: TargetKey, *, provider: str = "") -> str:
    """Name the record; readable at its head, unambiguous by its tail.

    ``provider``: while a load balancer moves, the same backend is on record for the one before and the one after.
    """
    # A part that is empty is left out: names of 0.1, which knew no backends of HTTP, stay as they are.
    place = (listener.protocol.value, str(listener.port), *filter(None, (listener.backend,)))
    parts = (*load_balancer, *place, target.address, str(target.port), *filter(None, (provider,)))
    identity = short_hash(*parts, size_bytes=10)
    return f"{load_balancer.name[:_HEAD].rstrip('-.')}-{identity}"
