"""Orders at a certificate authority as data: the next step, refusals with a remedy, and when to renew or retry.

    no order            BEGIN      a new one; its challenges are chosen and recorded before they are served
    not all offered     OFFER      the authority is asked to check each challenge that is already answered
    pending             WAIT       the authority checks
    ready               FINALIZE   a new key, and the request that it signs
    processing, valid   FETCH      with the key of this process; ABANDON without it, as no one else has the key
    invalid, unknown    FAIL or ABANDON

In: the recorded order, the authority's answers and problem documents, the lifetime of a certificate and the window that
the authority suggests. Out: challenges, steps, ``AcmeRefused``, times. Pure: no clock, no network, no key, so that the
same certificate has the same renewal time on every replica. Sources: RFC 8555 (section 7.1.6), RFC 7807, RFC 9773.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from fairlead.api.managedcertificate import ChallengeType, ManagedCertificate, OrderChallenge, Solver
from fairlead.api.names import short_hash
from fairlead.api.times import parsed_time
from fairlead.errors import Retry, Terminal
from fairlead.model.in_words import listed
from fairlead.runtime.queue import doubled_s

_TYPES: dict[Solver, ChallengeType] = {"HTTP01": "http-01", "DNS01": "dns-01"}


class RemoteChallenge(msgspec.Struct, frozen=True):
    """A challenge that the authority offers for a name; ``problem`` is (kind, text) if it failed."""

    type: str
    url: str
    token: str = ""
    status: str = "pending"
    problem: tuple[str, str] | None = None


class RemoteAuthorization(msgspec.Struct, frozen=True):
    """The authority's authorization for one name; a wildcard's name has no star."""

    url: str
    host: str
    status: str
    wildcard: bool = False
    challenges: tuple[RemoteChallenge, ...] = ()


class RemoteOrder(msgspec.Struct, frozen=True):
    """An order as seen by the authority; ``after_s`` is the delay until the next request."""

    url: str
    status: str
    finalize: str
    authorizations: tuple[str, ...]
    certificate: str = ""
    problem: tuple[str, str] | None = None
    after_s: float | None = None


class OrderStep(Enum):
    """The next step of an order."""

    OFFER = "offer"
    WAIT = "wait"
    FINALIZE = "finalize"
    FETCH = "fetch"
    ABANDON = "abandon"
    FAIL = "fail"


class Unsolvable(Terminal):
    """No solver of the issuer can prove a name."""


def choose_challenges(
    authorizations: Iterable[RemoteAuthorization],
    solvers: Sequence[Solver],
    *,
    thumbprint: str,
    is_shared: Callable[[str], bool] = lambda _host: False,
) -> tuple[OrderChallenge, ...]:
    """Return the challenge for each name; names that the authority has already validated need none.

    ``is_shared`` returns whether other hubs may answer requests to a name: they do not know its challenges.

    Raises:
        Unsolvable: the message has the name and the remedy.
    """
    return tuple(
        _choose(authorization, solvers, thumbprint, is_shared(_host(authorization)))
        if authorization.status != "valid"
        else OrderChallenge(_host(authorization), offered=True)
        for authorization in authorizations
    )


def _choose(
    authorization: RemoteAuthorization, solvers: Sequence[Solver], thumbprint: str, shared: bool
) -> OrderChallenge:
    host = _host(authorization)
    only_dns = authorization.wildcard or shared
    usable: list[Solver] = [solver for solver in solvers if not (only_dns and solver == "HTTP01")]
    for solver in usable:
        offered = next((challenge for challenge in authorization.challenges if challenge.type == _TYPES[solver]), None)
        if offered is not None:
            return OrderChallenge(
                host=host,
                type=_TYPES[solver],
                url=offered.url,
                authorization=authorization.url,
                token=offered.token,
                content=challenge_content(_TYPES[solver], offered.token, thumbprint),
            )
    if authorization.wildcard and not usable:
        raise Unsolvable(f"{host} is a wildcard, which only DNS01 can prove: add DNS01 to spec.solvers of the issuer")
    if not usable:
        raise Unsolvable(
            f"{host} is in a zone with peerLeaseSeconds, where HTTP01 may reach another hub, which cannot answer: add "
            "DNS01 to spec.solvers of the issuer"
        )
    offered_types = ", ".join(challenge.type for challenge in authorization.challenges) or "nothing"
    raise Unsolvable(
        f"the authority offers {offered_types} for {host}, and spec.solvers has {', '.join(usable)}: add a solver"
    )


def challenge_content(kind: ChallengeType, token: str, thumbprint: str) -> str:
    """Return the proof for a name: the key authorization, or its digest as the text of a TXT record."""
    authorization = f"{token}.{thumbprint}"
    if kind != "dns-01":
        return authorization
    digest = hashlib.sha256(authorization.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def next_step(challenges: Iterable[OrderChallenge], remote: RemoteOrder | None, *, has_key: bool) -> OrderStep:
    """Return the next step; ``remote`` is None if the authority does not know the order."""
    if remote is None:
        return OrderStep.ABANDON
    if remote.status == "invalid":
        return OrderStep.FAIL
    if remote.status in {"processing", "valid"}:
        return OrderStep.FETCH if has_key else OrderStep.ABANDON
    if remote.status == "ready":
        return OrderStep.FINALIZE
    return OrderStep.WAIT if all(challenge.offered for challenge in challenges) else OrderStep.OFFER


def failure_of(hosts: Sequence[str], remote: RemoteOrder, authorizations: Iterable[RemoteAuthorization]) -> AcmeRefused:
    """Return why an order failed: the problem of a challenge is more specific than that of the order."""
    for authorization in authorizations:
        for challenge in authorization.challenges:
            if challenge.problem is not None:
                description = f"the proof of {_host(authorization)}"
                return refused(description, *challenge.problem, after_s=remote.after_s, ended=True)
    kind, detail = remote.problem or (ORDER_OVER, "")
    return refused(f"the order for {shown(hosts)}", kind, detail, after_s=remote.after_s, ended=True)


def shown(hosts: Sequence[str]) -> str:
    """Return names for a sentence: the first few, and the number of the others."""
    return listed(hosts, 1) or "no name"


def _host(authorization: RemoteAuthorization) -> str:
    return f"*.{authorization.host}" if authorization.wildcard else authorization.host


_PREFIX = "urn:ietf:params:acme:error:"
RATE_LIMITED = "rateLimited"
BAD_NONCE = "badNonce"
#: An invalid order without a problem: it was not completed in time.
ORDER_OVER = "orderOver"
_MOST_CHARACTERS = 300
#: The account does not exist, or may no longer order.
_ACCOUNT = frozenset({"accountDoesNotExist", "externalAccountRequired", "userActionRequired"})
_CONTACT = "the authority does not accept the e-mail address: correct spec.email of the CertificateIssuer"
_NEXT_STEP = {
    "accountDoesNotExist": "the account no longer exists: delete the Secret with the account's key, and the hub "
    "creates a new account",
    "alreadyRevoked": "the certificate was revoked; the hub orders another one",
    "caa": "a CAA record of the name forbids this authority: change the record, or choose another CertificateIssuer",
    "connection": "the name could not be reached at port 80: let the name resolve to the address of the load "
    "balancer, and open port 80 to the internet",
    "dns": "the name could not be resolved: publish a record for it that points to the load balancer",
    "externalAccountRequired": "an external account is required: set spec.externalAccount of the CertificateIssuer "
    "to the key that the authority gave you",
    "incorrectResponse": "another server answers at the name: let the name resolve to the load balancer only",
    "invalidContact": _CONTACT,
    ORDER_OVER: "the order expired or was withdrawn; the hub retries automatically",
    "malformed": "the authority could not parse the request; report this, with the version of Fairlead",
    RATE_LIMITED: "the rate limit is reached; the hub retries automatically when the authority allows it",
    "rejectedIdentifier": "the authority does not issue for this name: choose another name or CertificateIssuer",
    "serverInternal": "the authority has an internal error; the hub retries automatically",
    "tls": "the TLS handshake at the name failed: let the name resolve to the load balancer only",
    "unauthorized": "the answer at the name does not prove it, or the account is deactivated. Let the name resolve to "
    "the load balancer only, and check the account",
    "unsupportedContact": _CONTACT,
    "userActionRequired": "there are new terms: agree to them at the authority's site, with the account of the "
    "CertificateIssuer",
}
_UNKNOWN = "read the authority's message, and correct the name or the CertificateIssuer"


class AcmeRefused(Retry):
    """The authority refused a request, or cannot be used now; ``kind`` is the error of ACME, empty without an answer.

    ``ended``: the order has ended, for any reason.
    """

    def __init__(
        self, sentence: str, *, kind: str = "", after_s: float | None = None, detail: str = "", ended: bool = False
    ) -> None:
        reason = "AuthorityRefused" if kind else "AuthorityUnreachable"
        super().__init__(sentence, after_s=after_s, detail=detail, reason=reason)
        self.kind = kind
        self.ended = ended
        self.rate_limited = kind == RATE_LIMITED
        #: The authority itself has answered, with one of the errors of ACME.
        self.is_answer = kind in _NEXT_STEP
        #: The account cannot order any certificate, whatever the names are.
        self.of_account = kind in _ACCOUNT


def refused(
    description: str, kind: str, detail: str, *, after_s: float | None = None, ended: bool = False
) -> AcmeRefused:
    """Return the error for a problem document; ``description`` says what was refused, as "the order for a.b"."""
    short = kind.removeprefix(_PREFIX)
    quoted = f' (its message: "{one_line(detail)}")' if detail else ""
    sentence = f"the certificate authority refused {description}: {_NEXT_STEP.get(short, _UNKNOWN)}{quoted}"
    return AcmeRefused(sentence, kind=short, after_s=after_s, ended=ended)


def unreachable(server: str, why: str) -> AcmeRefused:
    """Return the error for an authority that cannot be reached, or does not speak ACME."""
    return AcmeRefused(
        f"the certificate authority at {server} cannot be used now: {one_line(why)}; check the hub's network, and "
        "spec.server and spec.caBundle of the CertificateIssuer"
    )


def too_slow(server: str) -> AcmeRefused:
    """Return the error for an authority that accepts a request and does not answer it."""
    return unreachable(server, "no answer in time")


def malformed(server: str, description: str, why: str, *, ended: bool = False) -> AcmeRefused:
    """Return the error for an answer that violates RFC 8555; ``description``: what the request was about.

    ``ended``: the order is not continued.
    """
    return AcmeRefused(
        f"the certificate authority at {server} gave an invalid ACME answer about {description}: {one_line(why)}. "
        "Check that spec.server of the CertificateIssuer is the URL of an ACME directory, or report it to the "
        "authority's operator",
        ended=ended,
    )


def one_line(text: str) -> str:
    """Return a server's text in a form that fits a status: printable, one line, limited length."""
    clean = "".join(char if char.isprintable() else " " for char in text).replace('"', "'")
    clean = " ".join(clean.split())
    return clean if len(clean) <= _MOST_CHARACTERS else f"{clean[: _MOST_CHARACTERS - 3]}..."


#: The part of the lifetime after which the next certificate is ordered.
_DUE = 2 / 3
#: Renewals are spread over this part of the lifetime, so that certificates issued together are not renewed together.
_JITTER = 1 / 20
#: The part of the lifetime that must pass after a certificate was received before the next one is ordered.
_LEAST = 1 / 3
#: The tolerated clock difference.
_TOLERANCE = timedelta(minutes=5)


class Window(msgspec.Struct, frozen=True):
    """The authority's suggested window for the next order."""

    start: datetime
    end: datetime


def renewal_time(
    not_before: datetime,
    not_after: datetime,
    *,
    identity: tuple[str, ...],
    window: Window | None = None,
    issued: datetime | None = None,
) -> datetime:
    """Return when the next certificate is ordered; ``identity`` spreads certificates that were issued together.

    The authority's window counts only if it begins before the certificate expires. ``issued`` is when the hub received
    the certificate: the next one is not ordered before a third of the lifetime has passed since then.
    """
    spread = fraction(*identity)
    lifetime = not_after - not_before
    if window is not None and window.start <= window.end and window.start < not_after:
        chosen = window.start + (window.end - window.start) * spread
        due = min(chosen, not_after - lifetime * _JITTER)
    else:
        due = not_before + lifetime * (_DUE - _JITTER * spread)
    return due if issued is None else max(due, issued + lifetime * _LEAST)


def next_renewal(obj: ManagedCertificate, now: datetime) -> datetime | None:
    """Return when the existing certificate is renewed, None if unknown.

    If the certificate was received after ``now``, the hub's clock was ahead; the times in the certificate are used.
    """
    status = obj.status
    renew_at, issued_at, not_before, not_after = map(
        parsed_time, (status.renew_at, status.issued_at, status.not_before, status.not_after)
    )
    if renew_at is None or issued_at is None or not_before is None or not_after is None or issued_at <= now:
        return renew_at
    return min(renew_at, renewal_time(not_before, not_after, identity=obj.key))


def skew_text(not_before: datetime, not_after: datetime, now: datetime) -> str:
    """Return the clock difference of hub and authority when a certificate is received; empty if it is small."""
    lifetime, ahead = not_after - not_before, now - not_before
    if -_TOLERANCE <= ahead <= lifetime * _LEAST:
        return ""
    apart = abs(ahead)
    duration = f"{apart.days} days" if apart.days else f"{apart.total_seconds() / 3600:.1f} hours"
    text = f"began {duration} before" if ahead > timedelta() else f"begins {duration} after"
    return (
        f"the certificate {text} it was received, by the hub's clock: set it by NTP if it is wrong. The hub orders the "
        "next certificate after a third of the lifetime of this one at the earliest"
    )


def fraction(*identity: str) -> float:
    """Return a number from 0 to 1, evenly distributed and stable for an identity."""
    return int(short_hash(*identity, size_bytes=6), 16) / 2**48


#: The first failure is often a name that does not resolve yet; authorities allow five failed validations an hour.
_BASE_S = 60.0
_LIMIT_S = 6 * 3600.0
#: The limit for requests outside orders, such as checking whether the authority is reachable again.
_NOT_ORDERED_LIMIT_S = 900.0
#: The minimum delay after a rate-limit error.
_RATE_LIMITED_S = 3600.0
#: More than a week is a server error: a certificate may expire meanwhile.
LONGEST_S = 7 * 24 * 3600.0
_BACKOFF_JITTER = 0.2


def retry_delay_s(
    failures: int,
    *,
    identity: tuple[str, ...],
    retry_after_s: float | None = None,
    rate_limited: bool = False,
    ordered: bool = True,
) -> float:
    """Return the seconds until the next order after the n-th consecutive failure (from 1).

    The delay doubles from a minute to six hours, or to a quarter of an hour where nothing could be ``ordered``. A
    Retry-After of the authority is honoured.
    """
    delay_s = doubled_s(failures, base_s=_BASE_S, limit_s=_LIMIT_S if ordered else _NOT_ORDERED_LIMIT_S)
    if rate_limited and not retry_after_s:
        delay_s = max(delay_s, _RATE_LIMITED_S)
    delay_s *= 1 + _BACKOFF_JITTER * fraction(*identity, str(failures))
    return min(max(delay_s, retry_after_s or 0.0), LONGEST_S)
