"""How is Envoy a provider?

In: the ``Provider`` protocol. Out: resources in the store, which the xDS server carries to the proxies of a
``Fleet``; and, read back from their acknowledgements, what is really programmed.

At start-up: ``start`` (listen, find or start the proxies), then ``ensure`` and ``apply`` for all that there is, then
``publish`` once. Until then the proxies are told nothing and go on with what they have, so that a restarted hub neither
removes nor repeats anything. It never removes what it was not told to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from prometheus_client.registry import CollectorRegistry

from fairlead.errors import Retry
from fairlead.model.change import Outcome, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import Capabilities
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey, Protocol
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.envoy.counters import Counters
from fairlead.providers.envoy.fleet import Fleet
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.frontends import Frontends
from fairlead.providers.envoy.identity import ServerCertificate
from fairlead.providers.envoy.names import load_balancer_of
from fairlead.providers.envoy.resources import ResourceType
from fairlead.providers.envoy.schema import packaged_schema
from fairlead.providers.envoy.server import XdsServer
from fairlead.providers.envoy.session import Session
from fairlead.providers.envoy.status_notifier import Answers
from fairlead.providers.envoy.store import Change, Store


class ProxyStatus(msgspec.Struct, frozen=True):
    """One connected proxy, for ``fairlead status``. ``last_ack_age_s`` is None before its first acknowledgement."""

    node_id: str
    group: str
    synced: bool
    acked_revision: int
    current_revision: int
    nacks: int
    connected_s: float
    last_ack_age_s: float | None

    @property
    def state(self) -> str:
        """Return the word that the table shows."""
        return "SYNCED" if self.synced else "STALE"


class EnvoyProvider:
    """Load balancers on Envoy. ``xds_address`` is where the proxies of this fleet find us."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        xds_address: str,
        certificate: ServerCertificate | None = None,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        schema = packaged_schema()
        self.fleet = fleet
        self.counters = Counters(registry=registry)
        self.store = Store()
        self.server = XdsServer(
            store=self.store,
            schema=schema,
            address=xds_address,
            certificate=certificate,
            counters=self.counters,
            on_progress=self._progressed,
            on_proxies=self._proxies_changed,
            clock=clock,
        )
        self._clock = clock
        self._frontends = Frontends(schema=schema, fleet=fleet)
        self._answers = Answers(observe=self._observe)
        self._progress = asyncio.Event()
        fleet.on_change(lambda key: self._answers.hint((key,)))

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen for proxies, and find or start them."""
        await self.server.start()
        try:
            await self.fleet.start()
        except BaseException:
            await self.server.stop()
            raise

    def publish(self) -> None:
        """Open the gate: everything has been ensured and applied once. Calling it again does nothing."""
        if not self.store.published:
            self.store.publish()

    async def sweep(self) -> None:
        """Take away what load balancers left behind that were deleted while no hub was running; after ``publish``."""
        if self.store.published:
            await self.fleet.sweep()

    async def close(self) -> None:
        """Stop talking; the proxies go on serving."""
        self._answers.close()
        await self.server.stop()
        await self.fleet.close()

    async def stop(self) -> None:
        """Stop talking and end the proxies: for tests, demos and explicit wishes only."""
        self._answers.close()
        await self.server.stop()
        await self.fleet.stop()

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Say what Envoy can do."""
        return Capabilities(
            protocols=frozenset({Protocol.TCP, Protocol.UDP}),
            allocation=self.fleet.allocation,
            ipv6=True,
            host_name_targets=True,
            source_ranges=True,
            affinity=True,
            proxy_protocol=True,
            weights=True,
            serves_whole_state=True,
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Tell ``notify`` of load balancers whose ``observe`` answers differently."""
        self._answers.subscribe(notify)

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Serve the frontend; ``Terminal`` when it cannot be, and then the one served before stays."""
        self._store(self._frontends.ensure(spec))
        self._answers.watch(spec.key)
        return await self.fleet.ensure(spec)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Serve the changed targets; the proxies have them some milliseconds later (``observe`` says when)."""
        found, outcomes = self._frontends.apply(changes)
        self._store(found)
        return outcomes

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Say what the connected proxies have acknowledged."""
        answer = self._observe(key)
        # Asked between a push and its acknowledgement: when that comes, it is news to whoever asked.
        self._answers.gave(key, answer)
        return answer

    async def delete(self, key: LoadBalancerKey) -> None:
        """Close its ports, then take away what led to them."""
        self._store(self._frontends.delete(key))
        await self.fleet.delete(key)
        self._answers.hint((key,))

    async def wait_programmed(self, key: LoadBalancerKey, *, timeout_s: float = 10.0) -> Observed:
        """Return once every connected proxy has acknowledged this load balancer.

        ``Retry`` after ``timeout_s``, or at once when a proxy has refused a part of it.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    found = self._observe(key)
                    if found is not None and (found.programmed or found.rejected):
                        break
                    await self.wait_progress()
        except TimeoutError as error:
            raise Retry(f"{key}: the proxies have not acknowledged it within {timeout_s:g} s") from error
        if found.rejected:
            raise Retry(f"{key}: refused by the proxy: {found.rejected}", reason=ConditionReason.REJECTED_BY_PROXY)
        return found

    async def wait_progress(self) -> None:
        """Return when a proxy has next said something, come or gone."""
        self._progress.clear()
        await self._progress.wait()

    # --- for people -------------------------------------------------------------------------------------------

    def proxies(self) -> list[ProxyStatus]:
        """Return the connected proxies, ordered by (group, node id)."""
        now = self._clock()
        found = [
            ProxyStatus(
                node_id=session.node_id,
                group=session.group.name,
                synced=session.synced,
                acked_revision=session.acked_revision,
                current_revision=session.group.revision,
                nacks=session.nacks,
                connected_s=now - session.connected_at,
                last_ack_age_s=None if session.last_ack_at is None else now - session.last_ack_at,
            )
            for session in self.server.sessions
        ]
        return sorted(found, key=lambda one: (one.group, one.node_id))

    def refusals(self) -> list[str]:
        """Return what proxies have said of listeners that they cannot open, sorted."""
        return sorted({text for group in self.store.groups() for text in group.refusals(ResourceType.LISTENER)})

    # --- inside -----------------------------------------------------------------------------------------------

    def _store(self, changes: dict[str, list[Change]]) -> None:
        for group, rows in changes.items():
            if self.store.group(group).apply(rows):
                for key in _owners(row.name for row in rows):
                    self._answers.watch(key)

    def _progressed(self, _session: Session, names: Iterable[str]) -> None:
        self._progress.set()
        self._answers.hint(_owners(names))

    def _proxies_changed(self, group: str) -> None:
        self._progress.set()
        self._answers.hint(self._frontends.in_group(group))

    def _observe(self, key: LoadBalancerKey) -> Observed | None:
        frontend = self._frontends.get(key)
        if frontend is None:
            return None
        group = self.store.group(frontend.group)
        sessions = [session for session in self.server.sessions if session.group is group]
        names = frontend.names()
        acknowledged = sum(session.has_all(names) for session in sessions)
        refusals = [
            f"port {listener}: {group.refusal(kind, port.name)}"
            for listener, port in frontend.ports.items()
            for kind in ResourceType
            if group.refusal(kind, port.name)
        ]
        where = self.fleet.addresses(key)
        return Observed(
            addresses=where.addresses,
            programmed=bool(sessions) and acknowledged == len(sessions) and not refusals,
            proxies=len(sessions),
            acknowledged=acknowledged,
            rejected="; ".join(refusals),
            message=where.message or ("" if sessions else "no proxy is connected"),
        )


def _owners(names: Iterable[str]) -> set[LoadBalancerKey]:
    return {key for key in map(load_balancer_of, names) if key is not None}


def create(
    *,
    data_dir: Path,
    concurrency: int = 0,
    registry: CollectorRegistry | None = None,
    binary: Path | None = None,
) -> EnvoyProvider:
    """Make the provider for one machine: its Envoy, and the socket on which the two talk, live in ``data_dir``."""
    fleet = LocalFleet(data_dir=data_dir, concurrency=concurrency, binary=binary)
    # The lock comes first: a second hub must not take the socket from the first one.
    fleet.prepare()
    return EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}", registry=registry)
