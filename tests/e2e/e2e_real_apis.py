"""A real kube-apiserver for each cluster of a world, where there are binaries of one.

It refuses loopback addresses as endpoints. So the test process enters a network namespace of its own (and so do its
children), in which all of ``10.66.0.0/16`` and ``fd00:66::/48`` is local: any address of them can be bound without
being configured.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.transport import RetryPolicy
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.networks import inside, ip
from fairlead_demo.worlds.processes import Child, wait_until


@contextmanager
def own_network() -> Generator[None]:
    """Be in a network namespace of our own inside the block; only this thread, and what it starts, is."""
    name = f"fairlead-{os.getpid()}-{secrets.token_hex(3)}"
    ip("netns", "add", name)
    try:
        with inside(name):
            ip("link", "set", "lo", "up")
            ip("route", "add", "local", "10.66.0.0/16", "dev", "lo")
            ip("-6", "route", "add", "local", "fd00:66::/48", "dev", "lo")
            # What is only routed to a machine may be bound: true of IPv4 on lo, and a setting of IPv6.
            Path("/proc/sys/net/ipv6/ip_nonlocal_bind").write_text("1", encoding="ascii")
            yield
    finally:
        ip("netns", "delete", name)


class RealApis:
    """etcd, a kube-apiserver with RBAC for each cluster, and a controller manager for the hub if there is one."""

    kind = "real"

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        *,
        assets: Path,
        reached_at: str = "127.0.0.1",
        etcd_members: int = 1,
    ) -> None:
        self._directory = directory
        #: The address at which processes of other network namespaces reach the API servers.
        self._reached_at = reached_at
        self._bound_to = "127.0.0.1" if reached_at == "127.0.0.1" else "0.0.0.0"
        self._assets = assets
        self._names = list(names)
        self._token = secrets.token_hex(16)
        self._ports = {name: free_port() for name in names}
        directory.mkdir(parents=True, exist_ok=True)
        self._make_keys()
        self.etcds = self._etcd_members(etcd_members)
        self._children = {name: self._apiserver(name) for name in names}
        self._managers: list[Child] = []

    def etcd_data(self, number: int) -> Path:
        """Return where a member of etcd keeps its data."""
        return self._directory / f"etcd-{number}"

    def _etcd_members(self, count: int) -> list[Child]:
        clients = [f"http://127.0.0.1:{free_port()}" for _ in range(count)]
        self._etcd_peers = peers = [f"http://127.0.0.1:{free_port()}" for _ in range(count)]
        self._etcd_urls = ",".join(clients)
        all_of_them = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
        commands = [
            (
                str(self._assets / "etcd"), f"--name=m{number}", f"--data-dir={self.etcd_data(number)}",
                "--unsafe-no-fsync", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster={all_of_them}", "--log-level=warn",
            )
            for number, (client, peer) in enumerate(zip(clients, peers, strict=True))
        ]  # fmt: skip
        return [
            Child(f"etcd {number}", command, log=self._directory / f"etcd-{number}.log")
            for number, command in enumerate(commands)
        ]

    async def start(self) -> None:
        """Start all of them."""
        await self.start_control_plane()
        binary = self._assets / "kube-controller-manager"
        if "hub" in self._names and binary.exists():
            config = self.kubeconfig("hub")
            command = (
                str(binary), f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1", f"--secure-port={free_port()}",
                f"--cert-dir={self._directory / 'kcm'}", "--leader-elect=false",
                f"--service-account-private-key-file={self._directory / 'sa.key'}",
                f"--root-ca-file={self._directory / 'ca.crt'}",
            )  # fmt: skip
            manager = Child("controller manager", command, log=self._directory / "kcm.log")
            self._managers.append(manager)
            await manager.start()

    async def start_control_plane(self) -> None:
        """Start etcd, and the API servers on it, on the data that is there."""
        await asyncio.gather(*(etcd.start() for etcd in self.etcds))
        await asyncio.gather(*(self.restart(name) for name in self._names))

    async def kill_control_plane(self) -> None:
        """End the API servers, and etcd, with SIGKILL."""
        await asyncio.gather(*(child.kill() for child in self._children.values()))
        await asyncio.gather(*(etcd.kill() for etcd in self.etcds))

    def save(self, backup: Path) -> None:
        """Copy the database of the only member of etcd, which is stopped."""
        shutil.copyfile(self.etcd_data(0) / "member" / "snap" / "db", backup)

    def restore(self, backup: Path, *etcdutl: str) -> None:
        """Let the only member of etcd, which is stopped, begin again with a copy of its database.

        ``etcdutl``: more arguments of ``etcdutl snapshot restore``.
        """
        data, peer = self.etcd_data(0), self._etcd_peers[0]
        shutil.rmtree(data)
        command = (
            str(self._assets / "etcdutl"), "snapshot", "restore", str(backup), "--skip-hash-check",
            f"--data-dir={data}", "--name=m0", f"--initial-cluster=m0={peer}",
            f"--initial-advertise-peer-urls={peer}", *etcdutl,
        )  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)

    def kubeconfig(self, name: str) -> Path:
        return self._directory / f"{name}.kubeconfig"

    def kubeconfig_from_outside(self, name: str) -> Path:
        """Return the kubeconfig for processes of other network namespaces."""
        return self._directory / f"{name}-outside.kubeconfig"

    def network(self, number: int, /) -> str:
        return f"10.66.{number}"

    async def kill(self, name: str) -> None:
        await self._children[name].kill()

    async def restart(self, name: str) -> None:
        await self._children[name].start()

        async def ready() -> bool:
            policy = RetryPolicy(attempts=1, deadline_s=5)
            async with Cluster.from_kubeconfig(self.kubeconfig(name), name=name, policy=policy) as cluster:
                try:
                    return await cluster.raw("GET", "/readyz") == b"ok"
                except FairleadError:
                    return False

        await wait_until(ready, f"the kube-apiserver of {name} is ready")

    async def close(self) -> None:
        await asyncio.gather(*(manager.kill() for manager in self._managers))
        await self.kill_control_plane()

    def _make_keys(self) -> None:
        home = self._directory

        def openssl(*arguments: str) -> None:
            subprocess.run(("openssl", *arguments), cwd=home, check=True, capture_output=True)

        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test-ca",
            "-keyout", "ca.key", "-out", "ca.crt", "-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign",
        )  # fmt: skip
        openssl("genrsa", "-out", "sa.key", "2048")
        openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=api", "-keyout", "api.key", "-out", "api.csr")
        (home / "api.ext").write_text(
            "keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=serverAuth\n"
            "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:10.0.0.1,"
            f"IP:{self._reached_at}\n"
        )
        openssl(
            "x509", "-req", "-days", "2", "-in", "api.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-extfile", "api.ext", "-out", "api.crt",
        )  # fmt: skip
        (home / "tokens.csv").write_text(f'{self._token},admin,admin-uid,"system:masters"\n')
        for name in self._ports:
            self._write_kubeconfig(self.kubeconfig(name), name, "127.0.0.1")
            self._write_kubeconfig(self.kubeconfig_from_outside(name), name, self._reached_at)

    def _write_kubeconfig(self, path: Path, name: str, host: str) -> None:
        server = {"server": f"https://{host}:{self._ports[name]}", "certificate-authority": "ca.crt"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": server}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
            "current-context": name,
        }
        path.write_text(yaml.safe_dump(content))

    def _apiserver(self, name: str) -> Child:
        home = self._directory
        command = (
            str(self._assets / "kube-apiserver"), f"--bind-address={self._bound_to}", "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports[name]}", f"--etcd-servers={self._etcd_urls}", f"--etcd-prefix=/{name}",
            f"--tls-cert-file={home / 'api.crt'}", f"--tls-private-key-file={home / 'api.key'}",
            f"--client-ca-file={home / 'ca.crt'}", f"--token-auth-file={home / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.0.0.0/16,fd00:10::/108",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={home / 'sa.pub'}", f"--service-account-signing-key-file={home / 'sa.key'}",
            "--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount",
        )  # fmt: skip
        return Child(f"{name} API", command, log=home / f"{name}-apiserver.log")


def assets_directory() -> Path | None:
    """Return where KUBEBUILDER_ASSETS says that the real binaries are; None when they are not there."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return None
    directory = Path(named)
    return directory if all((directory / program).exists() for program in ("etcd", "kube-apiserver")) else None


def why_not_real() -> str:
    """Return why the real API server cannot be used here; empty when it can."""
    if assets_directory() is None:
        return "set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd"
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("openssl") is None:
        return "a real API server refuses loopback endpoints: needs root, iproute2 and openssl for a network namespace"
    return ""
