"""Which HAProxy, and which of its backends?

In: a load balancer with its parameters. Out: ``Settings``; a mistake is a ``BadConfiguration`` that names the field.

    socket             path of the Runtime API's unix socket, level admin
    backend            the backend of its configuration, when the load balancer has one listener
    backend.<port>     the same for each listener of several
    drainTimeout       how long sessions of a removed server may go on; default 30s
    address            what users are told to connect to, if anything
Never: opens the socket. Names are checked here because they become part of commands.
"""

from __future__ import annotations

import re

import msgspec

from fairlead.api.durations import seconds_from_duration
from fairlead.errors import BadConfiguration
from fairlead.model.desired import HealthCheck, LoadBalancerSpec, ProxyProtocol
from fairlead.model.keys import ListenerKey, Protocol

_BACKEND = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
#: sun_path of Linux, less its final zero byte.
_LONGEST_PATH = 107


class Settings(msgspec.Struct, frozen=True):
    """Where the servers of one load balancer go, and how they are added."""

    socket: str
    backends: dict[ListenerKey, str]
    drain_timeout_s: float
    health_check: HealthCheck | None
    proxy_protocol: ProxyProtocol
    addresses: tuple[str, ...]
    #: Backends by port ("" for any), also of listeners that are no longer there: their servers may have to go yet.
    named: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def backend_of(self, listener: ListenerKey, *, removal: bool) -> str:
        """Return the backend of a listener, empty when it has none; removals reach former ones, too."""
        found = self.backends.get(listener, "")
        if not found and removal:
            found = self.named.get(str(listener.port)) or self.named.get("", "")
        return found


def settings_from_spec(spec: LoadBalancerSpec) -> Settings:
    """Read and check the parameters of ``spec``."""
    parameters = spec.parameters
    drain = parameters.get("drainTimeout", "30s")
    try:
        drain_timeout_s = seconds_from_duration(drain)
    except ValueError as error:
        raise BadConfiguration(f"{spec.key}: parameters.drainTimeout: {error}") from error
    address = parameters.get("address", "") or spec.address
    return Settings(
        socket=_socket(spec),
        backends={listener.key: _backend(spec, listener.key) for listener in spec.listeners},
        drain_timeout_s=drain_timeout_s,
        health_check=spec.health_check,
        proxy_protocol=spec.proxy_protocol,
        addresses=(address,) if address else (),
        named={
            key.removeprefix("backend").removeprefix("."): name
            for key, name in parameters.items()
            if (key == "backend" or key.startswith("backend.")) and _BACKEND.fullmatch(name)
        },
    )


def _socket(spec: LoadBalancerSpec) -> str:
    path = spec.parameters.get("socket", "")
    if not path:
        raise BadConfiguration(
            f"{spec.key}: parameters.socket is missing: its class must name HAProxy's Runtime API socket"
        )
    if not path.startswith("/") or len(path.encode()) > _LONGEST_PATH or "\0" in path:
        raise BadConfiguration(
            f"{spec.key}: parameters.socket must be an absolute path of at most {_LONGEST_PATH} bytes"
        )
    return path


def _backend(spec: LoadBalancerSpec, listener: ListenerKey) -> str:
    if listener.protocol is not Protocol.TCP:
        raise BadConfiguration(f"{spec.key}: listener {listener}: HAProxy balances TCP only; remove it")
    name = spec.parameters.get(f"backend.{listener.port}", "")
    if not name and len(spec.listeners) == 1:
        name = spec.parameters.get("backend", "")
    if not name:
        field = "existing.backend" if len(spec.listeners) == 1 else f"existing.backend.{listener.port}"
        raise BadConfiguration(
            f"{spec.key}: {field} is missing: name the HAProxy backend of listener {listener}; backends are made in "
            "HAProxy's own configuration, not at run time"
        )
    if not _BACKEND.fullmatch(name):
        raise BadConfiguration(f"{spec.key}: {name[:40]!r} cannot be the name of a HAProxy backend")
    return name
