"""The status of an HTTPLoadBalancer: routes, ready of all targets, and ports beside each address."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from fairlead.api.httploadbalancer import (
    FailingRoute,
    HTTPLoadBalancer,
    HTTPLoadBalancerStatus,
    LoadBalancerRoute,
    RefusedPart,
)
from fairlead.api.kubernetes import Ingress, PortStatus
from fairlead.api.meta import WireCondition
from fairlead.hub.intents.conditions import ingress_of
from fairlead.hub.intents.http.objects import HTTPObjects
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.intents.target_counts import shown_targets
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.observed import Observed
from fairlead.translate.http import ports_of
from fairlead.translate.view import Translation

REFUSED_SHOWN, FAILING_SHOWN = 50, 200
_BACKENDS_SHOWN = 10
_READING = (ConditionType.RESOLVED_REFS, ConditionReason.PENDING)


class HTTPStatus(StatusRules[HTTPLoadBalancer, Translation]):
    """The rules for the status of HTTPLoadBalancers; the record (``accepted_status``) has its own field managers."""

    counts = (*StatusRules.counts, "targets", "routes")
    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names")

    def __init__(self, *, objects: HTTPObjects, **parts: Any) -> None:
        super().__init__(**parts)
        self._objects = objects

    def compose(
        self,
        obj: HTTPLoadBalancer,
        translation: Translation,
        conditions: list[WireCondition],
        observed: Observed | None,
    ) -> HTTPLoadBalancerStatus:
        """Return the status with the number of targets and routes."""
        status = super().compose(obj, translation, conditions, observed)
        routes = self._objects.routes_of(self._objects.key(obj))
        health = observed.health if observed is not None else None
        return msgspec.structs.replace(
            status,
            targets=shown_targets(translation.targets, observed),
            routes=len(routes),
            failing_routes=failing_routes(routes, health.failing if health is not None else frozenset()),
            refused=refused_parts(observed, obj.status.refused, conditions),
        )

    def ingress(self, obj: HTTPLoadBalancer, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` with the ports that are served."""
        served = ports_of((obj.status.accepted or obj.spec).listeners)
        ports = [PortStatus(port.port, port.protocol.value) for port in served]
        return [ingress_of(address, ports) for address in addresses]


def refused_parts(
    observed: Observed | None, before: tuple[RefusedPart, ...], conditions: Iterable[WireCondition] = ()
) -> tuple[RefusedPart, ...]:
    """Return what the proxies do not serve, the first 50; ``before`` while that is not known.

    That is while the provider says nothing, and while a certificate is being read: its listener is not refused for it.
    """
    if observed is None or any((each.type, each.reason) == _READING for each in conditions):
        return before
    return tuple(RefusedPart(part.kind, part.name, part.reason) for part in observed.refused[:REFUSED_SHOWN])


def failing_routes(routes: Iterable[LoadBalancerRoute], failing: Collection[str]) -> tuple[FailingRoute, ...]:
    """Return the routes that send requests to a backend of ``failing``, the first 200.

    A rule that redirects sends none, and neither does one to a backend without a weight.
    """
    listed: list[FailingRoute] = []
    for route in routes if failing else ():
        spec, origin = route.spec, route.spec.origin
        sent_to = {
            share.backend
            for rule in spec.rules
            if rule.filters.redirect is None
            for share in rule.backends
            if share.weight
        }
        if dead := sorted(sent_to.intersection(failing)):
            hosts = dict.fromkeys(host for each in spec.attachments for host in each.hostnames)
            listed.append(
                FailingRoute(
                    name=route.metadata.name,
                    kind=origin.kind or spec.kind,
                    namespace=origin.namespace,
                    object=origin.name or route.metadata.name,
                    hosts=tuple(hosts)[:_BACKENDS_SHOWN],
                    backends=tuple(dead[:_BACKENDS_SHOWN]),
                )
            )
    return tuple(listed[:FAILING_SHOWN])
