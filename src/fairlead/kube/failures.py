"""Translates HTTP answers and socket errors to Fairlead errors, with a sentence each.

In: what was asked (``Call``), and the answer or exception. Out: an error whose class says whether to try again.
Never: a credential in a sentence; only the kubeconfig's *name* of the user appears.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import aiohttp
import msgspec

from fairlead.api.json_text import decode_leniently
from fairlead.api.meta import AnyResource
from fairlead.errors import (
    AlreadyExists,
    BadConfiguration,
    Conflict,
    Expired,
    FairleadError,
    Forbidden,
    Invalid,
    NamespaceNotFound,
    NotFound,
    NotServed,
    Throttled,
    Unauthorized,
    Unreachable,
)
from fairlead.kube.config import ClusterConfig
from fairlead.model.in_words import whole_number
from fairlead.runtime.file_limit import NO_MORE_FILES, no_more_files

# What RBAC calls the verb behind our name for it.
_RBAC_VERBS = {"apply": "patch", "replace": "update", "raw": "get"}


class StatusDetails(msgspec.Struct, rename="camel", gc=False):
    """The machine-readable part of a Status."""

    name: str = ""
    group: str = ""
    kind: str = ""
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, gc=False):
    """The body of an error answer, and the object of an ERROR watch event."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


#: What an API server answers to a path that it does not know; many other servers answer the same.
_NO_SUCH_PATH = "404 page not found"
#: A server that asks for a longer pause is asked again after this one, in seconds.
LONGEST_PAUSE_S = 60.0


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request, as error messages and metrics name it."""

    config: ClusterConfig
    cluster: str
    verb: str
    resource: AnyResource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""

    @property
    def kind(self) -> str:
        """Return ``plural.group[/subresource]``, or the path of a raw request."""
        if not self.resource:
            return self.path
        return self.resource.full_name + (f"/{self.subresource}" if self.subresource else "")

    @property
    def target(self) -> str:
        """Return what the request is about, for a sentence."""
        if self.name:
            return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"
        return f'{self.kind} in namespace "{self.namespace}"' if self.namespace else self.kind

    @property
    def place(self) -> str:
        """Return the cluster's name and host."""
        return f"{self.cluster} ({host_of(self.config.server)})"

    @property
    def action(self) -> str:
        """Return verb, target and place."""
        return f"{self.verb} {self.target} at {self.place}"

    @property
    def source(self) -> str:
        """Return where the connection was configured."""
        return self.config.source or "the configured server address"


def host_of(server: str) -> str:
    """Return host and port of a URL; any other text is returned unchanged."""
    return urlsplit(server).netloc.rpartition("@")[2] or server


def parse_status(body: bytes) -> Status:
    """Return the Status in an error body; a body that is none becomes one with its beginning as message."""
    status = decode_leniently(body, Status)
    return status if status != Status() else Status(message=body[:200].decode("utf-8", "replace").strip())


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header, at most ``LONGEST_PAUSE_S``; a date counts as absent."""
    seconds = whole_number(retry_after or "")
    return None if seconds is None else min(float(seconds), LONGEST_PAUSE_S)


def error_from_answer(
    call: Call, code: int, body: bytes, *, retry_after: str | None = None, expiry: str = ""
) -> FairleadError:
    """Translate an HTTP answer of 300 or more; ``expiry`` says since when the token has expired, empty for unknown."""
    status = parse_status(body)
    after_s = seconds_of(retry_after)
    if after_s is None and status.details and status.details.retry_after_seconds:
        after_s = float(min(max(status.details.retry_after_seconds, 0), LONGEST_PAUSE_S))
    return error_from_status(call, code, status, after_s=after_s, expiry=expiry)


def error_from_status(
    call: Call, code: int, status: Status, *, after_s: float | None = None, expiry: str = ""
) -> FairleadError:
    """Translate a Status with its HTTP code."""
    message = status.message.strip().rstrip(".")
    detail = f"HTTP {code} {status.reason}: {status.message}".strip()
    if code == 401:
        user = f'user "{call.config.user}" of {call.source}' if call.config.user else call.source
        refused = f"Cannot {call.action}: the server does not accept the credentials of {user};"
        unknown = "they are unknown or expired. Sign in again, or renew that user's token or certificate."
        return Unauthorized(f"{refused} {expiry or unknown}", detail=detail)
    if code == 403 and "exceeded quota" in message:
        return Forbidden(f"Cannot {call.action}: {message}.", detail=detail)
    if code == 403 and _ADMISSION.search(message):
        return Invalid(f"Cannot {call.action}: {message}.", detail=detail)
    if code == 403:
        return Forbidden(forbidden_sentence(call, message), detail=detail)
    if code == 404:
        return _missing(call, status, message, detail)
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists(f"Cannot {call.action}: it exists already.", detail=detail)
    if code == 409:
        return Conflict(
            f"Cannot {call.action}: it was changed meanwhile, or another manager owns one of its fields"
            f" ({message or 'conflict'}). It is read again and retried.",
            detail=detail,
            after_s=after_s,
        )
    if code == 410 or status.reason in {"Expired", "Gone"}:
        return Expired(
            f"Cannot {call.action} from the last resourceVersion: it has expired (410). Listing again.",
            detail=detail,
            after_s=after_s,
        )
    if code == 429:
        return Throttled(
            f"Cannot {call.action} now: the server asked us to slow down; retried"
            + (f" in {after_s:g} s." if after_s else " shortly."),
            detail=detail,
            after_s=after_s,
        )
    if code >= 500 or code == 408:
        return Unreachable(
            f"Cannot {call.action}: the server answered {code} ({message or 'no reason given'}). Retrying.",
            detail=detail,
            after_s=after_s,
        )
    if code < 400:
        return BadConfiguration(
            f"Cannot {call.action}: the server answers with a redirect ({code}), so it is not a Kubernetes API."
            f" Check the server address in {call.source}.",
            detail=detail,
        )
    return Invalid(f"Cannot {call.action}: {message or f'the server answered {code}'}.", detail=detail)


#: How admission answers 403, which concerns the object: a webhook, a policy, Pod Security. Authorization names a user.
_ADMISSION = re.compile(
    r'^admission webhook "[^"]*" denied the request|\bValidatingAdmissionPolicy \S+ with binding \S+ denied request'
    r"|\bviolates PodSecurity"
)


def forbidden_sentence(call: Call, message: str = "", *, verbs: Sequence[str] = ()) -> str:
    """Say which right is missing, as an RBAC rule names it; ``verbs``: all missing ones of several calls."""
    if not call.resource:
        return (
            f'Cannot {call.action}: {_user_text(call)} lacks the right to "{call.verb}" {call.path}. {message}'.strip()
        )
    rights = ", ".join(f'"{_RBAC_VERBS.get(verb, verb)}"' for verb in verbs or (call.verb,))
    action = (
        call.action.replace(call.verb, " and ".join([", ".join(verbs[:-1]), verbs[-1]]), 1)
        if verbs[1:]
        else call.action
    )
    where = f'in namespace "{call.namespace}"' if call.namespace else "in all namespaces (a ClusterRole)"
    if not call.resource.namespaced:
        where = "(a ClusterRole)"
    plural = call.resource.plural + (f"/{call.subresource}" if call.subresource else "")
    return (
        f"Cannot {action}: {_user_text(call)} lacks the right to {rights} {call.kind} {where}. Grant the RBAC rule"
        f' apiGroups: ["{call.resource.group}"], resources: ["{plural}"], verbs: [{rights}].'
    )


def _user_text(call: Call) -> str:
    return f'user "{call.config.user}"' if call.config.user else "our identity"


def _missing(call: Call, status: Status, message: str, detail: str) -> FairleadError:
    """Translate a 404. Only a Status of the API server that names an object says that the object is missing."""
    details = status.details or StatusDetails()
    is_status = status.kind == "Status" and status.reason == "NotFound"
    if is_status and _is_about(call, details):
        return NotFound(f"Cannot {call.action}: there is no such object.", detail=detail)
    if is_status and details.kind.lower() in {"namespaces", "namespace"} and details.name == call.namespace != "":
        return NamespaceNotFound(
            f'Cannot {call.action}: namespace "{details.name}" does not exist. Create it first.', detail=detail
        )
    if (is_status and not details.name) or (not status.kind and status.message == _NO_SUCH_PATH):
        what = f"{call.resource.kind} in {call.resource.api_version}" if call.resource else call.path
        if call.subresource:
            what = f"the subresource {call.subresource} of {what}"
        return NotServed(
            f"Cannot {call.action}: the server does not serve {what}. Install its CustomResourceDefinition, or upgrade"
            " that cluster.",
            detail=detail,
        )
    return no_api_answer(call, f"a 404 that does not name the object ({message or 'no reason given'})", detail=detail)


def _is_about(call: Call, details: StatusDetails) -> bool:
    """Return whether the details of a Status name the object of the request."""
    if not details.name or not details.kind:
        return False
    if call.resource is None:
        return f"/{call.path}".endswith(f"/{details.kind}/{details.name}")
    # Kubernetes has the plural there; some API servers behind its aggregation layer have the kind.
    kinds = {call.resource.plural, call.resource.kind.lower()}
    return details.name == call.name and details.kind.lower() in kinds and details.group in ("", call.resource.group)


def error_from_exception(call: Call, error: BaseException) -> FairleadError:
    """Translate what aiohttp and the operating system raise when there was no usable answer."""
    host = host_of(call.config.server)
    detail = f"{type(error).__name__}: {error}"
    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            why = f"the certificate of {host} is not one that {call.source} trusts"
            step = "Check certificate-authority and tls-server-name there."
        case aiohttp.ClientSSLError() | ssl.SSLError():
            why = f"the TLS handshake with {host} failed"
            step = f"Check that {call.source} names an https address, and its client certificate."
        case aiohttp.ClientConnectorDNSError():
            why = f"the host name in {host} cannot be resolved"
            step = f"Check the server address in {call.source}."
        case aiohttp.ClientProxyConnectionError():
            why = f"the proxy {host_of(call.config.proxy)} cannot be reached"
            step = f"Check proxy-url in {call.source}."
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            why = f"{host} refuses connections"
            step = f"Is the API server running, and is its address in {call.source} right?"
        case _ if no_more_files(error):
            why, step = NO_MORE_FILES, "Retrying."
        case aiohttp.ClientConnectorError():
            why = f"no connection to {host}"
            step = f"Check the network and the server address in {call.source}."
        case asyncio.TimeoutError() | TimeoutError():
            why = f"{host} did not answer in time"
            step = "The server may be overloaded, or a firewall may drop packets."
        case aiohttp.InvalidURL():
            return BadConfiguration(
                f'Cannot {call.action}: "{call.config.server}" is not a valid server address.'
                f" Correct the address in {call.source}.",
                detail=detail,
            )
        case _:
            why = f"the connection to {host} broke"
            step = "Retrying."
    return Unreachable(f"Cannot {call.action}: {why}. {step}", detail=detail)


def invalid_object(call: Call, problem: str) -> Invalid:
    """Return the error for an object that the server has and that does not have the shape of its kind."""
    return Invalid(f"Cannot {call.action}: the object does not have the expected shape ({problem}).")


def no_api_answer(call: Call, what: str, *, detail: str = "") -> Unreachable:
    """Return the error for an answer that no API server gives: what is between says nothing of any object."""
    return Unreachable(
        f"Cannot {call.action}: {host_of(call.config.server)} answered with {what}. Is there a proxy or a login page in"
        f" between? Check the server address in {call.source}.",
        detail=detail,
    )
