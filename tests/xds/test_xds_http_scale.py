"""Big configurations at a real Envoy: many listeners, matches and routes, and what a change among them costs others."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.model.http import L7Listener, PathMatch, RequestMatch, Route, Rule
from tests.xds.http_world import HttpWorld, config, exact, get, prefix, route, to, with_config
from tests.xds.world import TIMEOUT_S

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

LISTENERS, RULES, MATCHES, ROUTES = 64, 16, 64, 5000
#: More than a change of a small load balancer sends, and far less than 5,000 routes are.
SMALL_BYTES = 50_000


@pytest.mark.req("K-41")
async def test_64_listeners_and_16_rules_of_64_matches_are_all_served(http: HttpWorld) -> None:
    backend = await http.echo("one")
    listeners = [L7Listener(f"l{number}", 80, hostname=f"l{number}.example.com") for number in range(LISTENERS)]
    rules = [
        to("one", matches=tuple(exact(f"/{rule}/{match}") for match in range(MATCHES)))
        if rule % 2
        else Rule(matches=tuple(exact(f"/{rule}/{match}") for match in range(MATCHES)))
        for rule in range(RULES)
    ]
    whole = route("whole", *rules, listeners=[each.name for each in listeners])
    spec = await http.start(config(whole, listeners=listeners), backend)
    last = LISTENERS - 1
    for host, path, status in (
        ("l0.example.com", f"/{RULES - 1}/{MATCHES - 1}", 200),
        (f"l{last}.example.com", "/1/0", 200),
        (f"l{last}.example.com", f"/0/{MATCHES - 1}", 500),
        (f"l{last}.example.com", f"/1/{MATCHES}", 404),
        ("elsewhere.example.com", "/1/0", 404),
    ):
        assert (await get(spec, path, host=host)).status == status, (host, path)


@pytest.mark.req("K-41", "G-54")
async def test_one_of_5000_routes_changes_and_another_gateway_is_sent_nothing_of_them(http: HttpWorld) -> None:
    backend = await http.echo("one")
    rest = [route(f"r{number}", to("one"), hosts=(f"h{number}.example.com",)) for number in range(1, ROUTES)]

    def first(path: str) -> Route:
        return route("r0", to("one", matches=(prefix(path),)), hosts=("h0.example.com",))

    spec = await http.start(config(first("/old"), *rest), backend)
    small = await http.start(config(route("small", to("one", matches=(prefix("/old"),)))), backend)
    assert (await get(spec, "/old", host="h0.example.com")).status == 200
    assert (await get(spec, host=f"h{ROUTES - 1}.example.com")).status == 200
    await http.provider.ensure(with_config(spec, config(first("/new"), *rest)))
    await http.programmed(spec)
    assert (await get(spec, "/new", host="h0.example.com")).status == 200
    assert (await get(spec, "/old", host="h0.example.com")).status == 404
    before = http.provider.counters.bytes_sent
    await http.provider.ensure(with_config(small, config(route("small", to("one", matches=(prefix("/new"),))))))
    await http.programmed(small)
    assert (await get(small, "/new")).status == 200
    assert 0 < http.provider.counters.bytes_sent - before < SMALL_BYTES


@pytest.mark.req("K-41")
async def test_an_expression_that_is_slow_elsewhere_holds_up_no_request(http: HttpWorld) -> None:
    backend = await http.echo("one")
    slow = RequestMatch(path=PathMatch("RegularExpression", "/(a|aa|a*)*b"))
    spec = await http.start(config(route("slow", Rule(matches=(slow,)), to("one"))), backend)
    path = "/" + "a" * 4000
    async with asyncio.timeout(TIMEOUT_S):  # a matcher that backtracks would not end before the stars do
        answers = await asyncio.gather(*(get(spec, path) for _ in range(5)), get(spec))
    assert {answer.status for answer in answers} == {200}
