"""The view of one HTTPLoadBalancer: what every kind has (``member_views``), its routes, endpoints and certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.api.httploadbalancer import HTTPLoadBalancer, HTTPLoadBalancerSpec
from fairlead.hub.intents.http.certificates import Certificates
from fairlead.hub.intents.http.objects import HTTPObjects
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.member_views import MemberViews
from fairlead.model.condition import Condition
from fairlead.model.keys import ListenerKey
from fairlead.translate.challenges import with_challenge_listeners
from fairlead.translate.generated_routes import with_generated_names
from fairlead.translate.http import ports_of
from fairlead.translate.validate_http import validate_http
from fairlead.translate.view import HTTPView


class HTTPViews(MemberViews[HTTPLoadBalancer, HTTPView]):
    """Gathers the views of HTTPLoadBalancers."""

    def __init__(self, context: IntentContext, objects: HTTPObjects, certificates: Certificates) -> None:
        super().__init__(context, objects)
        self._http_objects = objects
        self._certificates = certificates
        self._managed = objects.managed

    def make(self, obj: HTTPLoadBalancer, common: Mapping[str, Any]) -> HTTPView:
        """Return the view of ``obj`` with its routes, and the slices of the Services that they name."""
        key, namespace = common["key"], obj.metadata.namespace
        routes = self._http_objects.routes_of(key)
        services = {backend.service for route in routes for backend in route.spec.backends if backend.service}
        named = {each.name: each for each in (*(obj.status.accepted or obj.spec).certificates, *obj.spec.certificates)}
        references = [self._managed.newest(namespace, each) for each in named.values()]
        of_domains = self._managed.of_domains(namespace, common["tenant"], common["load_balancer_class"])
        certificates, missing = self._certificates.get(namespace, [*references, *of_domains.values()])
        for each in of_domains.values():
            missing.pop(each.name, None)  # no user has asked for it
        fields: dict[str, Any] = {**common}
        if unreadable := self._http_objects.unreadable_routes(namespace):
            fields["stale"] = common["stale"] or unreadable
            fields["unreadable"] = f"{unreadable}; it is not served until it is corrected, all others are"
        return HTTPView(
            load_balancer=obj,
            routes=routes,
            slices={service: self.inventory.backend_slices_of(namespace, service) for service in services},
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
        """Return the ports that challenges and generated names need beside those of the spec."""
        spec = view.load_balancer.spec
        own = set(self.listeners(spec))
        listeners, _ = with_generated_names(view.domains, spec.origin, spec.listeners, (), view.domain_certificates)
        opened = ports_of(with_challenge_listeners(listeners, view.answers))
        return [port.key for port in opened if port.key not in own]

    def refusal(self, view: HTTPView) -> Condition | None:
        """Return why the present spec cannot be served, None when it can."""
        return validate_http(view, view.load_balancer.spec)
