"""How does one Service get to the hub, and stay as it is in the member?

    key ─► Service there? ─no─► ours before? ─► remove at the hub        (only when the member's view is current)
             │ yes
             ▼
           decide ─► build_export ─► plan_service ─► HubWriter
             │            │
             │            └─ refused: keep what is there, tell the author
             └─ not ours: remove

In: caches. Out: writes at the hub, notes for the Service's author.
Never: acts on a cache that is not synced, or removes because of an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import structlog

from fairlead.agent.decision import NotOurs, Ours, Refused
from fairlead.agent.event_writer import Teller
from fairlead.agent.events import Note, warn
from fairlead.agent.export import Export, NotYet, ServiceView, Settings, build_export
from fairlead.agent.hub_writer import HubWriter
from fairlead.agent.identity import ServiceKey
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.ownership import CloudLoadBalancer, decide
from fairlead.agent.plan import Plan, plan_removal, plan_service
from fairlead.agent.sources import MemberService, Sources
from fairlead.agent.warnings import advise
from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.meta import KubeObject
from fairlead.api.naming import hub_name
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.errors import Retry

#: A removal that waits for the member's caches to be current looks again this often.
NOT_CURRENT_RETRY_S = 5.0
CONFLICTED = "Conflicted"


class Exporter:
    """Reconciles one Service key at a time."""

    def __init__(
        self,
        *,
        sources: Sources,
        writer: HubWriter,
        teller: Teller,
        metrics: AgentMetrics,
        settings: Settings,
        cloud: CloudLoadBalancer,
        fresh_s: float,
        node_addresses: Mapping[str, str],
    ) -> None:
        self._sources = sources
        self._writer = writer
        self._teller = teller
        self._metrics = metrics
        self._settings = settings
        self._cloud: CloudLoadBalancer = cloud
        self._fresh_s = fresh_s
        self._node_addresses = node_addresses
        self._refused: dict[ServiceKey, str] = {}
        self._exported: set[ServiceKey] = set()
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.export")

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Make the hub hold what ``key`` should have; return when to look again, if something holds us up."""
        if key in self._sources.services.broken:
            # It exists and cannot be read: what was exported stays, as for any other missing information.
            return None
        service = self._sources.services.get(*key)
        if service is None:
            self._teller.forget(key)
            self._count(key)
            return await self._remove(key, "the Service is gone")
        decision = decide(service, cloud=self._cloud)
        notes = list(advise(service, decision))
        match decision:
            case NotOurs(why):
                return await self._not_ours(key, service, why, notes)
            case Refused():
                return await self._refuse(key, service, decision, notes)
            case Ours():
                return await self._export(key, service, decision, notes)

    async def _not_ours(self, key: ServiceKey, service: MemberService, why: str, notes: list[Note]) -> float | None:
        self._count(key)
        self._teller.tell("export", service, notes)
        return await self._remove(key, why)

    async def _refuse(
        self, key: ServiceKey, service: MemberService, refused: Refused, notes: list[Note]
    ) -> float | None:
        self._count(key, refused=refused.reason)
        sentence = refused.sentence
        if refused.keep and self._load_balancer(key) is not None:
            sentence += " What was exported before stays as it is until then."
        self._teller.tell("export", service, [*notes, warn(refused.reason, sentence)])
        return None if refused.keep else await self._remove(key, sentence)

    async def _export(self, key: ServiceKey, service: MemberService, ours: Ours, notes: list[Note]) -> float | None:
        view = ServiceView(
            service=service,
            slices=self._sources.slices_of_service(key),
            before=self._hub_slices(key),
            class_targets=self._sources.class_targets(),
            node_addresses=self._node_addresses,
        )
        export = build_export(view, ours, self._settings)
        if isinstance(export, Refused):
            return await self._refuse(key, service, export, notes)
        if isinstance(export, NotYet):
            self._log.debug("not yet", key=key, why=export.why)
            return None
        plan = self._plan(key, export, view.before)
        if plan.conflict:
            sentence = f"{plan.conflict}: it is left alone. Rename the Service, or remove that object at the hub."
            notes.append(warn(CONFLICTED, sentence))
            self._count(key, refused=CONFLICTED)
        else:
            self._count(key, exported=True)
        held = await self._write(plan)
        self._teller.tell("export", service, notes)
        return NOT_CURRENT_RETRY_S if held else None

    def _plan(self, key: ServiceKey, export: Export, before: tuple[EndpointSlice, ...]) -> Plan:
        name = export.load_balancer.metadata.name
        if (self._settings.namespace, name) in self._sources.load_balancers.broken:
            raise Retry(f"TCPLoadBalancer {name} at the hub cannot be read, so it is not written either.")
        by_name = {one.metadata.name: one for one in before}
        for wanted in export.slices or ():
            if wanted.metadata.name not in by_name:
                present = self._hub_slice(wanted.metadata.name)
                if present is not None:
                    by_name[wanted.metadata.name] = present
        return plan_service(
            key,
            export,
            load_balancer=self._load_balancer(key),
            slices=by_name.values(),
            tenant=self._settings.tenant,
        )

    async def _remove(self, key: ServiceKey, why: str) -> float | None:
        plan = plan_removal(
            key,
            why=why,
            load_balancer=self._load_balancer(key),
            slices=self._hub_slices(key),
            tenant=self._settings.tenant,
        )
        return NOT_CURRENT_RETRY_S if await self._write(plan) else None

    async def _write(self, plan: Plan) -> bool:
        """Make the writes; return whether removals wait until the member's view is current and whole."""
        writes = plan.writes
        removes = any(write.action == "delete" for write in writes)
        held = removes and not self._may_remove()
        if held:
            writes = tuple(write for write in writes if write.action != "delete")
        await self._writer.write(writes, cached=self._cached)
        return held

    def _may_remove(self) -> bool:
        sources = self._sources
        # A slice that cannot be read may be any Service's: nothing counts as gone until it can.
        return sources.synced and not sources.slices.broken and sources.member_is_fresh(fresh_s=self._fresh_s)

    # --- the hub, with our own last writes ---------------------------------------------------------------------

    def _cached(self, kind: str, name: str) -> KubeObject | None:
        namespace = self._settings.namespace
        if kind == TCP_LOAD_BALANCERS.kind:
            return self._sources.load_balancers.get(namespace, name)
        return self._sources.hub_slices.get(namespace, name)

    def _load_balancer(self, key: ServiceKey) -> TCPLoadBalancer | None:
        name = hub_name(*key)
        cached = self._sources.load_balancers.get(self._settings.namespace, name)
        return self._writer.recent.see(TCP_LOAD_BALANCERS.kind, name, cached)

    def _hub_slice(self, name: str) -> EndpointSlice | None:
        cached = self._sources.hub_slices.get(self._settings.namespace, name)
        return self._writer.recent.see(ENDPOINT_SLICES.kind, name, cached)

    def _hub_slices(self, key: ServiceKey) -> tuple[EndpointSlice, ...]:
        names = {one.metadata.name for one in self._sources.hub_slices_of(key)}
        names |= self._writer.recent.names(ENDPOINT_SLICES.kind, hub_name(*key))
        found = (self._hub_slice(name) for name in sorted(names))
        return tuple(one for one in found if one is not None)

    def _count(self, key: ServiceKey, *, refused: str = "", exported: bool = False) -> None:
        if exported:
            self._exported.add(key)
        else:
            self._exported.discard(key)
        self._metrics.exported.set(len(self._exported))
        if refused != self._refused.get(key, ""):
            if refused:
                self._refused[key] = refused
            else:
                del self._refused[key]
            self._metrics.set_refused(Counter(self._refused.values()))
