"""The JSON bodies between Fairlead and a driver: requests are encoded, answers decoded and checked.

In: hooks and what they are about. Out: request bodies, and checked answers: an answer that is not exactly what the
protocol allows is an error, never a success. Keys are read whatever their case, as drivers written for the original
expect. Never: any input or output.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from fairlead.api.json_text import decode as decode_json
from fairlead.errors import Retry

#: The delay after Fail or Running when the driver names none.
DEFAULT_RETRY_S = 10.0
#: The longest delay that a driver may ask for.
LONGEST_RETRY_S = 3600.0
_LONGEST_MESSAGE = 500

#: What drivers write where the specification has a text or a number.
_Plain = str | int | float

Body = dict[str, object]
T = TypeVar("T")


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
    #: Ours, too: which backends are healthy. Called only when the class says ``backendHealth: "true"``.
    BACKEND_HEALTH = "backendHealth"


class DriverStatus(StrEnum):
    """What a driver may answer to a hook that is retried."""

    SUCC = "Succ"
    FAIL = "Fail"
    RUNNING = "Running"


class WebhookAnswer(msgspec.Struct, frozen=True):
    """A checked answer to a hook that is retried; ``body`` has lower-case keys."""

    status: DriverStatus
    message: str
    retry_after_s: float
    body: Mapping[str, object]

    def strings(self, name: str) -> dict[str, str]:
        """Return a map of strings, empty when it is missing; ``Malformed`` when it is something else."""
        return self._read(name, dict[str, str], "a map of strings") or {}

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings from the answer; ``Malformed`` when it is something else."""
        return self._read(name, tuple[str, ...], "a list of strings") or ()

    def text(self, name: str) -> str:
        """Return a string, empty when it is missing; ``Malformed`` when it is something else."""
        return self._read(name, str, "a string") or ""

    def _read(self, name: str, kind: type[T], expected: str) -> T | None:
        value = self.body.get(name.lower())
        return None if value is None else _converted(value, kind, f"{name} is not {expected}")


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""


class _KeptPod(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _BackendHealth(msgspec.Struct, frozen=True):
    address: str = msgspec.field(name="backendaddr")
    healthy: bool | None = None


def task_body(hook: Hook, subject: str, *, dry_run: bool, **extras: object) -> Body:
    """Build the request of a hook that is retried: the recordID of a subject stays, the retryID never does."""
    return {"recordID": f"{hook}({subject})", "retryID": str(uuid.uuid4()), "dryRun": dry_run, **extras}


def answer_from_body(body: Mapping[str, object]) -> WebhookAnswer:
    """Check the answer to a hook that is retried; ``Malformed`` says what is wrong."""
    value = body.get("status")
    shown = "no status" if value is None else f"the unknown status {str(value)[:40]!r}"
    status = _converted(value, DriverStatus, f"{shown} instead of Succ, Fail or Running")
    try:
        # The specification says string, the implementation int: both are in use.
        delay = msgspec.convert(body.get("minretrydelayinseconds", 0), _Plain)
        delay_s = min(float(delay), LONGEST_RETRY_S)
    except (msgspec.ValidationError, ValueError, OverflowError):
        raise Malformed("minRetryDelayInSeconds is not a number") from None
    if delay_s <= 0:
        delay_s = DEFAULT_RETRY_S if status is not DriverStatus.SUCC else 0.0
    return WebhookAnswer(status, message_of(body), delay_s, body)


def verdict_from_body(body: Mapping[str, object]) -> str:
    """Return why the driver refuses, empty when it agrees: the answer of a hook that is asked once.

    Raises:
        Malformed: the answer is neither.
    """
    agrees = _converted(body.get("succ"), bool, "no succ: true or false")
    return "" if agrees else message_of(body) or "the driver gave no reason"


def kept_from_body(body: Mapping[str, object]) -> frozenset[tuple[str, str]]:
    """Return (namespace, name) of the pods in ``doNotDeregister``; ``Malformed`` when there is something else."""
    pods_value = body.get("donotderegister")
    if pods_value is None:
        return frozenset()
    pods = _converted(pods_value, list[object], "doNotDeregister is not a list of pods")
    kept = [_converted(pod, _KeptPod, "doNotDeregister holds something that is not a pod") for pod in pods]
    return frozenset((pod.metadata.namespace, pod.metadata.name) for pod in kept)


def health_from_body(body: Mapping[str, object]) -> dict[str, bool | None]:
    """Return by backendAddr whether each backend in ``backends`` is healthy, None when it is not checked.

    Raises:
        Malformed: it is not a list of backends.
    """
    backends_value = body.get("backends")
    backends = _converted(
        [] if backends_value is None else backends_value, list[dict[str, object]], "backends is not a list of objects"
    )
    problem = "backends holds an entry that is not a backendAddr with healthy: true, false or null"
    read = [_converted(_lowered(backend), _BackendHealth, problem) for backend in backends]
    return {backend.address: backend.healthy for backend in read}


def decode(raw: bytes) -> Mapping[str, object]:
    """Read a JSON object and lower the case of its keys; ``Malformed`` says what it is instead."""
    try:
        decoded = decode_json(raw, object)
    except msgspec.DecodeError:
        kind = "an HTML page" if raw.lstrip()[:1] == b"<" else "an empty body" if not raw.strip() else "no JSON"
        raise Malformed(f"{kind} instead of a JSON object") from None
    fields = _converted(decoded, dict[str, object], "JSON that is not an object")
    return _lowered(fields)


def _lowered(fields: Mapping[str, object]) -> dict[str, object]:
    return {key.lower(): value for key, value in fields.items()}


def message_of(body: Mapping[str, object]) -> str:
    """Return the driver's own message on one line of at most 500 characters, as an Event needs it."""
    try:
        text = str(msgspec.convert(body.get("msg"), _Plain))
    except msgspec.ValidationError:
        text = ""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:_LONGEST_MESSAGE]


def failure(name: str, hook: Hook, about: str, answer: WebhookAnswer) -> Retry:
    """Return the error for an answer Fail or Running, with the driver's delay."""
    if answer.status is DriverStatus.RUNNING:
        sentence = f"{name} is still working on {hook} for {about}{_because(answer.message)}; the hub retries"
    else:
        sentence = (
            f"{name} failed {hook} for {about}{_because(answer.message)}; fix it at the driver; the call is retried"
        )
    return Retry(sentence, reason=f"Driver{answer.status}", after_s=answer.retry_after_s)


def _because(message: str) -> str:
    return f": {message}" if message else " and gave no reason"


def _converted(value: object, kind: type[T], problem: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise Malformed(problem) from None
