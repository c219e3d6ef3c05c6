"""The plans of Gateways, routes and policies, kept until something that they depend on changes.

In: the caches. Out: plans; the listeners that each route is attached to, counted by listener as routes come and go.
Never writes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from fairlead.agent.identity import Key
from fairlead.agent.sources.gateway.caches import GatewayCaches, gateway_of
from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import (
    AttachedListener,
    BackendPolicy,
    GatewayPlan,
    GatewayView,
    ParentKey,
    RoutePlan,
    config_maps_named,
    secrets_named,
)
from fairlead.agent.sources.gateway.policies import (
    PolicyKey,
    PolicyPlan,
    PolicyView,
    plan_policies,
    policy_status,
    targets_of,
)
from fairlead.agent.sources.gateway.policies import config_maps_named as bundles_named
from fairlead.agent.sources.gateway.status import load_balancer_class_of
from fairlead.agent.sources.service.caches import ServiceCaches
from fairlead.agent.sources.shared import Shared
from fairlead.api.gateway import BackendTLSPolicy, Gateway, GatewayClass, PolicyStatus

GatewayName = tuple[str, str]


class GatewayPlans:
    """The plans of all Gateways of ours."""

    def __init__(self, *, caches: GatewayCaches, shared: Shared) -> None:
        self._caches = caches
        self._shared = shared
        self._plans: dict[GatewayName, GatewayPlan | None] = {}
        self._labels: dict[str, Mapping[str, str]] | None = None

    def get(self, namespace: str, name: str) -> GatewayPlan | None:
        """Return the plan of one Gateway, None when it is not one of ours, or no longer."""
        key = (namespace, name)
        if key not in self._plans:
            self._plans[key] = self._compute(namespace, name)
        return self._plans[key]

    def of_parent(self, parent: ParentKey) -> GatewayPlan | None:
        """Return the plan of the Gateway that a parent is, or belongs to."""
        if parent.kind == "Gateway":
            return self.get(parent.namespace, parent.name)
        listener_set = self._caches.listener_sets.get(parent.namespace, parent.name)
        plan = None if listener_set is None else self.get(*gateway_of(listener_set))
        return plan if plan is not None and parent in plan.listener_sets else None

    def of_route(self, parents: Iterable[ParentKey]) -> dict[ParentKey, GatewayPlan]:
        """Return the plans of those parents that are ours."""
        plans = {parent: self.of_parent(parent) for parent in parents}
        return {parent: plan for parent, plan in plans.items() if plan is not None}

    def forget(self, namespace: str, name: str) -> None:
        """Drop one plan, so that it is computed again: something that it depends on has changed."""
        self._plans.pop((namespace, name), None)

    def forget_all(self) -> None:
        """Drop all plans, so that they are computed again: a class, a grant or a namespace has changed."""
        self._plans.clear()
        self._labels = None

    def class_of(self, gateway: Gateway) -> GatewayClass | None:
        """Return the class of ours that a Gateway is of, None when it is of none."""
        of_class = self._caches.gateway_classes.get("", gateway.spec.gateway_class_name)
        return of_class if of_class is not None and of_class.is_ours and not of_class.deleting else None

    def _compute(self, namespace: str, name: str) -> GatewayPlan | None:
        gateway = self._caches.gateways.get(namespace, name)
        of_class = None if gateway is None or gateway.deleting else self.class_of(gateway)
        if gateway is None or of_class is None:
            return None
        listener_sets = self._caches.sets_of(namespace, name)
        named = {key for holder in (gateway, *listener_sets) for key in secrets_named(holder)}
        bundles = {key: self._caches.bundle(*key) for key in config_maps_named(gateway)}
        load_balancer_class = load_balancer_class_of(of_class)
        return plan_gateway(
            GatewayView(
                gateway=gateway,
                load_balancer_class=load_balancer_class,
                listener_sets=listener_sets,
                namespaces=self._namespace_labels(),
                grants=tuple(self._caches.grants.values()),
                certificates={key: self._shared.certificate(*key) for key in named},
                ca_bundles={key: bundle for key, bundle in bundles.items() if bundle is not None},
                error_pages=self._caches.error_pages(config_maps_named(gateway)),
                targets=self._shared.targets(load_balancer_class),
                issuer=self._shared.issuer(load_balancer_class),
                managed=self._shared.managed_states(),
            )
        )

    def _namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        if self._labels is None:
            self._labels = {
                namespace.metadata.name: namespace.metadata.labels or {}
                for namespace in self._caches.namespaces.values()
            }
        return self._labels


class Attachments:
    """What has been planned of each route, and how many routes each listener has.

    A Gateway's counts are complete once none of its routes waits to be planned with its present listeners.
    """

    def __init__(self) -> None:
        self._plans: dict[Key, RoutePlan | None] = {}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._waiting: defaultdict[str, set[Key]] = defaultdict(set)

    def __contains__(self, route: Key) -> bool:
        return route in self._plans

    def plan_of(self, route: Key) -> RoutePlan | None:
        """Return the last plan of a route, without what is published; None when it has no parent of ours."""
        return self._plans.get(route)

    def counts(self, load_balancer: str) -> dict[str, int] | None:
        """Return the number of routes by listener with any; None while some wait to be planned."""
        if self._waiting.get(load_balancer):
            return None
        return dict(+self._counts.get(load_balancer, Counter[str]()))

    def wait_for(self, load_balancer: str, routes: Iterable[Key]) -> None:
        """Take note of the routes that are to be planned again for a load balancer."""
        waiting = set(routes)
        if waiting:
            self._waiting[load_balancer] |= waiting

    def is_planned(self, route: Key) -> list[str]:
        """Wait for a route no more; return the load balancers whose counts are complete now."""
        complete: list[str] = []
        for load_balancer in [name for name, waiting in self._waiting.items() if route in waiting]:
            waiting = self._waiting[load_balancer]
            waiting.discard(route)
            if not waiting:
                del self._waiting[load_balancer]
                complete.append(load_balancer)
        return complete

    def put(self, route: Key, plan: RoutePlan | None) -> set[str]:
        """Take over what was planned of a route; return the load balancers whose counts differ now."""
        before = self._plans.get(route)
        was = frozenset[AttachedListener]() if before is None else before.attached
        now = frozenset[AttachedListener]() if plan is None else plan.attached
        for attached in was - now:
            self._counts[attached.load_balancer][attached.listener] -= 1
        for attached in now - was:
            self._counts[attached.load_balancer][attached.listener] += 1
        self._plans[route] = None if plan is None else msgspec.structs.replace(plan, specs={})
        return {attached.load_balancer for attached in was ^ now}

    def drop(self, route: Key) -> set[str]:
        """Forget a route that is gone; return the load balancers whose counts differ now."""
        changed = self.put(route, None)
        del self._plans[route]
        return changed


class BackendPolicies:
    """The policies of all Services."""

    def __init__(self, *, services: ServiceCaches, caches: GatewayCaches) -> None:
        self._services = services
        self._caches = caches

    def of_services(self, services: Iterable[tuple[str, str]]) -> dict[PolicyKey, BackendPolicy]:
        """Return what counts for the ports of these Services."""
        wanted = set(services)
        backends = self._plan(wanted).backends
        return {target: policy for target, policy in backends.items() if target[:2] in wanted}

    def status_of(
        self, policy: BackendTLSPolicy, gateways_of: Callable[[tuple[str, str]], Iterable[ParentKey]], now: str
    ) -> PolicyStatus:
        """Return the status of a policy; ``gateways_of`` has the Gateways that send requests to a Service."""
        services = {target[:2] for target in targets_of(policy)}
        gateways = {gateway for service in services for gateway in gateways_of(service)}
        judgements = self._plan(services, policy).judgements[policy.key]
        return policy_status(judgements, policy, gateways, now=now)

    def _plan(self, services: Iterable[tuple[str, str]], *policies: BackendTLSPolicy) -> PolicyPlan:
        known_policies = {policy.key: policy for service in services for policy in self._caches.policies_of(*service)}
        known_policies |= {policy.key: policy for policy in policies}
        if not known_policies:
            return PolicyPlan({}, {})
        named = {target[:2] for policy in known_policies.values() for target in targets_of(policy)}
        known = {key: self._services.services.get(*key) for key in named}
        bundles = {
            key: self._caches.bundle(*key) for policy in known_policies.values() for key in bundles_named(policy)
        }
        return plan_policies(
            PolicyView(
                policies=tuple(known_policies.values()),
                services={key: service for key, service in known.items() if service is not None},
                ca_bundles={key: bundle for key, bundle in bundles.items() if bundle is not None},
            )
        )
