"""Refusals of a certificate authority, with the next step for each.

In: a problem document (RFC 7807) as RFC 8555 uses it, and the HTTP header Retry-After. Out: ``AcmeRefused`` with a
sentence that names the next step. Pure. Never: a key, or a signature.
"""

from __future__ import annotations

from fairlead.errors import Retry

_PREFIX = "urn:ietf:params:acme:error:"
RATE_LIMITED = "rateLimited"
BAD_NONCE = "badNonce"
#: An order that is invalid and says nothing about it: it was not completed in time.
ORDER_OVER = "orderOver"
_MOST_CHARACTERS = 300
#: The account is gone, or may do nothing any more.
_ACCOUNT = frozenset({"accountDoesNotExist", "externalAccountRequired", "userActionRequired"})
_NEXT_STEP = {
    "accountDoesNotExist": "its account is not known there any more: delete the Secret with the key of the account, "
    "and a new account is made",
    "alreadyRevoked": "the certificate was revoked; another one is ordered",
    "caa": "a CAA record of the name forbids this authority: change the record, or choose another CertificateIssuer",
    "connection": "it could not reach the name at port 80: let the name resolve to the address of the load balancer, "
    "and open port 80 to the internet",
    "dns": "it could not resolve the name: publish a record for it that points to the load balancer",
    "externalAccountRequired": "it demands an account of its own: set spec.externalAccount of the CertificateIssuer "
    "to the key that it gave you",
    "incorrectResponse": "what answers at the name is not this load balancer: let the name resolve to its address only",
    "invalidContact": "it does not take the e-mail address: correct spec.email of the CertificateIssuer",
    ORDER_OVER: "the time for it is over, or it was withdrawn: nothing is to be done, another one is made",
    "malformed": "it did not understand the request; report this, with the version of Fairlead",
    RATE_LIMITED: "its limit is reached: nothing is to be done, the order is repeated when it allows that",
    "rejectedIdentifier": "it does not issue for this name: choose another name, or another CertificateIssuer",
    "serverInternal": "it has a failure of its own: nothing is to be done, the order is repeated",
    "tls": "it reached the name, and TLS failed there: let the name resolve to the load balancer only",
    "unauthorized": "what it fetched does not prove the name, or the account may not order it: let the name resolve "
    "to the load balancer only, and see that the account of the CertificateIssuer is not deactivated",
    "unsupportedContact": "it does not take the e-mail address: correct spec.email of the CertificateIssuer",
    "userActionRequired": "it has new terms: agree to them at its own site, with the account of the CertificateIssuer",
}
_UNKNOWN = "see what it says, and correct the name or the CertificateIssuer"


class AcmeRefused(Retry):
    """The authority refused something, or cannot be used now; ``kind`` is its word for it, empty without an answer.

    ``ended``: the order that it is about is over, whatever the reason was.
    """

    def __init__(
        self, sentence: str, *, kind: str = "", after_s: float | None = None, detail: str = "", ended: bool = False
    ) -> None:
        super().__init__(sentence, after_s=after_s, detail=detail, reason=_reason(kind))
        self.kind = kind
        self.ended = ended

    @property
    def rate_limited(self) -> bool:
        """Return whether the authority counts what we ask, and has enough of it."""
        return self.kind == RATE_LIMITED

    @property
    def is_answer(self) -> bool:
        """Return whether the authority itself has answered, with one of the errors of ACME."""
        return self.kind in _NEXT_STEP

    @property
    def of_account(self) -> bool:
        """Return whether no certificate can be had with this account, whatever its names are."""
        return self.kind in _ACCOUNT


def refused(
    description: str, kind: str, detail: str, *, after_s: float | None = None, ended: bool = False
) -> AcmeRefused:
    """Return the error for a problem document; ``description`` says what was refused, as "the order for a.b"."""
    short = kind.removeprefix(_PREFIX)
    quoted = f' (it says: "{one_line(detail)}")' if detail else ""
    sentence = f"the certificate authority refused {description}: {_NEXT_STEP.get(short, _UNKNOWN)}{quoted}"
    return AcmeRefused(sentence, kind=short, after_s=after_s, ended=ended)


def unreachable(server: str, why: str) -> AcmeRefused:
    """Return the error for an authority that cannot be reached, or does not speak ACME."""
    return AcmeRefused(
        f"the certificate authority at {server} cannot be used now: {one_line(why)}; see that the hub can reach it, "
        "and spec.server and spec.caBundle of the CertificateIssuer"
    )


def too_slow(server: str) -> AcmeRefused:
    """Return the error for an authority that takes a request and does not answer it."""
    return unreachable(server, "it does not answer in time")


def malformed(server: str, description: str, why: str) -> AcmeRefused:
    """Return the error for an answer that is not what RFC 8555 demands; ``description``: of what it is the answer."""
    return AcmeRefused(
        f"the certificate authority at {server} answers about {description} as no ACME server does: {one_line(why)}; "
        "this is a failure of that server: see that spec.server of the CertificateIssuer is the URL of an ACME "
        "directory, or report it to its operator"
    )


def one_line(text: str) -> str:
    """Return what another server says in a form that fits a status: printable, on one line, not too long."""
    clean = "".join(char if char.isprintable() else " " for char in text).replace('"', "'")
    clean = " ".join(clean.split())
    return clean if len(clean) <= _MOST_CHARACTERS else f"{clean[: _MOST_CHARACTERS - 3]}..."


def _reason(kind: str) -> str:
    return "AuthorityRefused" if kind else "AuthorityUnreachable"
