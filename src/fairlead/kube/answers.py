"""Decodes the answers to single requests.

In: the body of a 2xx answer, and the type it should have. Out: an object of that type, or an error with a sentence.
Never: takes what no API server says for an object: a lease without a holder is free, and what was not deleted would
count as gone.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fairlead.api.meta import KubeObject
from fairlead.kube.failures import Call, no_api_answer, undecodable

T = TypeVar("T")


class Review(msgspec.Struct):
    """A review of a right."""

    class Status(msgspec.Struct):
        """The answer."""

        allowed: bool = False

    status: Status = msgspec.field(default_factory=Status)


class Version(msgspec.Struct):
    """The version of a server."""

    git_version: str = msgspec.field(default="", name="gitVersion")


class Deletion(msgspec.Struct):
    """The answer to a deletion: a Status, or the object."""

    kind: str = ""


class Decoders:
    """A decoder for each type, made when it is first needed."""

    def __init__(self) -> None:
        self._decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}

    def get(self, of: type[T]) -> msgspec.json.Decoder[T]:
        """Return the decoder of a type."""
        decoder = self._decoders.get(of)
        if decoder is None:
            decoder = self._decoders[of] = msgspec.json.Decoder(of)
        return decoder

    def answer(self, call: Call, body: bytes, of: type[T]) -> T:
        """Return the answer to ``call``.

        Raises:
            FairleadError: it cannot be read, or is none that an API server gives.
        """
        try:
            answer = self.get(of).decode(body)
        except msgspec.DecodeError as error:
            raise undecodable(call, error, body) from error
        if (isinstance(answer, KubeObject) and not answer.metadata.name) or answer == Deletion():
            raise no_api_answer(call, "something that is no object")
        return answer
