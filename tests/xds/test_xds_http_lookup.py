"""The model of routing that ``fairlead route`` asks agrees with the real Envoy on generated requests."""

from __future__ import annotations

import random

import aiohttp
import pytest
from yarl import URL

from fairlead.model.http import (
    Attachment,
    Filters,
    HeaderModifier,
    HeaderValue,
    L7Config,
    L7Listener,
    PathMatch,
    RequestMatch,
    Route,
    Rule,
    ValueMatch,
)
from fairlead.providers.envoy.http.route_lookup import ClientRequest, lookup
from tests.xds.http_world import HttpWorld, config, with_config

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

LISTENERS = (
    L7Listener("any", 80),
    L7Listener("com", 80, hostname="*.com"),
    L7Listener("a", 80, hostname="*.a.com"),
    L7Listener("xa", 80, hostname="x.a.com"),
)
HOSTNAMES = ("*.com", "*.a.com", "a.com", "x.a.com", "y.a.com", "*.x.a.com", "*.org", "b.org")
HOSTS = ("a.com", "x.a.com", "y.a.com", "z.x.a.com", "q.com", "B.org", "c.d.org", "b.org:8080", "plain")
SEGMENTS = ("a", "b", "ab", "a.b", "A", "1")
PATTERNS = ("/[ab]+", "/a(/.*)?", "/[^/]+/[0-9]+", "/.*b")
METHODS = ("GET", "POST", "PUT")
VALUES = ("1", "two", "Two", "a b")
TRICKS = ("", "", "", "", "/../a", "/./b", "//a", "/%61", "/a%2Fb", "/", "/..", "%2e%2e/a", "/a%20b", "\\a")


def some_path(chance: random.Random) -> str:
    return "/" + "/".join(chance.choice(SEGMENTS) for _ in range(chance.randint(0, 3)))


def some_values(chance: random.Random, names: tuple[str, ...]) -> tuple[ValueMatch, ...]:
    return tuple(
        ValueMatch(name, chance.choice(VALUES))
        if chance.random() < 0.7
        else ValueMatch(name, chance.choice(("[0-9]+", "[tT]wo", ".*")), "RegularExpression")
        for name in names
        if chance.random() < 0.25
    )


def some_match(chance: random.Random) -> RequestMatch:
    kind = chance.choice(("Exact", "PathPrefix", "PathPrefix", "RegularExpression"))
    value = chance.choice(PATTERNS) if kind == "RegularExpression" else some_path(chance) + chance.choice(("", "", "/"))
    return RequestMatch(
        path=PathMatch(kind, value),  # type: ignore[arg-type]
        method=chance.choice((*METHODS, "", "", "", "")),
        headers=some_values(chance, ("x-one", "X-Two", "x-one")),
        query_params=some_values(chance, ("q", "Q")),
    )


def some_config(chance: random.Random) -> L7Config:
    routes: list[Route] = []
    listeners = LISTENERS[: chance.randint(1, len(LISTENERS))]
    for number in range(chance.randint(1, 8)):
        name = f"r{number}"
        rules = tuple(
            Rule(
                matches=tuple(some_match(chance) for _ in range(chance.randint(0, 3))),
                filters=Filters(response_headers=HeaderModifier(set=(HeaderValue("x-met", f"{name}/{index}"),))),
            )
            for index in range(chance.randint(1, 3))
        )
        attachments = tuple(
            Attachment(listener.name, tuple(chance.sample(HOSTNAMES, chance.randint(0, 3))), chance.random() < 0.3)
            for listener in listeners
            if chance.random() < 0.7
        )
        created = chance.choice(("", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"))
        routes.append(Route(name, "HTTP", attachments, rules, created=created))
    return config(*routes, listeners=listeners)


def some_request(chance: random.Random) -> ClientRequest:
    query = [f"{name}={chance.choice(('1', 'two', 'a%20b', '7'))}" for name in ("q", "Q", "q") if chance.random() < 0.4]
    headers = [(name, chance.choice(VALUES)) for name in ("X-One", "x-two", "X-One") if chance.random() < 0.4]
    return ClientRequest(
        chance.choice(HOSTS),
        some_path(chance) + chance.choice(TRICKS) + ("?" + "&".join(query) if query else ""),
        chance.choice(METHODS),
        tuple(headers),
    )


@pytest.mark.req("G-28", "G-29", "K-41")
@pytest.mark.parametrize("seed", range(10))
async def test_the_model_agrees_with_envoy(http: HttpWorld, seed: int) -> None:
    chance = random.Random(seed)
    spec = http.spec(config())
    met = 0
    async with aiohttp.ClientSession() as session:
        for _ in range(10):
            l7 = some_config(chance)
            spec = with_config(spec, l7)
            await http.provider.ensure(spec)
            await http.programmed(spec)
            for _ in range(100):
                request = some_request(chance)
                async with session.request(
                    request.method,
                    URL(f"http://{spec.address}:80{request.target}", encoded=True),
                    headers=[("Host", request.host), *request.headers],
                    allow_redirects=False,
                ) as answer:
                    decision = lookup(l7, request)
                    expected = f"{decision.route}/{decision.rule_number}" if decision.route else ""
                    got = (answer.status, answer.headers.get("x-met", ""))
                    assert got == (decision.status, expected), (l7, request, decision)
                    met += bool(expected)
    assert met > 100, "the requests are worth something"
