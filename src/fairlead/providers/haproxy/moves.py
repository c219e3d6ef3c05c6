"""Refuses to move a listener to another backend while servers of ours, which would stay, are in the one before.

In: the settings of a load balancer as they were and as they are to be. Out: ``BadConfiguration`` that says how many
servers are where. Never: changes anything.
"""

from __future__ import annotations

from fairlead.errors import BadConfiguration, Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.haproxy.names import prefix, targets_of
from fairlead.providers.haproxy.readback import read
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import HAProxySettings


async def require_no_move(
    key: LoadBalancerKey, before: HAProxySettings, after: HAProxySettings, *, api: RuntimeApi
) -> None:
    """Raise ``BadConfiguration`` when servers of ``key`` would stay behind; ``api`` is the one of ``before``."""
    for listener, backend in before.backends.items():
        moved_to = after.backends.get(listener)
        if moved_to is None or (before.socket, backend) == (after.socket, moved_to):
            continue
        try:
            snapshot = await read(api, backend)
        except Retry as error:
            if error.reason != "HAProxyUnreachable":
                raise
            # What was added at run time has gone with that process.
            continue
        count = len(targets_of(snapshot.servers or (), prefix(before.installation, key, listener)))
        if count:
            raise BadConfiguration(
                f"{key}: its {count} servers are in backend {backend} of HAProxy at {before.socket} and serve on; "
                f"they do not move to backend {moved_to} at {after.socket}. Take the change of the class's "
                "parameters back, or delete the load balancer and make it again"
            )
