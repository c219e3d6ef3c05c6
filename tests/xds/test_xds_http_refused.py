"""One bad route hurts no other: those that are known to be bad, and those that only Envoy finds out."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.model.desired import Target
from fairlead.model.http import (
    BackendRef,
    Filters,
    HeaderModifier,
    HeaderValue,
    PathMatch,
    PathModifier,
    RequestMatch,
    Rewrite,
    Route,
    Rule,
    ValueMatch,
)
from fairlead.model.keys import TargetKey
from fairlead.providers.envoy.http.route_lookup import ClientRequest, lookup
from fairlead.runtime.telemetry import stop_listening
from tests.programmed import wait_programmed
from tests.xds.http_world import HttpWorld, config, get, prefix, route, to, with_config

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

#: Envoy refuses it for its size.
BIG = RequestMatch(path=PathMatch("RegularExpression", "/big/" + "([a-z]{200}|[0-9]{300}){2,3}" * 8))


HOST = HeaderModifier(set=(HeaderValue("Host", "x.org"),))


def bad(name: str) -> Route:
    return route(name, Rule(matches=(BIG,)))


class RawBackend:
    """A server that keeps every byte that it gets, and answers each request with 200."""

    def __init__(self) -> None:
        self.received = b""
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> Target:
        self._server = await asyncio.start_server(self._serve, address, 0)
        return Target(TargetKey(*self._server.sockets[0].getsockname()[:2]))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            self.received += data
            if b"\r\n\r\n" in data:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    async def stop(self) -> None:
        if self._server is not None:
            await stop_listening(self._server)
            await self._server.wait_closed()


CHANGES = [
    HeaderModifier(set=(HeaderValue("Content-Length", "0"),)),
    HeaderModifier(add=(HeaderValue("Transfer-Encoding", "chunked"),)),
    HeaderModifier(remove=("content-length",)),
    HeaderModifier(set=(HeaderValue("Connection", "x-forwarded-for"),)),
]


@pytest.mark.req("L7-2")
async def test_a_rule_that_would_change_the_framing_reaches_no_backend(http: HttpWorld) -> None:
    raw = RawBackend()
    target = await raw.start(http.world.addresses.take())
    smuggled = b"GET /admin HTTP/1.1\r\nHost: inside\r\n\r\n"
    rules = [
        rule
        for number, change in enumerate(CHANGES)
        for rule in (
            to("raw", matches=(prefix(f"/request/{number}"),), filters=Filters(request_headers=change)),
            to("raw", matches=(prefix(f"/response/{number}"),), filters=Filters(response_headers=change)),
            to(BackendRef("raw", filters=Filters(request_headers=change)), matches=(prefix(f"/backend/{number}"),)),
        )
    ]
    spec = http.spec(config(route("r", *rules, to("raw", matches=(prefix("/good"),)))))
    try:
        await http.serve(spec, {"raw": [target]})
        for rule in rules:
            path = rule.matches[0].path.value
            assert (await get(spec, path, method="POST", data=smuggled)).status == 500
        assert raw.received == b""
        assert (await get(spec, "/good", method="POST", data=smuggled)).status == 200
        assert raw.received.startswith(b"POST /good HTTP/1.1\r\n")
        status = await http.provider.observe(spec.key)
        assert status is not None
        assert {(part.kind, part.name) for part in status.refused} == {("rule", "r")}
        assert len(status.refused) == len(rules)
    finally:
        await raw.stop()


@pytest.mark.req("L7-1", "L7-8")
async def test_a_refused_rule_takes_no_other_with_it(http: HttpWorld) -> None:
    backends = [await http.echo("one"), await http.echo("catch-all")]
    wrong = "a(?=b)"
    refused = [
        to("one", matches=(prefix("/host"),), filters=Filters(request_headers=HeaderModifier(remove=("Host",)))),
        to(BackendRef("one", filters=Filters(response_headers=HOST)), matches=(prefix("/backend"),)),
        to("one", matches=(RequestMatch(PathMatch("RegularExpression", f"/{wrong}")), prefix("/path"))),
        to("one", matches=(prefix("/header", headers=(ValueMatch("x-a", wrong, "RegularExpression"),)),)),
        to("one", matches=(prefix("/query", query_params=(ValueMatch("q", wrong, "RegularExpression"),)),)),
        to(
            "one",
            matches=(prefix("/target"),),
            filters=Filters(rewrite=Rewrite(path=PathModifier("ReplaceFullPath", "/x HTTP/1.1"))),
        ),
    ]
    l7 = config(
        route("mixed", *refused, to("one", matches=(prefix("/good"),)), created="2026-01-01T00:00:00Z"),
        route("others", to("catch-all"), created="2026-01-02T00:00:00Z"),
    )
    spec = await http.start(l7, *backends)
    expected = {
        "/host": "500",
        "/backend": "500",
        "/path": "500",
        "/target": "500",
        # These rules have no usable match, so no request is theirs.
        "/header": "catch-all",
        "/query": "catch-all",
        "/good": "one",
        "/": "catch-all",
    }
    assert {path: (await get(spec, path)).backend for path in expected} == expected
    for path, backend in expected.items():
        decision = lookup(l7, ClientRequest("shop.example.com", path))
        assert (decision.status or (decision.rule and decision.rule.backends[0].backend)) == (
            500 if backend == "500" else backend
        )
    status = await wait_programmed(http.provider, spec.key)
    assert [(part.kind, part.name) for part in status.refused] == [("rule", "mixed")] * len(refused)


async def settled(http: HttpWorld, key: object) -> list[str]:
    """Wait until the proxy has taken what is left; returns the routes that are not in it."""
    status = await wait_programmed(http.provider, key)  # type: ignore[arg-type]
    return [part.name for part in status.refused]


@pytest.mark.req("G-54", "K-41")
@pytest.mark.usefixtures("unchecked_expressions")
async def test_a_route_that_only_envoy_refuses_is_left_out_and_reported(http: HttpWorld) -> None:
    backend = await http.echo("one")
    good = [route(f"good-{number}", to("one", matches=(prefix(f"/{number}"),))) for number in range(20)]
    spec = http.spec(config(*good[:10], bad("bad-first"), *good[10:], bad("bad-second")))
    await http.provider.ensure(spec)
    from fairlead.model.change import Action
    from fairlead.model.keys import backend_key

    await http.world.change(spec, Action.REGISTER, backend.target, listener=backend_key("one"), wait=False)
    assert await settled(http, spec.key) == ["bad-first", "bad-second"]
    assert {(await get(spec, f"/{number}")).status for number in range(20)} == {200}
    changed = with_config(spec, config(*good, route("more", to("one", matches=(prefix("/more"),))), bad("bad-second")))
    await http.provider.ensure(changed)
    assert await settled(http, spec.key) == ["bad-second"]
    assert (await get(spec, "/more")).status == 200
    healed = with_config(spec, config(*good, route("bad-second", to("one", matches=(prefix("/healed"),)))))
    await http.provider.ensure(healed)
    assert await settled(http, spec.key) == []
    assert (await get(spec, "/healed")).status == 200


@pytest.mark.req("K-41")
async def test_what_envoy_would_refuse_is_known_before(http: HttpWorld) -> None:
    backend = await http.echo("one")
    wrong = (
        RequestMatch(path=PathMatch("RegularExpression", "/(")),
        RequestMatch(path=PathMatch("RegularExpression", "(a)\\1")),
    )
    host = Filters(request_headers=HeaderModifier(set=(HeaderValue("Host", "x"),)))
    routes = [route(f"bad-{number}", Rule(matches=(match,))) for number, match in enumerate(wrong)]
    nacks = sum(http.provider.counters.nacks.values())
    spec = await http.start(config(*routes, route("host", to("one", filters=host)), route("good", to("one"))), backend)
    assert (await get(spec)).status == 200
    assert await settled(http, spec.key) == ["bad-0", "bad-1", "host"]
    assert sum(http.provider.counters.nacks.values()) == nacks


@pytest.mark.usefixtures("unchecked_expressions")
async def test_a_load_balancer_with_only_rejected_routes_does_not_serve(http: HttpWorld) -> None:
    backend = await http.echo("one")
    wrong = RequestMatch(path=PathMatch("RegularExpression", "/("))
    spec = await http.start(config(route("known", to("one", matches=(wrong,))), bad("unknown")), backend)
    assert await settled(http, spec.key) == ["known", "unknown"]
    status = await http.provider.observe(spec.key)
    assert status is not None
    assert status.health is not None
    assert (status.health.serving, status.health.reason) == (False, "RoutesRefused")
    assert (await get(spec, "/known")).status == 404


@pytest.mark.req("L7-1")
@pytest.mark.usefixtures("unchecked_expressions")
async def test_of_a_route_that_envoy_refuses_the_other_rules_are_served(http: HttpWorld) -> None:
    backends = [await http.echo("one"), await http.echo("catch-all")]
    unnamed = RequestMatch(path=PathMatch("RegularExpression", r"/\p{NoSuchScript}"))
    long_name = Filters(request_headers=HeaderModifier(add=(HeaderValue("x" * 20_000),)))
    good = [to("one", matches=(prefix(f"/{number}"),)) for number in range(12)]
    bad_rules = [
        to("one", matches=(BIG,)),
        to("one", matches=(unnamed,)),
        to("one", matches=(prefix("/e"),), filters=long_name),
    ]
    rules = [*good[:5], bad_rules[0], *good[5:8], bad_rules[1], *good[8:], bad_rules[2]]
    others = route("others", to("catch-all"), created="2026-01-02T00:00:00Z")
    l7 = config(route("mixed", *rules, created="2026-01-01T00:00:00Z"), others)
    spec = await http.start(l7, *backends)
    status = await wait_programmed(http.provider, spec.key)
    assert {(part.kind, part.name) for part in status.refused} == {("rule", "mixed")}
    titles = sorted(part.reason.partition(":")[0] for part in status.refused)
    assert titles == ["rule 10 (left out)", "rule 15", "rule 6 (left out)"]
    assert {(await get(spec, f"/{number}")).backend for number in range(12)} == {"one"}
    assert (await get(spec, "/e")).status == 500
    assert (await get(spec, "/")).backend == "catch-all"
