"""Answers of providers to validation requests; no reconcile waits for one: its key is woken when the answer arrives.

    verdict(subject, content) ──► the answer, if it was given to this very content
                              ──► None: the provider is asked, once, and the load balancer is reconciled after that

In: requests, each about one subject with one content. Out: the last answer to that content, or the error: a provider
that did not answer is asked again after a pause. Never: the same request twice, nor a call while another replica leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from fairlead.errors import FairleadError, Retry, Terminal
from fairlead.hub.providers.term import CALL_LIMIT_S
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue

#: Seconds between two attempts to ask a provider that does not answer.
PAUSE_S = 15.0

#: What a request is about: its kind, a load balancer, and the namespace and name of a BackendGroup, if of one.
Subject = tuple[str, LoadBalancerKey | None, tuple[str, str] | None]


def _namespace_of(subject: Subject) -> str:
    _, key, group = subject
    return group[0] if group is not None else key.namespace if key is not None else ""


class ValidationVerdict(msgspec.Struct, frozen=True):
    """An answer. ``error`` Terminal: refused, with the provider's message; Retry: there is no answer at present."""

    answer: Any = None
    error: FairleadError | None = None


class _ValidationRequest(msgspec.Struct):
    content: object
    ask: Callable[[], Awaitable[Any]]
    again_s: float | None
    concerns: set[LoadBalancerKey]
    verdict: ValidationVerdict | None = None


class ValidationCache:
    """Asks providers, and caches their verdicts."""

    def __init__(
        self, *, clock: Clock, leading: Callable[[], bool], wake: Callable[[Iterable[LoadBalancerKey]], None]
    ) -> None:
        self._leading = leading
        self._wake = wake
        self._requests: dict[Subject, _ValidationRequest] = {}
        self.queue: KeyedQueue[Subject] = KeyedQueue(clock=clock, group_of=_namespace_of)

    def verdict(
        self,
        subject: Subject,
        content: object,
        ask: Callable[[], Awaitable[Any]],
        *,
        concerns: LoadBalancerKey,
        again_s: float | None = None,
    ) -> ValidationVerdict | None:
        """Return the verdict on ``content``, None while there is none; ``concerns`` is woken when it changes.

        ``again_s``: the verdict may change with time, so the provider is asked again that often.
        """
        known = self._requests.get(subject)
        if known is None or known.content != content:
            concerned = {concerns, *(known.concerns if known is not None else ())}
            self._requests[subject] = _ValidationRequest(content, ask, again_s, concerned)
            self.queue.add(subject)
            return None
        known.concerns.add(concerns)
        return known.verdict

    def drop(self, subject: Subject) -> None:
        """Forget one request."""
        self._requests.pop(subject, None)

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget what was asked for ``key`` alone: it is gone."""
        for subject, request in list(self._requests.items()):
            request.concerns.discard(key)
            if subject[1] == key or not request.concerns:
                self.drop(subject)

    def drop_others(self, key: LoadBalancerKey, groups: Iterable[tuple[str, str]]) -> None:
        """Forget what was asked about ``key`` and any group that is not (any more) one of ``groups``."""
        kept = {None, *groups}
        for subject in [each for each in self._requests if each[1] == key and each[2] not in kept]:
            self.drop(subject)

    def again(self) -> None:
        """Ask again what was not answered: this replica has just begun to lead."""
        for subject, request in self._requests.items():
            if request.verdict is None or isinstance(request.verdict.error, Retry):
                self.queue.add(subject)

    async def ask(self, subject: Subject) -> float | None:
        """Ask one request now; returns the seconds after which it is to be asked again."""
        request = self._requests.get(subject)
        if request is None or not self._leading():
            return None
        wait_s = request.again_s
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                verdict = ValidationVerdict(answer=await request.ask())
        except TimeoutError:
            verdict, wait_s = ValidationVerdict(error=Retry(f"no answer within {CALL_LIMIT_S:g} s")), PAUSE_S
        except Terminal as error:
            verdict = ValidationVerdict(error=error)
        except FairleadError as error:
            wait_s = max(PAUSE_S, (error.after_s if isinstance(error, Retry) else None) or 0.0)
            verdict = ValidationVerdict(error=error)
        if self._requests.get(subject) is not request:
            return None  # replaced by a request with another content meanwhile, or dropped
        before, request.verdict = request.verdict, verdict
        if before is None or _comparable(before) != _comparable(verdict):
            self._wake(request.concerns)
        return wait_s


def _comparable(verdict: ValidationVerdict) -> tuple[object, str, str]:
    error = verdict.error
    return (verdict.answer, type(error).__name__, error.sentence if error is not None else "")
