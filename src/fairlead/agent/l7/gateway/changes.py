"""Enqueues the keys of Gateways and routes that a change concerns: of themselves, or of what they name.

In: changes of the caches of both sides. Out: keys in queues, and plans that are computed anew; what to do about a key
is read from the caches later. A changed route concerns that route alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.agent.l7.gateway.exporter import GATEWAY, GatewayExporter
from fairlead.agent.l7.gateway.routes import services_named
from fairlead.agent.l7.gateway.sources import BY_CLASS, BY_CONFIG_MAP, BY_SECRET, Bundle, GatewaySources, gateway_of
from fairlead.agent.l7.gateway.view import secrets_named
from fairlead.agent.l7.identity import Origin, key_of
from fairlead.agent.l7.requests import is_as_far, wants_another
from fairlead.agent.l7.service_copies import is_chosen_by_user, original_of
from fairlead.agent.l7.shared import SECRET, SERVICE
from fairlead.agent.l7.sources import L7Sources
from fairlead.agent.sources import Sources
from fairlead.api.gateway import BackendTLSPolicy, Gateway, GatewayClass, ListenerSet, ReferenceGrant
from fairlead.api.httploadbalancer import HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.kubernetes import EndpointSlice, Namespace, Secret, Service
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.names import LABEL_SERVICE_NAME
from fairlead.runtime.queue import KeyedQueue

GATEWAY_CLASS, LISTENER_SET, POLICY = "GatewayClass", "ListenerSet", "BackendTLSPolicy"


#: Kinds of keys of which nothing is published: they have a status only.
REPORTED_ONLY = frozenset({GATEWAY_CLASS, LISTENER_SET, POLICY})


class GatewayChanges:
    """Connects caches to queues; made once, before the caches run."""

    def __init__(
        self,
        *,
        sources: Sources,
        l7: L7Sources,
        gateway: GatewaySources,
        exporter: GatewayExporter,
        exports: KeyedQueue[Origin],
        feedbacks: KeyedQueue[Origin],
    ) -> None:
        self._services = sources.services
        self._gateway = gateway
        self._exporter = exporter
        self._exports = exports
        self._feedbacks = feedbacks
        gateway.gateway_classes.on_change(self._gateway_class)
        gateway.gateways.on_change(self._one_gateway)
        gateway.listener_sets.on_change(self._listener_set)
        for kind, cache in gateway.routes.items():
            cache.on_change(self._route_of(kind))
        gateway.grants.on_change(self._grant)
        gateway.policies.on_change(self._policy)
        gateway.namespaces.on_change(self._namespace)
        gateway.config_maps.on_change(self._bundle)
        gateway.on_installed.append(self._enqueue_classes)
        l7.secrets.on_change(self._secret)
        l7.load_balancers.on_change(self._load_balancer)
        l7.managed.on_change(self._managed)
        l7.routes.on_change(self._route_of_hub)
        sources.services.on_change(self._service)
        sources.slices.on_change(self._slice)
        sources.classes.on_change(self._class_of_hub)

    def replan(self) -> None:
        """Have the plans of all Gateways computed anew."""
        self._exporter.plans.forget_all()

    def keys(self) -> list[Origin]:
        """Return the keys of what exists in the member."""
        gateway = self._gateway
        caches = (
            (GATEWAY_CLASS, gateway.gateway_classes),
            (GATEWAY, gateway.gateways),
            (LISTENER_SET, gateway.listener_sets),
            (POLICY, gateway.policies),
            *gateway.routes.items(),
        )
        return [key_of(kind, each) for kind, cache in caches for each in cache.values()]

    def enqueue_all(self) -> None:
        """Enqueue what exists in the member."""
        gateway = self._gateway
        self._exporter.begin()
        self._enqueue_gateways()
        self._enqueue_classes()
        for kind, cache in gateway.routes.items():
            for route in cache.values():
                self._exports.add(key_of(kind, route))
        for each in gateway.listener_sets.values():
            self._feedbacks.add(key_of(LISTENER_SET, each))
        for each in gateway.policies.values():
            self._feedbacks.add(key_of(POLICY, each))

    # --- Gateway API -------------------------------------------------------------------------------------------------

    def _gateway_class(self, old: GatewayClass | None, new: GatewayClass | None) -> None:
        changed = new or old
        if changed is None:
            return
        self._feedbacks.add((GATEWAY_CLASS, "", changed.metadata.name))
        if old is None or new is None or old.spec != new.spec or old.deleting != new.deleting:
            for each in self._gateway.gateways.by_index(BY_CLASS, changed.metadata.name):
                self._replan(*each.key)

    def _one_gateway(self, old: Gateway | None, new: Gateway | None) -> None:
        changed = new or old
        if changed is None:
            return
        self._feedbacks.add(key_of(GATEWAY, changed))
        if _wants_the_same(old, new):
            return
        self._replan(*changed.key)
        self._enqueue_secrets(old, new)

    def _listener_set(self, old: ListenerSet | None, new: ListenerSet | None) -> None:
        for each in filter(None, (old, new)):
            self._feedbacks.add(key_of(LISTENER_SET, each))
            if not _wants_the_same(old, new):
                self._replan(*gateway_of(each))
        self._enqueue_secrets(old, new)

    def _route_of(self, kind: str) -> Callable[[Any, Any], None]:
        def changed(old: Any, new: Any) -> None:
            key = key_of(kind, new or old)
            if _wants_the_same(old, new):
                self._feedbacks.add(key)
                return
            self._exports.add(key)
            for service in services_named(old) if old is not None else ():
                self._exports.add((SERVICE, *service))

        return changed

    def _grant(self, old: ReferenceGrant | None, new: ReferenceGrant | None) -> None:
        if _wants_the_same(old, new):
            return
        self._enqueue_gateways()
        namespaces = {each.metadata.namespace for each in (old, new) if each is not None}
        for kind, cache in self._gateway.routes.items():
            for route in cache.values():
                # Only what it names in the grant's namespace can be permitted by it, or not.
                if any(service[0] in namespaces for service in services_named(route)):
                    self._exports.add(key_of(kind, route))

    def _policy(self, old: BackendTLSPolicy | None, new: BackendTLSPolicy | None) -> None:
        for each in filter(None, (old, new)):
            self._feedbacks.add(key_of(POLICY, each))
            if not _wants_the_same(old, new):
                self._policy_counts(each)

    def _policy_counts(self, policy: BackendTLSPolicy) -> None:
        """Enqueue what depends on a policy: routes to its Services, and other policies of the same Services."""
        for target in policy.spec.target_refs or ():
            service = (policy.metadata.namespace, target.name)
            for kind, route in self._gateway.routes_to(*service):
                self._exports.add(key_of(kind, route))
            for other in self._gateway.policies_of(*service):
                self._feedbacks.add(key_of(POLICY, other))

    def _namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self._enqueue_gateways()

    def _bundle(self, old: Bundle | None, new: Bundle | None) -> None:
        changed = new or old
        if changed is None or (old is not None and new is not None and old.certificates == new.certificates):
            return
        for gateway in self._gateway.gateways.by_index(BY_CONFIG_MAP, changed.key):
            self._replan(*gateway.key)
        for policy in self._gateway.policies.by_index(BY_CONFIG_MAP, changed.key):
            self._feedbacks.add(key_of(POLICY, policy))
            self._policy_counts(policy)

    # --- what they name, and the hub's answer ------------------------------------------------------------------------

    def _secret(self, old: Secret | None, new: Secret | None) -> None:
        if (changed := new or old) is not None:
            self.secret_changed(changed.key)

    def secret_changed(self, secret: tuple[str, str]) -> None:
        """Enqueue what depends on a Secret."""
        gateways = [gateway.key for gateway in self._gateway.gateways.by_index(BY_SECRET, secret)]
        sets = self._gateway.listener_sets.by_index(BY_SECRET, secret)
        for key in {*gateways, *map(gateway_of, sets)}:
            self._replan(*key)
        if gateways or sets:
            self._exports.add((SECRET, *secret))

    def _managed(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        changed = new or old
        if changed is None or (old is not None and new is not None and is_as_far(old, new)):
            return
        for each in self._gateway.gateways.values():
            plan = self._exporter.plans.get(*each.key)
            if plan is not None and changed.metadata.name in plan.requests:
                self._replan(*each.key)

    def _service(self, old: Service | None, new: Service | None) -> None:
        changed = new or old
        if changed is not None and not _wants_the_same(old, new):
            service = original_of(changed) or changed.key
            for kind, route in self._gateway.routes_to(*service):
                self._exports.add(key_of(kind, route))
            for policy in self._gateway.policies_of(*service):
                self._feedbacks.add(key_of(POLICY, policy))

    def _slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for each in filter(None, (old, new)):
            service = (each.metadata.namespace, each.label(LABEL_SERVICE_NAME))
            users = list(self._gateway.routes_to(*service)) if service[1] else []
            if users:
                self._exports.add((SERVICE, *service))
            if users and is_chosen_by_user(self._services.get(*service)):
                # It can be a backend or not, as it has endpoints.
                for kind, route in users:
                    self._exports.add(key_of(kind, route))

    def _route_of_hub(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        origin = new.spec.origin if new is not None else None
        changed = old is None or new is None or old.status != new.status
        if origin is not None and origin.kind in self._gateway.routes and changed:
            self._feedbacks.add((origin.kind, origin.namespace, origin.name))

    def _load_balancer(self, old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> None:
        changed = new or old
        if changed is None or changed.spec.origin.kind != GATEWAY:
            return
        origin = changed.spec.origin
        if old is None or new is None or old.status != new.status or old.metadata.generation != new.metadata.generation:
            self._feedbacks.add((GATEWAY, origin.namespace, origin.name))
            for each in self._gateway.sets_of(origin.namespace, origin.name):
                self._feedbacks.add(key_of(LISTENER_SET, each))
        if old is None or new is None or _of_routes(old) != _of_routes(new):
            for key in self._exporter.routes_of(origin.namespace, origin.name):
                self._feedbacks.add(key)

    def _class_of_hub(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if old is None or new is None or wants_another(old, new):
            self._enqueue_gateways()

    # --- small parts -------------------------------------------------------------------------------------------------

    def _enqueue_classes(self) -> None:
        for each in self._gateway.gateway_classes.values():
            self._feedbacks.add((GATEWAY_CLASS, "", each.metadata.name))

    def _replan(self, namespace: str, name: str) -> None:
        self._exporter.plans.forget(namespace, name)
        self._exports.add((GATEWAY, namespace, name))

    def _enqueue_gateways(self) -> None:
        self._exporter.plans.forget_all()
        for each in self._gateway.gateways.values():
            self._exports.add(key_of(GATEWAY, each))
            self._feedbacks.add(key_of(GATEWAY, each))

    def _enqueue_secrets(self, old: Any, new: Any) -> None:
        for each in filter(None, (old, new)):
            for secret in secrets_named(each):
                self._exports.add((SECRET, *secret))


def _wants_the_same(old: Any, new: Any) -> bool:
    """Return whether a change is none of what a user asks for: a status was written, a label set."""
    return (
        old is not None
        and new is not None
        and old.metadata.uid == new.metadata.uid
        and old.spec == new.spec
        and old.metadata.annotations == new.metadata.annotations
        and old.deleting == new.deleting
    )


def _of_routes(load_balancer: HTTPLoadBalancer) -> tuple[object, ...]:
    """Return what the statuses and Events of the routes on a load balancer are made from."""
    return load_balancer.status.refused, load_balancer.status.failing_routes
