"""The next step for a request that no rule takes, and the rule that came nearest.

In: the configuration, the decision, and the request. Out: one sentence with a command or a change to make. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.api.near_names import near_names
from fairlead.cli.route_request import TypedRequest
from fairlead.model.http import L7Config
from fairlead.model.in_words import listed
from fairlead.providers.envoy.http.route_lookup import Decision, Passed

_MOST_NAMES = 5


def nearest_first(decision: Decision) -> Sequence[Passed]:
    """Return what was not met: in order of precedence, or when nothing takes it those first that hold the most."""
    if decision.rule is not None:
        return decision.passed
    return sorted(decision.passed, key=lambda each: -each.met)


def next_step(
    config: L7Config,
    decision: Decision,
    typed: TypedRequest,
    *,
    member: str,
    origin: str,
    services: Iterable[str],
) -> str:
    """Return what to do next; ``origin`` is the object whose rule met it, ``services`` those of its backends."""
    if not config.listeners:
        return "see what it waits for: fairlead status --problems"
    if decision.rule is not None:
        return _without_backend(decision, member=member, origin=origin, services=services)
    if decision.passed:
        return "change the request, or add a rule; the nearest ones are below"
    if decision.status == 421:
        return "send the host as the server name too, or have one listener serve both"
    ports = sorted({each.port for each in config.listeners})
    if typed.request.port not in ports:
        return f"it has the ports {', '.join(map(str, ports))}: add a listener, or ask one of these"
    if not decision.listener and not decision.status and not _speaks_both(config, typed):
        return f"use {'http' if typed.secure else 'https'}, or another port; it has {', '.join(map(str, ports))}"
    return _without_host(config, typed, member)


def _without_backend(decision: Decision, *, member: str, origin: str, services: Iterable[str]) -> str:
    kind, _, path = origin.partition(" ")
    namespace, _, name = path.partition("/")
    if decision.status:
        return f"its Events have the reason; in {member}: kubectl describe {kind.lower()} {name} -n {namespace}"
    named = sorted(filter(None, services))
    of = f" {named[0]}" if named else "s of the rule"
    return f"see why no endpoint of Service{of} is ready in {member}: kubectl get endpointslices -n {namespace}"


def _speaks_both(config: L7Config, typed: TypedRequest) -> bool:
    """Return whether the port speaks what the request does."""
    protocols = {each.protocol for each in config.listeners if each.port == typed.request.port}
    return bool(protocols & {"HTTPS", "TLS"}) == typed.secure


def _without_host(config: L7Config, typed: TypedRequest, member: str) -> str:
    known = _hosts(config, typed.request.port)
    host = typed.request.host.lower()
    near = near_names(host, known, most=_MOST_NAMES)
    add = f"add the host to an Ingress or a route in {member}"
    if typed.secure:
        add += ", with a certificate for it"
    if near:
        return f"{add}, or ask for the nearest: {', '.join(near)}"
    return f"{add}; it has {listed(known, _MOST_NAMES)}" if known else add


def _hosts(config: L7Config, port: int) -> list[str]:
    """Return the hostnames that routes have at the listeners of a port."""
    listeners = {each.name: each.hostname for each in config.listeners if each.port == port}
    hosts = {
        hostname
        for route in config.routes
        for attachment in route.attachments
        if attachment.listener in listeners
        for hostname in attachment.hostnames or (listeners[attachment.listener],)
    }
    return sorted(hosts - {""})
