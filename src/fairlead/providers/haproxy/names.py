"""The names of our servers in HAProxy backends.

In: a load balancer, a listener and a target. Out: a server name that only we would give, and that says what it is for:
``fl-<10 hex digits of installation, load balancer and listener>-<address>_<port>``, and ``.<6 hex digits>`` of its
check and protocol once these have changed: HAProxy changes neither at run time, so another server takes over. A server
with another name is not ours, also when it has the address of one of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fairlead.model.in_words import whole_number
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey

_DIGITS = 10


def prefix(installation: str, key: LoadBalancerKey, listener: ListenerKey) -> str:
    """Return how all names of one listener's servers begin."""
    # The length of each part goes in, so that no two different lists of parts read alike.
    parts = (installation, *key, listener.protocol.value, str(listener.port))
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return f"fl-{hashlib.blake2s(text.encode()).hexdigest()[:_DIGITS]}-"


def server_name(
    installation: str, key: LoadBalancerKey, listener: ListenerKey, target: TargetKey, tag: str = ""
) -> str:
    """Return the name of the server for one target; ``tag`` stands for its check and protocol."""
    name = f"{prefix(installation, key, listener)}{target.address}_{target.port}"
    return f"{name}.{tag}" if tag else name


def untagged(name: str) -> str:
    """Return the name of a server without the tag for its check and protocol: the same for all of its target."""
    target, separator, port = name.rpartition("_")
    return f"{target}{separator}{port.partition('.')[0]}"


def target_of(name: str, prefix: str) -> TargetKey | None:
    """Return the target that a name of ours stands for; None when the name is not ours."""
    address, separator, port = name.removeprefix(prefix).rpartition("_")
    number = whole_number(port.partition(".")[0], most=65_535)
    if not name.startswith(prefix) or not separator or number is None:
        return None
    return TargetKey(address, number)


def targets_of(names: Iterable[str], prefix: str) -> list[TargetKey]:
    """Return the targets of those names that are ours, each once, in the same order."""
    return list(dict.fromkeys(target for name in names if (target := target_of(name, prefix)) is not None))
