"""Removals that wait because open connections may still need what is removed.

A listener that goes closes its port at once, and drains: each open connection is answered, closed with its next
response, and cut after ``DRAIN_S`` if there is none. The proxy keeps the routes of such a listener. Its clusters it
would drop when we do, and answer 500. So clusters of requests that go together with a listener go ``DRAIN_S`` later.

In: changes. Out: those for now, and those for later. It does not wait itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.providers.envoy.http.names import is_backend_of
from fairlead.providers.envoy.names import load_balancer_of
from fairlead.providers.envoy.resources import ResourceType
from fairlead.providers.envoy.store import ResourceChange

_LATER = (ResourceType.CLUSTER, ResourceType.ENDPOINTS)


def split_removals(changes: Sequence[ResourceChange]) -> tuple[Sequence[ResourceChange], list[ResourceChange]]:
    """Return the changes for now, and the removals that wait until the listeners among the changes have drained."""
    closing = {
        load_balancer_of(each.name) for each in changes if each.kind is ResourceType.LISTENER and each.resource is None
    }
    if not closing:
        return changes, []
    later = [
        each
        for each in changes
        if each.kind in _LATER
        and each.resource is None
        and (key := load_balancer_of(each.name)) in closing
        and key is not None
        and is_backend_of(key, each.name)
    ]
    waiting = {(each.kind, each.name) for each in later}
    return [each for each in changes if (each.kind, each.name) not in waiting], later
