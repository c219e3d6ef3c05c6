"""A provider that fails the way real ones do.

    REFUSE   the call fails, and nothing has happened
    LOSE     the call fails, and yet all of it has happened: the answer was lost
    HALF     the call fails after some of the items
    REJECT   single items are refused, the others are done
    BUG      something that is no Fairlead error at all
    STALL    no answer ever comes, and nothing has happened: the moment before a crash
    VANISH   no answer ever comes, and all of it has happened: the moment before a crash, too

In: any provider, and a script that is asked at each call. Out: the same provider, with calls that are late and fail.
It also watches: ``overlaps`` lists every load balancer on which two calls were under way at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from fairlead.errors import Retry
from fairlead.model.change import Outcome, OutcomeStatus, TargetChange
from fairlead.model.contract import Capabilities, Provider
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Ensured, Observed
from fairlead.runtime.clock import Clock


class Fault(StrEnum):
    """The fault of one call."""

    NONE = "None"
    REFUSE = "Refuse"
    LOSE = "Lose"
    HALF = "Half"
    BUG = "Bug"
    STALL = "Stall"
    VANISH = "Vanish"


class ProviderCall(msgspec.Struct, frozen=True):
    """One call as the script sees it; ``number`` counts from 1 over the life of the provider.

    ``load_balancer`` is that of the first change, where a batch has several.
    """

    number: int
    method: str
    load_balancer: LoadBalancerKey
    changes: tuple[TargetChange, ...] = ()


class FaultyProvider:
    """Any provider, late and unreliable.

    ``latency_s`` is virtual time. ``rejected`` maps the targets that are refused whenever they are added to the
    words of the refusal. ``calls`` holds every call in the order in which they began. ``capabilities`` replaces those
    of the provider inside, ``failure_domain`` says what answers for a load balancer; ``concurrent`` calls are under
    way now.
    """

    def __init__(
        self,
        inner: Provider,
        *,
        clock: Clock,
        latency_s: float = 0.0,
        script: Callable[[ProviderCall], Fault] = lambda _: Fault.NONE,
        rejected: Mapping[TargetKey, str] | None = None,
        capabilities: Capabilities | None = None,
        failure_domain: Callable[[FrontendSpec], str] = lambda _: "",
    ) -> None:
        self.inner = inner
        self.failure_domain = failure_domain
        self.published = False
        self._capabilities = capabilities
        self.calls: list[ProviderCall] = []
        self.overlaps: list[LoadBalancerKey] = []
        self.script = script
        self.rejected: dict[TargetKey, str] = dict(rejected or {})
        self.latency_s = latency_s
        self._clock = clock
        self.concurrent = 0
        self._under_way: Counter[LoadBalancerKey] = Counter()

    @property
    def capabilities(self) -> Capabilities:
        """Say what the provider inside can do, or what the test wants it to."""
        return self._capabilities or self.inner.capabilities

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Pass on what the provider inside notices."""
        self.inner.on_change(notify)

    async def start(self) -> None:
        """Get ready."""

    def publish(self) -> None:
        """Record that everything may be published now."""
        self.published = True

    async def close(self) -> None:
        """Stop; what is registered stays."""
        self.published = False

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Ensure, perhaps."""
        fault = await self._begin("ensure", (spec.key,))
        try:
            answer = await self.inner.ensure(spec) if fault is not Fault.REFUSE else Ensured()
            await self._end(fault, spec.key)
            return answer
        finally:
            self._leave((spec.key,))

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Apply the changes, or some of them, or say so."""
        keys = tuple({change.load_balancer: None for change in changes})
        fault = await self._begin("apply", keys, tuple(changes))
        try:
            outcomes: Sequence[Outcome] = ()
            if fault is Fault.HALF:
                await self._apply(changes[: len(changes) // 2])
            elif fault is not Fault.REFUSE:
                outcomes = await self._apply(changes)
            await self._end(fault, keys[0])
            return outcomes
        finally:
            self._leave(keys)

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Read back; never fails."""
        return await self.inner.observe(key)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Delete, perhaps."""
        fault = await self._begin("delete", (key,))
        try:
            if fault is not Fault.REFUSE:
                await self.inner.delete(key)
            await self._end(fault, key)
        finally:
            self._leave((key,))

    async def _apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for change in changes:
            message = "" if change.action.name == "DEREGISTER" else self.rejected.get(change.key, "")
            if message:
                outcomes.append(Outcome(OutcomeStatus.REJECTED, message))
            else:
                outcomes += await self.inner.apply([change])
        return outcomes

    async def _begin(
        self, method: str, keys: Sequence[LoadBalancerKey], changes: tuple[TargetChange, ...] = ()
    ) -> Fault:
        call = ProviderCall(len(self.calls) + 1, method, keys[0], changes)
        self.calls.append(call)
        self._enter(keys)
        self.overlaps += [key for key in keys if self._under_way[key] > 1]
        fault = self.script(call)
        if self.latency_s:
            try:
                await self._clock.sleep(self.latency_s)
            except BaseException:
                self._leave(keys)
                raise
        if fault is Fault.BUG:
            self._leave(keys)
            raise ZeroDivisionError("a provider's own mistake")
        if fault is Fault.STALL:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._leave(keys)
        return fault

    def _enter(self, keys: Sequence[LoadBalancerKey]) -> None:
        self._under_way.update(keys)
        self.concurrent += 1

    def _leave(self, keys: Sequence[LoadBalancerKey]) -> None:
        self._under_way.subtract(keys)
        self.concurrent -= 1

    async def _end(self, fault: Fault, key: LoadBalancerKey) -> None:
        if self.latency_s:
            await self._clock.sleep(self.latency_s)
        if fault is Fault.VANISH:
            await asyncio.get_running_loop().create_future()
        if fault is not Fault.NONE:
            raise Retry(f"{key}: no answer from the provider", reason="ProviderTimeout")
