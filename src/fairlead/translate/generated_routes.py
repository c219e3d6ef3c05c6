"""The listeners and routes of generated names.

    Ingress                     over HTTP at listeners of no host; over HTTPS at 443
    Gateway                     at its ports of HTTP and of HTTPS, with the routes that it has there
    Gateway without HTTPS       over HTTPS at 443 too, with the routes of its first port of HTTP

HTTPS is there as soon as there is a certificate for the star of the domain. A port where clients must show a
certificate of their own stays as it is: the name would be a way around that. In: the listeners and routes of a load
balancer. Out: those with the additions for generated names. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairlead.api.httploadbalancer import LoadBalancerRoute
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.http import Attachment, L7Listener
from fairlead.translate.generated import generated_host

_GENERATED_LISTENER = "generated"
_FORMER_LISTENER = "former"
_HTTPS_PORT = 443
_ROUTES_OF_GATEWAYS = frozenset({"HTTP", "GRPC"})


class Generated(msgspec.Struct, frozen=True):
    """The listeners of a load balancer with those of generated names.

    ``takes`` maps the name of a listener to those that take its routes under their generated names.
    """

    listeners: tuple[L7Listener, ...]
    takes: Mapping[str, tuple[str, ...]] = {}


def with_generated_names(
    domains: Sequence[str],
    origin: Origin,
    listeners: Sequence[L7Listener],
    routes: Sequence[LoadBalancerRoute],
    certificates: Mapping[str, str],
) -> tuple[tuple[L7Listener, ...], tuple[LoadBalancerRoute, ...]]:
    """Return listeners and routes with what the names in each of ``domains`` need, the present one first.

    ``certificates`` are those of the domains that have one. Names in former domains are served with those in the
    present one, at listeners of their own, so that none of the present one is changed when they go.
    """
    opened, served = tuple(listeners), tuple(routes)
    for number, domain in enumerate(domains):
        made_as = f"{_FORMER_LISTENER}/{domain}" if number else _GENERATED_LISTENER
        generated = with_generated_listeners(domain, origin, listeners, certificates.get(domain, ""), made_as=made_as)
        # A port may have thousands of listeners: those that were given are not compared again.
        there = set(opened)
        opened += tuple(each for each in generated.listeners[len(listeners) :] if each not in there)
        served = with_generated_routes(domain, origin, generated, served)
    return opened, served


def with_generated_listeners(
    domain: str,
    origin: Origin,
    listeners: Sequence[L7Listener],
    certificate: str,
    *,
    made_as: str = _GENERATED_LISTENER,
) -> Generated:
    """Return ``listeners`` and those that generated names need; ``certificate``: that of ``domain``, empty for none.

    The names of those that are made begin with ``made_as``.
    """
    if not domain:
        return Generated(tuple(listeners))
    if origin.kind != "Gateway":
        return _of_ingresses(domain, listeners, certificate if origin.kind == "IngressClass" else "", made_as)
    host = generated_host(domain, origin)
    return _of_gateway(host, listeners, certificate, made_as) if host else Generated(tuple(listeners))


def with_generated_routes(
    domain: str, origin: Origin, generated: Generated, routes: Sequence[LoadBalancerRoute]
) -> tuple[LoadBalancerRoute, ...]:
    """Return ``routes`` so that requests to generated names meet the rules of their objects."""
    if not domain:
        return tuple(routes)
    ports = {each.name: each.port for each in generated.listeners}
    of_gateway = generated_host(domain, origin) if origin.kind == "Gateway" else ""
    changed: list[LoadBalancerRoute] = []
    for route in routes:
        host = of_gateway if route.spec.kind in _ROUTES_OF_GATEWAYS else ""
        if not of_gateway and route.spec.origin.kind == "Ingress":
            host = generated_host(domain, route.spec.origin)
        if host:
            attachments = route.spec.attachments
            taken_by = {name for each in attachments for name in generated.takes.get(each.listener, ())}
            attachments = (*attachments, *_at(host, sorted(taken_by, key=lambda name: (ports[name], name))))
            spec = msgspec.structs.replace(route.spec, attachments=attachments)
            changed.append(msgspec.structs.replace(route, spec=spec))
        else:
            changed.append(route)
    return tuple(changed)


def _of_ingresses(domain: str, listeners: Sequence[L7Listener], certificate: str, made_as: str) -> Generated:
    """Serve the names of Ingresses at the listeners of their hosts, and over HTTPS at one listener for all of them."""
    open_to_all = [each.name for each in listeners if each.protocol == "HTTP" and not each.hostname]
    secure = _secure(f"*.{domain}", _HTTPS_PORT, listeners, certificate, made_as)
    names = tuple(each.name for each in secure)
    return _generated(listeners, secure, {name: (name, *names) for name in open_to_all})


def _of_gateway(host: str, listeners: Sequence[L7Listener], certificate: str, made_as: str) -> Generated:
    """Add a listener at each port, since a listener with a hostname does not accept another name."""
    http = sorted({each.port for each in listeners if each.protocol == "HTTP"})
    https = sorted({each.port for each in listeners if each.protocol == "HTTPS"})
    at_port = {port: (L7Listener(f"{made_as}/{port}", port, hostname=host),) for port in http}
    at_port |= {port: _secure(host, port, listeners, certificate, made_as) for port in https}
    if http and not https:
        at_port[http[0]] += _secure(host, _HTTPS_PORT, listeners, certificate, made_as)
    takes = {
        each.name: tuple(made.name for made in at_port.get(each.port, ()))
        for each in listeners
        if each.protocol in ("HTTP", "HTTPS")
    }
    return _generated(listeners, [made for port in sorted(at_port) for made in at_port[port]], takes)


def _secure(
    host: str, port: int, listeners: Sequence[L7Listener], certificate: str, made_as: str
) -> tuple[L7Listener, ...]:
    """Return the HTTPS listener for ``host``: an existing one, else a new one; none without a certificate."""
    if not certificate:
        return ()
    at_port = [each for each in listeners if each.port == port and each.protocol != "UDP"]
    if there := tuple(each for each in at_port if each.protocol == "HTTPS" and each.hostname == host):
        return there
    if any(each.protocol not in ("HTTPS", "TLS") or each.client_validation is not None for each in at_port):
        return ()
    name = f"{made_as}/{port}"
    return (L7Listener(name, port, "HTTPS", hostname=host, certificates=(certificate,)),)


def _generated(
    listeners: Sequence[L7Listener], made: Iterable[L7Listener], takes: Mapping[str, tuple[str, ...]]
) -> Generated:
    there = set(listeners)
    return Generated((*listeners, *(each for each in made if each not in there)), takes)


def _at(host: str, listeners: Iterable[str]) -> Iterable[Attachment]:
    return (Attachment(each, (host,)) for each in listeners)
