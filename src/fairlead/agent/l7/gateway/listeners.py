"""A Gateway with its ListenerSets as a load balancer at the hub.

Its own listeners come first, then those of its ListenerSets by age and name. In: a ``GatewayView``. Out: a
``GatewayPlan`` with judgements of the Gateway, of each ListenerSet and of each listener. Pure.
Source: https://gateway-api.sigs.k8s.io/reference/spec/ (v1.6)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from fairlead.agent.l7.families import annotation_problem, families_by_annotation, of_each_family, policy_of
from fairlead.agent.l7.gateway.attachment import namespaces_allowed
from fairlead.agent.l7.gateway.conflicts import Precedence, conflicts_within
from fairlead.agent.l7.gateway.judgements import ACCEPTED, PROGRAMMED, RESOLVED_REFS, bad, find, good, holds
from fairlead.agent.l7.gateway.listener_plans import ListenerPlanner, opening_of
from fairlead.agent.l7.gateway.listener_tls import FALLBACK, client_certificate
from fairlead.agent.l7.gateway.plan import GatewayPlan, Judgement, ListenerPlan, ParentKey
from fairlead.agent.l7.gateway.view import GatewayView, validations_of
from fairlead.agent.l7.identity import gateway_load_balancer_name
from fairlead.api.gateway import Gateway, ListenerSet
from fairlead.api.httploadbalancer import CertificateRef, HTTPLoadBalancerSpec
from fairlead.api.names import ANNOTATION_WILDCARD_RECORDS, DEFAULT_CLASS
from fairlead.api.selectors import BadSelector
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.http import L7Listener
from fairlead.model.keys import by_family

_IP_ADDRESS = "IPAddress"


def plan_gateway(view: GatewayView) -> GatewayPlan:
    """Return what becomes of the Gateway of ``view``."""
    gateway = view.gateway
    meta = gateway.metadata
    own = ParentKey("Gateway", meta.namespace, meta.name)
    planner = ListenerPlanner(view, own)
    plans, precedence = _own_listeners(planner, own, gateway)
    refusal = _refusal(gateway)
    accepted = refusal or _accepted(plans)
    served = [] if refusal is not None else list(planner.listeners)
    sets = sorted((each for each in view.listener_sets if not each.deleting), key=attrgetter("age_order"))
    refused_sets = _refused_sets(view, sets)
    by_set: dict[ParentKey, list[ListenerPlan]] = {}
    for each in sets:
        key = _set_key(each)
        if key not in refused_sets:
            by_set[key] = _set_listeners(planner, key, each, precedence)
            plans += by_set[key]
    client = client_certificate(view, own)
    certificates = {**planner.certificates, **{each.name: each for each in (client.usable if client else ())}}
    if accepted.status == "True":
        served = planner.listeners
    keys = {each.name for each in served}
    judgements = [accepted]
    if client is not None:
        judgements.append(client.problem or good(RESOLVED_REFS))
    judgements += [*_insecure(gateway), *_unprogrammed(gateway, accepted, serves=bool(served))]
    return GatewayPlan(
        gateway=own,
        load_balancer=gateway_load_balancer_name(meta.namespace, meta.name),
        listeners=tuple(each if each.key in keys or not each.served else _not_served(each) for each in plans),
        spec=_spec(view, served, certificates) if served else None,
        judgements=tuple(judgements),
        listener_sets={
            **{key: (judgement, _same(PROGRAMMED, judgement)) for key, judgement in refused_sets.items()},
            **{key: _judge_set(of_set, accepted) for key, of_set in by_set.items()},
        },
        client_certificate=client.usable[0].name if client is not None and client.usable else "",
        requests=planner.requests if served else {},
    )


def _spec(
    view: GatewayView, listeners: Iterable[L7Listener], certificates: Mapping[str, CertificateRef]
) -> HTTPLoadBalancerSpec:
    meta = view.gateway.metadata
    addresses = [each.value for each in view.gateway.spec.addresses or () if each.value]
    addresses = addresses if of_each_family(addresses) else addresses[:1]
    by_address = tuple(by_family(addresses)) if len(addresses) > 1 else ()
    families = by_address or families_by_annotation(view.gateway)
    return HTTPLoadBalancerSpec(
        listeners=tuple(listeners),
        class_name=view.load_balancer_class or DEFAULT_CLASS,
        certificates=tuple(certificates[name] for name in sorted(certificates)),
        targets=view.targets,
        address=",".join(addresses),
        ip_families=families,
        ip_family_policy=policy_of(families, required=len(addresses) > 1),
        wildcard_records=view.gateway.annotation(ANNOTATION_WILDCARD_RECORDS) != "false",
        origin=Origin(kind="Gateway", namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


# --- listeners ------------------------------------------------------------------------------------------------------


def _own_listeners(planner: ListenerPlanner, own: ParentKey, gateway: Gateway) -> tuple[list[ListenerPlan], Precedence]:
    """Return the plans of the Gateway's own listeners, and the places that they leave to ListenerSets."""
    listeners = gateway.spec.listeners or ()
    openings = {place: opening for place, each in enumerate(listeners) if (opening := opening_of(each)) is not None}
    reasons = dict(zip(openings, conflicts_within(list(openings.values())), strict=True))
    plans = [planner.plan(own, each, reasons.get(place)) for place, each in enumerate(listeners)]
    return plans, Precedence(opening for place, opening in openings.items() if reasons[place] is None)


def _set_listeners(
    planner: ListenerPlanner, key: ParentKey, listener_set: ListenerSet, precedence: Precedence
) -> list[ListenerPlan]:
    plans: list[ListenerPlan] = []
    for each in listener_set.spec.listeners or ():
        opening = opening_of(each)
        plans.append(planner.plan(key, each, precedence.take(opening) if opening is not None else None))
    return plans


def _not_served(plan: ListenerPlan) -> ListenerPlan:
    """Return the plan of a listener whose Gateway is refused."""
    if find(plan.judgements, PROGRAMMED) is not None:
        return msgspec.structs.replace(plan, served=False)
    unserved = bad(PROGRAMMED, "Invalid", "its Gateway is not served")
    return msgspec.structs.replace(plan, served=False, judgements=(*plan.judgements, unserved))


# --- the Gateway ----------------------------------------------------------------------------------------------------


def _refusal(gateway: Gateway) -> Judgement | None:
    """Return why nothing of a Gateway is served, None when its listeners decide."""
    infrastructure = gateway.spec.infrastructure
    if infrastructure is not None and infrastructure.parameters_ref is not None:
        named = infrastructure.parameters_ref
        message = f"spec.infrastructure.parametersRef: {named.kind} {named.name} is not read; remove it"
        return bad(ACCEPTED, "InvalidParameters", message)
    kinds = [each.type for each in gateway.spec.addresses or () if each.type not in {"", _IP_ADDRESS}]
    if kinds:
        message = f"spec.addresses: type {kinds[0]} is not supported; use {_IP_ADDRESS}"
        return bad(ACCEPTED, "UnsupportedAddress", message)
    return None


def _accepted(listeners: Sequence[ListenerPlan]) -> Judgement:
    refused = [each.name for each in listeners if not holds(each.judgements, ACCEPTED)]
    if not refused:
        return good(ACCEPTED)
    message = f"not accepted, see status.listeners: {', '.join(refused)}"
    return bad(ACCEPTED, "ListenersNotValid", message, status="False" if len(refused) == len(listeners) else "True")


def _insecure(gateway: Gateway) -> Iterable[Judgement]:
    if any(each.mode == FALLBACK for each in validations_of(gateway)):
        message = f"spec.tls.frontend: with mode {FALLBACK} clients without a valid certificate are served too"
        yield Judgement("InsecureFrontendValidationMode", "True", "ConfigurationChanged", message)


def _unprogrammed(gateway: Gateway, accepted: Judgement, *, serves: bool) -> Iterable[Judgement]:
    addresses = [each.value for each in gateway.spec.addresses or ()]
    if accepted.status != "True":
        yield _same(PROGRAMMED, bad(ACCEPTED, "Invalid", accepted.message))
    elif not serves:
        yield bad(PROGRAMMED, "Invalid", "it has no listener that can be served")
    elif len(addresses) > 1 and not of_each_family(addresses):
        rest = ", ".join(each or "one without a value" for each in addresses[1:])
        message = (
            "spec.addresses: a Gateway has one address of each family here; remove all but one of "
            f"{addresses[0]}, {rest}"
        )
        yield bad(PROGRAMMED, "AddressNotUsable", message)
    elif problem := annotation_problem(gateway) or _wildcard_problem(gateway):
        yield bad(PROGRAMMED, "Invalid", problem)


def _wildcard_problem(gateway: Gateway) -> str:
    text = gateway.annotation(ANNOTATION_WILDCARD_RECORDS)
    known = text in ("", "true", "false")
    return "" if known else f"annotation {ANNOTATION_WILDCARD_RECORDS} is {text[:60]!r}: it must be true or false"


# --- ListenerSets ---------------------------------------------------------------------------------------------------


def _refused_sets(view: GatewayView, sets: Iterable[ListenerSet]) -> dict[ParentKey, Judgement]:
    """Return the ListenerSets that the Gateway does not allow, and why."""
    allowed = view.gateway.spec.allowed_listeners
    own = view.gateway.metadata.namespace
    why = "the Gateway's spec.allowedListeners does not allow ListenerSets of this namespace"
    try:
        namespaces = namespaces_allowed(
            allowed.namespaces if allowed is not None else None, default="None", own=own, namespaces=view.namespaces
        )
    except BadSelector as error:
        namespaces, why = frozenset[str](), f"the Gateway's spec.allowedListeners: {error}"
    if namespaces is None:
        return {}
    refused = (each for each in sets if each.metadata.namespace not in namespaces)
    return {_set_key(each): bad(ACCEPTED, "NotAllowed", why) for each in refused}


def _judge_set(listeners: Sequence[ListenerPlan], gateway: Judgement) -> tuple[Judgement, ...]:
    if gateway.status != "True":
        accepted = bad(ACCEPTED, "ParentNotAccepted", f"its Gateway is not accepted: {gateway.message}")
        return accepted, _same(PROGRAMMED, accepted)
    refused = [each.name for each in listeners if find(each.judgements, PROGRAMMED) is not None]
    if len(refused) < len(listeners):
        if not refused:
            return (good(ACCEPTED),)
        message = f"not served, see status.listeners: {', '.join(refused)}"
        return (bad(ACCEPTED, "ListenersNotValid", message, status="True"),)
    accepted = bad(ACCEPTED, "ListenersNotValid", "none of its listeners can be served: see status.listeners")
    return accepted, _same(PROGRAMMED, accepted)


def _same(kind: str, judgement: Judgement) -> Judgement:
    return msgspec.structs.replace(judgement, type=kind)


def _set_key(listener_set: ListenerSet) -> ParentKey:
    return ParentKey("ListenerSet", listener_set.metadata.namespace, listener_set.metadata.name)
