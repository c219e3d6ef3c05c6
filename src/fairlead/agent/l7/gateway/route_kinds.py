"""The kinds of routes that a listener accepts: those of its protocol, limited to what it names itself.

In: a listener. Out: kinds as its status shows them, and a judgement when it names others. Pure.
"""

from __future__ import annotations

from fairlead.agent.l7.gateway.judgements import RESOLVED_REFS, bad
from fairlead.agent.l7.gateway.plan import Judgement
from fairlead.agent.l7.gateway.references import GRPC_ROUTE, HTTP_ROUTE, TCP_ROUTE, TLS_ROUTE, UDP_ROUTE
from fairlead.api.gateway import GATEWAY_GROUP, Listener, RouteGroupKind

_BY_PROTOCOL = {
    "HTTP": (HTTP_ROUTE, GRPC_ROUTE),
    "HTTPS": (HTTP_ROUTE, GRPC_ROUTE),
    "TLS": (TLS_ROUTE,),
    "TCP": (TCP_ROUTE,),
    "UDP": (UDP_ROUTE,),
}
PROTOCOLS = tuple(_BY_PROTOCOL)


def kinds_of(listener: Listener) -> tuple[tuple[RouteGroupKind, ...], Judgement | None]:
    """Return the kinds of routes that a listener takes; for a protocol that we do not serve, none."""
    supported = _BY_PROTOCOL.get(listener.protocol, ())
    requested = (listener.allowed_routes.kinds if listener.allowed_routes is not None else None) or ()
    if not requested:
        return tuple(_kind(*each) for each in supported), None
    named = [(GATEWAY_GROUP if each.group is None else each.group, each.kind) for each in requested]
    unknown = [kind for group, kind in named if (group, kind) not in supported]
    problem = None
    if unknown:
        takes = ", ".join(kind for _, kind in supported) or "none"
        message = (
            f"allowedRoutes.kinds: protocol {listener.protocol} does not take {', '.join(unknown)}; it takes {takes}"
        )
        problem = bad(RESOLVED_REFS, "InvalidRouteKinds", message)
    return tuple(_kind(*each) for each in dict.fromkeys(named) if each in supported), problem


def _kind(group: str, kind: str) -> RouteGroupKind:
    return RouteGroupKind(kind=kind, group=group)
