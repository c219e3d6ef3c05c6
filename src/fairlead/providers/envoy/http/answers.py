"""Requests that a load balancer answers itself, before any route: challenges of a certificate authority.

In: answers, and the listeners of port 80. Out: entries that are tried before those of all routes. An answer that stays
is the same object as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fairlead.model.http import Attachment, FixedAnswer, L7Listener, Route
from fairlead.providers.envoy.http.hostnames import most_specific, normal
from fairlead.providers.envoy.http.precedence import Rank
from fairlead.providers.envoy.http.route_entries import ROUTE, EncodedRoute, RouteEntry, Variant, route_field
from fairlead.providers.envoy.schema import Schema

_PORT = 80
#: Before every rank that a match of a route can have.
_FIRST: Rank = (-1, 0, 0, 0, 0, "", "", "", 0, 0)


class AnswerRoute(EncodedRoute):
    """One answer, as a route without a backend."""

    __slots__ = ("_answer",)

    def __init__(self, schema: Schema, answer: FixedAnswer, listener: str) -> None:
        name = f"answer/{answer.hostname}{answer.path}"
        super().__init__(schema, Route(name, "HTTP", (Attachment(listener, (answer.hostname,)),), ()), str)
        self._answer = answer

    def _encode(self, variant: Variant) -> Iterator[RouteEntry]:
        del variant
        fields: dict[str, object] = {
            "name": self.route.name,
            "match": {"path": self._answer.path},
            "direct_response": {"status": 200, "body": {"inline_string": self._answer.content}},
        }
        content = route_field(self._schema.encode(ROUTE, fields))
        yield RouteEntry(rank=_FIRST, content=content, whole=False)


class Answers:
    """The answers of one load balancer."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[tuple[FixedAnswer, str], AnswerRoute] = {}

    def routes(self, answers: Iterable[FixedAnswer], listeners: Sequence[L7Listener]) -> list[EncodedRoute]:
        """Return the answers at the listener of port 80 that has their name; without one they cannot be given."""
        at_port = {
            normal(each.hostname): each.name for each in listeners if (each.port, each.protocol) == (_PORT, "HTTP")
        }
        known: dict[tuple[FixedAnswer, str], AnswerRoute] = {}
        for answer in answers:
            owner = most_specific(normal(answer.hostname), at_port)
            if owner is not None:
                key = (answer, at_port[owner])
                known[key] = self._known.get(key) or AnswerRoute(self._schema, *key)
        self._known = known
        return list(known.values())
