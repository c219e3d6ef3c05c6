"""Conditions of intents: a decision combined with what its provider did and reports, and why a deletion waits.

In: conditions of a decision, the worker's report, observed state, drift. Out: conditions in the order of
``ConditionType``. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import Ingress, PortStatus
from fairlead.api.meta import SUMMARIES, WireCondition, wire_conditions
from fairlead.ledger.frontends import NO_ROWS, HeldRows
from fairlead.model.change import Action, Held
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import counted
from fairlead.model.observed import Health, Observed
from fairlead.sync.history import Report
from fairlead.sync.plan import UNHEALTHY_REPLACEMENT, WARMING
from fairlead.sync.readback import Drift
from fairlead.translate.member import missing_families
from fairlead.translate.view import Decision

_ROUTES_SHOWN = 3
_REMOVALS = frozenset({Action.DRAIN, Action.DEREGISTER, Action.DELETE})


def build_conditions(
    decision: Decision,
    report: Report | None,
    observed: Observed | None,
    drift: Drift | None = None,
    *,
    needs_address: bool = True,
    waiting_for: str = "",
    has_targets: bool = False,
    held: HeldRows | None = None,
) -> list[Condition]:
    """Return the conditions of ``decision`` with Programmed, Serving, Guarded, Drifted, and the provider's refusals.

    ``waiting_for``: why another provider still serves the load balancer; Programmed is false until it no longer does.
    ``has_targets``: each listener is to have a target. ``held``: the held changes, by default those of ``report``.
    """
    if held is None:
        held = held_now(report) if report is not None else NO_ROWS
    conditions = {condition.type: condition for condition in decision.conditions}
    if ConditionType.PROGRAMMED not in conditions:
        programmed = _programmed(report, observed, drift, needs_address=needs_address)
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
    order = list(ConditionType)
    return sorted(conditions.values(), key=lambda condition: order.index(condition.type))


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


def _programmed(
    report: Report | None, observed: Observed | None, drift: Drift | None, *, needs_address: bool
) -> Condition:
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
    conditions: Mapping[ConditionType, Condition], observed: Observed | None, *, coming: bool, only_held: bool
) -> Condition:
    """Return Serving, from the health that the data plane reports.

    ``coming``: missing targets are being registered. ``only_held``: no listed target is healthy.
    """

    def unknown(reason: ConditionReason, message: str) -> Condition:
        return Condition(ConditionType.SERVING, None, reason, message)

    programmed = conditions[ConditionType.PROGRAMMED]
    if observed is None:
        return unknown(ConditionReason.PENDING, "the provider has not reported its state yet")
    health = observed.health or _without_health(conditions)
    if health.reason is ConditionReason.NO_TARGETS and coming:
        return unknown(ConditionReason.PENDING, "the targets are being registered at the provider")
    if health.serving and not programmed.status and programmed.reason is not ConditionReason.ROUTES_REFUSED:
        text = f"the targets are healthy, but the load balancer is not programmed: {programmed.reason}"
        return unknown(ConditionReason.NOT_PROGRAMMED, text)
    resolved = conditions.get(ConditionType.RESOLVED_REFS)
    none_listed = resolved is not None and resolved.reason is ConditionReason.BACKEND_NOT_FOUND
    if health.serving and none_listed and ConditionType.GUARDED in conditions:
        # Another program may have their addresses by now.
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
