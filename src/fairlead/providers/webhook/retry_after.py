"""When may a driver be asked the same again?

A driver that says Fail or Running also says how long it wants to be left alone. Whatever else happens to a load
balancer meanwhile, the same words are not said to it before that; other words, and other tasks, are.
In: tasks and answers. Out: the answer that still stands. Never: a wait.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.providers.webhook.protocol import Answer, Body, Status
from fairlead.runtime.clock import Clock

_TIDY_AT = 4096


class _Said(msgspec.Struct, frozen=True):
    words: Mapping[str, object]
    answer: Answer
    until_s: float


class Pauses:
    """The answers of one driver that still stand, by recordID."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[str, _Said] = {}

    def stands(self, body: Body) -> Answer | None:
        """Return the answer to the same words, while the driver does not want to hear them again."""
        said = self._said.get(_record(body))
        if said is None:
            return None
        left_s = said.until_s - self._clock.monotonic()
        if left_s <= 0 or said.words != _words(body):
            return None
        return msgspec.structs.replace(said.answer, retry_after_s=left_s)

    def answered(self, body: Body, answer: Answer) -> None:
        """Take note of what a driver said."""
        if answer.status is Status.SUCC:
            self._said.pop(_record(body), None)
            return
        now_s = self._clock.monotonic()
        if len(self._said) >= _TIDY_AT:
            self._said = {record: said for record, said in self._said.items() if said.until_s > now_s}
        self._said[_record(body)] = _Said(_words(body), answer, now_s + answer.retry_after_s)


def _record(body: Body) -> str:
    return str(body["recordID"])


def _words(body: Body) -> Mapping[str, object]:
    return {name: value for name, value in body.items() if name != "retryID"}
