"""The conditions of an intent: what was translated, with what became of it at its provider.

In: a translation's conditions, the worker's report, what is observed, drift. Out: conditions in the order of
``ConditionType``. Pure.
"""

from __future__ import annotations

import ipaddress

import msgspec

from fairlead.api.kubernetes import Ingress, PortStatus
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.observed import Observed
from fairlead.sync.guard import WARMING
from fairlead.sync.readback import Drift
from fairlead.sync.report import Report
from fairlead.translate.view import Translation


def build_conditions(
    translation: Translation,
    report: Report | None,
    observed: Observed | None,
    drift: Drift | None = None,
    *,
    needs_address: bool = True,
    waiting_for: str = "",
) -> list[Condition]:
    """Return the conditions of ``translation`` with Programmed, Guarded, Drifted, and what a provider refuses.

    ``waiting_for``: why another provider still serves it; then it is not Programmed as its spec asks.
    """
    conditions = {condition.type: condition for condition in translation.conditions}
    if ConditionType.PROGRAMMED not in conditions:
        conditions[ConditionType.PROGRAMMED] = _programmed(report, observed, needs_address=needs_address)
    if report is not None:
        _add_held(conditions, report)
        _add_quarantined(conditions, report)
    if drift is not None and drift.ours:
        text = f"{drift.sentence}; {drift.outlook}"
        conditions[ConditionType.DRIFTED] = Condition(ConditionType.DRIFTED, True, ConditionReason.DRIFTED, text)
    if waiting_for:
        programmed = conditions[ConditionType.PROGRAMMED]
        conditions[ConditionType.PROGRAMMED] = _until_it_serves(programmed, waiting_for)
    order = list(ConditionType)
    return sorted(conditions.values(), key=lambda condition: order.index(condition.type))


def _add_held(conditions: dict[ConditionType, Condition], report: Report) -> None:
    # A moment for a first health check is part of every replacement, and needs no action of a user.
    held = [row for row in report.held if row.reason != WARMING]
    if not held:
        return
    paused = conditions.get(ConditionType.PAUSED)
    if paused is not None:
        rows = ", ".join(f"{row.change.action} {row.change.key}" for row in held[:3]) + (", ..." if held[3:] else "")
        conditions[paused.type] = msgspec.structs.replace(paused, message=f"{paused.message}; {len(held)} held: {rows}")
        return
    message = f"{len(held)} removal{'s' if len(held) > 1 else ''} held: {held[0].message}"
    guarded = Condition(ConditionType.GUARDED, True, ConditionReason.REMOVALS_HELD, message)
    conditions[guarded.type] = guarded


def _add_quarantined(conditions: dict[ConditionType, Condition], report: Report) -> None:
    if not report.quarantined:
        return
    first, count = report.quarantined[0], len(report.quarantined)
    refused = "1 backend is" if count == 1 else f"{count} backends are"
    message = f"{refused} refused by the provider, {first.change.key}: {first.message}"
    unresolved = Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.QUARANTINED, message)
    conditions[unresolved.type] = unresolved


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


def _until_it_serves(programmed: Condition, waiting_for: str) -> Condition:
    """Return Programmed of a load balancer that moves: its own failure first, when it has one."""
    if programmed.status or programmed.reason is ConditionReason.PENDING:
        return Condition(ConditionType.PROGRAMMED, False, ConditionReason.PENDING, waiting_for)
    return msgspec.structs.replace(programmed, message=f"{programmed.message}; {waiting_for}")


def decision(translation: Translation, waiting_for: str) -> str:
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
