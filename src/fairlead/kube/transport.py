"""Requests to a cluster over HTTP: sign-in, rate limit, bounded retries, frames, metrics and the server's clock.

In: a ``Call`` and what goes over the wire. Out: the bytes of a 2xx answer, or an open stream, or a Fairlead error.
Never: decodes objects, retries what might have been done and must not be done twice, or reads an answer that is larger
than any that an API server gives.

Who is retried here, within one deadline:
    429, and 5xx with Retry-After   every call: the server says that it has done nothing
    connection never opened         every call
    5xx, broken connection          idempotent calls only
    401                             once, with fresh credentials

The class of an error says whether to try again. Its sentence has no credential, only the kubeconfig's *name* of the
user appears.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from json import JSONDecoder
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import yarl
from prometheus_client import CollectorRegistry, Counter

from fairlead.api.json_text import decode_leniently
from fairlead.api.kubernetes import LEASES
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
    Quiet,
    Retry,
    Throttled,
    Unauthorized,
    Unreachable,
)
from fairlead.kube.config import Access, ClusterConfig, expired_since
from fairlead.model.in_words import whole_number
from fairlead.runtime.clock import Clock, wait_for
from fairlead.runtime.file_limit import NO_MORE_FILES, no_more_files
from fairlead.runtime.queue import TokenBucket, backoff_s

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
    if 400 <= code < 429 and _ADMISSION.search(message):
        return Invalid(f"Cannot {call.action}: {message}.", detail=detail)
    if code == 401:
        user = f'user "{call.config.user}" of {call.source}' if call.config.user else call.source
        refused = f"Cannot {call.action}: the server does not accept the credentials of {user};"
        unknown = "they are unknown or expired. Sign in again, or renew that user's token or certificate."
        return Unauthorized(f"{refused} {expiry or unknown}", detail=detail)
    if code == 403 and "exceeded quota" in message:
        return Forbidden(f"Cannot {call.action}: {message}.", detail=detail)
    if code == 403 and _TERMINATING in message:
        return NamespaceNotFound(f'Cannot {call.action}: namespace "{call.namespace}" is being deleted.', detail=detail)
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


#: How admission answers 403 to a create in a namespace that is being deleted, whatever the rights.
_TERMINATING = "because it is being terminated"
#: How admission rejects an object: a webhook (with any code), a policy, Pod Security. Authorization names a user.
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


#: An attempt that was waited for has at least so long.
_SHORTEST_S = 1.0
_CONNECTIONS, _LEASE_CONNECTIONS = 64, 8
#: The largest answer about many objects: a page of 500 objects of the largest size that etcd takes has 750 MiB.
ANSWER_LIMIT_BYTES = 2**30
#: The largest state of one kind, over all pages of a list or the events of a stream: etcd stores 2 GiB by default.
STATE_LIMIT_BYTES = 2**31
#: What a page of a list counts at least: pages without objects that never end are limited, too.
PAGE_BYTES = 2**16
#: The largest answer that says why a request failed: the object that it quotes has at most so much.
ERROR_LIMIT_BYTES = 2 * 2**20
_MUTATING = {"POST", "PUT", "PATCH", "DELETE"}
#: URLs that are kept: most requests are for the same few objects, and parsing costs as much as sending.
_URLS = 1000


class StateSize:
    """Counts the parts of the state of one kind, so that no server fills the memory with parts without end.

    The parts are pages and chunks, or the objects that events have brought since: of these the last version counts.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._size_bytes = 0
        self._objects: dict[Hashable, int] = {}

    def add(self, size_bytes: int) -> None:
        """Count one page, or one chunk of a stream.

        Raises:
            Unreachable: the state is larger than any of an API server.
        """
        self._size_bytes += size_bytes
        if self._size_bytes > STATE_LIMIT_BYTES:
            raise no_api_answer(self._call, f"more than {STATE_LIMIT_BYTES >> 20} MiB")

    def put(self, key: Hashable, size_bytes: int) -> None:
        """Count an object; raises as ``add``."""
        before = self._objects.get(key, 0)
        self._objects[key] = size_bytes
        self.add(size_bytes - before)

    def remove(self, key: Hashable) -> None:
        """Count an object no longer."""
        self._size_bytes -= self._objects.pop(key, 0)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """The time that one call may take; the deadline covers all attempts and the waits between them."""

    attempts: int = 5
    base_s: float = 0.1
    limit_s: float = 5.0
    deadline_s: float = 60.0
    connect_s: float = 10.0
    read_s: float = 30.0


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An HTTP request as it is sent."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    idempotent: bool = True
    review: bool = False  # a POST that asks something and changes nothing


@dataclass(frozen=True, kw_only=True)
class _Failed:
    error: FairleadError
    certainly_not_done: bool


class Transport:
    """The connections to one cluster; opened at the first request."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        name: str,
        limiter: TokenBucket,
        clock: Clock,
        metrics: KubeMetrics,
        policy: RetryPolicy,
    ) -> None:
        self.config = config
        self.name = name
        self.writes = 0
        #: When an answer came last, in the clock's monotonic seconds; at first, when this was made.
        self.answered_at_s = clock.monotonic()
        self.server_clock = ServerClock(clock)
        self.reachable = Reachability(clock)
        self._limiter = limiter
        self._clock = clock
        self._metrics = metrics
        self._policy = policy
        self._base = yarl.URL(config.server.rstrip("/"))
        self._urls: dict[str, yarl.URL] = {}
        self._session: aiohttp.ClientSession | None = None
        self._leases: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._closed = False

    async def aclose(self) -> None:
        """Close every connection; streams end at once."""
        self._closed = True
        for session in (self._session, self._leases, self._streams):
            if session:
                await session.close()
        self._session = self._leases = self._streams = None

    async def call(self, call: Call, request: HttpRequest) -> bytes:
        """Return the body of the 2xx answer.

        Raises:
            FairleadError: as its class says.
        """
        access = await self._sign_in(call, None)
        # Waiting for the first turn says nothing of the server: its time begins afterwards.
        await self._turn(call)
        deadline_s = self._clock.monotonic() + self._policy.deadline_s
        failures, renewed = 0, False
        while True:
            limit_s = max(deadline_s - self._clock.monotonic(), _SHORTEST_S)
            answer = await self._attempt(call, request, access, limit_s=limit_s)
            if isinstance(answer, bytes):
                if request.method in _MUTATING and not request.review:
                    self.writes += 1
                return answer
            if isinstance(answer.error, Unauthorized) and not renewed:
                renewed = True
                fresh = await self._sign_in(call, access)
                if fresh is not access:
                    access = fresh
                    await self._turn(call)
                    continue
            failures += 1
            wait_s = self._wait_s(request, answer, failures)
            if wait_s is None or self._clock.monotonic() + wait_s >= deadline_s:
                raise answer.error
            await self._clock.sleep(wait_s)
            access = await self._sign_in(call, None)
            await self._turn(call)

    async def _turn(self, call: Call) -> None:
        """Wait for the turn of a request; a lease does not wait, as others would lead if it were late."""
        if not _is_lease(call):
            await self._limiter.acquire()

    def _wait_s(self, request: HttpRequest, failed: _Failed, failures: int) -> float | None:
        """Return how long to wait before the next attempt, or None when there must not be one."""
        if not isinstance(failed.error, Throttled | Unreachable) or failures >= self._policy.attempts:
            return None
        if not (request.idempotent or failed.certainly_not_done):
            return None
        pause_s = backoff_s(failures, base_s=self._policy.base_s, limit_s=self._policy.limit_s)
        return max(pause_s, failed.error.after_s or 0.0)

    async def _attempt(self, call: Call, request: HttpRequest, access: Access, *, limit_s: float) -> bytes | _Failed:
        headers = self._headers(access)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        asked_s = self._clock.monotonic()
        try:
            async with self._calls(call).request(
                request.method,
                self._url(request.path),
                params=request.params,
                data=request.body,
                headers=headers,
                ssl=access.ssl if access.ssl is not None else True,
                server_hostname=self.config.tls_server_name or None,
                proxy=self.config.proxy or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=limit_s, sock_connect=self._policy.connect_s, sock_read=self._policy.read_s
                ),
            ) as answer:
                self._count(call, str(answer.status))
                body = await self._body(call, answer)
                if (page := self._page(call, answer)) is not None:
                    return _Failed(error=page, certainly_not_done=False)
                self.answered_at_s = self._clock.monotonic()
                self.server_clock.follow(answer.headers.get("Date"), asked_s=asked_s)
                if answer.status < 300:
                    self.reachable.answered()
                    return body
                retry_after = answer.headers.get("Retry-After")
                expiry = self._expiry(access)
                error = error_from_answer(call, answer.status, body, retry_after=retry_after, expiry=expiry)
                if isinstance(error, Unreachable):
                    self.reachable.failed()
                done_nothing = answer.status == 429 or (answer.status >= 500 and retry_after is not None)
                return _Failed(error=error, certainly_not_done=done_nothing)
        except Unreachable as error:
            return _Failed(error=error, certainly_not_done=False)
        except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError) as error:
            self._count(call, "error")
            self.reachable.failed()
            never_sent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
            return _Failed(error=error_from_exception(call, error), certainly_not_done=never_sent)

    @asynccontextmanager
    async def stream(self, call: Call, request: HttpRequest, *, idle_s: float) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a stream of chunks that breaks after ``idle_s`` of silence; it is never retried here.

        Raises:
            FairleadError: on opening, and from the iterator when the stream breaks.
        """
        access = await self._sign_in(call, None)
        await self._limiter.acquire()
        answer = await self._open(call, request, access, idle_s)
        if answer.status == 401:
            fresh = await self._sign_in(call, access)
            if fresh is not access:
                access = fresh
                _abandon(answer)
                await self._limiter.acquire()
                answer = await self._open(call, request, access, idle_s)
        try:
            if (page := self._page(call, answer)) is not None:
                raise page
            if answer.status >= 300:
                try:
                    async with asyncio.timeout(self._policy.deadline_s):
                        body = await self._body(call, answer)
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    raise error_from_exception(call, error) from error
                retry_after, expiry = answer.headers.get("Retry-After"), self._expiry(access)
                raise error_from_answer(call, answer.status, body, retry_after=retry_after, expiry=expiry)
            yield self._chunks(call, answer)
        finally:
            _abandon(answer)

    async def _open(self, call: Call, request: HttpRequest, access: Access, idle_s: float) -> aiohttp.ClientResponse:
        # Streams have their own pool: they live for minutes and must not use up the connections of the calls.
        if self._streams is None:
            self._refuse_if_closed()
            self._streams = aiohttp.ClientSession(
                # One that was refused, or has ended, leaves its connection to the next: a handshake costs both sides.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=5),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=2**18,
            )
        session = self._streams
        asked_s = self._clock.monotonic()
        try:
            answer = await session.request(
                request.method,
                self._url(request.path),
                params=request.params,
                headers=self._headers(access),
                ssl=access.ssl if access.ssl is not None else True,
                server_hostname=self.config.tls_server_name or None,
                proxy=self.config.proxy or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._policy.connect_s, sock_read=idle_s),
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError) as error:
            self._count(call, "error")
            self.reachable.failed()
            raise error_from_exception(call, error) from error
        self._count(call, str(answer.status))
        if not _is_page(answer):
            self.server_clock.follow(answer.headers.get("Date"), asked_s=asked_s)
            if answer.status < 300:
                self.reachable.answered()
            elif answer.status >= 500:
                self.reachable.failed()
        return answer

    def _page(self, call: Call, answer: aiohttp.ClientResponse) -> FairleadError | None:
        """Return the error for a page of HTML, whatever its status: the API server itself has not answered."""
        if not _is_page(answer):
            return None
        self.reachable.failed()
        return no_api_answer(call, f"a page of HTML ({answer.status})")

    async def _body(self, call: Call, answer: aiohttp.ClientResponse) -> bytes:
        """Return the whole body.

        Raises:
            Unreachable: it is larger than any answer of an API server.
        """
        limit_bytes = LINE_LIMIT_BYTES if call.name else ANSWER_LIMIT_BYTES
        if answer.status >= 300:
            limit_bytes = ERROR_LIMIT_BYTES
        body = bytearray()
        while chunk := await answer.content.readany():
            body += chunk
            if len(body) > limit_bytes:
                self.reachable.failed()
                raise no_api_answer(call, f"more than {limit_bytes >> 20} MiB")
        return bytes(body)

    async def _chunks(self, call: Call, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        content = answer.content
        while True:
            try:
                chunk = await content.readany()
            except aiohttp.SocketTimeoutError as error:
                raise Quiet(f"Cannot {call.action}: the stream is silent.", detail=str(error)) from error
            except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError) as error:
                self.reachable.failed()
                raise error_from_exception(call, error) from error
            if not chunk:
                return
            yield chunk

    async def _sign_in(self, call: Call, refused: Access | None) -> Access:
        try:
            return await self.config.sign_in(refused)
        except Retry as error:
            raise Unreachable(f"Cannot {call.action}: {error.sentence}", detail=error.detail) from error

    def _expiry(self, access: Access) -> str:
        token = access.headers.get("Authorization", "").removeprefix("Bearer ")
        return expired_since(token, self.server_clock.now())

    def _headers(self, access: Access) -> dict[str, str]:
        return {"Accept": "application/json", "User-Agent": "fairlead", **access.headers}

    def _url(self, path: str) -> yarl.URL:
        # The server address may have a path of its own, as behind Rancher or an API gateway.
        if (url := self._urls.get(path)) is None:
            if len(self._urls) >= _URLS:
                self._urls.clear()
            url = self._urls[path] = self._base.with_path(self._base.path.rstrip("/") + path)
        return url

    def _count(self, call: Call, code: str) -> None:
        resource = call.resource.full_name if call.resource else "raw"
        self._metrics.requests.labels(self.name, call.verb, resource, code).inc()

    def _calls(self, call: Call) -> aiohttp.ClientSession:
        # Leases have their own pool: writes that hang, at a slow webhook, must not keep them from their connection.
        if _is_lease(call):
            if self._leases is None:
                self._leases = self._new_session(_LEASE_CONNECTIONS)
            return self._leases
        if self._session is None:
            self._session = self._new_session(_CONNECTIONS)
        return self._session

    def _new_session(self, connections: int) -> aiohttp.ClientSession:
        self._refuse_if_closed()
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=60), cookie_jar=aiohttp.DummyCookieJar()
        )

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Unreachable(f"The connection to cluster {self.name} has been closed.")


def _is_lease(call: Call) -> bool:
    resource = call.resource
    return resource is not None and resource.plural == LEASES.plural and resource.group == LEASES.group


def _is_page(answer: aiohttp.ClientResponse) -> bool:
    # A redirect has a page, too. A login page with 401 is a token that has expired, 429 asks to wait.
    # The library's own property parses all parameters, which takes tens of milliseconds for a long header.
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return media_type == "text/html" and not (300 <= answer.status < 400 or answer.status in (401, 429))


def _abandon(answer: aiohttp.ClientResponse) -> None:
    """Drop a stream at once: its body has no end to wait for, and a TLS goodbye may wait for a dead peer."""
    connection = answer.connection
    if connection and connection.transport:
        connection.transport.abort()
    answer.close()


#: A server that has not answered for so long, in seconds, was away.
LOST_S = 2.0


class Reachability:
    """Tracks whether a server answers, by the results of requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_s: float | None = None
        self._back = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []
        #: How often it has come back.
        self.returns = 0

    def on_back(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the server answers again after it was away; it must not block or raise."""
        self._callbacks.append(callback)

    def failed(self) -> None:
        """Note that a request was not answered, or that a stream broke."""
        if self._lost_s is None:
            self._lost_s = self._clock.monotonic()

    def answered(self) -> None:
        """Note that a request was answered as it should be."""
        lost_s, self._lost_s = self._lost_s, None
        if lost_s is None or self._clock.monotonic() - lost_s < LOST_S:
            return
        self.returns += 1
        back, self._back = self._back, asyncio.Event()
        back.set()
        for callback in self._callbacks:
            callback()

    async def pause(self, seconds: float, *, clock: Clock | None = None) -> None:
        """Return after ``seconds`` by ``clock``, or as soon as the server is back."""
        await wait_for(self._back, clock or self._clock, seconds)


class KubeMetrics:
    """Counters shared by all clusters of a process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = Counter(
            "fairlead_kube_requests",
            "Requests to Kubernetes APIs; code is the HTTP status, or error when there was no answer.",
            ["cluster", "verb", "resource", "code"],
            registry=self.registry,
        )
        self.cache_events = Counter(
            "fairlead_kube_cache_events",
            "Events of watch caches; event is change, relist, reconnect, undecodable or unconfirmed_empty.",
            ["cluster", "resource", "event"],
            registry=self.registry,
        )


#: The header has whole seconds, and an answer takes a while: less than this is not a difference between two clocks.
NOTICEABLE_S = 30.0
_SLOW_S = 2.0
#: A date that is further away than a century is not the time of any clock.
_FURTHEST_S = 100 * 365.25 * 86_400


@lru_cache(maxsize=64)
def _server_time(date: str) -> datetime:
    """Return the time of a ``Date`` header, which was cut to the second: half a second is missing on average."""
    server = parsedate_to_datetime(date)
    return server.replace(tzinfo=server.tzinfo or UTC) + timedelta(seconds=0.5)


class ServerClock:
    """The clock of one API server, as far as its answers show."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = ""
        self._last_s = 0.0
        self._ahead_s: float | None = None

    @property
    def ahead_s(self) -> float | None:
        """Return by how many seconds the server's clock is ahead of this machine's; None before its first answer."""
        return self._ahead_s

    def now(self) -> datetime:
        """Return the server's time, in UTC."""
        return self._clock.now() + timedelta(seconds=self._ahead_s or 0.0)

    def follow(self, date: str | None, *, asked_s: float) -> None:
        """Take over the ``Date`` of an answer to a request that was sent at ``asked_s`` (monotonic)."""
        now_s = self._clock.monotonic()
        if not date or (date == self._last and now_s - self._last_s < 1.0):
            return
        slow = now_s - asked_s > _SLOW_S
        if slow and self._ahead_s is not None:
            return
        try:
            ahead_s = (_server_time(date) - self._clock.now()).total_seconds()
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        if abs(ahead_s) > _FURTHEST_S:
            return
        self._last, self._last_s, self._ahead_s = date, now_s, ahead_s


class Frame(msgspec.Struct, gc=False):
    """One watch event; the object stays raw until its type is known. ``problem`` says why it cannot be read at all."""

    type: str
    object: msgspec.Raw
    problem: str = ""


#: The largest object that etcd takes is 1.5 MiB by default; this is far beyond any that could be meant.
LINE_LIMIT_BYTES = 16 * 2**20
#: A server writes kind, apiVersion and metadata first.
HEAD_BYTES = 256 * 1024
#: No server sends that; the stream is none of events.
NO_LINE_BYTES = 2**30
_TYPE = re.compile(r'\s*\{\s*"type"\s*:\s*"(\w+)"')
_METADATA = re.compile(r'"metadata"\s*:\s*\{')
_KEY = re.compile(r'\s*,?\s*"([^"\\]*)"\s*:\s*')
_NAMED_BY = ("name", "namespace", "resourceVersion")


class LineTooLong(Exception):
    """A line exceeds every limit, so the stream is not a watch."""


class TruncatedLine(bytes):
    """The start of a line that is longer than ``LINE_LIMIT_BYTES``."""

    def frame(self) -> Frame:
        """Return the event with as much of its metadata as its start names; perhaps without a name."""
        text = self.decode(errors="replace")
        kind, start = _TYPE.match(text), _METADATA.search(text)
        known = dict(_members(text, start.end())) if start is not None else {}
        # A lone surrogate, which is not printable, cannot be encoded.
        metadata = {key: name for key in _NAMED_BY if isinstance(name := known.get(key), str) and name.isprintable()}
        problem = f"larger than {LINE_LIMIT_BYTES >> 20} MiB; make the object smaller, or delete it"
        return Frame(kind[1] if kind else "", msgspec.Raw(msgspec.json.encode({"metadata": metadata})), problem)


def _members(text: str, place: int) -> Iterator[tuple[str, Any]]:
    """Yield the members of the JSON object that is open at ``place``, up to where the text ends."""
    decoder = JSONDecoder()
    while (key := _KEY.match(text, place)) is not None:
        try:
            value, place = decoder.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            return
        yield key[1], value


class LineSplitter:
    """Cuts a stream of chunks into lines; what is left of an unfinished line waits for the next chunk."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._cut: TruncatedLine | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their ends and without empty ones.

        Raises:
            LineTooLong: the line has grown beyond all measure.
        """
        if self._cut is None:
            return self._split(chunk)
        self._waiting_bytes += len(chunk)
        end = chunk.find(b"\n")
        if end < 0:
            if self._waiting_bytes > NO_LINE_BYTES:
                raise LineTooLong
            return []
        cut, self._cut, self._waiting_bytes = self._cut, None, 0
        return [cut, *self._split(chunk[end + 1 :])]

    def _split(self, chunk: bytes) -> list[bytes]:
        end = chunk.rfind(b"\n")
        if end < 0:
            # The parts are joined once, when the end comes: joining at every chunk would be quadratic.
            self._parts.append(chunk)
            self._waiting_bytes += len(chunk)
            if self._waiting_bytes > LINE_LIMIT_BYTES:
                self._cut = TruncatedLine(b"".join(self._parts)[:HEAD_BYTES])
                self._parts = []
            return []
        joined = b"".join((*self._parts, chunk[:end])) if self._parts else chunk[:end]
        rest = chunk[end + 1 :]
        self._parts = [rest] if rest else []
        self._waiting_bytes = len(rest)
        return [line for line in joined.split(b"\n") if line.strip()]
