"""Which listeners a load balancer needs next to its own to answer challenges at port 80."""

from __future__ import annotations

import pytest

from fairlead.model.http import FixedAnswer, L7Listener
from fairlead.translate.generated import covers, with_challenge_listeners

ANSWER = FixedAnswer("a.example.com", "/.well-known/acme-challenge/t", "t.k")
HTTPS = L7Listener("https", 443, "HTTPS")


def test_a_listener_of_http_that_takes_the_name_is_enough():
    for listener in (L7Listener("http", 80), L7Listener("http", 80, hostname="*.example.com")):
        assert with_challenge_listeners([listener, HTTPS], [ANSWER]) == (listener, HTTPS)
    assert with_challenge_listeners([HTTPS], []) == (HTTPS,)


@pytest.mark.parametrize("there", [(HTTPS,), (L7Listener("other", 80, hostname="b.example.com"), HTTPS)])
def test_one_is_opened_for_the_name_as_long_as_the_challenge_lasts(there):
    *own, added = with_challenge_listeners(list(there), [ANSWER])
    assert tuple(own) == there
    assert (added.port, added.protocol, added.hostname) == (80, "HTTP", "a.example.com")


def test_a_port_of_another_protocol_is_left_alone():
    tcp = L7Listener("tcp", 80, "TCP")
    assert with_challenge_listeners([tcp], [ANSWER]) == (tcp,)
    udp = L7Listener("udp", 80, "UDP")
    assert len(with_challenge_listeners([udp], [ANSWER])) == 2


@pytest.mark.parametrize(
    ("pattern", "host", "taken"),
    [
        ("", "a.b", True),
        ("A.b", "a.B", True),
        ("*.b", "a.b", True),
        ("*.b", "x.a.b", True),
        ("*.b", "b", False),
        ("*.b", "ab", False),
        ("a.b", "c.b", False),
    ],
)
def test_a_star_matches_one_label_or_more(pattern: str, host: str, taken: bool):
    assert covers(pattern, host) is taken
