"""Extreme values of each field: what the schema and the checks accept, Envoy takes; nothing ends as a refusal of all.

Each value goes through the API's schema first, as one that a client writes does.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.errors import Terminal
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    BackendTls,
    Cors,
    Filters,
    HeaderModifier,
    HeaderValue,
    L7Listener,
    Mirror,
    PathMatch,
    PathModifier,
    Redirect,
    RequestMatch,
    RetryRule,
    Rewrite,
    Route,
    Rule,
    SessionPersistence,
    SubjectAltName,
    ValueMatch,
)
from tests.xds.http_world import Authority, HttpWorld, config, prefix, route, to

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

HUGE = [2**31 - 1, 2**32 - 1, 2**32, 10**12, 1_439_985_600_000, 2**53, 2**63 - 1, 2**64 - 1, 10**30]
#: The longest that the schema takes of each, and characters of one byte and of four; what Envoy reads as a format.
TEXTS = [
    "",
    " ",
    "x" * 253,
    "x" * 1024,
    "x" * 4096,
    "😀" * 253,
    "😀" * 600,
    "😀" * 1024,
    "😀" * 4096,
    "%",
    "%REQ(X)%",
    "a b",
    "é" * 700,
    "*" * 100,
    "a\x00b",
    "a\tb",
    "a\nb",
    "\x7f",
    "a,b;c=d",
    '"',
    "\\",
    "{$",
    "*",
]
NAMES = [
    "*.*.example.com",
    "*.",
    "*",
    "**",
    "a*b.example.com",
    "*a.example.com",
    "a.*",
    "a.*.b",
    ".",
    "a..b",
    "-",
    "_a.b",
    "é.example.com",
    "A.Example.COM",
    "a.example.com:80",
    "a b",
    "[::1]",
    "192.0.2.1",
    "x" * 253,
    ("x" * 63 + ".") * 3 + "y",
]
PATTERNS = [
    *TEXTS,
    "a{1001}",
    r"\pL{3}",
    r"\pL{285}",
    r"\x{ff}",
    r"\x{100}",
    "é{1000}",
    r"[\pL\pN_-]{150}",
    r"(\pL{1000}){1000}",
    "a{1000}b{1000}",
    "(?i)k{700}",
    r"\p{Greek}{200}",
    "[^/]{998}",
]


def path(kind: Any, value: str) -> RequestMatch:
    return RequestMatch(path=PathMatch(kind, value))


def modifier(value: HeaderModifier) -> list[Rule]:
    both = (Filters(request_headers=value), Filters(response_headers=value))
    return [to("one", filters=each) for each in both] + [to(BackendRef("one", filters=both[0]), BackendRef("one"))]


def rewritten(value: PathModifier) -> list[Rule]:
    matches = (prefix("/a"), prefix("/"))
    shown = [Filters(rewrite=Rewrite(path=value)), Filters(redirect=Redirect(path=value))]
    return [to("one", matches=matches, filters=each) for each in shown]


def _cors(*texts: str) -> Cors:
    return Cors(allow_origins=texts, allow_methods=texts, allow_headers=texts, expose_headers=texts)


CASES: dict[str, list[Rule]] = {
    "path.Exact": [to("one", matches=(path("Exact", f"/{text}"),)) for text in TEXTS],
    "path.PathPrefix": [to("one", matches=(path("PathPrefix", f"/{text}"),)) for text in [*TEXTS, "/", "a/", "a//"]],
    "path.RegularExpression": [to("one", matches=(path("RegularExpression", text),)) for text in PATTERNS],
    "method": [to("one", matches=(RequestMatch(method=text),)) for text in TEXTS],
    "headers.name": [
        to("one", matches=(RequestMatch(headers=(ValueMatch(text, "v"),)),)) for text in [*TEXTS, ":path", "Host"]
    ],
    "headers.value": [to("one", matches=(RequestMatch(headers=(ValueMatch("n", text),)),)) for text in TEXTS],
    "headers.regex": [
        to("one", matches=(RequestMatch(headers=(ValueMatch("n", text, "RegularExpression"),)),)) for text in PATTERNS
    ],
    "query.name": [to("one", matches=(RequestMatch(query_params=(ValueMatch(text, "v"),)),)) for text in TEXTS],
    "query.value": [to("one", matches=(RequestMatch(query_params=(ValueMatch("n", text),)),)) for text in TEXTS],
    "query.regex": [
        to("one", matches=(RequestMatch(query_params=(ValueMatch("n", text, "RegularExpression"),)),))
        for text in PATTERNS
    ],
    "headers.set.value": [
        each
        for text in TEXTS
        for each in modifier(HeaderModifier(set=(HeaderValue("n", text),), add=(HeaderValue("m", text),)))
    ],
    "headers.set.name": [
        each
        for text in [*TEXTS, ":path", "host", "Content-Length", "Transfer-Encoding", "Connection"]
        for each in modifier(HeaderModifier(set=(HeaderValue(text, "v"),), remove=(text,)))
    ],
    "headers.many": [
        each
        for count in (999, 1000, 1001, 2500)
        for each in modifier(
            HeaderModifier(
                set=tuple(HeaderValue(f"s{number}", "v") for number in range(count)),
                add=tuple(HeaderValue(f"a{number}", "v") for number in range(count)),
                remove=tuple(f"r{number}" for number in range(count)),
            )
        )
    ],
    "path modifier": [
        each
        for text in TEXTS
        for kind in ("ReplaceFullPath", "ReplacePrefixMatch")
        for each in rewritten(PathModifier(kind, text))  # type: ignore[arg-type]
    ],
    "prefix removed": [
        to(
            "one",
            matches=(path("PathPrefix", f"/{text}"),),
            filters=Filters(rewrite=Rewrite(path=PathModifier("ReplacePrefixMatch", "/"))),
        )
        for text in TEXTS
    ],
    "redirect": [
        Rule(filters=Filters(redirect=Redirect(hostname=text, port=port, status_code=308, scheme="https")))
        for text in (*TEXTS, *NAMES)
        for port in (0, 1, 65535)
    ],
    "rewrite.hostname": [
        each
        for text in (*TEXTS, *NAMES)
        for rewrite in [Filters(rewrite=Rewrite(hostname=text))]
        for each in (to("one", filters=rewrite), to(BackendRef("one", filters=rewrite), BackendRef("one")))
    ],
    "mirrors": [
        to("one", filters=Filters(mirrors=(Mirror("one", numerator, denominator),)))
        for numerator in (0, 1, *HUGE)
        for denominator in (1, *HUGE)
    ],
    "cors": [to("one", filters=Filters(cors=_cors(text, f"https://*.{text}"))) for text in TEXTS],
    "cors.max_age": [to("one", filters=Filters(cors=Cors(max_age=number))) for number in (-(10**30), -1, 0, *HUGE)],
    "weights": [
        to(*(BackendRef("one", weight=1_000_000) for _ in range(count))) for count in (2, 1000, 4294, 4295, 5000)
    ]
    + [to(BackendRef("one", weight=weight), BackendRef("one", weight=0)) for weight in (0, 1, *HUGE)],
    "retry": [
        to("one", retry=RetryRule(codes=tuple(range(400, 600)), attempts=attempts, backoff_ms=backoff))
        for attempts in (0, 1, 100, *HUGE)
        for backoff in (0, 1, *HUGE)
    ],
    "request timeout": [to("one", request_timeout_ms=number) for number in (0, 1, *HUGE)],
    "backend timeout": [to("one", backend_timeout_ms=number) for number in (0, 1, *HUGE)],
    "session": [
        to("one", session=SessionPersistence(kind, text, number))  # type: ignore[arg-type]
        for kind in ("Cookie", "Header")
        for text in TEXTS
        for number in (0, *HUGE)
    ],
    "requests per second": [to("one", requests_per_second=number) for number in (0, 1, 10_000_000, *HUGE)],
    "rule name": [to("one", name=text) for text in TEXTS],
}


def accepted_by_schema(route: Route) -> Route | None:
    """Return the route as it comes out of the API; None when that refuses it."""
    try:
        return msgspec.convert(msgspec.to_builtins(route), Route)
    except msgspec.ValidationError:
        return None


async def taken(http: HttpWorld, *routes: Route, **fields: Any) -> int:
    """Serve these routes; returns how many responses the proxy refused meanwhile."""
    before = sum(http.provider.counters.nacks.values())
    backend = await http.echo("one")
    await http.start(
        config(*filter(None, map(accepted_by_schema, routes)), route("good", to("one")), **fields), backend
    )
    return sum(http.provider.counters.nacks.values()) - before


@pytest.mark.parametrize("what", CASES)
async def test_accepted_rules_are_served_by_envoy(http: HttpWorld, what: str) -> None:
    routes = [
        route(f"case-{number}", rule, hosts=(f"h{number}.example.com",)) for number, rule in enumerate(CASES[what])
    ]
    assert await taken(http, *routes) == 0


@pytest.mark.parametrize("protocol", ["HTTP", "HTTPS", "TLS"])
async def test_accepted_listener_hostnames_are_served_by_envoy(http: HttpWorld, protocol: Any) -> None:
    certificate = Authority().issue("c", "a.example.com")
    before, refused = sum(http.provider.counters.nacks.values()), []
    for name in dict.fromkeys([*NAMES, *(text for text in TEXTS if len(text) <= 253)]):
        secured = () if protocol == "HTTP" else ("c",)
        try:
            listener = L7Listener("l", 443, protocol, hostname=name, certificates=secured)
            listener = msgspec.convert(msgspec.to_builtins(listener), L7Listener)
            routes = [route("r", to("one"), listeners=("l",), kind="TLS" if protocol == "TLS" else "HTTP")]
            await http.serve(http.spec(config(*routes, listeners=(listener,), certificates=(certificate,))))
        except (msgspec.ValidationError, Terminal):
            refused.append(name)
    assert "*.*.example.com" in refused
    assert "A.Example.COM" not in refused
    assert sum(http.provider.counters.nacks.values()) == before


@pytest.mark.parametrize("kind", ["HTTP", "GRPC", "TLS"])
async def test_accepted_route_hostnames_are_served_by_envoy(http: HttpWorld, kind: Any) -> None:
    names = list(dict.fromkeys([*NAMES, *(text for text in TEXTS if len(text) <= 253)]))
    listener = L7Listener("tls", 443, "TLS", passthrough=True) if kind == "TLS" else L7Listener("http", 80)
    routes = [
        Route(f"r{number}", kind, (Attachment(listener.name, (name,)),), (to("one"),))
        for number, name in enumerate(names)
    ]
    before = sum(http.provider.counters.nacks.values())
    spec = await http.serve(http.spec(config(*filter(None, map(accepted_by_schema, routes)), listeners=(listener,))))
    assert sum(http.provider.counters.nacks.values()) == before
    status = await http.provider.observe(spec.key)
    assert status is not None
    assert f"r{names.index('*.*.example.com')}" in {part.name for part in status.refused}


async def test_accepted_backends_are_served_by_envoy(http: HttpWorld) -> None:
    authority = Authority()
    settings = [BackendTls(text, authority.pem) for text in (*NAMES, *TEXTS) if len(text) <= 253]
    settings += [
        BackendTls("a.example.com", authority.pem, subject_alt_names=(SubjectAltName(kind, text),))  # type: ignore[arg-type]
        for text in (*NAMES, *TEXTS)
        for kind in ("Hostname", "URI")
    ]
    backends: list[Backend] = []
    for number, each in enumerate(settings):
        try:
            backends.append(msgspec.convert(msgspec.to_builtins(Backend(f"b{number}", tls=each)), Backend))
        except msgspec.ValidationError:
            continue
    before = sum(http.provider.counters.nacks.values())
    routes = [route(each.name, to(each.name), hosts=(f"{each.name}.example.com",)) for each in backends]
    await http.serve(http.spec(config(*routes, backends=backends)))
    assert sum(http.provider.counters.nacks.values()) == before
