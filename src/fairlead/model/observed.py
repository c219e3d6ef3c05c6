"""Observations that a provider reports, and the health that follows; never the basis of a removal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """The health of the targets of one load balancer as the data plane sees it; ``fairlead.model.observed`` makes it.

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


#: So many unhealthy targets are named in a status; the count has them all.
NAMED = 50

#: What each reporting proxy sees of each target, the proxies always in the same order.
Views = Mapping[ListenerKey, Mapping[TargetKey, Sequence[Seen]]]


class _State(StrEnum):
    """The state of one listener as one proxy sees it."""

    SERVING = "Serving"
    NONE = "None"
    WAITING = "Waiting"
    UNCHECKED = "Unchecked"
    SILENT = "Silent"


def health_of(views: Views, *, not_checked: str = "") -> Health:
    """Return the health from ``views``, one for each listener; ``not_checked``: why there are no health checks.

    A port needs a healthy target behind it. Backends, which routes choose, do not serve only when none of them has one.
    """
    empty = [str(listener) for listener, targets in sorted(views.items()) if not targets]
    if len(empty) == len(views):
        return Health(serving=False, reason=ConditionReason.NO_TARGETS, message="no target")
    counts = _counted(views)
    total, healthy = counts.total, counts.healthy

    def health(serving: bool | None, reason: ConditionReason, message: str) -> Health:
        return msgspec.structs.replace(counts, serving=serving, reason=reason, message=message)

    routed = all(listener.backend for listener in views)
    if empty and not routed:
        return health(False, ConditionReason.NO_TARGETS, f"{', '.join(empty)} has no target")
    filled = {listener: targets for listener, targets in views.items() if targets}
    seen_by_proxy = _by_proxy(filled)
    by_proxy = [[_best_of(states)] for states in seen_by_proxy] if routed else seen_by_proxy
    failed = [states for states in by_proxy if _State.NONE in states]
    if failed and len(failed) == len(by_proxy):
        return health(False, ConditionReason.NO_HEALTHY_TARGETS, _without(filled, seen_by_proxy[0], total))
    if failed:
        message = f"{len(failed)} of {len(by_proxy)} proxies see no healthy target"
        return health(False, ConditionReason.UNREACHABLE_FROM_SOME_PROXIES, message)
    seen = {state for states in by_proxy for state in states}
    if _State.SILENT in seen:
        silent = sum(_State.SILENT in states for states in by_proxy)
        reporters = f"{silent} of {len(by_proxy)} proxies" if len(by_proxy) > 1 else "the only proxy"
        message = f"{reporters} stopped reporting the health of targets: hung, or cut off from the hub"
        return health(None, ConditionReason.PROXIES_SILENT, message)
    if _State.WAITING in seen:
        message = "no proxy has reported the health of targets yet"
        return health(None, ConditionReason.WAITING_FOR_FIRST_CHECK, message)
    down = [*empty, *_failing(filled, seen_by_proxy)] if routed else []
    named = ", ".join(sorted(down)[:NAMED])
    failing = f"requests to backends without a healthy target fail: {named}"
    counts = msgspec.structs.replace(counts, failing=frozenset(down))
    if seen == {_State.UNCHECKED}:
        why = not_checked or "nothing checks the health of targets"
        if down:
            return health(None, ConditionReason.SOME_BACKENDS_UNHEALTHY, f"{failing}; of the others {why}")
        return health(None, ConditionReason.NOT_CHECKED, why)
    summary = f"{healthy} of {total} targets are healthy" if healthy < total else "all targets are healthy"
    if down:
        return health(True, ConditionReason.SOME_BACKENDS_UNHEALTHY, f"{summary}; {failing}")
    return health(True, ConditionReason.SERVING, summary)


def health_of_targets(targets: Iterable[ObservedTarget], listeners: Iterable[ListenerKey] = ()) -> Health:
    """Return the health of the targets that one load balancer reports; ``listeners`` are all that it should have."""
    views: dict[ListenerKey, dict[TargetKey, Sequence[Seen]]] = {listener: {} for listener in listeners}
    for target in targets:
        by_key = views.setdefault(target.listener, {})
        if not target.draining and target.weight:
            by_key[target.key] = (_SEEN[target.healthy],)
    return health_of(views)


def with_health(observed: Observed, listeners: Iterable[ListenerKey] = ()) -> Observed:
    """Return ``observed`` with the health that follows from its targets, when it has none of its own."""
    if observed.health is not None or observed.targets is None:
        return observed
    return msgspec.structs.replace(observed, health=health_of_targets(observed.targets, listeners))


_SEEN = {True: Seen.HEALTHY, False: Seen.UNHEALTHY, None: Seen.UNCHECKED}
#: What is seen of a listener by its best target, and of backends by the best of them: the first that applies.
_BEST = (
    (Seen.HEALTHY, _State.SERVING),
    (Seen.SILENT, _State.SILENT),
    (Seen.WAITING, _State.WAITING),
    (Seen.UNCHECKED, _State.UNCHECKED),
    (Seen.UNHEALTHY, _State.NONE),
)


def _by_proxy(views: Views) -> list[list[_State]]:
    """Return for each proxy what it sees of the listeners, in the order of ``views``."""
    columns = [list(zip(*targets.values(), strict=True)) for targets in views.values()]
    return [[_best(seen) for seen in row] for row in zip(*columns, strict=True)]


def _best(seen: Sequence[Seen]) -> _State:
    return next(state for kind, state in _BEST if kind in seen)


def _best_of(states: Sequence[_State]) -> _State:
    return next(state for _, state in _BEST if state in states)


def _failing(views: Views, by_proxy: Sequence[Sequence[_State]]) -> list[str]:
    """Return those behind which at least one proxy sees no healthy target."""
    columns = zip(views, zip(*by_proxy, strict=True), strict=True)
    return [str(listener) for listener, states in columns if _State.NONE in states]


def _counted(views: Views) -> Health:
    """Return how many targets are known or not, how many of them every proxy sees healthy, and the names of others.

    A target behind several listeners counts once, and is healthy when it is so behind all of them. Each listener has
    its own health checks, so an unhealthy target is named with the listener. A target that waits for its first check is
    not counted yet, and one that is not checked never.
    """
    merged: dict[TargetKey, set[Seen]] = {}
    unhealthy: list[str] = []
    for listener, targets in views.items():
        for key, seen in targets.items():
            merged.setdefault(key, set()).update(seen)
            if Seen.UNHEALTHY in seen:
                unhealthy.append(unhealthy_name(listener, key))
    known = [seen for seen in merged.values() if _is_known(seen)]
    healthy = sum(Seen.HEALTHY in seen and Seen.UNHEALTHY not in seen for seen in known)
    return Health(
        total=len(known),
        healthy=healthy,
        unhealthy=tuple(sorted(unhealthy)[:NAMED]),
        unknown=len(merged) - len(known),
    )


def _is_known(seen: set[Seen]) -> bool:
    return Seen.UNHEALTHY in seen or (Seen.HEALTHY in seen and seen.isdisjoint((Seen.WAITING, Seen.SILENT)))


def _without(views: Views, states: Sequence[_State], total: int) -> str:
    if len(views) > 1 and not all(state is _State.NONE for state in states):
        bad = [str(listener) for listener, state in zip(views, states, strict=True) if state is _State.NONE]
        return f"no target of {', '.join(sorted(bad))} is healthy"
    return "the only target is not healthy" if total == 1 else f"none of {total} targets is healthy"
