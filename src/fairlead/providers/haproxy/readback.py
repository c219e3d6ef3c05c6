"""What is there for one load balancer, in one canonical form?

In: its backends, and what this process has registered. Out: ``Observed``: ours by their names, with the address, weight
and health that HAProxy says (not those that we asked for), everybody else by name only, and the epoch of the process.
Never: compares with what is wanted; that is the core's.
"""

from __future__ import annotations

from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.providers.haproxy.batch import no_backend, read
from fairlead.providers.haproxy.names import prefix, target_of
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import Settings
from fairlead.providers.haproxy.state import Server

NO_ADDRESS = "its class says no address; set parameters.address to the one that HAProxy's frontend listens on"


async def read_back(
    api: RuntimeApi,
    key: LoadBalancerKey,
    settings: Settings,
    *,
    installation: str,
    wishes: frozenset[tuple[ListenerKey, TargetKey]],
) -> Observed:
    """Read all backends of ``key``; ``wishes`` is what should be there at least."""
    targets: list[ObservedTarget] = []
    foreign: set[str] = set()
    epoch = ""
    for listener, backend in settings.backends.items():
        async with api.turn:
            found = await read(api, backend)
        if found.servers is None:
            return Observed(addresses=settings.addresses, message=no_backend(settings.socket, backend))
        epoch = found.epoch
        begins = prefix(installation, key, listener)
        for server in found.servers.values():
            if target_of(server.name, begins) is None:
                foreign.add(f"{backend}/{server.name}")
            else:
                targets.append(_observed(listener, server))
    missing = len(wishes - {(target.listener, target.key) for target in targets})
    message = "" if settings.addresses else NO_ADDRESS
    if missing:
        message = f"{missing} of our servers are missing: HAProxy was reloaded, or somebody removed them"
    return Observed(
        addresses=settings.addresses,
        programmed=not missing,
        proxies=1,
        acknowledged=0 if missing else 1,
        message=message,
        targets=tuple(sorted(targets, key=lambda target: (target.listener, target.key))),
        foreign=tuple(sorted(foreign)),
        epoch=epoch,
    )


def _observed(listener: ListenerKey, server: Server) -> ObservedTarget:
    at = TargetKey(server.address, server.port)
    healthy = server.running if server.checked and server.ready else None
    return ObservedTarget(listener, at, server.weight, not server.ready, healthy)
