"""The rule between the endpoint of a Cluster and that of its load balancer: which is kept, what is written.

    Cluster   LoadBalancer   own address   what is done
    set       different      any           error, nothing is written
    set       none           any           copied to the LoadBalancer: a user's endpoint counts
    none      set            any           published on the Cluster
    none      none           known         written to the LoadBalancer, then published
    none      none           none          wait
    set       the same       any           settled

    another Cluster has the same endpoint  error, nothing is written

In: the endpoints. Out: a ``Verdict``. Never: a change of an endpoint that is set.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fairlead.api.capiside import Endpoint

NOWHERE = Endpoint()


class State(StrEnum):
    """The progress of the endpoint."""

    WAITING = "Waiting"
    COPY_DOWN = "CopyDown"
    PUBLISH = "Publish"
    SETTLED = "Settled"
    CONFLICT = "Conflict"
    CLAIMED = "Claimed"
    #: It is not the one whose endpoint the Cluster has.
    OWN = "Own"


class Verdict(msgspec.Struct, frozen=True):
    """The endpoints to write to the LoadBalancer and to the Cluster, None for no write; ``message``: why it waits."""

    state: State
    endpoint: Endpoint = NOWHERE
    to_load_balancer: Endpoint | None = None
    to_cluster: Endpoint | None = None
    message: str = ""


def settle(
    cluster: Endpoint,
    load_balancer: Endpoint,
    own: Endpoint,
    *,
    additional: bool = False,
    claimed_by: str = "",
    taken_by: str = "",
) -> Verdict:
    """Return the endpoints to write.

    ``own``: address and port that the provider gave. ``additional``: the Cluster has the endpoint of another load
    balancer. ``claimed_by``: an older load balancer that claims the Cluster's endpoint, too. ``taken_by``: a load
    balancer of another Cluster that has the same endpoint.
    """
    if taken_by:
        shared = load_balancer if load_balancer.given else cluster
        return Verdict(State.CLAIMED, load_balancer, message=_taken(shared, taken_by))
    if additional:
        if load_balancer.given or not own.given:
            return Verdict(State.OWN, load_balancer)
        return Verdict(State.OWN, own, to_load_balancer=own)
    if claimed_by:
        return Verdict(State.CLAIMED, load_balancer, message=_claimed(claimed_by))
    if cluster.given and load_balancer.given:
        if cluster.place == load_balancer.place:
            return Verdict(State.SETTLED, cluster)
        return Verdict(State.CONFLICT, load_balancer, message=_conflict(cluster, load_balancer))
    if cluster.given:
        return Verdict(State.COPY_DOWN, cluster, to_load_balancer=cluster)
    if load_balancer.given:
        return Verdict(State.PUBLISH, load_balancer, to_cluster=load_balancer)
    if own.given:
        return Verdict(State.COPY_DOWN, own, to_load_balancer=own)
    return Verdict(State.WAITING, message="waiting for an address of the load balancer")


def _conflict(cluster: Endpoint, load_balancer: Endpoint) -> str:
    return (
        f"spec.endpoint is {load_balancer}, and spec.controlPlaneEndpoint of the Cluster is {cluster}: neither is "
        "changed; create a LoadBalancer without spec.endpoint, or with that of the Cluster"
    )


def _claimed(other: str) -> str:
    return (
        f"LoadBalancer {other} claims the endpoint of this Cluster, and is older; set spec.additional of this one, or "
        "delete one of them"
    )


def _taken(endpoint: Endpoint, other: str) -> str:
    return (
        f"{endpoint} is the endpoint of LoadBalancer {other}, which stands before another Cluster: clients of the one "
        "would reach the other; create this one again with another endpoint"
    )
