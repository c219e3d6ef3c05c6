"""The Advertisements and BGPPeers at the hub's API: the announcements in force, and the objects' statuses.

    caches + Secrets of passwords ─► Announcements ─► plans
    Announcements, addresses, sessions that machines report ─► status of each object

A Secret is read by its name, when a BGPPeer changes and every minute; hubs never list Secrets. If a
Secret exists but cannot be read, its last read content stays in use.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from fairlead.api.announcing import (
    ADVERTISEMENTS,
    BGP_PEERS,
    Advertisement,
    AdvertisementStatus,
    BGPPeer,
    BGPPeerStatus,
)
from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import transitions, wire_conditions
from fairlead.api.names import MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.api.proxymachine import ProxyMachine, RouterSession
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import emit_transitions, write_status
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.providers.envoy.certificates import data_of
from fairlead.translate.announcing import Announcements, PlacedAddress, accept

_SECRETS_S = 60.0

log = structlog.get_logger(__name__)


class AnnouncementObjects:
    """The objects of one hub; ``changed`` is called when the announcements in force change."""

    def __init__(self, *, cluster: Cluster, events: EventRecorder, changed: Callable[[], None]) -> None:
        self._cluster = cluster
        self._events = events
        self._changed = changed
        self._peers: WatchCache[BGPPeer] = WatchCache(cluster, BGP_PEERS)
        self._advertisements: WatchCache[Advertisement] = WatchCache(cluster, ADVERTISEMENTS)
        self._secrets: dict[str, Mapping[str, bytes] | None] = {}
        self._read = asyncio.Event()
        self._stale = asyncio.Event()
        self._peers.on_object(self._peer_changed, part=_announced)
        self._advertisements.on_object(lambda _obj: self._changed(), part=_announced)

    async def run(self) -> None:
        """Read the objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._peers.run())
            group.create_task(self._advertisements.run())
            group.create_task(self._keep_secrets())

    async def wait_read(self) -> None:
        """Return once everything was read: missing objects would withdraw routes."""
        for cache in (self._peers, self._advertisements):
            await cache.wait_synced()
        await self._read.wait()

    def in_force(self) -> Announcements:
        """Return the announcements in force."""
        return accept(self._peers.values(), self._advertisements.values(), self._secrets)

    async def write_statuses(
        self, given: Announcements, addresses: Sequence[PlacedAddress], machines: Iterable[ProxyMachine]
    ) -> None:
        """Write the statuses that differ.

        Raises:
            FairleadError: one cannot be written.
        """
        now = wire_time(self._cluster.clock.now())
        # Objects that change during the write are left to the next plan, which writes their statuses.
        advertisements, peers = list(self._advertisements.values()), list(self._peers.values())
        selected = Counter(entry[0] for placed in addresses if (entry := given.selecting(placed)) is not None)
        for advertisement in advertisements:
            name, old = advertisement.metadata.name, advertisement.status
            generation = advertisement.metadata.generation
            conditions = [given.conditions[name]] if name in given.conditions else []
            status = AdvertisementStatus(
                addresses=selected[name],
                accepted=given.accepted(name),
                observed_generation=generation,
                conditions=wire_conditions(conditions, old.conditions, generation=generation, now=now),
            )
            written = await write_status(self._cluster, ADVERTISEMENTS, advertisement, old, status, manager=MANAGER_HUB)
            if written is not None:
                changes = transitions(old.conditions, status.conditions)
                emit_transitions(self._events, ADVERTISEMENTS, advertisement, changes)
        sessions = [session for machine in machines for session in machine.status.sessions]
        for peer in peers:
            name, before, generation = peer.metadata.name, peer.status, peer.metadata.generation
            mine = [session for session in sessions if session.peer == name]
            verdicts = given.peer_conditions.get(name, ())
            conditions = [*verdicts, _ready(name, mine, verdicts)]
            status_of_peer = BGPPeerStatus(
                sessions=f"{sum(session.up for session in mine)}/{len(mine)}",
                accepted=given.accepted_peer(name),
                observed_generation=generation,
                conditions=wire_conditions(conditions, before.conditions, generation=generation, now=now),
            )
            written = await write_status(self._cluster, BGP_PEERS, peer, before, status_of_peer, manager=MANAGER_HUB)
            if written is not None:
                changes = transitions(before.conditions, status_of_peer.conditions)
                emit_transitions(self._events, BGP_PEERS, peer, changes)

    def _peer_changed(self, _peer: BGPPeer) -> None:
        self._stale.set()
        self._changed()

    async def _keep_secrets(self) -> None:
        await self._peers.wait_synced()
        while True:
            self._stale.clear()
            names = {
                spec.password_secret
                for peer in self._peers.values()
                for spec in (peer.spec, peer.status.accepted)
                if spec is not None and spec.password_secret
            }
            secrets = {name: await self._secret(name) for name in sorted(names)}
            if secrets != self._secrets or not self._read.is_set():
                self._secrets = secrets
                self._read.set()
                self._changed()
            try:
                async with asyncio.timeout(_SECRETS_S):
                    await self._stale.wait()
            except TimeoutError:
                continue

    async def _secret(self, name: str) -> Mapping[str, bytes] | None:
        try:
            return data_of(await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, name))
        except NotFound:
            return None
        except FairleadError as error:
            log.warning("the password of a router is not read", secret=name, sentence=error.sentence)
            return self._secrets.get(name)


def _ready(name: str, sessions: Sequence[RouterSession], verdicts: Sequence[Condition]) -> Condition:
    refused = next((condition for condition in verdicts if not condition.good), None)
    if refused is not None:
        # The sessions belong to an earlier spec.
        return msgspec.structs.replace(refused, type=ConditionType.READY, status=False)
    down = [session for session in sessions if not session.up]
    if not sessions:
        sentence = f"No machine has reported a session with {name} yet"
        return Condition(ConditionType.READY, None, ConditionReason.PENDING, sentence)
    if down:
        why = next((session.problem for session in down if session.problem), f"the session is {down[0].state}")
        sentence = f"{len(down)} of {len(sessions)} sessions are down: {why}"
        return Condition(ConditionType.READY, False, ConditionReason.SESSION_DOWN, sentence)
    return Condition(ConditionType.READY, True, ConditionReason.READY)


def _announced(obj: BGPPeer | Advertisement) -> tuple[object, ...]:
    return obj.spec, obj.deleting
