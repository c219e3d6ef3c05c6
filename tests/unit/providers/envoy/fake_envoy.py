"""A proxy as small as can be, that notices when resources come in the wrong order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from fairlead.providers.envoy.resources import DeltaRequest, ResourceType, packaged_schema
from fairlead.providers.envoy.session import Session
from fairlead.providers.envoy.store import NodeGroup

CLUSTER, ENDPOINTS, LISTENER = ResourceType.CLUSTER, ResourceType.ENDPOINTS, ResourceType.LISTENER
ROUTES, SECRET = ResourceType.ROUTES, ResourceType.SECRET
#: What names the resources of the other types that are asked for.
ASKED_BY = {ENDPOINTS: CLUSTER, ROUTES: LISTENER, SECRET: LISTENER}
RESPONSE = "envoy.service.discovery.v3.DeltaDiscoveryResponse"


class FakeEnvoy:
    """Takes responses one by one; refuses every response with a resource whose content starts with ``self.refused``."""

    def __init__(
        self,
        group: NodeGroup,
        *,
        strict: bool = True,
        on_progress: Callable[[Session, Iterable[str]], None] | None = None,
    ) -> None:
        self.group = group
        self._on_progress = on_progress
        self.now = 0.0
        self.has: dict[ResourceType, dict[str, tuple[str, bytes]]] = {kind: {} for kind in ResourceType}
        #: Clusters whose endpoints have come since they were changed last.
        self.warm: set[str] = set()
        self.strict = strict
        self.refused = b"bad"
        self.received = 0
        self.changes_received = 0
        self.wakes = 0
        self.session: Session
        self.inbox: deque[bytes] = deque()
        self.outbox: deque[DeltaRequest] = deque()
        self.connect()

    def connect(self) -> None:
        self.inbox.clear()
        self.outbox.clear()
        self.unacked = dict.fromkeys(ResourceType, 0)
        self._woken = False
        #: When the server pumps next even if nothing wakes it.
        self._due_s: float | None = None
        self.session = Session(group=self.group, node_id="fake", on_progress=self._on_progress, wake=self._wake)
        for kind in ResourceType:
            versions = {name: version for name, (version, _) in self.has[kind].items()}
            names = tuple(self.has[ASKED_BY[kind]]) if kind in ASKED_BY else ()
            if kind not in ASKED_BY or names:
                self.outbox.append(DeltaRequest(type_url=kind.value, subscribe=names, initial_versions=versions))

    def reconnect(self) -> None:
        self.session.close()
        self.connect()

    def _wake(self) -> None:
        self._woken = True
        self.wakes += 1

    def pump(self) -> None:
        """Take what the server would send now, which it does when it is woken or its time has come."""
        if self._woken or (self._due_s is not None and self._due_s <= self.now):
            self._woken = False
            self.inbox.extend(self.session.pump(now=self.now))
            self._due_s = self.session.deadline()

    def say(self) -> bool:
        """Send one thing that we have to say; the order within a type is kept."""
        if not self.outbox:
            return False
        request = self.outbox.popleft()
        if request.nonce:
            self.unacked[ResourceType(request.type_url)] -= 1
        self.session.on_request(request, now=self.now)
        self.pump()
        return True

    def hear(self) -> bool:
        """Take one response."""
        if not self.inbox:
            return False
        message = packaged_schema()._class(RESPONSE).FromString(self.inbox.popleft())
        kind = ResourceType(message.type_url)
        self.received += 1
        self.changes_received += len(message.resources) + len(message.removed_resources)
        self.unacked[kind] += 1
        if kind is not CLUSTER:
            assert self.unacked[kind] == 1, "one response in flight"
        resources = {resource.name: (resource.version, resource.resource.value) for resource in message.resources}
        assert len(resources) == len(message.resources)
        assert not set(resources) & set(message.removed_resources)
        error = next(
            (f"{name}: no good" for name, (_, content) in resources.items() if content.startswith(self.refused)), None
        )
        subscriptions = [] if error else self._apply(kind, resources, list(message.removed_resources))
        self.outbox.append(DeltaRequest(type_url=kind.value, nonce=message.nonce, error=error))
        self.outbox.extend(subscriptions)
        return True

    def _apply(
        self, kind: ResourceType, resources: dict[str, tuple[str, bytes]], removed: list[str]
    ) -> list[DeltaRequest]:
        has = self.has[kind]
        new = tuple(sorted(set(resources) - set(has)))
        gone = tuple(sorted(set(removed) & set(has)))
        for name in removed:
            has.pop(name, None)
            if kind is CLUSTER:
                assert name not in self.has[LISTENER] or not self.strict, "its listener goes first"
                assert name not in self.has[ROUTES] or not self.strict, "its routes go first"
                self.has[ENDPOINTS].pop(name, None)
                self.warm.discard(name)
        for name, resource in resources.items():
            if kind in {LISTENER, ROUTES} and has.get(name) != resource and self.strict:
                assert name in self.has[CLUSTER], "listeners and routes come after their cluster"
                assert name in self.warm, "listeners and routes come after the endpoints"
            if kind is CLUSTER:
                self.warm.discard(name)
            if kind in ASKED_BY and name not in self.has[ASKED_BY[kind]]:
                continue  # sent before the hub heard that we no longer want them
            if kind is ENDPOINTS:
                self.warm.add(name)
            has[name] = resource
        asked = [each for each, by in ASKED_BY.items() if by is kind]
        for each in asked:
            for name in gone:
                self.has[each].pop(name, None)
        if not (new or gone):
            return []
        return [DeltaRequest(type_url=each.value, subscribe=new, unsubscribe=gone) for each in asked]

    def settle(self) -> None:
        """Exchange messages until neither side has one, letting time pass where something waits for it."""
        for _ in range(2000):
            self.pump()
            if self.hear() or self.say():
                continue
            if self._woken:
                continue
            deadline = self._due_s
            if deadline is None or deadline > self.now + 10:
                return
            assert deadline > self.now
            self.now = deadline
        raise AssertionError("it never ends")
