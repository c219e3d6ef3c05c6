"""Gateway API of the member: the objects published for Gateways and routes, and the keys that a change affects.

    Gateway   the HTTPLoadBalancer, after the copies of the Secrets that its listeners name; then its routes again
    refused   the published Gateway and its routes stay until the Gateway is accepted or deleted
    route     a LoadBalancerRoute for each Gateway, after the slices of its Services and the listeners of the Gateways
    others    GatewayClasses, ListenerSets and policies have a status only

In: caches. Out: writes at the hub, plans for the statuses. Never: acts before each served kind has been read.
New objects are written before the objects that need them; removals come last. A changed route costs its own plan and
write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fairlead.agent.engine import HTTP_LANE, CountPace, Engine, Source
from fairlead.agent.events import failing_changes
from fairlead.agent.identity import Key, certificate_name, gateway_load_balancer_name, key_of, route_name
from fairlead.agent.sources.caches import IngressCaches, ServiceCaches
from fairlead.agent.sources.gateway.caches import (
    BY_CLASS,
    BY_CONFIG_MAP,
    BY_SECRET,
    Attachments,
    BackendPolicies,
    Bundle,
    GatewayCaches,
    GatewayName,
    GatewayPlans,
    gateway_of,
    parents_of,
)
from fairlead.agent.sources.gateway.plan import GatewayPlan, ParentKey, RoutePlan, secrets_named
from fairlead.agent.sources.gateway.policies import targets_of
from fairlead.agent.sources.gateway.reports import GatewayReports, InfrastructureWriter
from fairlead.agent.sources.gateway.routes import RouteView, parents_named, plan_route, processors_of, services_named
from fairlead.agent.sources.gateway.status import load_balancer_class_of
from fairlead.agent.sources.http import CertificateRequest, is_protected, missing_service, progress_of, published_part
from fairlead.agent.sources.shared import BACKEND, MANAGED, SECRET, Shared, is_chosen_by_user, original_of
from fairlead.agent.term import Refusals
from fairlead.api.gateway import (
    BACKEND_TLS_POLICIES,
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    ROUTES,
    AnyRoute,
    BackendTLSPolicy,
    Gateway,
    GatewayClass,
    ListenerSet,
    ReferenceGrant,
)
from fairlead.api.httploadbalancer import HTTPLoadBalancer, HTTPLoadBalancerSpec, LoadBalancerRoute
from fairlead.api.kubernetes import EndpointSlice, Service
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.names import DEFAULT_CLASS, LABEL_SERVICE_NAME
from fairlead.runtime.queue import KeyedLock

GATEWAY_CLASS, GATEWAY, LISTENER_SET = GATEWAY_CLASSES.kind, GATEWAYS.kind, LISTENER_SETS.kind
POLICY = BACKEND_TLS_POLICIES.kind
_PUBLISHED = frozenset({GATEWAY, *(route.kind for route in ROUTES)})


#: The objects whose spec is what a user requests.
_Requested = Gateway | ListenerSet | AnyRoute | ReferenceGrant | BackendTLSPolicy | Service


class GatewaySource(Source):
    """The source for Gateway API."""

    name = "Gateways"
    lane = HTTP_LANE
    publishes = _PUBLISHED
    reports = _PUBLISHED | {GATEWAY_CLASS, LISTENER_SET, POLICY}

    def __init__(
        self,
        *,
        engine: Engine,
        services: ServiceCaches,
        http: IngressCaches,
        caches: GatewayCaches,
        shared: Shared,
        infrastructure: InfrastructureWriter,
        refusals: Refusals,
    ) -> None:
        super().__init__(engine)
        self.kind_came = caches.kind_came
        self._services = services
        self._http = http
        self._caches = caches
        self._shared = shared
        self._locks = KeyedLock()
        #: The plan that the routes of each Gateway have been enqueued for.
        self._seen: dict[GatewayName, GatewayPlan] = {}
        self._names: dict[str, GatewayName] = {}
        #: The Services that each route names, with the load balancers of its Gateways.
        self._reached: dict[Key, frozenset[tuple[tuple[str, str], str]]] = {}
        self.plans = GatewayPlans(caches=caches, shared=shared)
        self.attachments = Attachments()
        self.policies = BackendPolicies(services=services, caches=caches)
        self._reports = GatewayReports(
            engine=engine,
            planned=self,
            http=http,
            caches=caches,
            shared=shared,
            infrastructure=infrastructure,
            refusals=refusals,
        )
        caches.gateway_classes.on_object(lambda obj: engine.report((GATEWAY_CLASS, "", obj.metadata.name)))
        caches.gateway_classes.on_object(self._class_changed, part=lambda obj: (obj.spec, obj.deleting))
        caches.gateways.on_change(self._gateway_changed)
        caches.listener_sets.on_change(self._listener_set_changed)
        for kind, cache in caches.routes.items():
            cache.on_change(self._route_changed(kind))
        caches.grants.on_object(self._grant_changed, part=_requested_part)
        caches.policies.on_change(self._policy_changed)
        caches.namespaces.on_object(lambda _home: self._enqueue_gateways(), part=lambda home: home.metadata.labels)
        caches.config_maps.on_object(self._bundle_changed, part=lambda bundle: bundle.data)
        caches.on_installed.append(self._enqueue_classes)
        http.load_balancers.on_change(self._load_balancer_changed)
        http.managed.on_object(self._managed_changed, part=progress_of)
        http.routes.on_change(self._hub_route_changed)
        services.services.on_object(self._service_changed, part=_requested_part)
        services.slices.on_change(self._slice_changed)
        services.probes.on_change(self._probe_changed)
        services.classes.on_object(lambda _class: self._enqueue_gateways(), part=published_part)
        shared.add(self)

    # --- which keys ----------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Return whether each served kind, and the objects at the hub, have been read."""
        return self._caches.ready and self._http.hub_synced

    @property
    def problem(self) -> str:
        """Return why some kind cannot be read; empty if all can be read."""
        return self._caches.problem

    def begin(self) -> None:
        """Drop the plans of all Gateways, and have their routes follow them again."""
        self._seen.clear()
        self.plans.forget_all()

    def replan(self) -> None:
        """Drop the plans of all Gateways."""
        self.plans.forget_all()

    def waiting(self) -> Iterator[Gateway]:
        """Yield the Gateways of classes of ours that have no address yet."""
        for gateway in self._caches.gateways.values():
            if self.plans.class_of(gateway) is not None and not gateway.status.addresses:
                yield gateway

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of the objects in the member and at the hub."""
        caches = self._caches
        kinds = (
            (GATEWAY_CLASS, caches.gateway_classes),
            (GATEWAY, caches.gateways),
            (LISTENER_SET, caches.listener_sets),
            (POLICY, caches.policies),
            *caches.routes.items(),
        )
        yield from (key_of(kind, obj) for kind, cache in kinds for obj in cache.values())
        yield from self._shared.published()

    # --- Gateway API -------------------------------------------------------------------------------------------------

    def _class_changed(self, gateway_class: GatewayClass) -> None:
        for gateway in self._caches.gateways.by_index(BY_CLASS, gateway_class.metadata.name):
            self._replan(*gateway.key)

    def _gateway_changed(self, old: Gateway | None, new: Gateway | None) -> None:
        changed = new or old
        if changed is None:
            return
        self._engine.report(key_of(GATEWAY, changed))
        if _wants_the_same(old, new):
            return
        self._replan(*changed.key)
        self._enqueue_secrets(old, new)

    def _listener_set_changed(self, old: ListenerSet | None, new: ListenerSet | None) -> None:
        for listener_set in filter(None, (old, new)):
            self._engine.report(key_of(LISTENER_SET, listener_set))
            if not _wants_the_same(old, new):
                self._replan(*gateway_of(listener_set))
        self._enqueue_secrets(old, new)

    def _route_changed(self, kind: str) -> Callable[[AnyRoute | None, AnyRoute | None], None]:
        def changed(old: AnyRoute | None, new: AnyRoute | None) -> None:
            route = new or old
            if route is None:
                return
            key = key_of(kind, route)
            if _wants_the_same(old, new):
                self._engine.report(key)
                return
            self._engine.publish(key)
            for service in services_named(old) if old is not None else ():
                self._engine.publish((BACKEND, *service))

        return changed

    def _grant_changed(self, grant: ReferenceGrant) -> None:
        self._enqueue_gateways()
        for kind, cache in self._caches.routes.items():
            for route in cache.values():
                # A grant affects only references to objects in its own namespace.
                if any(service[0] == grant.metadata.namespace for service in services_named(route)):
                    self._engine.publish(key_of(kind, route))

    def _policy_changed(self, old: BackendTLSPolicy | None, new: BackendTLSPolicy | None) -> None:
        for policy in filter(None, (old, new)):
            self._engine.report(key_of(POLICY, policy))
            if not _wants_the_same(old, new):
                self._enqueue_users_of(policy)

    def _enqueue_users_of(self, policy: BackendTLSPolicy) -> None:
        """Enqueue the dependents of a policy: routes to its Services, and other policies of the same Services."""
        for target in policy.spec.target_refs or ():
            service = (policy.metadata.namespace, target.name)
            for kind, route in self._caches.routes_to(*service):
                self._engine.publish(key_of(kind, route))
            for other in self._caches.policies_of(*service):
                self._engine.report(key_of(POLICY, other))

    def _bundle_changed(self, bundle: Bundle) -> None:
        for gateway in self._caches.gateways.by_index(BY_CONFIG_MAP, bundle.key):
            self._replan(*gateway.key)
        for policy in self._caches.policies.by_index(BY_CONFIG_MAP, bundle.key):
            self._engine.report(key_of(POLICY, policy))
            self._enqueue_users_of(policy)

    # --- what they name, and the hub's answer ------------------------------------------------------------------------

    def secret_changed(self, key: tuple[str, str]) -> None:
        """Enqueue the objects that depend on a Secret."""
        gateways = [gateway.key for gateway in self._caches.gateways.by_index(BY_SECRET, key)]
        sets = self._caches.listener_sets.by_index(BY_SECRET, key)
        for gateway in {*gateways, *map(gateway_of, sets)}:
            self._replan(*gateway)
        if gateways or sets:
            self._engine.publish((SECRET, *key))

    def _managed_changed(self, certificate: ManagedCertificate) -> None:
        for gateway in self._caches.gateways.values():
            plan = self.plans.get(*gateway.key)
            if plan is not None and certificate.metadata.name in plan.requests:
                self._replan(*gateway.key)

    def _service_changed(self, changed: Service) -> None:
        service = original_of(changed) or changed.key
        self._probe_changed(service)
        for policy in self._caches.policies_of(*service):
            self._engine.report(key_of(POLICY, policy))

    def _probe_changed(self, service: tuple[str, str]) -> None:
        for kind, route in self._caches.routes_to(*service):
            self._engine.publish(key_of(kind, route))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for endpoint_slice in filter(None, (old, new)):
            service = (endpoint_slice.metadata.namespace, endpoint_slice.label(LABEL_SERVICE_NAME))
            users = list(self._caches.routes_to(*service)) if service[1] else []
            if users:
                self._engine.publish((BACKEND, *service))
            if users and is_chosen_by_user(self._services.services.get(*service)):
                # Whether the Service can be a backend depends on its endpoints.
                for kind, route in users:
                    self._engine.publish(key_of(kind, route))

    def _hub_route_changed(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        origin = new.spec.origin if new is not None else None
        changed = old is None or new is None or old.status != new.status
        if origin is not None and origin.kind in self._caches.routes and changed:
            self._engine.report((origin.kind, origin.namespace, origin.name))

    def _load_balancer_changed(self, old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> None:
        changed = new or old
        if changed is None or changed.spec.origin.kind != GATEWAY:
            return
        origin = changed.spec.origin
        if old is None or new is None or old.status != new.status or old.metadata.generation != new.metadata.generation:
            self._engine.report((GATEWAY, origin.namespace, origin.name))
            for listener_set in self._caches.sets_of(origin.namespace, origin.name):
                self._engine.report(key_of(LISTENER_SET, listener_set))
        concerned = None if old is None or new is None else self._refused_or_failing(old, new)
        for key in self.routes_of(origin.namespace, origin.name) if concerned is None else concerned:
            self._engine.report(key)

    def _refused_or_failing(self, old: HTTPLoadBalancer, new: HTTPLoadBalancer) -> set[Key] | None:
        """Return the routes whose reports differ between two versions of a load balancer; None for all."""
        failing = failing_changes(old, new)
        if failing is None:
            return None
        names = {part.name for part in set(old.status.refused) ^ set(new.status.refused)}
        published = (self._http.routes.get(new.metadata.namespace, name) for name in names)
        origins = (route.spec.origin for route in published if route is not None)
        return failing | {(origin.kind, origin.namespace, origin.name) for origin in origins}

    # --- small parts -------------------------------------------------------------------------------------------------

    def _enqueue_classes(self) -> None:
        for gateway_class in self._caches.gateway_classes.values():
            self._engine.report((GATEWAY_CLASS, "", gateway_class.metadata.name))

    def _replan(self, namespace: str, name: str) -> None:
        self.plans.forget(namespace, name)
        self._engine.publish((GATEWAY, namespace, name))

    def _enqueue_gateways(self) -> None:
        self.plans.forget_all()
        for gateway in self._caches.gateways.values():
            self._engine.publish(key_of(GATEWAY, gateway))
            self._engine.report(key_of(GATEWAY, gateway))

    def _enqueue_secrets(self, old: Gateway | ListenerSet | None, new: Gateway | ListenerSet | None) -> None:
        for holder in filter(None, (old, new)):
            for secret in secrets_named(holder):
                self._engine.publish((SECRET, *secret))

    # --- what is published ---------------------------------------------------------------------------------------

    async def publish(self, key: Key) -> bool:
        """Publish the objects of a Gateway or route at the hub; return whether a removal waits."""
        kind, namespace, name = key
        self._check_read(key)
        return await (self._publish_gateway(namespace, name) if kind == GATEWAY else self._publish_route(key))

    async def report(self, key: Key) -> float | None:
        """Write the decision and the hub's answer to the status of an object."""
        self._check_read(key)
        return await self._reports.report(key)

    def _check_read(self, key: Key) -> None:
        """Check that all input has been read: published objects and statuses stay unchanged until then.

        Raises:
            Retry: some input has not been read.
        """
        kind, *name = key
        obj = self._caches.by_kind[kind].get(*name)
        if obj is None or obj.deleting:
            return
        if isinstance(obj, BackendTLSPolicy):
            self._check_backends(target[:2] for target in targets_of(obj))
        elif isinstance(obj, ListenerSet):
            self._check_gateway(*gateway_of(obj))
        elif isinstance(obj, Gateway):
            self._check_gateway(*obj.key)
        elif kind in self._caches.routes:
            parents = parents_named(obj)
            for parent in parents:
                self._caches.by_kind[parent.kind].check_read(parent.namespace, parent.name)
                if parent.kind == GATEWAY:
                    self._check_gateway(parent.namespace, parent.name)
            plans = self.plans.of_route(parents)
            for plan in plans.values():
                self._check_gateway(*plan.gateway[1:])
            if plans:
                self._caches.namespaces.check_read("", obj.metadata.namespace)
                self._check_backends([*services_named(obj), *processors_of(plans.values())])

    def _check_gateway(self, namespace: str, name: str) -> None:
        gateway = self._caches.gateways.get(namespace, name)
        if gateway is None:
            return
        self._caches.gateway_classes.check_read("", gateway.spec.gateway_class_name)
        if (of_class := self.plans.class_of(gateway)) is not None:
            self._services.classes.check_read("", load_balancer_class_of(of_class) or DEFAULT_CLASS)
            self._caches.check_read(gateway)

    def _check_backends(self, services: Iterable[tuple[str, str]]) -> None:
        for service in services:
            self._services.services.check_read(*service)
            self._caches.check_read_backend(*service)

    async def _publish_gateway(self, namespace: str, name: str) -> bool:
        origin: Key = (GATEWAY, namespace, name)
        if (namespace, name) in self._caches.gateways.broken:
            return False
        plan = self.plans.get(namespace, name)
        before = self._seen.get((namespace, name))
        self._follow(namespace, name, plan)
        if plan is not None and plan.is_refused:
            self._engine.report(origin)
            return False
        for request in _names_asked(before) - _names_asked(plan):
            self._engine.publish((MANAGED, "", request))
        if plan is None or plan.spec is None:
            self._engine.report(origin)
            return await self._shared.remove(self._shared.load_balancers, origin, self)
        await self._publish_listeners(namespace, name, plan, plan.spec)
        self._engine.report(origin)
        return False

    def _follow(self, namespace: str, name: str, plan: GatewayPlan | None) -> None:
        """Enqueue the routes, ListenerSets and policies of a Gateway if its plan has changed."""
        before = self._seen.get((namespace, name))
        if plan == before:
            return
        if plan is None:
            del self._seen[namespace, name]
        else:
            self._seen[namespace, name] = plan
            self._names[plan.load_balancer] = (namespace, name)
        sets = {listener_set for known in (before, plan) if known is not None for listener_set in known.listener_sets}
        routes = self.routes_of(namespace, name, also=sets)
        self.attachments.wait_for(gateway_load_balancer_name(namespace, name), routes)
        for route in sorted(routes):
            self._engine.publish(route)
        for parent in sets:
            self._engine.report(_origin(parent))
        for policy in self._caches.policies.values():
            self._engine.report(key_of("BackendTLSPolicy", policy))

    async def _publish_listeners(
        self, namespace: str, name: str, plan: GatewayPlan, spec: HTTPLoadBalancerSpec
    ) -> None:
        async with self._locks.hold((GATEWAY, namespace, name)):
            for secret in self._secrets_of(namespace, name):
                await self._shared.secret(*secret)
            for request in plan.requests:
                await self._shared.managed(request)
            published = self._shared.load_balancers
            meta = self._shared.subtenant_meta((GATEWAY, namespace, name), plan.load_balancer, published)
            await published.apply(HTTPLoadBalancer(metadata=meta, spec=spec))

    def certificate_flaws(self, plan: GatewayPlan) -> list[str]:
        """Return why clients refuse certificates of a Gateway's listeners; one valid certificate per host is enough."""
        namespace, name = plan.gateway.namespace, plan.gateway.name
        keys = self._secrets_of(namespace, name)
        states = {certificate_name(*key): (key, self._shared.certificate(*key)) for key in keys}
        texts: dict[str, None] = {}
        for listener in plan.spec.listeners if plan.spec is not None else ():
            named = [states[certificate] for certificate in listener.certificates if certificate in states]
            flaws = [(key, self._shared.flaw_of(state, filter(None, [listener.hostname]))) for key, state in named]
            if flaws and len(flaws) == len(listener.certificates) and all(flaw for _, flaw in flaws):
                (of, secret), flaw = flaws[0]
                texts[f"Secret {of}/{secret}: {flaw}"] = None
        return list(texts)

    def _secrets_of(self, namespace: str, name: str) -> set[tuple[str, str]]:
        gateway = self._caches.gateways.get(namespace, name)
        holders: list[Gateway | ListenerSet] = [*filter(None, (gateway,)), *self._caches.sets_of(namespace, name)]
        return {key for holder in holders for key in secrets_named(holder)}

    async def _publish_route(self, origin: Key) -> bool:
        kind, namespace, name = origin
        cache = self._caches.routes[kind]
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
                self._engine.report(origin)
            held = await self._shared.remove(self._shared.routes, origin, self)
            self._release(route, before, None)
            return held
        for service in sorted(plan.services):
            await self._shared.service(*service)
        if self._has_nodes(plan):
            # The copies of its Services exist now, with the nodePorts that the API server has chosen.
            plan = self._plan(route) or plan
            self._report_gateways(self.attachments.put(origin, plan))
        await self._parents_first(route, plan)
        wanted = [
            LoadBalancerRoute(
                metadata=self._shared.subtenant_meta(origin, route_name(origin, load_balancer), self._shared.routes),
                spec=spec,
            )
            for load_balancer, spec in plan.specs.items()
        ]
        kept = self._kept(origin, plan)
        names = {
            published.metadata.name
            for published in kept
            if plan.is_refused and is_protected(published.spec, plan.undecided)
        }
        for wanted_route in wanted:
            if wanted_route.metadata.name not in names:
                await self._shared.routes.apply(wanted_route)
        held = await self._shared.remove(self._shared.routes, origin, self, keep=[*wanted, *kept])
        self._engine.report(origin)
        self._release(route, before, plan)
        return held

    def _kept(self, origin: Key, plan: RoutePlan) -> list[LoadBalancerRoute]:
        """Return the objects that stay published for a route that is refused, or at refused Gateways."""
        names = {parent.load_balancer for parent in plan.parents}
        refused = {name for name in names if plan.is_refused or self._is_refused(name)}
        return [route for route in self._shared.routes_of(origin) if route.spec.load_balancer in refused]

    def _is_refused(self, load_balancer: str) -> bool:
        name = self._names.get(load_balancer)
        plan = None if name is None else self.plans.get(*name)
        return plan is not None and plan.is_refused

    def _plan(self, route: AnyRoute | None) -> RoutePlan | None:
        """Return the plan of a route, None if none of its parents is ours."""
        if route is None or route.deleting:
            return None
        parents = self.plans.of_route(parents_named(route))
        if not parents:
            return None
        named = [*services_named(route), *processors_of(parents.values())]
        nodes = any(_by_nodes(parent) for parent in parents.values())
        reached = {key: self._shared.reach(key, nodes=nodes) for key in named}
        return plan_route(
            RouteView(
                route=route,
                parents=parents,
                services={key: service for key, (service, _) in reached.items() if service is not None},
                grants=tuple(self._caches.grants.values()),
                policies=self.policies.of_services(named),
                unreachable={
                    key: problem or missing_service(*key, self._services.services.values())
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
        for gateway in {parent.load_balancer: parent for parent in parents.values()}.values():
            if gateway.load_balancer in plan.specs and gateway.spec is not None:
                _, namespace, name = gateway.gateway
                await self._publish_listeners(namespace, name, gateway, gateway.spec)

    def _report_policies(self, origin: Key, route: AnyRoute | None, plan: RoutePlan | None) -> None:
        """Have the policies of a route's Services show its Gateways, also one that keeps requests from its Service."""
        parents = () if plan is None else plan.parents
        services = services_named(route) if route is not None else ()
        now = frozenset((service, parent.load_balancer) for service in services for parent in parents)
        before = self._reached.pop(origin, frozenset())
        if now:
            self._reached[origin] = now
        for service in {service for service, _ in before ^ now}:
            for policy in self._caches.policies_of(*service):
                self._engine.report(key_of("BackendTLSPolicy", policy))

    def _release(self, route: AnyRoute | None, before: RoutePlan | None, plan: RoutePlan | None) -> None:
        """Have the endpoints removed that a route no longer needs."""
        needed = frozenset[tuple[str, str]]() if plan is None else plan.services
        named = frozenset[tuple[str, str]]() if before is None else before.services
        for service in {*named, *(services_named(route) if route is not None else ())} - needed:
            self._engine.publish((BACKEND, *service))

    def _report_gateways(self, load_balancers: Iterable[str]) -> None:
        """Have the statuses written that show how many routes each listener of these load balancers has."""
        for load_balancer in load_balancers:
            plan = self._seen.get(self._names.get(load_balancer, ("", "")))
            for parent in () if plan is None else (plan.gateway, *plan.listener_sets):
                self._engine.report(_origin(parent), CountPace.SETTLE_S)

    def counts_of(self, plan: GatewayPlan) -> dict[str, int] | None:
        """Return the number of routes of each listener; None while some wait to be planned with this plan."""
        _, namespace, name = plan.gateway
        if self._seen.get((namespace, name)) != plan:
            return None
        return self.attachments.counts(plan.load_balancer)

    def routes_of(self, namespace: str, name: str, also: Iterable[ParentKey] = ()) -> set[Key]:
        """Return the routes that name a Gateway or one of its ListenerSets, or a parent in ``also``."""
        parents = {*parents_of((namespace, name), self._caches.sets_of(namespace, name)), *also}
        return {key_of(kind, route) for parent in parents for kind, route in self._caches.routes_of(parent)}

    def gateways_to(self, service: tuple[str, str]) -> set[ParentKey]:
        """Return the Gateways that send requests to a Service."""
        gateways: set[ParentKey] = set()
        for kind, route in self._caches.routes_to(*service):
            plan = self.attachments.plan_of(key_of(kind, route))
            for parent in () if plan is None else plan.parents:
                if parent.load_balancer in self._names:
                    gateways.add(ParentKey("Gateway", *self._names[parent.load_balancer]))
        return gateways

    # --- what it needs of the things that are shared --------------------------------------------------------------

    def needs_service(self, namespace: str, name: str) -> bool:
        """Return whether a route of ours needs this Service, or may need it."""
        for kind, route in self._caches.routes_to(namespace, name):
            origin: Key = key_of(kind, route)
            plan = self.attachments.plan_of(origin)
            if origin not in self.attachments or (plan is not None and (namespace, name) in plan.services):
                return True
        return False

    def needs_node_ports(self, namespace: str, name: str) -> bool:
        """Return whether a Gateway of ours with the nodes as backends sends requests to this Service, or may."""
        copied = self._shared.copies.has_copy((namespace, name))
        if not copied and not any(_by_nodes(self.plans.get(*gateway_key)) for gateway_key in self._names.values()):
            return False  # thousands of routes may name one Service
        for kind, route in self._caches.routes_to(namespace, name):
            origin: Key = key_of(kind, route)
            plan = self.attachments.plan_of(origin)
            if copied and origin not in self.attachments:
                return True
            if plan is not None and (namespace, name) in plan.services and self._has_nodes(plan):
                return True
        return False

    def needs_secret(self, namespace: str, name: str) -> bool:
        """Return whether a listener of ours is served with this Secret."""
        copy = certificate_name(namespace, name)
        gateways = {gateway.key for gateway in self._caches.gateways.by_index(BY_SECRET, (namespace, name))}
        gateways |= {
            gateway_of(listener_set)
            for listener_set in self._caches.listener_sets.by_index(BY_SECRET, (namespace, name))
        }
        specs = (self._published_spec(*gateway) for gateway in gateways)
        return any(
            spec is not None and copy in {certificate.name for certificate in spec.certificates} for spec in specs
        )

    def _published_spec(self, namespace: str, name: str) -> HTTPLoadBalancerSpec | None:
        plan = self.plans.get(namespace, name)
        if plan is None or not plan.is_refused:
            return None if plan is None else plan.spec
        published = self._shared.load_balancer(plan.load_balancer)
        return None if published is None else published.spec

    def requests(self, name: str) -> list[CertificateRequest]:
        """Return the certificate requests of our Gateways under this name."""
        plans = [self.plans.get(*gateway.key) for gateway in self._caches.gateways.values()]
        return [plan.requests[name] for plan in plans if plan is not None and name in plan.requests]

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether the view of Gateways and routes is current."""
        return self._caches.is_fresh(fresh_s=fresh_s)


def _by_nodes(plan: GatewayPlan | None) -> bool:
    return plan is not None and plan.spec is not None and plan.spec.targets == "Node"


def _names_asked(plan: GatewayPlan | None) -> set[str]:
    """Return the names of the certificates that a Gateway requests from the hub."""
    return set[str]() if plan is None else set(plan.requests)


def _origin(parent: ParentKey) -> Key:
    return (parent.kind, parent.namespace, parent.name)


def _wants_the_same(old: _Requested | None, new: _Requested | None) -> bool:
    """Return whether the user's request is unchanged: only a status or a label was written."""
    return old is not None and new is not None and _requested_part(old) == _requested_part(new)


def _requested_part(obj: _Requested) -> tuple[object, ...]:
    return obj.metadata.uid, obj.spec, obj.metadata.annotations, obj.deleting
