"""The status of a route.

    entry in ``status.parents``             becomes
    --------------------------------------  ----------------------------------------------------
    of another controller                   stays where it is, as it is
    of ours, declared, parent of ours       the conditions of its plan
    of ours, no longer so                   goes
    of ours, about a younger generation     stays: the route that was planned is an old one

A route that the hub refuses although the member accepts it is Accepted=False/UnsupportedValue at the parents of that
load balancer, with the hub's sentence; rules that it refuses are PartiallyInvalid, with those that the member refuses.
In: the route, its plan, the hub's answer, the time. Out: ``RouteStatus``; equal to the present one when nothing has
changed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.agent.l7.gateway.judgements import ACCEPTED, PARTIALLY_INVALID, bad, find, of_names, renewed
from fairlead.agent.l7.gateway.plan import Judgement, ParentJudgement, RoutePlan
from fairlead.api.gateway import AnyRoute, RouteParentStatus, RouteStatus
from fairlead.api.httploadbalancer import RefusedPart
from fairlead.api.intent import NamesStatus
from fairlead.api.names import GATEWAY_CONTROLLER

#: What the API server takes.
MAX_PARENTS = 32


def route_status(
    plan: RoutePlan,
    route: AnyRoute,
    *,
    now: str,
    refused: Mapping[str, Sequence[RefusedPart]] | None = None,
    names: Mapping[str, NamesStatus] | None = None,
) -> RouteStatus:
    """Return the status of ``route`` at ``now``, RFC 3339.

    ``refused`` is what the proxies do not serve of the route, ``names`` what the hub says of its host names, both by
    load balancer.
    """
    of_hub = {lb: of_names([each]) for lb, each in (names or {}).items()}
    wanted = {
        parent.parent_ref: (*_with_refusal(parent, refused or {}), *of_hub.get(parent.load_balancer, ()))
        for parent in plan.parents
    }
    entries: list[RouteParentStatus] = []
    for entry in route.status.parents or ():
        if entry.controller_name != GATEWAY_CONTROLLER:
            entries.append(entry)
        elif (judgements := wanted.pop(entry.parent_ref, None)) is not None:
            entries.append(renewed(entry, judgements, route, now))
    entries += [
        renewed(RouteParentStatus(reference, GATEWAY_CONTROLLER), judgements, route, now)
        for reference, judgements in wanted.items()
    ]
    if not entries and not route.status.parents:
        return route.status
    return RouteStatus(entries[:MAX_PARENTS])


def _with_refusal(parent: ParentJudgement, refused: Mapping[str, Sequence[RefusedPart]]) -> tuple[Judgement, ...]:
    parts = refused.get(parent.load_balancer, ())
    whole = "; ".join(part.reason for part in parts if part.kind == "route")
    rules = "; ".join(part.reason for part in parts if part.kind == "rule")
    accepted = find(parent.judgements, ACCEPTED)
    if accepted is None or accepted.status != "True" or not (whole or rules):
        return parent.judgements
    others = tuple(each for each in parent.judgements if each.type not in (ACCEPTED, PARTIALLY_INVALID))
    if whole:
        return (bad(ACCEPTED, "UnsupportedValue", f"the load balancer does not serve it: {whole}"), *others)
    before = find(parent.judgements, PARTIALLY_INVALID)
    sentences = [before.message] if before is not None else []
    sentences.append(f"Dropped Rule(s) that the proxies cannot have, which answer 500 now: {rules}")
    return (accepted, *others, bad(PARTIALLY_INVALID, "UnsupportedValue", "; ".join(sentences), status="True"))
