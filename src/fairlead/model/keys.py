"""Keys: the identities by which parts of Fairlead refer to the same object."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fairlead.model.in_words import host_port

#: The port of a target that is a record of a name, which has none.
RECORD_PORT = 53


class Protocol(StrEnum):
    """A transport protocol, spelt as Kubernetes spells it."""

    TCP = "TCP"
    UDP = "UDP"


class LoadBalancerKey(NamedTuple):
    """One load balancer at the hub, named by the object that asks for it."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


class ListenerKey(NamedTuple):
    """One open port of a load balancer; renaming a Service port does not change it.

    Targets of an L7 load balancer belong to a backend, which several listeners share: ``port`` is 0, and ``backend``
    its name.
    """

    protocol: Protocol
    port: int
    backend: str = ""

    def __str__(self) -> str:
        return self.backend or f"{self.protocol}/{self.port}"


class TargetKey(NamedTuple):
    """A destination of traffic: an IP address (canonical text form) or DNS name, and a port (1..65535)."""

    address: str
    port: int

    def __str__(self) -> str:
        return host_port(*self)


class BackendKey(NamedTuple):
    """One target behind one listener of one load balancer: what a provider registers and deregisters."""

    load_balancer: LoadBalancerKey
    listener: ListenerKey
    target: TargetKey


def backend_key(name: str) -> ListenerKey:
    """Return the key of the targets of an L7 backend."""
    return ListenerKey(Protocol.TCP, 0, name)
