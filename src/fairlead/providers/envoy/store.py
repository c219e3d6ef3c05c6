"""The resources that every Envoy of a node group should have, and the gate that orders them on one stream.

In: resources from ``provider``; rejections and acknowledgements from sessions. Out: the resource to send for a name
(``effective``), and marks on the sessions that are concerned: the cost of a change does not depend on what else exists.

A version that Envoy rejected is quarantined. The last acknowledged one is served in its place, to new proxies too,
until the content changes or, because a port may become free, until ``retry_at``. Nothing is served before ``publish``:
a hub that has just started does not know yet what is no longer wanted.

    listener, routes   wait until their clusters are ready: endpoints acknowledged, or, where only that proves it
                       (health checks, DNS), the cluster itself; otherwise the first connections would fail
    removed cluster    waits until the listeners and routes that used it are acknowledged as gone

Nothing waits longer than ``GATE_S``. No input or output, no clock: times are given by the caller.

``TypeSubscription`` is the state of one resource type on one stream: what Envoy asked for, was sent, acknowledged or
rejected, and the names to compare again. A proxy keeps unknown resources for a while:

    why this hub does not know a resource                     how long it is kept
    the hub's API was restored, or lost a namespace: agents   ``HOLD_UNKNOWN_S`` seconds
    publish what is missing again
    its object, or one that holds its targets, cannot be      until it can, or is gone
    decoded, and never could since this hub started

A load balancer that was deleted while no hub was running is known, because its finalizer kept the object: it is removed
at once. Of a known load balancer, the targets of a port are kept while this hub has read none for that port.

A part of a load balancer that cannot be read, such as one slice or one member of several, has no resource of its own:
its targets are in the same message as all others. What a proxy has from an earlier hub is kept as a whole then. The
readable parts change there once all can be read.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.resources import DeltaRequest, EncodedResource, ResourceType, load_balancer_of
from fairlead.runtime.queue import doubled_s

#: How many rejections are kept of names that are no longer desired: a name may be desired again soon.
REFUSED_KEPT = 100


class TypeSubscription:
    """One resource type of one stream."""

    __slots__ = (
        "acked",
        "dirty",
        "empty_response_due",
        "forced",
        "held",
        "in_flight",
        "inherited",
        "names",
        "refused",
        "retry",
        "sent",
        "subscribed",
        "wildcard",
    )

    def __init__(self) -> None:
        self.subscribed = False
        self.wildcard = False
        #: Envoy starts only after a first response, even if it is empty.
        self.empty_response_due = False
        self.names: set[str] = set()
        #: The version that was sent last, or "" when a refusal leaves that unknown.
        self.sent: dict[str, str] = {}
        self.acked: dict[str, str] = {}
        #: Names whose version was acknowledged to an earlier stream.
        self.inherited: set[str] = set()
        #: Names to compare at the next ``pump``.
        self.dirty: set[str] = set()
        #: Names that the proxy has and this hub has never known; compared once they no longer wait.
        self.held: set[str] = set()
        #: Names to send even if the version has not changed.
        self.forced: set[str] = set()
        #: Names to send in responses of their own, while the bad one of a refused response is searched for.
        self.retry: deque[tuple[str, ...]] = deque()
        #: The version that this very proxy refused, and why: not sent again unless a new attempt is due.
        self.refused: dict[str, tuple[str, str]] = {}
        #: nonce -> name -> version ("" for a removal), oldest first.
        self.in_flight: dict[str, dict[str, str]] = {}

    @property
    def idle(self) -> bool:
        """Return whether nothing is to be sent or waited for."""
        return not (self.dirty or self.in_flight or self.retry)

    def wants(self, name: str) -> bool:
        """Return whether Envoy has asked for this name."""
        return self.wildcard or name in self.names

    def mark(self, names: Iterable[str], *, alone: bool) -> None:
        """Compare those names that Envoy wants at the next ``pump``; ``alone``: send each in a response of its own."""
        wanted = [name for name in names if self.wants(name)]
        if not alone:
            self.dirty.update(wanted)
            return
        for name in wanted:
            self.refused.pop(name, None)
            self.retry.append((name,))

    def take(self, names: Iterable[str]) -> list[str]:
        """Return these names, no longer marked; marks that come while they are being sent stay."""
        taken = list(names)
        self.dirty.difference_update(taken)
        return taken

    def take_retry(self) -> tuple[str, ...]:
        """Return the next names to send in a response of their own; empty when there are none."""
        return self.retry.popleft() if self.retry else ()

    def start(self, request: DeltaRequest, *, available: Iterable[str], wildcard_by_default: bool) -> None:
        """Take in the first request: what a reconnecting Envoy has already, and whether it wants all there is."""
        self.subscribed = True
        self.sent.update(request.initial_versions)
        self.acked.update(request.initial_versions)
        self.inherited.update(request.initial_versions)
        if "*" in request.subscribe or (wildcard_by_default and not request.subscribe):
            self.wildcard = True
            self.dirty.update(request.initial_versions, available)
            self.empty_response_due = not request.initial_versions

    def subscribe(self, request: DeltaRequest, *, resend: Collection[str] = ()) -> None:
        """Take in the names of a request; those in ``resend`` are sent even if Envoy has their version already."""
        for name in request.unsubscribe:
            self.names.discard(name)
            if not self.wildcard:
                self.sent.pop(name, None)
                self.acked.pop(name, None)
                self.refused.pop(name, None)
                self.dirty.discard(name)
                self.forced.discard(name)
        for name in request.subscribe:
            if name == "*":
                continue
            self.names.add(name)
            self.dirty.add(name)
            # A response is owed, even if it is "no such thing": a missing one holds up the proxy's start.
            if name not in request.initial_versions or name in resend:
                self.forced.add(name)

    def acknowledge(self, name: str, version: str) -> None:
        """Store that Envoy has taken over this version ("" for a removal)."""
        self.inherited.discard(name)
        if not version:
            self.acked.pop(name, None)
        elif self.wants(name):
            self.acked[name] = version

    def refuse(self, frame: dict[str, str], message: str) -> tuple[str, str] | None:
        """Store that Envoy refused a response, and so has kept what it had.

        Returns the (name, version) that was refused, or None: a removal, or not one name: these are sent again in
        smaller responses.
        """
        if len(frame) != 1:
            self.sent.update(dict.fromkeys(frame, ""))
            self.retry.extendleft(reversed(split_refused(sorted(frame), message)))
            return None
        ((name, version),) = frame.items()
        self.sent.pop(name, None)
        if not version:
            return None
        if name in self.acked:
            self.sent[name] = self.acked[name]
        self.refused.pop(name, None)  # the newest is the last
        self.refused[name] = version, message
        self.dirty.add(name)
        return name, version

    def forget_refused(self, is_gone: Callable[[str], bool]) -> None:
        """Drop the oldest refusals of names that are gone: a stream may live for months."""
        surplus = len(self.refused) - REFUSED_KEPT
        if surplus > 0:
            for name in [name for name in self.refused if is_gone(name)][:surplus]:
                del self.refused[name]


_NAME_CHARACTERS = re.compile(r"[A-Za-z0-9._/-]+")


def split_refused(names: Sequence[str], message: str) -> list[tuple[str, ...]]:
    """Split the names of a refused response (two or more, ordered) into groups to try again."""
    mentioned = {word.strip(".") for word in _NAME_CHARACTERS.findall(message)}
    named = [name for name in names if name in mentioned]
    rest = tuple(name for name in names if name not in mentioned)
    if named:
        return [*([rest] if rest else []), *[(name,) for name in named]]
    middle = len(names) // 2
    return [tuple(names[:middle]), tuple(names[middle:])]


#: Agents connect again within half of it, and publish what is missing.
HOLD_UNKNOWN_S = 60.0


class UnknownLoadBalancers:
    """Resources that are served for ``hold_s`` after ``publish`` although ``is_known`` is false."""

    def __init__(
        self, *, is_known: Callable[[LoadBalancerKey], bool] = lambda _key: True, hold_s: float = HOLD_UNKNOWN_S
    ) -> None:
        self._is_known = is_known
        self._hold_s = hold_s
        self._deleted: set[LoadBalancerKey] = set()
        self._unread: set[LoadBalancerKey] = set()
        self._read: set[LoadBalancerKey] = set()
        self._with_targets: set[str] = set()
        self.until = 0.0

    def publish(self, now: float) -> None:
        """Begin: proxies are sent what there is from now on."""
        self.until = now + self._hold_s

    def delete(self, key: LoadBalancerKey) -> None:
        """Store that ``key`` was deleted: it does not wait."""
        self._deleted.add(key)
        self._unread.discard(key)

    def keep(self, key: LoadBalancerKey, *, unread: bool) -> bool:
        """Store whether something of ``key`` was never read; returns whether it was not, and is now."""
        if unread:
            if key not in self._read:
                self._unread.add(key)
            return False
        self._read.add(key)
        was_unread = key in self._unread
        self._unread.discard(key)
        return was_unread

    def is_unread(self, key: LoadBalancerKey) -> bool:
        """Return whether something of ``key`` cannot be read."""
        return key in self._unread

    def knows_all(self, now: float) -> bool:
        """Return whether nothing waits."""
        return now >= self.until and not self._unread

    def register(self, name: str) -> None:
        """Store that the endpoints ``name`` have had a target: a later loss of all targets is intended."""
        self._with_targets.add(name)

    def keeps_endpoints(self, name: str, now: float) -> bool:
        """Say whether endpoints that a proxy came with stay: their load balancer may be read before its targets."""
        key = load_balancer_of(name)
        if key is None or self.is_unread(key):
            return key is not None
        return self._may_be_wanted(key, now) and name not in self._with_targets

    def keeps_cluster(self, name: str) -> bool:
        """Say whether the cluster ``name`` stays as a proxy has it: another one would come without its endpoints."""
        key = load_balancer_of(name)
        return key is not None and self.is_unread(key)

    def waits(self, name: str, now: float) -> bool:
        """Return whether the resource ``name``, which is not wanted, stays for now."""
        key = load_balancer_of(name)
        return key is not None and self._may_be_wanted(key, now) and not self._is_known(key)

    def _may_be_wanted(self, key: LoadBalancerKey, now: float) -> bool:
        return key in self._unread or (now < self.until and key not in self._deleted)


_FIRST_RETRY_S = 15.0
_LAST_RETRY_S = 600.0
_MESSAGE_LENGTH = 400


class Subscriber(Protocol):
    """A stream of one proxy."""

    def mark(self, kind: ResourceType, names: Iterable[str], *, alone: bool = False) -> None:
        """Compare these names with what the proxy has; ``alone``: send each in a response of its own."""
        ...

    def lacks(self, kind: ResourceType, name: str, version: str) -> bool:
        """Return whether the proxy wants this resource, and has not acknowledged this version of it."""
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

    def resources(self, names: Iterable[str]) -> list[ResourceChange]:
        """Return all wanted resources of these names, for another group: it shares their bytes."""
        return [
            ResourceChange(kind, name, resource)
            for name in names
            for kind, wanted in self._wanted.items()
            if (resource := wanted.get(name)) is not None
        ]

    def apply(self, changes: Sequence[ResourceChange]) -> int:
        """Take over changes and mark the streams; return how many resources really changed."""
        touched: dict[ResourceType, list[str]] = {}
        for change in changes:
            wanted = self._wanted[change.kind].get(change.name)
            if change.resource is None:
                if wanted is None:
                    continue
                del self._wanted[change.kind][change.name]
                self._good[change.kind].pop(change.name, None)
                self._refused[change.kind].pop(change.name, None)
            elif wanted is not None and wanted == change.resource:
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
        if name in self._refused[kind] and not any(proxy.lacks(kind, name, version) for proxy in self.subscribers):
            del self._refused[kind][name]

    def refuse(self, kind: ResourceType, name: str, version: str, message: str, *, now: float) -> None:
        """Put a version into quarantine; the next attempt comes later each time."""
        wanted = self._wanted[kind].get(name)
        if wanted is None or wanted.version != version:
            return
        refused = self._refused[kind].get(name)
        attempts = refused.attempts + 1 if refused is not None and refused.version == version else 1
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


GATE_S = 5.0

_CLUSTER, _ENDPOINTS, _LISTENER = ResourceType.CLUSTER, ResourceType.ENDPOINTS, ResourceType.LISTENER
_USERS = (_LISTENER, ResourceType.ROUTES)


class Gate:
    """The order between the resource types of one stream."""

    def __init__(self, *, group: NodeGroup, subscriptions: Mapping[ResourceType, TypeSubscription]) -> None:
        self._group = group
        self._subscriptions = subscriptions
        #: Clusters that were sent on this stream and are not known to be ready.
        self.warming: set[str] = set()
        #: When a listener or its routes began to wait for clusters, or a removed cluster for what used it.
        self._waiting_since: dict[tuple[ResourceType, str], float] = {}
        #: The cluster for which routes waited last.
        self._awaited: dict[str, str] = {}

    def open(self, kind: ResourceType, *, now: float) -> list[str]:
        """Return the marked listeners, or routes, that may be sent or removed now."""
        return [name for name in self._subscriptions[kind].dirty if self._passes(kind, name, now)]

    def removable_clusters(self, *, now: float) -> list[str]:
        """Return the marked clusters that are not wanted and that no listener or route uses."""
        unused = self._subscriptions[_LISTENER].subscribed and all(self._subscriptions[kind].idle for kind in _USERS)
        return [
            name
            for name in self._subscriptions[_CLUSTER].dirty
            if self._group.wanted(_CLUSTER, name) is None and self._over(_CLUSTER, name, now, done=unused)
        ]

    def deadline(self) -> float | None:
        """Return when the longest wait ends by itself; None when nothing waits, or an acknowledgement comes first."""
        sending = {kind for kind in _USERS if self._subscriptions[kind].in_flight}
        times = [since for (kind, _), since in self._waiting_since.items() if kind not in sending]
        return min(times) + GATE_S if times else None

    def is_waiting(self, kind: ResourceType, name: str) -> bool:
        """Return whether this name waits."""
        return (kind, name) in self._waiting_since

    def leave(self, kind: ResourceType, name: str) -> None:
        """Forget that this name waits: it is being sent, or there is nothing to send."""
        self._waiting_since.pop((kind, name), None)
        self._awaited.pop(name, None)

    def acknowledged(self, kind: ResourceType, name: str, version: str) -> None:
        """Store that a cluster is ready, when this acknowledgement proves it."""
        subscription = self._subscriptions[kind]
        if name not in self.warming or name in subscription.forced:
            return
        cluster = self._group.effective(_CLUSTER, name)
        proof = _CLUSTER if cluster is not None and cluster.warms_by_ack else _ENDPOINTS
        if kind is proof and subscription.sent.get(name) == version:
            self.warming.discard(name)

    def _passes(self, kind: ResourceType, name: str, now: float) -> bool:
        user = self._group.effective(kind, name)
        if user is None or self._subscriptions[kind].sent.get(name) == user.version:
            self.leave(kind, name)
            return True
        if kind is not _LISTENER:
            return self._over(kind, name, now, done=self._all_ready() or self._are_ready(name, user.needs))
        clusters = self._subscriptions[_CLUSTER]
        for need in user.needs:
            if self._group.effective(_CLUSTER, need) is None and need not in clusters.acked:
                # The cluster was refused and there is no good one: the listener could only fail every connection.
                self.leave(kind, name)
                return False
        return self._over(kind, name, now, done=all(map(self._is_ready, user.needs)))

    def _is_ready(self, need: str) -> bool:
        """Return whether a proxy has a cluster, as far as there is one to have."""
        cluster = self._group.effective(_CLUSTER, need)
        if cluster is None:
            return True
        warm = self._subscriptions[_CLUSTER].sent.get(need) == cluster.version and need not in self.warming
        return warm and (cluster.warms_by_ack or need in self._subscriptions[_ENDPOINTS].acked)

    def _are_ready(self, name: str, needs: Sequence[str]) -> bool:
        """Return whether all clusters of routes are ready; the one that was not is looked at first."""
        awaited = self._awaited.get(name, "")
        if awaited in needs and not self._is_ready(awaited):
            return False
        self._awaited[name] = next(itertools.filterfalse(self._is_ready, needs), "")
        return not self._awaited[name]

    def _all_ready(self) -> bool:
        """Return whether no cluster is being sent or is warming, and none was refused: then there is no need to look.

        A route configuration may name thousands of clusters.
        """
        clusters, endpoints = self._subscriptions[_CLUSTER], self._subscriptions[_ENDPOINTS]
        busy = self.warming or clusters.refused or not (clusters.subscribed and clusters.idle and endpoints.idle)
        return not busy

    def _over(self, kind: ResourceType, name: str, now: float, *, done: bool) -> bool:
        """Return whether waiting is over, because the condition holds or because it has been long enough."""
        since = self._waiting_since.setdefault((kind, name), now)
        if done or now - since >= GATE_S:
            self.leave(kind, name)
            return True
        return False
