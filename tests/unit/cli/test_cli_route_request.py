"""Which request METHOD URL -H represents, and the sentence for what cannot be sent."""

from __future__ import annotations

import pytest

from fairlead.cli.route import TypedRequest, parse_request
from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.http.route_lookup import ClientRequest


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("get", "https://Shop.example.com/cart?a=b#c", ["x: y", "X:z "]),
            TypedRequest(
                ClientRequest(
                    "shop.example.com", "/cart?a=b", "GET", (("x", "y"), ("X", "z")), 443, "shop.example.com"
                ),
                True,
            ),
        ),
        (("POST", "http://a.b"), TypedRequest(ClientRequest("a.b", "/", "POST"), False)),
        (("GET", "http://a.b:8080/x"), TypedRequest(ClientRequest("a.b:8080", "/x", port=8080), False)),
        (("GET", "https://a.b/", ["host: c.d"]), TypedRequest(ClientRequest("c.d", port=443, server_name="a.b"), True)),
        (("GET", "https://127.0.0.1/"), TypedRequest(ClientRequest("127.0.0.1", port=443), True, "127.0.0.1")),
        (("GET", "http://[::1]:81/"), TypedRequest(ClientRequest("[::1]:81", port=81), False, "::1")),
    ],
)
@pytest.mark.req("K-41")
def test_typed_input(arguments: tuple[str, str, list[str]], expected: TypedRequest) -> None:
    assert parse_request(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("G T", "http://a"), "'G T' is not a method"),
        (("a.b/c", "GET"), "is not a method"),
        (("http://a", "GET"), "the method comes first"),
        (("GET", "shop.example.com"), "is not a URL that begins with http:// or https://"),
        (("GET", "ftp://a/"), "is not a URL"),
        (("GET", "http:///x"), "is not a URL"),
        (("GET", "http://a:x/"), "is not a URL"),
        (("GET", "http://u:p@a/"), "-H 'Authorization"),
        (("GET", "http://a/b c"), "%XX"),
        (("GET", "http://ä.de/"), "%XX"),
        (("GET", "http://a/", ["x"]), "-H: 'x' is not 'name: value'"),
        (("GET", "http://a/", [" : x"]), "is not 'name: value'"),
        (("GET", "http://a/", ["host: b", "Host: c"]), "one Host header only"),
    ],
)
def test_what_cannot_be_sent(arguments: tuple[str, str, list[str]], part: str) -> None:
    with pytest.raises(BadConfiguration) as error:
        parse_request(*arguments)
    assert part in error.value.sentence


@pytest.mark.parametrize(
    ("url", "title"),
    [
        ("http://a.b/x", "GET http://a.b/x"),
        ("https://a.b:8443/x", "GET https://a.b:8443/x"),
        ("http://[::1]:81/", "GET http://[::1]:81/"),
        ("https://[::1]/", "GET https://[::1]/"),
    ],
)
def test_a_title_is_what_was_typed(url: str, title: str) -> None:
    assert parse_request("GET", url).title == title
