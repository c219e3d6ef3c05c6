"""Enqueues the keys of Ingresses that a change concerns: of themselves, or of what they name.

In: changes of the caches of both sides. Out: keys in queues; what to do about a key is read from the caches later.
"""

from __future__ import annotations

from fairlead.agent.l7.identity import Origin, key_of
from fairlead.agent.l7.ingress_exporter import CLASS, INGRESS, IngressExporter
from fairlead.agent.l7.requests import is_as_far, wants_another
from fairlead.agent.l7.service_copies import is_chosen_by_user, original_of
from fairlead.agent.l7.shared import SECRET, SERVICE
from fairlead.agent.l7.sources import BY_SECRET, BY_SERVICE, L7Sources, secrets_named, services_named
from fairlead.agent.sources import Sources
from fairlead.api.httploadbalancer import HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.kubernetes import EndpointSlice, IngressClass, IngressObject, Secret, Service
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.names import LABEL_SERVICE_NAME
from fairlead.runtime.queue import KeyedQueue

#: Kinds of keys that have no status to be written.
EXPORTED_ONLY = frozenset({CLASS, SERVICE, SECRET})


class IngressChanges:
    """Connects caches to queues; made once, before the caches run."""

    def __init__(
        self,
        *,
        sources: Sources,
        l7: L7Sources,
        exporter: IngressExporter,
        exports: KeyedQueue[Origin],
        feedbacks: KeyedQueue[Origin],
    ) -> None:
        self._services = sources.services
        self._departed = sources.departed
        self._l7 = l7
        self._exporter = exporter
        self._exports = exports
        self._feedbacks = feedbacks
        l7.ingress_classes.on_change(self._ingress_class)
        l7.ingresses.on_change(self._ingress)
        l7.secrets.on_change(self._secret)
        l7.load_balancers.on_change(self._load_balancer)
        l7.routes.on_change(self._route)
        l7.managed.on_change(self._managed)
        sources.services.on_change(self._service)
        sources.slices.on_change(self._slice)
        sources.classes.on_change(self._class_of_hub)

    def replan(self) -> None:
        """Have the load balancers of all classes computed anew."""
        self._exporter.replan()

    def keys(self) -> list[Origin]:
        """Return the keys of what exists in the member."""
        return [
            *((CLASS, "", each.metadata.name) for each in self._l7.ingress_classes.values()),
            *(key_of(INGRESS, each) for each in self._l7.ingresses.values()),
        ]

    def enqueue_all(self) -> None:
        """Enqueue what exists in the member."""
        self._exporter.replan()
        self._enqueue_classes()
        for each in self._l7.ingresses.values():
            self._ingress(None, each)

    def _ingress_class(self, old: IngressClass | None, new: IngressClass | None) -> None:
        self._exporter.replan()
        for each in filter(None, (old, new)):
            self._exports.add((CLASS, "", each.metadata.name))
        for ingress in self._l7.ingresses.values():
            self._enqueue_ingress(ingress)

    def _ingress(self, old: IngressObject | None, new: IngressObject | None) -> None:
        if old is None or new is None or _in_class_plan(old) != _in_class_plan(new):
            self._exporter.replan()
            self._enqueue_classes()
        for each in filter(None, (old, new)):
            self._enqueue_ingress(each)
            for namespace, name in services_named(each):
                self._exports.add((SERVICE, namespace, name))
            for namespace, name in secrets_named(each):
                self._exports.add((SECRET, namespace, name))

    def _secret(self, old: Secret | None, new: Secret | None) -> None:
        if (changed := new or old) is not None:
            self.secret_changed(changed.key)

    def secret_changed(self, key: tuple[str, str]) -> None:
        """Enqueue what depends on a Secret."""
        ingresses = self._l7.ingresses.by_index(BY_SECRET, key)
        if not ingresses:
            return
        self._exporter.replan()
        self._exports.add((SECRET, *key))
        for ingress in ingresses:
            self._enqueue_ingress(ingress)
        self._enqueue_classes()

    def _managed(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        if old is not None and new is not None and is_as_far(old, new):
            return
        self._exporter.replan()
        self._enqueue_classes()
        for each in self._l7.ingresses.values():
            if each.spec.tls:
                self._enqueue_ingress(each)

    def _service(self, old: Service | None, new: Service | None) -> None:
        changed = new or old
        if changed is None:
            return
        # A copy that was changed or deleted by others is made anew on behalf of the Ingresses that need it.
        for ingress in self._l7.ingresses.by_index(BY_SERVICE, original_of(changed) or changed.key):
            self._enqueue_ingress(ingress)

    def _slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for key in self._departed.waiting_for(new) if new is not None else ():
            self._exports.add((SERVICE, *key))
        for each in filter(None, (old, new)):
            service = (each.metadata.namespace, each.label(LABEL_SERVICE_NAME))
            users = self._l7.ingresses.by_index(BY_SERVICE, service) if service[1] else ()
            if users:
                self._exports.add((SERVICE, *service))
            if users and is_chosen_by_user(self._services.get(*service)):
                # It can be a backend or not, as it has endpoints.
                for ingress in users:
                    self._exports.add(key_of(INGRESS, ingress))

    def _load_balancer(self, old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> None:
        changed = new or old
        if changed is None or changed.spec.origin.kind != CLASS:
            return
        if old is None or new is None or old.status != new.status:
            for ingress in self._l7.ingresses.values():
                self._feedbacks.add(key_of(INGRESS, ingress))

    def _route(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        changed = new or old
        origin = None if changed is None else changed.spec.origin
        if origin is not None and origin.kind == INGRESS and (old is None or new is None or old.status != new.status):
            self._feedbacks.add((INGRESS, origin.namespace, origin.name))

    def _class_of_hub(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if old is None or new is None or wants_another(old, new):
            self._ingress_class(None, None)
            self._enqueue_classes()

    def _enqueue_classes(self) -> None:
        for each in self._l7.ingress_classes.values():
            self._exports.add((CLASS, "", each.metadata.name))

    def _enqueue_ingress(self, ingress: IngressObject) -> None:
        self._exports.add(key_of(INGRESS, ingress))
        self._feedbacks.add(key_of(INGRESS, ingress))


def _in_class_plan(ingress: IngressObject) -> tuple[object, ...]:
    """Return the part of an Ingress that the load balancer of its class depends on."""
    spec = ingress.spec
    hosts = [rule.host for rule in spec.rules or ()] if spec.tls else []
    return (spec.ingress_class_name, spec.tls, hosts, ingress.deleting, ingress.metadata.annotations)
