"""Reads back a backend, and what is there for one load balancer, in one canonical form.

In: a backend; or a load balancer's backends and what this process has registered. Out: a ``BackendSnapshot``; or
``Observed``: ours by their names, with the address, weight and health that HAProxy says (not those that we asked for),
all others by name only, and the epoch of the process. Never: compares with what is wanted; that is the core's.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.providers.haproxy.names import prefix, server_name, target_of
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import HAProxySettings
from fairlead.providers.haproxy.snapshot import BackendSnapshot, Server, show, snapshot_from_text

NO_ADDRESS = "its class has no address; set parameters.address to the one that HAProxy's frontend listens on"


async def read(api: RuntimeApi, backend: str) -> BackendSnapshot:
    """Read one backend, in a conversation of its own."""
    async with api.lock:
        return await run_and_read(api, backend)


async def run_and_read(
    api: RuntimeApi, backend: str, commands: Sequence[str] = (), *, sessions: bool = False
) -> BackendSnapshot:
    """Run ``commands``, then read one backend, with the open sessions of its servers on demand; holds no lock."""
    sessions_of = api.backend_numbers.get(backend, backend) if sessions else ""
    text = await api.run([*commands, *show(backend, sessions_of=sessions_of)])
    snapshot = snapshot_from_text(text, backend, socket=api.path)
    uncounted = any(server.sessions < 0 for server in (snapshot.servers or {}).values())
    if not sessions or not uncounted or snapshot.number == sessions_of:
        return snapshot
    # A frontend has the same name, and that is the one that was counted; numbers are given anew by each reload.
    api.backend_numbers[backend] = snapshot.number
    text = await api.run(show(backend, sessions_of=snapshot.number))
    counted = snapshot_from_text(text, backend, socket=api.path)
    return msgspec.structs.replace(counted, messages=snapshot.messages)


async def observe_load_balancer(
    api: RuntimeApi,
    key: LoadBalancerKey,
    settings: HAProxySettings,
    *,
    registered: frozenset[tuple[ListenerKey, TargetKey]],
) -> Observed:
    """Read all backends of ``key``; ``registered`` is what should be there at least.

    A backend that is missing hides nothing of the others, and the epoch is known in any case: a reload that loses one
    backend has emptied the others.
    """
    targets: list[ObservedTarget] = []
    foreign: set[str] = set()
    epoch = absent = ""
    outdated = 0
    for listener, backend in settings.backends.items():
        snapshot = await read(api, backend)
        epoch = settings.epoch(snapshot.epoch)
        if snapshot.servers is None:
            # A listener that is no longer wanted has nothing to look for in a backend that is gone.
            absent = absent or ("" if listener in settings.retired else backend)
            continue
        ours = prefix(settings.installation, key, listener)
        for name, servers in snapshot.by_target.items():
            target = target_of(name, ours)
            if target is None:
                foreign.update(f"{backend}/{server.name}" for server in servers)
                continue
            current = server_name(settings.installation, key, listener, target, settings.tag)
            # One that is outdated serves until the current one is there.
            targets.append(_observed(listener, max(servers, key=lambda server: (server.ready, server.name == current))))
            if (listener, target) in registered and all(server.name != current for server in servers):
                outdated += 1
    missing = len(registered - {(target.listener, target.key) for target in targets})
    message = "" if settings.addresses else NO_ADDRESS
    if missing:
        message = f"{missing} of our servers are missing: HAProxy was reloaded, or they were removed by hand"
    elif outdated:
        message = f"{outdated} of our servers have an earlier health check or PROXY protocol and are being replaced"
    if absent:
        message = no_backend(settings.socket, absent)
    complete = not (missing or absent or outdated)
    return Observed(
        addresses=settings.addresses,
        programmed=complete,
        proxies=1,
        acknowledged=int(complete),
        message=message,
        targets=tuple(sorted(targets, key=lambda target: (target.listener, target.key))),
        foreign=tuple(sorted(foreign)),
        epoch=epoch,
    )


def no_backend(socket: str, backend: str) -> str:
    """Return what to do about a backend that is not there."""
    return f"HAProxy at {socket} has no backend {backend}; add it to its configuration and reload, or correct the name"


def _observed(listener: ListenerKey, server: Server) -> ObservedTarget:
    target = TargetKey(server.address, server.port)
    healthy = server.running if server.checked and server.ready else None
    return ObservedTarget(listener, target, server.weight, not server.ready, healthy)
