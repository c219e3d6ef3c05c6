"""What a provider reports: read-back, never the basis of a removal."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.model.keys import ListenerKey, TargetKey


class Ensured(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``ensure``: addresses (IP or host names, ordered) when there are any yet.

    ``info`` is the provider's own identity of the load balancer; what is not None is to be stored, and given back to
    ``restore`` by the next process.
    """

    addresses: tuple[str, ...] = ()
    message: str = ""
    info: Mapping[str, str] | None = None
    #: As in ``Observed``: in which life of the provider it was ensured; what is registered later is lost with it.
    epoch: str = ""


class ObservedTarget(msgspec.Struct, frozen=True, gc=False):
    """One target of ours as it was read back; ``healthy`` None means that it is not checked."""

    listener: ListenerKey
    key: TargetKey
    weight: int = 1
    draining: bool = False
    healthy: bool | None = None


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
    #: Ours only, ordered by (listener, key); None when this provider cannot list them.
    targets: tuple[ObservedTarget, ...] | None = None
    #: Names of members that are not ours, ordered; reported, never touched.
    foreign: tuple[str, ...] = ()
    #: Another value than before: the provider restarted and may have lost our targets; register them again.
    epoch: str = ""
