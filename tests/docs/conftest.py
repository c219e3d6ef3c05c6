"""Shells in temporary directories, with ports and addresses that no other run has."""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_demo.worlds.loopback import free_port
from tests.docs.docs_console import ROOT, Shell

#: What the pages call the directory and the addresses that each run has its own of.
HOME = "/tmp/fairlead-tutorial"
API = "127.0.0.1:6443"
DRIVER = "8765"
_CLUSTER_API = "fairlead standalone --data-dir hub --cluster-api"
NETWORKS = ("127.200.", "127.61.", "127.62.")
_IN_OWN_NETWORK = ("unshare", "--map-root-user", "--net")
#: The kinds are installed after the kubeconfig is there, so the first ``tenant add`` may come too early.
_WORLD = """
fairlead standalone --data-dir hub --listen 127.0.0.1:6443 --address-pool 127.200.0.0/16 2> hub.log & HUB=$!
fairlead apiserver --data-dir east 2> east.log &
until [ -s hub/kubeconfig ] && [ -s east/kubeconfig ]; do sleep 0.1; done
until fairlead tenant add east --output east-at-hub.kubeconfig --kubeconfig hub/kubeconfig 2> t.log; do sleep 1; done
export KUBECONFIG=$PWD/east/kubeconfig
fairlead agent --tenant east --hub-kubeconfig east-at-hub.kubeconfig --target Pod 2> agent.log &
fairlead status --kubeconfig hub/kubeconfig --wait
""".strip()

#: A cluster as ~/.kube/config knows it: one node, on which something answers at the first nodePort.
_CLUSTER = """
fairlead apiserver --data-dir .kube 2> .kube.log &
until [ -s .kube/kubeconfig ]; do sleep 0.1; done; ln -s kubeconfig .kube/config
mkdir pod && echo "hello from web" > pod/index.html
python3 -m http.server 30000 --bind 127.61.0.1 --directory pod > pod.log 2>&1 &
kubectl create -f node.yaml
""".strip()
_NODE = """
apiVersion: v1
kind: Node
metadata:
  name: node-1
status:
  addresses:
  - {type: InternalIP, address: 127.61.0.1}
  conditions:
  - {type: Ready, status: "True"}
"""


def free_networks(worker_id: str) -> dict[str, str]:
    """Return a /16 of loopback for each of the pages' networks: different ones, which no other worker has."""
    number = int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else 9
    seconds = random.SystemRandom().sample(range(10 + number % 10, 191, 10), len(NETWORKS))
    return {network: f"127.{second}." for network, second in zip(NETWORKS, seconds, strict=True)}


@pytest.fixture
def shell(worker_id: str) -> Iterator[Shell]:
    """An empty directory and nothing running."""
    # Short: the path of a unix socket has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fl-docs-") as name:
        # Two pages run at once: what leaves the port of its API to the default is given one, too.
        api = f"127.0.0.1:{free_port()}"
        ports = {API: api, DRIVER: str(free_port()), _CLUSTER_API: f"{_CLUSTER_API} --listen {api}"}
        shell = Shell(directory=Path(name), substitutions={HOME: name, **ports, **free_networks(worker_id)})
        (shell.directory / "examples").symlink_to(ROOT / "examples")
        yield shell
        shell.close()


@pytest.fixture
def world(shell: Shell) -> Shell:
    """A hub and one member, east, whose API kubectl finds by itself."""
    for line in _WORLD.splitlines():
        shell.type(line)
    return shell


@pytest.fixture
def own_network() -> Iterator[Shell]:
    """An empty directory and a network of its own, in which everybody is root."""
    if subprocess.run([*_IN_OWN_NETWORK, "true"], check=False, capture_output=True).returncode:
        pytest.skip("network namespaces are not allowed here")
    with tempfile.TemporaryDirectory(prefix="fl-docs-") as name:
        shell = Shell(directory=Path(name), prefix=_IN_OWN_NETWORK, env={"HOME": name})
        shell.type("ip link set lo up")
        yield shell
        shell.close()


@pytest.fixture
def cluster(own_network: Shell) -> Shell:
    """A cluster for the commands of the README."""
    (own_network.directory / "node.yaml").write_text(_NODE, encoding="utf-8")
    for line in _CLUSTER.splitlines():
        own_network.type(line)
    return own_network
