"""One ADS stream of one Envoy: what is to be sent next.

In: Envoy's requests, marks from the ``NodeGroup``, the time. Out: encoded responses (``pump``), and the names whose
state at the proxy has changed (``on_progress``). No input or output: ``server`` carries the bytes.

    changed in the group    clusters ──► endpoints of these clusters, again ──► (gate) ──► listeners, routes
    removed in the group    listeners, routes ──► clusters (their endpoints are unsubscribed by Envoy itself)

* Listeners, routes and removals of clusters wait at the ``gate``. Secrets never wait.
* Routes and secrets are never removed by name: Envoy drops them with what uses them, and unsubscribes.
* Clusters never wait: Envoy withholds their acknowledgement until all of that response have warmed. Endpoints and
  listeners have one response in flight, so changes meanwhile coalesce.
* A changed cluster forgets its endpoints without asking for them: they are sent again.
* A refused response counts as undelivered. It is split in halves until the bad resource is alone, which is then
  quarantined in the group.

Source: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from itertools import accumulate, chain, zip_longest

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.resources import DeltaRequest, EncodedResource, ResourceType, load_balancer_of, response
from fairlead.providers.envoy.store import Gate, NodeGroup, TypeSubscription

_CLUSTER, _ENDPOINTS, _LISTENER = ResourceType.CLUSTER, ResourceType.ENDPOINTS, ResourceType.LISTENER
_SECRET, _ROUTES = ResourceType.SECRET, ResourceType.ROUTES
#: Envoy asks for all of these; of the other types for what these name.
_WILDCARD = frozenset({_CLUSTER, _LISTENER})
#: Envoy keeps one as long as something uses it, whatever we say.
_NOT_REMOVED = frozenset({_SECRET, _ROUTES})
#: Kinds that are removed by name when a load balancer goes.
_HELD = (_LISTENER, _CLUSTER, _ENDPOINTS)
_ORDER = tuple(ResourceType)
_KINDS = {kind.value: kind for kind in _ORDER}


class _Frame(msgspec.Struct):
    """One response: resources, names to remove, and the version of each name ("" for a removal)."""

    kind: ResourceType
    resources: list[EncodedResource] = []
    removed: list[str] = []
    versions: dict[str, str] = {}
    #: Whether it changes what the proxy has.
    changing: bool = False


class Session:
    """The state of the delta xDS protocol on one stream."""

    def __init__(
        self,
        *,
        group: NodeGroup,
        node_id: str,
        counters: Counters | None = None,
        on_progress: Callable[[Session, Iterable[str]], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.group = group
        self.node_id = node_id
        self.last_ack_at: float | None = None
        self.nacks = 0
        self.acked_revision = 0
        #: Whether the bootstrap says that the proxy opens a health stream too.
        self.reports_health = False
        #: Where it answers for its statistics, "address:port"; empty when its bootstrap does not say.
        self.statistics = ""
        self._counters = counters or Counters()
        self._on_progress = on_progress or (lambda _session, _names: None)
        self._wake = wake or (lambda: None)
        self._subscriptions = {kind: TypeSubscription() for kind in ResourceType}
        self._of_all_kinds = tuple(self._subscriptions.values())
        #: What may differ between the group and what the proxy has acknowledged, by load balancer.
        self._changed: dict[LoadBalancerKey | None, set[tuple[ResourceType, str]]] = {}
        self._gate = Gate(group=group, subscriptions=self._subscriptions)
        self._shares = {kind: FairShare() for kind in ResourceType}
        self._last_nonce = 0
        #: Something is held, but not for longer than ``group.unknown.until``.
        self._holds_for_a_while = False
        #: What was not sent just now, as this proxy has refused that very version before.
        self._refused_again: list[str] = []
        self._was_synced = False
        self._has_been_synced = False
        group.subscribers.append(self)
        for kind in ResourceType:
            self._note_change(kind, group.names(kind))

    # --- in ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Forget the stream."""
        self.group.subscribers.remove(self)

    def mark(self, kind: ResourceType, names: Iterable[str], *, alone: bool = False) -> None:
        """Compare these names at the next ``pump``; ``alone``: each is sent in a response of its own."""
        self._note_change(kind, names)
        self._subscriptions[kind].mark(names, alone=alone)
        self._wake()

    def lacks(self, kind: ResourceType, name: str, version: str) -> bool:
        """Return whether the proxy wants this resource, and has not acknowledged this version of it."""
        return self._subscriptions[kind].wants(name) and not self.holds(kind, name, version)

    def on_request(self, request: DeltaRequest, *, now: float) -> None:
        """Process a subscription, an acknowledgement or a rejection."""
        kind = _KINDS.get(request.type_url)
        if kind is None:
            return
        subscription = self._subscriptions[kind]
        frame = subscription.in_flight.pop(request.nonce, None) if request.nonce else None
        if frame is not None and request.error is None:
            self._acknowledged(kind, frame, now=now)
        elif frame is not None:
            self._refused(kind, frame, request.error or "", now=now)
        if not subscription.subscribed:
            available = self.group.names(kind)
            subscription.start(request, available=available, wildcard_by_default=kind in _WILDCARD)
        subscription.subscribe(request, resend=self._gate.warming if kind is _ENDPOINTS else ())
        self._note_change(kind, request.unsubscribe)
        for name in request.unsubscribe:
            if not subscription.wants(name):
                # A resource that is no longer requested does not wait either: its turn would never end.
                self._gate.leave(kind, name)
        if request.initial_versions:
            self._on_progress(self, request.initial_versions)
        # Most acknowledgements leave nothing to send.
        if any(other.dirty or other.retry or other.empty_response_due for other in self._of_all_kinds):
            self._wake()
        else:
            self._update_synced()

    def _acknowledged(self, kind: ResourceType, frame: dict[str, str], *, now: float) -> None:
        subscription = self._subscriptions[kind]
        self.last_ack_at = now
        self._counters.acks[kind] += 1
        for name, version in frame.items():
            subscription.acknowledge(name, version)
            self._note_change(kind, (name,))
            if version:
                self.group.accept(kind, name, version)
                self._gate.acknowledged(kind, name, version)
        self._update_synced()
        self._on_progress(self, frame)

    def _refused(self, kind: ResourceType, frame: dict[str, str], message: str, *, now: float) -> None:
        self.nacks += 1
        self._counters.nacks[kind] += 1
        subscription = self._subscriptions[kind]
        culprit = subscription.refuse(frame, message)
        if culprit is not None:
            subscription.forget_refused(lambda name: self.group.wanted(kind, name) is None)
            self.group.refuse(kind, *culprit, message, now=now)
        self._on_progress(self, frame)

    # --- out --------------------------------------------------------------------------------------------------

    def pump(self, *, now: float) -> list[bytes]:
        """Return the responses that may be sent now, in order."""
        if not self.group.published:
            return []
        self._hold_unknown(now)
        out: list[bytes] = []
        clusters, endpoints, secrets = (self._subscriptions[kind] for kind in (_CLUSTER, _ENDPOINTS, _SECRET))
        self.group.retry_refused(now=now)
        while clusters.retry:
            self._push(out, _CLUSTER, clusters.retry.popleft(), now)
        present = [name for name in clusters.dirty if self.group.wanted(_CLUSTER, name) is not None]
        self._push(out, _CLUSTER, clusters.take(self._share(_CLUSTER, present)), now)
        if not endpoints.in_flight:
            self._push(
                out,
                _ENDPOINTS,
                endpoints.take_retry() or endpoints.take(self._share(_ENDPOINTS, [*endpoints.dirty])),
                now,
            )
        if not secrets.in_flight:
            self._push(out, _SECRET, secrets.take_retry() or secrets.take(secrets.dirty), now)
        for kind in (_LISTENER, _ROUTES):
            users = self._subscriptions[kind]
            if not users.in_flight:
                self._push(
                    out, kind, users.take_retry() or users.take(self._share(kind, self._gate.open(kind, now=now))), now
                )
        removable = self._gate.removable_clusters(now=now)
        self._push(out, _CLUSTER, clusters.take(self._share(_CLUSTER, removable)), now)
        for kind in (_CLUSTER, _LISTENER):  # those that Envoy wants all of
            subscription = self._subscriptions[kind]
            held = any(self._gate.is_waiting(kind, name) for name in subscription.dirty)
            if subscription.empty_response_due and not held and not subscription.in_flight and not subscription.retry:
                self._send(out, _Frame(kind))
        self._update_synced()
        self._counters.bytes_sent += sum(map(len, out))
        if self._refused_again:
            again, self._refused_again = self._refused_again, []
            self._on_progress(self, again)
        return out

    def _hold_unknown(self, now: float) -> None:
        """Set aside the removals that wait, and take back those that do so no longer."""
        unknown, self._holds_for_a_while = self.group.unknown, False
        for kind in _HELD:
            subscription = self._subscriptions[kind]
            if subscription.held:
                subscription.dirty |= subscription.held
                subscription.held = set()
            if not unknown.knows_all(now):
                gone = (name for name in subscription.dirty if self.group.wanted(kind, name) is None)
                subscription.held = {name for name in gone if unknown.waits(name, now)}
                there = subscription.dirty & subscription.inherited
                if kind is _ENDPOINTS:
                    subscription.held |= {name for name in there if unknown.keeps_endpoints(name, now)}
                elif kind is _CLUSTER:
                    subscription.held |= {name for name in there if unknown.keeps_cluster(name)}
                subscription.dirty -= subscription.held
                self._holds_for_a_while |= bool(subscription.held) and now < unknown.until

    def _share(self, kind: ResourceType, names: list[str]) -> list[str]:
        """Return those that are sent now; a proxy that is new to us gets all at once, since it is ready after that."""
        if not self._has_been_synced:
            return names
        under_way = sum(map(len, self._subscriptions[kind].in_flight.values()))
        return self._shares[kind].choose(names, BATCH - under_way, lambda name: self.group.size(kind, name))

    def deadline(self) -> float | None:
        """Return when ``pump`` has work even if no request arrives."""
        if not self.group.published:
            return None
        held = self.group.unknown.until if self._holds_for_a_while else None
        times = [time for time in (self._gate.deadline(), self.group.next_retry(), held) if time is not None]
        return min(times, default=None)

    @property
    def synced(self) -> bool:
        """Return whether the proxy has acknowledged all resources."""
        for subscription in self._of_all_kinds:
            if subscription.dirty or subscription.in_flight or subscription.retry:
                return False
        return self.group.published

    def held(self, kind: ResourceType, name: str) -> str:
        """Return the version of this resource that the proxy last acknowledged; empty for none."""
        return self._subscriptions[kind].acked.get(name, "")

    def acknowledged(self, kind: ResourceType) -> Collection[str]:
        """Return the names of the resources of a kind that the proxy has acknowledged."""
        return self._subscriptions[kind].acked.keys()

    def holds(self, kind: ResourceType, name: str, version: str) -> bool:
        """Return whether the proxy has acknowledged this version of this resource."""
        return self._subscriptions[kind].acked.get(name) == version

    @property
    def refused_now(self) -> int:
        """Return the number of wanted resources that the proxy rejects in their present version."""
        wanted = (
            (refused[0], self.group.wanted(kind, name))
            for kind, subscription in self._subscriptions.items()
            for name, refused in subscription.refused.items()
        )
        return sum(resource is not None and resource.version == version for version, resource in wanted)

    def has_all(self, key: LoadBalancerKey | None, names: Container[str]) -> bool:
        """Return whether the proxy has acknowledged all that is wanted of a load balancer, and is to be sent now.

        ``names`` are those of its resources. It may have thousands, and this is asked of every proxy when one has
        acknowledged: only those are looked at that have changed since they were acknowledged last.
        """
        changed = self._changed.get(key, set[tuple[ResourceType, str]]())
        for kind, name in list(changed):
            resource = self.group.wanted(kind, name)
            if resource is None or self.holds(kind, name, resource.version):
                changed.discard((kind, name))
            elif name in names and name not in self._subscriptions[kind].held:
                return False
        if not changed:
            self._changed.pop(key, None)
        return True

    def _note_change(self, kind: ResourceType, names: Iterable[str]) -> None:
        """Note that what is wanted under these names, or what the proxy has of it, is another version now."""
        for name in names:
            if self.group.wanted(kind, name) is not None:
                self._changed.setdefault(load_balancer_of(name), set()).add((kind, name))

    def _push(self, out: list[bytes], kind: ResourceType, names: Iterable[str], now: float) -> None:
        """Send those of ``names`` whose state at the proxy is not the one in the group, in one response."""
        frame = _Frame(kind)
        for name in sorted(names):
            self._add(frame, name, now)
        if frame.versions:
            self._send(out, frame)

    def _add(self, frame: _Frame, name: str, now: float) -> None:
        kind, subscription = frame.kind, self._subscriptions[frame.kind]
        resource = self.group.effective(kind, name)
        sent = subscription.sent.get(name)
        forced = name in subscription.forced
        subscription.forced.discard(name)
        self._gate.leave(kind, name)
        if resource is None:
            # Refused without a good one before it: the proxy keeps what it has, which may be an older one.
            gone = kind not in _NOT_REMOVED and self.group.wanted(kind, name) is None
            if forced if sent is None else gone:
                frame.removed.append(name)
                frame.versions[name] = ""
                there = self._subscriptions[frame.kind].sent.pop(name, None) is not None
                if frame.kind is _CLUSTER:
                    self._gate.warming.discard(name)
                # Clusters and endpoints go when no listener and no route names them, which was the change. They may be
                # what a hub before this one kept for connections that drain.
                frame.changing = frame.changing or (there and frame.kind not in (_CLUSTER, _ENDPOINTS))
        elif sent == resource.version and not forced:
            if subscription.acked.get(name) == resource.version:
                self.group.accept(kind, name, resource.version)
        elif (refused := subscription.refused.get(name)) is not None and refused[0] == resource.version:
            # Removed and wanted again: the group has forgotten, this proxy has not changed its mind. Where another
            # proxy has accepted that version, the group knows.
            if not self.group.refusal(kind, name):
                self.group.refuse(kind, name, *refused, now=now)
                self._refused_again.append(name)
        else:
            frame.resources.append(resource)
            frame.versions[name] = resource.version
            frame.changing = frame.changing or sent != resource.version
            subscription.sent[name] = resource.version
            if kind is _CLUSTER:
                self._gate.warming.add(name)
                endpoints = self._subscriptions[_ENDPOINTS]
                if name in endpoints.names:
                    endpoints.dirty.add(name)
                    endpoints.forced.add(name)

    def _send(self, out: list[bytes], frame: _Frame) -> None:
        kind, subscription = frame.kind, self._subscriptions[frame.kind]
        self._last_nonce += 1
        nonce = str(self._last_nonce)
        subscription.in_flight[nonce] = frame.versions
        subscription.empty_response_due = False
        self._counters.pushes[kind] += 1
        self._counters.changing_pushes[kind] += frame.changing
        self._counters.resources[kind] += len(frame.versions)
        revision = self.group.revision
        out.append(response(kind, resources=frame.resources, removed=frame.removed, nonce=nonce, revision=revision))

    def _update_synced(self) -> None:
        synced = self.synced
        if synced:
            self.acked_revision = self.group.revision
        if synced and not self._was_synced:
            self._on_progress(self, ())
        self._was_synced = synced
        answered = all(
            self._subscriptions[kind].subscribed and not self._subscriptions[kind].empty_response_due
            for kind in (_CLUSTER, _LISTENER)
        )
        self._has_been_synced = self._has_been_synced or (synced and answered)


#: Resources of one type under way at once, about a second's work of an Envoy that has thousands of them.
BATCH = 128
#: The routes of thousands of hosts, or the endpoints of tens of thousands.
BATCH_BYTES = 1024 * 1024


class FairShare:
    """Chooses for one stream and one type; whose turn comes first moves on with each choice."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, names: Iterable[str], room: int, size_of: Callable[[str], int] = lambda _name: 0) -> list[str]:
        """Return at most ``room`` of ``names``: all, or as many of each member as of every other."""
        ordered = sorted(names)
        if len(ordered) <= room and sum(map(size_of, ordered)) <= BATCH_BYTES:
            return ordered
        by_member: dict[str, list[str]] = {}
        for name in ordered:
            by_member.setdefault(_member_of(name), []).append(name)
        members = list(by_member)
        first = self._turn % len(members)
        self._turn += 1
        turns = zip_longest(*(by_member[member] for member in [*members[first:], *members[:first]]))
        chosen = [name for name in chain.from_iterable(turns) if name is not None][: max(0, room)]
        before = accumulate(map(size_of, chosen), initial=0)
        return [name for name, size in zip(chosen, before, strict=False) if size < BATCH_BYTES]


def _member_of(name: str) -> str:
    """Return the namespace at the hub, the second part of every name of ours."""
    return name.split("/", 2)[1] if "/" in name else ""


_TYPED = {
    "pushes": "Responses sent to Envoy",
    "changing_pushes": "Responses that changed at least one resource of the Envoy that got them",
    "resources": "Resources sent to Envoy, removals included",
    "nacks": "Responses that Envoy refused",
    "acks": "Responses that Envoy acknowledged",
}


class Counters(Collector):
    """Counts since the start of the process, by resource type where that matters."""

    def __init__(self, *, registry: CollectorRegistry | None = None) -> None:
        self.pushes = dict.fromkeys(ResourceType, 0)
        self.changing_pushes = dict.fromkeys(ResourceType, 0)
        self.resources = dict.fromkeys(ResourceType, 0)
        self.nacks = dict.fromkeys(ResourceType, 0)
        self.acks = dict.fromkeys(ResourceType, 0)
        self.bytes_sent = 0
        self.streams = 0
        if registry is not None:
            registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of one scrape."""
        for name, text in _TYPED.items():
            family = CounterMetricFamily(f"fairlead_xds_{name}", text, labels=["type"])
            for kind, count in getattr(self, name).items():
                family.add_metric([kind.short], count)
            yield family
        yield CounterMetricFamily("fairlead_xds_bytes_sent", "Bytes sent to Envoy", value=self.bytes_sent)
        yield GaugeMetricFamily("fairlead_xds_streams", "Proxies that are connected now", value=self.streams)
