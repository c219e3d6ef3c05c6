"""Actions for a request: headers, redirects, rewrites, mirrors, timeouts, retries, CORS, sessions."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
import pytest

from fairlead.model.change import Action
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.http import (
    Backend,
    BackendRef,
    Cors,
    Filters,
    HeaderModifier,
    HeaderValue,
    L7Config,
    L7Listener,
    Mirror,
    PathModifier,
    Redirect,
    RetryRule,
    Rewrite,
    Rule,
    SessionPersistence,
    ValueMatch,
)
from fairlead.model.keys import backend_key
from fairlead.providers.envoy.http.route_lookup import ClientRequest, lookup
from fairlead.providers.envoy.http.sessions import SESSION_HEADER
from tests.programmed import wait_proxies
from tests.xds.http_world import HttpWorld, config, exact, get, prefix, route, to, web_socket, with_config
from tests.xds.world import TIMEOUT_S, local_envoy

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

CHANGES = HeaderModifier(
    set=(HeaderValue("X-Set", "100% %REQ(:path)%"),), add=(HeaderValue("x-add", "two"),), remove=("X-Remove",)
)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 (a proxy has no event)
            await asyncio.sleep(0.02)


@pytest.mark.req("G-59", "G-70", "G-71")
async def test_headers_of_requests_and_responses_and_of_one_share(http: HttpWorld) -> None:
    backends = [await http.echo(name) for name in ("one", "plain", "changed")]
    shares = (
        BackendRef("plain", 1),
        BackendRef("changed", 1, Filters(request_headers=HeaderModifier(set=(HeaderValue("x-share", "yes"),)))),
    )
    spec = await http.start(
        config(
            route(
                "r",
                to("one", filters=Filters(request_headers=CHANGES, response_headers=CHANGES)),
                Rule(matches=(prefix("/shares"),), backends=shares),
            )
        ),
        *backends,
    )
    sent = {"x-set": "old", "X-Add": "one", "x-remove": "gone", "X-Echo-Set": "X-Set:old,X-Add:one,X-Remove:gone"}
    answer = await get(spec, "/p", headers=sent)
    for headers in (answer.echo["headers"], answer.headers):
        assert headers["x-set"] == "100% %REQ(:path)%"
        assert "x-remove" not in headers
    assert answer.echo["headers"]["x-add"] == "one,two"
    seen = [(await get(spec, "/shares")).echo for _ in range(20)]
    assert {(each["name"], each["headers"].get("x-share")) for each in seen} == {("plain", None), ("changed", "yes")}


REDIRECTS: list[tuple[str, Redirect, str, int, str]] = [
    ("/host", Redirect(hostname="example.org"), "http://example.org/host?q=1", 302, "http://example.org:8080/host?q=1"),
    (
        "/scheme",
        Redirect(scheme="https", status_code=301),
        "https://shop.example.com:443/scheme?q=1",
        301,
        "https://shop.example.com:443/scheme?q=1",
    ),
    (
        "/both",
        Redirect(scheme="https", hostname="example.org", status_code=303),
        "https://example.org/both?q=1",
        303,
        "https://example.org/both?q=1",
    ),
    (
        "/port",
        Redirect(port=8443, status_code=307),
        "http://shop.example.com:8443/port?q=1",
        307,
        "http://shop.example.com:8443/port?q=1",
    ),
    (
        "/prefix",
        Redirect(path=PathModifier("ReplacePrefixMatch", "/new/"), status_code=308),
        "http://shop.example.com/new/lemon?q=1",
        308,
        "http://shop.example.com:8080/new/lemon?q=1",
    ),
    (
        "/strip",
        Redirect(path=PathModifier("ReplacePrefixMatch", "/")),
        "http://shop.example.com/lemon?q=1",
        302,
        "http://shop.example.com:8080/lemon?q=1",
    ),
    (
        "/full",
        Redirect(path=PathModifier("ReplaceFullPath", "/all\\1")),
        "http://shop.example.com/all\\1?q=1",
        302,
        "http://shop.example.com:8080/all\\1?q=1",
    ),
]


@pytest.mark.req("G-58", "G-72", "G-73", "G-109")
async def test_redirects(http: HttpWorld) -> None:
    rules = [Rule(matches=(prefix(path),), filters=Filters(redirect=each)) for path, each, *_ in REDIRECTS]
    listeners = (L7Listener("http", 80), L7Listener("other", 8080))
    spec = await http.start(config(route("r", *rules, listeners=("http", "other")), listeners=listeners))
    for path, _, location, status, location_of_8080 in REDIRECTS:
        target = f"{path}/lemon?q=1" if path in {"/prefix", "/strip"} else f"{path}?q=1"
        answer = await get(spec, target)
        assert (answer.status, answer.headers["location"]) == (status, location)
        answer = await get(spec, target, port=8080, host="shop.example.com:8080")
        assert (answer.status, answer.headers["location"]) == (status, location_of_8080)


@pytest.mark.req("G-74", "G-108")
async def test_rewrites(http: HttpWorld) -> None:
    backend = await http.echo("one")

    def rewrite(path: str, kind: str, value: str, host: str = "") -> Rule:
        modifier = PathModifier(kind, value)  # type: ignore[arg-type]
        return to("one", matches=(prefix(path),), filters=Filters(rewrite=Rewrite(hostname=host, path=modifier)))

    spec = await http.start(
        config(
            route(
                "r",
                rewrite("/strip-prefix", "ReplacePrefixMatch", "/"),
                rewrite("/prefix", "ReplacePrefixMatch", "/xyz/"),
                rewrite("/a.b", "ReplacePrefixMatch", ""),
                rewrite("/", "ReplacePrefixMatch", "/base"),
                rewrite("/full", "ReplaceFullPath", "/one", "example.org"),
                to("one", matches=(exact("/host"),), filters=Filters(rewrite=Rewrite(hostname="example.net"))),
            )
        ),
        backend,
    )
    expected = {
        "/strip-prefix/three?q=1": ("/three?q=1", "shop.example.com"),
        "/strip-prefix": ("/", "shop.example.com"),
        "/strip-prefix/": ("/", "shop.example.com"),
        "/prefix": ("/xyz", "shop.example.com"),
        "/prefix/two": ("/xyz/two", "shop.example.com"),
        "/a.b/c": ("/c", "shop.example.com"),
        "/any": ("/base/any", "shop.example.com"),
        "/full/path?q=1": ("/one?q=1", "example.org"),
        "/host": ("/host", "example.net"),
    }
    got = {path: (await get(spec, path)).echo for path in expected}
    assert {path: (echo["path"], echo["host"]) for path, echo in got.items()} == expected


@pytest.mark.req("G-75")
async def test_mirrors(http: HttpWorld) -> None:
    backends = [await http.echo(name) for name in ("one", "first", "two", "never")]
    mirrors = (Mirror("first"), Mirror("two", 1, 3), Mirror("never", 0), Mirror(""))
    changes = HeaderModifier(set=(HeaderValue("x-primary", "yes"),))
    spec = await http.start(
        config(route("r", to("one", filters=Filters(mirrors=mirrors, request_headers=changes)))), *backends
    )
    for _ in range(90):
        assert (await get(spec, "/mirrored", host="m.example.com")).backend == "one"
    await eventually(lambda: len(backends[1].seen) == 90)
    assert backends[1].seen[0]["host"] == "m.example.com"
    assert 12 <= len(backends[2].seen) <= 50
    assert backends[3].seen == []


@pytest.mark.req("G-76", "G-112")
async def test_time_outs(http: HttpWorld) -> None:
    backend = await http.echo("slow")
    spec = await http.start(
        config(
            route(
                "r",
                to("slow", matches=(prefix("/request"),), request_timeout_ms=2000),
                to("slow", matches=(prefix("/try"),), backend_timeout_ms=2000),
                to("slow", matches=(prefix("/never"),), request_timeout_ms=0, backend_timeout_ms=0),
                to("slow", matches=(prefix("/none"),)),
            )
        ),
        backend,
    )
    # The answer without a delay has to come within the limit, also from a busy machine.
    paths = ["/request?delay=4", "/try?delay=4", "/request", "/never?delay=4", "/none?delay=4"]
    answers = await asyncio.gather(*(get(spec, path) for path in paths))
    assert [answer.status for answer in answers] == [504, 504, 200, 200, 200]


@pytest.mark.req("G-77")
async def test_retries(http: HttpWorld) -> None:
    backend, dead = await http.echo("flaky"), await http.echo("dead")
    await dead.stop()
    spec = http.spec(
        config(
            route(
                "r",
                to("flaky", matches=(prefix("/three"),), retry=RetryRule(codes=(500,), attempts=3, backoff_ms=10)),
                to("flaky", matches=(prefix("/plain"),)),
                to("half", matches=(prefix("/half"),)),
            )
        )
    )
    await http.serve(spec, {"flaky": [backend.target], "half": [backend.target, dead.target]})
    expected = {
        "/three?id=a&fail=2&code=500": 200,
        "/three?id=b&fail=4&code=500": 500,
        "/three?id=c&fail=1&code=503": 503,
        "/plain?id=d&fail=1&code=500": 500,
    }
    assert {path: (await get(spec, path)).status for path in expected} == expected
    assert {(await get(spec, "/half")).status for _ in range(12)} == {200}, "a dead target costs no request"


@pytest.mark.req("G-78", "G-111")
async def test_cors(http: HttpWorld) -> None:
    backend = await http.echo("one")
    listed = Cors(
        allow_origins=("https://a.example.com", "https://*.bar.com", "http://p.example.com:8080"),
        allow_methods=("GET", "OPTIONS"),
        allow_headers=("x-one", "x-two"),
        expose_headers=("x-three",),
        max_age=3600,
    )
    everything = Cors(allow_origins=("*",), allow_methods=("*",), allow_headers=("*",), allow_credentials=True)
    spec = await http.start(
        config(
            route(
                "r",
                to("one", matches=(prefix("/listed"),), filters=Filters(cors=listed)),
                to("one", matches=(prefix("/all"),), filters=Filters(cors=everything)),
            )
        ),
        backend,
    )

    async def preflight(path: str, origin: str) -> dict[str, str]:
        asked = {"Origin": origin, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-y"}
        answer = await get(spec, path, method="OPTIONS", headers=asked)
        assert answer.status in {200, 204}
        return {name: value for name, value in answer.headers.items() if name.startswith("access-control")}

    for origin in ("https://a.example.com", "https://x.y.bar.com", "http://p.example.com:8080"):
        assert await preflight("/listed", origin) == {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, OPTIONS",
            "access-control-allow-headers": "x-one, x-two",
            "access-control-max-age": "3600",
            "access-control-expose-headers": "x-three",
        }
    for origin in ("http://a.example.com", "https://bar.com", "https://a.example.com.evil.org", "http://p.example.com"):
        assert "access-control-allow-origin" not in await preflight("/listed", origin)
    answer = await preflight("/all", "https://any.org")
    assert answer["access-control-allow-origin"] == "https://any.org"
    assert answer["access-control-allow-credentials"] == "true"
    assert (answer["access-control-allow-methods"], answer["access-control-allow-headers"]) == ("PUT", "x-y")
    assert backend.seen == [], "no preflight reaches the backend"
    simple = await get(spec, "/listed", headers={"Origin": "https://a.example.com"})
    assert simple.headers["access-control-expose-headers"] == "x-three"
    foreign = await get(spec, "/listed", headers={"Origin": "https://evil.org"})
    assert foreign.status == 200
    assert "access-control-allow-origin" not in foreign.headers


@pytest.mark.req("K-41")
async def test_sessions_stay_at_their_target(http: HttpWorld) -> None:
    targets = [await http.echo(f"pod-{number}") for number in range(4)]
    spec = http.spec(
        config(
            route(
                "r",
                to("web", session=SessionPersistence(name="sid", absolute_timeout_s=60)),
                to("web", matches=(prefix("/header"),), session=SessionPersistence(type="Header", name="x-session")),
            )
        )
    )
    await http.serve(spec, {"web": [each.target for each in targets]})
    first = await get(spec)
    cookie = first.headers["set-cookie"]
    assert cookie.startswith("sid=")
    assert "Max-Age=60" in cookie
    again = {"Cookie": cookie.partition(";")[0]}
    assert {(await get(spec, headers=again)).backend for _ in range(8)} == {first.backend}
    first = await get(spec, "/header")
    again = {"x-session": first.headers["x-session"]}
    assert {(await get(spec, "/header", headers=again)).backend for _ in range(8)} == {first.backend}
    assert len({(await get(spec)).backend for _ in range(8)}) > 1


@pytest.mark.req("F-23")
@pytest.mark.parametrize("kind", ["Cookie", "Header"])
async def test_a_session_ends_with_the_drain_of_its_target(http: HttpWorld, kind: Literal["Cookie", "Header"]) -> None:
    pods = [await http.echo(f"pod-{number}") for number in range(3)]
    rule = to("web", session=SessionPersistence(kind, "sid"))
    for drain in ("", "30s"):
        served = config(route("r", rule), backends=[Backend("web", drain=drain)])
        other = await http.serve(http.spec(served), {"web": [pod.target for pod in pods]})
        first = await get(other)
        sent = first.headers["set-cookie" if kind == "Cookie" else "sid"]
        session = {"Cookie": sent.partition(";")[0]} if kind == "Cookie" else {"sid": sent}
        assert {(await get(other, headers=session)).backend for _ in range(6)} == {first.backend}
        leaving = next(pod for pod in pods if pod.name == first.backend)
        drains = msgspec.structs.replace(leaving.target, draining=True)
        await http.world.change(other, Action.REGISTER, drains, listener=backend_key("web"))
        after = {(await get(other, headers=session)).backend for _ in range(6)}
        assert (after == {first.backend}) is bool(drain), "without a drain time, sessions leave at once"
        assert first.backend not in {(await get(other)).backend for _ in range(6)}, "it gets no new sessions"
        await http.world.change(other, Action.DEREGISTER, leaving.target, listener=backend_key("web"))
        assert first.backend not in {(await get(other, headers=session)).backend for _ in range(6)}


@pytest.mark.req("F-23")
@pytest.mark.parametrize("kind", ["Cookie", "Header"])
async def test_a_session_shows_no_address_and_cannot_be_made_by_a_client(
    http: HttpWorld, kind: Literal["Cookie", "Header"]
) -> None:
    pods = [await http.echo(f"pod-{number}") for number in range(4)]
    spec = http.spec(config(route("r", to("web", session=SessionPersistence(kind, "sid")))))
    await http.serve(spec, {"web": [pod.target for pod in pods]})

    def headers(value: str) -> dict[str, str]:
        return {"Cookie": f"a=b; sid={value}; c=d"} if kind == "Cookie" else {"sid": value}

    async def values(**sent: str) -> tuple[str, str, Mapping[str, str]]:
        answer = await get(spec, headers=sent)
        text = answer.headers.get("set-cookie", "").partition(";")[0].removeprefix("sid=")
        return answer.backend, text if kind == "Cookie" else answer.headers.get("sid", ""), answer.headers

    backend, value, shown = await values()
    assert re.fullmatch("[0-9a-f]{96}", value)
    places = [f"{pod.target.key.address}:{pod.target.key.port}".encode() for pod in pods]
    for text in (bytes.fromhex(value), *(str(header).encode() for header in shown.items())):
        assert not any(place in text or base64.b64encode(place) in text for place in places)
    kept = await get(spec, headers=headers(value))
    assert kept.backend == backend
    assert SESSION_HEADER not in kept.echo["headers"]
    assert (await values(**headers(value)))[1] == "", "a session that stays is not given again"
    forged = [value[:-1] + ("0" if value[-1] != "0" else "1"), value[:-2], f"{value}00", value.upper(), "0" * 96, "x"]
    forged += [base64.b64encode(place).decode() for place in places]
    for text in forged:
        answers = [await values(**headers(text)) for _ in range(4)]
        assert all(given for _, given, _ in answers), text
        assert len({chosen for chosen, *_ in answers}) > 1, "clients with forged sessions are spread as new ones"
    for place in places:
        direct = {SESSION_HEADER: base64.b64encode(place).decode()}
        assert len({(await values(**direct))[0] for _ in range(4)}) > 1


@pytest.mark.req("F-23")
@pytest.mark.parametrize("several_backends", [False, True])
async def test_a_session_ends_when_it_is_idle(http: HttpWorld, several_backends: bool) -> None:
    targets = await several(http, a=4, b=4) if several_backends else await several(http, a=8)
    session = SessionPersistence(name="sid", absolute_timeout_s=600, idle_timeout_s=3)
    spec = http.spec(config(route("r", to(*targets, session=session))))
    await http.serve(spec, targets)
    browser = Browser(spec)
    first = await browser.get()
    began = dict(browser.jar)
    for _ in range(5):
        await asyncio.sleep(1)
        assert await browser.get() == first, "each request counts the time anew"
    assert browser.jar["sid", "/"] != began["sid", "/"]
    assert len({await Browser(spec, began).get() for _ in range(12)}) > 1, "the first cookie was idle for too long"


@pytest.mark.req("F-23")
async def test_a_header_session_ends_at_its_absolute_time_out(http: HttpWorld) -> None:
    targets = await several(http, a=8)
    session = SessionPersistence("Header", "sid", absolute_timeout_s=3, idle_timeout_s=2)
    spec = http.spec(config(route("r", to("a", session=session))))
    await http.serve(spec, targets)
    first = await get(spec)
    value, ends = first.headers["sid"], asyncio.get_running_loop().time() + 4
    while asyncio.get_running_loop().time() < ends:
        answer = await get(spec, headers={"sid": value})
        value = answer.headers.get("sid", value)
        await asyncio.sleep(0.5)
    assert len({(await get(spec, headers={"sid": first.headers["sid"]})).backend for _ in range(12)}) > 1


@pytest.mark.req("F-23")
async def test_a_session_survives_a_restart_of_the_proxy(http: HttpWorld) -> None:
    """What a proxy needs is in the cookie: one that has never met the client leads it to the same target."""
    pods = [await http.echo(f"pod-{number}") for number in range(3)]
    spec = http.spec(config(route("r", to("web", session=SessionPersistence(name="sid")))))
    await http.serve(spec, {"web": [pod.target for pod in pods]})
    browser = Browser(spec)
    first = await browser.get()
    running = local_envoy(http.provider).running
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    await wait_proxies(lambda: not http.provider.proxies(), timeout_s=TIMEOUT_S)
    await http.programmed(spec)
    assert {await browser.get() for _ in range(6)} == {first}


class Browser:
    """A client that keeps cookies by name and path, and sends those that fit, the longest path first."""

    def __init__(self, spec: FrontendSpec, jar: Mapping[tuple[str, str], str] = {}) -> None:
        self.spec = spec
        self.jar = dict(jar)

    async def get(self, path: str = "/") -> str:
        fits = [
            (len(at), f"{name}={value}")
            for (name, at), value in self.jar.items()
            if at == "/" or path == at or path.startswith(f"{at}/")
        ]
        sent = "; ".join(text for _, text in sorted(fits, reverse=True))
        answer = await get(self.spec, path, headers={"Cookie": sent} if sent else {})
        # Values of one name are joined with commas, and none of ours holds one.
        for cookie in filter(None, answer.headers.get("set-cookie", "").split(",")):
            pair, *attributes = (part.strip() for part in cookie.split(";"))
            assert [each.lower() for each in attributes].count("httponly") == 1, cookie
            name, _, value = pair.partition("=")
            at = next((each.partition("=")[2] for each in attributes if each.lower().startswith("path=")), "/")
            self.jar[name, at] = value
        return answer.backend


async def several(http: HttpWorld, **names: int) -> dict[str, list[Target]]:
    return {
        name: [(await http.echo(f"{name}{number}")).target for number in range(count)] for name, count in names.items()
    }


@pytest.mark.req("L7-3")
@pytest.mark.parametrize("weights", [(1, 1), (9, 1), (1, 0)])
async def test_a_session_stays_at_its_target_among_several_backends(http: HttpWorld, weights: tuple[int, int]) -> None:
    targets = await several(http, stable=2, canary=2)
    changed = Filters(request_headers=HeaderModifier(set=(HeaderValue("x-share", "canary"),)))
    refs = (BackendRef("stable", weights[0]), BackendRef("canary", weights[1], changed))
    spec = http.spec(config(route("r", to(*refs, session=SessionPersistence(absolute_timeout_s=60)))))
    await http.serve(spec, targets)
    for _ in range(6):
        browser = Browser(spec)
        first = await browser.get()
        assert {await browser.get() for _ in range(8)} == {first}
    assert len({await Browser(spec).get() for _ in range(24)}) > 1


@pytest.mark.req("L7-3")
async def test_a_session_stays_when_its_backend_gets_no_new_ones(http: HttpWorld) -> None:
    targets = await several(http, stable=1, canary=2)

    def shares(stable: int, canary: int) -> L7Config:
        refs = (BackendRef("stable", stable), BackendRef("canary", canary))
        return config(route("r", to(*refs, session=SessionPersistence(name="sid"))))

    spec = http.spec(shares(0, 1))
    await http.serve(spec, targets)
    browser = Browser(spec)
    first = await browser.get()
    assert first.startswith("canary")
    l7 = shares(1, 0)
    await http.provider.ensure(with_config(spec, l7))
    await http.programmed(spec)
    assert {await browser.get() for _ in range(8)} == {first}
    assert {await Browser(spec).get() for _ in range(8)} == {"stable0"}
    sent = tuple(("Cookie", f"{name}={value}") for (name, _), value in browser.jar.items())
    decision = lookup(l7, ClientRequest("shop.example.com", "/", headers=sent))
    assert decision.rule is not None
    assert [each.backend for each in decision.rule.backends] == ["canary"]
    # What serves no more is left, as where a canary is scaled to nothing, and the session begins again.
    await http.world.change(spec, Action.DEREGISTER, *targets["canary"], listener=backend_key("canary"))
    assert {await browser.get() for _ in range(4)} == {"stable0"}
    await http.world.change(spec, Action.REGISTER, *targets["canary"], listener=backend_key("canary"))
    assert {await browser.get() for _ in range(4)} == {"stable0"}


@pytest.mark.req("EDGE-08")
@pytest.mark.parametrize("name", ["", "shared"])
async def test_the_sessions_of_two_rules_do_not_meet(http: HttpWorld, name: str) -> None:
    targets = await several(http, a=3, b=3)
    session = SessionPersistence(name=name)
    rules = (to("a", matches=(prefix("/a"),), session=session), to("b", matches=(prefix("/b"),), session=session))
    spec = http.spec(config(route("r", *rules)))
    await http.serve(spec, targets)
    browser = Browser(spec)
    first = {path: await browser.get(path) for path in ("/a", "/b")}
    for _ in range(8):
        assert {path: await browser.get(path) for path in ("/a", "/b")} == first
    assert await browser.get("/a/deeper") == first["/a"]


@pytest.mark.req("L7-3")
async def test_the_sessions_of_two_rules_with_one_path_do_not_meet(http: HttpWorld) -> None:
    targets = await several(http, a=3, b=3)
    session = SessionPersistence(name="sid")
    rules = (
        to("a", matches=(prefix("/", query_params=(ValueMatch("to", "a"),)),), session=session),
        to("b", matches=(prefix("/"),), session=session),
    )
    spec = http.spec(config(route("r", *rules)))
    await http.serve(spec, targets)
    browser = Browser(spec)
    first = {path: await browser.get(path) for path in ("/?to=a", "/")}
    assert any(name == "sid" for name, _ in browser.jar)
    for _ in range(8):
        assert {path: await browser.get(path) for path in ("/?to=a", "/")} == first


@pytest.mark.req("L7-3")
async def test_a_session_header_with_several_backends_is_refused(http: HttpWorld) -> None:
    backends = [await http.echo("one"), await http.echo("two")]
    session = SessionPersistence("Header", "x-session")
    rules = (to("one", "two", matches=(prefix("/both"),), session=session), to("one", matches=(prefix("/good"),)))
    spec = await http.start(config(route("r", *rules)), *backends)
    assert [(await get(spec, path)).status for path in ("/both", "/good")] == [500, 200]
    status = await http.provider.observe(spec.key)
    assert status is not None
    assert "session persistence" in status.refused[0].reason


@pytest.mark.req("G-79", "E-18")
async def test_a_web_socket_survives_a_changed_route(http: HttpWorld) -> None:
    backend = await http.echo("one")
    l7 = config(route("r", to("one")))
    spec = await http.start(l7, backend)
    async with web_socket(spec) as socket:
        for number in range(3):
            import msgspec

            changed = config(route("r", to("one"), to("one", matches=(prefix(f"/{number}"),))))
            await http.provider.ensure(msgspec.structs.replace(spec, l7=changed))
            await http.programmed(spec)
            await socket.send_str(f"{number}")
            assert await socket.receive_str(timeout=TIMEOUT_S) == f"one: {number}"
