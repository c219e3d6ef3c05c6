"""A cluster in a network namespace: etcd, kube-apiserver, kube-controller-manager, a node, and ``fairlead run``.

In: programs and a directory. Out: running processes whose ids are kept in the directory, so that a later run finds,
or ends, what this one left. Addresses of the load balancers are local to the namespace, which leads nowhere else.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from conformance.manifests import GATEWAY_CLASS
from conformance.paths import ROOT, RunSettings
from conformance.verdict import result_of
from fairlead.runtime.private_file import write_private

#: Addresses of load balancers; API servers have some outside of it, which EndpointSlices need.
POOL, LOCAL, API_NETWORK = "198.18.0.0/17", "198.18.0.0/16", "198.18.255"
#: In the pool, and outside of it.
USABLE_ADDRESS, UNUSABLE_ADDRESS = "198.18.100.100", "203.0.113.1"
#: The class that the suite asks for.
CLASS_PATH = f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{GATEWAY_CLASS}"
#: In the order in which they are ended: an API server without its etcd hardly stops.
_ORDER = ("fairlead", "podlet", "controller-manager", "apiserver", "etcd")
_READY_S, _END_S = 180.0, 20.0


def knows_version(gateway_class: str) -> bool:
    """Say whether a GatewayClass, as JSON, shows which version of Gateway API its controller has seen."""
    try:
        conditions = json.loads(gateway_class).get("status", {}).get("conditions") or ()
    except json.JSONDecodeError:
        return False
    return any((each["type"], each["status"]) == ("SupportedVersion", "True") for each in conditions)


class ClusterFailedError(Exception):
    """A part of the cluster did not start."""


class RunCluster:
    """The cluster of one run; ``number``: of several in one network namespace, which the first one makes.

    ``dual_stack``: Services and pods have addresses of both families.
    """

    def __init__(self, settings: RunSettings, assets: Path, *, number: int = 0, dual_stack: bool = False) -> None:
        self.settings = settings
        self._assets = assets
        self._home = settings.directory
        self._number = number
        self._services, self._pods = f"10.{96 + number}.0.0/16", f"10.{244 + number}.0.0/16"
        if dual_stack:
            self._services += f",fd00:96:{number}::/112"
            self._pods += f",fd00:244:{number}::/112"
        self._server = f"https://127.0.0.1:{6443 + number}"
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def running(self) -> bool:
        """Say whether an earlier run left everything but Fairlead running."""
        return all(self._pid(name) for name in _ORDER[1:])

    def start(self) -> None:
        """Start the control plane and the node.

        Raises:
            ClusterFailedError: a part did not become ready; its log is named.
        """
        self.stop()
        self._home.mkdir(parents=True, mode=0o700)
        namespace, number = self.settings.namespace, self._number
        if not number:
            self._ip("netns", "add", namespace)
            self._ip("-n", namespace, "link", "set", "lo", "up")
            self._ip("-n", namespace, "route", "add", "local", LOCAL, "dev", "lo")
        self._write_keys()
        programs, home = self._assets, self._home
        etcd, peers = (f"http://127.0.0.1:{2379 + 10 * number + own}" for own in (0, 1))
        self._run(
            "etcd", str(programs / "etcd"), f"--data-dir={home / 'etcd'}", f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}", "--unsafe-no-fsync",
        )  # fmt: skip
        self._run(
            "apiserver", str(programs / "kube-apiserver"), f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
            f"--advertise-address={API_NETWORK}.{1 + number}", f"--secure-port={6443 + number}",
            f"--cert-dir={home / 'certs'}", f"--token-auth-file={home / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-account-issuer=https://conformance.test", f"--service-account-key-file={home / 'sa.pub'}",
            f"--service-account-signing-key-file={home / 'sa.key'}", f"--service-cluster-ip-range={self._services}",
            "--allow-privileged=true",
        )  # fmt: skip
        self.wait("apiserver", lambda: self.kubectl_raw("/readyz") == "ok")
        self._run(
            "controller-manager", str(programs / "kube-controller-manager"),
            f"--kubeconfig={self.settings.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--secure-port={10257 + number}", f"--service-account-private-key-file={home / 'sa.key'}",
        )  # fmt: skip
        self._run(
            "podlet", sys.executable, "-m", "conformance.podlet", "--kubeconfig", str(self.settings.kubeconfig),
            "--pod-cidr", self._pods,
        )  # fmt: skip

    def start_fairlead(self) -> None:
        """Start ``fairlead run`` again, with its Envoy, and wait until both halves are ready."""
        self.run_fairlead("run", "--address-pool", POOL, "--stop-proxy")
        # The suite takes the features from the class; those of the experimental channel come with the version.
        self.wait("fairlead", lambda: knows_version(self.kubectl_raw(CLASS_PATH)))

    def run_fairlead(self, *command: str) -> None:
        """Start a command of fairlead for this cluster again, and wait until it is ready."""
        self._end("fairlead")
        metrics = f"127.0.0.1:{7999 - self._number}"
        self._run(
            "fairlead", sys.executable, "-m", "fairlead.cli.main", *command,
            "--kubeconfig", str(self.settings.kubeconfig), "--data-dir", str(self._home / "run"),
            "--metrics", metrics, "--log-level", "info",
        )  # fmt: skip
        self.wait("fairlead", lambda: self.inside("curl", "-s", f"http://{metrics}/readyz") == "ok")

    def stop(self) -> None:
        """End everything, and remove the namespace and the directory."""
        for name in _ORDER:
            self._end(name)
        if not self._number:
            subprocess.run(["ip", "netns", "delete", self.settings.namespace], check=False, capture_output=True)
        shutil.rmtree(self._home, ignore_errors=True)

    def run_suite(self, suite: Path, *arguments: str) -> int:
        """Run the suite's binary; return its exit code. Its output goes to the log, results to stderr as they come."""
        command = ["ip", "netns", "exec", self.settings.namespace, str(suite), *arguments]
        with self.settings.log.open("wb") as log:
            running = subprocess.Popen(command, cwd=self._home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for line in running.stdout or ():
                log.write(line)
                if result := result_of(line.decode(errors="replace")):
                    sys.stderr.write(f"{result}\n")
            return running.wait()

    def kubectl_raw(self, path: str) -> str:
        """Return the body of a page of the API server, empty without an answer."""
        token = (self._home / "token").read_text()
        return self.inside("curl", "-sk", "-H", f"Authorization: Bearer {token}", f"{self._server}{path}")

    def wait(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait until a part is ready.

        Raises:
            ClusterFailedError: not in time, or it has ended.
        """
        end_s = time.monotonic() + _READY_S
        while not ready():
            process = self._started.get(name)
            if time.monotonic() > end_s or (process is not None and process.poll() is not None):
                raise ClusterFailedError(f"{name} is not ready: see {self._home / name}.log")
            time.sleep(0.3)

    def inside(self, *command: str) -> str:
        """Return what a command prints in the cluster's network namespace."""
        inside = ["ip", "netns", "exec", self.settings.namespace, *command]
        return subprocess.run(inside, check=False, capture_output=True, text=True).stdout.strip()

    def _run(self, name: str, *command: str) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        with (self._home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.settings.namespace, *command],
                cwd=self._home,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started[name] = process
        (self._home / f"{name}.pid").write_text(str(process.pid))

    def _pid(self, name: str) -> int:
        """Return the id of a part that runs, 0 otherwise; one that was started by an earlier run, too."""
        file = self._home / f"{name}.pid"
        pid = int(file.read_text()) if file.exists() else 0
        command = Path(f"/proc/{pid}/cmdline")
        # Ids are used again: only a process of this directory is ours.
        with contextlib.suppress(OSError):
            return pid if str(self._home).encode() in command.read_bytes() else 0
        return 0

    def _end(self, name: str) -> None:
        pid = self._pid(name)
        if not pid:
            return
        os.kill(pid, signal.SIGTERM)
        end_s = time.monotonic() + _END_S
        while self._pid(name) and time.monotonic() < end_s:
            if (process := self._started.get(name)) is not None:
                process.poll()
            time.sleep(0.1)
        if self._pid(name):
            os.kill(pid, signal.SIGKILL)

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)

    def _write_keys(self) -> None:
        key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        write_private(self._home / "sa.key", private.decode())
        (self._home / "sa.pub").write_bytes(public)
        token = secrets.token_hex(16)
        write_private(self._home / "token", token)
        write_private(self._home / "tokens.csv", f'{token},admin,admin,"system:masters"\n')
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self._server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        write_private(self.settings.kubeconfig, yaml.safe_dump(config))
