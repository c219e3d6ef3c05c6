"""The status of intents: conditions, addresses, counts and Events, written only when they differ.

    decision    ─┐
    report      ─┼─► conditions ─► status ─► one write, Events about what changed
    observation ─┘

``kube/writes.py`` decides when a status is worth a write; ``Damping`` holds back targets that flap. The status that an
earlier process wrote is kept until this process has observed the provider, and until proxies have had time to apply
what a starting hub sends. A deleted load balancer that still exists after ``patience_s`` has a status that says what it
waits for. In: decisions, reports of workers, observed state. Never: a write while another replica leads.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from fairlead.api.intent import GATED_LISTED, GatedPods, IntentObject
from fairlead.api.kubernetes import Ingress, LoadBalancerStatus, PortStatus
from fairlead.api.meta import (
    SUMMARIES,
    Resource,
    Transition,
    WireCondition,
    condition_of,
    is_taken_over,
    transitions,
    wire_conditions,
)
from fairlead.api.names import DEFAULT_CLASS, MANAGER_HUB
from fairlead.api.tcploadbalancer import DrainingTargets
from fairlead.api.times import parsed_time, wire_time
from fairlead.hub.inventory import IntentObjects
from fairlead.hub.providers.registry import ProviderRegistry, missing_targets
from fairlead.hub.providers.runner import observed_of
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import (
    FIRST_S,
    PATIENCE_S,
    CoalescingWriter,
    awaits,
    emit_transitions,
    is_passing,
    only_seen,
    without_seen,
)
from fairlead.ledger.frontends import NO_ROWS, HeldRows, held_before, held_wire
from fairlead.model.change import Action, Held
from fairlead.model.condition import Condition, ConditionReason, ConditionType, reason_from
from fairlead.model.contract import Provider, SeesHealth
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.in_words import counted
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Health, Observed, Seen, health_of
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.history import Report
from fairlead.sync.plan import UNHEALTHY_REPLACEMENT, WARMING
from fairlead.sync.readback import Drift
from fairlead.translate.member import NODES, missing_families
from fairlead.translate.view import Decision, is_leaving, says_no_ready

_ROUTES_SHOWN = 3
_ORDER = {kind: number for number, kind in enumerate(ConditionType)}
_REMOVALS = frozenset({Action.DRAIN, Action.DEREGISTER, Action.DELETE})


def build_conditions(
    decision: Decision,
    report: Report | None,
    observed: Observed | None,
    drift: Drift | None = None,
    *,
    needs_address: bool = True,
    waiting_for: str = "",
    has_targets: bool | None = False,
    held: HeldRows | None = None,
) -> list[Condition]:
    """Return the conditions of ``decision`` with Programmed, Serving, Guarded, Drifted, and the provider's refusals.

    ``waiting_for``: why another provider still serves the load balancer; Programmed is false until it no longer does.
    ``has_targets`` is the answer of ``is_complete``. ``held``: the held changes, by default those of ``report``.
    """
    if held is None:
        held = held_now(report) if report is not None else NO_ROWS
    conditions = {condition.type: condition for condition in decision.conditions}
    if ConditionType.PROGRAMMED not in conditions:
        programmed = programmed_by(report, observed, drift, needs_address=needs_address)
        conditions[ConditionType.PROGRAMMED] = _with_all_families(programmed, decision, observed)
    _add_held(conditions, held)
    if report is not None and report.quarantined:
        first, count = report.quarantined[0], len(report.quarantined)
        refused = "1 backend is" if count == 1 else f"{count} backends are"
        message = f"{refused} refused by the provider, {first.change.key}: {first.message}"
        unresolved = Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.QUARANTINED, message)
        conditions[unresolved.type] = unresolved
    if drift is not None and drift.ours:
        text = f"{drift.sentence}; {drift.outlook}"
        conditions[ConditionType.DRIFTED] = Condition(ConditionType.DRIFTED, True, ConditionReason.DRIFTED, text)
    if waiting_for:
        programmed = conditions[ConditionType.PROGRAMMED]
        conditions[ConditionType.PROGRAMMED] = _until_it_serves(programmed, waiting_for)
    coming = has_targets and not (report is not None and report.quarantined)
    conditions[ConditionType.SERVING] = _serving(
        conditions, observed, coming=coming, only_held=_is_only_held(decision, held)
    )
    return sorted(conditions.values(), key=lambda condition: _ORDER[condition.type])


def held_now(report: Report) -> HeldRows:
    """Return the changes that a worker holds, without those that only wait for a first health check."""
    rows = [row for row in report.held if row.reason != WARMING]
    return HeldRows(rows, len(rows))


def _add_held(conditions: dict[ConditionType, Condition], held: HeldRows) -> None:
    if not held.rows:
        return
    paused = conditions.get(ConditionType.PAUSED)
    if paused is not None:
        message = f"{paused.message}; {held.total} held: {_rows(held.rows)}"
        conditions[paused.type] = msgspec.structs.replace(paused, message=message)
        return
    noun = "removal" if all(row.change.action in _REMOVALS for row in held.rows) else "change"
    message = f"{counted(held.total, noun)} held ({_rows(held.rows)}): {held.rows[0].message}"
    guarded = Condition(ConditionType.GUARDED, True, ConditionReason.REMOVALS_HELD, message)
    conditions[guarded.type] = guarded


def _rows(held: Sequence[Held]) -> str:
    """Return the action and backend of the first held changes."""
    return ", ".join(f"{row.change.action} {row.change.key}" for row in held[:3]) + (", ..." if held[3:] else "")


def programmed_by(
    report: Report | None, observed: Observed | None, drift: Drift | None, *, needs_address: bool
) -> Condition:
    """Return Programmed as the provider reports it."""

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
    if not observed.programmed and drift is not None and drift.ours:
        return no(ConditionReason.DRIFTED, drift.sentence)
    if not observed.programmed:
        message = observed.message or f"{observed.acknowledged} of {observed.proxies} proxies have it"
        return no(ConditionReason.PENDING, "; ".join(filter(None, (message, refused_routes(observed)))))
    if not observed.addresses and needs_address:
        return no(ConditionReason.ADDRESS_NOT_ASSIGNED, observed.message or "no address has been assigned yet")
    if refused := refused_routes(observed):
        return no(ConditionReason.ROUTES_REFUSED, refused)
    return Condition(ConditionType.PROGRAMMED, True, ConditionReason.PROGRAMMED, observed.data_path)


def refused_routes(observed: Observed) -> str:
    """Return which routes and rules are not served, with the reasons of the first three; empty for none."""
    routes = [part for part in observed.refused if part.kind in ("route", "rule")]
    if not routes:
        return ""
    shown = [f"{part.name}: {part.reason}" for part in routes[:_ROUTES_SHOWN]]
    more = [f"and {len(routes) - _ROUTES_SHOWN} more"] if len(routes) > _ROUTES_SHOWN else []
    kinds = " and ".join(f"{kind}s" for kind in ("route", "rule") if any(part.kind == kind for part in routes))
    count = f"1 {routes[0].kind} is" if len(routes) == 1 else f"{len(routes)} {kinds} are"
    return f"{count} not served: {'; '.join([*shown, *more])}"


def _with_all_families(programmed: Condition, decision: Decision, observed: Observed | None) -> Condition:
    """Return ``programmed``, or false when an address of a required family is missing."""
    routes_refused = programmed.reason is ConditionReason.ROUTES_REFUSED
    if not (programmed.status or routes_refused) or decision.desired is None or observed is None:
        return programmed
    problem = missing_families(decision.desired.spec.families, observed.addresses)
    if not problem:
        return programmed
    return Condition(ConditionType.PROGRAMMED, False, ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, problem)


def _serving(
    conditions: Mapping[ConditionType, Condition], observed: Observed | None, *, coming: bool | None, only_held: bool
) -> Condition:
    """Return Serving, from the health that the data plane reports.

    ``coming``: missing targets are being registered; None: there are to be none. ``only_held``: no listed target is
    healthy.
    """

    def unknown(reason: ConditionReason, message: str) -> Condition:
        return Condition(ConditionType.SERVING, None, reason, message)

    programmed = conditions[ConditionType.PROGRAMMED]
    if observed is None:
        return unknown(ConditionReason.PENDING, "the provider has not reported its state yet")
    health = observed.health or _without_health(conditions)
    if health.reason is ConditionReason.NO_TARGETS and coming is None:
        return unknown(ConditionReason.NOT_CHECKED, "no route sends requests to a backend")
    if health.reason is ConditionReason.NO_TARGETS and coming:
        return unknown(ConditionReason.PENDING, "the targets are being registered at the provider")
    if health.serving and not programmed.status and programmed.reason is not ConditionReason.ROUTES_REFUSED:
        text = f"the targets are healthy, but the load balancer is not programmed: {programmed.reason}"
        return unknown(ConditionReason.NOT_PROGRAMMED, text)
    resolved = conditions.get(ConditionType.RESOLVED_REFS)
    none_listed = resolved is not None and resolved.reason is ConditionReason.BACKEND_NOT_FOUND
    if health.serving and none_listed and ConditionType.GUARDED in conditions:
        # Another program may use their addresses by now.
        return unknown(ConditionReason.REMOVALS_HELD, "only targets that are no longer listed answer; see Guarded")
    if health.serving and only_held:
        text = "only targets that are no longer listed pass their health check; see Guarded"
        return unknown(ConditionReason.REMOVALS_HELD, text)
    return Condition(ConditionType.SERVING, health.serving, health.reason, health.message)


def _is_only_held(decision: Decision, held: HeldRows) -> bool:
    """Return whether each listener with targets is served by former ones, since no present one is healthy."""
    listeners = {row.change.listener for row in held.rows if row.reason == UNHEALTHY_REPLACEMENT}
    desired = decision.desired
    return (
        desired is not None
        and bool(listeners)
        and listeners >= {listener for listener, targets in desired.targets.items() if targets}
    )


def _without_health(conditions: Mapping[ConditionType, Condition]) -> Health:
    """Return the health of targets whose provider does not report it."""
    resolved = conditions.get(ConditionType.RESOLVED_REFS)
    if resolved is not None and resolved.reason is ConditionReason.BACKEND_NOT_FOUND:
        return Health(False, ConditionReason.NO_TARGETS, resolved.message)
    return Health(None, ConditionReason.NOT_CHECKED, "the provider does not report the health of targets")


def _until_it_serves(programmed: Condition, waiting_for: str) -> Condition:
    """Return Programmed of a load balancer that moves to another provider; a failure of its own comes first."""
    if programmed.status or programmed.reason is ConditionReason.PENDING:
        return Condition(ConditionType.PROGRAMMED, False, ConditionReason.PENDING, waiting_for)
    return msgspec.structs.replace(programmed, message=f"{programmed.message}; {waiting_for}")


def decision_text(decision: Decision, waiting_for: str) -> str:
    """Return a decision in one line for the history."""
    conditions = (
        f"{condition.type}={condition.status} ({': '.join(filter(None, (condition.reason, condition.message)))})"
        for condition in decision.conditions
    )
    served = [f"provider {decision.provider or 'none'}", f"backends {decision.targets or '0'}"]
    return ", ".join([*served, *conditions, *([waiting_for] if waiting_for else [])])


def ingress_of(address: str, ports: list[PortStatus] | None = None) -> Ingress:
    """Return an address, or a host name, as the status shows it."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return Ingress(hostname=address, ports=ports)
    # Connections are proxied: backends see the proxy, so kube-proxy must not short-cut traffic to this address.
    return Ingress(ip=address, ip_mode="Proxy", ports=ports)


def build_deletion_waits(
    providers: Sequence[str], reports: Mapping[str, Report], silent: Mapping[str, str]
) -> Condition:
    """Return Programmed of a deleted load balancer that ``providers`` have not released.

    ``silent`` maps the providers that do not run to the reason, which may be empty.
    """

    def no(reason: ConditionReason, why: str) -> Condition:
        return Condition(ConditionType.PROGRAMMED, False, reason, f"being deleted: {why}")

    for provider, problem in silent.items():
        text = f"only provider {provider} can release the load balancer, and it does not run at this hub"
        step = problem or "start the hub with that provider, or see its log for why it has not started"
        return no(ConditionReason.NO_SUCH_PROVIDER, f"{text}: {step}")
    for provider in providers:
        report = reports.get(provider)
        if report is not None and report.quarantined:
            first, backends = report.quarantined[0], counted(len(report.quarantined), "backend")
            why = f"provider {provider} refuses to deregister {backends}, {first.change.key}: {first.message}"
            return no(ConditionReason.PROVIDER_FAILED, why)
        if report is not None and report.failure:
            why = f"provider {provider} has not released the load balancer: {report.failure}"
            return no(ConditionReason.PROVIDER_FAILED, why)
    return no(ConditionReason.DELETING, f"provider {providers[0]} has not answered yet")


def with_programmed(obj: IntentObject, programmed: Condition, *, now: str) -> list[WireCondition]:
    """Return the conditions of ``obj`` with Programmed replaced."""
    old = [condition for condition in obj.status.conditions or () if condition.type not in SUMMARIES]
    (written,) = wire_conditions([programmed], old, generation=obj.metadata.generation, now=now)
    if all(condition.type != written.type for condition in old):
        return [*old, written]
    return [written if condition.type == written.type else condition for condition in old]


#: This many changes within this many seconds are flapping; the targets must then stay healthy for ``STABLE_S``.
FLAPS = 3
WINDOW_S = 60.0
STABLE_S = 15.0
#: How long Serving keeps its last value when the health becomes unknown.
UNKNOWN_S = 10.0
#: How long proxies may take to apply thousands of load balancers, in seconds; they answer once they have all of them.
TAKE_OVER_S = 30.0

#: Reasons for an unknown health that are shown without delay.
_AT_ONCE = (ConditionReason.NOT_CHECKED, ConditionReason.PROXIES_SILENT, ConditionReason.SOME_BACKENDS_UNHEALTHY)
#: How often a load balancer is compared that has not been observed yet; an observation compares it at once.
_LOOK_S = 60.0
_HANDED_OVER = "the change is being handed to the provider"
#: How often a deleted load balancer that still exists is compared; a report about it compares it at once.
_LEAVING_S = 30.0

_FLAPPING = Condition(
    ConditionType.SERVING,
    False,
    ConditionReason.FLAPPING,
    f"the targets change between healthy and unhealthy; Serving becomes true after {STABLE_S:g} s healthy",
)
_STATUS = {"True": True, "False": False}

#: How often the health of targets is looked at whose pods wait for their readiness gate: at first, and later.
_LOOK_AT_GATES_S, _GATES_OPEN_S = 0.25, 1.0
#: How long after an answer has changed, or was renewed, health is looked at more often.
_OFTEN_S = 5.0
#: The answer for pods that wait is renewed this often, so that agents notice a hub that has stopped.
GATES_RENEWED_S = 20.0

STATES = ("healthy", "unhealthy", "unknown")

Obj = TypeVar("Obj", bound=IntentObject)
T = TypeVar("T", bound=Decision)


class FirstPublication:
    """Whether and when a starting hub has sent its proxies everything; the hub calls ``done`` once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_s = math.inf
        self._event = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Return whether the hub has published."""
        return self._event.is_set()

    @property
    def take_over_s(self) -> float:
        """Return for how many seconds proxies may still apply what was published; infinite before that."""
        return max(0.0, self._at_s + TAKE_OVER_S - self._clock.monotonic())

    def done(self) -> None:
        """Note that everything has been sent."""
        self._at_s = self._clock.monotonic()
        self._event.set()

    async def wait(self) -> None:
        """Return once the hub has published."""
        await self._event.wait()


# --- counts of targets --------------------------------------------------------------------------------------------


class CountedTargets(NamedTuple):
    """The number of targets of one load balancer, or of many, by health."""

    healthy: int = 0
    unhealthy: int = 0
    unknown: int = 0


class TargetCounts:
    """The targets of all load balancers whose status this replica writes, for the metrics."""

    def __init__(self) -> None:
        self._counts: dict[LoadBalancerKey, tuple[str, str, CountedTargets]] = {}

    def put(self, key: LoadBalancerKey, provider: str, class_name: str, counts: CountedTargets) -> None:
        """Replace the counts of one load balancer."""
        self._counts[key] = (provider, class_name, counts)

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the counts of one load balancer."""
        self._counts.pop(key, None)

    def by_class(self) -> Counter[tuple[str, str, str]]:
        """Return the number of targets by provider, class and state."""
        total: Counter[tuple[str, str, str]] = Counter()
        for provider, class_name, counts in self._counts.values():
            for state, count in zip(STATES, counts, strict=True):
                total[provider, class_name, state] += count
        return total


def is_complete(decision: Decision) -> bool | None:
    """Return whether every listener is to have a target that takes connections.

    None: no route has a backend, as where all of them redirect, or their Services do not exist.
    """
    desired = decision.desired
    if desired is not None and desired.spec.l7 is not None and not desired.targets and not desired.stale:
        return None
    if decision.complete is not None:
        return decision.complete
    return desired is not None and all(
        any(not target.draining and target.weight for target in targets.values())
        for targets in desired.targets.values()
    )


def in_rotation(desired: DesiredLoadBalancer | None) -> int:
    """Return the number of targets that should take connections, counted in the same way as health."""
    if desired is None:
        return 0
    views = {
        listener: {key: (Seen.UNCHECKED,) for key, target in targets.items() if not target.draining and target.weight}
        for listener, targets in desired.targets.items()
    }
    return health_of(views).unknown if views else 0


def missing_readback(desired: DesiredLoadBalancer, health: Health | None) -> str:
    """Return the part of ``desired`` that was read back at its provider, in one phrase; empty if all of it was."""
    total = sum(map(len, desired.targets.values()))
    seen = health.healthy + len(health.unhealthy) if health is not None else 0
    return f"{seen} of {total} have been read back so far" if seen < total else ""


def count_targets(health: Health | None, expected: int) -> CountedTargets:
    """Return the counts in ``health``; without one, ``expected`` targets are unknown."""
    if health is None:
        return CountedTargets(unknown=expected)
    return CountedTargets(health.healthy, health.total - health.healthy, health.unknown)


def draining_targets(observed: Observed | None) -> DrainingTargets | None:
    """Return the targets that drain for a limited time; None when there are none."""
    figures = observed.draining if observed is not None else None
    if figures is None:
        return None
    since = wire_time(datetime.fromtimestamp(figures.since_s, UTC))
    return DrainingTargets(figures.targets, figures.connections, since)


def shown_targets(ready: str, observed: Observed | None) -> str:
    """Return the targets as a column shows them: healthy of all when they are checked, else ``ready``.

    Nodes that are all healthy are not counted: every load balancer of a member has the same nodes.
    """
    health = observed.health if observed is not None else None
    if health is None or not health.checked:
        return ready
    if ready == NODES and not health.unhealthy:
        return f"{NODES} healthy"
    return f"{health.healthy}/{health.total} healthy"


# --- one status ----------------------------------------------------------------------------------------------------


class StatusRules(Generic[Obj, T]):
    """The status and Events of one kind of intent; a subclass overrides what differs.

    ``needs_address``: Programmed requires an address. ``needs_all_targets``: Programmed requires all targets.
    ``patience_s``: how long a worse status is held back that only awaits an answer, ``first_s``: how long the first
    status. ``owned_elsewhere``: the fields of the status that another field manager writes.
    """

    needs_address = True
    needs_all_targets = False
    patience_s = PATIENCE_S
    first_s = FIRST_S
    owned_elsewhere: tuple[str, ...] = ("allocation", "placement", "provisioned", "frontend")

    def __init__(self, *, events: EventRecorder, resource: Resource[Obj]) -> None:
        self._events = events
        self.resource = resource

    def compose(self, obj: Obj, decision: T, conditions: list[WireCondition], observed: Observed | None) -> Any:
        """Return the status; an address that users have read is kept until another one replaces it."""
        del decision
        health = observed.health if observed is not None else None
        ingress = obj.status.load_balancer.ingress
        if observed is not None and is_taken_over(condition_of(conditions, ConditionType.PROGRAMMED)):
            ingress = self.ingress(obj, observed.addresses)
        return msgspec.structs.replace(
            obj.status,
            address=ingress[0].address if ingress else "",
            load_balancer=LoadBalancerStatus(ingress=ingress or None),
            unhealthy_targets=(list(health.unhealthy) or None) if health is not None else None,
            conditions=conditions,
        )

    def has_status(self, obj: Obj, decision: T) -> bool:
        """Return whether ``obj`` has a status at all."""
        del obj, decision
        return True

    def ingress(self, obj: Obj, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` as the status shows them."""
        del obj
        return [ingress_of(address) for address in addresses]

    def programmed(self, obj: Obj, status: Any) -> str:
        """Return the message of the Event about a load balancer that became Programmed."""
        del obj
        return f"programmed at {status.address}"

    def quiet(self, change: Transition, report: Report | None) -> bool:
        """Return whether a condition that became bad has no Event; a Pending one never has an Event.

        Missing endpoints of a load balancer that is seconds old have an Event only if it had endpoints before.
        """
        del report
        # Whether a load balancer that had no target before reports that it has none. Its endpoints are written a
        # moment after it.
        reason, before = change.condition.reason, change.before
        if reason == ConditionReason.BACKEND_NOT_FOUND:
            return before is None
        return reason == ConditionReason.NO_TARGETS and (before is None or before.status == "Unknown")

    def announce(self, obj: Obj, status: Any, report: Report | None) -> None:
        """Emit Warnings for conditions that became bad, and Events when Programmed and Serving become good."""
        serving = condition_of(status.conditions, ConditionType.SERVING)
        emit_transitions(
            self._events,
            self.resource,
            obj,
            transitions(obj.status.conditions, status.conditions),
            good={
                ConditionType.PROGRAMMED: self.programmed(obj, status),
                ConditionType.SERVING: f"serving: {serving.message}" if serving is not None else "",
            },
            # The condition Drifted has the Event about drift.
            quiet=lambda change: (
                (change.condition.reason == ConditionReason.DRIFTED and change.condition.type != ConditionType.DRIFTED)
                or repeats_references(change, status.conditions)
                or self.quiet(change, report)
            ),
        )

    def reported(self, obj: Obj, report: Report) -> None:
        """Emit Events about a worker's report; by default only the conditions contain it."""


class Damping(msgspec.Struct):
    """The recent changes of Serving of one load balancer."""

    seen: bool | None = None
    since_s: float = 0.0
    changes_s: list[float] = []
    unknown_since_s: float | None = None

    def shown(self, now: Condition, written: WireCondition | None, *, now_s: float) -> tuple[Condition, float]:
        """Return the condition to show, and in how many seconds another one may be due; 0 for never."""
        before = _STATUS.get(written.status) if written is not None else None
        if now.status is None:
            return self._unknown(now, written if before is not None else None, now_s)
        self.unknown_since_s = None
        if now.status is not self.seen:
            # What an earlier process wrote counts as seen before.
            if (self.seen if self.seen is not None else before) is (not now.status):
                self.changes_s.append(now_s)
            self.seen, self.since_s = now.status, now_s
        self.changes_s = [at_s for at_s in self.changes_s if now_s - at_s < WINDOW_S]
        if len(self.changes_s) < FLAPS or before is not False:
            return now, 0.0
        if now.status:
            left_s = self.since_s + STABLE_S - now_s
            return (_FLAPPING, left_s) if left_s > 0 else (now, 0.0)
        flapping = written is not None and written.reason == _FLAPPING.reason
        return (_FLAPPING, self.changes_s[0] + WINDOW_S - now_s) if flapping else (now, 0.0)

    def _unknown(self, now: Condition, written: WireCondition | None, now_s: float) -> tuple[Condition, float]:
        reason = reason_from(written.reason) if written is not None else None
        # A reason that only a newer release knows is not repeated.
        if written is None or reason is None or now.reason in _AT_ONCE or self._is_refuted(written, now):
            return now, 0.0
        if self.unknown_since_s is None:
            self.unknown_since_s = now_s
        left_s = self.unknown_since_s + UNKNOWN_S - now_s
        if left_s <= 0:
            return now, 0.0
        return Condition(now.type, _STATUS[written.status], reason, written.message), left_s

    def _is_refuted(self, written: WireCondition, now: Condition) -> bool:
        """Return whether ``written`` is known to be wrong: there are targets to be checked, or healthy ones."""
        if written.status != "False" or len(self.changes_s) >= FLAPS:
            return False
        waiting = now.reason is ConditionReason.WAITING_FOR_FIRST_CHECK and written.reason == ConditionReason.NO_TARGETS
        return waiting or now.reason is ConditionReason.NOT_PROGRAMMED


# --- the writer ----------------------------------------------------------------------------------------------------


class _KnownState(msgspec.Struct, Generic[T]):
    """The state of one load balancer in this process."""

    decision: T
    #: The generation that was decided about.
    generation: int = 0
    waiting_for: str = ""
    #: Each listener should have a target.
    has_targets: bool | None = False
    #: The provider does not have what was decided about this generation yet: what it reports is about an earlier one.
    is_behind: bool = False
    #: Known before this process has sent its proxies anything.
    since_start: bool = False
    damping: Damping = msgspec.field(default_factory=Damping)
    report: Report | None = None


class _PendingDeletion(msgspec.Struct):
    """A deleted load balancer that still exists, since when (monotonic), and reports by provider."""

    since_s: float
    reports: dict[str, Report] = msgspec.field(default_factory=dict[str, Report])


class StatusWriter(Generic[Obj, T]):
    """Writes the status of each load balancer of one kind."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        objects: IntentObjects[Any],
        rules: StatusRules[Any, T],
        providers: ProviderRegistry,
        clock: Clock,
        may_write: Callable[[LoadBalancerKey], bool],
        queue: KeyedQueue[LoadBalancerKey],
        counts: TargetCounts,
        publication: FirstPublication,
        gated_pods: Callable[[str], Mapping[TargetKey, str]] = lambda _namespace: {},
    ) -> None:
        self._objects = objects
        self._gated_pods = gated_pods
        self._rules = rules
        self._providers = providers
        self._clock = clock
        self._may_write = may_write
        self._queue = queue
        self._counts = counts
        self._publication = publication
        #: The keys to compare after publication, and how many seconds after it.
        self._at_publication: dict[LoadBalancerKey, float] = {}
        self._known: dict[LoadBalancerKey, _KnownState[T]] = {}
        self._deleted: dict[LoadBalancerKey, _PendingDeletion] = {}
        self._writer: CoalescingWriter[Any] = CoalescingWriter(
            cluster,
            rules.resource,
            objects=objects.present,
            clock=clock,
            manager=MANAGER_HUB,
            others=rules.owned_elsewhere,
            first_s=rules.first_s,
            patience_s=rules.patience_s,
        )
        objects.cache.on_change(self._object_changed)

    def decision(self, key: LoadBalancerKey) -> T | None:
        """Return the last decision without its ``desired``; None when ``key`` is unknown."""
        known = self._known.get(key)
        return known.decision if known is not None else None

    def publish(self, key: LoadBalancerKey, decision: T, waiting_for: str = "", *, generation: int) -> bool:
        """Take over a decision about a generation, without its targets; return whether it differs from the last one.

        ``waiting_for``: why the provider does not serve yet; users keep the address that they know until it does.
        """
        known = self._known.get(key)
        summary, has_targets = decision.summary(), is_complete(decision)
        differs = True
        if known is None:
            since_start = not self._publication.is_done
            known = _KnownState(summary, generation, waiting_for, has_targets, since_start=since_start)
            obj = self._objects.get(key)
            if obj is not None and 0 < obj.status.observed_generation < generation:
                known.is_behind = self._is_behind(key, summary.provider)
            self._known[key] = known
        else:
            differs = (known.decision, known.waiting_for, known.has_targets) != (summary, waiting_for, has_targets)
            if known.decision.provider != summary.provider:
                known.report = None
            if known.generation != generation:
                known.is_behind = self._is_behind(key, summary.provider)
            elif not differs:
                return False
            known.decision, known.waiting_for, known.has_targets = summary, waiting_for, has_targets
            known.generation = generation
        self._queue.add(key)
        return differs

    def _is_behind(self, key: LoadBalancerKey, provider: str) -> bool:
        """Return whether the provider is still to be given what was just decided."""
        runner = self._providers.get(provider)
        return runner is not None and runner.tracker.is_dirty(key)

    def report(self, report: Report) -> None:
        """Take over a worker's report."""
        key = report.load_balancer
        known, obj = self._known.get(key), self._objects.get(key)
        if obj is not None:
            self._rules.reported(obj, report)
        if (deleted := self._deleted.get(key)) is not None:
            deleted.reports[report.provider] = report
            self._queue.add(key)
        if known is None or report.provider not in ("", known.decision.provider):
            return
        before, known.report = known.report, report
        registered = self._rules.needs_all_targets and bool(report.done)
        if known.is_behind and not self._is_behind(key, known.decision.provider):
            known.is_behind, registered = False, True
        if before is None or registered or report.held or _in_conditions(report) != _in_conditions(before):
            self._queue.add(key)

    def refresh(self, key: LoadBalancerKey | None = None) -> None:
        """Compare the status of ``key``, or of every key."""
        for load_balancer in (key,) if key is not None else self._known:
            self._queue.add(load_balancer)

    def published(self) -> None:
        """Compare the statuses that await an answer of a proxy once the proxies have had time to answer."""
        for key, after_s in self._at_publication.items():
            self._queue.add_after(key, after_s)
        self._at_publication.clear()

    def forget(self, key: LoadBalancerKey) -> None:
        """Stop writing the status of ``key``."""
        self._at_publication.pop(key, None)
        self._known.pop(key, None)
        self._counts.forget(key)
        self._queue.forget(key)
        self._writer.forget(key.namespace, key.name)

    def await_deletion(self, key: LoadBalancerKey) -> None:
        """Write what the deleted ``key`` waits for if it still exists after ``patience_s``."""
        if key not in self._deleted:
            self._deleted[key] = _PendingDeletion(self._clock.monotonic())
        self._queue.add(key)

    async def write(self, key: LoadBalancerKey) -> float | None:
        """Write the status of ``key`` when it differs; return seconds until the next comparison."""
        known, obj = self._known.get(key), self._objects.get(key)
        may_write = self._may_write(key)
        if obj is None or not is_leaving(obj):
            self._deleted.pop(key, None)
        elif (deleted := self._deleted.get(key)) is not None and may_write:
            return await self._write_deleted(key, obj, deleted)
        if known is None or obj is None or is_leaving(obj) or not may_write:
            return None
        if not self._rules.has_status(obj, known.decision):
            return None
        provider = known.decision.provider
        observed, drift = await self._observe(key, obj, provider)
        self._count(key, obj, provider, observed)
        # What the last process held is held until this worker has looked: a restart must not release it.
        held = held_now(known.report) if known.report is not None else held_before(key, obj.status)
        conditions = build_conditions(
            known.decision,
            known.report,
            observed,
            drift,
            needs_address=self._rules.needs_address,
            waiting_for=known.waiting_for or (_HANDED_OVER if known.is_behind else ""),
            has_targets=known.has_targets,
            held=held,
        )
        old = obj.status
        again_s = self._damp(known, conditions, old)
        # A newer generation, which the cache shows already, has not been decided about.
        generation, now = known.generation, wire_time(self._clock.now())
        wire = wire_conditions(conditions, old.conditions, generation=generation, now=now)
        gated = self._gated(key, obj, provider, observed)
        if gated is not None:
            again_s = min(again_s or math.inf, self._gates_again_s(gated))
        new = msgspec.structs.replace(
            self._rules.compose(obj, known.decision, wire, observed),
            observed_generation=generation,
            gated_pods=gated,
            held=held_wire(held.rows),
            held_total=held.total,
            repaired=self._repaired(key, obj, provider),
        )
        at_least_s = self._take_over_s(key, known, old, new)
        if observed is None or known.report is None:
            at_least_s = max(at_least_s, self._unseen_s(provider, old, new))
        if at_least_s > 0 and not only_seen(old, new) and (decided := without_seen(old, new)) is not None:
            # Programmed and Serving await an answer; a pause or a refusal does not.
            new = msgspec.structs.replace(new, conditions=decided)
            again_s, at_least_s = (at_least_s if at_least_s < math.inf else None), 0.0
        written, wait_s = await self._writer.write(obj, old, new, at_least_s=at_least_s)
        if written is not None:
            self._rules.announce(obj, new, known.report)
        elif wait_s > 0 and old.gated_pods != gated:
            # Pods wait for this part, and the rest awaits an answer or gathers.
            await self._writer.write(obj, old, msgspec.structs.replace(old, gated_pods=gated))
        # Statuses that wait for publication are compared again at publication.
        return min(wait_s, again_s or wait_s) if 0 < wait_s < math.inf else again_s

    async def _write_deleted(self, key: LoadBalancerKey, obj: Obj, deleted: _PendingDeletion) -> float | None:
        wait_s = deleted.since_s + self._rules.patience_s - self._clock.monotonic()
        if wait_s > 0:
            return wait_s
        waits_for = [name for name, runner in self._providers.items() if key in runner.tracker]
        silent = self._providers.silent(obj.status.recorded_providers)
        if waits_for or silent:
            problems = {name: self._providers.problems.get(name, "") for name in silent}
            programmed = build_deletion_waits(waits_for, deleted.reports, problems)
            conditions = with_programmed(obj, programmed, now=wire_time(self._clock.now()))
            new: Any = msgspec.structs.replace(obj.status, conditions=conditions)
            written, _ = await self._writer.write(obj, obj.status, new)
            if written is not None:
                self._rules.announce(obj, new, None)
        return _LEAVING_S

    def _damp(self, known: _KnownState[T], conditions: list[Condition], old: Any) -> float | None:
        """Replace Serving in ``conditions`` by its damped value; return seconds until that may change."""
        at = next(i for i, condition in enumerate(conditions) if condition.type is ConditionType.SERVING)
        written = condition_of(old.conditions, ConditionType.SERVING)
        conditions[at], again_s = known.damping.shown(conditions[at], written, now_s=self._clock.monotonic())
        return again_s or None

    def _gated(
        self, key: LoadBalancerKey, obj: IntentObject, provider: str, observed: Observed | None
    ) -> GatedPods | None:
        """Return the answer for the targets of ``key`` whose pods wait for their readiness gate; None without any."""
        uids, runner = self._gated_pods(key.namespace), self._providers.get(provider)
        state = runner.tracker.state(key) if uids and runner is not None else None
        if runner is None or state is None or state.desired is None:
            return None
        places: dict[str, list[tuple[ListenerKey, TargetKey]]] = {}
        for listener, targets in state.desired.targets.items():
            for target in targets.values():
                if not target.draining and (uid := uids.get(target.key)):
                    places.setdefault(uid, []).append((listener, target.key))
        if not places:
            return None
        see = _seen_by(runner.provider, key, observed)
        seen = {uid: {see(*place) for place in at} for uid, at in places.items()}
        serving = sorted(uid for uid, views in seen.items() if views == {Seen.HEALTHY})
        waiting = sorted(uid for uid, views in seen.items() if views & {Seen.UNHEALTHY, Seen.WAITING})
        before, now = obj.status.gated_pods or GatedPods(), self._clock.now()
        answer = GatedPods(tuple(serving[:GATED_LISTED]), tuple(waiting[:GATED_LISTED]), before.time)
        renewed = parsed_time(before.time)
        late = renewed is None or (now - renewed).total_seconds() >= GATES_RENEWED_S
        is_same = (before.serving, before.waiting) == (answer.serving, answer.waiting)
        return answer if is_same and not (waiting and late) else msgspec.structs.replace(answer, time=wire_time(now))

    def _gates_again_s(self, gated: GatedPods) -> float:
        """Return when to look at the health of gated pods again: often at first, since proxies are about to answer."""
        answered = parsed_time(gated.time)
        is_new = answered is None or (self._clock.now() - answered).total_seconds() < _OFTEN_S
        return _LOOK_AT_GATES_S if is_new and (gated.waiting or not gated.serving) else _GATES_OPEN_S

    def _repaired(self, key: LoadBalancerKey, obj: IntentObject, provider: str) -> str:
        """Return the last request for a repair that was answered."""
        durable = self._providers.durable.get(provider)
        return (durable.readback.answered.get(key) if durable is not None else "") or obj.status.repaired

    async def _observe(
        self, key: LoadBalancerKey, obj: IntentObject, provider: str
    ) -> tuple[Observed | None, Drift | None]:
        runner = self._providers.get(provider)
        if runner is None:
            return None, None
        observed = await observed_of(runner, key, obj.status.frontend_of(provider))
        state = runner.tracker.state(key) if self._rules.needs_all_targets else None
        if observed is not None and state is not None and state.desired is not None:
            missing = missing_targets(runner, key, state.desired) or missing_readback(state.desired, observed.health)
            if missing and observed.programmed:
                observed = msgspec.structs.replace(observed, programmed=False, acknowledged=0, message=missing)
        durable = self._providers.durable.get(provider)
        return observed, durable.readback.drifts.get(key) if durable is not None else None

    def _count(self, key: LoadBalancerKey, obj: IntentObject, provider: str, observed: Observed | None) -> None:
        """Count the targets; for a provider that reports no health, the desired ones."""
        health = observed.health if observed is not None else None
        runner = self._providers.get(provider) if health is None else None
        state = runner.tracker.state(key) if runner is not None else None
        expected = in_rotation(state.desired) if state is not None else 0
        self._counts.put(key, provider, obj.class_name or DEFAULT_CLASS, count_targets(health, expected))

    def _unseen_s(self, provider: str, old: Any, new: Any) -> float:
        """Return how long ``new`` is delayed because this process has not observed the provider yet.

        A provider with a ledger keeps its state over a restart of the hub. Load balancers are read back one after the
        other, and each is compared again after that.
        """
        if provider not in self._providers.durable or old.observed_generation != new.observed_generation:
            return 0.0
        return _LOOK_S if is_passing(old.conditions, new.conditions) else 0.0

    def _take_over_s(self, key: LoadBalancerKey, known: _KnownState[T], old: Any, new: Any) -> float:
        """Return how long ``new`` is held back while proxies apply what a starting hub sends; infinite before that.

        Thousands of load balancers take longer than the patience for one; without this delay, each would be written
        twice.
        """
        passing = is_passing(old.conditions, new.conditions) or (not old.conditions and awaits(new.conditions))
        if not (known.since_start and passing):
            return 0.0
        programmed = condition_of(new.conditions, ConditionType.PROGRAMMED)
        connected = programmed is not None and programmed.reason == ConditionReason.PENDING
        if not self._publication.is_done:
            self._at_publication[key] = TAKE_OVER_S if connected else self._rules.patience_s
        elif not connected:
            return 0.0
        return self._publication.take_over_s

    def _object_changed(self, _old: Any, new: Any) -> None:
        """Compare with the present cache.

        The version of our own write is compared too: a cache that lists again may show it together with writes of
        others, such as the record of a frontend, that it has not shown before.
        """
        if new is not None and (key := self._objects.key(new)) in self._known:
            self._queue.add(key)


def _seen_by(
    provider: Provider, key: LoadBalancerKey, observed: Observed | None
) -> Callable[[ListenerKey, TargetKey], Seen]:
    """Return a function for the data plane's health of a target of ``key``.

    A target that nothing checks counts as healthy once all proxies have acknowledged it.
    """
    unchecked = Seen.HEALTHY if observed is not None and observed.programmed else Seen.WAITING
    if isinstance(provider, SeesHealth):

        def see(listener: ListenerKey, target: TargetKey) -> Seen:
            seen = provider.seen_of(key, listener, target)
            return unchecked if seen is Seen.UNCHECKED else seen

        return see
    if observed is None or observed.targets is None:
        return lambda _listener, _target: Seen.SILENT if observed is None else unchecked
    healthy = {(each.listener, each.key): each.healthy for each in observed.targets if not each.draining}
    views = {True: Seen.HEALTHY, False: Seen.UNHEALTHY, None: unchecked}
    return lambda listener, target: views[healthy[listener, target]] if (listener, target) in healthy else Seen.WAITING


def _in_conditions(report: Report) -> tuple[object, ...]:
    """Return the part of a report that becomes conditions; finished changes do not."""
    return (report.failure, bool(report.held), report.quarantined)


def repeats_references(change: Transition, conditions: Sequence[WireCondition] | None) -> bool:
    """Return whether ResolvedRefs already has the Event about missing targets: no endpoint is ready."""
    references = condition_of(conditions, ConditionType.RESOLVED_REFS)
    return (
        change.condition.reason == ConditionReason.NO_TARGETS
        and references is not None
        and says_no_ready(references.reason, references.message)
    )
