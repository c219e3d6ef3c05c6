"""An ACME server (RFC 8555) for tests and demos, over HTTP, which verifies signatures and challenges.

In: requests of ACME clients, and functions that resolve names. Out: certificates of its own root, after an HTTP-01 or
DNS-01 challenge was validated. Tests can inject faults. Not for production: it has no policy and no storage.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import aiohttp
import msgspec
from acme import jws
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from josepy.b64 import b64encode
from josepy.jwk import JWKOct

from fairlead.model.in_words import host_port

_LOOK_S = 10.0


class _Order(msgspec.Struct):
    hosts: tuple[str, ...]
    account: str
    authorizations: tuple[str, ...]
    status: str = "pending"
    error: dict[str, str] | None = None
    chain: bytes = b""


class _Authorization(msgspec.Struct):
    host: str
    wildcard: bool
    token: str
    thumbprint: str
    status: str = "pending"
    tried: str = ""
    error: dict[str, str] | None = None


class _Account(msgspec.Struct):
    jwk: Any
    status: str = "valid"


class AcmeServer:
    """An ACME server; ``where`` returns address and port for HTTP-01 of a name, ``texts`` the values of a TXT record.

    ``external``: the HMAC keys (base64url) by key id; new accounts need an external account binding.
    """

    def __init__(
        self,
        *,
        where: Callable[[str], tuple[str, int]],
        texts: Callable[[str], Awaitable[list[str]]] | None = None,
        life: dt.timedelta = dt.timedelta(days=90),
        external: dict[str, str] | None = None,
    ) -> None:
        self.faults = AcmeFaults()
        self.life = life
        #: How far in the past certificates begin to be valid.
        self.backdated = dt.timedelta(minutes=5)
        #: Make every authorization valid at once, as an authority does that has validated the name before.
        self.trusting = False
        #: The number of events by type: newOrder, validated, issued, badNonce, account.
        self.counts: Counter[str] = Counter()
        self.issued: list[tuple[str, ...]] = []
        #: The certificates, as renewal information names them, that an order has replaced.
        self.replaced: set[str] = set()
        self._where = where
        self._texts = texts
        self._external = external
        self._nonces: set[str] = set()
        self._accounts: dict[str, _Account] = {}
        self._orders: dict[str, _Order] = {}
        self._authorizations: dict[str, _Authorization] = {}
        self._proven_names: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._authority = Authority()
        self._runner: web.AppRunner | None = None
        self.url = ""

    @property
    def root(self) -> bytes:
        """Return the root certificate, PEM."""
        return self._authority.root

    @property
    def directory(self) -> str:
        """Return the URL of the ACME directory."""
        return f"{self.url}/directory"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Self:
        """Serve until ``close``."""
        app = web.Application()
        app.router.add_get("/directory", self._directory)
        app.router.add_get("/nonce", self._nonce)
        for path, handler in (
            ("/account", self._new_account),
            ("/order", self._new_order),
            ("/order/{id}", self._get_order),
            ("/name/{id}", self._get_authorization),
            ("/challenge/{id}/{type}", self._challenge),
            ("/finalize/{id}", self._finalize),
            ("/certificate/{id}", self._certificate),
        ):
            app.router.add_post(path, self._signed(handler))
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        address = self._runner.addresses[0]
        self.url = f"http://{address[0]}:{address[1]}"
        return self

    async def close(self) -> None:
        """Stop serving."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- actions of an operator of the authority ------------------------------------------------------------------

    def deactivate_accounts(self) -> None:
        """Deactivate every account."""
        for account in self._accounts.values():
            account.status = "deactivated"

    def forget_orders(self) -> None:
        """Delete every order, as an authority that was restored from a backup."""
        self._orders.clear()
        self._proven_names.clear()

    def end_orders(self, kind: str) -> None:
        """Make every pending order invalid, with this problem type."""
        for order in self._orders.values():
            if order.status == "pending":
                order.status, order.error = "invalid", problem(kind, "the order fails on purpose")

    # --- the protocol --------------------------------------------------------------------------------------------

    async def _directory(self, _: web.Request) -> web.Response:
        if self.faults.down:
            return web.Response(status=503)
        meta = {"externalAccountRequired": self._external is not None}
        urls = {"newNonce": "nonce", "newAccount": "account", "newOrder": "order", "renewalInfo": "renewal"}
        return web.json_response({**{name: f"{self.url}/{path}" for name, path in urls.items()}, "meta": meta})

    async def _nonce(self, _: web.Request) -> web.Response:
        return web.Response(headers=self._headers())

    def _headers(self) -> dict[str, str]:
        nonce = token()
        self._nonces.add(nonce)
        return {"Replay-Nonce": nonce, "Cache-Control": "no-store"}

    def _signed(
        self, handler: Callable[[web.Request, str, dict[str, Any], Any], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            if self.faults.down:
                return web.Response(status=503)
            try:
                account, payload, key = self._verified(request, await request.text())
                answer = await handler(request, account, payload, key)
                answer.headers.update(self._headers())
            except AcmeProblem as refused:
                body = {**problem(refused.kind, refused.detail), "status": refused.status}
                headers = self._headers()
                if refused.retry_after_s:
                    headers["Retry-After"] = str(refused.retry_after_s)
                return web.Response(
                    text=json.dumps(body),
                    status=refused.status,
                    content_type="application/problem+json",
                    headers=headers,
                )
            return answer

        return handle

    def _verified(self, request: web.Request, text: str) -> tuple[str, dict[str, Any], Any]:
        """Return account, payload and key of a request; raises ``AcmeProblem`` for a wrong signature, nonce or URL."""
        signed = SignedRequest(text)
        if signed.nonce not in self._nonces or self.faults.bad_nonces > 0:
            self._nonces.discard(signed.nonce)
            self.faults.bad_nonces = max(0, self.faults.bad_nonces - 1)
            self.counts["badNonce"] += 1
            raise AcmeProblem("badNonce", "this nonce is not one of ours", status=400)
        self._nonces.discard(signed.nonce)
        if signed.url != f"{self.url}{request.path}":
            raise AcmeProblem("unauthorized", "the URL that was signed is another one")
        key = signed.key
        if key is None:
            account = self._accounts.get(signed.account)
            if account is None:
                raise AcmeProblem("accountDoesNotExist", "no such account", status=400)
            if account.status != "valid":
                raise AcmeProblem("unauthorized", f"the account is {account.status}")
            key = account.jwk
        if not signed.is_by(key):
            raise AcmeProblem("malformed", "the signature is wrong", status=400)
        return signed.account, signed.payload, key

    async def _new_account(self, request: web.Request, account: str, payload: dict[str, Any], key: Any) -> web.Response:
        del request, account
        url = f"{self.url}/account/{thumbprint(key)}"
        stored = self._accounts.get(url)
        if stored is None:
            if payload.get("onlyReturnExisting"):
                raise AcmeProblem("accountDoesNotExist", "no account has this key", status=400)
            if self._external is not None:
                self._check_binding(payload.get("externalAccountBinding"), key)
            self._accounts[url] = stored = _Account(key)
            self.counts["account"] += 1
        return web.json_response({"status": stored.status}, status=201, headers={"Location": url})

    def _check_binding(self, binding: dict[str, Any] | None, key: Any) -> None:
        if not binding:
            raise AcmeProblem("externalAccountRequired", "an account at the authority is needed")
        if not is_bound(binding, key, self._external or {}):
            raise AcmeProblem("unauthorized", "the account at the authority is unknown, or its key is another one")

    async def _new_order(self, request: web.Request, account: str, payload: dict[str, Any], key: Any) -> web.Response:
        del request
        self.counts["newOrder"] += 1
        if self.faults.rate_limited > 0:
            self.faults.rate_limited -= 1
            raise AcmeProblem("rateLimited", "too many orders", status=429, retry_after_s=self.faults.retry_after_s)
        if replaces := payload.get("replaces"):
            if replaces in self.replaced:
                raise AcmeProblem("alreadyReplaced", "another order replaces this certificate", status=409)
            self.replaced.add(str(replaces))
        hosts = tuple(str(identifier["value"]) for identifier in payload["identifiers"])
        refused = sorted(self.faults.caa.intersection(hosts))
        if refused:
            raise AcmeProblem("caa", f"CAA record of {refused[0]} prevents issuance")
        names = tuple(self._new_authorization(host, account, key) for host in hosts)
        number = secrets.token_hex(8)
        self._orders[number] = order = _Order(hosts, account, names)
        self._settle(order)
        return web.json_response(
            self._order_body(number), status=201, headers={"Location": f"{self.url}/order/{number}"}
        )

    def _new_authorization(self, host: str, account: str, key: Any) -> str:
        number = secrets.token_hex(8)
        proven = self.trusting or (account, host) in self._proven_names
        self._authorizations[number] = _Authorization(
            host.removeprefix("*."),
            host.startswith("*."),
            token(),
            thumbprint(key),
            status="valid" if proven else "pending",
        )
        return number

    async def _get_order(self, request: web.Request, account: str, payload: dict[str, Any], key: Any) -> web.Response:
        del account, payload, key
        number = request.match_info["id"]
        if number not in self._orders:
            raise AcmeProblem("malformed", "no such order", status=404)
        return web.json_response(self._order_body(number))

    async def _get_authorization(
        self, request: web.Request, account: str, payload: dict[str, Any], key: Any
    ) -> web.Response:
        del account, payload, key
        return web.json_response(self._authorization_body(request.match_info["id"]))

    async def _challenge(self, request: web.Request, account: str, payload: dict[str, Any], key: Any) -> web.Response:
        del payload, key
        number, kind = request.match_info["id"], request.match_info["type"]
        name = self._authorizations[number]
        if name.status == "pending" and not name.tried:
            name.tried = kind
            task = asyncio.get_running_loop().create_task(self._validate(name, kind, account))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return web.json_response(self._challenge_body(number, kind))

    async def _validate(self, name: _Authorization, kind: str, account: str) -> None:
        await asyncio.sleep(self.faults.slow_s)
        expected = f"{name.token}.{name.thumbprint}"
        if self.faults.fail_validation:
            name.status, name.error = "invalid", problem(self.faults.fail_validation, "the validation fails on purpose")
        elif kind == "http-01":
            name.status, name.error = await self._fetch(name, expected)
        else:
            digest = challenge_text(expected)
            records = await self._texts(f"_acme-challenge.{name.host}") if self._texts is not None else []
            right = digest in records
            name.status = "valid" if right else "invalid"
            name.error = None if right else problem("unauthorized", f"the TXT records are {records}")
        self.counts["validated"] += name.status == "valid"
        if name.status == "valid":
            self._proven_names.add((account, f"*.{name.host}" if name.wildcard else name.host))
        for order in self._orders.values():
            self._settle(order)

    async def _fetch(self, name: _Authorization, expected: str) -> tuple[str, dict[str, str] | None]:
        address, port = self._where(name.host)
        url = f"http://{host_port(address, port)}/.well-known/acme-challenge/{name.token}"
        timeout = aiohttp.ClientTimeout(total=_LOOK_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, headers={"Host": name.host}) as answer,
            ):
                text = (await answer.text()).strip()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return "invalid", problem("connection", f"{host_port(address, port)}: {type(error).__name__}")
        return ("valid", None) if text == expected else ("invalid", problem("incorrectResponse", "another text"))

    async def _finalize(self, request: web.Request, account: str, payload: dict[str, Any], key: Any) -> web.Response:
        del account, key
        number = request.match_info["id"]
        order = self._orders[number]
        if order.status != "ready":
            raise AcmeProblem("orderNotReady", f"the order is {order.status}")
        raw = payload["csr"]
        csr = x509.load_der_x509_csr(base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)))
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if not csr.is_signature_valid or set(names.get_values_for_type(x509.DNSName)) != set(order.hosts):
            raise AcmeProblem("badCSR", "the request is not for the names of the order", status=400)
        order.chain = self._authority.issue(csr, order.hosts, self.life, self.backdated)
        order.status = "valid"
        self.issued.append(order.hosts)
        self.counts["issued"] += 1
        return web.json_response(self._order_body(number))

    async def _certificate(self, request: web.Request, account: str, payload: dict[str, Any], key: Any) -> web.Response:
        del account, payload, key
        chain = self._orders[request.match_info["id"]].chain
        return web.Response(body=chain, content_type="application/pem-certificate-chain")

    # --- bodies --------------------------------------------------------------------------------------------------

    def _settle(self, order: _Order) -> None:
        """Set the status of an order from its authorizations."""
        if order.status != "pending":
            return
        names = [self._authorizations[number] for number in order.authorizations]
        if all(name.status == "valid" for name in names):
            order.status = "ready"
        elif any(name.status == "invalid" for name in names):
            order.status, order.error = "invalid", problem("unauthorized", "a name is not proven")

    def _order_body(self, number: str) -> dict[str, Any]:
        order = self._orders[number]
        body: dict[str, Any] = {
            "status": order.status,
            "identifiers": [{"type": "dns", "value": host} for host in order.hosts],
            "authorizations": [f"{self.url}/name/{authorization}" for authorization in order.authorizations],
            "finalize": f"{self.url}/finalize/{number}",
        }
        if order.error:
            body["error"] = order.error
        if order.chain:
            body["certificate"] = f"{self.url}/certificate/{number}"
        return body

    def _authorization_body(self, number: str) -> dict[str, Any]:
        name = self._authorizations[number]
        kinds = ["dns-01"] if name.wildcard else ["http-01", "dns-01"]
        return {
            "status": name.status,
            "identifier": {"type": "dns", "value": name.host},
            "wildcard": name.wildcard,
            "challenges": [self._challenge_body(number, kind) for kind in kinds],
        }

    def _challenge_body(self, number: str, kind: str) -> dict[str, Any]:
        name = self._authorizations[number]
        body: dict[str, Any] = {
            "type": kind,
            "url": f"{self.url}/challenge/{number}/{kind}",
            "token": name.token,
            "status": name.status if name.tried == kind else "pending",
        }
        if name.error and name.tried == kind:
            body["error"] = name.error
        return body


_PROBLEM = "urn:ietf:params:acme:error:"


class AcmeFaults(msgspec.Struct):
    """Faults to inject; each number is decreased when it occurs."""

    bad_nonces: int = 0
    #: Refuse this many new orders with rateLimited and a Retry-After in seconds.
    rate_limited: int = 0
    retry_after_s: int = 0
    #: Refuse orders for these names because of a CAA record.
    caa: set[str] = msgspec.field(default_factory=set[str])
    #: Fail every validation with this problem type; empty for none.
    fail_validation: str = ""
    slow_s: float = 0.0
    #: Answer every request with 503.
    down: bool = False


class AcmeProblem(Exception):
    """An error that is answered with a problem document (RFC 7807)."""

    def __init__(self, kind: str, detail: str, *, status: int = 403, retry_after_s: int = 0) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.status, self.retry_after_s = kind, detail, status, retry_after_s


class SignedRequest:
    """A request signed as JWS: its nonce, its URL, and the key, or the URL of the account that has it."""

    def __init__(self, text: str) -> None:
        self._signed: Any = jws.JWS.json_loads(text)
        header: Any = self._signed.signature.combined
        self.nonce: str = b64encode(header.nonce).decode() if header.nonce else ""
        self.url: str = header.url or ""
        self.account: str = header.kid or ""
        self.key: Any = header.jwk
        self.payload: dict[str, Any] = json.loads(self._signed.payload) if self._signed.payload else {}

    def is_by(self, key: Any) -> bool:
        """Return whether the signature is valid for this key."""
        return bool(self._signed.verify(key))


def is_bound(binding: dict[str, Any], key: Any, accounts: Mapping[str, str]) -> bool:
    """Return whether an external account binding for ``key`` is valid; ``accounts``: HMAC keys in base64url by id."""
    signed: Any = jws.JWS.from_json(binding)
    secret = accounts.get(str(signed.signature.combined.kid), "")
    raw = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
    return bool(secret) and signed.verify(JWKOct(key=raw)) and json.loads(signed.payload) == key.to_partial_json()


def thumbprint(key: Any) -> str:
    """Return the JWK thumbprint of an account's key (RFC 7638)."""
    return b64encode(key.thumbprint()).decode()


def token() -> str:
    """Return a random nonce or token, base64url."""
    return b64encode(secrets.token_bytes(16)).decode()


def challenge_text(authorization: str) -> str:
    """Return the value of the TXT record of a DNS-01 challenge."""
    return b64encode(hashlib.sha256(authorization.encode()).digest()).decode()


def problem(kind: str, detail: str) -> dict[str, str]:
    """Return a problem document (RFC 7807) of an ACME error type."""
    return {"type": _PROBLEM + kind, "detail": detail}


class Authority:
    """A certificate authority with a new root."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _root(self._key)

    @property
    def root(self) -> bytes:
        """Return the root certificate, PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        request: x509.CertificateSigningRequest,
        hosts: tuple[str, ...],
        lifetime: dt.timedelta,
        backdated: dt.timedelta,
    ) -> bytes:
        """Return a certificate chain for these names, PEM."""
        now = dt.datetime.now(dt.UTC)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - backdated)
            .not_valid_after(now + lifetime)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=True)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM) + self.root


def _root(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of a test")])
    now = dt.datetime.now(dt.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
