from __future__ import annotations

import base64
import json
import os
import ssl
import stat
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from kube_scripted import ScriptedApi

from fairlead.api.kubernetes import SERVICES
from fairlead.errors import BadConfiguration, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.kube.kubeconfig import load_config
from fairlead.runtime.clock import SystemClock

Fields = dict[str, Any]


class Clock(SystemClock):
    """The machine's clock, that can be set forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)


def write(path: Path, *, user: Fields | None = None, cluster: Fields | None = None, **more: Any) -> Path:
    content: Fields = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c1", "user": "me", "namespace": "team"}}],
        "clusters": [{"name": "c1", "cluster": {"server": "https://api.example:6443", **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}],
        **more,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def plugin(path: Path, script: str) -> Fields:
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"./{path.name}", "env": None}}


def credential(**status: str) -> str:
    content = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(json.dumps(content))})"


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A self-signed server certificate, and a client certificate with its key."""
    root = tmp_path_factory.mktemp("pems")
    made: dict[str, Path] = {}
    for name in ("server", "client", "idp"):
        made[name], made[f"{name}-key"] = root / f"{name}.pem", root / f"{name}-key.pem"
        address = "127.0.0.9" if name == "server" else "127.0.0.1"
        command = (
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}"
            f" -addext subjectAltName=DNS:{name}.example,IP:{address} -out {made[name]} -keyout {made[f'{name}-key']}"
        )
        subprocess.run(command.split(), check=True, capture_output=True)
    return made


# --- where it is ----------------------------------------------------------------------------------------------


def test_the_context_leads_to_everything(tmp_path: Path) -> None:
    path = write(tmp_path / "config", cluster={"tls-server-name": "inside", "proxy-url": "http://proxy:3128"})
    config = load_config(path)
    assert (config.server, config.namespace, config.user) == ("https://api.example:6443", "team", "me")
    assert (config.tls_server_name, config.proxy) == ("inside", "http://proxy:3128")
    assert config.source == f'kubeconfig {path}, context "dev"'


def test_no_path_means_environment_then_home_then_pod(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    with pytest.raises(BadConfiguration, match=r"--kubeconfig, or set \$KUBECONFIG"):
        load_config(environ={}, home=home)
    write(home / ".kube" / "config")
    assert str(home) in load_config(environ={}, home=home).source
    other = write(tmp_path / "other")
    assert str(other) in load_config(environ={"KUBECONFIG": str(other)}, home=home).source
    with pytest.raises(BadConfiguration, match="does not exist"):
        load_config(environ={"KUBECONFIG": str(tmp_path / "nothing")}, home=home)


def test_several_files_are_merged_and_the_first_one_wins(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "token").write_text("t2\n")
    one = write(tmp_path / "one" / "config", contexts=[{"name": "dev", "context": {"cluster": "c1", "user": "far"}}])
    two = write(
        tmp_path / "two" / "config",
        cluster={"server": "https://second:1"},
        users=[{"name": "far", "user": {"tokenFile": "token"}}],
        **{"current-context": "other"},
    )
    environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "missing"), str(one), str(two)])}
    config = load_config(environ=environ, home=tmp_path)
    assert config.server == "https://api.example:6443"
    assert config.user == "far"  # and its tokenFile was found beside the second file


async def test_in_a_pod_the_service_account_is_used_and_its_token_is_read_again(
    tmp_path: Path, pems: dict[str, Path]
) -> None:
    account = tmp_path / "account"
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(BadConfiguration, match="automountServiceAccountToken"):
        load_config(environ=environ, home=tmp_path, service_account=account)
    account.mkdir()
    (account / "token").write_text("one\n")
    (account / "ca.crt").write_bytes(pems["server"].read_bytes())
    (account / "namespace").write_text("kube-fairlead")
    clock = Clock()
    config = load_config(environ=environ, home=tmp_path, service_account=account, clock=clock)
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "kube-fairlead")
    first = await config.sign_in(None)
    assert first.headers["Authorization"] == "Bearer one"
    (account / "token").write_text("two\n")
    assert await config.sign_in(None) is first
    clock.ahead_s = 61
    second = await config.sign_in(None)
    assert second.headers["Authorization"] == "Bearer two"
    assert second.ssl is first.ssl
    (account / "token").write_text("three\n")
    assert (await config.sign_in(second)).headers["Authorization"] == "Bearer three"
    (account / "token").unlink()
    clock.ahead_s = 200
    assert (await config.sign_in(None)).headers["Authorization"] == "Bearer three"
    with pytest.raises(BadConfiguration, match="only the service account"):
        load_config(environ=environ, home=tmp_path, service_account=account, context="dev")


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ({"https_proxy": "http://p:2", "NO_PROXY": "other.example"}, "http://p:2"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, ""),
        ({"HTTP_PROXY": "http://p:1"}, ""),
    ],
)
def test_the_proxy_of_the_environment(tmp_path: Path, environ: dict[str, str], proxy: str) -> None:
    assert load_config(write(tmp_path / "config"), environ=environ).proxy == proxy


# --- what may be wrong ----------------------------------------------------------------------------------------

WRONG: list[tuple[Fields, str]] = [
    ({"current-context": ""}, r"no current-context. Choose one of: dev"),
    ({"current-context": "prod"}, r'no context "prod". It has: dev'),
    ({"clusters": []}, r'its cluster "c1" is not defined'),
    ({"users": []}, r'its user "me" is not defined'),
    ({"cluster": {"server": "api.example"}}, r'server "api.example" is no URL'),
    ({"cluster": {"certificate-authority": "no.pem"}}, r"certificate-authority of the cluster names .*no.pem"),
    ({"cluster": {"certificate-authority-data": "%%%"}}, r"certificate-authority"),
    ({"cluster": {"proxy-url": "socks5://p:1"}}, r"only http and https"),
    ({"cluster": {"insecure-skip-tls-verify": True, "certificate-authority-data": "YQ=="}}, r"contradicts"),
    ({"user": {"client-certificate-data": "YQ=="}}, r'client-certificate of user "me" and client-key belong together'),
    ({"user": {"tokenFile": "no.token"}}, r'tokenFile of user "me" names .*no.token'),
    ({"user": {"exec": {"command": "x"}}}, r"exec.apiVersion of user \"me\" is missing"),
    ({"user": {"exec": {"command": "x", "apiVersion": "v1", "provideClusterInfo": True}}}, r"provideClusterInfo"),
    ({"user": {"auth-provider": {"name": "gcp"}}}, r"gke-gcloud-auth-plugin"),
    ({"user": {"auth-provider": {"name": "oidc"}}}, r"neither id-token nor refresh-token"),
    ({"user": {"as-groups": ["x"]}}, r"as-groups"),
    ({"contexts": {"dev": 1}}, r'"contexts" must be a list'),
    ({"users": [{"user": {}}]}, r'"users" must be a list whose entries have a name'),
]


@pytest.mark.parametrize(("fields", "words"), WRONG)
async def test_what_is_wrong_is_said_with_file_context_and_field(tmp_path: Path, fields: Fields, words: str) -> None:
    path = write(tmp_path / "config", **fields)
    with pytest.raises(BadConfiguration, match=words) as caught:
        await load_config(path, environ={}).sign_in(None)
    assert str(path) in caught.value.sentence


@pytest.mark.parametrize("content", ["", "[]", "a: b: c", "just words", "\x00"])
def test_what_is_no_kubeconfig(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(BadConfiguration, match=str(path)):
        load_config(path)


def test_the_first_request_is_the_first_time_that_a_plugin_runs(tmp_path: Path) -> None:
    user = plugin(tmp_path / "login", f"open({str(tmp_path / 'ran')!r}, 'w')")
    Cluster.from_kubeconfig(write(tmp_path / "config", user=user), name="one")
    assert not (tmp_path / "ran").exists()


# --- signing in -----------------------------------------------------------------------------------------------


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
    path.write_text("half writ")  # somebody is writing it: the old credentials stay
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
    import asyncio

    script = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n" + credential(token="t")
    sign_in = load_config(write(tmp_path / "config", user=plugin(tmp_path / "login", script))).sign_in
    first = await sign_in(None)
    answers = await asyncio.gather(*(sign_in(first) for _ in range(10)))
    assert len({id(answer) for answer in answers}) == 1
    assert (tmp_path / "runs").read_text() == "xx"


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("import sys; sys.exit('no network: s3cr3t')", Unreachable, "plugin .*login.* failed. Run it by hand"),
        ("print('not json')", Unreachable, "failed"),
        ("print('{}')", Unreachable, "failed"),
        (credential(), Unreachable, "neither a token nor a certificate"),
        (credential(clientCertificateData="x"), Unreachable, "neither"),
        (credential(clientCertificateData="x", clientKeyData="y"), BadConfiguration, "no matching PEM pair"),
    ],
)
async def test_a_failing_plugin(tmp_path: Path, script: str, error: type[Exception], words: str) -> None:
    sign_in = load_config(write(tmp_path / "config", user=plugin(tmp_path / "login", script))).sign_in
    with pytest.raises(error, match=words) as caught:
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


async def test_tls_with_client_certificate_and_server_name(
    tmp_path: Path, pems: dict[str, Path], api: ScriptedApi
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pems["server"], pems["server-key"])
    context.load_verify_locations(pems["client"])
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", api._handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    user = {"client-certificate": str(pems["client"]), "client-key": str(pems["client-key"])}
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(pems["server"]),
        "tls-server-name": "server.example",
    }
    async with Cluster.from_kubeconfig(write(tmp_path / "good", user=user, cluster=cluster), name="one") as good:
        assert await good.list(SERVICES) == []
    from fairlead.kube.transport import RetryPolicy

    once = RetryPolicy(attempts=1)
    wrong = {**cluster, "tls-server-name": "else.example"}
    path = write(tmp_path / "wrong", user=user, cluster=wrong)
    async with Cluster.from_kubeconfig(path, name="one", policy=once) as bad:
        with pytest.raises(Unreachable, match="tls-server-name"):
            await bad.list(SERVICES)
    skip = {"server": cluster["server"], "insecure-skip-tls-verify": True}
    async with Cluster.from_kubeconfig(write(tmp_path / "skip", user=user, cluster=skip), name="one") as lax:
        assert await lax.list(SERVICES) == []
    await runner.cleanup()


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
