"""Which rule a request meets: hosts, paths, headers, methods and query parameters, through the real Envoy."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.model.http import (
    BackendRef,
    Filters,
    L7Listener,
    PathMatch,
    PathModifier,
    RequestMatch,
    Rewrite,
    Rule,
    ValueMatch,
)
from tests.xds.http_world import HTTP, HttpWorld, config, exact, get, prefix, route, to, with_config

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.req("K-41", "G-27", "GI-5", "E-18", "G-107")
async def test_a_request_reaches_its_backend_as_it_was_sent(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("r", to("one"))), backend)
    answer = await get(spec, "/some/path?a=1&b=%20x", host="any.example.com:1234", method="POST", data=b"body")
    assert answer.status == 200
    assert (answer.echo["path"], answer.echo["host"]) == ("/some/path?a=1&b=%20x", "any.example.com:1234")
    assert answer.echo["method"] == "POST"
    assert answer.headers["server"] == "fairlead"
    assert {"date", "content-length", "content-type"} <= answer.headers.keys()


@pytest.mark.req("G-30", "G-46", "GI-2", "GI-3")
async def test_paths(http: HttpWorld) -> None:
    names = ("exact", "v2", "slash", "regex", "all")
    backends = [await http.echo(name) for name in names]
    spec = await http.start(
        config(
            route(
                "r",
                to("all", matches=(prefix("/all"),)),
                to("v2", matches=(prefix("/v2"),)),
                to("slash", matches=(prefix("/aaa/bbb/"),)),
                to("regex", matches=(RequestMatch(path=PathMatch("RegularExpression", "/item/[0-9]+")),)),
                to("exact", matches=(exact("/one"), exact("/v2/exact"))),
            )
        ),
        *backends,
    )
    expected = {
        "/one": "exact", "/one/example": "404", "/One": "404", "/": "404", "/v2": "v2", "/v2/": "v2", "/v2/x": "v2",
        "/v2x": "404", "/V2": "404", "/v2/exact": "exact", "/aaa/bbb": "slash", "/aaa/bbb/": "slash",
        "/aaa/bbb/c": "slash", "/aaa": "404", "/item/7": "regex", "/item/x": "404", "/item/7/8": "404", "/all?q": "all",
    }  # fmt: skip
    assert {path: (await get(spec, path)).backend for path in expected} == expected


@pytest.mark.req("G-26", "G-28", "G-50", "G-63", "GI-4")
async def test_hostnames_and_isolation(http: HttpWorld) -> None:
    backends = [await http.echo(name) for name in ("any", "wild", "exact", "label")]
    listeners = (
        HTTP,
        L7Listener("wild", 80, hostname="*.example.com"),
        L7Listener("exact", 80, hostname="a.example.com"),
        L7Listener("empty", 80, hostname="*.empty.example.com"),
    )
    everywhere = ("a.example.com", "*.example.com", "other.org", "*.empty.example.com")
    spec = await http.start(
        config(
            route("any", to("any"), hosts=everywhere),
            route("wild", to("wild"), listeners=("wild",), hosts=("*.example.com",)),
            route("exact", to("exact", matches=(prefix("/in"),)), listeners=("exact",), hosts=("a.example.com",)),
            route("label", to("label"), hosts=("*.label.org",), one_label=True),
            listeners=listeners,
        ),
        *backends,
    )
    expected = {
        ("other.org", "/"): "any", ("other.org:8080", "/"): "any", ("b.example.com", "/"): "wild",
        ("x.y.example.com", "/"): "wild", ("B.Example.com", "/"): "wild", ("example.com", "/"): "404",
        ("a.example.com", "/in"): "exact", ("a.example.com", "/"): "404", ("z.empty.example.com", "/"): "404",
        ("x.label.org", "/"): "label", ("X.label.org:81", "/"): "label", ("x.y.label.org", "/"): "404",
        ("label.org", "/"): "404",
    }  # fmt: skip
    assert {(host, path): (await get(spec, path, host=host)).backend for host, path in expected} == expected


@pytest.mark.req("G-28")
async def test_rules_of_less_specific_hostnames_come_behind(http: HttpWorld) -> None:
    backends = [await http.echo(name) for name in ("exact", "wild", "any")]
    spec = await http.start(
        config(
            route("exact", to("exact", matches=(prefix("/exact"),)), hosts=("a.example.com",)),
            route("wild", to("wild", matches=(prefix("/wild"), prefix("/exact/deep"))), hosts=("*.example.com",)),
            route("any", to("any", matches=(prefix("/any"), prefix("/wild/deep")))),
        ),
        *backends,
    )
    expected = {"/exact/deep": "exact", "/wild/deep": "wild", "/any": "any", "/none": "404"}
    assert {path: (await get(spec, path, host="a.example.com")).backend for path in expected} == expected


@pytest.mark.req("G-29", "G-47", "G-48", "G-69")
async def test_precedence_of_methods_headers_and_parameters(http: HttpWorld) -> None:
    names = ("path", "method", "headers", "header", "query", "old", "new")
    backends = [await http.echo(name) for name in names]
    version, color = ValueMatch("Version", "two"), ValueMatch("color", "(red|blue)", "RegularExpression")
    spec = await http.start(
        config(
            route(
                "r",
                to("query", matches=(RequestMatch(query_params=(ValueMatch("q", "1"), ValueMatch("Q", "2"))),)),
                to("header", matches=(RequestMatch(headers=(version,)),)),
                to("headers", matches=(RequestMatch(headers=(version, color)),)),
                to("method", matches=(RequestMatch(method="PATCH"),)),
                to("path", matches=(prefix("/path"),)),
                created="2026-01-01T00:00:00Z",
            ),
            route("a-new", to("new"), created="2026-03-01T00:00:00Z"),
            route("z-old", to("old"), created="2026-02-01T00:00:00Z"),
        ),
        *backends,
    )
    two, both = {"version": "two"}, {"VERSION": "two", "Color": "red"}

    async def ask(path: str = "/", method: str = "GET", headers: dict[str, str] | None = None) -> str:
        return (await get(spec, path, method=method, headers=headers)).backend

    assert await ask("/path", "PATCH", both) == "path"
    assert await ask("/?q=1&Q=2", "PATCH", both) == "method"
    assert await ask("/?q=1&Q=2", "GET", both) == "headers"
    assert await ask("/?q=1&Q=2", "GET", two) == "header"
    assert await ask("/?q=1&Q=2") == "query"
    assert await ask("/?q=1&Q=3") == "old"
    assert await ask("/", "GET", {"version": "Two"}) == "old"


@pytest.mark.req("G-54", "G-55", "G-56")
async def test_rules_without_a_backend_answer_500_503_or_404(http: HttpWorld) -> None:
    backend = await http.echo("good")
    spec = await http.start(
        config(
            route(
                "r",
                to("", matches=(prefix("/unresolved"),)),
                Rule(matches=(prefix("/none"),)),
                to(BackendRef("good", weight=0), matches=(prefix("/zero"),)),
                to("good", "", matches=(prefix("/half"),)),
                to("empty", matches=(prefix("/empty"),)),
                to("good", matches=(prefix("/good"),)),
            )
        ),
        backend,
    )
    expected = {"/unresolved": "500", "/none": "500", "/zero": "503", "/empty": "503", "/good": "good", "/": "404"}
    assert {path: (await get(spec, path)).backend for path in expected} == expected
    halves = [(await get(spec, "/half")).backend for _ in range(60)]
    assert {"good", "500"} == set(halves)
    assert 15 <= halves.count("good") <= 45


@pytest.mark.req("G-61")
async def test_weights(http: HttpWorld) -> None:
    backends = [await http.echo(name) for name in ("heavy", "light", "never")]
    shares = (BackendRef("heavy", 70), BackendRef("light", 30), BackendRef("never", 0))
    spec = await http.start(config(route("r", Rule(backends=shares))), *backends)
    answers = [(await get(spec)).backend for _ in range(300)]
    assert 0.58 <= answers.count("heavy") / 300 <= 0.82
    assert set(answers) == {"heavy", "light"}


@pytest.mark.req("GI-8")
async def test_targets_of_a_backend_take_turns(http: HttpWorld) -> None:
    targets = [await http.echo(f"pod-{number}") for number in range(4)]
    spec = http.spec(config(route("r", to("web"))))
    await http.serve(spec, {"web": [each.target for each in targets]})
    assert len({(await get(spec)).backend for _ in range(8)}) == 4


@pytest.mark.req("K-41")
async def test_a_changed_route_changes_no_listener_and_moves_without_a_failure(http: HttpWorld) -> None:
    old, new = await http.echo("old"), await http.echo("new")
    spec = await http.start(config(route("r", to("old"))), old)
    counters = http.provider.counters
    listeners = dict(counters.resources)
    answers: set[str] = set()

    async def ask() -> None:
        while True:
            answers.add((await get(spec)).backend)

    async with asyncio.TaskGroup() as group:  # a connection that fails ends the test
        client = group.create_task(ask())
        for number in range(6):
            name, backend = ("new", new) if number % 2 == 0 else ("old", old)
            await http.serve(with_config(spec, config(route("r", to(name)))), {name: [backend.target]})
            assert {(await get(spec)).backend for _ in range(5)} == {name}
        assert answers == {"old", "new"}, "the old rule serves until the new backend is ready"
        client.cancel()
    from fairlead.providers.envoy.resources import ResourceType

    assert counters.resources[ResourceType.LISTENER] == listeners[ResourceType.LISTENER]


def rewrite(path: str, value: str) -> Rule:
    modifier = PathModifier("ReplacePrefixMatch", value)
    return to("one", matches=(prefix(path),), filters=Filters(rewrite=Rewrite(path=modifier)))


@pytest.mark.req("G-74")
async def test_a_replaced_prefix_has_one_slash_on_each_side(http: HttpWorld) -> None:
    """A prefix or its replacement may end in a slash, and may be nothing but one."""
    rules = (
        rewrite("/api/foo/", "/"),
        rewrite("/docs/", "/public/"),
        rewrite("/twice", "/x//"),
        rewrite("/", "/public/"),
    )
    spec = await http.start(config(route("r", *rules)), await http.echo("one"))
    expected = {
        "/api/foo/bar": "/bar",
        "/api/foo": "/",
        "/docs/a": "/public/a",
        "/docs": "/public",
        "/product": "/public/product",
        "/": "/public/",
        "/a//b?c=d": "/public/a/b?c=d",
    }
    got = {path: (await get(spec, path)).echo["path"] for path in expected}
    assert got == expected


@pytest.mark.req("G-50")
async def test_of_rules_that_match_alike_the_first_one_serves(http: HttpWorld) -> None:
    """Of matches that differ in their kind only, and of those of two rules, the first counts."""
    org, any_org = ValueMatch("x-org", "test"), ValueMatch("x-org", ".*", "RegularExpression")
    backends = [await http.echo(name) for name in ("first", "second", "exact", "regex")]
    spec = await http.start(
        config(
            route(
                "r",
                to("first", matches=(prefix("/same"),)),
                to("second", matches=(prefix("/same"),)),
                to("exact", matches=(prefix("/org", headers=(org,)),)),
                to("regex", matches=(prefix("/org", headers=(any_org,)),)),
                Rule(matches=(prefix("/nothing"),)),
            )
        ),
        *backends,
    )
    assert {(await get(spec, "/same/x")).backend for _ in range(8)} == {"first"}
    assert (await get(spec, "/org", headers={"x-org": "test"})).backend == "exact"
    assert (await get(spec, "/org", headers={"x-org": "other"})).backend == "regex"
    assert (await get(spec, "/nothing")).backend == "500", "a rule without backends takes no other rule with it"
