"""The names that the hub generates for objects, with their listeners, routes and certificate.

    Ingress, plain     <name>-<namespace>.<domain>                 neither part has a hyphen or a dot, and both fit
    Gateway, plain     <name>-<namespace>-gw.<domain>              the same
    Service, plain     <name>-<namespace>-svc.<domain>             the same
    any other          <name>-<namespace>-<12 hex digits>.<domain> cut to 63 characters; the digits are a digest

The name depends only on the object's kind, namespace and name: other objects never change it, and a recreated object
has the same name. All names of a domain share one wildcard certificate. Their listeners:

    Ingress                     over HTTP at listeners without a host; over HTTPS at 443
    Gateway                     at its ports of HTTP and of HTTPS, with the routes that it has there
    Gateway without HTTPS       over HTTPS at 443 too, with the routes of its first port of HTTP

HTTPS is served once the wildcard certificate exists. A port that requires client certificates is unchanged, because the
generated name would bypass them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from fairlead.api.hostname import MAX_LABEL, MAX_NAME, host_problem
from fairlead.api.httploadbalancer import LoadBalancerRoute
from fairlead.api.names import short_hash
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.tenant import Tenant
from fairlead.model.http import Attachment, FixedAnswer, L7Listener

_SUFFIXES = {"Ingress": "", "Gateway": "-gw", "Service": "-svc"}
_PLAIN = re.compile(r"[a-z0-9]+")
_DIGEST_BYTES = 6
_CERTIFICATE_BYTES = 10
_DIGEST = re.compile(r"[0-9a-f]{12}")
_CERTIFICATE = "domain."
#: A domain leaves room for one label and its dot.
MAX_DOMAIN = MAX_NAME - MAX_LABEL - 1


def domain_problem(domain: str) -> str:
    """Return why names cannot be generated in ``domain``; empty if they can."""
    problem = host_problem(domain)
    if not problem and len(domain) > MAX_DOMAIN:
        return f"has {len(domain)} characters; use at most {MAX_DOMAIN}, to leave room for the names in it"
    return problem


def member_domain(tenant: Tenant, hub_domain: str) -> str:
    """Return the domain of a member's generated names; empty for none."""
    wanted = tenant.spec.domain or (f"{tenant.metadata.name}.{hub_domain}" if hub_domain else "")
    return wanted if wanted and not domain_problem(wanted) else ""


def generated_host(domain: str, origin: Origin) -> str:
    """Return the name of an object in its member's ``domain``; empty without a domain, and for other kinds."""
    suffix = _SUFFIXES.get(origin.kind)
    if not domain or suffix is None or not origin.name:
        return ""
    label = f"{origin.name}-{origin.namespace}{suffix}"
    if not (_is_plain(origin) and len(label) <= MAX_LABEL):
        digest = short_hash(origin.kind, origin.namespace, origin.name, size_bytes=_DIGEST_BYTES)
        # Two consecutive hyphens are avoided at the third and fourth position, where xn-- and similar prefixes have
        # them.
        head = re.sub("[-.]+", "-", f"{origin.name}-{origin.namespace}")
        label = f"{head[: MAX_LABEL - len(digest) - 1].rstrip('-')}-{digest}"
    return f"{label}.{domain}"


def _is_plain(origin: Origin) -> bool:
    """Return whether the plain form identifies name and namespace, and cannot be the digest form of another object."""
    parts = (origin.name, origin.namespace)
    return all(map(_PLAIN.fullmatch, parts)) and not _DIGEST.fullmatch(origin.namespace)


def domain_certificate(domain: str, issuer: str) -> str:
    """Name the certificate for the names in ``domain``, empty without a domain or an issuer."""
    return f"{_CERTIFICATE}{short_hash(issuer, domain, size_bytes=_CERTIFICATE_BYTES)}" if domain and issuer else ""


def is_domain_certificate(name: str) -> bool:
    """Return whether a certificate is for the names in a domain."""
    return name.startswith(_CERTIFICATE)


#: The port, and the path before the token, at which an authority looks (RFC 8555, section 8.3).
CHALLENGE_PORT = 80
CHALLENGE_PATH = "/.well-known/acme-challenge/"
_PREFIX = "acme-challenge/"


def with_challenge_listeners(listeners: Sequence[L7Listener], answers: Iterable[FixedAnswer]) -> tuple[L7Listener, ...]:
    """Return ``listeners`` with the additional ones that ``answers`` need."""
    at_port = [listener for listener in listeners if listener.port == CHALLENGE_PORT and listener.protocol != "UDP"]
    if any(listener.protocol != "HTTP" for listener in at_port):
        return tuple(listeners)
    missing = {
        answer.hostname for answer in answers if not any(covers(there.hostname, answer.hostname) for there in at_port)
    }
    added = (L7Listener(f"{_PREFIX}{host}", CHALLENGE_PORT, hostname=host) for host in sorted(missing))
    return (*listeners, *added)


def covers(pattern: str, host: str) -> bool:
    """Return whether a listener's hostname covers a name; a wildcard matches one or more labels, empty matches all."""
    pattern, host = pattern.lower(), host.lower()
    if not pattern or pattern == host:
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and len(host) > len(pattern) - 1


_GENERATED_LISTENER = "generated"
_FORMER_LISTENER = "former"
_HTTPS_PORT = 443
_ROUTES_OF_GATEWAYS = frozenset({"HTTP", "GRPC"})


class Generated(msgspec.Struct, frozen=True):
    """The listeners of a load balancer with those of generated names.

    ``takes`` maps a listener to the listeners that serve its routes under generated names.
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
    """Return listeners and routes with those for the names in each of ``domains``, the present domain first.

    ``certificates`` are the certificates by domain. Names in former domains have listeners of their own, so that their
    removal does not change those of the present domain.
    """
    opened, served = tuple(listeners), tuple(routes)
    for number, domain in enumerate(domains):
        made_as = f"{_FORMER_LISTENER}/{domain}" if number else _GENERATED_LISTENER
        generated = with_generated_listeners(domain, origin, listeners, certificates.get(domain, ""), made_as=made_as)
        # A port may have thousands of listeners, so the given ones are not compared again.
        there = set(opened)
        opened += tuple(listener for listener in generated.listeners[len(listeners) :] if listener not in there)
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
    """Return ``listeners`` with those for generated names; ``certificate``: of ``domain``, empty for none.

    The names of new listeners begin with ``made_as``.
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
    """Return ``routes`` extended so that requests to generated names match the rules of their objects."""
    if not domain:
        return tuple(routes)
    ports = {listener.name: listener.port for listener in generated.listeners}
    of_gateway = generated_host(domain, origin) if origin.kind == "Gateway" else ""
    changed: list[LoadBalancerRoute] = []
    for route in routes:
        host = of_gateway if route.spec.kind in _ROUTES_OF_GATEWAYS else ""
        if not of_gateway and route.spec.origin.kind == "Ingress":
            host = generated_host(domain, route.spec.origin)
        if host:
            attachments = route.spec.attachments
            taken_by = {name for attachment in attachments for name in generated.takes.get(attachment.listener, ())}
            attachments = (*attachments, *_at(host, sorted(taken_by, key=lambda name: (ports[name], name))))
            spec = replace(route.spec, attachments=attachments)
            changed.append(replace(route, spec=spec))
        else:
            changed.append(route)
    return tuple(changed)


def _of_ingresses(domain: str, listeners: Sequence[L7Listener], certificate: str, made_as: str) -> Generated:
    """Serve the names of Ingresses at the listeners of their hosts, and over HTTPS at one listener for all of them."""
    open_to_all = [listener.name for listener in listeners if listener.protocol == "HTTP" and not listener.hostname]
    secure = _secure(f"*.{domain}", _HTTPS_PORT, listeners, certificate, made_as)
    names = tuple(listener.name for listener in secure)
    return _generated(listeners, secure, {name: (name, *names) for name in open_to_all})


def _of_gateway(host: str, listeners: Sequence[L7Listener], certificate: str, made_as: str) -> Generated:
    """Add a listener at each port, because a listener with a hostname does not accept another name."""
    http = sorted({listener.port for listener in listeners if listener.protocol == "HTTP"})
    https = sorted({listener.port for listener in listeners if listener.protocol == "HTTPS"})
    at_port = {port: (L7Listener(f"{made_as}/{port}", port, hostname=host),) for port in http}
    at_port |= {port: _secure(host, port, listeners, certificate, made_as) for port in https}
    if http and not https:
        at_port[http[0]] += _secure(host, _HTTPS_PORT, listeners, certificate, made_as)
    takes = {
        listener.name: tuple(made.name for made in at_port.get(listener.port, ()))
        for listener in listeners
        if listener.protocol in ("HTTP", "HTTPS")
    }
    return _generated(listeners, [made for port in sorted(at_port) for made in at_port[port]], takes)


def _secure(
    host: str, port: int, listeners: Sequence[L7Listener], certificate: str, made_as: str
) -> tuple[L7Listener, ...]:
    """Return the HTTPS listener for ``host``: an existing one, else a new one; none without a certificate."""
    if not certificate:
        return ()
    at_port = [listener for listener in listeners if listener.port == port and listener.protocol != "UDP"]
    if there := tuple(listener for listener in at_port if listener.protocol == "HTTPS" and listener.hostname == host):
        return there
    if any(listener.protocol not in ("HTTPS", "TLS") or listener.client_validation is not None for listener in at_port):
        return ()
    name = f"{made_as}/{port}"
    return (L7Listener(name, port, "HTTPS", hostname=host, certificates=(certificate,)),)


def _generated(
    listeners: Sequence[L7Listener], made: Iterable[L7Listener], takes: Mapping[str, tuple[str, ...]]
) -> Generated:
    there = set(listeners)
    return Generated((*listeners, *(listener for listener in made if listener not in there)), takes)


def _at(host: str, listeners: Iterable[str]) -> Iterable[Attachment]:
    return (Attachment(listener, (host,)) for listener in listeners)
