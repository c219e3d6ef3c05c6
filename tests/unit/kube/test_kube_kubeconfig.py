"""Where a kubeconfig is found, what is merged, what may be wrong in it, and the connection that it leads to."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from aiohttp import web
from kube_scripted import ScriptedApi
from kubeconfigs import Clock, Fields, plugin, write

from fairlead.api.kubernetes import SERVICES
from fairlead.errors import BadConfiguration, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.kube.kubeconfig import load_config
from fairlead.kube.transport import RetryPolicy

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
    given = write(tmp_path / "one" / "config", contexts=[{"name": "dev", "context": {"cluster": "c1", "user": "far"}}])
    two = write(
        tmp_path / "two" / "config",
        cluster={"server": "https://second:1"},
        users=[{"name": "far", "user": {"tokenFile": "token"}}],
        current_context="other",
    )
    environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "missing"), str(given), str(two)])}
    config = load_config(environ=environ, home=tmp_path)
    assert config.server == "https://api.example:6443"
    assert config.user == "far"  # and its tokenFile was found next to the second file


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
    ({"cluster": {"server": "api.example"}}, r'server "api.example" is not a URL'),
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


@pytest.mark.parametrize(("fields", "pattern"), WRONG)
async def test_problems_name_file_context_and_field(tmp_path: Path, fields: Fields, pattern: str) -> None:
    path = write(tmp_path / "config", **fields)
    with pytest.raises(BadConfiguration, match=pattern) as caught:
        await load_config(path, environ={}).sign_in(None)
    assert str(path) in caught.value.sentence


@pytest.mark.parametrize("content", ["", "[]", "a: b: c", "just words", "\x00"])
def test_invalid_kubeconfigs(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(BadConfiguration, match=str(path)):
        load_config(path)


def test_the_first_request_is_the_first_time_that_a_plugin_runs(tmp_path: Path) -> None:
    user = plugin(tmp_path / "login", f"open({str(tmp_path / 'ran')!r}, 'w')")
    Cluster.from_kubeconfig(write(tmp_path / "config", user=user), name="one")
    assert not (tmp_path / "ran").exists()


# --- the connection -------------------------------------------------------------------------------------------


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
