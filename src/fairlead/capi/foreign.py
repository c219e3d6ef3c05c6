"""The plan for a LoadBalancer that another provider serves.

    Cluster, LoadBalancer       the rule of ``endpoints``, with the provider's endpoint as the own address
    LoadBalancer, provider's    set and different: error;  set above only: copied down;  set below only: pulled up

In: a ``View``. Out: a ``Plan``, whose members are as the provider has marked them. Never: a backend, or a mark on a
member: that is the provider's work.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.api.capiside import Endpoint, MemberStatus
from fairlead.api.clusterapi import MARKER_NAME, MARKER_STATUS
from fairlead.capi.endpoints import NOWHERE, State, Verdict
from fairlead.capi.selection import Selection, all_addresses
from fairlead.capi.view import Plan, View


def plan_foreign(view: View, selection: Selection, verdict: Verdict, *, held_up: str) -> Plan:
    """Return the plan; its ``verdict`` is about the endpoints of Cluster and LoadBalancer."""
    members = tuple(_members(view, selection))
    below = view.foreign.spec.endpoint if view.foreign is not None else NOWHERE
    wanted = verdict.endpoint
    if wanted.given and below.given and wanted.place != below.place and verdict.state is not State.CONFLICT:
        verdict = Verdict(State.CONFLICT, wanted, message=_conflict(wanted, below))
    if held_up:
        return Plan(selection, verdict, members, held_up=held_up)
    down = wanted if wanted.given and verdict.state not in (State.CONFLICT, State.CLAIMED) else None
    patch: dict[str, object] = {}
    if verdict.to_load_balancer is not None:
        patch["endpoint"] = {"host": verdict.to_load_balancer.host, "port": verdict.to_load_balancer.port}
    return Plan(selection, verdict, members, patch=patch, to_provider=down)


def _members(view: View, selection: Selection) -> Iterator[MemberStatus]:
    known = {member.name: member for member in view.load_balancer.status.members or ()}
    for obj in selection.members:
        behind = obj.annotation(MARKER_NAME).split(",")
        state = obj.annotation(MARKER_STATUS) if view.name in behind or view.foreign_name in behind else ""
        before = known.get(obj.metadata.name)
        since = before.since if before is not None and before.state == state else None
        addresses = all_addresses(obj.status.addresses) or None
        yield msgspec.structs.replace(MemberStatus(obj.metadata.name, addresses, state), since=since)


def _conflict(wanted: Endpoint, below: Endpoint) -> str:
    return (
        f"spec.endpoint is {wanted}, and spec.endpoint of what spec.infrastructureRef names is {below}: neither is "
        "changed; name one without an endpoint, or with that of the LoadBalancer"
    )
