"""The time before which a driver is not called with the same request again.

A driver that answers Fail or Running also says how long to wait (``minRetryDelayInSeconds``). The same request is not
repeated before that; a request with another body, or about another record, is sent at once.
In: requests and their answers. Out: the last answer, as long as it holds. Never: a wait.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.providers.webhook.protocol import Answer, Body, DriverStatus
from fairlead.runtime.clock import Clock

_PURGE_AT = 4096


class _Deferred(msgspec.Struct, frozen=True):
    request: Mapping[str, object]
    answer: Answer
    until_s: float


class RetryAfter:
    """The answers Fail and Running of one driver that still hold, by recordID."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deferred: dict[str, _Deferred] = {}

    def answer_to(self, body: Body) -> Answer | None:
        """Return the last answer to the same request, with the seconds left; None when it may be sent."""
        deferred = self._deferred.get(_record_id(body))
        if deferred is None:
            return None
        left_s = deferred.until_s - self._clock.monotonic()
        if left_s <= 0 or deferred.request != _without_retry_id(body):
            return None
        return msgspec.structs.replace(deferred.answer, retry_after_s=left_s)

    def record(self, body: Body, answer: Answer) -> None:
        """Store the answer to a request that was sent."""
        if answer.status is DriverStatus.SUCC:
            self._deferred.pop(_record_id(body), None)
            return
        now_s = self._clock.monotonic()
        if len(self._deferred) >= _PURGE_AT:
            self._deferred = {record: entry for record, entry in self._deferred.items() if entry.until_s > now_s}
        self._deferred[_record_id(body)] = _Deferred(_without_retry_id(body), answer, now_s + answer.retry_after_s)


def _record_id(body: Body) -> str:
    return str(body["recordID"])


def _without_retry_id(body: Body) -> Mapping[str, object]:
    return {name: value for name, value in body.items() if name != "retryID"}
