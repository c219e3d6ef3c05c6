"""What is said on the wire between Fairlead and a driver?

In: hooks and what they are about. Out: request bodies, and answers checked word by word: an answer that is not exactly
what the protocol allows is an error, never a success. Keys are read whatever their case, as drivers written for the
original expect. Never: any input or output.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import cast

import msgspec

from fairlead.errors import Retry

#: What the driver is given when it says Fail or Running and names no time of its own.
DEFAULT_RETRY_S = 10.0
#: However long a driver wants us to wait, somebody looks again within this time.
LONGEST_RETRY_S = 3600.0
_LONGEST_MESSAGE = 500

Body = dict[str, object]


class Malformed(ValueError):
    """An answer is not what the protocol allows; the text ends the sentence "was answered with"."""


class Hook(StrEnum):
    """Every hook, by the last part of its URL."""

    HEALTHZ = "healthz"
    VALIDATE_LOAD_BALANCER = "validateLoadBalancer"
    CREATE_LOAD_BALANCER = "createLoadBalancer"
    ENSURE_LOAD_BALANCER = "ensureLoadBalancer"
    DELETE_LOAD_BALANCER = "deleteLoadBalancer"
    VALIDATE_BACKEND = "validateBackend"
    GENERATE_BACKEND_ADDR = "generateBackendAddr"
    ENSURE_BACKEND = "ensureBackend"
    DEREGISTER_BACKEND = "deregisterBackend"
    JUDGE_POD_DEREGISTER = "judgePodDeregister"
    #: Ours, not LBCF's: reads back what is registered. Called only when the class says ``verify: "true"``.
    LIST_BACKENDS = "listBackends"


class Status(StrEnum):
    """What a driver may answer to a hook that is retried."""

    SUCC = "Succ"
    FAIL = "Fail"
    RUNNING = "Running"


class Answer(msgspec.Struct, frozen=True):
    """A checked answer to a hook that is retried; ``body`` has lower-case keys."""

    status: Status
    message: str
    retry_after_s: float
    body: Mapping[str, object]

    def strings(self, name: str) -> dict[str, str]:
        """Return a map of strings, empty when it is missing; ``Malformed`` when it is something else."""
        return _strings(self.body.get(name.lower()), name)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings from the answer; ``Malformed`` when it is something else."""
        found = self.body.get(name.lower())
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(item, str) for item in cast("list[object]", found)):
            raise Malformed(f"{name} is not a list of strings")
        return tuple(cast("list[str]", found))


def task_body(hook: Hook, subject: str, *, dry_run: bool, **extras: object) -> Body:
    """Build the request of a hook that is retried: the recordID of a subject stays, the retryID never does."""
    return {"recordID": f"{hook}({subject})", "retryID": str(uuid.uuid4()), "dryRun": dry_run, **extras}


def answer_from_body(body: Mapping[str, object]) -> Answer:
    """Check the answer to a hook that is retried; ``Malformed`` says what is wrong."""
    status = body.get("status")
    if status not in tuple(Status):
        shown = "no status" if status is None else f"the unknown status {str(status)[:40]!r}"
        raise Malformed(f"{shown} instead of Succ, Fail or Running")
    after_s = DEFAULT_RETRY_S if status != Status.SUCC else 0.0
    wished = body.get("minretrydelayinseconds", 0)
    try:
        # The specification says string, the implementation int: both are in use.
        wished_s = float(cast("str", wished))
    except (TypeError, ValueError):
        raise Malformed("minRetryDelayInSeconds is not a number") from None
    if wished_s > 0:
        after_s = min(wished_s, LONGEST_RETRY_S)
    return Answer(Status(status), message_of(body), after_s, body)


def verdict_from_body(body: Mapping[str, object]) -> str:
    """Read the answer of a hook that is asked once: empty when it agrees, else its words; ``Malformed`` as above."""
    agrees = body.get("succ")
    if not isinstance(agrees, bool):
        raise Malformed("no succ: true or false")
    return "" if agrees else message_of(body) or "the driver gave no reason"


def kept_from_body(body: Mapping[str, object]) -> frozenset[tuple[str, str]]:
    """Return (namespace, name) of the pods in ``doNotDeregister``; ``Malformed`` as above."""
    found = body.get("donotderegister")
    if found is None:
        return frozenset()
    if not isinstance(found, list):
        raise Malformed("doNotDeregister is not a list of pods")
    kept: set[tuple[str, str]] = set()
    for pod in cast("list[object]", found):
        metadata = cast("Mapping[str, object]", pod).get("metadata") if isinstance(pod, dict) else None
        if not isinstance(metadata, dict) or "name" not in metadata:
            raise Malformed("doNotDeregister holds something that is not a pod")
        fields = cast("Mapping[str, object]", metadata)
        kept.add((str(fields.get("namespace", "")), str(fields["name"])))
    return frozenset(kept)


def decode(raw: bytes) -> Mapping[str, object]:
    """Read a JSON object and lower the case of its keys; ``Malformed`` says what it is instead."""
    try:
        decoded = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        looks = "an HTML page" if raw.lstrip()[:1] == b"<" else "an empty body" if not raw.strip() else "no JSON"
        raise Malformed(f"{looks} instead of a JSON object") from None
    if not isinstance(decoded, dict):
        raise Malformed("JSON that is no object")
    return {key.lower(): value for key, value in cast("dict[str, object]", decoded).items()}


def message_of(body: Mapping[str, object]) -> str:
    """Return the driver's own words on one line, short enough for an Event."""
    words = "".join(char if char.isprintable() else " " for char in str(body.get("msg") or ""))
    return " ".join(words.split())[:_LONGEST_MESSAGE]


def failure(name: str, hook: Hook, about: str, answer: Answer) -> Retry:
    """Say that a driver failed, or is not ready yet, about a whole load balancer."""
    if answer.status is Status.RUNNING:
        words = f"{name} is still at {hook} for {about}{_because(answer.message)}; it is asked again"
    else:
        words = (
            f"{name} failed {hook} for {about}{_because(answer.message)}; mend that at the driver, it is asked again"
        )
    return Retry(words, reason=f"Driver{answer.status}", after_s=answer.retry_after_s)


def _because(message: str) -> str:
    return f": {message}" if message else " and gave no reason"


def _strings(found: object, name: str) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, object]", found).values()
    ):
        raise Malformed(f"{name} is not a map of strings")
    return cast("dict[str, str]", found)
