"""What a provider reports: read-back, never the basis of a removal."""

from __future__ import annotations

import msgspec


class Ensured(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``ensure``: addresses (IP or host names, ordered) when there are any yet."""

    addresses: tuple[str, ...] = ()
    message: str = ""


class Observed(msgspec.Struct, frozen=True, gc=False):
    """What is really there for one load balancer.

    ``programmed`` means that every proxy that serves it has acknowledged its newest state. ``proxies`` and
    ``acknowledged`` count them. ``rejected`` is the data plane's own complaint, empty when there is none.
    """

    addresses: tuple[str, ...] = ()
    programmed: bool = False
    proxies: int = 0
    acknowledged: int = 0
    rejected: str = ""
    message: str = ""
