"""Refusals: one exception that becomes a Kubernetes ``Status``.

Out: the messages, reasons and causes that kubectl and client libraries know. Messages never hold a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from podless.objects import Obj, encode

#: Limits of one error response: the number of causes, and the characters of one message and of one value in it.
MAX_CAUSES, MAX_TEXT, MAX_SHOWN = 100, 2_000, 250


def clipped(text: str, limit: int = MAX_TEXT) -> str:
    """Return ``text``, cut to ``limit`` characters with a note of its length."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of a Status: what is wrong with one field, a path such as ``spec.ports[0].port``."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return clipped(f"{self.field}: {self.message}" if self.field else self.message)


class EnoughCauses(Exception):
    """Raised when ``MAX_CAUSES`` causes have been collected."""


class Causes(list[Cause]):
    """A list of up to ``MAX_CAUSES`` causes; adding another one raises ``EnoughCauses``, which ends the validation."""

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


class ConfigurationError(Exception):
    """The server cannot start: a directory, an address or an option is invalid; ``sentence`` names the next step."""

    def __init__(self, sentence: str, *, detail: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.sentence} ({self.detail})" if self.detail else self.sentence


class NoSuchPath(ApiFailure):
    """404 for a path that is not served, or a resource of an unknown kind."""


def _about(resource: str, group: str, name: str, *, kind: str = "") -> Obj:
    details: Obj = {"name": name} if name else {}
    if group:
        details["group"] = group
    return details | {"kind": kind or resource}


def qualified(resource: str, group: str) -> str:
    """Return ``deployments.apps`` or ``services``."""
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, group: str, name: str) -> ApiFailure:
    """Return 404: the object does not exist."""
    message = f'{qualified(resource, group)} "{name}" not found'
    return ApiFailure(404, "NotFound", message, details=_about(resource, group, name))


def no_such_path() -> ApiFailure:
    """Return 404: the server does not serve this path or resource."""
    return NoSuchPath(404, "NotFound", "the server could not find the requested resource")


def not_allowed() -> ApiFailure:
    """Return 405: the resource does not support this method."""
    return ApiFailure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def already_exists(resource: str, group: str, name: str) -> ApiFailure:
    """Return 409: an object of this name exists."""
    message = f'{qualified(resource, group)} "{name}" already exists'
    return ApiFailure(409, "AlreadyExists", message, details=_about(resource, group, name))


def conflict(resource: str, group: str, name: str, why: str) -> ApiFailure:
    """Return 409: the object is not in the state that the writer expects."""
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return ApiFailure(409, "Conflict", message, details=_about(resource, group, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> ApiFailure:
    """Return 422: the object is invalid; every cause names its field."""
    unique = list(dict.fromkeys(causes))[:MAX_CAUSES]
    text = str(unique[0]) if len(unique) == 1 else "[" + ", ".join(str(cause) for cause in unique) + "]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {text}'
    return ApiFailure(422, "Invalid", message, details=_about(kind, group, name), causes=unique)


def bad_request(message: str) -> ApiFailure:
    """Return 400: the request cannot be understood."""
    return ApiFailure(400, "BadRequest", message)


def forbidden(resource: str, group: str, name: str, why: str) -> ApiFailure:
    """Return 403: the user may not do this."""
    subject = f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)
    return ApiFailure(403, "Forbidden", f"{subject} is forbidden: {why}", details=_about(resource, group, name))


def unauthorized() -> ApiFailure:
    """Return 401: no credentials, or unknown ones."""
    return ApiFailure(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> ApiFailure:
    """Return 410: the resourceVersion or continue token has expired."""
    return ApiFailure(410, "Expired", message)


def unsupported_media_type(media: str) -> ApiFailure:
    """Return 415: the media type of the body is not supported."""
    message = f"the body of the request was in an unknown format - accepted media types do not include {media!r}"
    return ApiFailure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)


def too_large(limit_bytes: int, unit: str = "") -> ApiFailure:
    """Return 413: the body, or the object that it results in, exceeds ``limit_bytes`` (or another ``unit``)."""
    message = f"Request entity too large: limit is {limit_bytes}" + (f" {unit}" if unit else "")
    return ApiFailure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)


def display_text(value: Any) -> str:
    """Return a value as messages show it: JSON for scalars, the type's name for others."""
    if isinstance(value, dict):
        return '"object"'
    if isinstance(value, list):
        return '"array"'
    return clipped(encode(value).decode(), MAX_SHOWN)


def invalid_value(field: str, value: Any, why: str) -> Cause:
    """Return the cause for an invalid value."""
    return Cause("FieldValueInvalid", f"Invalid value: {display_text(value)}: {why}", field)


def required_value(field: str, why: str = "") -> Cause:
    """Return the cause for a required field that is missing."""
    return Cause("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def forbidden_field(field: str, why: str) -> Cause:
    """Return the cause for a field that may not be set here."""
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def duplicate_value(field: str, value: Any) -> Cause:
    """Return the cause for a value that must be unique and is not."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {clipped(encode(value).decode(), MAX_SHOWN)}", field)


def too_many(field: str, size: int, limit: int) -> list[Cause]:
    """Return the cause for a list or mapping with ``size`` items where at most ``limit`` are allowed."""
    message = f"Too many: {size}: must have at most {limit} items"
    return [Cause("FieldValueTooMany", message, field)] if size > limit else []


def too_long(field: str, size: int, limit: int) -> list[Cause]:
    """Return the cause for a string of ``size`` bytes where at most ``limit`` are allowed."""
    return [Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)] if size > limit else []


def unsupported_value(field: str, value: Any, allowed: list[Any]) -> Cause:
    """Return the cause for a value outside its enumeration."""
    values_text = ", ".join(encode(item).decode() for item in allowed)
    message = f"Unsupported value: {display_text(value)}: supported values: {values_text}"
    return Cause("FieldValueNotSupported", message, field)


def immutable_field(field: str, value: Any) -> Cause:
    """Return the cause for a change of an immutable field."""
    return invalid_value(field, value, "field is immutable")
