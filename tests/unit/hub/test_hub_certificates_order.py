"""How an order is brought to its end: which challenge proves a name, what is done next, and what a failure says."""

from __future__ import annotations

import base64
import hashlib

import pytest

from fairlead.api.managedcertificate import OrderChallenge
from fairlead.hub.certificates.order import (
    OrderStep,
    RemoteAuthorization,
    RemoteChallenge,
    RemoteOrder,
    Unsolvable,
    challenge_content,
    choose_challenges,
    failure_of,
    next_step,
    shown,
)

BOTH = (RemoteChallenge("http-01", "u/h", "tok"), RemoteChallenge("dns-01", "u/d", "tok"))


def name(host: str = "a.example", *, wildcard: bool = False, status: str = "pending", challenges=BOTH):
    return RemoteAuthorization("u/a", host, status, wildcard=wildcard, challenges=challenges)


def remote(status: str, **more) -> RemoteOrder:
    return RemoteOrder("u/o", status, "u/f", ("u/a",), **more)


def test_the_first_solver_that_the_authority_takes_proves_a_name():
    (http,) = choose_challenges([name()], ("HTTP01", "DNS01"), thumbprint="thumb")
    assert (http.type, http.url, http.content, http.offered) == ("http-01", "u/h", "tok.thumb", False)
    (dns,) = choose_challenges([name()], ("DNS01", "HTTP01"), thumbprint="thumb")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"tok.thumb").digest()).decode().rstrip("=")
    assert (dns.type, dns.content) == ("dns-01", digest)
    assert challenge_content("http-01", "tok", "thumb") == "tok.thumb"


def test_a_wildcard_is_proven_by_dns_only_and_a_proven_name_by_nothing():
    (wild,) = choose_challenges([name(wildcard=True)], ("HTTP01", "DNS01"), thumbprint="t")
    assert (wild.host, wild.type) == ("*.a.example", "dns-01")
    (proven,) = choose_challenges([name(status="valid")], ("HTTP01",), thumbprint="t")
    assert (proven.type, proven.offered) == ("", True)


def test_what_no_solver_can_prove_names_the_next_step():
    with pytest.raises(Unsolvable, match="add DNS01"):
        choose_challenges([name(wildcard=True)], ("HTTP01",), thumbprint="t")
    with pytest.raises(Unsolvable, match="add a solver"):
        choose_challenges([name(challenges=BOTH[1:])], ("HTTP01",), thumbprint="t")


@pytest.mark.req("MC-23")
def test_a_name_of_several_hubs_is_proven_by_dns_only():
    def is_shared(host: str) -> bool:
        return host == "a.example"

    (dns,) = choose_challenges([name()], ("HTTP01", "DNS01"), thumbprint="t", is_shared=is_shared)
    assert dns.type == "dns-01"
    (http,) = choose_challenges([name("b.example")], ("HTTP01", "DNS01"), thumbprint="t", is_shared=is_shared)
    assert http.type == "http-01"
    with pytest.raises(Unsolvable, match=r"peerLeaseSeconds.*add DNS01"):
        choose_challenges([name()], ("HTTP01",), thumbprint="t", is_shared=is_shared)


@pytest.mark.parametrize(
    ("status", "offered", "has_key", "step"),
    [
        ("pending", False, False, OrderStep.OFFER),
        ("pending", True, False, OrderStep.WAIT),
        ("ready", True, False, OrderStep.FINALIZE),
        ("processing", True, True, OrderStep.FETCH),
        ("valid", True, True, OrderStep.FETCH),
        # The key went with the process that made it: nothing else can use the certificate.
        ("valid", True, False, OrderStep.ABANDON),
        ("processing", True, False, OrderStep.ABANDON),
        ("invalid", True, True, OrderStep.FAIL),
    ],
)
def test_the_next_step_follows_from_the_record_and_the_authority(status, offered, has_key, step):
    challenges = [OrderChallenge("a.example", "http-01", offered=offered)]
    assert next_step(challenges, remote(status), has_key=has_key) is step


def test_an_order_unknown_to_the_authority_is_restarted():
    assert next_step([], None, has_key=True) is OrderStep.ABANDON


def test_the_problem_of_a_challenge_says_more_than_that_of_the_order():
    problem = ("urn:ietf:params:acme:error:caa", "CAA\nrecord forbids")
    wrong = name(challenges=(RemoteChallenge("http-01", "u", problem=problem),))
    error = failure_of(["a.example"], remote("invalid"), [wrong])
    assert error.kind == "caa"
    assert "CAA record of the name forbids this authority" in error.sentence
    assert "\n" not in error.sentence
    plain = failure_of(["a.example", "b.example"], remote("invalid", problem=("x:y", "because")), [name()])
    assert "a.example and 1 more" in plain.sentence
    assert shown([]) == "no name"
