"""Which headers of the PROXY protocol are accepted from clients, and what is refused with its reason."""

from __future__ import annotations

import pytest

from fairlead.api.annotations import AcceptProxyProtocol, accept_problem, read_accept_proxy_protocol

pytestmark = pytest.mark.req("F-6")


def test_words_and_objects_are_read() -> None:
    assert read_accept_proxy_protocol("") is None
    assert read_accept_proxy_protocol("false") is None
    assert read_accept_proxy_protocol("true") == read_accept_proxy_protocol("required") == AcceptProxyProtocol()
    text = '{"mode": "optional", "trustedSources": ["10.0.0.0/8", "192.0.2.7"]}'
    assert read_accept_proxy_protocol(text) == AcceptProxyProtocol("optional", ("10.0.0.0/8", "192.0.2.7/32"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("optional", "trustedSources"),
        ('{"mode": "optional"}', "any client can claim any address"),
        ('{"mode": "optional", "trustedSources": []}', "trustedSources"),
        ('{"mode": "optional", "trustedSources": ["10.0.0.0/8", "::/0"]}', "any client is trusted"),
        ('{"trustedSources": ["10.0.0.1/8"]}', "trustedSources"),
        ('{"mode": "sometimes"}', "mode"),
        ('{"sources": []}', "sources"),
        ("{", "truncated"),
    ],
)
def test_unsafe_settings_are_refused_with_the_reason(text: str, why: str) -> None:
    assert why in accept_problem(text)
