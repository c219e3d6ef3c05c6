"""An ACME client: one account at one server, by the library ``acme``; each call blocks its thread.

In: URLs, keys. Out: the server's answers in the types of ``order``. Never: logs a request or an answer, follows a
redirect, reads more than ``LONGEST_ANSWER`` bytes, or keeps state that a restart would lose: an order is only its URL.
"""

from __future__ import annotations

import io
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import requests
from acme import client, errors, messages
from cryptography import x509
from josepy.b64 import b64encode
from josepy.errors import Error as JoseError
from josepy.interfaces import JSONDeSerializable
from josepy.json_util import field
from josepy.jwa import ES256
from josepy.jwk import JWKEC
from josepy.util import ComparableECKey
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from fairlead.api.meta import JSONMapping, JSONObject
from fairlead.hub.certificates.issuance import ecdsa_key
from fairlead.hub.certificates.order import (
    BAD_NONCE,
    AcmeRefused,
    RemoteAuthorization,
    RemoteChallenge,
    RemoteOrder,
    Window,
    malformed,
    refused,
    unreachable,
)
from fairlead.model.in_words import whole_number
from fairlead.runtime.tls import client_context

USER_AGENT = "fairlead"
TIMEOUT_S = 20
#: Chains of certificates are a few kilobytes.
LONGEST_ANSWER = 1 << 20
#: The limit for a whole answer, however slowly it arrives.
_ANSWER_S = 40.0
_CHUNK = 1 << 16
_NONCE_TRIES = 30
_NOT_FOUND = 404
#: The required entries of a directory (RFC 8555, section 7.1.1) that are used here.
_NEEDED = ("newNonce", "newAccount", "newOrder")
#: The errors that a malformed answer raises, here and in the library.
_OF_ANOTHER_FORM = (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError, JoseError)


class ExternalKey(tuple[str, str]):
    """Identifier and key (base64url) of an account at the authority."""

    __slots__ = ()


class _Trusting(HTTPAdapter):
    """Trusts one bundle of authorities (PEM), also those that lack extensions that newer Pythons require."""

    def __init__(self, bundle: str) -> None:
        self._bundle = bundle
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, ssl_context=client_context(self._bundle.encode()))


class _BadAnswer(requests.RequestException):
    """An answer that is too long, too slow, or a redirect; the message says which."""


class _Session(requests.Session):
    """Reads an answer up to a limit, without decompression, so that a small answer cannot become a large one."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None; otherwise the library would read the whole body of a redirect to prepare another request."""

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> requests.Response:
        options["headers"] = {**(options.get("headers") or {}), "Accept-Encoding": "identity"}
        answer = super().request(method, url, *args, **options | {"stream": True, "allow_redirects": False})
        with ExitStack() as on_failure:
            on_failure.callback(answer.close)
            try:
                content = _read(answer)
            except requests.RequestException:
                raise
            except (HTTPError, OSError) as error:
                raise _BadAnswer(f"the answer broke off ({type(error).__name__})") from error
            on_failure.pop_all()
        answer.raw = io.BytesIO(content)
        return answer


def _read(answer: requests.Response) -> bytes:
    if answer.is_redirect:
        raise _BadAnswer(f"the server redirects to {answer.headers['Location']}, and redirects are not followed")
    end_s, content = time.monotonic() + _ANSWER_S, bytearray()
    while chunk := answer.raw.read1(_CHUNK, decode_content=False):
        content += chunk
        if len(content) > LONGEST_ANSWER:
            raise _BadAnswer(f"the answer has more than {LONGEST_ANSWER} bytes")
        if time.monotonic() > end_s:
            raise _BadAnswer(f"the answer did not arrive within {_ANSWER_S:g} s")
    return bytes(content)


class _Network(client.ClientNetwork):
    """The library's connection; has the last status, and the delay that the server asked for."""

    retry_after_s: float | None = None
    status = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.session = _Session()

    def trust(self, bundle: str) -> None:
        """Trust only these authorities (PEM). The library reads a file, which exists as long as this object."""
        handle, path = tempfile.mkstemp(suffix=".pem")
        with os.fdopen(handle, "w") as file:
            file.write(bundle)
        weakref.finalize(self, Path(path).unlink, missing_ok=True)
        self.verify_ssl = path  # pyright: ignore[reportAttributeAccessIssue] - requests takes a path, too
        self.session.mount("https://", _Trusting(bundle))

    def _send_request(self, method: str, url: str, *args: Any, **kwargs: Any) -> requests.Response:
        answer = super()._send_request(method, url, *args, **kwargs)
        self.status = answer.status_code
        self.retry_after_s = seconds_of(answer.headers.get("Retry-After", ""), date=answer.headers.get("Date", ""))
        return answer


class AcmeClient:
    """An account at an ACME server. Created with ``open``; several threads may use it, one at a time."""

    def __init__(self, server: str, key: bytes, network: _Network, directory: JSONMapping) -> None:
        self.server = server
        self.account = ""
        self._jwk = _jwk(key)
        self._network = network
        self._directory = directory
        self._lock = threading.Lock()

    @classmethod
    def open(cls, server: str, key: bytes, *, ca_bundle: str = "") -> AcmeClient:
        """Read the directory of ``server``; ``key`` is the account's, PEM. ``ca_bundle``: trusted authorities, PEM.

        Raises:
            AcmeRefused: the server cannot be reached, or is not an ACME server.
        """
        network = _Network(_jwk(key), alg=ES256, user_agent=USER_AGENT, timeout=TIMEOUT_S)
        if ca_bundle:
            network.trust(ca_bundle)
        try:
            directory = network.get(server).json()
        except (requests.RequestException, errors.Error, *_OF_ANOTHER_FORM) as error:
            raise unreachable(server, _why(error)) from None
        if not isinstance(directory, dict) or not all(isinstance(directory.get(name), str) for name in _NEEDED):
            raise unreachable(server, "the answer is not an ACME directory")
        return cls(server, key, network, directory)

    @property
    def thumbprint(self) -> str:
        """Return the digest of the account's key, the end of its key authorizations."""
        return b64encode(self._jwk.thumbprint()).decode()

    def register(self, email: str, external: ExternalKey | None) -> str:
        """Create the account, or find the existing one of the key; return its URL."""
        body: JSONObject = {"terms_of_service_agreed": True}
        if email:
            body["email"] = email
        with self._lock:
            if external is not None:
                body["external_account_binding"] = self._binding(*external)
            self._network.account = None
            answer = self._post(
                "the account", self._directory["newAccount"], messages.NewRegistration.from_data(**body)
            )
            with self._reading("the account"):
                self.account = answer.headers["Location"]
                status = answer.json().get("status", "valid")
            if status != "valid":
                raise refused("the account", "accountDoesNotExist", f"the account is {status}")
            registration = messages.RegistrationResource(body=messages.Registration(), uri=self.account)
            self._network.account = registration
        return self.account

    def new_order(
        self, hosts: Sequence[str], *, replaces: bytes = b""
    ) -> tuple[RemoteOrder, tuple[RemoteAuthorization, ...]]:
        """Create an order; return it with the authorizations of its names.

        ``replaces``: the chain (PEM) that it renews, if any: authorities do not count renewals against their limits.
        """
        identifiers = [messages.Identifier(typ=messages.IDENTIFIER_FQDN, value=host) for host in hosts]
        description, url = f"the order for {hosts[0]}", self._directory["newOrder"]
        with self._lock:
            try:
                renewed = self._renewal_path(replaces) or None
                answer = self._post(description, url, _NewOrder(identifiers=identifiers, replaces=renewed))
            except AcmeRefused as error:
                # A certificate that the authority cannot replace, such as one of another account, is ordered as a new
                # one.
                if not replaces or not error.kind or error.rate_limited:
                    raise
                answer = self._post(description, url, _NewOrder(identifiers=identifiers))
            with self._reading(description):
                order = _order(answer.headers["Location"], answer.json(), self._network.retry_after_s)
            return order, tuple(self._authorization(url) for url in order.authorizations)

    def order(self, url: str) -> RemoteOrder | None:
        """Return the current state of an order; None if the server does not know the order."""
        with self._lock:
            try:
                answer = self._post("to show an order", url, None)
            except AcmeRefused as error:
                # A proxy in between may answer 404, too: only the authority itself knows that the order is gone.
                if self._network.status == _NOT_FOUND and error.is_answer:
                    return None
                raise
            with self._reading("an order"):
                return _order(url, answer.json(), self._network.retry_after_s)

    def authorizations(self, urls: Sequence[str]) -> tuple[RemoteAuthorization, ...]:
        """Return the current authorizations of an order's names."""
        with self._lock:
            return tuple(self._authorization(url) for url in urls)

    def offer(self, host: str, url: str) -> None:
        """Ask the server to validate a challenge."""
        with self._lock:
            self._post(f"to validate {host}", url, _EMPTY)

    def finalize(self, order: RemoteOrder, request: x509.CertificateSigningRequest) -> RemoteOrder:
        """Complete an order with the request for its certificate."""
        with self._lock:
            answer = self._post("the request", order.finalize, messages.CertificateRequest(csr=request))
            with self._reading("the request"):
                return _order(order.url, answer.json(), self._network.retry_after_s)

    def certificate(self, url: str) -> bytes:
        """Return the chain of a valid order, PEM."""
        with self._lock:
            chain = self._post("to give the certificate", url, None).content
            with self._reading("the certificate"):
                x509.load_pem_x509_certificates(chain)
            return chain

    def renewal_window(self, chain: bytes) -> Window | None:
        """Return when the server suggests to order the next certificate; None without a suggestion."""
        path = self._renewal_path(chain)
        if not path:
            return None
        with self._lock:
            try:
                window = self._network.get(f"{self._directory['renewalInfo']}/{path}").json()["suggestedWindow"]
                return Window(_aware(window["start"]), _aware(window["end"]))
            except (requests.RequestException, errors.Error, messages.Error, *_OF_ANOTHER_FORM):
                # A suggestion is optional: without it two thirds of the lifetime count.
                return None

    def _renewal_path(self, chain: bytes) -> str:
        """Return the authority's name for a certificate in renewals; empty if there is none."""
        if not chain or not self._directory.get("renewalInfo"):
            return ""
        return _renewal_path(x509.load_pem_x509_certificates(chain)[0])

    def _authorization(self, url: str) -> RemoteAuthorization:
        answer = self._post("to show a name", url, None)
        with self._reading("a name"):
            return _authorization(url, answer.json())

    @contextmanager
    def _reading(self, description: str) -> Generator[None]:
        """Read an answer; an unexpected form is reported as the authority's failure."""
        try:
            yield
        except KeyError as error:
            raise malformed(self.server, description, f"no {error}") from error
        except _OF_ANOTHER_FORM as error:
            raise malformed(self.server, description, str(error) or type(error).__name__) from error

    def _binding(self, key_id: str, key: str) -> Any:
        return messages.ExternalAccountBinding.from_data(
            self._jwk.public_key(), key_id, key, messages.Directory(dict(self._directory))
        )

    def _post(self, description: str, url: str, body: Any) -> requests.Response:
        """Send a signed request; a nonce that the server refuses is replaced (RFC 8555, section 6.5)."""
        for tries in range(_NONCE_TRIES):
            try:
                return self._network.post(url, body, new_nonce_url=self._directory["newNonce"])
            except messages.Error as error:
                if error.code == BAD_NONCE and tries + 1 < _NONCE_TRIES:
                    continue
                # The library does not check types: both may be anything that JSON has.
                kind, detail = str(error.typ or ""), str(error.detail or "")
                raise refused(description, kind, detail, after_s=self._network.retry_after_s) from None
            except errors.ConflictError:
                # The library drops the problem document of a 409.
                raise refused(description, "conflict", "") from None
            except (requests.RequestException, errors.Error) as error:
                raise unreachable(self.server, _why(error)) from None
            except _OF_ANOTHER_FORM as error:
                raise malformed(self.server, description, str(error) or type(error).__name__) from error
        raise refused(description, BAD_NONCE, "every nonce was refused")


class _NewOrder(messages.NewOrder):
    """An order that may name the certificate that it replaces (RFC 9773, section 5)."""

    replaces: str | None = field("replaces", omitempty=True)


class _Empty(JSONDeSerializable):
    """An empty JSON object, the body that accepts a challenge; the library does not mistake it for a missing body."""

    def to_partial_json(self) -> JSONObject:
        return {}

    @classmethod
    def from_json(cls, jobj: Any) -> _Empty:
        del jobj
        return cls()


_EMPTY = _Empty()


def seconds_of(retry_after: str, *, date: str = "") -> float | None:
    """Return the seconds that a Retry-After header asks to wait, None without a valid one.

    ``date``: the server's own clock, its Date header. Without it the clock of the hub counts, which may be wrong.
    """
    if (seconds := whole_number(retry_after)) is not None:
        return float(seconds)
    until = _http_date(retry_after)
    if until is None:
        return None
    return max(0.0, (until - (_http_date(date) or datetime.now(UTC))).total_seconds())


def _http_date(text: str) -> datetime | None:
    """Return the HTTP date ``text`` as a time in UTC, None if it is invalid."""
    try:
        when = parsedate_to_datetime(text)
        return when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _aware(text: str) -> datetime:
    """Return an RFC 3339 time in UTC; one without a zone is in UTC."""
    when = datetime.fromisoformat(text)
    return when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC)


def _jwk(key: bytes) -> JWKEC:
    return JWKEC(key=ComparableECKey(ecdsa_key(key)))


def _order(url: str, body: JSONMapping, after_s: float | None) -> RemoteOrder:
    return RemoteOrder(
        url=url,
        status=str(body.get("status", "")),
        finalize=str(body.get("finalize", "")),
        authorizations=tuple(map(str, body.get("authorizations") or ())),
        certificate=str(body.get("certificate") or ""),
        problem=_problem(body.get("error")),
        after_s=after_s,
    )


def _authorization(url: str, body: JSONMapping) -> RemoteAuthorization:
    return RemoteAuthorization(
        url=url,
        host=str(body["identifier"]["value"]),
        status=str(body.get("status", "")),
        wildcard=bool(body.get("wildcard", False)),
        challenges=tuple(
            RemoteChallenge(
                type=str(challenge.get("type", "")),
                url=str(challenge.get("url", "")),
                token=str(challenge.get("token", "")),
                status=str(challenge.get("status", "")),
                problem=_problem(challenge.get("error")),
            )
            for challenge in body.get("challenges") or ()
        ),
    )


def _problem(body: JSONMapping | None) -> tuple[str, str] | None:
    return None if not body else (str(body.get("type", "")), str(body.get("detail", "")))


def _renewal_path(certificate: x509.Certificate) -> str:
    """Return the name of a certificate in renewal information; empty when it has no authority's key identifier."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except x509.ExtensionNotFound:
        return ""
    if extension.key_identifier is None:
        return ""
    number = certificate.serial_number
    serial = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return f"{b64encode(extension.key_identifier).decode()}.{b64encode(serial).decode()}"


def _why(error: Exception) -> str:
    """Return why a request failed, without the library's own objects."""
    match error:
        case _BadAnswer():
            return str(error)
        case requests.exceptions.SSLError():
            return "the server's certificate is not trusted"
        case requests.exceptions.Timeout():
            return "no answer in time"
        case requests.exceptions.ConnectionError():
            return "no connection"
        case _:
            return type(error).__name__
