"""Publishes the Gateways and routes of a member at the hub.

    Gateway   the HTTPLoadBalancer, after the copies of the Secrets that its listeners name; then its routes anew
    refused   what was published of the Gateway before stays, with its routes, until the Gateway is accepted or gone
    route     a LoadBalancerRoute for each Gateway, after the slices of its Services and the listeners of the Gateways

In: caches. Out: writes at the hub, plans for the statuses. Never: acts before each kind that is served has been read.
What is added is written before what needs it, what goes after that. A changed route costs its own plan and write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.agent.l7.backends import missing_service
from fairlead.agent.l7.gateway.plan import BackendPolicy, GatewayPlan, ParentKey, RoutePlan
from fairlead.agent.l7.gateway.plans import Attachments, GatewayName, GatewayPlans
from fairlead.agent.l7.gateway.policies import (
    PolicyKey,
    PolicyPlan,
    PolicyView,
    config_maps_named,
    plan_policies,
    targets_of,
)
from fairlead.agent.l7.gateway.policy_status import policy_status
from fairlead.agent.l7.gateway.routes import RouteView, parents_named, plan_route, services_named
from fairlead.agent.l7.gateway.sources import BY_SECRET, GatewaySources, gateway_of, parents_of
from fairlead.agent.l7.gateway.view import secrets_named
from fairlead.agent.l7.identity import Origin, certificate_name, gateway_load_balancer_name, key_of, route_name
from fairlead.agent.l7.requests import CertificateRequest
from fairlead.agent.l7.shared import MANAGED, SERVICE, Shared
from fairlead.agent.sources import Sources
from fairlead.api.gateway import AnyRoute, BackendTLSPolicy, Gateway, ListenerSet, PolicyStatus
from fairlead.api.httploadbalancer import HTTPLoadBalancer, HTTPLoadBalancerSpec, LoadBalancerRoute
from fairlead.runtime.queue import KeyedLock

GATEWAY = "Gateway"


class GatewayExporter:
    """The part of L7 that Gateway API is."""

    def __init__(
        self,
        *,
        sources: Sources,
        gateway: GatewaySources,
        shared: Shared,
        enqueue: Callable[[Origin], None],
        report: Callable[[Origin], None],
    ) -> None:
        self._sources = sources
        self._gateway = gateway
        self._shared = shared
        self._enqueue = enqueue
        self._report = report
        self._locks = KeyedLock()
        #: The plan that the routes of each Gateway have been enqueued for.
        self._seen: dict[GatewayName, GatewayPlan] = {}
        self._names: dict[str, GatewayName] = {}
        #: The Services that each route names, with the load balancers of its Gateways.
        self._reached: dict[Origin, frozenset[tuple[tuple[str, str], str]]] = {}
        self.plans = GatewayPlans(sources=gateway, shared=shared)
        self.attachments = Attachments()
        self.policies = BackendPolicies(sources=sources, gateway=gateway)

    async def reconcile(self, origin: Origin) -> bool:
        """Make the hub hold what a Gateway or route should have; return whether a removal waits."""
        kind, namespace, name = origin
        if kind == GATEWAY:
            return await self._one_gateway(namespace, name)
        return await self._one_route(origin)

    def refusal_of(self, origin: Origin) -> str:
        """Return why the hub refuses what is published for an object; empty when it does not."""
        return self._shared.refusals.get(origin, "")

    async def _one_gateway(self, namespace: str, name: str) -> bool:
        origin: Origin = (GATEWAY, namespace, name)
        if (namespace, name) in self._gateway.gateways.broken:
            return False
        plan = self.plans.get(namespace, name)
        before = self._seen.get((namespace, name))
        self._follow(namespace, name, plan)
        if plan is not None and plan.is_refused:
            self._report(origin)
            return False
        for request in names_asked(before) - names_asked(plan):
            self._enqueue((MANAGED, "", request))
        if plan is None or plan.spec is None:
            self._report(origin)
            return await self._shared.remove(self._shared.load_balancers, origin, self)
        await self._listeners(namespace, name, plan, plan.spec)
        self._report(origin)
        return False

    def _follow(self, namespace: str, name: str, plan: GatewayPlan | None) -> None:
        """Have the routes, ListenerSets and policies of a Gateway follow its plan when that has changed."""
        before = self._seen.get((namespace, name))
        if plan == before:
            return
        if plan is None:
            del self._seen[namespace, name]
        else:
            self._seen[namespace, name] = plan
            self._names[plan.load_balancer] = (namespace, name)
        sets = {each for known in (before, plan) if known is not None for each in known.listener_sets}
        routes = self.routes_of(namespace, name, also=sets)
        self.attachments.wait_for(gateway_load_balancer_name(namespace, name), routes)
        for route in sorted(routes):
            self._enqueue(route)
        for parent in sets:
            self._report(_origin(parent))
        for each in self._gateway.policies.values():
            self._report(key_of("BackendTLSPolicy", each))

    async def _listeners(self, namespace: str, name: str, plan: GatewayPlan, spec: HTTPLoadBalancerSpec) -> None:
        async with self._locks.hold((GATEWAY, namespace, name)):
            for secret in self._secrets_of(namespace, name):
                await self._shared.secret(*secret)
            for request in plan.requests:
                await self._shared.managed(request)
            meta = self._shared.meta((GATEWAY, namespace, name), plan.load_balancer)
            await self._shared.load_balancers.apply(HTTPLoadBalancer(metadata=meta, spec=spec))

    def certificate_flaws(self, plan: GatewayPlan) -> list[str]:
        """Return why clients refuse certificates of a Gateway's listeners; one that is good for the host is enough."""
        namespace, name = plan.gateway.namespace, plan.gateway.name
        keys = self._secrets_of(namespace, name)
        states = {certificate_name(*key): (key, self._shared.certificate(*key)) for key in keys}
        texts: dict[str, None] = {}
        for listener in plan.spec.listeners if plan.spec is not None else ():
            named = [states[each] for each in listener.certificates if each in states]
            flaws = [(key, self._shared.flaw_of(state, filter(None, [listener.hostname]))) for key, state in named]
            if flaws and len(flaws) == len(listener.certificates) and all(flaw for _, flaw in flaws):
                (of, secret), flaw = flaws[0]
                texts[f"Secret {of}/{secret}: {flaw}"] = None
        return list(texts)

    def _secrets_of(self, namespace: str, name: str) -> set[tuple[str, str]]:
        gateway = self._gateway.gateways.get(namespace, name)
        holders: list[Gateway | ListenerSet] = [*filter(None, (gateway,)), *self._gateway.sets_of(namespace, name)]
        return {key for each in holders for key in secrets_named(each)}

    async def _one_route(self, origin: Origin) -> bool:
        kind, namespace, name = origin
        cache = self._gateway.routes[kind]
        self._report_gateways(self.attachments.is_planned(origin))
        if (namespace, name) in cache.broken:
            return False
        route = cache.get(namespace, name)
        before = self.attachments.plan_of(origin)
        plan = self._plan(route)
        self._report_gateways(self.attachments.drop(origin) if route is None else self.attachments.put(origin, plan))
        self._report_policies(origin, route, plan)
        if plan is None:
            if route is not None:
                self._report(origin)
            held = await self._shared.remove(self._shared.routes, origin, self)
            self._release(route, before, None)
            return held
        for service in sorted(plan.services):
            await self._shared.service(*service)
        if self._has_nodes(plan):
            # The copies of its Services are there now, with the nodePorts that the API server has chosen.
            plan = self._plan(route) or plan
            self._report_gateways(self.attachments.put(origin, plan))
        await self._parents_first(route, plan)
        wanted = [
            LoadBalancerRoute(metadata=self._shared.meta(origin, route_name(origin, load_balancer)), spec=spec)
            for load_balancer, spec in plan.specs.items()
        ]
        for each in wanted:
            await self._shared.routes.apply(each)
        kept = self._of_refused_gateways(origin, plan)
        held = await self._shared.remove(self._shared.routes, origin, self, keep=[*wanted, *kept])
        self._report(origin)
        self._release(route, before, plan)
        return held

    def _of_refused_gateways(self, origin: Origin, plan: RoutePlan) -> list[LoadBalancerRoute]:
        """Return what is published of a route at Gateways that are refused as they are now."""
        names = {each.load_balancer for each in plan.parents}
        refused = {each for each in names if self._is_refused(each)}
        return [each for each in self._shared.routes_of(origin) if each.spec.load_balancer in refused]

    def _is_refused(self, load_balancer: str) -> bool:
        name = self._names.get(load_balancer)
        plan = None if name is None else self.plans.get(*name)
        return plan is not None and plan.is_refused

    def _plan(self, route: AnyRoute | None) -> RoutePlan | None:
        """Return the plan of a route, None when no parent of it is ours."""
        if route is None or route.deleting:
            return None
        parents = self.plans.of_route(parents_named(route))
        if not parents:
            return None
        named = services_named(route)
        nodes = any(_by_nodes(each) for each in parents.values())
        reached = {key: self._shared.copies.reach(key, nodes=nodes) for key in named}
        return plan_route(
            RouteView(
                route=route,
                parents=parents,
                services={key: service for key, (service, _) in reached.items() if service is not None},
                grants=tuple(self._gateway.grants.values()),
                policies=self.policies.of_services(named),
                unreachable={
                    key: problem or missing_service(*key, self._sources.services.values())
                    for key, (service, problem) in reached.items()
                    if problem or service is None
                },
            )
        )

    def _has_nodes(self, plan: RoutePlan) -> bool:
        """Return whether a load balancer of this plan has the nodes as backends."""
        names = (self._names.get(parent.load_balancer) for parent in plan.parents)
        return any(_by_nodes(self.plans.get(*name)) for name in names if name is not None)

    async def _parents_first(self, route: AnyRoute | None, plan: RoutePlan) -> None:
        """Have the listeners at the hub before a route that names them."""
        parents = self.plans.of_route(parents_named(route)) if route is not None else {}
        for gateway in {each.load_balancer: each for each in parents.values()}.values():
            if gateway.load_balancer in plan.specs and gateway.spec is not None:
                _, namespace, name = gateway.gateway
                await self._listeners(namespace, name, gateway, gateway.spec)

    def _report_policies(self, origin: Origin, route: AnyRoute | None, plan: RoutePlan | None) -> None:
        """Have the policies of a route's Services show its Gateways, also one that keeps requests from its Service."""
        parents = () if plan is None else plan.parents
        services = services_named(route) if route is not None else ()
        now = frozenset((service, parent.load_balancer) for service in services for parent in parents)
        before = self._reached.pop(origin, frozenset())
        if now:
            self._reached[origin] = now
        for service in {service for service, _ in before ^ now}:
            for policy in self._gateway.policies_of(*service):
                self._report(key_of("BackendTLSPolicy", policy))

    def _release(self, route: AnyRoute | None, before: RoutePlan | None, plan: RoutePlan | None) -> None:
        """Have the endpoints removed that a route does not need any more."""
        needed = frozenset[tuple[str, str]]() if plan is None else plan.services
        named = frozenset[tuple[str, str]]() if before is None else before.services
        for service in {*named, *(services_named(route) if route is not None else ())} - needed:
            self._enqueue((SERVICE, *service))

    def _report_gateways(self, load_balancers: Iterable[str]) -> None:
        """Have the statuses written that show how many routes each listener of these load balancers has."""
        for each in load_balancers:
            plan = self._seen.get(self._names.get(each, ("", "")))
            for parent in () if plan is None else (plan.gateway, *plan.listener_sets):
                self._report(_origin(parent))

    def begin(self) -> None:
        """Have all Gateways followed by their routes anew, as everything is enqueued."""
        self._seen.clear()
        self.plans.forget_all()

    def counts_of(self, plan: GatewayPlan) -> dict[str, int] | None:
        """Return how many routes each listener has; None while some wait to be planned with this plan."""
        _, namespace, name = plan.gateway
        if self._seen.get((namespace, name)) != plan:
            return None
        return self.attachments.counts(plan.load_balancer)

    def routes_of(self, namespace: str, name: str, also: Iterable[ParentKey] = ()) -> set[Origin]:
        """Return the routes that name a Gateway or one of its ListenerSets, or a parent in ``also``."""
        parents = {*parents_of((namespace, name), self._gateway.sets_of(namespace, name)), *also}
        return {key_of(kind, route) for parent in parents for kind, route in self._gateway.routes_of(parent)}

    def gateways_to(self, service: tuple[str, str]) -> set[ParentKey]:
        """Return the Gateways that send requests to a Service."""
        gateways: set[ParentKey] = set()
        for kind, route in self._gateway.routes_to(*service):
            plan = self.attachments.plan_of(key_of(kind, route))
            for parent in () if plan is None else plan.parents:
                if parent.load_balancer in self._names:
                    gateways.add(ParentKey(GATEWAY, *self._names[parent.load_balancer]))
        return gateways

    # --- what it needs of the things that are shared --------------------------------------------------------------

    def needs_service(self, namespace: str, name: str) -> bool:
        """Return whether a route of ours needs this Service, or may need it."""
        for kind, route in self._gateway.routes_to(namespace, name):
            origin: Origin = key_of(kind, route)
            plan = self.attachments.plan_of(origin)
            if origin not in self.attachments or (plan is not None and (namespace, name) in plan.services):
                return True
            if plan is not None and any(
                backend.service == f"{namespace}/{name}"
                for each in self._of_refused_gateways(origin, plan)
                for backend in each.spec.backends
            ):
                return True
        return False

    def needs_node_ports(self, namespace: str, name: str) -> bool:
        """Return whether a Gateway of ours with the nodes as backends sends requests to this Service, or may."""
        copied = self._shared.copies.has_copy((namespace, name))
        if not copied and not any(_by_nodes(self.plans.get(*each)) for each in self._names.values()):
            return False  # thousands of routes may name one Service
        for kind, route in self._gateway.routes_to(namespace, name):
            origin: Origin = key_of(kind, route)
            plan = self.attachments.plan_of(origin)
            if copied and origin not in self.attachments:
                return True
            if plan is not None and (namespace, name) in plan.services and self._has_nodes(plan):
                return True
        return False

    def needs_secret(self, namespace: str, name: str) -> bool:
        """Return whether a listener of ours is served with this Secret."""
        copy = certificate_name(namespace, name)
        gateways = {each.key for each in self._gateway.gateways.by_index(BY_SECRET, (namespace, name))}
        gateways |= {gateway_of(each) for each in self._gateway.listener_sets.by_index(BY_SECRET, (namespace, name))}
        specs = (self._published_spec(*gateway) for gateway in gateways)
        return any(spec is not None and copy in {each.name for each in spec.certificates} for spec in specs)

    def _published_spec(self, namespace: str, name: str) -> HTTPLoadBalancerSpec | None:
        plan = self.plans.get(namespace, name)
        if plan is None or not plan.is_refused:
            return None if plan is None else plan.spec
        published = self._shared.load_balancer(plan.load_balancer)
        return None if published is None else published.spec

    def requests(self, name: str) -> list[CertificateRequest]:
        """Return what Gateways of ours ask the hub to get under this name."""
        plans = [self.plans.get(*each.key) for each in self._gateway.gateways.values()]
        return [plan.requests[name] for plan in plans if plan is not None and name in plan.requests]

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether what is known of Gateways and routes is the present."""
        return self._gateway.is_fresh(fresh_s=fresh_s)


def _by_nodes(plan: GatewayPlan | None) -> bool:
    return plan is not None and plan.spec is not None and plan.spec.targets == "Node"


def names_asked(plan: GatewayPlan | None) -> set[str]:
    """Return the names of the certificates that a Gateway asks the hub to get."""
    return set[str]() if plan is None else set(plan.requests)


def _origin(parent: ParentKey) -> Origin:
    return (parent.kind, parent.namespace, parent.name)


class BackendPolicies:
    """The policies of all Services."""

    def __init__(self, *, sources: Sources, gateway: GatewaySources) -> None:
        self._sources = sources
        self._gateway = gateway

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
        known_policies = {each.key: each for service in services for each in self._gateway.policies_of(*service)}
        known_policies |= {each.key: each for each in policies}
        if not known_policies:
            return PolicyPlan({}, {})
        named = {target[:2] for each in known_policies.values() for target in targets_of(each)}
        known = {key: self._sources.services.get(*key) for key in named}
        bundles = {
            key: self._gateway.bundle(*key) for each in known_policies.values() for key in config_maps_named(each)
        }
        return plan_policies(
            PolicyView(
                policies=tuple(known_policies.values()),
                services={key: service for key, service in known.items() if service is not None},
                ca_bundles={key: bundle for key, bundle in bundles.items() if bundle is not None},
            )
        )
