"""Access of a process to clusters: kubeconfigs, tokens of service accounts, and the user of a kubeconfig.

Credentials are renewed for as long as the process runs:

    client certificate, token, tokenFile, username  read from the files, read again when a file changes
    exec                                            the plugin runs again shortly before its answer expires
    auth-provider oidc                              the id-token is refreshed shortly before it expires
    401 from the server                             all of it again, at once
    token, replaced by its user                     at once, until the kubeconfig has another one or it is refused

In: the entries of one context. Out: ``Access``: headers and a TLS context; a new object only when something changed,
so streams that run over the old one are left alone.
Never: leaves a private key on disk, logs a credential, or gives up an old credential because a new one is delayed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import math
import os
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import aiohttp
import msgspec

from fairlead.api.json_text import decode
from fairlead.api.meta import JSONMapping, JSONObject
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, TENANT_NAMESPACE_PREFIX
from fairlead.errors import BadConfiguration, FairleadError, Terminal, Unreachable
from fairlead.runtime.clock import Clock
from fairlead.runtime.commands import Ended, run_command
from fairlead.runtime.tls import client_context

if TYPE_CHECKING:
    from fairlead.kube.cluster import Cluster


@dataclass(frozen=True, eq=False)
class Access:
    """The credentials of a request: headers, and the TLS context that holds authorities and client certificate."""

    headers: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str], repr=False)
    ssl: ssl.SSLContext | None = dataclasses.field(default=None, repr=False)


SignIn = Callable[[Access | None], Awaitable[Access]]
"""Return the current access. The argument is the one that the server has just refused (401), or None.

Returning another Access object replaces the credentials for new requests; running streams keep their connection.
"""


class InlineToken(Protocol):
    """The inline token of a kubeconfig, which the process may replace by a renewed one."""

    async def token(self) -> str:
        """Return the token in use, the kubeconfig looked at now; empty when another way to sign in is."""
        ...

    def written(self) -> str:
        """Return the token that the kubeconfig had when it was read last."""
        ...

    def replace(self, old: str, new: str) -> None:
        """Sign in with ``new``, if ``old`` is in use, until the kubeconfig has another token or ``new`` is refused."""
        ...

    def files(self) -> Sequence[Path]:
        """Return the files that the kubeconfig was read from."""
        ...


_ANONYMOUS = Access()


async def anonymous(_refused: Access | None) -> Access:
    """Sign in without credentials, over whatever TLS the system trusts."""
    return _ANONYMOUS


def bearer(token: str, *, tls: ssl.SSLContext | None = None) -> SignIn:
    """Sign in with a token that never changes."""
    access = Access(headers={"Authorization": f"Bearer {token}"}, ssl=tls)

    async def sign_in(_refused: Access | None) -> Access:
        return access

    return sign_in


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """One cluster as one user sees it.

    ``source`` says where this was configured (a file and a context), for error messages, and ``flags`` the same as
    kubectl and the verbs take it. ``inline_token`` is there where the credentials may be a token in the kubeconfig.
    ``trusted`` returns a TLS context that trusts the server as ours does, and has no credential in it; None: whatever
    the system trusts.
    """

    server: str
    sign_in: SignIn = anonymous
    namespace: str = "default"
    user: str = ""
    source: str = ""
    flags: str = ""
    tls_server_name: str = ""
    proxy: str = ""
    inline_token: InlineToken | None = None
    trusted: Callable[[], ssl.SSLContext] | None = dataclasses.field(default=None, repr=False)


_SUBJECT = "system:serviceaccount:"


class TokenTimes(msgspec.Struct, frozen=True):
    """Whose a token is (``namespace``, ``account``), when it was issued, and when it expires."""

    namespace: str
    account: str
    issued: datetime
    expires: datetime

    @property
    def life_s(self) -> float:
        """Return the token's lifetime in seconds."""
        return (self.expires - self.issued).total_seconds()


class IssuedToken(msgspec.Struct, frozen=True, rename="camel"):
    """A new token, and when it expires (RFC 3339)."""

    token: str = ""
    expiration_timestamp: str = ""


class _Answer(msgspec.Struct):
    status: IssuedToken = IssuedToken()


class _Claims(msgspec.Struct):
    sub: str = ""
    iat: float = 0.0
    exp: float | None = None


def _claims_of(token: str) -> _Claims | None:
    """Return the claims of a JWT; None if it cannot be read."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        return decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), _Claims)
    except ValueError:
        return None


def _time_of(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def expiry_of(token: str) -> datetime | None:
    """Return when a JWT expires; None if it cannot be read or never expires."""
    claims = _claims_of(token)
    return _time_of(claims.exp) if claims is not None and claims.exp is not None else None


def token_times(token: str) -> TokenTimes | None:
    """Return the times in a token; None if it is not a service account's, or never expires."""
    claims = _claims_of(token)
    if claims is None or not claims.sub.startswith(_SUBJECT):
        return None
    issued, expires = _time_of(claims.iat), _time_of(claims.exp or 0.0)
    namespace, _, account = claims.sub.removeprefix(_SUBJECT).partition(":")
    if not issued or not expires or not account or not claims.iat or expires <= issued:
        return None
    return TokenTimes(namespace, account, issued, expires)


def expired_since(token: str, now: datetime) -> str:
    """Return since when a token has expired, with the command that renews an agent's; empty while it has not."""
    times = token_times(token)
    if times is None or times.expires > now:
        return ""
    since = f"the token expired at {times.expires:%Y-%m-%dT%H:%M:%SZ}"
    tenant = times.namespace.removeprefix(TENANT_NAMESPACE_PREFIX)
    if times.account != AGENT_SERVICE_ACCOUNT or tenant == times.namespace:
        return f"{since}."
    return f'{since}. At the hub, "fairlead tenant rotate {tenant}" writes a new key.'


async def request_token(cluster: Cluster, namespace: str, account: str, *, valid_s: int) -> IssuedToken:
    """Return a new token of a service account; the server may give it a shorter life than ``valid_s``.

    Raises:
        FairleadError: it does not issue one.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": valid_s, "audiences": []},
    }
    issued = (await cluster.raw_as("POST", path, _Answer, body=msgspec.json.encode(body))).status
    if not issued.token:
        raise Terminal(f"{cluster.name} issued no token for service account {namespace}/{account}")
    return issued


_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_BODY = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


async def user_name(cluster: Cluster) -> str:
    """Return the name of the user, empty when the server does not say.

    Raises:
        Unauthorized: the server does not know who asks.
        NotServed: it is one before Kubernetes 1.28.
    """
    return (await cluster.raw_as("POST", _PATH, _Review, body=_BODY)).status.user_info.username


_LOOK_S = 60.0
_SKEW = timedelta(minutes=1)
#: The errors of a sign-in: a full disk, or an unexpected answer of a plugin or an identity provider.
_FAILURES = (FairleadError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)

Fields = JSONMapping


@dataclass(frozen=True, kw_only=True)
class Material:
    """The content of a cluster and a user entry, files read, ready to make an Access of."""

    source: str
    authority: bytes | None
    certificate: bytes | None
    key: bytes | None
    token: str
    inline_token: bool
    basic: str
    insecure: bool
    impersonate: str
    plugin: Fields | None
    oidc: Fields | None
    files: Sequence[Path]

    @classmethod
    def read(
        cls,
        *,
        source: str,
        cluster: Fields,
        cluster_dir: Path,
        user: Fields,
        user_dir: Path,
        user_name: str,
        files: Sequence[Path],
    ) -> Material:
        """Read everything that the entries name.

        Raises:
            BadConfiguration: a file or a field is missing, wrong or not supported.
        """
        user_reader = _Reader(source=source, entry=user, subject=f'user "{user_name}"', base=user_dir)
        cluster_reader = _Reader(source=source, entry=cluster, subject="the cluster", base=cluster_dir)
        authority, certificate, key = (
            cluster_reader.blob("certificate-authority"),
            user_reader.blob("client-certificate"),
            user_reader.blob("client-key"),
        )
        if bool(certificate) != bool(key):
            raise user_reader.wrong("client-certificate", "and client-key belong together, and one of them is missing")
        token = str(user.get("token") or "")
        if user.get("tokenFile"):
            token = user_reader.file("tokenFile").decode("utf-8", "replace").strip()
        basic = ""
        if user.get("username"):
            basic = base64.b64encode(f"{user['username']}:{user.get('password') or ''}".encode()).decode()
        for field in ("as-uid", "as-groups", "as-user-extra"):
            if user.get(field):
                raise user_reader.wrong(field, 'is not supported; "as" alone is')
        insecure = bool(cluster.get("insecure-skip-tls-verify"))
        if insecure and authority:
            raise cluster_reader.wrong(
                "insecure-skip-tls-verify", "contradicts certificate-authority; remove one of them"
            )
        return cls(
            source=f'{source}, user "{user_name}"' if user_name else source,
            authority=authority,
            certificate=certificate,
            key=key,
            token=token,
            inline_token=bool(token) and not any(user.get(method) for method in ("tokenFile", "exec", "auth-provider")),
            basic=basic,
            insecure=insecure,
            impersonate=str(user.get("as") or ""),
            plugin=_plugin(user_reader),
            oidc=_oidc(user_reader),
            files=[*files, *user_reader.files, *cluster_reader.files],
        )


class _Reader:
    """Reads the fields of one entry; errors name the entry and the field."""

    def __init__(self, *, source: str, entry: Fields, subject: str, base: Path) -> None:
        self.source = source
        self.entry = entry
        self.what = subject
        self.base = base
        self.files: list[Path] = []

    def wrong(self, field: str, why: str) -> BadConfiguration:
        source = self.source[:1].upper() + self.source[1:]
        return BadConfiguration(f"{source}: {field} of {self.what} {why}.")

    def blob(self, field: str) -> bytes | None:
        """Return ``<field>-data`` decoded, or the content of the file that ``<field>`` names; data wins."""
        data = self.entry.get(f"{field}-data")
        if data:
            try:
                return base64.b64decode("".join(str(data).split()), validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.wrong(f"{field}-data", "is not base64") from error
        return self.file(field) if self.entry.get(field) else None

    def file(self, field: str) -> bytes:
        path = self.base / Path(str(self.entry[field])).expanduser()
        self.files.append(path)
        try:
            return path.read_bytes()
        except OSError as error:
            raise self.wrong(field, f"names {path}, which cannot be read ({error.strerror})") from error


def _plugin(user: _Reader) -> Fields | None:
    plugin = cast("Fields | None", user.entry.get("exec"))
    if not plugin:
        return None
    for field in ("command", "apiVersion"):
        if not plugin.get(field):
            raise user.wrong(f"exec.{field}", "is missing")
    if plugin.get("provideClusterInfo"):
        raise user.wrong("exec.provideClusterInfo", "is not supported; set it to false")
    command = str(plugin["command"])
    if "/" in command:  # a path is relative to the kubeconfig, a bare name is looked up in $PATH
        command = str(user.base / Path(command).expanduser())
    return {**plugin, "command": command}


def _oidc(user: _Reader) -> Fields | None:
    provider = cast("Fields | None", user.entry.get("auth-provider"))
    if not provider:
        return None
    if provider.get("name") != "oidc":
        raise user.wrong(
            "auth-provider",
            f'is "{provider.get("name")}", which Kubernetes has removed; use its exec plugin (such as'
            " gke-gcloud-auth-plugin or kubelogin)",
        )
    config = cast("Fields", provider.get("config") or {})
    if not (config.get("id-token") or config.get("refresh-token")):
        raise user.wrong("auth-provider.config", "has neither id-token nor refresh-token; sign in again")
    return config


class KubeconfigSignIn:
    """Keeps one Access current; safe for concurrent requests."""

    def __init__(self, read: Callable[[], Material], *, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._lock = asyncio.Lock()
        self._access: Access | None = None
        self._material: Material | None = None
        self._looked_s = 0.0
        self._stamp: tuple[object, ...] = ()
        self._expires: datetime | None = None
        self._oidc: JSONObject = {}
        #: What the kubeconfig said when its user replaced it, and by what.
        self._replaced: tuple[str, str] = ("", "")

    async def __call__(self, refused: Access | None) -> Access:
        """Return the current access, renewed when it has expired, its files have changed, or it was refused."""
        if self._access and self._access is not refused and not self._due():
            return self._access
        async with self._lock:
            if self._access and self._access is not refused and not self._due():
                return self._access  # another request has renewed it while we waited
            return await self._renew(refused)

    async def token(self) -> str:
        """Return the inline token in use, after reading the files; empty if another sign-in method is in use."""
        self._looked_s = -math.inf
        await self(None)
        return _inline(self._material, self._replaced)

    def written(self) -> str:
        """Return the token that the kubeconfig had when it was read last."""
        return self._material.token if self._material else ""

    def replace(self, old: str, new: str) -> None:
        """Sign in with ``new``, if ``old`` is in use, until the kubeconfig has another token or ``new`` is refused."""
        in_use = _inline(self._material, self._replaced)
        if self._material is None or self._access is None or not in_use or in_use != old:
            return
        self._replaced = self._material.token, new
        headers = {**self._access.headers, "Authorization": f"Bearer {new}"}
        self._access = Access(headers=headers, ssl=self._access.ssl)

    def files(self) -> Sequence[Path]:
        """Return the files that the kubeconfig was read from."""
        return self._material.files if self._material else ()

    def _due(self) -> bool:
        if self._expires and self._clock.now() + _SKEW >= self._expires:
            return True
        return self._clock.monotonic() - self._looked_s >= _LOOK_S

    async def _renew(self, refused: Access | None) -> Access:
        now_s = self._clock.monotonic()
        expired = self._expires is not None and self._clock.now() + _SKEW >= self._expires
        wanted = self._access is None or self._access is refused or expired
        self._looked_s = now_s
        if not wanted and self._material and _stamp(self._material.files) == self._stamp:
            return cast("Access", self._access)
        try:
            material = await asyncio.to_thread(self._read)
            if self._access is not None and self._access is refused:
                self._replaced = "", ""
            access, expires = await self._access_of(material)
        except _FAILURES as error:
            # The kubeconfig may be being rewritten, or a plugin's server down: the present credentials may still be
            # valid.
            still_good = self._expires is None or self._clock.now() < self._expires
            if self._access and self._access is not refused and still_good:
                return self._access
            if isinstance(error, FairleadError):
                raise
            # The text of the error may have a credential in it.
            why = f"{type(error).__name__}, {error.strerror}" if isinstance(error, OSError) else type(error).__name__
            raise Unreachable("The credentials of the kubeconfig cannot be prepared. Retrying.", detail=why) from error
        self._material, self._access, self._expires = material, access, expires
        self._stamp = _stamp(material.files)
        return access

    async def _access_of(self, material: Material) -> tuple[Access, datetime | None]:
        headers: dict[str, str] = {}
        certificate, key = material.certificate, material.key
        token, expires = _inline(material, self._replaced) or material.token, None
        if material.oidc is not None:
            token, expires = await self._oidc_token(material)
        elif material.plugin is not None:
            answer = await run_plugin(material.plugin, source=material.source)
            token = answer.token or ""
            expires = _time(answer.expiration_timestamp)
            if answer.client_certificate_data:
                certificate = answer.client_certificate_data.encode()
                key = (answer.client_key_data or "").encode()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif material.basic:
            headers["Authorization"] = f"Basic {material.basic}"
        if material.impersonate:
            headers["Impersonate-User"] = material.impersonate
        if not all(value.isprintable() for value in headers.values()):
            raise Unreachable(f"{_cap(material.source)}: the credential has control characters. Sign in again.")
        context = await asyncio.to_thread(
            tls_context,
            authority=material.authority,
            certificate=certificate,
            key=key,
            insecure=material.insecure,
            source=material.source,
        )
        return Access(headers=headers, ssl=context), expires

    async def _oidc_token(self, material: Material) -> tuple[str, datetime | None]:
        # A refreshed token lives here only: the kubeconfig is the user's file.
        config = {**(material.oidc or {}), **self._oidc}
        token = str(config.get("id-token") or "")
        expires = expiry_of(token) if token else None
        refused = self._access is not None and self._access.headers.get("Authorization") == f"Bearer {token}"
        if not token or refused or (expires and self._clock.now() + _SKEW >= expires):
            authority = str(config.get("idp-certificate-authority-data") or "")
            tls = tls_context(authority=base64.b64decode(authority), source=material.source)
            self._oidc = await refresh(config, tls=tls, source=material.source)
            token = str(self._oidc["id-token"])
            expires = expiry_of(token)
        return token, expires


def _inline(material: Material | None, replaced: tuple[str, str]) -> str:
    """Return the token of the kubeconfig, or the one that replaced it."""
    if material is None or not material.inline_token:
        return ""
    before, after = replaced
    return after if before == material.token else material.token


def tls_context(
    *,
    authority: bytes | None = None,
    certificate: bytes | None = None,
    key: bytes | None = None,
    insecure: bool = False,
    source: str = "",
) -> ssl.SSLContext:
    """Build a TLS context from PEM bytes.

    Raises:
        BadConfiguration: a certificate is invalid, or certificate and key do not match.
    """
    try:
        context = client_context(authority or None)
    except ssl.SSLError as error:
        raise BadConfiguration(f"{_cap(source)}: certificate-authority is not a PEM certificate.") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate and key:
        # OpenSSL's door takes paths only; the files are gone again before anything else runs.
        with tempfile.TemporaryDirectory(prefix="fairlead-") as directory:
            paths = Path(directory) / "certificate", Path(directory) / "key"
            paths[0].write_bytes(certificate)
            paths[1].touch(mode=0o600)
            paths[1].write_bytes(key)
            try:
                context.load_cert_chain(*paths)
            except (ssl.SSLError, OSError) as error:
                raise BadConfiguration(
                    f"{_cap(source)}: client-certificate and client-key are not a matching PEM pair."
                ) from error
    return context


def _stamp(files: Sequence[Path]) -> tuple[object, ...]:
    stamps: list[object] = []
    for path in files:
        try:
            stat = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(stamps)


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except (ValueError, OverflowError):
        return None


def _cap(text: str) -> str:
    return text[:1].upper() + text[1:]


_PLUGIN_S = 60.0
#: A token or a certificate with its key is some kilobytes.
_LONGEST_OUTPUT = 1 << 20


class PluginStatus(msgspec.Struct, rename="camel"):
    """The answer of a plugin: a token, or a certificate with its key (PEM); times are RFC 3339."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: PluginStatus


async def run_plugin(plugin: JSONMapping, *, source: str) -> PluginStatus:
    """Run the program and return its answer; ``source`` names kubeconfig and user in errors.

    Raises:
        BadConfiguration: it cannot be run.
        Unreachable: it failed, or answered with something else.
    """
    command = str(plugin["command"])
    subject = f'{source[:1].upper()}{source[1:]}: the sign-in plugin "{command}"'
    try:
        async with asyncio.timeout(_PLUGIN_S):
            code, output, errors = await _run(command, plugin)
    except FileNotFoundError as error:
        hint = str(plugin.get("installHint") or "Install it, or correct the kubeconfig.")
        raise BadConfiguration(f"{subject} (exec.command) is not installed. {hint}") from error
    except PermissionError as error:
        raise BadConfiguration(f"{subject} (exec.command) is not executable.") from error
    except TimeoutError as error:
        raise Unreachable(
            f"{subject} did not finish within {_PLUGIN_S:g} s. Does it wait for input? Run it once by hand."
        ) from error
    except OSError as error:
        raise _failed(subject, str(error)) from error
    if code:
        # Its stderr is the operator's to see; the sentence may end up in an object that others can read.
        raise _failed(subject, f"exit code {code}: {errors.decode('utf-8', 'replace')}")
    try:
        answer = decode(output, _ExecCredential)
    except msgspec.DecodeError as error:
        raise _failed(subject, str(error)) from error
    if answer.api_version != plugin["apiVersion"]:
        raise _failed(subject, f"answers in {answer.api_version}, and not in {plugin['apiVersion']}")
    status = answer.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise Unreachable(f"{subject} returned neither a token nor a certificate with its key.")
    return status


async def _run(command: str, plugin: JSONMapping) -> Ended:
    info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": sys.stdout.isatty()}}
    environment = {
        **os.environ,
        **{str(variable["name"]): str(variable["value"]) for variable in plugin.get("env") or ()},
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    arguments = [str(argument) for argument in plugin.get("args") or ()]
    return await run_command(command, *arguments, stdin=None, environment=environment, longest_output=_LONGEST_OUTPUT)


def _failed(subject: str, detail: str) -> Unreachable:
    return Unreachable(f"{subject} failed. Run it by hand to see why.", detail=" ".join(detail.split())[:500])


_ANSWER_S = 30.0
#: Discovery documents and tokens are some kilobytes.
_LONGEST_ANSWER = 1 << 20


class _Discovery(msgspec.Struct):
    token_endpoint: str


class _Tokens(msgspec.Struct):
    id_token: str
    refresh_token: str = ""


async def refresh(config: JSONMapping, *, tls: ssl.SSLContext, source: str) -> dict[str, str]:
    """Return a fresh ``id-token`` and ``refresh-token``.

    Raises:
        BadConfiguration: a field is missing.
        Unreachable: the identity provider does not give one now.
    """
    for field in ("refresh-token", "client-id", "idp-issuer-url"):
        if not config.get(field):
            raise BadConfiguration(
                f"{source[:1].upper()}{source[1:]}: auth-provider.config.{field} is missing and the id-token has"
                " expired. Sign in again."
            )
    issuer = str(config["idp-issuer-url"]).rstrip("/")
    try:
        tokens = await _ask(issuer, config, tls)
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
        raise Unreachable(
            f"{source[:1].upper()}{source[1:]}: the identity provider {issuer} did not renew the id-token."
            " If this persists, sign in again.",
            detail=f"{type(error).__name__}: {error}",
        ) from error
    return {"id-token": tokens.id_token, "refresh-token": tokens.refresh_token or str(config["refresh-token"])}


async def _ask(issuer: str, config: JSONMapping, tls: ssl.SSLContext) -> _Tokens:
    basic = f"{config['client-id']}:{config.get('client-secret') or ''}".encode()
    form = {"grant_type": "refresh_token", "refresh_token": str(config["refresh-token"])}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls), raise_for_status=True, timeout=aiohttp.ClientTimeout(total=_ANSWER_S)
    ) as session:
        async with session.get(f"{issuer}/.well-known/openid-configuration") as answer:
            endpoint = decode(await _body(answer), _Discovery).token_endpoint
        headers = {"Authorization": f"Basic {base64.b64encode(basic).decode()}"}
        async with session.post(endpoint, data=form, headers=headers) as answer:
            return decode(await _body(answer), _Tokens)


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while chunk := await answer.content.readany():
        body += chunk
        if len(body) > _LONGEST_ANSWER:
            raise aiohttp.ClientPayloadError(f"the answer has more than {_LONGEST_ANSWER} bytes")
    return bytes(body)
