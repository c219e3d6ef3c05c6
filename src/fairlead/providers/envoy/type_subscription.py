"""What does one stream know about one resource type?

``Session`` keeps one for each type: what Envoy asked for, what it was sent, what it acknowledged or refused, and what
is to be looked at again. It holds no rules of order; those are the session's.
"""

from __future__ import annotations

from collections import deque


class Side:
    """One resource type of one stream."""

    __slots__ = (
        "acked",
        "answer_due",
        "dirty",
        "forced",
        "in_flight",
        "known",
        "names",
        "refused",
        "retry",
        "subscribed",
        "wildcard",
    )

    def __init__(self) -> None:
        self.subscribed = False
        self.wildcard = False
        #: An empty answer is owed: Envoy starts only after a first one.
        self.answer_due = False
        self.names: set[str] = set()
        #: The version that was sent last, or "" when a refusal leaves that in doubt.
        self.known: dict[str, str] = {}
        self.acked: dict[str, str] = {}
        self.dirty: set[str] = set()
        #: To be sent even if the version has not changed.
        self.forced: set[str] = set()
        #: Names to send in responses of their own, while looking for a culprit.
        self.retry: deque[tuple[str, ...]] = deque()
        #: The version that this very proxy refused, and why: not sent again unless a new attempt is due.
        self.refused: dict[str, tuple[str, str]] = {}
        #: nonce -> name -> version ("" for a removal), oldest first.
        self.in_flight: dict[str, dict[str, str]] = {}

    def wants(self, name: str) -> bool:
        """Say whether Envoy has asked for this name."""
        return self.wildcard or name in self.names

    @property
    def idle(self) -> bool:
        """Say whether nothing is to be sent or waited for."""
        return not (self.dirty or self.in_flight or self.retry)
