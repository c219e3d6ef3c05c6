"""The HTTP client for drivers, and the credentials by which driver and Fairlead authenticate each other.

In: a hook and a body. Out: the decoded answer, or one ``Retry`` whose sentence names the driver, the hook and the next
step. Each driver has one connection pool, and never more calls at once than its class allows; waiting for a free slot
does not count against the timeout of the call. Credentials are a folder, as a Kubernetes Secret is mounted: a CA, a
client certificate and a bearer token. They are read again when they change, so that they can be rotated without a
restart.
Never: follows a redirect, reads more than ``LONGEST_ANSWER`` bytes, uses a proxy from the environment, quotes what a
driver sent in an error page, sends a token in the clear to another machine, or shows the content of a file.
"""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Histogram

from fairlead.errors import BadConfiguration, Retry
from fairlead.model.in_words import whole_number
from fairlead.providers.webhook.protocol import (
    Body,
    DriverStatus,
    Hook,
    Malformed,
    WebhookAnswer,
    answer_from_body,
    decode,
    failure,
)
from fairlead.providers.webhook.settings import DriverSettings
from fairlead.runtime.clock import Clock
from fairlead.runtime.file_limit import NO_MORE_FILES, no_more_files
from fairlead.runtime.tls import client_context, is_loopback

LONGEST_ANSWER = 1 << 20
_CHUNK = 1 << 16
_LONGEST_RETRY_AFTER_S = 3600.0

log = structlog.get_logger(__name__)


class DriverDown(Retry):
    """The driver cannot be reached at all: this call has not arrived, and further ones would fail in the same way."""


class Driver:
    """One driver, reached over one pool of connections."""

    def __init__(self, *, settings: DriverSettings, directory: Path, metrics: WebhookMetrics, clock: Clock) -> None:
        self.settings = settings
        self.retry_after = RetryAfter(clock)
        self._credentials = Credentials(settings=settings, directory=directory)
        self.metrics = metrics
        self._clock = clock
        self._slots = asyncio.Semaphore(settings.parallel)
        self._session: aiohttp.ClientSession | None = None
        self._stamp: Stamp = ()

    async def call(self, hook: Hook, body: Body, *, about: str) -> Mapping[str, object]:
        """POST ``body`` and return the answer with lower-case keys."""
        async with self._slots:
            started_s = self._clock.monotonic()
            labels = (self.settings.url, hook.value)
            self.metrics.calls.labels(*labels).inc()
            # From the first call on, so that a sum of both is not empty while one of them never happened.
            for counter in (self.metrics.errors, self.metrics.fails):
                counter.labels(*labels)
            try:
                return await self._post(hook, body, about)
            except Retry as error:
                self.metrics.errors.labels(*labels).inc()
                log.info("driver call failed", driver=self.settings.url, hook=hook.value, why=str(error))
                raise
            finally:
                self.metrics.seconds.labels(*labels).observe(self._clock.monotonic() - started_s)

    async def reach(self, hook: Hook, *, about: str) -> None:
        """Open a connection as for a call, and close it again; ``DriverDown`` when none can be opened."""
        url, timeout_s = urlsplit(self.settings.url), self.settings.timeout_of(hook)
        tls = self._credentials.ssl_context() if url.scheme == "https" else None
        async with self._slots:
            try:
                async with asyncio.timeout(timeout_s / 2):
                    _, writer = await asyncio.open_connection(url.hostname, url.port or (443 if tls else 80), ssl=tls)
            except (OSError, UnicodeError) as error:  # a host that no resolver takes is the latter
                raise _down(f"{self.settings.name}: {hook} for {about}", error) from error
            writer.close()

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # --- inside -----------------------------------------------------------------------------------------------

    async def _post(self, hook: Hook, body: Body, about: str) -> Mapping[str, object]:
        settings = self.settings
        timeout_s = settings.timeout_of(hook)
        where = f"{settings.name}: {hook} for {about}"
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    raw = await self._once(hook, body, where, timeout_s)
                except aiohttp.ClientConnectorError:
                    raise
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                    # Most often a kept connection that a restarted driver knows nothing of. Hooks are idempotent.
                    again = body | {"retryID": str(uuid.uuid4())} if "retryID" in body else body
                    try:
                        raw = await self._once(hook, again, where, timeout_s)
                    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                        # The first one may have arrived, so it is not DriverDown.
                        raise Retry(_no_connection(where), detail=_kind(error), reason="DriverUnreachable") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _down(where, error) from error
        except TimeoutError:
            raise Retry(
                f"{where} gave no answer within its timeout of {timeout_s:g} s; it may still be running; the hub "
                f"calls it again. If it needs longer, raise timeout.{hook} or let it answer Running",
                reason="DriverTimeout",
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            text = f"{where}: the connection broke before the answer was complete; the hub retries"
            raise Retry(text, detail=_kind(error), reason="DriverUnreachable") from error
        try:
            return decode(raw)
        except Malformed as error:
            raise invalid(where, error) from error

    async def _once(self, hook: Hook, body: Body, where: str, timeout_s: float) -> bytes:
        session = await self._connected()
        async with session.post(
            f"{self.settings.url}/{hook}",
            data=msgspec.json.encode(body),
            headers=self._credentials.headers(),
            allow_redirects=False,
            # Before the limit of the whole call, so that it is known that nothing has arrived.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeout_s / 2),
        ) as response:
            if response.status != 200:
                raise _bad_status(where, response)
            raw = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                raw += chunk
                if len(raw) > LONGEST_ANSWER:
                    raise invalid(where, Malformed(f"more than {LONGEST_ANSWER} bytes"))
            return bytes(raw)

    async def _connected(self) -> aiohttp.ClientSession:
        """Return the connection pool; a new one when certificates have changed."""
        stamp = self._credentials.stamp()
        if self._session is None or stamp != self._stamp:
            tls = self._credentials.ssl_context() if self.settings.url.startswith("https:") else True
            # Without an await in between: concurrent calls must not make one pool each.
            before, self._stamp = self._session, stamp
            session = self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, limit=self.settings.parallel),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "fairlead"},
                # Otherwise a small compressed answer may become a big one.
                skip_auto_headers=("Accept-Encoding",),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            if before is not None:
                await before.close()
            return session
        return self._session


def invalid(where: str, error: Malformed) -> Retry:
    """Return the error for an answer that the protocol does not allow; ``where`` names driver, hook and subject."""
    return Retry(
        f"{where} was answered with {error}, which the protocol does not allow; the call is retried. Fix the driver",
        reason="DriverInvalidAnswer",
    )


def _bad_status(where: str, response: aiohttp.ClientResponse) -> Retry:
    status = response.status
    if 300 <= status < 400:
        step = "redirects are not followed: put the final address into parameters.url"
    elif status in (401, 403):
        step = "the driver does not accept our credentials: check token or tls.crt in the credentials folder"
    elif status in (404, 405):
        step = "the driver has no such hook there: check the path in parameters.url, and that it answers POST"
    elif status == 429:
        step = "the hub retries later; lower parameters.parallel if this happens often"
    else:
        step = "check the driver's log; the hub retries"
    seconds = whole_number(response.headers.get("Retry-After", ""))
    after_s = None if seconds is None else min(float(seconds), _LONGEST_RETRY_AFTER_S)
    return Retry(f"{where} was answered with HTTP {status}; {step}", reason="DriverHTTPError", after_s=after_s)


def _down(where: str, error: Exception) -> DriverDown:
    """Return the error for a connection that could not be opened; those of aiohttp about TLS are those of ssl, too."""
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = f"{where}: its certificate is not trusted; put the right ca.crt into the credentials folder"
    elif isinstance(error, ssl.SSLError):
        sentence = (
            f"{where}: the TLS handshake failed; check that the driver serves TLS, and if it requires a client "
            "certificate (tls.crt and tls.key in the credentials folder)"
        )
    else:
        why = f"{where}: {NO_MORE_FILES}" if no_more_files(error) else _no_connection(where)
        return DriverDown(why, detail=_kind(error), reason="DriverUnreachable")
    return DriverDown(sentence, detail=_kind(error), reason="DriverNotTrusted")


def _no_connection(where: str) -> str:
    return f"{where}: no connection; check that the driver runs and that parameters.url is right"


def _kind(error: BaseException) -> str:
    # The text of these errors may quote what the other side sent.
    return f"{type(error).__name__} {getattr(error, 'errno', None) or ''}".strip()


_PURGE_AT = 4096


class _Deferred(msgspec.Struct, frozen=True):
    request: Mapping[str, object]
    answer: WebhookAnswer
    until_s: float


class RetryAfter:
    """The answers Fail and Running of one driver that still hold, by recordID."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deferred: dict[str, _Deferred] = {}

    def answer_to(self, body: Body) -> WebhookAnswer | None:
        """Return the last answer to the same request, with the seconds left; None when it may be sent."""
        deferred = self._deferred.get(_record_id(body))
        if deferred is None:
            return None
        left_s = deferred.until_s - self._clock.monotonic()
        if left_s <= 0 or deferred.request != _without_retry_id(body):
            return None
        return replace(deferred.answer, retry_after_s=left_s)

    def record(self, body: Body, answer: WebhookAnswer) -> None:
        """Store the answer to a request that was sent."""
        if answer.status is DriverStatus.SUCC:
            self._deferred.pop(_record_id(body), None)
            return
        now_s = self._clock.monotonic()
        if len(self._deferred) >= _PURGE_AT:
            self._deferred = {record: entry for record, entry in self._deferred.items() if entry.until_s > now_s}
        self._deferred[_record_id(body)] = _Deferred(_without_retry_id(body), answer, now_s + answer.retry_after_s)


def _record_id(body: Body) -> str:
    return str(body["recordID"])


def _without_retry_id(body: Body) -> Mapping[str, object]:
    return {name: value for name, value in body.items() if name != "retryID"}


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LABELS = ("driver", "hook")


class WebhookMetrics:
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self.calls = Counter("fairlead_webhook_calls", "Calls to drivers.", _LABELS, registry=registry)
        self.errors = Counter("fairlead_webhook_errors", "Calls without a usable answer.", _LABELS, registry=registry)
        self.fails = Counter(
            "fairlead_webhook_fails", "Calls that the driver answered Fail.", _LABELS, registry=registry
        )
        self.seconds = Histogram(
            "fairlead_webhook_seconds", "How long a call took.", _LABELS, buckets=_SECONDS, registry=registry
        )


async def run_task(driver: Driver, hook: Hook, body: Body, *, about: str) -> WebhookAnswer:
    """Return the driver's answer, or the last one while the driver does not want to be asked the same again."""
    if (deferred := driver.retry_after.answer_to(body)) is not None:
        return deferred
    response = await driver.call(hook, body, about=about)
    with checking_answer(driver, hook, about):
        answer = answer_from_body(response)
    driver.retry_after.record(body, answer)
    if answer.status is DriverStatus.FAIL:
        driver.metrics.fails.labels(driver.settings.url, hook.value).inc()
    return answer


async def run_task_to_success(driver: Driver, hook: Hook, body: Body, *, about: str) -> WebhookAnswer:
    """Return the answer Succ; any other one is a ``Retry`` with the driver's own message and delay."""
    answer = await run_task(driver, hook, body, about=about)
    if answer.status is not DriverStatus.SUCC:
        raise failure(driver.settings.name, hook, about, answer)
    return answer


@contextmanager
def checking_answer(driver: Driver, hook: Hook, about: str) -> Generator[None]:
    """Turn ``Malformed`` inside the context into a ``Retry`` that names the driver, the hook and what it was about."""
    try:
        yield
    except Malformed as error:
        raise invalid(f"{driver.settings.name}: {hook} for {about}", error) from error


#: Where Secrets are mounted in a Deployment, one folder for each.
DEFAULT_DIRECTORY = Path("/etc/fairlead/credentials")
_FILES = ("ca.crt", "tls.crt", "tls.key", "token")

Stamp = tuple[int, ...]


class Credentials:
    """The files of one folder; without a folder the machine's CAs, and nothing of ours."""

    def __init__(self, *, settings: DriverSettings, directory: Path) -> None:
        self._settings = settings
        self._folder = directory / settings.credentials if settings.credentials else None
        if self._folder is not None and not self._folder.is_dir():
            raise BadConfiguration(
                f"parameters.credentials: there is no folder {settings.credentials} in the credentials directory; "
                "mount the Secret there"
            )
        url = urlsplit(settings.url)
        if self._path("token") and url.scheme == "http" and not is_loopback(url.hostname or ""):
            raise BadConfiguration(f"{settings.name}: a token would be sent unencrypted; use https in parameters.url")

    def stamp(self) -> Stamp:
        """Return a value that changes with the files."""
        return tuple(self._mtime(name) for name in _FILES)

    def ssl_context(self) -> ssl.SSLContext:
        """Build the context for TLS; ``BadConfiguration`` names the file that is wrong."""
        ca = self._path("ca.crt")
        try:
            context = client_context(ca.read_bytes() if ca else None)
        except OSError as error:
            raise self._wrong("ca.crt") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._path("tls.crt"), self._path("tls.key")
        if certificate and key:
            try:
                context.load_cert_chain(str(certificate), str(key))
            except (OSError, ssl.SSLError) as error:
                raise self._wrong("tls.crt and tls.key") from error
        return context

    def headers(self) -> dict[str, str]:
        """Return the header with the token, if there is one."""
        path = self._path("token")
        if path is None:
            return {}
        try:
            token = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self._wrong("token") from error
        if not token or not token.isprintable():
            raise self._wrong("token")
        return {"Authorization": f"Bearer {token}"}

    def _path(self, name: str) -> Path | None:
        if self._folder is None or not (self._folder / name).is_file():
            return None
        return self._folder / name

    def _mtime(self, name: str) -> int:
        path = self._path(name)
        try:
            return path.stat().st_mtime_ns if path else 0
        except OSError:
            return 0

    def _wrong(self, name: str) -> BadConfiguration:
        return BadConfiguration(
            f"{self._settings.name}: {name} in credentials folder {self._settings.credentials} is invalid; replace it"
        )
