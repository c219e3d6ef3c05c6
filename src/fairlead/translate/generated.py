"""The names that the hub generates for objects, and the certificate of such names.

    Ingress, plain     <name>-<namespace>.<domain>                 neither part has a hyphen or a dot, and both fit
    Gateway, plain     <name>-<namespace>-gw.<domain>              the same
    Service, plain     <name>-<namespace>-svc.<domain>             the same
    any other          <name>-<namespace>-<12 hex digits>.<domain> cut to 63 characters; the digits are a digest

The name follows from the object's own kind, namespace and name: what else there is never changes it, and the same
object made again has it again. All names of a domain have one certificate, for the star of it. In: kinds, namespaces
and names. Out: names. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fairlead.api.hostname import MAX_LABEL, MAX_NAME, host_problem
from fairlead.api.names import short_hash
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.tenant import Tenant
from fairlead.model.http import FixedAnswer, L7Listener

_SUFFIXES = {"Ingress": "", "Gateway": "-gw", "Service": "-svc"}
_PLAIN = re.compile(r"[a-z0-9]+")
_DIGEST_BYTES = 6
_CERTIFICATE_BYTES = 10
_DIGEST = re.compile(r"[0-9a-f]{12}")
_CERTIFICATE = "domain."
#: A domain leaves room for one label and its dot.
MAX_DOMAIN = MAX_NAME - MAX_LABEL - 1


def domain_problem(domain: str) -> str:
    """Return why names cannot be made in ``domain``, empty when they can."""
    problem = host_problem(domain)
    if not problem and len(domain) > MAX_DOMAIN:
        return f"has {len(domain)} characters; use at most {MAX_DOMAIN}, to leave room for the names in it"
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
    """Return ``listeners`` and additional ones that ``answers`` need."""
    at_port = [each for each in listeners if each.port == CHALLENGE_PORT and each.protocol != "UDP"]
    if any(each.protocol != "HTTP" for each in at_port):
        return tuple(listeners)
    missing = {each.hostname for each in answers if not any(covers(there.hostname, each.hostname) for there in at_port)}
    added = (L7Listener(f"{_PREFIX}{host}", CHALLENGE_PORT, hostname=host) for host in sorted(missing))
    return (*listeners, *added)


def covers(pattern: str, host: str) -> bool:
    """Return whether the hostname of a listener takes a name; a star matches one label or more, empty matches all."""
    pattern, host = pattern.lower(), host.lower()
    if not pattern or pattern == host:
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
