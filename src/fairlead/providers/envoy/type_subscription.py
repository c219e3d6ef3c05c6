"""The state of one resource type on one stream, and the unknown resources that a proxy keeps for a while.

In: Envoy's requests and what ``Session`` sends. Out: what Envoy asked for, was sent, acknowledged or rejected, and the
names to compare again. The rules of order are in ``store`` (``Gate``) and ``session``.

    why this hub does not know a resource                     how long it is kept
    the hub's API was restored, or lost a namespace: agents   ``HOLD_UNKNOWN_S`` seconds
    publish what is missing again
    its object, or one that holds its targets, cannot be      until it can, or is gone
    decoded, and never could since this hub started

A load balancer that was deleted while no hub was running is known, because its finalizer kept the object: it is removed
at once. Of a known load balancer, the targets of a port are kept while this hub has read none for that port.

A part of a load balancer that cannot be read, such as one slice or one member of several, has no resource of its own:
its targets are in the same message as all others. What a proxy has from an earlier hub is kept as a whole then. The
readable parts change there once all can be read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.resources import load_balancer_of
from fairlead.providers.envoy.schema import DeltaRequest

#: How many rejections are kept of names that are no longer desired: a name may be desired again soon.
REFUSED_KEPT = 100


class TypeSubscription:
    """One resource type of one stream."""

    __slots__ = (
        "acked",
        "dirty",
        "empty_response_due",
        "forced",
        "held",
        "in_flight",
        "inherited",
        "names",
        "refused",
        "retry",
        "sent",
        "subscribed",
        "wildcard",
    )

    def __init__(self) -> None:
        self.subscribed = False
        self.wildcard = False
        #: Envoy starts only after a first response, even if it is empty.
        self.empty_response_due = False
        self.names: set[str] = set()
        #: The version that was sent last, or "" when a refusal leaves that unknown.
        self.sent: dict[str, str] = {}
        self.acked: dict[str, str] = {}
        #: Names whose version was acknowledged to an earlier stream.
        self.inherited: set[str] = set()
        #: Names to compare at the next ``pump``.
        self.dirty: set[str] = set()
        #: Names that the proxy has and this hub has never known; compared once they no longer wait.
        self.held: set[str] = set()
        #: Names to send even if the version has not changed.
        self.forced: set[str] = set()
        #: Names to send in responses of their own, while the bad one of a refused response is searched for.
        self.retry: deque[tuple[str, ...]] = deque()
        #: The version that this very proxy refused, and why: not sent again unless a new attempt is due.
        self.refused: dict[str, tuple[str, str]] = {}
        #: nonce -> name -> version ("" for a removal), oldest first.
        self.in_flight: dict[str, dict[str, str]] = {}

    @property
    def idle(self) -> bool:
        """Return whether nothing is to be sent or waited for."""
        return not (self.dirty or self.in_flight or self.retry)

    def wants(self, name: str) -> bool:
        """Return whether Envoy has asked for this name."""
        return self.wildcard or name in self.names

    def mark(self, names: Iterable[str], *, alone: bool) -> None:
        """Compare those names that Envoy wants at the next ``pump``; ``alone``: send each in a response of its own."""
        wanted = [name for name in names if self.wants(name)]
        if not alone:
            self.dirty.update(wanted)
            return
        for name in wanted:
            self.refused.pop(name, None)
            self.retry.append((name,))

    def take(self, names: Iterable[str]) -> list[str]:
        """Return these names, no longer marked; marks that come while they are being sent stay."""
        taken = list(names)
        self.dirty.difference_update(taken)
        return taken

    def take_retry(self) -> tuple[str, ...]:
        """Return the next names to send in a response of their own; empty when there are none."""
        return self.retry.popleft() if self.retry else ()

    def start(self, request: DeltaRequest, *, available: Iterable[str], wildcard_by_default: bool) -> None:
        """Take in the first request: what a reconnecting Envoy has already, and whether it wants all there is."""
        self.subscribed = True
        self.sent.update(request.initial_versions)
        self.acked.update(request.initial_versions)
        self.inherited.update(request.initial_versions)
        if "*" in request.subscribe or (wildcard_by_default and not request.subscribe):
            self.wildcard = True
            self.dirty.update(request.initial_versions, available)
            self.empty_response_due = not request.initial_versions

    def subscribe(self, request: DeltaRequest, *, resend: Collection[str] = ()) -> None:
        """Take in the names of a request; those in ``resend`` are sent even if Envoy has their version already."""
        for name in request.unsubscribe:
            self.names.discard(name)
            if not self.wildcard:
                self.sent.pop(name, None)
                self.acked.pop(name, None)
                self.refused.pop(name, None)
                self.dirty.discard(name)
                self.forced.discard(name)
        for name in request.subscribe:
            if name == "*":
                continue
            self.names.add(name)
            self.dirty.add(name)
            # A response is owed, even if it is "no such thing": a missing one holds up the proxy's start.
            if name not in request.initial_versions or name in resend:
                self.forced.add(name)

    def acknowledge(self, name: str, version: str) -> None:
        """Store that Envoy has taken over this version ("" for a removal)."""
        self.inherited.discard(name)
        if not version:
            self.acked.pop(name, None)
        elif self.wants(name):
            self.acked[name] = version

    def refuse(self, frame: dict[str, str], message: str) -> tuple[str, str] | None:
        """Store that Envoy refused a response, and so has kept what it had.

        Returns the (name, version) that was refused, or None: a removal, or not one name: these are sent again in
        smaller responses.
        """
        if len(frame) != 1:
            self.sent.update(dict.fromkeys(frame, ""))
            self.retry.extendleft(reversed(split_refused(sorted(frame), message)))
            return None
        ((name, version),) = frame.items()
        self.sent.pop(name, None)
        if not version:
            return None
        if name in self.acked:
            self.sent[name] = self.acked[name]
        self.refused.pop(name, None)  # the newest is the last
        self.refused[name] = version, message
        self.dirty.add(name)
        return name, version

    def forget_refused(self, is_gone: Callable[[str], bool]) -> None:
        """Drop the oldest refusals of names that are gone: a stream may live for months."""
        surplus = len(self.refused) - REFUSED_KEPT
        if surplus > 0:
            for name in [name for name in self.refused if is_gone(name)][:surplus]:
                del self.refused[name]


_NAME_CHARACTERS = re.compile(r"[A-Za-z0-9._/-]+")


def split_refused(names: Sequence[str], message: str) -> list[tuple[str, ...]]:
    """Split the names of a refused response (two or more, ordered) into groups to try again."""
    mentioned = {word.strip(".") for word in _NAME_CHARACTERS.findall(message)}
    named = [name for name in names if name in mentioned]
    rest = tuple(name for name in names if name not in mentioned)
    if named:
        return [*([rest] if rest else []), *[(name,) for name in named]]
    middle = len(names) // 2
    return [tuple(names[:middle]), tuple(names[middle:])]


#: Agents connect again within half of it, and publish what is missing.
HOLD_UNKNOWN_S = 60.0


class UnknownLoadBalancers:
    """Resources that are served for ``hold_s`` after ``publish`` although ``is_known`` is false."""

    def __init__(
        self, *, is_known: Callable[[LoadBalancerKey], bool] = lambda _key: True, hold_s: float = HOLD_UNKNOWN_S
    ) -> None:
        self._is_known = is_known
        self._hold_s = hold_s
        self._deleted: set[LoadBalancerKey] = set()
        self._unread: set[LoadBalancerKey] = set()
        self._read: set[LoadBalancerKey] = set()
        self._with_targets: set[str] = set()
        self.until = 0.0

    def publish(self, now: float) -> None:
        """Begin: proxies are sent what there is from now on."""
        self.until = now + self._hold_s

    def delete(self, key: LoadBalancerKey) -> None:
        """Store that ``key`` was deleted: it does not wait."""
        self._deleted.add(key)
        self._unread.discard(key)

    def keep(self, key: LoadBalancerKey, *, unread: bool) -> bool:
        """Store whether something of ``key`` was never read; returns whether it was not, and is now."""
        if unread:
            if key not in self._read:
                self._unread.add(key)
            return False
        self._read.add(key)
        was_unread = key in self._unread
        self._unread.discard(key)
        return was_unread

    def is_unread(self, key: LoadBalancerKey) -> bool:
        """Return whether something of ``key`` cannot be read."""
        return key in self._unread

    def knows_all(self, now: float) -> bool:
        """Return whether nothing waits."""
        return now >= self.until and not self._unread

    def register(self, name: str) -> None:
        """Store that the endpoints ``name`` have had a target: a later loss of all targets is intended."""
        self._with_targets.add(name)

    def keeps_endpoints(self, name: str, now: float) -> bool:
        """Say whether endpoints that a proxy came with stay: their load balancer may be read before its targets."""
        key = load_balancer_of(name)
        if key is None or self.is_unread(key):
            return key is not None
        return self._may_be_wanted(key, now) and name not in self._with_targets

    def keeps_cluster(self, name: str) -> bool:
        """Say whether the cluster ``name`` stays as a proxy has it: another one would come without its endpoints."""
        key = load_balancer_of(name)
        return key is not None and self.is_unread(key)

    def waits(self, name: str, now: float) -> bool:
        """Return whether the resource ``name``, which is not wanted, stays for now."""
        key = load_balancer_of(name)
        return key is not None and self._may_be_wanted(key, now) and not self._is_known(key)

    def _may_be_wanted(self, key: LoadBalancerKey, now: float) -> bool:
        return key in self._unread or (now < self.until and key not in self._deleted)
