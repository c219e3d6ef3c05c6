"""HTTPLoadBalancer as an intent: one L7 load balancer, asked for on behalf of an Ingress class or a Gateway."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.hub.intents.http.certificates import Certificates
from fairlead.hub.intents.http.objects import HTTPObjects, load_balancer_of
from fairlead.hub.intents.http.status import HTTPStatus
from fairlead.hub.intents.http.view import HTTPViews
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_intent import MemberIntent
from fairlead.model.in_words import listed
from fairlead.translate.generated import is_domain_certificate
from fairlead.translate.http import translate_http
from fairlead.translate.view import HTTPView, Translation


class HTTPIntent(MemberIntent[HTTPView]):
    """HTTPLoadBalancers."""

    def __init__(self, context: IntentContext) -> None:
        self._http_objects = HTTPObjects(context.cluster, context.inventory)
        self._certificates = Certificates(context.cluster, changed=self._certificates_changed)
        rules = HTTPStatus(
            objects=self._http_objects, cluster=context.cluster, events=context.events, resource=HTTP_LOAD_BALANCERS
        )
        super().__init__(context, views=HTTPViews(context, self._http_objects, self._certificates), rules=rules)

    def watch(self) -> None:
        """Subscribe to routes, slices and Tenants."""
        self._http_objects.watch()
        self._http_objects.routes.on_change(self._route_counted)
        self.objects.cache.on_change(self._certificates_unused)
        self._inventory.managed.on_change(self._managed_gone)

    def translate(self, view: HTTPView) -> Translation:
        """Return what ``view`` comes to."""
        return translate_http(view)

    def tasks(self) -> Sequence[Coroutine[None, None, None]]:
        """Return the reader of certificates."""
        return (self._certificates.run(),)

    async def wait_read(self, timeout_s: float) -> bool:
        """Return once the certificates that are named have been read; False when none are."""
        return await self._certificates.wait_read(timeout_s)

    def unread(self, view: HTTPView) -> str:
        """Return the first of the missing certificates and why it could not be read; empty when one is known bad."""
        unread = self._certificates.unread(view.key.namespace, view.missing_certificates)
        if not unread or len(unread) < len(view.missing_certificates):
            return ""
        name, why = min(unread.items())
        return f"certificate {name}: {why}{f', and {len(unread) - 1} more' if len(unread) > 1 else ''}"

    def _route_counted(self, old: LoadBalancerRoute | None, new: LoadBalancerRoute | None) -> None:
        """Compare the status with its routes: their number, and which of them fail, may be all that changes there."""
        if old is None or new is None or old.deleting != new.deleting or old.spec != new.spec:
            for key in {load_balancer_of(each) for each in (old, new) if each is not None}:
                self.status.refresh(key)

    def _certificates_changed(self, changed: frozenset[tuple[str, str]]) -> None:
        for namespace in sorted({namespace for namespace, _ in changed}):
            for obj in self.objects.cache.by_index("namespace", namespace):
                names = sorted(name for name in _certificates_of(obj) if (namespace, name) in changed)
                names += [name for space, name in changed if space == namespace and is_domain_certificate(name)]
                if names:
                    self._inventory.wake([self.objects.key(obj)], f"certificate {listed(names, 1)} changed")

    def _certificates_unused(self, old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> None:
        """Drop what no load balancer of the namespace names any more."""
        left = _certificates_of(old) - _certificates_of(new) if old is not None else frozenset[str]()
        if old is None or not left:
            return
        namespace = old.metadata.namespace
        others = self.objects.cache.by_index("namespace", namespace)
        self._certificates.forget(namespace, left.difference(*(_certificates_of(each) for each in others)))

    def _managed_gone(self, old: ManagedCertificate | None, new: ManagedCertificate | None) -> None:
        if new is None and old is not None and is_domain_certificate(old.metadata.name):
            self._certificates.forget(old.metadata.namespace, (old.metadata.name,))


def _certificates_of(obj: HTTPLoadBalancer | None) -> frozenset[str]:
    """Return the certificates that a load balancer names, or named when it was last accepted."""
    if obj is None:
        return frozenset()
    specs = (obj.spec, obj.status.accepted or obj.spec)
    return frozenset(each.name for spec in specs for each in spec.certificates)
