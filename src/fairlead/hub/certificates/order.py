"""An order at a certificate authority as data, and the next step of it.

    no order            BEGIN      a new one; its challenges are chosen and recorded before they are served
    not all offered     OFFER      each challenge that is answered already: the authority is asked to check it
    pending             WAIT       the authority checks
    ready               FINALIZE   a new key, and the request that it signs
    processing, valid   FETCH      with the key of this process, else ABANDON: nothing else has the key
    invalid, unknown    FAIL or ABANDON

In: what is recorded, and what the authority says now. Out: challenges and steps. Pure: no clock, no network.
Source: RFC 8555, section 7.1.6.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from fairlead.api.managedcertificate import ChallengeType, OrderChallenge, Solver
from fairlead.errors import Terminal
from fairlead.hub.certificates.problems import ORDER_OVER, AcmeRefused, refused
from fairlead.model.in_words import listed

_TYPES: dict[Solver, ChallengeType] = {"HTTP01": "http-01", "DNS01": "dns-01"}


class RemoteChallenge(msgspec.Struct, frozen=True):
    """A way to prove a name that the authority offers; ``problem`` is (kind, text) when it failed."""

    type: str
    url: str
    token: str = ""
    status: str = "pending"
    problem: tuple[str, str] | None = None


class RemoteAuthorization(msgspec.Struct, frozen=True):
    """The authority's authorization for one name; the name of a wildcard is without its star."""

    url: str
    host: str
    status: str
    wildcard: bool = False
    challenges: tuple[RemoteChallenge, ...] = ()


class RemoteOrder(msgspec.Struct, frozen=True):
    """An order as the authority has it; ``after_s`` is when it may be asked again."""

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
    authorizations: Iterable[RemoteAuthorization], solvers: Sequence[Solver], *, thumbprint: str
) -> tuple[OrderChallenge, ...]:
    """Return how each name is proven; names that the authority has proof of already need nothing.

    Raises:
        Unsolvable: the sentence says which name, and what would help.
    """
    return tuple(
        _choose(each, solvers, thumbprint) if each.status != "valid" else OrderChallenge(_host(each), offered=True)
        for each in authorizations
    )


def _choose(authorization: RemoteAuthorization, solvers: Sequence[Solver], thumbprint: str) -> OrderChallenge:
    host = _host(authorization)
    usable: list[Solver] = [each for each in solvers if not (authorization.wildcard and each == "HTTP01")]
    for solver in usable:
        offered = next((each for each in authorization.challenges if each.type == _TYPES[solver]), None)
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
        raise Unsolvable(f"{host} is a wildcard, which DNS01 alone can prove: add DNS01 to spec.solvers of the issuer")
    offered_types = ", ".join(each.type for each in authorization.challenges) or "nothing"
    ours = ", ".join(usable)
    raise Unsolvable(f"the authority offers {offered_types} for {host}, and spec.solvers has {ours}: add a solver")


def challenge_content(kind: ChallengeType, token: str, thumbprint: str) -> str:
    """Return what proves a name: the key authorization, or its digest as the text of a TXT record."""
    authorization = f"{token}.{thumbprint}"
    if kind != "dns-01":
        return authorization
    digest = hashlib.sha256(authorization.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def next_step(challenges: Iterable[OrderChallenge], remote: RemoteOrder | None, *, has_key: bool) -> OrderStep:
    """Return what is to be done next; ``remote`` None: the authority does not know the order (any more)."""
    if remote is None:
        return OrderStep.ABANDON
    if remote.status == "invalid":
        return OrderStep.FAIL
    if remote.status in {"processing", "valid"}:
        return OrderStep.FETCH if has_key else OrderStep.ABANDON
    if remote.status == "ready":
        return OrderStep.FINALIZE
    return OrderStep.WAIT if all(each.offered for each in challenges) else OrderStep.OFFER


def failure_of(hosts: Sequence[str], remote: RemoteOrder, authorizations: Iterable[RemoteAuthorization]) -> AcmeRefused:
    """Return why an order failed: the problem of a challenge says more than that of the order."""
    for authorization in authorizations:
        for challenge in authorization.challenges:
            if challenge.problem is not None:
                description = f"the proof of {_host(authorization)}"
                return refused(description, *challenge.problem, after_s=remote.after_s, ended=True)
    kind, detail = remote.problem or (ORDER_OVER, "")
    return refused(f"the order for {shown(hosts)}", kind, detail, after_s=remote.after_s, ended=True)


def shown(hosts: Sequence[str]) -> str:
    """Return names for a sentence: the first, and how many more."""
    return listed(hosts, 1) or "no name"


def _host(authorization: RemoteAuthorization) -> str:
    return f"*.{authorization.host}" if authorization.wildcard else authorization.host
