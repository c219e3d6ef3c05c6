"""Observations that a provider reports: read-back, never the basis of a removal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from fairlead.model.condition import ConditionReason
from fairlead.model.keys import ListenerKey, TargetKey

#: In ``info`` that is given back: JSON, the parameters of what was asked for before, when something else was asked for
#: before there was an answer. For providers that keep what they have where they were last asked to.
UNFINISHED = "unfinished"


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
    """One target of ours as it was read back; ``healthy`` None means that it is not checked, or not yet."""

    listener: ListenerKey
    key: TargetKey
    weight: int = 1
    draining: bool = False
    healthy: bool | None = None


class Seen(StrEnum):
    """One target as one proxy sees it."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    #: It is checked, and the first check has not ended yet.
    WAITING = "Waiting"
    UNCHECKED = "Unchecked"
    #: The proxy has stopped to report: what it saw last says nothing of now.
    SILENT = "Silent"


class Health(msgspec.Struct, frozen=True, gc=False):
    """The health of the targets of one load balancer as the data plane sees it; ``fairlead.model.health`` makes it.

    ``serving`` None: not known, for ``reason``. ``total`` counts the targets in rotation with a known health,
    ``unknown`` the rest; ``healthy`` those that every reporting proxy sees healthy. ``unhealthy`` names the first of
    the others, ordered, by ``unhealthy_name``. ``failing`` has backends without a healthy target, while others serve.
    """

    serving: bool | None = None
    reason: ConditionReason = ConditionReason.NOT_CHECKED
    message: str = ""
    total: int = 0
    healthy: int = 0
    unhealthy: tuple[str, ...] = ()
    unknown: int = 0
    failing: frozenset[str] = frozenset()

    @property
    def checked(self) -> bool:
        """Return whether any target is checked, and known."""
        return bool(self.healthy or self.unhealthy)


def unhealthy_name(listener: ListenerKey, key: TargetKey) -> str:
    """Return the name of an unhealthy target in a status, as 10.0.0.1:8080 (TCP/80).

    One address has many ports, and each listener or backend checks its targets itself.
    """
    return f"{key} ({listener})"


class RefusedPart(NamedTuple):
    """A part of a load balancer that is not served, while the rest is.

    ``kind`` is route, rule, listener, backend, certificate, answer or annotation; ``reason`` is a sentence. A rule has
    the ``name`` of its route, and the reason says which one it is.
    """

    kind: str
    name: str
    reason: str


class Observed(msgspec.Struct, frozen=True, gc=False):
    """The state of one load balancer as it was read back from its provider.

    ``programmed`` means that every proxy that serves it has acknowledged its newest state. ``proxies`` and
    ``acknowledged`` count them. ``rejected`` is the data plane's own complaint, empty when there is none.
    """

    addresses: tuple[str, ...] = ()
    programmed: bool = False
    proxies: int = 0
    acknowledged: int = 0
    rejected: str = ""
    #: What of an L7 load balancer is left out, ordered; everything else is served.
    refused: tuple[RefusedPart, ...] = ()
    message: str = ""
    #: Ours only, ordered by (listener, key); None when this provider cannot list them.
    targets: tuple[ObservedTarget, ...] | None = None
    #: Names of targets that are not ours, ordered; reported, never touched.
    foreign: tuple[str, ...] = ()
    #: None: to be taken from ``targets``.
    health: Health | None = None
    #: Another value than before: the provider restarted and may have lost our targets; register them again.
    epoch: str = ""
