"""What is to be said next on one stream of one Envoy?

In: Envoy's requests, marks from the ``Group``, the time. Out: encoded responses (``pump``), and the names about which
the proxy's knowledge has changed (``on_progress``). No input or output: ``server`` carries the bytes.

    changed in the group    clusters ──► endpoints of these clusters, again ──► (gate) ──► listeners
    removed in the group    listeners ──► clusters (their endpoints are unsubscribed by Envoy itself)

* Listeners wait at the gate until their clusters are ready: endpoints acknowledged, or, where only that proves it
  (health checks, DNS), the cluster itself. Otherwise the first connections fail. Nothing waits longer than
  ``GATE_S``.
* Clusters never wait: Envoy withholds their acknowledgement until all of that response have warmed. Endpoints and
  listeners have one response in flight, so changes meanwhile coalesce.
* A changed cluster forgets its endpoints without asking for them: they are sent again.
* A refused response counts as undelivered. It is split in halves until the culprit stands alone, which is then
  quarantined in the group.

Source: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.providers.envoy.counters import Counters
from fairlead.providers.envoy.nack_bisect import split_refused
from fairlead.providers.envoy.resources import Entry, ResourceType, response
from fairlead.providers.envoy.schema import DeltaRequest
from fairlead.providers.envoy.store import Group
from fairlead.providers.envoy.type_subscription import Side

GATE_S = 5.0

_CLUSTER, _ENDPOINTS, _LISTENER = ResourceType.CLUSTER, ResourceType.ENDPOINTS, ResourceType.LISTENER
_KINDS = {kind.value: kind for kind in ResourceType}


class Session:
    """The delta xDS protocol of one stream."""

    def __init__(
        self,
        *,
        group: Group,
        node_id: str,
        now: float,
        counters: Counters | None = None,
        on_progress: Callable[[Session, Iterable[str]], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.group = group
        self.node_id = node_id
        self.connected_at = now
        self.last_ack_at: float | None = None
        self.nacks = 0
        self.acked_revision = 0
        self._counters = counters or Counters()
        self._on_progress = on_progress or (lambda _session, _names: None)
        self._wake = wake or (lambda: None)
        self._sides = {kind: Side() for kind in ResourceType}
        self._last_nonce = 0
        self._now = now
        self._was_synced = False
        #: Clusters that were sent on this stream and are not known to be ready.
        self._warming: set[str] = set()
        #: When a listener began to wait at the gate, or a removed cluster for its listeners.
        self._waiting: dict[tuple[ResourceType, str], float] = {}
        group.subscribers.append(self)

    # --- in ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Forget the stream."""
        self.group.subscribers.remove(self)

    def mark(self, kind: ResourceType, names: Iterable[str], *, alone: bool = False) -> None:
        """Look at these names again at the next ``pump``."""
        side = self._sides[kind]
        wanted = [name for name in names if side.wants(name)]
        if alone:
            for name in wanted:
                side.refused.pop(name, None)
                side.retry.append((name,))
        else:
            side.dirty.update(wanted)
        self._wake()

    def on_request(self, request: DeltaRequest, *, now: float) -> None:
        """Take in a subscription, an acknowledgement or a refusal."""
        kind = _KINDS.get(request.type_url)
        if kind is None:
            return
        side = self._sides[kind]
        if request.nonce:
            frame = side.in_flight.pop(request.nonce, None)
            if frame is not None and request.error is None:
                self._acknowledged(kind, frame, now=now)
            elif frame is not None:
                self._refused(kind, frame, request.error or "", now=now)
        if not side.subscribed:
            self._first_request(kind, request)
        self._subscribe(kind, request)
        if request.initial_versions:
            self._on_progress(self, request.initial_versions)
        self._wake()

    def _first_request(self, kind: ResourceType, request: DeltaRequest) -> None:
        side = self._sides[kind]
        side.subscribed = True
        side.known.update(request.initial_versions)
        side.acked.update(request.initial_versions)
        if "*" in request.subscribe or (not request.subscribe and kind is not _ENDPOINTS):
            side.wildcard = True
            side.dirty.update(request.initial_versions, self.group.names(kind))
            side.answer_due = not request.initial_versions

    def _subscribe(self, kind: ResourceType, request: DeltaRequest) -> None:
        side = self._sides[kind]
        for name in request.unsubscribe:
            side.names.discard(name)
            if not side.wildcard:
                for known in (side.known, side.acked):
                    known.pop(name, None)
                side.dirty.discard(name)
                side.forced.discard(name)
        for name in request.subscribe:
            if name == "*":
                continue
            side.names.add(name)
            side.dirty.add(name)
            # An answer is owed, even if it is "no such thing": a missing one holds up the proxy's start.
            if name not in request.initial_versions or (kind is _ENDPOINTS and name in self._warming):
                side.forced.add(name)

    def _acknowledged(self, kind: ResourceType, frame: dict[str, str], *, now: float) -> None:
        side = self._sides[kind]
        self.last_ack_at = now
        self._counters.acks[kind] += 1
        for name, version in frame.items():
            if not version:
                side.acked.pop(name, None)
                continue
            if side.wants(name):
                side.acked[name] = version
            self.group.accept(kind, name, version)
            if name in self._warming and kind is not _LISTENER and name not in side.forced:
                cluster = self.group.effective(_CLUSTER, name)
                proof = _CLUSTER if cluster is not None and cluster.warms_by_ack else _ENDPOINTS
                if kind is proof and side.known.get(name) == version:
                    self._warming.discard(name)
        self._note_revision()
        self._on_progress(self, frame)

    def _refused(self, kind: ResourceType, frame: dict[str, str], message: str, *, now: float) -> None:
        side = self._sides[kind]
        self.nacks += 1
        self._counters.nacks[kind] += 1
        if len(frame) == 1:
            ((name, version),) = frame.items()
            # Envoy has kept what it had.
            side.known.pop(name, None)
            if version:
                if name in side.acked:
                    side.known[name] = side.acked[name]
                side.refused[name] = version, message
                side.dirty.add(name)
                self.group.refuse(kind, name, version, message, now=now)
        else:
            for name in frame:
                side.known[name] = ""
            side.retry.extendleft(reversed(split_refused(sorted(frame), message)))
        self._on_progress(self, frame)

    # --- out --------------------------------------------------------------------------------------------------

    def pump(self, *, now: float) -> list[bytes]:
        """Return the responses that may be sent now, in order."""
        if not self.group.published:
            return []
        self._now = now
        out: list[bytes] = []
        self.group.retry_refused(now=now)
        self._push_clusters(out)
        self._push(out, _ENDPOINTS, self._take_all(_ENDPOINTS))
        self._push(out, _LISTENER, self._take_listeners(now))
        self._push(out, _CLUSTER, self._take_removed_clusters(now))
        for kind in (_CLUSTER, _LISTENER):
            self._answer_empty(out, kind)
        self._note_revision()
        self._counters.bytes_sent += sum(map(len, out))
        return out

    def deadline(self) -> float | None:
        """Return when ``pump`` has something to do even if nothing comes in."""
        if not self.group.published:
            return None
        sending = self._sides[_LISTENER].in_flight  # its acknowledgement wakes us
        times = [since + GATE_S for (kind, _), since in self._waiting.items() if kind is _CLUSTER or not sending]
        retry = self.group.next_retry()
        return min(times if retry is None else [*times, retry], default=None)

    @property
    def synced(self) -> bool:
        """Say whether the proxy has acknowledged all that there is."""
        return self.group.published and all(side.idle for side in self._sides.values())

    def holds(self, kind: ResourceType, name: str, version: str) -> bool:
        """Say whether the proxy has acknowledged this version of this resource."""
        return self._sides[kind].acked.get(name) == version

    def has_all(self, names: Iterable[str]) -> bool:
        """Say whether the proxy has acknowledged all that is wanted under these names."""
        for name in names:
            for kind in ResourceType:
                wanted = self.group.wanted(kind, name)
                if wanted is not None and not self.holds(kind, name, wanted.version):
                    return False
        return True

    def _push_clusters(self, out: list[bytes]) -> None:
        side = self._sides[_CLUSTER]
        while side.retry:
            self._push(out, _CLUSTER, side.retry.popleft())
        present = [name for name in side.dirty if self.group.wanted(_CLUSTER, name) is not None]
        side.dirty.difference_update(present)
        self._push(out, _CLUSTER, present)

    def _take_all(self, kind: ResourceType) -> Iterable[str]:
        side = self._sides[kind]
        if side.in_flight:
            return ()
        if side.retry:
            return side.retry.popleft()
        names, side.dirty = side.dirty, set()
        return names

    def _take_listeners(self, now: float) -> Iterable[str]:
        side = self._sides[_LISTENER]
        if side.in_flight:
            return ()
        if side.retry:
            return side.retry.popleft()
        passed = [name for name in side.dirty if self._passes_gate(name, now)]
        side.dirty.difference_update(passed)
        return passed

    def _passes_gate(self, name: str, now: float) -> bool:
        found = self.group.effective(_LISTENER, name)
        if found is None or self._sides[_LISTENER].known.get(name) == found.version:
            self._waiting.pop((_LISTENER, name), None)
            return True
        clusters = self._sides[_CLUSTER]
        ready = True
        for need in found.needs:
            cluster = self.group.effective(_CLUSTER, need)
            if cluster is not None:
                warm = clusters.known.get(need) == cluster.version and need not in self._warming
                ready = ready and warm and (cluster.warms_by_ack or need in self._sides[_ENDPOINTS].acked)
            elif need not in clusters.acked:
                # Its cluster was refused and there is no good one: the listener could only fail every connection.
                self._waiting.pop((_LISTENER, name), None)
                return False
        return self._waited(_LISTENER, name, now, over=ready)

    def _take_removed_clusters(self, now: float) -> Iterable[str]:
        side, listeners = self._sides[_CLUSTER], self._sides[_LISTENER]
        free = listeners.subscribed and listeners.idle
        removed = [
            name
            for name in side.dirty
            if self.group.wanted(_CLUSTER, name) is None and self._waited(_CLUSTER, name, now, over=free)
        ]
        side.dirty.difference_update(removed)
        return removed

    def _waited(self, kind: ResourceType, name: str, now: float, *, over: bool) -> bool:
        """Say whether waiting is over, because the condition holds or because it has been long enough."""
        since = self._waiting.setdefault((kind, name), now)
        if over or now - since >= GATE_S:
            del self._waiting[kind, name]
            return True
        return False

    def _push(self, out: list[bytes], kind: ResourceType, names: Iterable[str]) -> None:
        side = self._sides[kind]
        entries: list[Entry] = []
        removed: list[str] = []
        frame: dict[str, str] = {}
        changing = False
        for name in sorted(names):
            found = self.group.effective(kind, name)
            known = side.known.get(name)
            forced = name in side.forced
            side.forced.discard(name)
            self._waiting.pop((kind, name), None)
            if found is None:
                # Refused without a good one before it: the proxy keeps what it has, which may be an older one.
                if not (forced if known is None else self.group.wanted(kind, name) is None):
                    continue
                removed.append(name)
                frame[name] = ""
                changing = changing or known is not None
                side.known.pop(name, None)
                if kind is _CLUSTER:
                    self._warming.discard(name)
            elif known == found.version and not forced:
                if side.acked.get(name) == found.version:
                    self.group.accept(kind, name, found.version)
            elif (refused := side.refused.get(name)) is not None and refused[0] == found.version:
                # Removed and wanted again: the group has forgotten, this proxy has not changed its mind.
                self.group.refuse(kind, name, *refused, now=self._now)
            else:
                entries.append(found)
                frame[name] = found.version
                changing = changing or known != found.version
                side.known[name] = found.version
                if kind is _CLUSTER:
                    self._sent_cluster(name)
        if frame:
            self._send(out, kind, entries, removed, frame, changing=changing)

    def _sent_cluster(self, name: str) -> None:
        self._warming.add(name)
        endpoints = self._sides[_ENDPOINTS]
        if name in endpoints.names:
            endpoints.dirty.add(name)
            endpoints.forced.add(name)

    def _answer_empty(self, out: list[bytes], kind: ResourceType) -> None:
        side = self._sides[kind]
        held = any((kind, name) in self._waiting for name in side.dirty)
        if side.answer_due and not held and not side.in_flight and not side.retry:
            self._send(out, kind, [], [], {}, changing=False)

    def _send(
        self,
        out: list[bytes],
        kind: ResourceType,
        entries: list[Entry],
        removed: list[str],
        frame: dict[str, str],
        *,
        changing: bool,
    ) -> None:
        side = self._sides[kind]
        self._last_nonce += 1
        nonce = str(self._last_nonce)
        side.in_flight[nonce] = frame
        side.answer_due = False
        self._counters.pushes[kind] += 1
        self._counters.changing_pushes[kind] += changing
        self._counters.resources[kind] += len(frame)
        out.append(response(kind, entries=entries, removed=removed, nonce=nonce, revision=self.group.revision))

    def _note_revision(self) -> None:
        synced = self.synced
        if synced:
            self.acked_revision = self.group.revision
        if synced and not self._was_synced:
            self._on_progress(self, ())
        self._was_synced = synced
