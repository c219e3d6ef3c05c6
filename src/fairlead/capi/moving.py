"""Annotations of a load balancer while its Cluster is paused, and while clusterctl moves both elsewhere.

    Cluster              the hub               annotations
    goes on              goes on               block-move
    paused               goes on still         paused, block-move
    paused               has seen the pause    paused

clusterctl pauses a Cluster, waits until no object of it carries block-move, copies all, and deletes the originals by
force. By then the hub changes nothing any more, here and, with the copied annotation, there.

In: a LoadBalancer, and whether its Cluster is paused. Out: annotations to change. Never: a pause that is a user's own.
Source: https://cluster-api.sigs.k8s.io/clusterctl/commands/move
"""

from __future__ import annotations

from fairlead.api.clusterapi import ANNOTATION_BLOCK_MOVE
from fairlead.api.conditions import is_true
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.names import ANNOTATION_PAUSED, PAUSED_BY_CAPI
from fairlead.model.condition import ConditionType

_HELD_BY = "fairlead.dev"


def annotations_to_change(load_balancer: LoadBalancer, *, paused: bool) -> dict[str, str | None]:
    """Return the annotations of ``load_balancer`` to change; None removes one."""
    pause = load_balancer.annotation(ANNOTATION_PAUSED)
    by_user = bool(pause) and pause not in (PAUSED_BY_CAPI, "false")
    wanted: dict[str, str | None] = {ANNOTATION_BLOCK_MOVE: None if paused and _rests(load_balancer) else _HELD_BY}
    if not by_user and paused:
        wanted[ANNOTATION_PAUSED] = PAUSED_BY_CAPI
    elif pause == PAUSED_BY_CAPI:
        wanted[ANNOTATION_PAUSED] = None
    present = load_balancer.metadata.annotations or {}
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def _rests(load_balancer: LoadBalancer) -> bool:
    """Return whether the hub has observed the pause; true for a load balancer of another provider."""
    return load_balancer.spec.infrastructure_ref is not None or is_true(
        load_balancer.status.conditions, ConditionType.PAUSED
    )
