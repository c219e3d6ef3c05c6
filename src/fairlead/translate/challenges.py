"""The listeners that a load balancer needs beside its own to answer the challenges of a certificate authority.

    a listener of HTTP at port 80 takes the name     none: the answer is put before its routes
    port 80 is free, or of HTTP for other names      one for the name, as long as the challenge lasts
    port 80 is of another protocol                   none: the challenge cannot be answered there

In: listeners, answers. Out: listeners. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.model.http import FixedAnswer, L7Listener

#: The port, and the path before the token, at which an authority looks (RFC 8555, section 8.3).
CHALLENGE_PORT = 80
CHALLENGE_PATH = "/.well-known/acme-challenge/"
_PREFIX = "acme-challenge/"


def with_challenge_listeners(listeners: Sequence[L7Listener], answers: Iterable[FixedAnswer]) -> tuple[L7Listener, ...]:
    """Return ``listeners`` and those that ``answers`` need beside them."""
    at_port = [each for each in listeners if each.port == CHALLENGE_PORT and each.protocol != "UDP"]
    if any(each.protocol != "HTTP" for each in at_port):
        return tuple(listeners)
    missing = {each.hostname for each in answers if not any(covers(there.hostname, each.hostname) for there in at_port)}
    added = (L7Listener(f"{_PREFIX}{host}", CHALLENGE_PORT, hostname=host) for host in sorted(missing))
    return (*listeners, *added)


def covers(pattern: str, host: str) -> bool:
    """Return whether the hostname of a listener takes a name; a star stands for one label or more, empty for all."""
    pattern, host = pattern.lower(), host.lower()
    if not pattern or pattern == host:
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
