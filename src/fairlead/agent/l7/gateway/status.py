"""The statuses of a Gateway and of its ListenerSets.

    refused, or in conflict with another     as planned
    published, not answered yet              Programmed=Unknown
    published, and answered                  as the hub says of the present spec
    the same, and no listener is programmed  Programmed=False

In: the plan, the number of routes by listener, and the hub's object. Out: statuses; a condition keeps its time while
its status is the same. Never: a condition of other owners, which server-side apply leaves alone. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.agent.addresses import made_names
from fairlead.agent.events import name_class_parameters
from fairlead.agent.l7.gateway.judgements import ACCEPTED, PROGRAMMED, bad, find, good, holds, of_names, wire_judgements
from fairlead.agent.l7.gateway.plan import GatewayPlan, Judgement, ListenerPlan, ParentKey
from fairlead.api.gateway import Gateway, GatewayAddress, GatewayStatus, ListenerSet, ListenerSetStatus, ListenerStatus
from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.meta import WireCondition, is_taken_over, is_younger
from fairlead.model.condition import ConditionReason, ConditionType

_PENDING = "Pending"
_INVALID = "Invalid"
#: Reasons of the hub that have another name in Gateway API.
_REASONS = {
    ConditionReason.PENDING: _PENDING,
    ConditionReason.ADDRESS_NOT_USABLE: "AddressNotUsable",
    ConditionReason.UNSUPPORTED_ADDRESS_FAMILY: "AddressNotUsable",
    ConditionReason.ADDRESS_NOT_ASSIGNED: "AddressNotAssigned",
    ConditionReason.ADDRESS_POOL_EXHAUSTED: "AddressNotAssigned",
    ConditionReason.QUOTA_EXCEEDED: "NoResources",
    ConditionReason.NO_PROXY_CONNECTED: "NoResources",
}


def gateway_status(
    plan: GatewayPlan,
    gateway: Gateway,
    *,
    attached: Mapping[str, int],
    hub: HTTPLoadBalancer | None,
    now: str,
    refusal: str = "",
) -> GatewayStatus:
    """Return the status of the Gateway of ``plan``; ``attached`` has the routes by key of the listener.

    ``refusal`` is why the hub refuses what is published for it. A status of a younger version of the Gateway stays.
    """
    if is_younger(gateway.status.conditions, gateway.metadata.generation):
        return gateway.status
    answer = bad(PROGRAMMED, _INVALID, refusal) if refusal else _answer(plan, hub)
    generation = gateway.metadata.generation
    context = _Context(answer, hub, attached, generation, now)
    judgements = plan.judgements
    if find(judgements, PROGRAMMED) is None:
        judgements = (*judgements, context.with_listeners(answer, plan.listeners))
    judgements = (*judgements, *of_names([] if hub is None else [hub.status.names]))
    if plan.is_refused and hub is not None:
        judgements = tuple(map(_with_rest, judgements))
    return GatewayStatus(
        addresses=addresses_of(plan, hub) or None,
        conditions=wire_judgements(judgements, gateway.status.conditions, generation=generation, now=now),
        listeners=_listeners(plan, plan.gateway, gateway.status.listeners, context),
        attached_listener_sets=sum(holds(each, ACCEPTED) for each in plan.listener_sets.values()),
    )


def listener_set_status(
    plan: GatewayPlan, listener_set: ListenerSet, *, attached: Mapping[str, int], hub: HTTPLoadBalancer | None, now: str
) -> ListenerSetStatus:
    """Return the status of a ListenerSet that the Gateway of ``plan`` knows; that of a younger version stays."""
    meta, status = listener_set.metadata, listener_set.status
    if is_younger(status.conditions, meta.generation):
        return status
    key = ParentKey("ListenerSet", meta.namespace, meta.name)
    answer = _answer(plan, hub)
    context = _Context(answer, hub, attached, meta.generation, now)
    judgements = plan.listener_sets[key]
    if find(judgements, PROGRAMMED) is None:
        own = [each for each in plan.listeners if each.parent == key]
        judgements = (*judgements, context.with_listeners(_of_listener(answer), own))
    return ListenerSetStatus(
        conditions=wire_judgements(judgements, status.conditions, generation=meta.generation, now=now),
        listeners=_listeners(plan, key, status.listeners, context),
    )


class _Context:
    """The input of the statuses of all listeners of an object."""

    def __init__(
        self,
        answer: Judgement,
        hub: HTTPLoadBalancer | None,
        attached: Mapping[str, int],
        generation: int,
        now: str,
    ) -> None:
        self.programmed = _of_listener(answer)
        self.refused = {each.name: each.reason for each in hub.status.refused if each.kind == "listener"} if hub else {}
        self.attached = attached
        self.generation = generation
        self.now = now

    def judge(self, listener: ListenerPlan) -> Iterable[Judgement]:
        """Return the judgements of a listener, Programmed among them."""
        if find(listener.judgements, PROGRAMMED) is not None:
            return listener.judgements
        if self.programmed.status == "True" and (reason := self.refused.get(listener.key)) is not None:
            return (*listener.judgements, bad(PROGRAMMED, _INVALID, f"the proxies do not serve it: {reason}"))
        return (*listener.judgements, self.programmed)

    def with_listeners(self, programmed: Judgement, listeners: Iterable[ListenerPlan]) -> Judgement:
        """Return Programmed of an object with these listeners: it is False where none of them is programmed."""
        each_programmed = [find(self.judge(each), PROGRAMMED) for each in listeners]
        if programmed.status != "True" or any(each is None or each.status == "True" for each in each_programmed):
            return programmed
        why = next((each.message for each in each_programmed if each is not None), "it has no listener")
        return bad(PROGRAMMED, _INVALID, f"none of its listeners is programmed, see status.listeners: {why}")


def _listeners(
    plan: GatewayPlan, parent: ParentKey, old: Iterable[ListenerStatus] | None, context: _Context
) -> list[ListenerStatus]:
    before: dict[str, list[WireCondition]] = {each.name: each.conditions for each in old or ()}
    return [
        ListenerStatus(
            name=each.name,
            attached_routes=context.attached.get(each.key, 0),
            supported_kinds=list(each.kinds),
            conditions=wire_judgements(
                context.judge(each), before.get(each.name), generation=context.generation, now=context.now
            ),
        )
        for each in plan.listeners
        if each.parent == parent
    ]


def _answer(plan: GatewayPlan, hub: HTTPLoadBalancer | None) -> Judgement:
    """Return condition Programmed as the hub has it of the present spec."""
    if plan.spec is None:
        return bad(PROGRAMMED, _INVALID, "nothing of it can be served")
    if hub is None or hub.spec != plan.spec or hub.status.observed_generation != hub.metadata.generation:
        return bad(PROGRAMMED, _PENDING, "the hub has not seen its present version yet", status="Unknown")
    by_type = {each.type: each for each in hub.status.conditions or ()}
    refused = by_type.get(ConditionType.ACCEPTED)
    if refused is not None and refused.status == "False":
        return _problem(refused, otherwise=_INVALID)
    programmed = by_type.get(ConditionType.PROGRAMMED)
    if programmed is None or programmed.observed_generation != hub.metadata.generation:
        return bad(PROGRAMMED, _PENDING, "the hub has not programmed it yet", status="Unknown")
    # A refused route says so in its own status; its Gateway serves all others.
    return good(PROGRAMMED) if is_taken_over(programmed) else _problem(programmed, otherwise=_INVALID)


def _problem(condition: WireCondition, *, otherwise: str) -> Judgement:
    reason = next(
        (member_reason for hub_reason, member_reason in _REASONS.items() if hub_reason == condition.reason), otherwise
    )
    message = name_class_parameters(condition.message, "Gateway") or f"the hub says {condition.reason}"
    return bad(PROGRAMMED, reason, message)


def _with_rest(judgement: Judgement) -> Judgement:
    """Say in condition Programmed of a refused Gateway that the hub serves what it accepted before."""
    if judgement.type != PROGRAMMED or judgement.status != "False":
        return judgement
    return bad(PROGRAMMED, judgement.reason, f"{judgement.message}; the version before is served on")


def _of_listener(answer: Judgement) -> Judgement:
    """Return ``answer`` for listeners and ListenerSets, which have fewer reasons than a Gateway."""
    if answer.status == "True" or answer.reason in {_PENDING, _INVALID}:
        return answer
    return bad(PROGRAMMED, _PENDING, f"the Gateway is not programmed: {answer.message}", status=answer.status)


def addresses_of(plan: GatewayPlan, hub: HTTPLoadBalancer | None) -> list[GatewayAddress]:
    """Return where the Gateway of ``plan`` is reached, as the hub says; if it is refused now, where it still is."""
    if hub is None or (plan.spec is None and not plan.is_refused):
        return []
    entries = hub.status.load_balancer.ingress or ()
    names = made_names([hub.status.names]) if entries else ()
    return [
        *(
            GatewayAddress("IPAddress", each.ip) if each.ip else GatewayAddress("Hostname", each.hostname)
            for each in entries
        ),
        *(GatewayAddress("Hostname", each) for each in names),
    ]
