"""The resources that every Envoy of a node group should have.

In: resources from ``provider``; refusals and acknowledgements from sessions. Out: the resource to send for a name
(``effective``), and marks on the sessions that are concerned: the cost of a change does not depend on what else exists.

A version that Envoy refused is quarantined: the last acknowledged one is served in its place, to new proxies too, until
the content changes or, since a port may become free, until ``retry_at``.
Nothing is served at all before ``publish``: a hub that has just started does not know yet what is no longer wanted.
No input or output, no clock: times are given by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from fairlead.providers.envoy.resources import EncodedResource, ResourceType
from fairlead.providers.envoy.unknown import UnknownLoadBalancers
from fairlead.runtime.queue import doubled_s

_FIRST_RETRY_S = 15.0
_LAST_RETRY_S = 600.0
_MESSAGE_LENGTH = 400


class Subscriber(Protocol):
    """A stream of one proxy."""

    def mark(self, kind: ResourceType, names: Iterable[str], *, alone: bool = False) -> None:
        """Compare these names with what the proxy has; ``alone``: send each in a response of its own."""
        ...


class ResourceChange(msgspec.Struct, frozen=True, gc=False):
    """A resource to put, or to remove (None)."""

    kind: ResourceType
    name: str
    resource: EncodedResource | None


class RefusedVersion(msgspec.Struct, gc=False):
    """A version that Envoy refused, with Envoy's message. ``held`` is false while it is being tried again."""

    version: str
    message: str
    retry_at: float
    attempts: int = 1
    held: bool = True


class NodeGroup:
    """The resources of one node group, and the streams that read them."""

    def __init__(self, *, name: str, store: ResourceStore) -> None:
        self.name = name
        self.revision = 0
        self.subscribers: list[Subscriber] = []
        self._store = store
        self._wanted: dict[ResourceType, dict[str, EncodedResource]] = {kind: {} for kind in ResourceType}
        self._good: dict[ResourceType, dict[str, EncodedResource]] = {kind: {} for kind in ResourceType}
        self._refused: dict[ResourceType, dict[str, RefusedVersion]] = {kind: {} for kind in ResourceType}

    @property
    def published(self) -> bool:
        """Return whether anything may be sent yet."""
        return self._store.published

    @property
    def unknown(self) -> UnknownLoadBalancers:
        """Return what the proxies may keep for a while though nothing here wants it."""
        return self._store.unknown

    def names(self, kind: ResourceType) -> Iterable[str]:
        """Return the names of all wanted resources of a kind, in no particular order."""
        return self._wanted[kind].keys()

    def count(self, kind: ResourceType) -> int:
        """Return how many resources of a kind are wanted."""
        return len(self._wanted[kind])

    def wanted(self, kind: ResourceType, name: str) -> EncodedResource | None:
        """Return what should be served, refused or not."""
        return self._wanted[kind].get(name)

    def size(self, kind: ResourceType, name: str) -> int:
        """Return how many bytes the wanted resource has; 0 for a removal."""
        wanted = self._wanted[kind].get(name)
        return len(wanted.field) if wanted is not None else 0

    def effective(self, kind: ResourceType, name: str) -> EncodedResource | None:
        """Return what is to be sent: the wanted resource, or the last good one while that is in quarantine."""
        wanted = self._wanted[kind].get(name)
        refusal = self._refused[kind].get(name)
        if wanted is None or refusal is None or not refusal.held or refusal.version != wanted.version:
            return wanted
        return self._good[kind].get(name)

    def refusal(self, kind: ResourceType, name: str) -> str:
        """Return Envoy's whole message about the wanted version, on one line, if that was refused; else empty."""
        wanted = self._wanted[kind].get(name)
        refusal = self._refused[kind].get(name)
        return refusal.message if wanted and refusal and refusal.version == wanted.version else ""

    def refused_names(self) -> list[tuple[ResourceType, str]]:
        """Return what was refused in some version: few."""
        if not any(self._refused.values()):
            return []
        return [(kind, name) for kind, refusals in self._refused.items() for name in refusals]

    def refusals(self, kind: ResourceType) -> list[str]:
        """Return Envoy's messages about all wanted resources of a kind that were refused."""
        return [shortened(text) for name in self._refused[kind] if (text := self.refusal(kind, name))]

    def apply(self, changes: Sequence[ResourceChange]) -> int:
        """Take over changes and mark the streams; return how many resources really changed."""
        touched: dict[ResourceType, list[str]] = {}
        for change in changes:
            known = self._wanted[change.kind].get(change.name)
            if change.resource is None:
                if known is None:
                    continue
                del self._wanted[change.kind][change.name]
                self._good[change.kind].pop(change.name, None)
                self._refused[change.kind].pop(change.name, None)
            elif known is not None and known == change.resource:
                continue
            else:
                self._wanted[change.kind][change.name] = change.resource
            touched.setdefault(change.kind, []).append(change.name)
        if not touched:
            return 0
        self.revision += 1
        for kind, names in touched.items():
            self._mark(kind, names)
        return sum(map(len, touched.values()))

    def accept(self, kind: ResourceType, name: str, version: str) -> None:
        """Store a version that Envoy acknowledged as the last good one."""
        wanted = self._wanted[kind].get(name)
        if wanted is None or wanted.version != version:
            return
        self._good[kind][name] = wanted
        self._refused[kind].pop(name, None)

    def refuse(self, kind: ResourceType, name: str, version: str, message: str, *, now: float) -> None:
        """Put a version into quarantine; the next attempt comes later each time."""
        wanted = self._wanted[kind].get(name)
        if wanted is None or wanted.version != version:
            return
        known = self._refused[kind].get(name)
        attempts = known.attempts + 1 if known is not None and known.version == version else 1
        wait_s = doubled_s(attempts, base_s=_FIRST_RETRY_S, limit_s=_LAST_RETRY_S)
        self._refused[kind][name] = RefusedVersion(version, " ".join(message.split()), now + wait_s, attempts)
        self._mark(kind, (name,))

    def retry_refused(self, *, now: float) -> None:
        """Release the refused versions that are due for another attempt."""
        for kind, refusals in self._refused.items():
            due = [name for name, refusal in refusals.items() if refusal.held and refusal.retry_at <= now]
            for name in due:
                refusals[name].held = False
            if due:
                self._mark(kind, due, alone=True)

    def next_retry(self) -> float | None:
        """Return when ``retry_refused`` has something to do next."""
        refused = (refusal for refusals in self._refused.values() for refusal in refusals.values())
        return min((refusal.retry_at for refusal in refused if refusal.held), default=None)

    def _mark(self, kind: ResourceType, names: Sequence[str], *, alone: bool = False) -> None:
        for subscriber in self.subscribers:
            subscriber.mark(kind, names, alone=alone)


def shortened(message: str) -> str:
    """Return a long message of Envoy without its beginning, as the cause is at the end."""
    return message if len(message) <= _MESSAGE_LENGTH else f"… {message[-_MESSAGE_LENGTH:]}"


class ResourceStore:
    """The groups, whether they are published, and which load balancers proxies keep though nothing wants them."""

    def __init__(self, *, unknown: UnknownLoadBalancers | None = None) -> None:
        self.published = False
        self.unknown = unknown or UnknownLoadBalancers()
        self._groups: dict[str, NodeGroup] = {}

    def group(self, name: str) -> NodeGroup:
        """Return a group, made on first use: a proxy may come before the first load balancer of its group."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = NodeGroup(name=name, store=self)
        return group

    def groups(self) -> Iterable[NodeGroup]:
        """Return all groups."""
        return self._groups.values()

    def publish(self) -> None:
        """Allow sending, and wake the streams that wait for it."""
        self.published = True
        self.wake()

    def wake(self) -> None:
        """Have every stream compare what it has to send."""
        for group in self._groups.values():
            for subscriber in group.subscribers:
                for kind in ResourceType:
                    subscriber.mark(kind, ())
