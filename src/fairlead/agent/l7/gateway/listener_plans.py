"""The plan of one listener of a Gateway or ListenerSet.

    without usable certificate or authorities   among those of the load balancer, closed: connections end at once
    not accepted for another reason             not among them
    else                                        among them

A closed listener is kept so that the Gateway keeps its address while a Secret or ConfigMap is missing, and so that no
other listener gets the requests for its hostname. In: listeners in order of precedence, with why another excludes them.
Out: their plans, and what the load balancer needs for them. Pure.
"""

from __future__ import annotations

from fairlead.agent.l7.gateway.attachment import namespaces_allowed
from fairlead.agent.l7.gateway.conflicts import ConflictReason, Opening
from fairlead.agent.l7.gateway.judgements import ACCEPTED, CONFLICTED, PROGRAMMED, RESOLVED_REFS, bad, good
from fairlead.agent.l7.gateway.listener_tls import Certificates, authorities_of, certificates_of, merged
from fairlead.agent.l7.gateway.plan import Judgement, ListenerPlan, ParentKey
from fairlead.agent.l7.gateway.references import GRPC_ROUTE, HTTP_ROUTE, TCP_ROUTE, TLS_ROUTE, UDP_ROUTE
from fairlead.agent.l7.gateway.view import GatewayView, validation_at
from fairlead.agent.l7.requests import CertificateRequest
from fairlead.api.gateway import GATEWAY_GROUP, Listener, RouteGroupKind
from fairlead.api.httploadbalancer import CertificateRef
from fairlead.api.names import fit
from fairlead.api.selectors import BadSelector
from fairlead.model.http import ClientValidation, L7Listener, ListenerProtocol

#: What one object at the hub can hold.
MAX_LISTENERS = 1024
MAX_CERTIFICATES = 1023
MAX_AUTHORITIES_CHARS = 600_000
_KEY_LIMIT = 512
#: Where a listener is served that leaves the choice to us.
_DEFAULT_PORTS = {"HTTP": 80, "HTTPS": 443, "TLS": 443}
_PROTOCOLS: dict[str, ListenerProtocol] = {"HTTP": "HTTP", "HTTPS": "HTTPS", "TLS": "TLS", "TCP": "TCP", "UDP": "UDP"}
_CONFLICTS = {
    "HostnameConflict": "another listener has the same hostname on port {port}",
    "ProtocolConflict": "another listener opens port {port} for a protocol that cannot share it",
}


def opening_of(listener: Listener) -> Opening | None:
    """Return what a listener opens, None when its protocol or port cannot be served."""
    port = listener.port or _DEFAULT_PORTS.get(listener.protocol, 0)
    if listener.protocol not in PROTOCOLS or not port:
        return None
    return Opening(port, listener.protocol, "" if listener.protocol in {"TCP", "UDP"} else listener.hostname)


class ListenerPlanner:
    """Plans listener after listener, and gathers what their load balancer consists of."""

    def __init__(self, view: GatewayView, gateway: ParentKey) -> None:
        self._view = view
        self._gateway = gateway
        self._authorities_chars = 0
        self.listeners: list[L7Listener] = []
        self.certificates: dict[str, CertificateRef] = {}
        self.requests: dict[str, CertificateRequest] = {}

    def plan(self, parent: ParentKey, listener: Listener, conflict: ConflictReason | None) -> ListenerPlan:
        """Return the plan of one listener; ``conflict`` is why another one excludes it."""
        opening = opening_of(listener)
        kinds, bad_kinds = kinds_of(listener)
        namespaces, bad_namespaces = self._namespaces(parent, listener)
        validation, bad_authorities = self._authorities(opening)
        usable, bad_certificates, request = self._certificates(parent, listener)
        refusal = _refusal(listener, opening, conflict) or bad_namespaces or self._too_many()
        served = refusal is None and opening is not None
        if served:
            self.requests |= {each.name: each for each in request}
        if refusal is None and bad_authorities is not None and validation is None:
            refusal = bad(ACCEPTED, "NoValidCACertificate", bad_authorities.message)
            usable = ()
        key = listener.name if parent == self._gateway else _set_key(parent, listener)
        passthrough = _passes_through(listener)
        if served and opening is not None:
            self._add(
                L7Listener(
                    name=key,
                    port=opening.port,
                    protocol=_PROTOCOLS[opening.protocol],
                    hostname=opening.hostname.lower(),
                    passthrough=passthrough,
                    certificates=tuple(each.name for each in usable),
                    client_validation=validation,
                ),
                usable,
            )
        closed = _terminates(listener) and not usable
        problem = merged([each for each in (bad_certificates, bad_authorities, bad_kinds) if each is not None])
        judgements = [refusal or good(ACCEPTED), problem or good(RESOLVED_REFS)]
        if conflict is not None and refusal is not None:
            judgements.append(Judgement(CONFLICTED, "True", conflict, refusal.message))
        if refusal is not None or closed:
            reason = conflict if conflict is not None and refusal is not None else "Invalid"
            because = refusal or bad_certificates
            judgements.append(bad(PROGRAMMED, reason, because.message if because is not None else ""))
        return ListenerPlan(
            parent=parent,
            name=listener.name,
            key=key,
            port=opening.port if opening is not None else listener.port,
            protocol=listener.protocol,
            hostname=opening.hostname.lower() if opening is not None else listener.hostname,
            passthrough=passthrough,
            namespaces=namespaces,
            kinds=kinds,
            judgements=tuple(judgements),
            served=served,
        )

    def _namespaces(self, parent: ParentKey, listener: Listener) -> tuple[frozenset[str] | None, Judgement | None]:
        allowed = listener.allowed_routes.namespaces if listener.allowed_routes is not None else None
        try:
            return (
                namespaces_allowed(allowed, default="Same", own=parent.namespace, namespaces=self._view.namespaces),
                None,
            )
        except BadSelector as error:
            return frozenset(), bad(ACCEPTED, "UnsupportedValue", f"allowedRoutes: {error}")

    def _authorities(self, opening: Opening | None) -> tuple[ClientValidation | None, Judgement | None]:
        if opening is None or opening.protocol != "HTTPS":
            return None, None
        requested = validation_at(self._view.gateway, opening.port)
        if requested is None:
            return None, None
        validation, problem = authorities_of(requested, gateway=self._gateway, view=self._view)
        if validation is not None and len(validation.ca_bundle) + self._authorities_chars > MAX_AUTHORITIES_CHARS:
            message = f"the authorities for clients of all listeners have {MAX_AUTHORITIES_CHARS} characters at most"
            return None, bad(RESOLVED_REFS, "InvalidCACertificateRef", message)
        return validation, problem

    def _certificates(self, parent: ParentKey, listener: Listener) -> Certificates:
        if not _terminates(listener):
            return Certificates((), None)
        certificates = certificates_of(listener, parent=parent, view=self._view)
        usable = certificates.usable
        kept = tuple(each for each in usable if each.name in self.certificates)
        if len(usable) - len(kept) + len(self.certificates) <= MAX_CERTIFICATES:
            return certificates
        message = f"tls.certificateRefs: a Gateway has {MAX_CERTIFICATES} certificates at most"
        return Certificates(kept, bad(RESOLVED_REFS, "InvalidCertificateRef", message))

    def _too_many(self) -> Judgement | None:
        if len(self.listeners) < MAX_LISTENERS:
            return None
        message = f"a Gateway has {MAX_LISTENERS} listeners at most, those of its ListenerSets included"
        return bad(ACCEPTED, "TooManyListeners", message)

    def _add(self, listener: L7Listener, certificates: tuple[CertificateRef, ...]) -> None:
        self.listeners.append(listener)
        self.certificates |= {each.name: each for each in certificates}
        if listener.client_validation is not None:
            self._authorities_chars += len(listener.client_validation.ca_bundle)


def _refusal(listener: Listener, opening: Opening | None, conflict: ConflictReason | None) -> Judgement | None:
    if listener.protocol not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        return bad(ACCEPTED, "UnsupportedProtocol", f"protocol {listener.protocol} is not served; use {known}")
    if opening is None:
        return bad(ACCEPTED, "UnsupportedValue", f"a {listener.protocol} listener needs a port")
    if conflict is not None:
        return bad(ACCEPTED, conflict, _CONFLICTS[conflict].format(port=opening.port))
    mode = listener.tls.mode if listener.tls is not None else ""
    known_mode = mode in {"", "Terminate"} or (mode == "Passthrough" and listener.protocol == "TLS")
    if listener.protocol in {"HTTPS", "TLS"} and not known_mode:
        return bad(ACCEPTED, "UnsupportedValue", f"tls.mode {mode} is not served with protocol {listener.protocol}")
    return None


def _set_key(parent: ParentKey, listener: Listener) -> str:
    # A name of the Gateway's own has no slash.
    return fit(f"{parent.namespace}/{parent.name}/{listener.name}", limit=_KEY_LIMIT)


def _passes_through(listener: Listener) -> bool:
    return listener.protocol == "TLS" and listener.tls is not None and listener.tls.mode == "Passthrough"


def _terminates(listener: Listener) -> bool:
    return listener.protocol in {"HTTPS", "TLS"} and not _passes_through(listener)


_BY_PROTOCOL = {
    "HTTP": (HTTP_ROUTE, GRPC_ROUTE),
    "HTTPS": (HTTP_ROUTE, GRPC_ROUTE),
    "TLS": (TLS_ROUTE,),
    "TCP": (TCP_ROUTE,),
    "UDP": (UDP_ROUTE,),
}
PROTOCOLS = tuple(_BY_PROTOCOL)


def kinds_of(listener: Listener) -> tuple[tuple[RouteGroupKind, ...], Judgement | None]:
    """Return the kinds of routes that a listener takes; for a protocol that we do not serve, none."""
    supported = _BY_PROTOCOL.get(listener.protocol, ())
    requested = (listener.allowed_routes.kinds if listener.allowed_routes is not None else None) or ()
    if not requested:
        return tuple(_kind(*each) for each in supported), None
    named = [(GATEWAY_GROUP if each.group is None else each.group, each.kind) for each in requested]
    unknown = [kind for group, kind in named if (group, kind) not in supported]
    problem = None
    if unknown:
        takes = ", ".join(kind for _, kind in supported) or "none"
        message = (
            f"allowedRoutes.kinds: protocol {listener.protocol} does not take {', '.join(unknown)}; it takes {takes}"
        )
        problem = bad(RESOLVED_REFS, "InvalidRouteKinds", message)
    return tuple(_kind(*each) for each in dict.fromkeys(named) if each in supported), problem


def _kind(group: str, kind: str) -> RouteGroupKind:
    return RouteGroupKind(kind=kind, group=group)
