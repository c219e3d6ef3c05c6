"""The state that the provider keeps of one load balancer, L4 or L7.

``ConnectionFrontend`` (L4) and ``http.frontend.HttpFrontend`` (L7) implement ``Serving``. A ``TargetPort`` holds the
targets of a listener, or of a backend. Changes are for the store; no input or output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, TargetKey
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.clusters import is_dns_name
from fairlead.providers.envoy.endpoints import EndpointSet
from fairlead.providers.envoy.store import ResourceChange


class TargetPort(msgspec.Struct):
    """The targets behind one key, and the name of their cluster. ``dns_names`` are those that Envoy must resolve.

    ``datagrams``: a backend of UDP.
    """

    name: str
    targets: EndpointSet = msgspec.field(default_factory=EndpointSet)
    dns_names: set[TargetKey] = msgspec.field(default_factory=set[TargetKey])
    datagrams: bool = False

    @property
    def inline(self) -> bool:
        """Return whether the targets must be inside the cluster."""
        return bool(self.dns_names)

    def put(self, target: Target) -> bool:
        """Add or replace a target; return whether that changed anything."""
        if is_dns_name(target.key.address):
            self.dns_names.add(target.key)
        return self.targets.put(target)

    def drop(self, key: TargetKey) -> bool:
        """Remove a target; return whether it was there."""
        self.dns_names.discard(key)
        return self.targets.drop(key)


class Serving(Protocol):
    """The resources of one load balancer in one group."""

    @property
    def ports(self) -> Mapping[ListenerKey, TargetPort]:
        """Return what targets may be registered behind."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the names of all resources, each with what people call it."""
        ...

    @property
    def refused(self) -> tuple[RefusedPart, ...]:
        """Return what is not served although it was asked for, sorted."""
        ...

    @property
    def awaited(self) -> frozenset[str]:
        """Return the backends for whose first target something waits that was asked for."""
        ...

    def update(self, spec: FrontendSpec, *, bind_addresses: Sequence[str]) -> list[ResourceChange]:
        """Serve this; returns what may differ from before."""
        ...

    def target_changes(self, key: ListenerKey, *, was_inline: bool) -> list[ResourceChange]:
        """Return the resources that hold the targets behind a key."""
        ...

    def release(self, backends: frozenset[str]) -> list[ResourceChange]:
        """Let nothing wait any longer for these."""
        ...

    def refused_by_proxy(self, name: str, version: str, message: str) -> list[ResourceChange]:
        """Leave out what a proxy refused of a resource."""
        ...

    @property
    def searching(self) -> bool:
        """Return whether something waits until it is known what the proxies refuse."""
        ...

    def resumed_from_proxy(self, name: str, version: str) -> list[ResourceChange]:
        """Leave out what a proxy has been without since before this hub."""
        ...

    def accepted_by_proxy(self, name: str, version: str) -> list[ResourceChange]:
        """Try again what waited for this."""
        ...

    def removal(self) -> list[ResourceChange]:
        """Return the removal of everything."""
        ...
