"""Tokens (JWT) that requests must have, at a real Envoy with a real issuer of keys."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.http import Backend, BackendTls, ClaimToHeader, Cors, Filters, JWTProvider, RequiredClaim
from fairlead.model.keys import TargetKey
from fairlead_demo.worlds.processes import wait_until
from tests.xds.http_world import (
    Authority,
    HttpWorld,
    Response,
    config,
    get,
    prefix,
    route,
    server_context,
    to,
    with_config,
)

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session"), pytest.mark.req("F-20")]

ISSUER = "https://login.example.com"
PROVIDER = JWTProvider(
    ISSUER, audiences=("shop",), backend="keys", uri="http://login.example.com/keys", cache_seconds=1
)


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class Key:
    """One key of an issuer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        x, y = (encoded(each.to_bytes(32, "big")) for each in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": self.name, "x": x, "y": y}

    def token(self, *, lives_s: float = 600, **claims: Any) -> dict[str, str]:
        """Return the header with a token."""
        body = {"iss": ISSUER, "aud": "shop", "sub": "ann", "exp": int(time.time() + lives_s), **claims}
        parts = [{"alg": "ES256", "kid": self.name, "typ": "JWT"}, body]
        text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
        r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(SHA256())))
        return {"Authorization": f"Bearer {text}.{encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"}


class Issuer:
    """Serves its public keys."""

    def __init__(self) -> None:
        self.keys = [Key("1")]
        self.asked = 0
        self._runner: web.AppRunner | None = None

    @property
    def jwks(self) -> str:
        return json.dumps({"keys": [key.public for key in self.keys]})

    async def start(self, address: str, context: ssl.SSLContext | None = None) -> Target:
        app = web.Application()
        app.router.add_get("/keys", self._serve)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, 0, ssl_context=context)
        await site.start()
        return Target(TargetKey(*site._server.sockets[0].getsockname()[:2]))  # type: ignore[union-attr]

    async def _serve(self, request: web.Request) -> web.Response:
        self.asked += 1
        assert request.headers["Host"] == "login.example.com"
        return web.Response(text=self.jwks)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


@pytest_asyncio.fixture(loop_scope="session")
async def issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    yield issuer
    await issuer.stop()


async def serve(
    http: HttpWorld, *providers: JWTProvider, keys: Target | None = None, tls: BackendTls | None = None, **fields: Any
) -> FrontendSpec:
    """Serve a route whose paths but those below /open ask for tokens of these issuers."""
    echo = await http.echo("one")
    rules = (to("one", matches=(prefix("/open"),)), to("one", jwt=providers, **fields))
    spec = http.spec(config(route("r", *rules), backends=[Backend("keys", tls=tls)]))
    return await http.serve(spec, {"one": [echo.target], "keys": [keys] if keys else []})


async def ask(spec: FrontendSpec, headers: Mapping[str, str] | None = None, path: str = "/page") -> Response:
    return await get(spec, path, headers=dict(headers or {}))


async def becomes(spec: FrontendSpec, status: int, headers: Mapping[str, str]) -> None:
    async def so() -> bool:
        return (await ask(spec, headers)).status == status

    await wait_until(so, f"the answer is {status}")


async def test_requests_need_a_valid_token_of_the_issuer(http: HttpWorld, issuer: Issuer) -> None:
    spec = await serve(http, PROVIDER, keys=await issuer.start(http.world.addresses.take()))
    key = issuer.keys[0]
    await becomes(spec, 200, key.token())
    forged = key.token()["Authorization"][:-4] + "AAAA"
    unsigned = ".".join(
        encoded(json.dumps(part).encode()) for part in ({"alg": "none"}, {"iss": ISSUER, "aud": "shop"})
    )
    for headers in (
        {},
        {"Authorization": forged},
        {"Authorization": "Basic YTpi"},
        key.token(lives_s=-600),
        key.token(iss="https://other.example.com"),
        Key("1").token(),
        {"Authorization": f"Bearer {unsigned}."},
    ):
        assert (await ask(spec, headers)).status == 401, headers
    assert (await ask(spec, key.token(aud="other"))).status == 403
    assert (await ask(spec, key.token(aud=["other", "shop"]))).status == 200
    assert (await ask(spec, path="/open/page")).status == 200
    token = key.token()
    assert (await ask(spec, token)).echo["headers"]["authorization"] == token["Authorization"]
    in_query = token["Authorization"].removeprefix("Bearer ")
    assert (await get(spec, f"/page?access_token={in_query}")).status == 401


async def test_claims_decide_and_become_headers_that_no_client_writes(http: HttpWorld, issuer: Issuer) -> None:
    provider = JWTProvider(
        ISSUER,
        jwks=issuer.jwks,
        claim_to_headers=(ClaimToHeader("sub", "x-user"), ClaimToHeader("org.team", "x-team")),
        required_claims=(
            RequiredClaim("scope", ("write", "admin")),
            RequiredClaim("https://example.com/roles", ("buyer",)),
            RequiredClaim("email_verified", ("true",)),
        ),
    )
    cors = Cors(allow_origins=("https://app.example.com",), allow_methods=("GET",))
    spec = await serve(http, provider, filters=Filters(cors=cors))
    key = issuer.keys[0]
    good: dict[str, Any] = {"scope": "read write", "https://example.com/roles": ["buyer", "x"], "email_verified": True}
    forged = {"X-User": "root", "X-Team": "root"}
    passed = await ask(spec, {**key.token(**good, org={"team": "blue"}), **forged})
    assert (passed.echo["headers"]["x-user"], passed.echo["headers"]["x-team"]) == ("ann", "blue")
    assert "x-team" not in (await ask(spec, {**key.token(**good), **forged})).echo["headers"]
    wrong: list[dict[str, Any]] = [
        {**good, "scope": "read writer"},
        {**good, "https://example.com/roles": []},
        {**good, "email_verified": False},
        {},
    ]
    for claims in wrong:
        assert (await ask(spec, key.token(**claims))).status == 403, claims
    preflight = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "GET"}
    assert (await get(spec, "/page", method="OPTIONS", headers=preflight)).status == 200, "browsers send no token"


async def test_either_of_several_issuers_will_do_with_the_claims_of_that_one(http: HttpWorld, issuer: Issuer) -> None:
    other = Key("2")
    providers = (
        JWTProvider(ISSUER, jwks=issuer.jwks, required_claims=(RequiredClaim("role", ("admin",)),)),
        JWTProvider("https://partner.example.com", jwks=json.dumps({"keys": [other.public]})),
    )
    spec = await serve(http, *providers)
    assert (await ask(spec, issuer.keys[0].token())).status == 403
    assert (await ask(spec, issuer.keys[0].token(role="admin"))).status == 200
    assert (await ask(spec, other.token(iss="https://partner.example.com"))).status == 200
    assert (await ask(spec, other.token())).status == 401, "a key counts for its own issuer"


async def test_keys_rotate_and_outlive_a_dead_issuer(http: HttpWorld, issuer: Issuer) -> None:
    spec = await serve(http, PROVIDER, keys=await issuer.start(http.world.addresses.take()))
    old, new = issuer.keys[0], Key("2")
    await becomes(spec, 200, old.token())
    issuer.keys = [old, new]
    await becomes(spec, 200, new.token())
    issuer.keys = [new]
    await becomes(spec, 401, old.token())
    await issuer.stop()
    # Longer than the keys are cached, and through a change of routes.
    await asyncio.sleep(2.5)
    assert (await ask(spec, new.token())).status == 200
    assert spec.l7 is not None
    (routed,) = spec.l7.routes
    routed = msgspec.structs.replace(routed, rules=(*routed.rules, to("one", matches=(prefix("/later"),))))
    changed = with_config(spec, msgspec.structs.replace(spec.l7, routes=(routed,)))
    await http.provider.ensure(changed)
    await http.programmed(changed)
    assert (await ask(changed, path="/later")).status == 200
    assert (await ask(changed, new.token())).status == 200


@pytest.mark.parametrize(("host", "status"), [("login.example.com", 200), ("other.example.com", 401)])
async def test_keys_over_tls(
    http: HttpWorld, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, status: int
) -> None:
    authority, trusted = Authority(), tmp_path / "authorities"
    trusted.write_text(authority.pem)
    monkeypatch.setattr("fairlead.providers.envoy.clusters.SYSTEM_AUTHORITIES", str(trusted))
    context = server_context(authority.issue("login", "login.example.com"), tmp_path)
    tls = BackendTls(host, system_ca=True)
    provider = msgspec.structs.replace(PROVIDER, uri="https://login.example.com/keys")
    keys = await issuer.start(http.world.addresses.take(), context)
    spec = await serve(http, provider, keys=keys, tls=tls)
    await becomes(spec, status, issuer.keys[0].token())
    assert bool(issuer.asked) is (status == 200)


async def test_without_keys_no_request_passes(http: HttpWorld) -> None:
    dead = Target(TargetKey(http.world.addresses.take(), 9))
    assert (await ask(await serve(http, PROVIDER, keys=dead), Key("1").token())).status == 401
    unresolved = msgspec.structs.replace(PROVIDER, backend="")
    assert (await ask(await serve(http, unresolved), Key("1").token())).status == 500


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "2130706433"]
)
async def test_a_uri_of_loopback_is_refused_and_other_rules_serve(http: HttpWorld, host: str) -> None:
    provider = msgspec.structs.replace(PROVIDER, uri=f"http://{host}:15000/keys")
    spec = await serve(http, provider)
    assert (await ask(spec, Key("1").token())).status == 500
    assert (await ask(spec, path="/open/page")).status == 200
