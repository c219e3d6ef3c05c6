"""What do providers say when they are asked, and who waits for that? Nobody: a key is woken when the answer is there.

    of(question) ──► the answer, if this very question was answered
                 ──► nothing yet: it is asked, once, and the load balancer is looked at again after that

In: questions, each about one thing and in one wording. Out: the last answer to that wording, or why there is none: who
cannot be asked now is asked again after a pause. Never: the same question twice because somebody looked twice, and
never a call while another replica leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from fairlead.errors import FairleadError, Retry, Terminal
from fairlead.hub.providers.runner import CALL_LIMIT_S
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue

#: Between two attempts to ask somebody who gives no answer.
PAUSE_S = 15.0

#: What a question is about: its kind, a load balancer, and a group on it if it is about one.
About = tuple[str, LoadBalancerKey | None, tuple[str, str] | None]


class Opinion(msgspec.Struct, frozen=True):
    """An answer. ``error`` Terminal is a no, in the provider's words; Retry, that there is no answer now."""

    answer: Any = None
    error: FairleadError | None = None


class _Question(msgspec.Struct):
    wording: object
    ask: Callable[[], Awaitable[Any]]
    again_s: float | None
    concerns: set[LoadBalancerKey]
    opinion: Opinion | None = None


class ValidationCache:
    """Asks, and remembers what was said."""

    def __init__(
        self, *, clock: Clock, leading: Callable[[], bool], wake: Callable[[Iterable[LoadBalancerKey]], None]
    ) -> None:
        self._leading = leading
        self._wake = wake
        self._questions: dict[About, _Question] = {}
        self.queue: KeyedQueue[About] = KeyedQueue(clock=clock)

    def of(
        self,
        about: About,
        wording: object,
        ask: Callable[[], Awaitable[Any]],
        *,
        concerns: LoadBalancerKey,
        again_s: float | None = None,
    ) -> Opinion | None:
        """Return what was answered to this wording, None while nothing was; ``concerns`` is woken by news.

        ``again_s``: the answer may change with time, so it is asked again that often.
        """
        known = self._questions.get(about)
        if known is None or known.wording != wording:
            concerned = {concerns, *(known.concerns if known is not None else ())}
            self._questions[about] = _Question(wording, ask, again_s, concerned)
            self.queue.add(about)
            return None
        known.concerns.add(concerns)
        return known.opinion

    def drop(self, about: About) -> None:
        """Forget one question."""
        self._questions.pop(about, None)

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget what was asked for ``key`` alone: it is gone."""
        for about, question in list(self._questions.items()):
            question.concerns.discard(key)
            if about[1] == key or not question.concerns:
                self.drop(about)

    def drop_others(self, key: LoadBalancerKey, groups: Iterable[tuple[str, str]]) -> None:
        """Forget what was asked about ``key`` and any group that is not (any more) one of ``groups``."""
        kept = set(groups)
        for about in [one for one in self._questions if one[1] == key and one[2] is not None and one[2] not in kept]:
            self.drop(about)

    def again(self) -> None:
        """Ask again what was not answered: this replica has just begun to lead."""
        for about, question in self._questions.items():
            if question.opinion is None or isinstance(question.opinion.error, Retry):
                self.queue.add(about)

    async def ask(self, about: About) -> float | None:
        """Ask one question now; returns the seconds after which it is to be asked again."""
        question = self._questions.get(about)
        if question is None or not self._leading():
            return None
        wait_s = question.again_s
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                opinion = Opinion(answer=await question.ask())
        except TimeoutError:
            opinion, wait_s = Opinion(error=Retry(f"no answer within {CALL_LIMIT_S:g} s")), PAUSE_S
        except Terminal as error:
            opinion = Opinion(error=error)
        except FairleadError as error:
            wait_s = max(PAUSE_S, (error.after_s if isinstance(error, Retry) else None) or 0.0)
            opinion = Opinion(error=error)
        if self._questions.get(about) is not question:
            return None  # asked in another wording meanwhile, or by nobody any more
        before, question.opinion = question.opinion, opinion
        if before is None or _words(before) != _words(opinion):
            self._wake(question.concerns)
        return wait_s


def _words(opinion: Opinion) -> tuple[object, str, str]:
    error = opinion.error
    return (opinion.answer, type(error).__name__, error.sentence if error is not None else "")
