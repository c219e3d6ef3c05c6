"""The conditions of an intent: what was translated, with what became of it at its provider.

In: a translation's conditions, the worker's report, what is observed, drift. Out: conditions in the order of
``ConditionType``. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

import msgspec

from fairlead.api.kubernetes import Ingress, PortStatus
from fairlead.ledger.frontends import NO_ROWS, HeldRows
from fairlead.model.change import Action, Held
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.observed import Health, Observed
from fairlead.sync.history import Report
from fairlead.sync.plan import UNHEALTHY_REPLACEMENT, WARMING
from fairlead.sync.readback import Drift
from fairlead.translate.member import missing_families
from fairlead.translate.view import Decision

_ROUTES_SHOWN = 3
_REMOVALS = frozenset({Action.DRAIN, Action.DEREGISTER, Action.DELETE})


def build_conditions(
    translation: Decision,
    report: Report | None,
    observed: Observed | None,
    drift: Drift | None = None,
    *,
    needs_address: bool = True,
    waiting_for: str = "",
    wanted: bool = False,
    held: HeldRows | None = None,
) -> list[Condition]:
    """Return the conditions of ``translation`` with Programmed, Serving, Guarded, Drifted, and what a provider refuses.

    ``waiting_for``: why another provider still serves it; then it is not Programmed as its spec asks. ``wanted``: each
    of its listeners is to have a target. ``held``: what is held, by default what ``report`` says.
    """
    if held is None:
        held = held_now(report) if report is not None else NO_ROWS
    conditions = {condition.type: condition for condition in translation.conditions}
    if ConditionType.PROGRAMMED not in conditions:
        programmed = _programmed(report, observed, drift, needs_address=needs_address)
        conditions[ConditionType.PROGRAMMED] = _with_all_families(programmed, translation, observed)
    _add_held(conditions, held)
    if report is not None:
        _add_quarantined(conditions, report)
    if drift is not None and drift.ours:
        text = f"{drift.sentence}; {drift.outlook}"
        conditions[ConditionType.DRIFTED] = Condition(ConditionType.DRIFTED, True, ConditionReason.DRIFTED, text)
    if waiting_for:
        programmed = conditions[ConditionType.PROGRAMMED]
        conditions[ConditionType.PROGRAMMED] = _until_it_serves(programmed, waiting_for)
    coming = wanted and not (report is not None and report.quarantined)
    conditions[ConditionType.SERVING] = _serving(
        conditions, observed, coming=coming, only_held=_is_only_held(translation, held)
    )
    order = list(ConditionType)
    return sorted(conditions.values(), key=lambda condition: order.index(condition.type))


def held_now(report: Report) -> HeldRows:
    """Return what a worker holds; a moment for a first health check needs no action of a user, and is left out."""
    rows = [row for row in report.held if row.reason != WARMING]
    return HeldRows(rows, len(rows))


def _add_held(conditions: dict[ConditionType, Condition], held: HeldRows) -> None:
    if not held.rows:
        return
    paused = conditions.get(ConditionType.PAUSED)
    if paused is not None:
        conditions[paused.type] = msgspec.structs.replace(
            paused, message=f"{paused.message}; {held.total} held: {_rows(held.rows)}"
        )
        return
    noun = "removal" if all(row.change.action in _REMOVALS for row in held.rows) else "change"
    text = f"{held.total} {noun}{'s' if held.total > 1 else ''} held ({_rows(held.rows)})"
    message = f"{text}: {held.rows[0].message}"
    guarded = Condition(ConditionType.GUARDED, True, ConditionReason.REMOVALS_HELD, message)
    conditions[guarded.type] = guarded


def _rows(held: Sequence[Held]) -> str:
    """Return what is held: the action and backend of the first rows."""
    return ", ".join(f"{row.change.action} {row.change.key}" for row in held[:3]) + (", ..." if held[3:] else "")


def _add_quarantined(conditions: dict[ConditionType, Condition], report: Report) -> None:
    if not report.quarantined:
        return
    first, count = report.quarantined[0], len(report.quarantined)
    refused = "1 backend is" if count == 1 else f"{count} backends are"
    message = f"{refused} refused by the provider, {first.change.key}: {first.message}"
    unresolved = Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.QUARANTINED, message)
    conditions[unresolved.type] = unresolved


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
    return Condition(ConditionType.PROGRAMMED, True, ConditionReason.PROGRAMMED, "")


def refused_routes(observed: Observed) -> str:
    """Return which routes and rules are not served, and why, for the first three; empty when all are."""
    routes = [part for part in observed.refused if part.kind in ("route", "rule")]
    if not routes:
        return ""
    shown = [f"{part.name}: {part.reason}" for part in routes[:_ROUTES_SHOWN]]
    more = [f"and {len(routes) - _ROUTES_SHOWN} more"] if len(routes) > _ROUTES_SHOWN else []
    what = " and ".join(f"{kind}s" for kind in ("route", "rule") if any(part.kind == kind for part in routes))
    count = f"1 {routes[0].kind} is" if len(routes) == 1 else f"{len(routes)} {what} are"
    return f"{count} not served: {'; '.join([*shown, *more])}"


def _with_all_families(programmed: Condition, translation: Decision, observed: Observed | None) -> Condition:
    """Return Programmed, which is not true of a load balancer without an address of a family that is required."""
    routes_refused = programmed.reason is ConditionReason.ROUTES_REFUSED
    if not (programmed.status or routes_refused) or translation.desired is None or observed is None:
        return programmed
    problem = missing_families(translation.desired.spec.families, observed.addresses)
    if not problem:
        return programmed
    return Condition(ConditionType.PROGRAMMED, False, ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, problem)


def _serving(
    conditions: Mapping[ConditionType, Condition], observed: Observed | None, *, coming: bool, only_held: bool
) -> Condition:
    """Return Serving: what the data plane sees of the targets.

    ``coming``: those that are missing are on their way. ``only_held``: none that is listed is healthy.
    """

    def unknown(reason: ConditionReason, message: str) -> Condition:
        return Condition(ConditionType.SERVING, None, reason, message)

    programmed = conditions[ConditionType.PROGRAMMED]
    if observed is None:
        return unknown(ConditionReason.PENDING, "its provider has not reported its state yet")
    health = observed.health or _without_health(conditions)
    if health.reason is ConditionReason.NO_TARGETS and coming:
        return unknown(ConditionReason.PENDING, "its targets are on their way to the provider")
    if health.serving and not programmed.status and programmed.reason is not ConditionReason.ROUTES_REFUSED:
        return unknown(
            ConditionReason.NOT_PROGRAMMED, f"its targets are healthy, but it is not programmed: {programmed.reason}"
        )
    resolved = conditions.get(ConditionType.RESOLVED_REFS)
    none_listed = resolved is not None and resolved.reason is ConditionReason.BACKEND_NOT_FOUND
    if health.serving and none_listed and ConditionType.GUARDED in conditions:
        # Another program may have their addresses by now.
        return unknown(ConditionReason.REMOVALS_HELD, "only targets that are no longer listed answer; Guarded has them")
    if health.serving and only_held:
        text = "only targets that are no longer listed pass their health check; Guarded has them"
        return unknown(ConditionReason.REMOVALS_HELD, text)
    return Condition(ConditionType.SERVING, health.serving, health.reason, health.message)


def _is_only_held(translation: Decision, held: HeldRows) -> bool:
    """Return whether each listener with targets is served by former ones, since no present one is healthy."""
    listeners = {row.change.listener for row in held.rows if row.reason == UNHEALTHY_REPLACEMENT}
    desired = translation.desired
    return desired is not None and bool(listeners) and listeners >= {key for key, at in desired.targets.items() if at}


def _without_health(conditions: Mapping[ConditionType, Condition]) -> Health:
    """Return what is known when the provider says nothing of its targets."""
    resolved = conditions.get(ConditionType.RESOLVED_REFS)
    if resolved is not None and resolved.reason is ConditionReason.BACKEND_NOT_FOUND:
        return Health(False, ConditionReason.NO_TARGETS, resolved.message)
    return Health(None, ConditionReason.NOT_CHECKED, "its provider does not say whether targets are healthy")


def _until_it_serves(programmed: Condition, waiting_for: str) -> Condition:
    """Return Programmed of a load balancer that moves: its own failure first, when it has one."""
    if programmed.status or programmed.reason is ConditionReason.PENDING:
        return Condition(ConditionType.PROGRAMMED, False, ConditionReason.PENDING, waiting_for)
    return msgspec.structs.replace(programmed, message=f"{programmed.message}; {waiting_for}")


def decision(translation: Decision, waiting_for: str) -> str:
    """Return what was decided, in one line for the history."""
    conditions = (
        f"{condition.type}={condition.status} ({': '.join(filter(None, (condition.reason, condition.message)))})"
        for condition in translation.conditions
    )
    served = [f"provider {translation.provider or 'none'}", f"backends {translation.targets or '0'}"]
    return ", ".join([*served, *conditions, *([waiting_for] if waiting_for else [])])


def ingress_of(address: str, ports: list[PortStatus] | None = None) -> Ingress:
    """Return an address, or a host name, as status shows it."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return Ingress(hostname=address, ports=ports)
    # Connections are proxied: backends see the proxy, so kube-proxy must not short-cut traffic to this address.
    return Ingress(ip=address, ip_mode="Proxy", ports=ports)
