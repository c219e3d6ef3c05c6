"""How users are told: status, conditions and Events of each load balancer, written only when they say something new.

Three things flow together: what was built, what the worker reported, what the provider observes. A load balancer that
was programmed is not called unprogrammed for the moment that a change takes to be acknowledged: bad news that may
pass waits ``_PATIENCE_S``; counts are gathered for ``_GATHER_S``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping

import msgspec

from fairlead.api.kubernetes import Ingress, LoadBalancerStatus, PortStatus
from fairlead.api.meta import WireCondition
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, Frontend, TCPLoadBalancer, TCPLoadBalancerStatus
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError
from fairlead.hub.intents.tcp.accepted_status import write_status
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.guard import WARMING
from fairlead.sync.readback import Drift
from fairlead.sync.report import Report
from fairlead.translate.protection import is_leaving
from fairlead.translate.view import Translation

_PATIENCE_S = 5.0
_GATHER_S = 1.0
#: After that long the cache is right, even if it never showed our very write (a relist skips versions).
_CACHE_LAG_S = 5.0


class _Told(msgspec.Struct):
    """What is known of one load balancer since this process started."""

    built: Translation
    #: Who serves until its provider does, and what that still lacks; empty when it does.
    lacking: str = ""
    report: Report | None = None
    #: Since when (monotonic seconds) a worse status than the written one is being waited out.
    worse_since_s: float | None = None
    counted_at_s: float = 0.0
    #: What we wrote last, until our own cache shows it: else the next status is made from one that is older.
    said: TCPLoadBalancer | None = None


class TCPStatusWriter:
    """Writes what is known of each load balancer into its object."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        engines: Mapping[str, ProviderRunner],
        events: EventRecorder,
        clock: Clock,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._engines = engines
        self._events = events
        self._clock = clock
        self._leading = leading
        self._told: dict[LoadBalancerKey, _Told] = {}
        self.queue: KeyedQueue[LoadBalancerKey] = KeyedQueue(clock=clock)

    def publish(self, key: LoadBalancerKey, built: Translation, lacking: str = "") -> None:
        """Take note of what was built; its targets are not kept, only what is said about them.

        ``lacking``: its provider does not serve yet, and who does; the address that users know stays until then.
        """
        told = self._told.get(key)
        words = msgspec.structs.replace(built, desired=None)
        if told is None:
            self._told[key] = _Told(words, lacking)
        elif (told.built, told.lacking) == (words, lacking):
            return
        else:
            if told.built.provider != words.provider:
                told.report = None
            told.built, told.lacking = words, lacking
        self.queue.add(key)

    def report(self, report: Report) -> None:
        """Take note of what the worker did."""
        told = self._told.get(report.load_balancer)
        if told is None or report.provider not in ("", told.built.provider):
            return
        before = told.report
        told.report = report
        if before is None or report.failure != before.failure or bool(report.held) != bool(before.held) or report.held:
            self.queue.add(report.load_balancer)

    def refresh(self) -> None:
        """Look at every status again: this replica has just become the one that writes."""
        for key in self._told:
            self.queue.add(key)

    def seen(self, key: LoadBalancerKey, load_balancer: TCPLoadBalancer) -> None:
        """Take note that the cache shows this version: what it says is compared with what should be said."""
        told = self._told.get(key)
        if told is None:
            return
        if told.said is not None and told.said.metadata.resource_version == load_balancer.metadata.resource_version:
            told.said = None
        self.queue.add(key)

    def forget(self, key: LoadBalancerKey) -> None:
        """Say nothing more about ``key``."""
        self._told.pop(key, None)
        self.queue.forget(key)

    async def write(self, key: LoadBalancerKey) -> float | None:
        """Write the status of ``key`` when it says something new; returns seconds to look again."""
        told, load_balancer = self._told.get(key), self._inventory.tcp(key)
        if told is None or load_balancer is None or is_leaving(load_balancer) or not self._leading():
            return None
        engine = self._engines.get(told.built.provider)
        frontend = load_balancer.status.frontend_of(told.built.provider)
        observed = await observed_of(engine, key, frontend) if engine else None
        drift = None
        if isinstance(engine, DurableRunner):
            drift = engine.readback.drifts.get(key)
            if observed is not None and not observed.addresses and key not in engine.readback.seen:
                observed = None  # what it has to say of its address has not been read yet
        conditions = build_conditions(told.built, told.report, observed, drift)
        if told.lacking:
            conditions = [_until_it_serves(condition, told.lacking) for condition in conditions]
        same = told.said is not None and told.said.metadata.uid == load_balancer.metadata.uid
        if told.said is not None and same and self._clock.monotonic() - told.counted_at_s < _CACHE_LAG_S:
            # The record (allocation, accepted) has another writer, so that part is the cache's in any case.
            words = told.said.status
            known = load_balancer.status
            record = {
                "allocation": known.allocation,
                "accepted": known.accepted,
                "provider": known.provider,
                "frontend": known.frontend,
                "frontends": known.frontends,
            }
            load_balancer = msgspec.structs.replace(load_balancer, status=msgspec.structs.replace(words, **record))
        old = load_balancer.status
        new = build_status(load_balancer, told.built, conditions, observed, now=self._timestamp())
        if new == old:
            told.worse_since_s = None
            return None
        wait_s = self._wait_s(told, old, new)
        if wait_s > 0:
            return wait_s
        told.worse_since_s = None
        told.counted_at_s = self._clock.monotonic()
        told.said = await write_status(self._cluster, load_balancer, new)
        self._emit(load_balancer, old, new)
        return None

    def _wait_s(self, told: _Told, old: TCPLoadBalancerStatus, new: TCPLoadBalancerStatus) -> float:
        """Return how long to wait before ``new`` is worth a write, 0 for now."""
        now_s = self._clock.monotonic()
        if _is_passing(old, new):
            if told.worse_since_s is None:
                told.worse_since_s = now_s
            return told.worse_since_s + _PATIENCE_S - now_s
        told.worse_since_s = None
        if msgspec.structs.replace(old, targets=new.targets) == new:
            return max(0.0, told.counted_at_s + _GATHER_S - now_s)
        return 0.0

    def _emit(self, load_balancer: TCPLoadBalancer, old: TCPLoadBalancerStatus, new: TCPLoadBalancerStatus) -> None:
        """Tell what is news as Events: refusals, held removals, and that it works."""
        before = {condition.type: condition for condition in old.conditions or ()}
        for condition in new.conditions or ():
            known = before.get(condition.type)
            if known is not None and (known.status, known.reason) == (condition.status, condition.reason):
                continue
            good = condition.type in _GOOD_WHEN_TRUE
            if (condition.status == "True") == good:
                if condition.type == ConditionType.PROGRAMMED:
                    self._event(load_balancer, condition.reason, f"serving at {new.address}", warning=False)
                continue
            # A load balancer that is seconds old has no endpoints yet; that is news only when it had some.
            unborn = known is None and condition.reason == ConditionReason.BACKEND_NOT_FOUND
            if condition.reason != ConditionReason.PENDING and not unborn:
                self._event(load_balancer, condition.reason, condition.message, warning=True)

    def _event(self, load_balancer: TCPLoadBalancer, reason: str, message: str, *, warning: bool) -> None:
        self._events.emit_about(TCP_LOAD_BALANCERS, load_balancer, warning=warning, reason=reason, message=message)

    def _timestamp(self) -> str:
        return wire_time(self._clock.now())


_GOOD_WHEN_TRUE = frozenset({ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS, ConditionType.PROGRAMMED})


async def observed_of(engine: ProviderRunner, key: LoadBalancerKey, frontend: Frontend | None) -> Observed | None:
    """Return what is to be told; that a provider cannot be asked is told, too.

    Of a provider elsewhere that is what was read back last: nobody who tells of one waits for another's answer.
    """
    if not isinstance(engine, DurableRunner):
        try:
            return await engine.provider.observe(key)
        except FairleadError as error:
            return Observed(message=error.sentence)
    seen = engine.readback.seen.get(key)
    if isinstance(seen, str):
        return Observed(message=seen)
    if seen is not None and not seen.addresses and frontend is not None and frontend.addresses:
        # A provider that was told of it after a restart may not know what an earlier process was answered.
        seen = msgspec.structs.replace(seen, addresses=tuple(frontend.addresses))
    return as_recorded(seen, frontend)


def as_recorded(observed: Observed | None, frontend: Frontend | None) -> Observed | None:
    """Return what is observed of a load balancer that has no proxies of ours: on record as made is programmed.

    What of ours is missing there is drift, which has a condition of its own.
    """
    if frontend is None or frontend.state != "Ensured":
        return None
    seen = observed or Observed(addresses=tuple(frontend.addresses or ()))
    return msgspec.structs.replace(seen, programmed=True, proxies=1, acknowledged=1)


def build_conditions(
    built: Translation,
    report: Report | None,
    observed: Observed | None,
    drift: Drift | None = None,
    *,
    needs_address: bool = True,
) -> list[Condition]:
    """Add to what was built what became of it: Programmed, Guarded, Drifted, and what a provider refuses."""
    conditions = {condition.type: condition for condition in built.conditions}
    if ConditionType.PROGRAMMED not in conditions:
        conditions[ConditionType.PROGRAMMED] = _programmed(report, observed, needs_address=needs_address)
    # A moment for a first health check is part of every replacement; only what waits for somebody is told.
    held = [row for row in report.held if row.reason != WARMING] if report is not None else []
    paused = conditions.get(ConditionType.PAUSED)
    if held and paused is not None:
        rows = ", ".join(f"{row.change.action} {row.change.key}" for row in held[:3]) + (", ..." if held[3:] else "")
        conditions[paused.type] = msgspec.structs.replace(paused, message=f"{paused.message}; {len(held)} held: {rows}")
    elif held:
        first = held[0]
        count = len(held)
        message = f"{count} removal{'s' if count > 1 else ''} held: {first.message}"
        conditions[ConditionType.GUARDED] = Condition(
            ConditionType.GUARDED, True, ConditionReason.REMOVALS_HELD, message
        )
    if report is not None and report.quarantined:
        first = report.quarantined[0]
        count = len(report.quarantined)
        refused = "1 backend is" if count == 1 else f"{count} backends are"
        message = f"{refused} refused by the provider, {first.change.key}: {first.message}"
        conditions[ConditionType.RESOLVED_REFS] = Condition(
            ConditionType.RESOLVED_REFS, False, ConditionReason.QUARANTINED, message
        )
    if drift is not None and drift.ours:
        text = f"{drift.sentence}; {drift.outlook}"
        conditions[ConditionType.DRIFTED] = Condition(ConditionType.DRIFTED, True, ConditionReason.DRIFTED, text)
    order = list(ConditionType)
    return sorted(conditions.values(), key=lambda condition: order.index(condition.type))


def _programmed(report: Report | None, observed: Observed | None, *, needs_address: bool) -> Condition:
    def no(reason: ConditionReason, message: str) -> Condition:
        return Condition(ConditionType.PROGRAMMED, False, reason, message)

    if observed is not None and observed.rejected:
        return no(ConditionReason.REJECTED_BY_PROXY, observed.rejected)
    if report is not None and report.failure:
        return no(ConditionReason.PROVIDER_FAILED, report.failure)
    if observed is None:
        return no(ConditionReason.PENDING, "waiting for the provider")
    if not observed.proxies:
        return no(ConditionReason.NO_PROXY_CONNECTED, observed.message or "no proxy is connected to the hub yet")
    if not observed.programmed:
        message = f"{observed.acknowledged} of {observed.proxies} proxies have it"
        return no(ConditionReason.PENDING, observed.message or message)
    if not observed.addresses and needs_address:
        return no(ConditionReason.ADDRESS_NOT_ASSIGNED, observed.message or "no address has been assigned yet")
    return Condition(ConditionType.PROGRAMMED, True, ConditionReason.PROGRAMMED, "")


def _until_it_serves(condition: Condition, lacking: str) -> Condition:
    """Say of one that moves that another one serves it: its own failure first, when it has one."""
    if condition.type is not ConditionType.PROGRAMMED:
        return condition
    if condition.status or condition.reason is ConditionReason.PENDING:
        return msgspec.structs.replace(condition, status=False, reason=ConditionReason.PENDING, message=lacking)
    return msgspec.structs.replace(condition, message=f"{condition.message}; {lacking}")


def build_status(
    load_balancer: TCPLoadBalancer,
    built: Translation,
    conditions: list[Condition],
    observed: Observed | None,
    *,
    now: str,
) -> TCPLoadBalancerStatus:
    """Compose the status; an address that users have been told stays until another one takes its place."""
    old = load_balancer.status
    generation = load_balancer.metadata.generation
    programmed = any(one.type is ConditionType.PROGRAMMED and one.status for one in conditions)
    ingress = old.load_balancer.ingress
    if programmed and observed is not None:
        spec = old.accepted or load_balancer.spec
        ports = [PortStatus(port.port, port.protocol) for port in spec.ports]
        ingress = [ingress_of(address, ports) for address in observed.addresses]
    known = {condition.type: condition for condition in old.conditions or ()}
    return TCPLoadBalancerStatus(
        address=ingress[0].address if ingress else "",
        targets=built.targets,
        load_balancer=LoadBalancerStatus(ingress=ingress),
        allocation=old.allocation,
        accepted=old.accepted,
        frontend=old.frontend,
        frontends=old.frontends,
        provider=old.provider,
        observed_generation=generation,
        conditions=[wire_condition(condition, known.get(condition.type), generation, now) for condition in conditions],
    )


def ingress_of(address: str, ports: list[PortStatus] | None = None) -> Ingress:
    """Return an address as status shows it."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return Ingress(hostname=address, ports=ports)
    # Connections are proxied: targets see the proxy, so nobody may short-cut traffic to this address.
    return Ingress(ip=address, ip_mode="Proxy", ports=ports)


def wire_condition(condition: Condition, old: WireCondition | None, generation: int, now: str) -> WireCondition:
    """Return a condition as it is written; its time is that of the last change of its status."""
    status = "True" if condition.status else "False"
    since = old.last_transition_time if old is not None and old.status == status else now
    return WireCondition(
        type=condition.type.value,
        status=status,
        reason=condition.reason.value,
        message=condition.message,
        observed_generation=generation,
        last_transition_time=since,
    )


def _is_passing(old: TCPLoadBalancerStatus, new: TCPLoadBalancerStatus) -> bool:
    """Say whether ``new`` is only the moment between a change and its acknowledgement, or a proxy reconnecting."""
    was = next((one for one in old.conditions or () if one.type == ConditionType.PROGRAMMED), None)
    is_ = next((one for one in new.conditions or () if one.type == ConditionType.PROGRAMMED), None)
    return (
        was is not None
        and was.status == "True"
        and is_ is not None
        and is_.status == "False"
        and is_.reason in (ConditionReason.PENDING, ConditionReason.NO_PROXY_CONNECTED)
    )
