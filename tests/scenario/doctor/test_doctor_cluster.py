"""``fairlead doctor`` and ``collect`` at an API server: what they read, what they find, and what they leave out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tarfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.kubernetes import CONFIG_MAPS, CRDS, NODES, SECRETS, SERVICE_ACCOUNTS, SERVICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.translate.tenant import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from fairlead_demo.worlds.processes import fairlead
from tests.scenario.any_api import until

RBAC = "rbac.authorization.k8s.io"
PODS_EVENTS = Resource("", "v1", "Event", "events", True, KubeObject)


async def run(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *fairlead(*arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def findings(*arguments: str) -> list[dict[str, str]]:
    code, out = await run("doctor", "--output", "json", *arguments)
    named = json.loads(out)["findings"]
    severities = {finding["severity"] for finding in named}
    assert code == (5 if "error" in severities else 4 if severities else 0), out
    return named


def of(named: list[dict[str, str]], check: str) -> list[dict[str, str]]:
    return [finding for finding in named if finding["check"] == check]


@pytest.mark.req("OP-5")
async def test_faults_that_are_planted_at_a_hub_are_named(admin: Cluster, kubeconfig: Path) -> None:
    spec = {"spec": {"provider": "no-such-provider", "draining": True}}
    await admin.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": "broken"}, **spec}, manager="test")
    await admin.delete(CRDS, "", "dnszones.fairlead.dev")
    await until(lambda: _gone(admin, "dnszones.fairlead.dev"))
    try:
        named = await findings("--kubeconfig", str(kubeconfig))
    finally:
        await admin.delete(LOAD_BALANCER_CLASSES, "", "broken")
    assert of(named, "kinds")[0]["object"] == "CustomResourceDefinition/dnszones.fairlead.dev"
    assert of(named, "leader")[0]["severity"] == "error"
    assert of(named, "default-class")[0]["object"] == "LoadBalancerClass/envoy"
    assert "draining" in of(named, "classes")[0]["fault"]
    assert of(named, "unread") == []
    code, out = await run("doctor", "--kubeconfig", str(kubeconfig))
    assert code == 5
    assert "ERROR  LoadBalancerClass/envoy  (default-class)" in out
    assert "  fix: fairlead hub" in out


async def _gone(admin: Cluster, name: str) -> bool:
    try:
        await admin.get(CRDS, "", name)
    except NotFound:
        return True
    return False


@contextlib.asynccontextmanager
async def agent_account(admin: Cluster, verbs: list[str]) -> AsyncGenerator[None]:
    """Create the agent's account with all rights in the member, except Services, where it has the given ones."""
    groups = [
        "discovery.k8s.io",
        "coordination.k8s.io",
        "networking.k8s.io",
        "gateway.networking.k8s.io",
        "apiextensions.k8s.io",
    ]
    core = ["nodes", "namespaces", "events", "secrets", "configmaps", "services/status"]
    rules = [
        {"apiGroups": groups, "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": core, "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": verbs},
    ]
    subject = {"kind": "ServiceAccount", "name": "fairlead-agent", "namespace": "fairlead-system"}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "doctor-agent"}
    await admin.apply(
        SERVICE_ACCOUNTS, {"metadata": {"name": "fairlead-agent", "namespace": "fairlead-system"}}, manager="t"
    )
    await admin.apply(CLUSTER_ROLES, {"metadata": {"name": "doctor-agent"}, "rules": rules}, manager="t")
    await admin.apply(
        CLUSTER_ROLE_BINDINGS,
        {"metadata": {"name": "doctor-agent"}, "roleRef": role, "subjects": [subject]},
        manager="t",
    )
    try:
        yield
    finally:
        await admin.delete(CLUSTER_ROLE_BINDINGS, "", "doctor-agent")
        await admin.delete(CLUSTER_ROLES, "", "doctor-agent")
        await admin.delete(SERVICE_ACCOUNTS, "fairlead-system", "fairlead-agent")


@pytest.mark.req("OP-5")
async def test_an_agent_that_may_list_and_not_watch_is_named(admin: Cluster, kubeconfig: Path) -> None:
    async with agent_account(admin, ["get", "list", "patch", "create", "delete"]):

        async def denied() -> list[dict[str, str]]:
            # An authorizer learns of a new binding a moment later.
            named = await findings("--member-kubeconfig", str(kubeconfig))
            return of(named, "watch-denied")

        (finding,) = await until(denied)
    assert finding["object"] == "member: services"
    assert "service account fairlead-system/fairlead-agent may list services and not watch it" in finding["fault"]


@pytest.mark.req("OP-5")
async def test_faults_that_are_planted_in_a_member_are_named(admin: Cluster, kubeconfig: Path) -> None:
    label = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
    await admin.apply(NODES, {"metadata": {"name": "doctor-n1", "labels": label}}, manager="test")
    service = {
        "metadata": {
            "name": "doctor-web",
            "namespace": "default",
            "annotations": {"fairlead.dev/proxy-protocoll": "v2"},
        },
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "x"}},
    }
    await admin.apply(SERVICES, service, manager="test")
    try:
        named = await findings("--member-kubeconfig", str(kubeconfig))
    finally:
        await admin.delete(SERVICES, "default", "doctor-web")
        await admin.delete(NODES, "", "doctor-n1")
    assert [finding["object"] for finding in of(named, "excluded-nodes")] == ["Node/doctor-n1"]
    assert [finding["object"] for finding in of(named, "nodes-address")] == ["Node/doctor-n1"]
    assert "Did you mean" in of(named, "annotations")[0]["fault"]
    assert "Service/default/doctor-web" in {finding["object"] for finding in of(named, "service-pods")}
    assert of(named, "agent-missing")


@pytest.mark.req("OP-5", "OP-6")
async def test_a_hub_that_does_not_answer_is_a_finding_and_a_bundle_says_so(kubeconfig: Path, tmp_path: Path) -> None:
    down = elsewhere(kubeconfig)
    (finding,) = await findings("--kubeconfig", str(down))
    assert finding["check"] == "unreachable"
    bundle = tmp_path / "bundle.tar.gz"
    code, out = await run("collect", "--kubeconfig", str(down), "--output", str(bundle))
    assert (code, "not in it: hub http://127.0.0.1:9" in out) == (0, True), out
    assert "unreachable" in contents(bundle)["doctor.json"]


def elsewhere(kubeconfig: Path) -> Path:
    """Return the kubeconfig of a server that does not answer."""
    text = kubeconfig.read_text()
    line = next(line for line in text.splitlines() if "server:" in line)
    down = kubeconfig.with_name("down")
    down.write_text(text.replace(line, line.partition("server:")[0] + "server: http://127.0.0.1:9"))
    down.chmod(0o600)
    return down


def contents(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        names = [member.name for member in archive.getmembers()]
        return {name.partition("/")[2]: archive.extractfile(name).read().decode() for name in names}  # type: ignore[union-attr]


SECRET = "hunter2-PLANTED-9c1f"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlLXRoYXQtaXMtbG9uZw"


@pytest.mark.req("OP-6")
async def test_no_planted_secret_is_in_a_bundle(
    admin: Cluster, kubeconfig: Path, api: ClusterConfig, tmp_path: Path
) -> None:
    """In Secrets, ConfigMaps, annotations, parameters of classes, Events and logs, and the kubeconfig's own token."""
    planted: list[tuple[Any, dict[str, Any]]] = [
        (
            SECRETS,
            {"metadata": {"name": "doctor-s", "namespace": "fairlead-system"}, "stringData": {"tls.key": SECRET}},
        ),
        (CONFIG_MAPS, {"metadata": {"name": "doctor-c", "namespace": "fairlead-system"}, "data": {"k": SECRET}}),
        (
            LOAD_BALANCER_CLASSES,
            {
                "metadata": {"name": "doctor-driver"},
                "spec": {
                    "provider": "webhook",
                    "parameters": {"url": f"https://u:{SECRET}@d.example.com", "token": SECRET},
                },
            },
        ),
        (
            SERVICES,
            {
                "metadata": {"name": "doctor-web", "namespace": "default", "annotations": {"example.com/db": SECRET}},
                "spec": {"type": "ClusterIP", "ports": [{"port": 80}]},
            },
        ),
        (
            PODS_EVENTS,
            {
                "metadata": {"name": "doctor-e", "namespace": "default"},
                "involvedObject": {"kind": "Service", "namespace": "default", "name": "web"},
                "message": f"the driver refuses: token={SECRET} and {JWT}",
                "reason": "DriverFail",
                "source": {"component": "fairlead-hub"},
            },
        ),
    ]
    log = tmp_path / "hub.log"
    log.write_text(f"calling https://u:{SECRET}@d.example.com\nAuthorization: Bearer {JWT}\nplain line\n")
    bundle = tmp_path / "bundle.tar.gz"
    for resource, obj in planted:
        await admin.apply(resource, obj, manager="test")
    try:
        both = ["--kubeconfig", str(kubeconfig), "--member-kubeconfig", str(kubeconfig)]
        code, out = await run("collect", *both, "--log", str(log), "--output", str(bundle))
    finally:
        for resource, obj in planted:
            await admin.delete(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
    assert code == 0, out
    files = contents(bundle)
    own = (await api.sign_in(None)).headers["Authorization"].removeprefix("Bearer ")
    assert {name for name, text in files.items() for each in (SECRET, JWT, own) if each in text} == set()
    # What is there is there: the objects, the Event and the log, without what was secret in them.
    assert "doctor-driver" in files["hub/loadbalancerclasses.fairlead.dev.yaml"]
    assert "doctor-c" in files["hub/configmaps.yaml"]
    assert "the driver refuses" in files["hub/events.yaml"]
    assert "plain line" in next(text for name, text in files.items() if name.endswith("hub.log"))
    assert json.loads(files["versions.json"])["member"]["server"] == api.server
