"""How a kubeconfig user signs in, when that is renewed, and which credentials stay when the renewal fails."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from kubeconfigs import Clock, Fields, credential, plugin, write

from fairlead.errors import BadConfiguration, Unreachable
from fairlead.kube.config import KubeconfigSignIn, Material
from fairlead.kube.kubeconfig import load_config
from fairlead.runtime.clock import VirtualClock


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "u", "password": "p"}, "Basic " + base64.b64encode(b"u:p").decode()),
        ({"tokenFile": "t", "token": "inline"}, "Bearer from-file"),
        ({}, None),
    ],
)
async def test_simple_credentials(tmp_path: Path, user: Fields, header: str | None) -> None:
    (tmp_path / "t").write_text("from-file\n")
    access = await load_config(write(tmp_path / "config", user=user)).sign_in(None)
    assert access.headers.get("Authorization") == header


async def test_impersonation(tmp_path: Path) -> None:
    access = await load_config(write(tmp_path / "config", user={"token": "x", "as": "robot"})).sign_in(None)
    assert access.headers["Impersonate-User"] == "robot"


async def test_a_changed_token_file_or_kubeconfig_is_read_again(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "t").write_text("one")
    path = write(tmp_path / "config", user={"tokenFile": "t"})
    sign_in = load_config(path, clock=clock).sign_in
    first = await sign_in(None)
    clock.ahead_s += 61
    assert await sign_in(None) is first  # nothing changed, nothing replaced
    (tmp_path / "t").write_text("second")
    clock.ahead_s += 61
    assert (await sign_in(None)).headers["Authorization"] == "Bearer second"
    path.write_text("half writ")  # it is being written: the old credentials stay
    clock.ahead_s += 61
    assert (await sign_in(None)).headers["Authorization"] == "Bearer second"
    write(path, user={"token": "third"})
    clock.ahead_s += 61
    assert (await sign_in(None)).headers["Authorization"] == "Bearer third"


async def test_a_plugin_runs_again_before_its_answer_expires(tmp_path: Path) -> None:
    clock = Clock()
    soon = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()
    script = (
        f"from pathlib import Path\np = Path({str(tmp_path / 'runs')!r})\n"
        "n = len(p.read_text()) + 1 if p.exists() else 1\np.write_text('x' * n)\n"
        f"import json\nprint(json.dumps({{'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        f"'status': {{'token': f't{{n}}', 'expirationTimestamp': {soon!r}}}}}))"
    )
    path = write(tmp_path / "config", user=plugin(tmp_path / "login", script))
    sign_in = load_config(path, clock=clock).sign_in
    first = await sign_in(None)
    assert first.headers["Authorization"] == "Bearer t1"
    assert await sign_in(None) is first
    clock.ahead_s = 9.5 * 60
    second = await sign_in(None)
    assert second.headers["Authorization"] == "Bearer t2"
    third = await sign_in(second)
    assert third.headers["Authorization"] == "Bearer t3"


async def test_many_requests_that_are_refused_at_once_run_the_plugin_once(tmp_path: Path) -> None:
    script = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n" + credential(token="t")
    sign_in = load_config(write(tmp_path / "config", user=plugin(tmp_path / "login", script))).sign_in
    first = await sign_in(None)
    answers = await asyncio.gather(*(sign_in(first) for _ in range(10)))
    assert len({id(answer) for answer in answers}) == 1
    assert (tmp_path / "runs").read_text() == "xx"


@pytest.mark.parametrize(
    ("script", "error", "pattern"),
    [
        ("import sys; sys.exit('no network: s3cr3t')", Unreachable, "plugin .*login.* failed. Run it by hand"),
        ("print('not json')", Unreachable, "failed"),
        ("print('{}')", Unreachable, "failed"),
        (credential(), Unreachable, "neither a token nor a certificate"),
        (credential(clientCertificateData="x"), Unreachable, "neither"),
        (credential(clientCertificateData="x", clientKeyData="y"), BadConfiguration, "not a matching PEM pair"),
    ],
)
async def test_a_failing_plugin(tmp_path: Path, script: str, error: type[Exception], pattern: str) -> None:
    sign_in = load_config(write(tmp_path / "config", user=plugin(tmp_path / "login", script))).sign_in
    with pytest.raises(error, match=pattern) as caught:
        await sign_in(None)
    assert "s3cr3t" not in caught.value.sentence  # type: ignore[attr-defined]


async def test_a_missing_plugin_says_how_to_install_it(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin",
                     "installHint": "Run: brew install it."}}  # fmt: skip
    with pytest.raises(BadConfiguration, match=r'"no-such-plugin" \(exec.command\) is not installed. Run: brew'):
        await load_config(write(tmp_path / "config", user=user)).sign_in(None)
    blocked = plugin(tmp_path / "blocked", "")
    (tmp_path / "blocked").chmod(0o644)
    with pytest.raises(BadConfiguration, match="not executable"):
        await load_config(write(tmp_path / "config2", user=blocked)).sign_in(None)


async def test_a_plugin_that_fails_later_leaves_what_is_still_good(tmp_path: Path) -> None:
    clock = Clock()
    soon = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()
    user = plugin(tmp_path / "login", credential(token="good", expirationTimestamp=soon))
    sign_in = load_config(write(tmp_path / "config", user=user), clock=clock).sign_in
    await sign_in(None)
    plugin(tmp_path / "login", "raise SystemExit(1)")
    clock.ahead_s = 9.5 * 60
    assert (await sign_in(None)).headers["Authorization"] == "Bearer good"
    clock.ahead_s = 11 * 60
    with pytest.raises(Unreachable):
        await sign_in(None)


async def test_certificates_by_file_data_and_plugin_leave_no_key_on_disk(
    tmp_path: Path, pems: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    data = {
        "client-certificate-data": base64.b64encode(pems["client"].read_bytes()).decode(),
        "client-key-data": base64.b64encode(pems["client-key"].read_bytes()).decode(),
    }
    files = {"client-certificate": str(pems["client"]), "client-key": str(pems["client-key"])}
    both = plugin(
        tmp_path / "login",
        credential(clientCertificateData=pems["client"].read_text(), clientKeyData=pems["client-key"].read_text()),
    )
    for number, user in enumerate((data, files, both)):
        access = await load_config(write(tmp_path / f"config{number}", user=user)).sign_in(None)
        assert isinstance(access.ssl, ssl.SSLContext)
    assert list(scratch.iterdir()) == []


def jwt(expires_in_s: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + expires_in_s}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


async def test_oidc_uses_a_valid_token_and_refreshes_over_checked_tls(tmp_path: Path, pems: dict[str, Path]) -> None:
    fresh = jwt(7200)
    asked: list[dict[str, str]] = []

    async def known(request: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": f"https://{request.host}/token"})

    async def token(request: web.Request) -> web.Response:
        asked.append(dict(await request.post()))  # type: ignore[arg-type]
        return web.json_response({"id_token": fresh, "refresh_token": "r2"})

    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", known)
    app.router.add_post("/token", token)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = pems["idp"], pems["idp-key"]
    context.load_cert_chain(certificate, key)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    issuer = f"https://127.0.0.1:{runner.addresses[0][1]}"
    ca = base64.b64encode(certificate.read_bytes()).decode()

    def user(**config: str) -> Fields:
        base = {"client-id": "c", "client-secret": "s", "idp-issuer-url": issuer, "refresh-token": "r1", **config}
        return {"auth-provider": {"name": "oidc", "config": base}}

    valid = jwt(3600)
    access = await load_config(write(tmp_path / "a", user=user(**{"id-token": valid}))).sign_in(None)
    assert access.headers["Authorization"] == f"Bearer {valid}"
    assert not asked
    expired = user(**{"id-token": jwt(-5), "idp-certificate-authority-data": ca})
    access = await load_config(write(tmp_path / "b", user=expired)).sign_in(None)
    assert access.headers["Authorization"] == f"Bearer {fresh}"
    assert asked[0]["refresh_token"] == "r1"
    untrusted = user(**{"id-token": jwt(-5)})
    with pytest.raises(Unreachable, match="did not renew"):
        await load_config(write(tmp_path / "c", user=untrusted)).sign_in(None)
    assert len(asked) == 1
    lost = {"auth-provider": {"name": "oidc", "config": {"id-token": jwt(-5)}}}
    with pytest.raises(BadConfiguration, match="refresh-token is missing"):
        await load_config(write(tmp_path / "d", user=lost)).sign_in(None)
    await runner.cleanup()


# --- what an entry says, without a kubeconfig -------------------------------------------------------------------


def material(**user) -> Material:
    """Return what is read of a user entry; there are no files but those that it names."""
    return Material.read(
        source="kubeconfig k",
        cluster={},
        cluster_dir=Path(),
        user=user,
        user_dir=Path("/base"),
        user_name="me",
        files=[],
    )


@pytest.mark.parametrize(
    ("user", "token", "inline"),
    [
        ({"token": "abc"}, "abc", True),
        ({}, "", False),
        ({"token": "abc", "exec": {"command": "login", "apiVersion": "v1"}}, "abc", False),
        ({"token": "abc", "auth-provider": {"name": "oidc", "config": {"id-token": "x"}}}, "abc", False),
    ],
)
def test_a_token_is_inline_when_nothing_else_signs_in(user, token, inline):
    read = material(**user)
    assert (read.token, read.inline_token, read.source) == (token, inline, 'kubeconfig k, user "me"')


def test_a_command_with_a_slash_is_relative_to_the_kubeconfig():
    def command(text):
        return material(exec={"command": text, "apiVersion": "v1"}).plugin["command"]

    assert [command(text) for text in ("login", "./login", "bin/login", "/bin/login")] == [
        "login", "/base/login", "/base/bin/login", "/bin/login",
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["as-uid", "as-groups", "as-user-extra"])
def test_impersonation_of_more_than_a_user_is_refused(field):
    with pytest.raises(BadConfiguration, match=f'Kubeconfig k: {field} of user "me" is not supported'):
        material(**{"as": "robot", field: "x"})


# --- a token that its user replaces ------------------------------------------------------------------------------


class Kubeconfig:
    """A user entry that the test rewrites; ``failing`` is the error of the next reads."""

    def __init__(self, **user):
        self.user = user
        self.failing: BadConfiguration | None = None
        self.clock = VirtualClock()
        self.sign_in = KubeconfigSignIn(self.read, clock=self.clock)

    def read(self) -> Material:
        if self.failing is not None:
            raise self.failing
        return material(**self.user)

    async def bearer(self, refused=None):
        return (await self.sign_in(refused)).headers.get("Authorization", "")


async def test_a_replaced_token_is_in_use_at_once_and_the_connection_stays():
    kubeconfig = Kubeconfig(token="t1")
    first = await kubeconfig.sign_in(None)
    kubeconfig.sign_in.replace("t1", "t2")
    second = await kubeconfig.sign_in(None)
    assert (second.headers["Authorization"], second.ssl is first.ssl) == ("Bearer t2", True)
    assert (await kubeconfig.sign_in.token(), kubeconfig.sign_in.written()) == ("t2", "t1")


async def test_a_replacement_of_another_token_is_ignored():
    kubeconfig = Kubeconfig(token="t1")
    kubeconfig.sign_in.replace("t1", "t2")
    assert await kubeconfig.bearer() == "Bearer t1", "nothing had been read yet"
    kubeconfig.sign_in.replace("t0", "t2")
    assert await kubeconfig.bearer() == "Bearer t1"
    kubeconfig.sign_in.replace("t1", "t2")
    kubeconfig.sign_in.replace("t1", "t3")
    assert await kubeconfig.bearer() == "Bearer t2"


async def test_a_replaced_token_stays_when_the_same_kubeconfig_is_read_again():
    kubeconfig = Kubeconfig(token="t1")
    await kubeconfig.sign_in(None)
    kubeconfig.sign_in.replace("t1", "t2")
    kubeconfig.user["as"] = "robot"
    kubeconfig.sign_in._stamp = ("changed",)
    assert await kubeconfig.sign_in.token() == "t2"
    assert await kubeconfig.bearer() == "Bearer t2"


async def test_another_token_in_the_kubeconfig_ends_the_replacement():
    kubeconfig = Kubeconfig(token="t1")
    await kubeconfig.sign_in(None)
    kubeconfig.sign_in.replace("t1", "t2")
    kubeconfig.user["token"] = "t9"
    kubeconfig.sign_in._stamp = ("changed",)
    assert await kubeconfig.sign_in.token() == "t9"
    assert await kubeconfig.bearer() == "Bearer t9"


async def test_a_replacement_that_the_server_refuses_is_given_up():
    kubeconfig = Kubeconfig(token="t1")
    await kubeconfig.sign_in(None)
    kubeconfig.sign_in.replace("t1", "t2")
    assert await kubeconfig.bearer(await kubeconfig.sign_in(None)) == "Bearer t1"


async def test_only_inline_tokens_can_be_replaced():
    kubeconfig = Kubeconfig(username="u", password="p")
    assert await kubeconfig.sign_in.token() == ""
    kubeconfig.sign_in.replace("", "t2")
    assert (await kubeconfig.bearer()).startswith("Basic ")


@pytest.mark.parametrize(
    ("refused", "expires_in_s", "stays"),
    [(False, None, True), (False, 600.0, True), (False, 30.0, False), (True, None, False)],
    ids=["no expiry", "not expired", "expired", "refused by the server"],
)
async def test_old_credentials_stay_while_they_are_good_and_new_ones_cannot_be_had(refused, expires_in_s, stays):
    kubeconfig = Kubeconfig(token="t1")
    access = await kubeconfig.sign_in(None)
    kubeconfig.sign_in._stamp = ("changed",)
    if expires_in_s is not None:
        kubeconfig.sign_in._expires = kubeconfig.clock.now() + timedelta(seconds=expires_in_s)
    kubeconfig.failing = BadConfiguration("it is being written")
    kubeconfig.clock.jump(61)
    if stays:
        assert await kubeconfig.sign_in(None) is access
        return
    with pytest.raises(BadConfiguration, match="it is being written"):
        await kubeconfig.sign_in(access if refused else None)


async def test_credentials_are_renewed_a_minute_before_they_expire():
    kubeconfig = Kubeconfig(token="t1")
    await kubeconfig.sign_in(None)
    kubeconfig.sign_in._expires = kubeconfig.clock.now() + timedelta(seconds=90)
    kubeconfig.user["token"] = "t2"
    kubeconfig.clock.jump(29)
    assert await kubeconfig.bearer() == "Bearer t1"
    kubeconfig.clock.jump(1)
    assert await kubeconfig.bearer() == "Bearer t2"


def answer(status: str) -> str:
    """Return a plugin that answers with these bytes as its status (escapes of Python stay)."""
    head = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": '
    return f"import sys\nsys.stdout.buffer.write({head.encode()!r} + b'''{status}''' + b'}}')"


@pytest.mark.req("CORE-15")
@pytest.mark.parametrize(
    "status",
    [
        '{"token": "t", "expirationTimestamp": "0001-01-01T00:00:00Z"}',
        '{"token": "t", "expirationTimestamp": "0001-01-01T00:00:00+14:00"}',
        '{"token": "t", "expirationTimestamp": "9999-12-31T23:59:59-01:00"}',
        '{"token": "t", "expirationTimestamp": null}',
        '{"token": "t", "expirationTimestamp": "soon", "clientCertificateData": null, "clientKeyData": null}',
    ],
)
async def test_a_token_is_used_whatever_its_expiry(tmp_path: Path, status: str) -> None:
    sign_in = load_config(write(tmp_path / "config", user=plugin(tmp_path / "login", answer(status)))).sign_in
    for _ in range(2):
        assert (await sign_in(None)).headers["Authorization"] == "Bearer t"


@pytest.mark.req("CORE-15")
@pytest.mark.parametrize(
    "status",
    [
        '{"token": "t\\xfc"}',
        '{"token": ["t"]}',
        '{"token": "t\\\\r\\\\nHost: other"}',
        '{"token": null}',
        '{"x": ' + '{"a":' * 3_000 + "1" + "}" * 3_001,
        "[" * 5_000,
    ],
)
async def test_an_unusable_answer_of_a_plugin_keeps_the_last_access(tmp_path: Path, status: str) -> None:
    clock = Clock()
    soon = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()
    user = plugin(tmp_path / "login", credential(token="good", expirationTimestamp=soon))
    sign_in = load_config(write(tmp_path / "config", user=user), clock=clock).sign_in
    await sign_in(None)
    plugin(tmp_path / "login", answer(status))
    clock.ahead_s = 9.5 * 60
    assert (await sign_in(None)).headers["Authorization"] == "Bearer good"
    clock.ahead_s = 11 * 60
    with pytest.raises(Unreachable):
        await sign_in(None)


@pytest.mark.req("CORE-15")
async def test_a_full_disk_at_a_rotation_keeps_the_last_access(
    tmp_path: Path, pems: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, key = Clock(), tmp_path / "key"
    key.write_bytes(pems["client-key"].read_bytes())
    user = {"client-certificate": str(pems["client"]), "client-key": str(key)}
    path = write(tmp_path / "config", user=user)
    sign_in = load_config(path, clock=clock).sign_in
    first = await sign_in(None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "unwritable" / "directory"))
    key.write_bytes(pems["client-key"].read_bytes() + b"\n")
    clock.ahead_s = 120
    assert await sign_in(None) is first
    with pytest.raises(Unreachable) as refused:
        await load_config(path, clock=clock).sign_in(None)
    assert "PRIVATE" not in str(refused.value)
