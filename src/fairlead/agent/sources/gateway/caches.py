"""The watch caches of the installed kinds of Gateway API in the member, and the plans made from them.

In: the member. Out: caches with their indexes; each runs while its kind is served. Namespaces are watched
only while Gateways are served, ConfigMaps only once a Gateway or policy names one. Only their bundle of certificates is
kept. A plan is kept until something that it depends on changes. Never writes; never treats objects as deleted because
their kind is not served.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar, cast

import msgspec
import structlog

from fairlead.agent.identity import Key
from fairlead.agent.slices import without_last_applied
from fairlead.agent.sources.caches import IngressCaches, ServiceCaches
from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import (
    AttachedListener,
    BackendPolicy,
    GatewayPlan,
    GatewayView,
    ParentKey,
    RoutePlan,
    config_maps_named,
    processor_of,
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
from fairlead.agent.sources.gateway.routes import parents_named, services_named
from fairlead.agent.sources.gateway.status import load_balancer_class_of
from fairlead.agent.sources.http import is_bundle
from fairlead.agent.sources.shared import Shared
from fairlead.api.gateway import (
    BACKEND_TLS_POLICIES,
    GATEWAY_CLASSES,
    GATEWAY_GROUP,
    GATEWAYS,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    ROUTES,
    AnyRoute,
    BackendTLSPolicy,
    Gateway,
    GatewayClass,
    ListenerSet,
    PolicyStatus,
    ReferenceGrant,
)
from fairlead.api.kubernetes import CRDS, NAMESPACES, Namespace
from fairlead.api.meta import KubeObject, ObjectMeta, Resource
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import LOOK_S, Discovery, OptionalCache
from fairlead.model.http import PAGE_STATUS

T = TypeVar("T", bound=KubeObject)

BY_CLASS, BY_GATEWAY, BY_PARENT, BY_SERVICE = "class", "gateway", "parent", "service"
BY_SECRET = "secret"  # noqa: S105 - the name of an index
BY_CONFIG_MAP = "config map"
_NAMES_ONE = "names a config map"
_CA = "ca.crt"
_BUNDLE_VERSION = "gateway.networking.k8s.io/bundle-version"
_CHANNEL = "gateway.networking.k8s.io/channel"
#: How often the version of the definitions is read, in seconds, once it is known.
INSTALLED_S = 60.0

#: The versions that we read, preferred first. Older ones have the same fields that we read.
_VERSIONS = {
    "gatewayclasses": ("v1", "v1beta1"),
    "gateways": ("v1", "v1beta1"),
    "httproutes": ("v1", "v1beta1"),
    "tlsroutes": ("v1", "v1alpha3", "v1alpha2"),
    "tcproutes": ("v1", "v1alpha2"),
    "udproutes": ("v1", "v1alpha2"),
    "referencegrants": ("v1beta1", "v1"),
    "backendtlspolicies": ("v1", "v1alpha3"),
}


#: A cache of objects of any kind of Gateway API.
AnyOptionalCache = OptionalCache[Any]


class Bundle(KubeObject, frozen=True, gc=False):
    """A ConfigMap reduced to its bundle of certificates and its error pages."""

    data: dict[str, str] | None = None

    @property
    def certificates(self) -> str:
        """Return the bundle of certificates, empty if there is none."""
        return (self.data or {}).get(_CA, "")

    @property
    def pages(self) -> dict[str, str]:
        """Return the error pages by status."""
        return {status: page for status, page in (self.data or {}).items() if status != _CA}


BUNDLES = Resource("", "v1", "ConfigMap", "configmaps", True, Bundle)


class GatewayCaches:
    """The caches of Gateway API."""

    def __init__(self, *, member: Cluster, http: IngressCaches) -> None:
        self._http = http
        self.gateway_classes: OptionalCache[GatewayClass] = _cache(member, GATEWAY_CLASSES)
        self.gateways: OptionalCache[Gateway] = _cache(
            member,
            GATEWAYS,
            {
                BY_CLASS: lambda obj: [obj.spec.gateway_class_name],
                BY_SECRET: secrets_named,
                BY_CONFIG_MAP: config_maps_named,
                BY_SERVICE: lambda obj: [(of.namespace, of.service) for of in (processor_of(obj),) if of is not None],
                _NAMES_ONE: lambda obj: [bool(config_maps_named(obj))],
            },
        )
        self.listener_sets: OptionalCache[ListenerSet] = _cache(
            member, LISTENER_SETS, {BY_GATEWAY: lambda obj: [gateway_of(obj)], BY_SECRET: secrets_named}
        )
        self.routes: dict[str, OptionalCache[AnyRoute]] = {
            route.kind: _cache(
                member, cast("Resource[AnyRoute]", route), {BY_PARENT: parents_named, BY_SERVICE: services_named}
            )
            for route in ROUTES
        }
        self.grants: OptionalCache[ReferenceGrant] = _cache(member, REFERENCE_GRANTS)
        self.policies: OptionalCache[BackendTLSPolicy] = _cache(
            member,
            BACKEND_TLS_POLICIES,
            {BY_SERVICE: _targets, BY_CONFIG_MAP: bundles_named, _NAMES_ONE: lambda obj: [bool(bundles_named(obj))]},
        )
        self.namespaces: OptionalCache[Namespace] = OptionalCache(member, NAMESPACES, transform=_labels_only)
        self.config_maps: OptionalCache[Bundle] = OptionalCache(member, BUNDLES, transform=_bundle_only)
        self.discovery = Discovery(
            member,
            GATEWAY_GROUP,
            {cache: _VERSIONS.get(cache.resource.plural, (cache.resource.version,)) for cache in self.of_group},
            looked=self._follow,
        )
        #: Version and channel of the installed CRDs, empty while unknown.
        self.installed = ("", "")
        self.on_installed: list[Callable[[], None]] = []
        #: Set once a new kind is served that has not been read yet.
        self.kind_came = asyncio.Event()
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.l7")
        self._member = member
        for cache in (self.gateways, self.policies):
            cache.on_change(lambda _old, _new: self._follow())

    @property
    def of_group(self) -> tuple[AnyOptionalCache, ...]:
        """Return the caches of Gateway API's own kinds."""
        own = (self.gateway_classes, self.gateways, self.listener_sets, self.grants, self.policies)
        return (*own, *self.routes.values())

    @property
    def by_kind(self) -> dict[str, AnyOptionalCache]:
        """Return the caches of Gateway API's own kinds by their kind."""
        return {cache.resource.kind: cache for cache in self.of_group}

    @property
    def all(self) -> tuple[AnyOptionalCache, ...]:
        """Return all caches."""
        return (*self.of_group, self.namespaces, self.config_maps)

    async def run(self) -> None:
        """Run the caches, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.discovery.run(), name="gateway-discovery")
            group.create_task(self._read_installed(), name="gateway-version")
            for cache in self.all:
                group.create_task(cache.run(), name=f"cache-{cache.cluster.name}-{cache.resource.plural}")

    @property
    def ready(self) -> bool:
        """Return whether each served kind has been read."""
        return self.discovery.asked and self._http.secrets.synced and all(cache.settled for cache in self.all)

    @property
    def problem(self) -> str:
        """Return why some kind cannot be read; empty if all can be read."""
        sentences = (cache.problem for cache in (*self.all, self._http.secrets) if not cache.synced and cache.problem)
        return self.discovery.problem or next(sentences, "")

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether the view of the member is current: only then may anything be removed."""
        if not self.discovery.asked:
            return False
        if not any(self._http.has_published(cache.resource.kind) for cache in (self.gateways, *self.routes.values())):
            return True  # nothing of Gateway API is at the hub, so it needs nothing there
        secrets = self._http.secrets
        return all(map(self._is_whole, self.all)) and all(
            cache.synced and not cache.problem and not cache.broken and cache.age_s <= fresh_s
            for cache in (*(cache for cache in self.all if cache.served), secrets)
        )

    def _is_whole(self, cache: AnyOptionalCache) -> bool:
        """Return whether a kind that is not served has no objects that could be missing."""
        return cache.served or not (len(cache) or self._http.has_published(cache.resource.kind))

    async def _read_installed(self) -> None:
        """Track version and channel of the CRDs; without the right to read them they stay unknown."""
        while True:
            pause_s = LOOK_S
            try:
                if self.gateway_classes.served:
                    read = await self._member.get(CRDS, "", GATEWAY_CLASSES.full_name)
                    installed = (read.annotation(_BUNDLE_VERSION), read.annotation(_CHANNEL))
                    if installed != self.installed:
                        self.installed = installed
                        for callback in self.on_installed:
                            callback()
                    pause_s = INSTALLED_S
            except FairleadError as error:
                self._log.debug("version of Gateway API unknown", sentence=error.sentence)
            await self._member.clock.sleep(pause_s)

    def _follow(self) -> None:
        version = "v1" if self.gateways.served else ""
        self.namespaces.serve(version)
        names_one = any(cache.by_index(_NAMES_ONE, True) for cache in (self.gateways, self.policies))
        if not version or names_one:
            self.config_maps.serve(version)
        if not self.ready:
            self.kind_came.set()

    # --- what belongs together -------------------------------------------------------------------------------------

    def routes_of(self, parent: ParentKey) -> Iterable[tuple[str, AnyRoute]]:
        """Yield kind and object of each route that names this parent."""
        for kind, cache in self.routes.items():
            for route in cache.by_index(BY_PARENT, parent):
                yield kind, route

    def routes_to(self, namespace: str, name: str) -> Iterable[tuple[str, AnyRoute]]:
        """Yield kind and object of each route that names this Service, or whose Gateway does, in any order."""
        for kind, cache in self.routes.items():
            for route in cache.indexed(BY_SERVICE, (namespace, name)):
                yield kind, route
        for gateway in self.gateways.by_index(BY_SERVICE, (namespace, name)):
            for parent in parents_of(gateway.key, self.sets_of(*gateway.key)):
                yield from self.routes_of(parent)

    def bundle(self, namespace: str, name: str) -> str | None:
        """Return the certificates of a ConfigMap: empty if it has none, None if it does not exist."""
        config_map = self.config_maps.get(namespace, name)
        return None if config_map is None else config_map.certificates

    def error_pages(self, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
        """Return the error pages of the existing ConfigMaps, by status."""
        maps = {name: self.config_maps.get(*name) for name in names}
        return {name: config_map.pages for name, config_map in maps.items() if config_map is not None}

    def check_read(self, gateway: Gateway) -> None:
        """Check that all input of a Gateway's plan has been read; ``Shared`` keeps Secrets.

        Raises:
            Retry: some input has not been read.
        """
        for name in config_maps_named(gateway):
            self.config_maps.check_read(*name)
        for namespace, _ in secrets_named(gateway):
            if namespace != gateway.metadata.namespace:
                self.grants.check_read(namespace)
        for key, remains in self.listener_sets.remains().items():
            of = remains.obj
            if of is None or not remains.has("spec.parentRef") or gateway_of(of) == gateway.key:
                self.listener_sets.check_read(*key)
        for listener_set in self.sets_of(*gateway.key):
            self.namespaces.check_read("", listener_set.metadata.namespace)

    def check_read_backend(self, namespace: str, name: str) -> None:
        """Check that all input that decides how a Service is reached, and by whom, has been read.

        Raises:
            Retry: some input has not been read.
        """
        self.grants.check_read(namespace)
        self.policies.check_read(namespace)
        for policy in self.policies_of(namespace, name):
            for config_map in bundles_named(policy):
                self.config_maps.check_read(*config_map)

    def policies_of(self, namespace: str, name: str) -> tuple[BackendTLSPolicy, ...]:
        """Return the policies that name this Service."""
        return tuple(self.policies.by_index(BY_SERVICE, (namespace, name)))

    def sets_of(self, namespace: str, name: str) -> tuple[ListenerSet, ...]:
        """Return the ListenerSets that name this Gateway."""
        sets = self.listener_sets.by_index(BY_GATEWAY, (namespace, name))
        return tuple(listener_set for listener_set in sets if not listener_set.deleting)


def gateway_of(listener_set: ListenerSet) -> tuple[str, str]:
    """Return (namespace, name) of the Gateway that a ListenerSet names."""
    parent = listener_set.spec.parent_ref
    return (parent.namespace or listener_set.metadata.namespace, parent.name)


def parents_of(gateway: tuple[str, str], listener_sets: Iterable[ListenerSet]) -> Iterable[ParentKey]:
    """Yield the parents that routes may name to attach to a Gateway: the Gateway and its ListenerSets."""
    yield ParentKey("Gateway", *gateway)
    for listener_set in listener_sets:
        yield ParentKey("ListenerSet", *listener_set.key)


def _cache(
    member: Cluster, resource: Resource[T], indexes: dict[str, Callable[[T], Iterable[Hashable]]] | None = None
) -> OptionalCache[T]:
    return OptionalCache(member, resource, transform=without_last_applied, indexes=indexes)


def _targets(policy: BackendTLSPolicy) -> set[tuple[str, str]]:
    return {(namespace, name) for namespace, name, _ in targets_of(policy)}


def _small(obj: KubeObject) -> ObjectMeta:
    meta = obj.metadata
    return ObjectMeta(name=meta.name, namespace=meta.namespace, resource_version=meta.resource_version)


def _labels_only(raw: Namespace) -> Namespace:
    return Namespace(metadata=msgspec.structs.replace(_small(raw), labels=raw.metadata.labels))


def _bundle_only(raw: Bundle) -> Bundle:
    """Keep the bundle; an invalid text counts as no entry."""
    kept = {status: page for status, page in raw.pages.items() if PAGE_STATUS.fullmatch(status)}
    if is_bundle(raw.certificates):
        kept[_CA] = raw.certificates
    return Bundle(metadata=_small(raw), data=kept or None)


GatewayName = tuple[str, str]


class GatewayPlans:
    """The plans of all Gateways of ours."""

    def __init__(self, *, caches: GatewayCaches, shared: Shared) -> None:
        self._caches = caches
        self._shared = shared
        self._plans: dict[GatewayName, GatewayPlan | None] = {}
        self._labels: dict[str, Mapping[str, str]] | None = None

    def get(self, namespace: str, name: str) -> GatewayPlan | None:
        """Return the plan of one Gateway, None if it is not, or no longer, one of ours."""
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
        """Return the plans of the parents that are ours."""
        plans = {parent: self.of_parent(parent) for parent in parents}
        return {parent: plan for parent, plan in plans.items() if plan is not None}

    def forget(self, namespace: str, name: str) -> None:
        """Drop one plan, so that it is computed again: one of its dependencies has changed."""
        self._plans.pop((namespace, name), None)

    def forget_all(self) -> None:
        """Drop all plans, so that they are computed again: a class, a grant or a namespace has changed."""
        self._plans.clear()
        self._labels = None

    def class_of(self, gateway: Gateway) -> GatewayClass | None:
        """Return the Fairlead class of a Gateway, None if it has none."""
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
                untraced_by=self._shared.untraced_by(load_balancer_class),
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
    """The plan of each route, and the number of routes of each listener.

    A Gateway's counts are complete once all its routes have been planned with its present listeners.
    """

    def __init__(self) -> None:
        self._plans: dict[Key, RoutePlan | None] = {}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._waiting: defaultdict[str, set[Key]] = defaultdict(set)

    def __contains__(self, route: Key) -> bool:
        return route in self._plans

    def plan_of(self, route: Key) -> RoutePlan | None:
        """Return the last plan of a route, without the published objects; None if it has no parent of ours."""
        return self._plans.get(route)

    def counts(self, load_balancer: str) -> dict[str, int] | None:
        """Return the number of routes by listener, without zeros; None while some wait to be planned."""
        if self._waiting.get(load_balancer):
            return None
        return dict(+self._counts.get(load_balancer, Counter[str]()))

    def wait_for(self, load_balancer: str, routes: Iterable[Key]) -> None:
        """Note the routes that will be planned again for a load balancer."""
        waiting = set(routes)
        if waiting:
            self._waiting[load_balancer] |= waiting

    def is_planned(self, route: Key) -> list[str]:
        """Stop waiting for a route; return the load balancers whose counts are complete now."""
        complete: list[str] = []
        for load_balancer in [name for name, waiting in self._waiting.items() if route in waiting]:
            waiting = self._waiting[load_balancer]
            waiting.discard(route)
            if not waiting:
                del self._waiting[load_balancer]
                complete.append(load_balancer)
        return complete

    def put(self, route: Key, plan: RoutePlan | None) -> set[str]:
        """Store the plan of a route; return the load balancers whose counts have changed."""
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
        """Forget a deleted route; return the load balancers whose counts have changed."""
        changed = self.put(route, None)
        del self._plans[route]
        return changed


class BackendPolicies:
    """The policies of all Services."""

    def __init__(self, *, services: ServiceCaches, caches: GatewayCaches) -> None:
        self._services = services
        self._caches = caches

    def of_services(self, services: Iterable[tuple[str, str]]) -> dict[PolicyKey, BackendPolicy]:
        """Return the effective policies for the ports of these Services."""
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
