"""The plans of Gateways and of their routes, kept until something that they depend on changes.

In: the caches. Out: plans, computed once until something that they depend on has changed; which listeners each route
is attached to, counted by listener as routes come and go. Never writes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from fairlead.agent.l7.gateway.gateway_class import load_balancer_class_of
from fairlead.agent.l7.gateway.listeners import plan_gateway
from fairlead.agent.l7.gateway.plan import AttachedListener, GatewayPlan, ParentKey, RoutePlan
from fairlead.agent.l7.gateway.sources import GatewaySources, gateway_of
from fairlead.agent.l7.gateway.view import GatewayView, config_maps_named, secrets_named
from fairlead.agent.l7.identity import Origin
from fairlead.agent.l7.shared import Shared
from fairlead.api.gateway import Gateway, GatewayClass

GatewayName = tuple[str, str]


class GatewayPlans:
    """The plans of all Gateways of ours."""

    def __init__(self, *, sources: GatewaySources, shared: Shared) -> None:
        self._sources = sources
        self._shared = shared
        self._plans: dict[GatewayName, GatewayPlan | None] = {}
        self._labels: dict[str, Mapping[str, str]] | None = None

    def get(self, namespace: str, name: str) -> GatewayPlan | None:
        """Return the plan of one Gateway, None when it is none of ours (any more)."""
        key = (namespace, name)
        if key not in self._plans:
            self._plans[key] = self._compute(namespace, name)
        return self._plans[key]

    def of_parent(self, parent: ParentKey) -> GatewayPlan | None:
        """Return the plan of the Gateway that a parent is, or belongs to."""
        if parent.kind == "Gateway":
            return self.get(parent.namespace, parent.name)
        listener_set = self._sources.listener_sets.get(parent.namespace, parent.name)
        plan = None if listener_set is None else self.get(*gateway_of(listener_set))
        return plan if plan is not None and parent in plan.listener_sets else None

    def of_route(self, parents: Iterable[ParentKey]) -> dict[ParentKey, GatewayPlan]:
        """Return the plans of those parents that are ours."""
        plans = {parent: self.of_parent(parent) for parent in parents}
        return {parent: plan for parent, plan in plans.items() if plan is not None}

    def forget(self, namespace: str, name: str) -> None:
        """Drop one plan, so that it is computed anew: something that it depends on has changed."""
        self._plans.pop((namespace, name), None)

    def forget_all(self) -> None:
        """Drop all plans, so that they are computed anew: a class, a grant or a namespace has changed."""
        self._plans.clear()
        self._labels = None

    def class_of(self, gateway: Gateway) -> GatewayClass | None:
        """Return the class of ours that a Gateway is of, None when it is of none."""
        of_class = self._sources.gateway_classes.get("", gateway.spec.gateway_class_name)
        return of_class if of_class is not None and of_class.is_ours and not of_class.deleting else None

    def _compute(self, namespace: str, name: str) -> GatewayPlan | None:
        gateway = self._sources.gateways.get(namespace, name)
        of_class = None if gateway is None or gateway.deleting else self.class_of(gateway)
        if gateway is None or of_class is None:
            return None
        listener_sets = self._sources.sets_of(namespace, name)
        named = {key for each in (gateway, *listener_sets) for key in secrets_named(each)}
        bundles = {key: self._sources.bundle(*key) for key in config_maps_named(gateway)}
        load_balancer_class = load_balancer_class_of(of_class)
        return plan_gateway(
            GatewayView(
                gateway=gateway,
                load_balancer_class=load_balancer_class,
                listener_sets=listener_sets,
                namespaces=self._namespace_labels(),
                grants=tuple(self._sources.grants.values()),
                certificates={key: self._shared.certificate(*key) for key in named},
                ca_bundles={key: bundle for key, bundle in bundles.items() if bundle is not None},
                targets=self._shared.targets(load_balancer_class),
                issuer=self._shared.issuer(load_balancer_class),
                managed=self._shared.managed_states(),
            )
        )

    def _namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        if self._labels is None:
            self._labels = {
                each.metadata.name: each.metadata.labels or {} for each in self._sources.namespaces.values()
            }
        return self._labels


class Attachments:
    """What has been planned of each route, and how many routes each listener has.

    A Gateway's counts are complete once none of its routes waits to be planned with its present listeners.
    """

    def __init__(self) -> None:
        self._plans: dict[Origin, RoutePlan | None] = {}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._waiting: defaultdict[str, set[Origin]] = defaultdict(set)

    def __contains__(self, route: Origin) -> bool:
        return route in self._plans

    def plan_of(self, route: Origin) -> RoutePlan | None:
        """Return the last plan of a route, without what is published; None when it has no parent of ours."""
        return self._plans.get(route)

    def counts(self, load_balancer: str) -> dict[str, int] | None:
        """Return the number of routes by listener with any; None while some wait to be planned."""
        if self._waiting.get(load_balancer):
            return None
        return dict(+self._counts.get(load_balancer, Counter[str]()))

    def wait_for(self, load_balancer: str, routes: Iterable[Origin]) -> None:
        """Take note of the routes that are to be planned anew for a load balancer."""
        waiting = set(routes)
        if waiting:
            self._waiting[load_balancer] |= waiting

    def is_planned(self, route: Origin) -> list[str]:
        """Wait for a route no more; return the load balancers whose counts are complete now."""
        complete: list[str] = []
        for load_balancer in [name for name, waiting in self._waiting.items() if route in waiting]:
            waiting = self._waiting[load_balancer]
            waiting.discard(route)
            if not waiting:
                del self._waiting[load_balancer]
                complete.append(load_balancer)
        return complete

    def put(self, route: Origin, plan: RoutePlan | None) -> set[str]:
        """Take over what was planned of a route; return the load balancers whose counts differ now."""
        before = self._plans.get(route)
        was = frozenset[AttachedListener]() if before is None else before.attached
        now = frozenset[AttachedListener]() if plan is None else plan.attached
        for each in was - now:
            self._counts[each.load_balancer][each.listener] -= 1
        for each in now - was:
            self._counts[each.load_balancer][each.listener] += 1
        self._plans[route] = None if plan is None else msgspec.structs.replace(plan, specs={})
        return {each.load_balancer for each in was ^ now}

    def drop(self, route: Origin) -> set[str]:
        """Forget a route that is gone; return the load balancers whose counts differ now."""
        changed = self.put(route, None)
        del self._plans[route]
        return changed
