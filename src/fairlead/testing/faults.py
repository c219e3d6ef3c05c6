"""A provider wrapper that injects failures and latency.

    FAIL_BEFORE    the call fails and has no effect
    FAIL_AFTER     the call fails after all of it has taken effect: the response was lost
    FAIL_HALFWAY   the call fails after some of the items
    BUG            the call raises an error that is not a ``FairleadError``
    HANG_BEFORE    the call never returns and has no effect, as when the process crashes before it
    HANG_AFTER     the call never returns after all of it has taken effect, as when the process crashes after it

Items in ``rejected`` are rejected, while the other items of the call succeed.

In: a provider, and a script that returns the fault of each call. Out: a provider with these faults. ``overlaps`` has
every load balancer that two calls were changing concurrently.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
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
    FAIL_BEFORE = "FailBefore"
    FAIL_AFTER = "FailAfter"
    FAIL_HALFWAY = "FailHalfway"
    BUG = "Bug"
    HANG_BEFORE = "HangBefore"
    HANG_AFTER = "HangAfter"


class ProviderCall(msgspec.Struct, frozen=True):
    """The argument of the script: one call; ``number`` counts from 1 for each provider.

    ``load_balancer`` is that of the first change, where a batch has several.
    """

    number: int
    method: str
    load_balancer: LoadBalancerKey
    changes: tuple[TargetChange, ...] = ()


class FaultyProvider:
    """A provider with injected latency and faults.

    ``latency_s`` is virtual time. ``rejected`` maps targets whose registration is rejected to the message. ``calls``
    has every call in the order of their start. ``capabilities`` replaces those of the wrapped provider,
    ``failure_domain`` returns that of a load balancer; ``concurrent`` is the number of calls in progress.
    """

    def __init__(
        self,
        inner: Provider,
        *,
        clock: Clock,
        latency_s: float = 0.0,
        script: Callable[[ProviderCall], Fault] = lambda _: Fault.NONE,
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
        self.rejected: dict[TargetKey, str] = {}
        self.latency_s = latency_s
        self._clock = clock
        self.concurrent = 0
        self._under_way: Counter[LoadBalancerKey] = Counter()

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities of the wrapped provider, unless the test has replaced them."""
        return self._capabilities or self.inner.capabilities

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Forward the notifications of the wrapped provider."""
        self.inner.on_change(notify)

    async def start(self) -> None:
        """Start the wrapped provider."""

    def publish(self) -> None:
        """Record that ``publish`` was called."""
        self.published = True

    async def close(self) -> None:
        """Close the wrapped provider."""
        self.published = False

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Call ``ensure`` with the fault of the script."""
        fault = await self._begin("ensure", (spec.key,))
        try:
            answer = await self.inner.ensure(spec) if fault is not Fault.FAIL_BEFORE else Ensured()
            await self._end(fault, spec.key)
            return answer
        finally:
            self._leave((spec.key,))

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Call ``apply`` with the fault of the script."""
        keys = tuple({change.load_balancer: None for change in changes})
        fault = await self._begin("apply", keys, tuple(changes))
        try:
            outcomes: Sequence[Outcome] = ()
            if fault is Fault.FAIL_HALFWAY:
                await self._apply(changes[: len(changes) // 2])
            elif fault is not Fault.FAIL_BEFORE:
                outcomes = await self._apply(changes)
            await self._end(fault, keys[0])
            return outcomes
        finally:
            self._leave(keys)

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Call ``observe`` without a fault."""
        return await self.inner.observe(key)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Call ``delete`` with the fault of the script."""
        fault = await self._begin("delete", (key,))
        try:
            if fault is not Fault.FAIL_BEFORE:
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
        self._under_way.update(keys)
        self.concurrent += 1
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
        if fault is Fault.HANG_BEFORE:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._leave(keys)
        return fault

    def _leave(self, keys: Sequence[LoadBalancerKey]) -> None:
        self._under_way.subtract(keys)
        self.concurrent -= 1

    async def _end(self, fault: Fault, key: LoadBalancerKey) -> None:
        if self.latency_s:
            await self._clock.sleep(self.latency_s)
        if fault is Fault.HANG_AFTER:
            await asyncio.get_running_loop().create_future()
        if fault is not Fault.NONE:
            raise Retry(f"{key}: no answer from the provider", reason="ProviderTimeout")
