"""Pages with commands are executed from their first line to their last one, as a reader would."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fairlead.api.multicluster import MULTICLUSTER_VERSIONS, SERVICE_EXPORTS, SERVICE_IMPORTS
from fairlead_demo.worlds.acme_server import AcmeServer
from fairlead_demo.worlds.clusterapi_kinds import cluster_api_crds
from fairlead_demo.worlds.loopback import service_port
from tests.docs.docs_console import ROOT, Shell, blocks_of, pages
from tests.scenario.multicluster.multicluster_world import definition
from tests.worlds.powerdns import PowerDNS, installed

T = TypeVar("T")
_TOOLS = ("bash", "curl", "kubectl")
pytestmark = [
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not all(map(shutil.which, _TOOLS)), reason=f"the pages use {', '.join(_TOOLS)}"),
]


#: What a member has whose users write Ingresses.
_CLASS_AND_SERVICE = """
kubectl create -f - <<END
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fairlead}
spec: {controller: fairlead.dev/ingress-controller}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: ClusterIP, ports: [{port: 80}]}
END
""".strip()


class Elsewhere:
    """A loop in a thread of its own, for servers: the test itself waits for bash."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(180)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    loop = Elsewhere()
    yield loop
    loop.close()


@pytest.fixture
def authority(elsewhere: Elsewhere) -> Iterator[AcmeServer]:
    """A certificate authority that has proof of every name."""
    server = AcmeServer(where=lambda _host: ("127.0.0.1", 80))
    server.trusting = True
    elsewhere.run(server.start())
    yield server
    elsewhere.run(server.close())


@pytest.fixture
def powerdns(elsewhere: Elsewhere, tmp_path: Path) -> Iterator[PowerDNS]:
    server = PowerDNS(tmp_path / "pdns", "clusters.example")
    elsewhere.run(server.start())
    yield server
    elsewhere.run(server.kill())


@pytest.fixture
def internal_authority(elsewhere: Elsewhere, powerdns: PowerDNS) -> Iterator[AcmeServer]:
    """A certificate authority that looks for proof in the zone of PowerDNS."""

    async def texts(host: str) -> list[str]:
        return [each.strip('"') for each in await powerdns.ask(host, "TXT")]

    server = AcmeServer(where=lambda _host: ("127.0.0.1", 80), texts=texts)
    elsewhere.run(server.start())
    yield server
    elsewhere.run(server.close())


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_tutorial(shell: Shell) -> None:
    shell.play(page("docs/tutorial.md"))


def test_how_to_debug_and_how_to_upgrade(world: Shell) -> None:
    world.play(page("docs/how-to/debug-no-address.md"))
    # It has an address, and no pods: nothing is healthy while that is so.
    world.type("kubectl delete service shop")
    world.play(page("docs/how-to/upgrade.md"))


@pytest.mark.req("F-11", "F-13")
def test_how_to_set_health_checks(world: Shell) -> None:
    world.play(page("docs/how-to/health-checks.md"))


@pytest.mark.req("F-20")
@pytest.mark.skipif(
    service_port(80) != 80, reason="an Ingress is served at ports 80 and 443, which this user may not open"
)
def test_how_to_ask_for_tokens(world: Shell) -> None:
    world.play(page("docs/how-to/tokens.md"))


@pytest.mark.req("F-8", "F-14", "F-18", "F-19", "F-21", "F-22")
@pytest.mark.skipif(
    service_port(80) != 80, reason="an Ingress is served at ports 80 and 443, which this user may not open"
)
def test_how_to_serve_an_ingress_and_to_change_what_happens_to_requests(world: Shell) -> None:
    world.play(page("docs/how-to/ingress.md"))
    world.play(page("docs/how-to/limit-clients.md"))
    world.play(page("docs/how-to/limits.md"))
    world.play(page("docs/how-to/maintenance.md"))
    world.play(page("docs/how-to/access-logs.md"))
    world.play(page("docs/how-to/external-auth.md"))
    world.play(page("docs/how-to/web-application-firewall.md"))


@pytest.mark.req("F-1", "F-2", "F-24")
def test_how_to_wait_for_pods_and_for_objects(world: Shell) -> None:
    world.play(page("docs/how-to/readiness-gates.md"))
    world.play(page("docs/how-to/gitops.md"))


@pytest.mark.req("F-31")
def test_how_to_limit_a_tenant(world: Shell) -> None:
    world.play(page("docs/how-to/limit-a-tenant.md"))


@pytest.mark.req("F-30")
def test_how_to_audit_changes(world: Shell) -> None:
    world.play(page("docs/how-to/audit.md"))


@pytest.mark.req("F-32")
def test_how_to_show_usage(world: Shell) -> None:
    world.play(page("docs/how-to/usage.md"))


#: A second member, and a GlobalService over both with one backend in each.
_TWO_MEMBERS = """
fairlead apiserver --data-dir west 2> west.log &
until [ -s west/kubeconfig ]; do sleep 0.1; done
fairlead tenant add west --output west-at-hub.kubeconfig --kubeconfig hub/kubeconfig
KUBECONFIG=west/kubeconfig fairlead agent --tenant west --hub-kubeconfig west-at-hub.kubeconfig --target Pod 2> w.log &
python3 -m http.server 8080 --bind 127.61.0.1 > 1.log 2>&1 & python3 -m http.server 8080 --bind 127.61.0.2 2> 2.log &
sed s/ADDRESS/127.61.0.1/ backend.yaml | kubectl create --kubeconfig west/kubeconfig -f -
sed s/ADDRESS/127.61.0.2/ backend.yaml | kubectl create -f -
kubectl create --kubeconfig hub/kubeconfig -f global.yaml
until kubectl get gsvc web -n tenant-west --kubeconfig hub/kubeconfig | grep "west 60%, east 40%"; do sleep 0.2; done
ADDRESS=$(kubectl get gsvc web -n tenant-west --kubeconfig hub/kubeconfig -o 'jsonpath={.status.address}')
for N in $(seq 600); do curl --silent --output page.html "http://$ADDRESS:80"; sleep 0.2; done &
""".strip()
_BACKEND = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080, protocol: TCP}]
endpoints: [{addresses: [ADDRESS], conditions: {ready: true}}]
"""
_GLOBAL = """
apiVersion: fairlead.dev/v1alpha1
kind: GlobalService
metadata: {name: web, namespace: tenant-west}
spec:
  service: default/web
  members: [{tenant: west, weight: 60}, {tenant: east, weight: 40}]
"""


@pytest.mark.req("X-19", "MC-24", "MC-25", "MC-26")
def test_how_to_rehearse_a_failure(world: Shell) -> None:
    for name, text in (("backend.yaml", _BACKEND), ("global.yaml", _GLOBAL)):
        (world.directory / name).write_text(text, encoding="utf-8")
    for command in _TWO_MEMBERS.splitlines():
        world.type(command)
    world.play(page("docs/how-to/rehearse-a-failure.md"))


def test_how_to_back_up_and_restore_a_hub_on_one_machine_without_a_restart_of_envoy(world: Shell) -> None:
    world.play(page("docs/how-to/back-up.md"))
    world.type("fairlead status --kubeconfig hub/kubeconfig --wait")


def test_how_to_replace_a_lost_hub_machine(world: Shell) -> None:
    world.play(page("docs/how-to/replace-a-lost-hub.md"))


def test_how_to_kill_the_controller(shell: Shell) -> None:
    shell.play(page("docs/how-to/kill-the-controller.md"))


@pytest.mark.req("K-53")
@pytest.mark.skipif(
    service_port(80) != 80, reason="an Ingress is served at ports 80 and 443, which this user may not open"
)
def test_how_to_get_certificates(world: Shell, authority: AcmeServer) -> None:
    world.substitutions = {**world.substitutions, "https://acme-v02.api.letsencrypt.org/directory": authority.directory}
    world.type(_CLASS_AND_SERVICE)
    world.play(page("docs/how-to/certificates.md"))


@pytest.mark.skipif(not shutil.which("haproxy"), reason="the page is about a HAProxy that is there")
def test_how_to_put_services_on_haproxy(world: Shell) -> None:
    world.play(page("docs/how-to/haproxy.md"))


@pytest.mark.skipif(
    not (shutil.which("named") and shutil.which("dig")), reason="the page is about a BIND that is there, asked by dig"
)
@pytest.mark.req("K-47", "K-49", "KI-9")
def test_how_to_give_names(world: Shell) -> None:
    world.play(page("docs/how-to/names.md"))


@pytest.mark.skipif(
    not (shutil.which("named") and shutil.which("dig")), reason="the page is about a BIND that is there, asked by dig"
)
@pytest.mark.req("MC-21", "MC-22")
def test_how_to_share_a_hostname_between_hubs(world: Shell) -> None:
    world.play(page("docs/how-to/several-hubs.md"))


def kinds_of_cluster_api(shell: Shell) -> None:
    """Have clusterctl install the kinds alone: what its controllers would do is done by hand, or not at all."""
    definitions = json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster_api_crds()})
    (shell.directory / "cluster-api.json").write_text(definitions, encoding="utf-8")
    shell.type("clusterctl() { kubectl apply -f cluster-api.json; }")


@pytest.mark.req("C-32", "C-39", "C-45", "C-59")
def test_how_to_give_clusters_their_endpoint(shell: Shell) -> None:
    kinds_of_cluster_api(shell)
    shell.play(page("docs/how-to/cluster-api.md"))


@pytest.mark.req("C-52", "C-54", "T-C-21")
@pytest.mark.skipif(not installed(), reason="PowerDNS is not installed: apt-get install pdns-server, as root")
def test_how_to_give_a_cluster_its_name(shell: Shell, powerdns: PowerDNS, internal_authority: AcmeServer) -> None:
    """Of Cluster API the kinds alone are there: before the first machine it has nothing to do."""
    kinds_of_cluster_api(shell)
    shell.substitutions = {
        **shell.substitutions,
        "http://192.0.2.53:8081": powerdns.url,
        "192.0.2.53:53": powerdns.server,
        "the-key-of-its-api": powerdns.api_key,
        "https://acme.corp.example/directory": internal_authority.directory,
    }
    shell.play(page("docs/how-to/cluster-names.md"))
    assert internal_authority.issued == [("blue.clusters.example",)]


def test_how_to_move_from_metallb(world: Shell) -> None:
    world.play(page("docs/how-to/from-metallb.md"))


def test_how_to_use_an_address_pool(own_network: Shell) -> None:
    own_network.play(page("docs/how-to/address-pool.md"))


#: Where pods answer at their own port, and what says so.
_PODS = """
python3 -m http.server 8080 --bind 127.61.0.1 --directory pod > pods.log 2>&1 &
kubectl create -f slice.yaml
""".strip()
_SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [127.61.0.1], conditions: {ready: true}}]
ports: [{name: "", port: 8080, protocol: TCP}]
"""


def test_how_to_serve_one_cluster(cluster: Shell) -> None:
    (cluster.directory / "slice.yaml").write_text(_SLICE, encoding="utf-8")
    for line in _PODS.splitlines():
        cluster.type(line)
    cluster.play(page("docs/how-to/run-one-cluster.md"))


@pytest.mark.req("X-19")
def test_readme(cluster: Shell) -> None:
    (cluster.directory / "slice.yaml").write_text(_SLICE, encoding="utf-8")
    cluster.type("kubectl create deployment web --image=busybox")
    for line in _PODS.splitlines():
        cluster.type(line)
    cluster.play(page("README.md"))


#: A member with one pod behind Service shop/web, and its agent.
_MEMBER = """
fairlead apiserver --data-dir NAME 2> NAME.log &
until [ -s NAME/kubeconfig ]; do sleep 0.1; done
fairlead tenant add NAME --output NAME-at-hub.kubeconfig --kubeconfig hub/kubeconfig
python3 -m http.server 8080 --bind 127.61.0.NUMBER > NAME-pod.log 2>&1 &
export KUBECONFIG=$PWD/NAME/kubeconfig
kubectl create -f NAME.yaml
fairlead agent --tenant NAME --hub-kubeconfig NAME-at-hub.kubeconfig --target Pod 2> NAME-agent.log &
kubectl wait service/web -n shop --for=jsonpath='{.status.loadBalancer.ingress}' --timeout=2m
""".strip()
_OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: LoadBalancer, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [127.61.0.NUMBER], conditions: {ready: true}}]
ports: [{name: "", port: 8080, protocol: TCP}]
"""


@pytest.mark.req("MC-9", "MC-13", "MC-14", "MC-18")
def test_how_to_share_a_service_among_members(world: Shell) -> None:
    world.substitutions = {**world.substitutions, "198.51.100.9": "..."}
    for number, name in enumerate(("east", "west", "north"), 1):
        objects = _OBJECTS.replace("NUMBER", str(number))
        for before, after in world.substitutions.items():
            objects = objects.replace(before, after)
        (world.directory / f"{name}.yaml").write_text(objects, encoding="utf-8")
        for line in _MEMBER.splitlines():
            # The hub has east and its agent already.
            if name != "east" or line.startswith(("python3", "export", "kubectl")):
                world.type(line.replace("NAME", name).replace("NUMBER", str(number)))
    world.type("export KUBECONFIG=$PWD/hub/kubeconfig")
    world.play(page("docs/how-to/global-services.md"))
    world.play(page("docs/how-to/fail-over-by-plan.md"))


#: Contexts as a user's own kubeconfig has them, and the definitions that are elsewhere.
_CONTEXTS = """
kubectl() { local member=$2; shift 2; command kubectl --kubeconfig "$member/kubeconfig" "$@"; }
export KUBECONFIG=$PWD/hub/kubeconfig
""".strip()


@pytest.mark.req("X-19", "MC-1", "MC-4")
def test_how_to_export_services_to_other_clusters(world: Shell) -> None:
    kinds = (definition(kind, MULTICLUSTER_VERSIONS) for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS))
    listing = [{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **kind} for kind in kinds]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": listing})
    (world.directory / "mcs.json").write_text(text, encoding="utf-8")
    (world.directory / "deploy").symlink_to(ROOT / "deploy")
    official = "-k https://github.com/kubernetes-sigs/mcs-api/config/crd"
    own = {official: "-f mcs.json", "10.96.14.201": "...", "10.61.": world.substitutions["127.61."]}
    world.substitutions = {**world.substitutions, **own}
    world.type("kubectl create namespace shop")
    objects = world.substitute(_OBJECTS.replace("NUMBER", "2"))
    (world.directory / "west.yaml").write_text(objects, encoding="utf-8")
    for line in (*_MEMBER.splitlines(), *_CONTEXTS.splitlines()):
        world.type(line.replace("NAME", "west").replace("NUMBER", "2"))
    world.type("fairlead status --wait")
    world.play(page("docs/how-to/multi-cluster-services.md"))


@pytest.mark.req("X-19")
def test_how_to_serve_several_clusters(cluster: Shell) -> None:
    cluster.play(page("docs/how-to/serve-several-clusters.md"))


def test_every_page_with_commands_is_executed() -> None:
    executed = Path(__file__).read_text(encoding="utf-8")
    for file in pages():
        if any(block.language == "console" for block in blocks_of(file.read_text(encoding="utf-8"))):
            assert f'"{file.relative_to(ROOT)}"' in executed
