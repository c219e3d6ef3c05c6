"""Refusals: one exception that becomes a Kubernetes ``Status``.

Out: the messages, reasons and causes that kubectl and client libraries know. Messages never hold a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from fairlead.apiserver.objects import Obj, encode

#: What one refusal says at most: the number of its causes, and the characters of one text and of one value in it.
MAX_CAUSES, MAX_TEXT, MAX_SHOWN = 100, 2_000, 250


def clipped(text: str, limit: int = MAX_TEXT) -> str:
    """Return ``text``, cut where it is longer than a person reads."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong with one field; ``field`` is a path such as ``spec.ports[0].port``."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return clipped(f"{self.field}: {self.message}" if self.field else self.message)


class EnoughCauses(Exception):
    """There are as many causes as one refusal lists."""


class Causes(list[Cause]):
    """Causes, up to ``MAX_CAUSES``: then ``EnoughCauses`` ends the search for more."""

    def append(self, cause: Cause, /) -> None:
        """Add one more."""
        super().append(cause)
        self._check()

    def __iadd__(self, causes: Iterable[Cause], /) -> Self:
        self.extend(causes)
        self._check()
        return self

    def _check(self) -> None:
        if len(self) >= MAX_CAUSES:
            del self[MAX_CAUSES:]
            raise EnoughCauses


class ApiFailure(Exception):
    """A request that is refused: carries what the ``Status`` answer needs."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Obj | None = None,
        causes: list[Cause] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Obj = details or {}
        self.retry_after_s = retry_after_s
        if causes:
            self.details["causes"] = [
                {"reason": c.reason, "message": clipped(c.message), "field": clipped(c.field)}
                for c in causes[:MAX_CAUSES]
            ]
        if retry_after_s is not None:
            self.details["retryAfterSeconds"] = retry_after_s

    def status(self) -> Obj:
        """Return the ``Status`` object."""
        body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        return body | {"code": self.code}


class NoSuchPath(ApiFailure):
    """There is no such kind or path."""


def _about(resource: str, group: str, name: str, *, kind: str = "") -> Obj:
    details: Obj = {"name": name} if name else {}
    if group:
        details["group"] = group
    return details | {"kind": kind or resource}


def qualified(resource: str, group: str) -> str:
    """Return ``deployments.apps`` or ``services``."""
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, group: str, name: str) -> ApiFailure:
    """404: there is no such object."""
    message = f'{qualified(resource, group)} "{name}" not found'
    return ApiFailure(404, "NotFound", message, details=_about(resource, group, name))


def no_such_path() -> ApiFailure:
    """404: there is no such kind or path."""
    return NoSuchPath(404, "NotFound", "the server could not find the requested resource")


def not_allowed() -> ApiFailure:
    """405: the resource does not do this."""
    return ApiFailure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def already_exists(resource: str, group: str, name: str) -> ApiFailure:
    """409: the name is taken."""
    message = f'{qualified(resource, group)} "{name}" already exists'
    return ApiFailure(409, "AlreadyExists", message, details=_about(resource, group, name))


def conflict(resource: str, group: str, name: str, why: str) -> ApiFailure:
    """409: the object is not in the state that the writer expects."""
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return ApiFailure(409, "Conflict", message, details=_about(resource, group, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> ApiFailure:
    """422: the content is wrong; every cause names its field."""
    unique = list(dict.fromkeys(causes))[:MAX_CAUSES]
    text = str(unique[0]) if len(unique) == 1 else "[" + ", ".join(str(cause) for cause in unique) + "]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {text}'
    return ApiFailure(422, "Invalid", message, details=_about(kind, group, name), causes=unique)


def bad_request(message: str) -> ApiFailure:
    """400: the request itself makes no sense."""
    return ApiFailure(400, "BadRequest", message)


def forbidden(resource: str, group: str, name: str, why: str) -> ApiFailure:
    """403: the identity may not do this."""
    subject = f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)
    return ApiFailure(403, "Forbidden", f"{subject} is forbidden: {why}", details=_about(resource, group, name))


def unauthorized() -> ApiFailure:
    """401: no or unknown credentials."""
    return ApiFailure(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> ApiFailure:
    """410: the resourceVersion or continue token is too old."""
    return ApiFailure(410, "Expired", message)


def unsupported_media_type(got: str) -> ApiFailure:
    """415: the body is in a format that we do not read."""
    message = f"the body of the request was in an unknown format - accepted media types do not include {got!r}"
    return ApiFailure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)


def too_large(limit_bytes: int, what: str = "") -> ApiFailure:
    """413: the body is larger than the server reads, or would make an object larger than it stores."""
    message = f"Request entity too large: limit is {limit_bytes}" + (f" {what}" if what else "")
    return ApiFailure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)


def shown(value: Any) -> str:
    """Return a value as it stands in a message: JSON for scalars, the type's name for the rest."""
    if isinstance(value, dict):
        return '"object"'
    if isinstance(value, list):
        return '"array"'
    return clipped(encode(value).decode(), MAX_SHOWN)


def wrong(field: str, value: Any, why: str) -> Cause:
    """Return the cause for a value that is not legal."""
    return Cause("FieldValueInvalid", f"Invalid value: {shown(value)}: {why}", field)


def missing(field: str, why: str = "") -> Cause:
    """Return the cause for a field that must be there."""
    return Cause("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def denied(field: str, why: str) -> Cause:
    """Return the cause for a field that may not be set here."""
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def duplicate(field: str, value: Any) -> Cause:
    """Return the cause for a value that may be there only once."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {clipped(encode(value).decode(), MAX_SHOWN)}", field)


def too_many(field: str, size: int, limit: int) -> list[Cause]:
    """Return the cause for a list or mapping of ``size`` items, where there may be ``limit``."""
    message = f"Too many: {size}: must have at most {limit} items"
    return [Cause("FieldValueTooMany", message, field)] if size > limit else []


def too_long(field: str, size: int, limit: int) -> list[Cause]:
    """Return the cause for a text of ``size``, where it may be ``limit``."""
    return [Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)] if size > limit else []


def unsupported(field: str, value: Any, allowed: list[Any]) -> Cause:
    """Return the cause for a value outside its enumeration."""
    listed = ", ".join(encode(item).decode() for item in allowed)
    message = f"Unsupported value: {shown(value)}: supported values: {listed}"
    return Cause("FieldValueNotSupported", message, field)


def immutable(field: str, value: Any) -> Cause:
    """Return the cause for a field that may not change."""
    return wrong(field, value, "field is immutable")
