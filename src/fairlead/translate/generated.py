"""Which name does the hub make for an object, and which requests does that name answer?

    Ingress, plain     <name>-<namespace>.<domain>                 neither part has a hyphen or a dot, and both fit
    Gateway, plain     <name>-<namespace>-gw.<domain>              the same
    Service, plain     <name>-<namespace>-svc.<domain>             the same
    any other          <name>-<namespace>-<12 hex digits>.<domain> cut to 63 characters; the digits are a digest

The name follows from the object's own kind, namespace and name: what else there is never changes it, and the same
object made again has it again. Requests to it meet the rules of the object. In: names, the routes of a load balancer.
Out: names, the routes with attachments for them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from fairlead.api.hostnames import MAX_LABEL, MAX_NAME, host_problem
from fairlead.api.httploadbalancer import LoadBalancerRoute
from fairlead.api.naming import short_hash
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.tenant import Tenant
from fairlead.model.http import Attachment, L7Listener

_SUFFIXES = {"Ingress": "", "Gateway": "-gw", "Service": "-svc"}
_PLAIN = re.compile(r"[a-z0-9]+")
_DIGEST_BYTES = 6
_DIGEST = re.compile(r"[0-9a-f]{12}")
_GENERATED_LISTENER = "generated"
#: A domain leaves room for one label and its dot.
MAX_DOMAIN = MAX_NAME - MAX_LABEL - 1


def domain_problem(domain: str) -> str:
    """Return why names cannot be made in ``domain``, empty when they can."""
    problem = host_problem(domain)
    if not problem and len(domain) > MAX_DOMAIN:
        return f"it has {len(domain)} characters: {MAX_DOMAIN} leave room for the names in it"
    return problem


def member_domain(tenant: Tenant, hub_domain: str) -> str:
    """Return the domain that the names of a member are made in, empty for none."""
    wanted = tenant.spec.domain or (f"{tenant.metadata.name}.{hub_domain}" if hub_domain else "")
    return wanted if wanted and not domain_problem(wanted) else ""


def generated_host(domain: str, origin: Origin) -> str:
    """Return the name of an object in its member's ``domain``; empty without one, and for kinds that get none."""
    suffix = _SUFFIXES.get(origin.kind)
    if not domain or suffix is None or not origin.name:
        return ""
    label = f"{origin.name}-{origin.namespace}{suffix}"
    if not (_is_plain(origin) and len(label) <= MAX_LABEL):
        digest = short_hash(origin.kind, origin.namespace, origin.name, size_bytes=_DIGEST_BYTES)
        # Two hyphens in a row are kept from the third and fourth place, where xn-- and its like have them.
        head = re.sub("[-.]+", "-", f"{origin.name}-{origin.namespace}")
        label = f"{head[: MAX_LABEL - len(digest) - 1].rstrip('-')}-{digest}"
    return f"{label}.{domain}"


def _is_plain(origin: Origin) -> bool:
    """Say whether name and namespace can be read from their plain form, and it is no other object's digest."""
    parts = (origin.name, origin.namespace)
    return all(map(_PLAIN.fullmatch, parts)) and not _DIGEST.fullmatch(origin.namespace)


def with_generated_routes(
    domain: str, origin: Origin, listeners: Sequence[L7Listener], routes: Sequence[LoadBalancerRoute]
) -> tuple[tuple[L7Listener, ...], tuple[LoadBalancerRoute, ...]]:
    """Return ``listeners`` and ``routes`` so that requests to generated names meet the rules of their objects.

    An Ingress's name is served where its hosts are. A Gateway's has a listener of its own at each port with HTTP, which
    takes every route that the Gateway has there: a listener of one host would not take another name.
    """
    of_gateway = generated_host(domain, origin) if origin.kind == "Gateway" else ""
    ports = {each.name: each.port for each in listeners if each.protocol == "HTTP"}
    more = tuple(
        L7Listener(f"{_GENERATED_LISTENER}/{port}", port, hostname=of_gateway)
        for port in sorted(set(ports.values()) if of_gateway else ())
    )
    open_to_all = {each.name for each in listeners if each.protocol == "HTTP" and not each.hostname}
    if not domain:
        return tuple(listeners), tuple(routes)
    changed: list[LoadBalancerRoute] = []
    for route in routes:
        attachments = route.spec.attachments
        if of_gateway and route.spec.kind in ("HTTP", "GRPC"):
            taken = sorted({ports[each.listener] for each in attachments if each.listener in ports})
            attachments = (*attachments, *_at(of_gateway, (f"{_GENERATED_LISTENER}/{port}" for port in taken)))
        elif route.spec.origin.kind == "Ingress" and (host := generated_host(domain, route.spec.origin)):
            taken_by = sorted({each.listener for each in attachments} & open_to_all)
            attachments = (*attachments, *_at(host, taken_by))
        if attachments is not route.spec.attachments:
            route = msgspec.structs.replace(route, spec=msgspec.structs.replace(route.spec, attachments=attachments))  # noqa: PLW2901
        changed.append(route)
    return (*listeners, *more), tuple(changed)


def _at(host: str, listeners: Iterable[str]) -> Iterable[Attachment]:
    return (Attachment(each, (host,)) for each in listeners)
