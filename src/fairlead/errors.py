"""The errors of Fairlead. The class of an error is its retry class.

    FairleadError
    ├── Retry      may work the next time: back off (honouring ``after_s``) and try again
    ├── Wait       nothing to retry: something else must happen first, and will wake us
    ├── Terminal   refused: report it to the user, and try again slowly (up to five minutes apart)
    └── Bug        our own mistake: loud in the log, retried slowly, never blamed on the user

Every error carries two strings: ``sentence``, for the person whose object it is (names the object, the field
and the next step), and ``detail``, for the operator who reads logs. Neither ever holds a secret.

Adapters translate library errors at their door; the pure core returns reasons and raises only ``Bug``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast


class FairleadError(Exception):
    """The root of every error raised on purpose.

    ``reason`` is a PascalCase word fit for a Kubernetes condition or Event. Only a ``Retry`` may have ``after_s``.
    """

    after_s: float | None = None

    def __init__(self, sentence: str, *, detail: str = "", reason: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.detail = detail
        self.reason = reason or type(self).__name__

    def __str__(self) -> str:
        return f"{self.sentence} ({self.detail})" if self.detail else self.sentence


class Retry(FairleadError):
    """May work the next time; ``after_s`` is the least time to wait, in seconds, when the other side named one."""

    def __init__(self, sentence: str, *, detail: str = "", reason: str = "", after_s: float | None = None) -> None:
        super().__init__(sentence, detail=detail, reason=reason)
        self.after_s = after_s


class Wait(FairleadError):
    """Not to be retried: the key is enqueued again when the missing object appears."""


class Terminal(FairleadError):
    """Refused until the user or the operator changes something, perhaps where no watch shows it."""


class Bug(FairleadError):
    """An error in Fairlead itself: logged with a traceback, retried slowly."""


# --- Kubernetes API (raised by kube/ only) --------------------------------------------------------------------


class Unreachable(Retry):
    """The API server did not answer: connection refused, time out, broken stream, 5xx."""


class Quiet(Unreachable):
    """A stream brought nothing for as long as one may be silent: its link is dead, or nothing has changed there."""


class Throttled(Retry):
    """429: the API server asked us to wait ``after_s`` seconds."""


class Conflict(Retry):
    """409: the object was changed meanwhile, or another manager owns the field that we wanted to write."""


class Expired(Retry):
    """410: the resourceVersion (or continue token) is too old; list again."""


class NotFound(Terminal):
    """404 in which the API server names the object that was asked for: there is no such object."""


class NamespaceNotFound(Terminal):
    """404 or 403 for a write: the object's namespace does not exist or is being deleted; the object is not known."""


class NotServed(Terminal):
    """404 that names no object: the API server does not serve the path, hence not the kind; no object is gone."""


class NotRead(Retry):
    """An object exists, and its state cannot be decoded: what depends on it cannot be decided."""


class AlreadyExists(Terminal):
    """409 AlreadyExists on create."""


class Forbidden(Terminal):
    """403: our identity may not do this; the sentence names verb, resource and namespace."""


class Unauthorized(Terminal):
    """401: the credentials are unknown or expired."""


class Invalid(Terminal):
    """422, 400 or an admission's 403: the content of the object was refused; the sentence is the server's."""


class BadConfiguration(Terminal):
    """A flag, a kubeconfig, an address pool or a file on disk is missing or wrong."""


def first_of(error: BaseException) -> BaseException:
    """Return ``error``; of a (nested) group of tasks, the error that says most: ours before those of libraries."""
    errors = list(_leaves(error))
    return next((error for error in errors if isinstance(error, FairleadError)), errors[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(part)
    else:
        yield error
