"""How does L7 of a member get to the hub?

    IngressClass   the HTTPLoadBalancer, after the copies of the Secrets that its listeners name
    Ingress        a LoadBalancerRoute for each host, after the slices of the Services that they name
    Service        its EndpointSlices, as long as a route names it
    Secret         its copy, as long as a listener names it; one that breaks or goes leaves the last good copy

In: caches. Out: writes at the hub, Events on the user's Ingress. Never: acts on a cache that is not synced, or removes
because of an error. What is added is written before what needs it, what goes after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairlead.agent.events import EventWriter, warning_event
from fairlead.agent.export import Settings
from fairlead.agent.l7.certificates import CertificateState
from fairlead.agent.l7.identity import (
    Origin,
    backend_slice_meta,
    certificate_name,
    class_load_balancer_name,
    is_for,
    origin_of,
    published_meta,
    route_name,
)
from fairlead.agent.l7.ingress import IngressView, services_of, translate_ingress
from fairlead.agent.l7.ingress_class import ClassPlan, ClassView, class_of, plan_class
from fairlead.agent.l7.sources import BY_ORIGIN, BY_SECRET, BY_SERVICE, L7Sources, secrets_of
from fairlead.agent.sources import Sources
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.ingress import IngressObject
from fairlead.api.kubernetes import ENDPOINT_SLICES, SECRETS, EndpointSlice, Secret
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import ANNOTATION_DIGEST, LABEL_BACKEND, MANAGER_AGENT
from fairlead.api.naming import label_value
from fairlead.kube.cluster import Cluster
from fairlead.model.condition import ConditionReason
from fairlead.publish.caches import BY_LOAD_BALANCER, slices_of_backend
from fairlead.publish.objects import ObjectPublisher
from fairlead.runtime.keyed_lock import KeyedLock
from fairlead.translate.certificates import certificate_of

#: A removal that waits for the member's caches to be current is reconciled again this often.
NOT_CURRENT_RETRY_S = 5.0
CLASS, INGRESS, SERVICE, SECRET = "IngressClass", "Ingress", "Service", "Secret"


class L7Exporter:
    """Reconciles one object of the member at a time."""

    def __init__(
        self,
        *,
        hub: Cluster,
        sources: Sources,
        l7: L7Sources,
        events: EventWriter,
        settings: Settings,
        fresh_s: float,
        may_write: Callable[[], bool],
        enqueue: Callable[[Origin], None],
        on_write: Callable[[str, str], None],
    ) -> None:
        self._sources = sources
        self._l7 = l7
        self._events = events
        self._settings = settings
        self._fresh_s = fresh_s
        self._enqueue = enqueue
        #: Slices and Secrets are shared by several Ingresses, whose keys are reconciled side by side.
        self._locks = KeyedLock()
        self._plans: dict[str, ClassPlan] = {}
        self._states: dict[tuple[str, str], tuple[str, CertificateState]] = {}
        shared: dict[str, Any] = {
            "hub": hub,
            "manager": MANAGER_AGENT,
            "may_write": may_write,
            "on_write": on_write,
        }
        self._load_balancers = ObjectPublisher(resource=HTTP_LOAD_BALANCERS, cache=l7.load_balancers, **shared)
        self._routes = ObjectPublisher(resource=LOAD_BALANCER_ROUTES, cache=l7.routes, **shared)
        self._certificates = ObjectPublisher(resource=SECRETS, cache=l7.certificates, parts=("type", "data"), **shared)
        self._slices = ObjectPublisher(
            resource=ENDPOINT_SLICES,
            cache=sources.hub_slices,
            parts=("address_type", "endpoints", "ports"),
            **shared,
        )

    async def reconcile(self, origin: Origin) -> float | None:
        """Make the hub hold what ``origin`` should have; return in how many seconds to reconcile again, if at all."""
        kind, namespace, name = origin
        match kind:
            case "IngressClass":
                held = await self._class(name)
            case "Ingress":
                held = await self._ingress(namespace, name)
            case "Service":
                held = await self._shared_slices(namespace, name)
            case _:
                held = await self._shared_secret(namespace, name)
        return NOT_CURRENT_RETRY_S if held else None

    # --- one for each kind; each returns whether a removal waits -------------------------------------------------

    async def _class(self, name: str) -> bool:
        origin: Origin = (CLASS, "", name)
        plan = self.plan_of(name)
        if plan is None:
            return await self._remove(self._load_balancers, origin)
        for ingress in self.ingresses_of(name):
            for secret in secrets_of(ingress):
                await self._shared_secret(ingress.metadata.namespace, secret)
        meta = self._meta(origin, class_load_balancer_name(name))
        # The listeners of new hosts are there before the routes that name them, since routes come by keys of their own.
        if await self._load_balancers.apply(HTTPLoadBalancer(metadata=meta, spec=plan.spec)):
            for ingress in self.ingresses_of(name):
                self._enqueue((INGRESS, ingress.metadata.namespace, ingress.metadata.name))
        return False

    async def _ingress(self, namespace: str, name: str) -> bool:
        origin: Origin = (INGRESS, namespace, name)
        if (namespace, name) in self._l7.ingresses.broken:
            return False
        ingress = self._l7.ingresses.get(namespace, name)
        of_class = None if ingress is None or ingress.deleting else self.class_of(ingress)
        if ingress is None or of_class is None:
            self._events.forget((namespace, name))
            return await self._remove(self._routes, origin)
        plan = self.plan_of(of_class)
        if plan is None:
            return False
        names = services_of(ingress)
        for service in names:
            await self._shared_slices(namespace, service)
        services = {each: self._sources.services.get(namespace, each) for each in names}
        translated = translate_ingress(
            IngressView(
                ingress=ingress,
                load_balancer=class_load_balancer_name(of_class),
                services={each: service for each, service in services.items() if service is not None},
                tls_listeners=plan.tls_listeners,
            )
        )
        wanted = [
            LoadBalancerRoute(metadata=self._meta(origin, route_name(origin, host)), spec=spec)
            for host, spec in translated.routes.items()
        ]
        for route in wanted:
            await self._routes.apply(route)
        problems = (*translated.problems, *plan.problems.get(ingress.key, ()))
        self._events.emit_new("l7", ingress, [warning_event(ConditionReason.INVALID, text) for text in problems])
        return await self._remove(self._routes, origin, keep=wanted)

    async def _shared_slices(self, namespace: str, name: str) -> bool:
        async with self._locks.hold((SERVICE, namespace, name)):
            return await self._service(namespace, name)

    async def _shared_secret(self, namespace: str, name: str) -> bool:
        async with self._locks.hold((SECRET, namespace, name)):
            return await self._secret(namespace, name)

    async def _service(self, namespace: str, name: str) -> bool:
        service = f"{namespace}/{name}"
        present = self._slices.present.by_index(BY_LOAD_BALANCER, slices_of_backend(self._settings.namespace, service))
        ours = [each for each in present if is_for(each, (SERVICE, namespace, name), tenant=self._settings.tenant)]
        users = self._l7.ingresses.by_index(BY_SERVICE, (namespace, name))
        if not any(self.class_of(ingress) is not None for ingress in users):
            return await self._delete(self._slices, ours)
        wanted = [
            EndpointSlice(
                metadata=backend_slice_meta(
                    (namespace, name),
                    each.metadata.name,
                    namespace=self._settings.namespace,
                    tenant=self._settings.tenant,
                ),
                address_type=each.address_type,
                endpoints=each.endpoints or [],
                ports=each.ports or [],
            )
            for each in self._sources.slices_of_service((namespace, name))
            if each.address_type == "IPv4" and not each.deleting
        ]
        for each in wanted:
            await self._slices.apply(each)
        names = {each.metadata.name for each in wanted}
        return await self._delete(self._slices, [each for each in ours if each.metadata.name not in names])

    async def _secret(self, namespace: str, name: str) -> bool:
        origin: Origin = (SECRET, namespace, name)
        users = self._l7.ingresses.by_index(BY_SECRET, (namespace, name))
        if not any(self.class_of(ingress) is not None for ingress in users):
            return await self._remove(self._certificates, origin)
        secret = self._l7.secrets.get(namespace, name)
        if secret is None:
            return False
        copy_name = certificate_name(namespace, name)
        try:
            digest = certificate_of(copy_name, secret).digest
        except ValueError:
            return False
        meta = self._meta(origin, copy_name)
        annotations = {**(meta.annotations or {}), ANNOTATION_DIGEST: digest}
        data = {entry: (secret.data or {})[entry] for entry in ("tls.crt", "tls.key")}
        meta = ObjectMeta(name=meta.name, namespace=meta.namespace, labels=meta.labels, annotations=annotations)
        await self._certificates.apply(Secret(metadata=meta, type="kubernetes.io/tls", data=data))
        return False

    # --- what is there -------------------------------------------------------------------------------------------

    def origin_of(self, obj: KubeObject) -> Origin | None:
        """Return what an object at the hub was published for by this part of the agent; None when it was not."""
        origin = origin_of(obj, tenant=self._settings.tenant)
        # The slices of load balancers of connections have the same origins; they are no business of L7.
        of_service = origin is not None and origin[0] == SERVICE and not obj.label(LABEL_BACKEND)
        return None if of_service else origin

    def class_of(self, ingress: IngressObject) -> str | None:
        """Return the name of the class of ours that an Ingress is of, None when it is of none."""
        of_class = class_of(ingress, self._l7.ingress_classes.values())
        return None if of_class is None else of_class.metadata.name

    def ingresses_of(self, ingress_class: str) -> tuple[IngressObject, ...]:
        """Return the Ingresses of one class that stay."""
        return tuple(
            each for each in self._l7.ingresses.values() if not each.deleting and self.class_of(each) == ingress_class
        )

    def plan_of(self, ingress_class: str) -> ClassPlan | None:
        """Return the load balancer of one class, None when it is no class of ours; computed once until ``replan``."""
        known = self._plans.get(ingress_class)
        if known is not None:
            return known
        of_member = self._l7.ingress_classes.get("", ingress_class)
        if of_member is None or of_member.deleting or not of_member.is_ours:
            return None
        ingresses = self.ingresses_of(ingress_class)
        named = {(each.metadata.namespace, secret) for each in ingresses for secret in secrets_of(each)}
        certificates = {key: self._certificate(*key) for key in named}
        plan = plan_class(ClassView(of_member, ingresses, certificates, self._targets(of_member.load_balancer_class)))
        self._plans[ingress_class] = plan
        return plan

    def replan(self) -> None:
        """Have the load balancers of all classes computed anew: a class, a TLS section or a certificate changed."""
        self._plans.clear()

    def _certificate(self, namespace: str, name: str) -> CertificateState:
        """Return which version of a Secret is served: the present one, else the last good one that the hub has."""
        copy_name = certificate_name(namespace, name)
        secret, problem = self._l7.secrets.get(namespace, name), "it is not there, or not of type kubernetes.io/tls"
        if secret is not None:
            version, state = self._states.get((namespace, name), ("", CertificateState()))
            if version != secret.metadata.resource_version:
                state = _state_of(copy_name, secret)
                self._states[namespace, name] = (secret.metadata.resource_version, state)
            if state.digest:
                return state
            problem = state.problem
        copy = self._certificates.present.get(self._settings.namespace, copy_name)
        return CertificateState(copy.annotation(ANNOTATION_DIGEST) if copy is not None else "", problem)

    def _targets(self, load_balancer_class: str) -> Any:
        return self._sources.class_targets().get(load_balancer_class, self._settings.target)

    def _meta(self, origin: Origin, name: str) -> ObjectMeta:
        return published_meta(origin, name, namespace=self._settings.namespace, tenant=self._settings.tenant)

    # --- removals ------------------------------------------------------------------------------------------------

    async def _remove(self, publisher: ObjectPublisher[Any], origin: Origin, keep: Iterable[KubeObject] = ()) -> bool:
        kind, namespace, name = origin
        from_index = publisher.present.by_index(BY_ORIGIN, (kind, namespace, label_value(name)))
        names = {each.metadata.name for each in keep}
        gone = [
            each
            for each in from_index
            if each.metadata.name not in names and is_for(each, origin, tenant=self._settings.tenant)
        ]
        return await self._delete(publisher, gone)

    async def _delete(self, publisher: ObjectPublisher[Any], gone: Sequence[KubeObject]) -> bool:
        if not gone:
            return False
        sources = self._sources
        whole = sources.synced and not sources.slices.broken and sources.member_is_fresh(fresh_s=self._fresh_s)
        if not (whole and self._l7.is_fresh(fresh_s=self._fresh_s)):
            return True
        await publisher.delete(gone)
        return False


def _state_of(name: str, secret: Secret) -> CertificateState:
    try:
        return CertificateState(certificate_of(name, secret).digest)
    except ValueError as error:
        return CertificateState(problem=str(error))
