"""The connected proxies, and what they have acknowledged.

In: sessions, and the group of a load balancer. Out: ``ProxyStatus`` of each proxy for ``fairlead status``, and
``Observed`` of one load balancer. Never: changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairlead.model.condition import ConditionReason
from fairlead.model.observed import Ensured, Health, Observed
from fairlead.providers.envoy.frontends import Frontend
from fairlead.providers.envoy.low_ports import explained
from fairlead.providers.envoy.session import Session
from fairlead.providers.envoy.store import NodeGroup, shortened


class ProxyStatus(msgspec.Struct, frozen=True):
    """One connected proxy."""

    node_id: str
    group: str
    synced: bool
    #: How many resources it refuses now; of a part that was refused and is left out since, its load balancer says so.
    refused: int
    #: Where it answers for its statistics, "address:port"; empty when it does not say.
    statistics: str = ""

    @property
    def state(self) -> str:
        """Return the state as the table shows it."""
        return "SYNCED" if self.synced else "STALE"


def proxy_statuses(sessions: Iterable[Session]) -> list[ProxyStatus]:
    """Return the status of each proxy, ordered by (group, node id)."""
    statuses = [
        ProxyStatus(
            node_id=session.node_id,
            group=session.group.name,
            synced=session.synced,
            refused=session.refused_now,
            statistics=session.statistics,
        )
        for session in sessions
    ]
    return sorted(statuses, key=lambda status: (status.group, status.node_id))


def observed(
    frontend: Frontend, group: NodeGroup, sessions: Sequence[Session], where: Ensured, health: Health
) -> Observed:
    """Return what the proxies of ``group`` (``sessions``) have acknowledged of one load balancer, reached ``where``."""
    labels = frontend.serving.labels
    acknowledged = sum(session.has_all(labels) for session in sessions)
    refusals = [
        f"{label}: {explained(shortened(refusal))}"
        for kind, name in group.refused_names()
        if (label := labels.get(name)) and (refusal := group.refusal(kind, name))
    ]
    settled = not (refusals or frontend.serving.awaited or frontend.serving.searching)
    return Observed(
        addresses=where.addresses,
        programmed=bool(sessions) and acknowledged == len(sessions) and settled,
        proxies=len(sessions),
        acknowledged=acknowledged,
        rejected="; ".join(refusals),
        refused=frontend.serving.refused,
        message=where.message or ("" if sessions else "no proxy is connected"),
        health=_without_routes(frontend) or health,
    )


def _without_routes(frontend: Frontend) -> Health | None:
    """Return what is seen of a load balancer of which every route is refused; None where any is served, or none asked.

    Healthy targets serve no request when no route leads to them.
    """
    l7 = frontend.spec.l7
    refused = {part.name for part in frontend.serving.refused if part.kind == "route"}
    if l7 is None or not l7.routes or any(route.name not in refused for route in l7.routes):
        return None
    return Health(False, ConditionReason.ROUTES_REFUSED, "none of its routes is served; Programmed says why")
