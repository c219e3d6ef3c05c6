"""HTTPLoadBalancer as an intent: one L7 load balancer, asked for on behalf of an Ingress class or a Gateway."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any

import msgspec

from fairlead.api.httploadbalancer import (
    FAILING_LISTED,
    HTTP_LOAD_BALANCERS,
    FailingRoute,
    HTTPLoadBalancer,
    HTTPLoadBalancerSpec,
    HTTPLoadBalancerStatus,
    LoadBalancerRoute,
    RefusedPartStatus,
)
from fairlead.api.kubernetes import Ingress, PortStatus
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.meta import JSONMapping, JSONObject, WireCondition
from fairlead.hub.intents.conditions import ingress_of
from fairlead.hub.intents.http.certificates import TenantCertificates
from fairlead.hub.intents.http.objects import HTTPObjects, load_balancer_of
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_intent import MemberIntent, MemberViews
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.intents.target_counts import shown_targets
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.in_words import listed
from fairlead.model.keys import ListenerKey, LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.translate.generated import is_domain_certificate, with_challenge_listeners, with_generated_names
from fairlead.translate.http_backends import Translated
from fairlead.translate.member import decide_http, ports_of, recorded_http
from fairlead.translate.view import Decision, HTTPView


class HTTPIntent(MemberIntent[HTTPView]):
    """HTTPLoadBalancers."""

    def __init__(self, context: IntentContext) -> None:
        self._http_objects = HTTPObjects(context.cluster, context.inventory)
        #: The last translation of each load balancer, and that of its accepted version.
        self._translated: dict[LoadBalancerKey, Translated] = {}
        self._recorded: dict[LoadBalancerKey, Translated] = {}
        self._certificates = TenantCertificates(context.cluster, changed=self._certificates_changed)
        rules = HTTPStatus(objects=self._http_objects, events=context.events, resource=HTTP_LOAD_BALANCERS)
        super().__init__(context, views=HTTPViews(context, self._http_objects, self._certificates), rules=rules)

    def watch(self) -> None:
        """Subscribe to routes, slices and Tenants."""
        self._http_objects.watch()
        self._http_objects.routes.on_change(self._route_counted)
        self.objects.cache.on_change(self._certificates_unused)
        self._inventory.managed.on_change(self._managed_gone)

    def decide(self, view: HTTPView) -> Decision:
        """Return what is decided about ``view``."""
        return decide_http(view, self.allocation_of(view), self._translated.setdefault(view.key, Translated()))

    def recorded(self, view: HTTPView) -> Decision | None:
        """Return what is served as it is on record."""
        return recorded_http(view, self._recorded.setdefault(view.key, Translated()))

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop what is known of a load balancer that is not to exist (any more)."""
        super().forget(key)
        for known in (self._translated, self._recorded):
            known.pop(key, None)
        self._http_objects.forget(key)

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


class HTTPViews(MemberViews[HTTPLoadBalancer, HTTPView]):
    """Gathers the views of HTTPLoadBalancers."""

    def __init__(self, context: IntentContext, objects: HTTPObjects, certificates: TenantCertificates) -> None:
        super().__init__(context, objects)
        self._http_objects = objects
        self._certificates = certificates
        self._managed = objects.managed

    def make(self, obj: HTTPLoadBalancer, common: JSONMapping) -> HTTPView:
        """Return the view of ``obj`` with its routes, and the slices of the Services that they name."""
        key, namespace = common["key"], obj.metadata.namespace
        routes = self._http_objects.routes_of(key)
        named = {each.name: each for each in (*(obj.status.accepted or obj.spec).certificates, *obj.spec.certificates)}
        references = [self._managed.newest(namespace, each) for each in named.values()]
        of_domains = self._managed.of_domains(namespace, common["tenant"], common["load_balancer_class"])
        certificates, missing = self._certificates.get(namespace, [*references, *of_domains.values()])
        for each in of_domains.values():
            missing.pop(each.name, None)  # no user has asked for it
        fields: JSONObject = {**common}
        if unreadable := self._http_objects.unreadable_routes(namespace):
            fields["stale"] = common["stale"] or unreadable
            fields["unreadable"] = f"{unreadable}; it is not served until it is corrected, all others are"
        return HTTPView(
            load_balancer=obj,
            routes=routes,
            slices=self._http_objects.slices_of(key),
            certificates=certificates,
            missing_certificates=missing,
            domain_certificates={domain: each.name for domain, each in of_domains.items() if each.name in certificates},
            answers=self._managed.answers(namespace, obj.metadata.name),
            **fields,
        )

    def listeners(self, spec: HTTPLoadBalancerSpec) -> Sequence[ListenerKey]:
        """Return the distinct ports that ``spec`` opens."""
        return [listener.key for listener in ports_of(spec.listeners)]

    def listeners_beside(self, view: HTTPView) -> Sequence[ListenerKey]:
        """Return the ports that challenges and generated names need next to those of the spec."""
        spec = view.load_balancer.spec
        own = set(self.listeners(spec))
        listeners, _ = with_generated_names(view.domains, spec.origin, spec.listeners, (), view.domain_certificates)
        opened = ports_of(with_challenge_listeners(listeners, view.answers))
        return [port.key for port in opened if port.key not in own]


REFUSED_SHOWN = 50
_BACKENDS_SHOWN = 10
_READING = (ConditionType.RESOLVED_REFS, ConditionReason.PENDING)


class HTTPStatus(StatusRules[HTTPLoadBalancer, Decision]):
    """The rules for the status of HTTPLoadBalancers; the record (``accepted_status``) has its own field managers."""

    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names")

    def __init__(self, *, objects: HTTPObjects, **parts: Any) -> None:
        super().__init__(**parts)
        self._objects = objects

    def compose(
        self,
        obj: HTTPLoadBalancer,
        translation: Decision,
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
    observed: Observed | None, before: tuple[RefusedPartStatus, ...], conditions: Iterable[WireCondition] = ()
) -> tuple[RefusedPartStatus, ...]:
    """Return what the proxies do not serve, the first 50; ``before`` while that is not known.

    That is while the provider says nothing, and while a certificate is being read: its listener is not refused for it.
    """
    if observed is None or any((each.type, each.reason) == _READING for each in conditions):
        return before
    return tuple(RefusedPartStatus(part.kind, part.name, part.reason) for part in observed.refused[:REFUSED_SHOWN])


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
    return tuple(listed[:FAILING_LISTED])
