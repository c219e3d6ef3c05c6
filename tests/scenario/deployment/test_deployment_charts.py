"""deploy/charts: the charts make what the manifests have, refuse what they do not know, and hub and agent work so.

Most of it needs Helm: `make helm` builds the version that is tested into .venv, with Go. Sentences of others differ.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployment_run import work
from deployment_world import World

from fairlead.api.meta import JSONObject
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import FairleadError, NotFound
from tools.charts import leaves

ROOT = Path(__file__).parents[3]
CHARTS = ROOT / "deploy" / "charts"
HELM = shutil.which("helm", path=Path(sys.executable).parent)
needs_helm = pytest.mark.skipif(HELM is None, reason="Helm is not installed: make helm builds it, where Go is")
NAMES = pytest.mark.parametrize("name", ["hub", "agent"])
#: Everything that is off by default.
ALL_ON = {
    "serviceMonitor.enabled": "true",
    "prometheusRule.enabled": "true",
    "dashboard.enabled": "true",
    "protection.enabled": "true",
    "anotherController.enabled": "true",
    "externalDNS.enabled": "true",
    "externalDNSAnnotations.enabled": "true",
    "clusterProxies.enabled": "true",
    "proxyNodes.enabled": "true",
}
#: Kinds that are served only where the Prometheus operator is.
OF_OTHERS = {"ServiceMonitor", "PrometheusRule"}


def schema(name: str) -> dict[str, Any]:
    return json.loads((CHARTS / f"fairlead-{name}" / "values.schema.json").read_text())


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False, timeout=120)


def render(name: str, *, namespace: str = SYSTEM_NAMESPACE, **values: str) -> subprocess.CompletedProcess[str]:
    given = {"tenant": "NAME", **values} if name == "agent" else values
    chosen = [f"--set-json={path}={value}" for path, value in given.items() if path != "tenant"]
    chosen += [f"--set-string=tenant={given['tenant']}"] if given.get("tenant") else []
    return helm(
        "template", "any", str(CHARTS / f"fairlead-{name}"), "--namespace", namespace, "--kube-version=1.36.0", *chosen
    )


def rendered(name: str, **values: str) -> list[JSONObject]:
    done = render(name, **values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def by_name(objects: list[JSONObject]) -> dict[tuple[str, str], JSONObject]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


@NAMES
@pytest.mark.req("OP-1")
def test_templates_use_every_value_of_the_schema_and_no_other(name: str) -> None:
    known = {path for path, _ in leaves(schema(name))} - {"global"}
    text = "".join(file.read_text() for file in sorted((CHARTS / f"fairlead-{name}" / "templates").iterdir()))
    used = set(re.findall(r"\.Values\.([\w.]+)", text))
    used = {path for path in used if path != "image"} | {f"image.{leaf}" for leaf in ("repository", "tag", "digest")}
    assert used == known


@NAMES
@pytest.mark.req("OP-1")
def test_every_value_has_a_description_and_no_object_takes_unknown_ones(name: str) -> None:
    def objects(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            node,
            *(each for child in node["properties"].values() if "properties" in child for each in objects(child)),
        ]

    assert [node for node in objects(schema(name)) if node.get("additionalProperties") is not False] == []
    assert [path for path, node in leaves(schema(name)) if not node["description"].endswith(".")] == []


@NAMES
@pytest.mark.req("OP-1")
@needs_helm
def test_charts_are_clean(name: str) -> None:
    given = ["--set", "tenant=east"] if name == "agent" else []
    done = helm("lint", "--strict", "--namespace", SYSTEM_NAMESPACE, str(CHARTS / f"fairlead-{name}"), *given)
    assert done.returncode == 0, done.stdout + done.stderr


@NAMES
@pytest.mark.req("OP-1")
@needs_helm
def test_a_chart_without_values_makes_what_the_manifests_have(name: str) -> None:
    manifest = (ROOT / "deploy" / "kubernetes" / f"{name}.yaml").read_text()
    if name == "hub":
        manifest += "---\n" + (ROOT / "deploy" / "kubernetes" / "limits.yaml").read_text()
    there = by_name([obj for obj in yaml.safe_load_all(manifest) if obj and obj["kind"] != "Namespace"])
    made = by_name([obj for obj in rendered(name) if obj["kind"] != "CustomResourceDefinition"])
    assert made == there


@pytest.mark.req("OP-1", "P-1")
@needs_helm
def test_proxy_nodes_of_the_chart_are_those_of_the_manifest() -> None:
    manifest = (ROOT / "deploy" / "kubernetes" / "proxy-nodes.yaml").read_text()
    there = by_name(list(yaml.safe_load_all(manifest)))
    image = '"registry.example.com/fairlead"'
    on = by_name(rendered("hub", **{"proxyNodes.enabled": "true", "image.repository": image}))
    assert {key: on.get(key) for key in there} == there
    assert ("ConfigMap", "fairlead-hubs") not in on
    hubs = {"hub-0": json.dumps({"address": "192.0.2.1:7443", "fingerprint": "sha256:00"})}
    values = {"proxyNodes.hubs": json.dumps(hubs), "image.tag": '"1.2.3"', "replicaCount": "0"}
    made = by_name(rendered("hub", **{"proxyNodes.enabled": "true"}, **values))
    assert json.loads(made["ConfigMap", "fairlead-hubs"]["data"]["hubs.json"]) == hubs
    (container,) = made["DaemonSet", "fairlead-proxy"]["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":1.2.3")


@pytest.mark.req("OP-1")
@needs_helm
def test_kinds_are_upgraded_with_the_chart_and_stay_when_it_goes() -> None:
    from fairlead.api.kinds import all_crds

    made = {obj["metadata"]["name"]: obj for obj in rendered("hub") if obj["kind"] == "CustomResourceDefinition"}
    assert {name: obj["spec"] for name, obj in made.items()} == {
        crd["metadata"]["name"]: crd["spec"] for crd in all_crds()
    }
    assert {obj["metadata"]["annotations"]["helm.sh/resource-policy"] for obj in made.values()} == {"keep"}
    assert "CustomResourceDefinition" not in {obj["kind"] for obj in rendered("hub", **{"crds.enabled": "false"})}


@pytest.mark.req("OP-1")
@needs_helm
def test_nothing_of_it_can_block_a_cluster() -> None:
    made = rendered("hub", **ALL_ON)
    assert not [obj for obj in made if obj["kind"].endswith("WebhookConfiguration")]
    policies = [obj for obj in made if obj["kind"] == "ValidatingAdmissionPolicy"]
    assert {obj["metadata"]["name"] for obj in policies} == {"hub.fairlead.dev", "do-not-delete.fairlead.dev"}
    for policy in policies:
        groups = {group for rule in policy["spec"]["matchConstraints"]["resourceRules"] for group in rule["apiGroups"]}
        assert groups == {"fairlead.dev"} or policy["spec"]["matchConditions"], "of ours, or of one account"


@pytest.mark.req("OP-1")
@needs_helm
@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("hub", {"replicaCout": "3"}, "replicaCout"),
        ("hub", {"proxy.replica": "3"}, "replica"),
        ("hub", {"replicaCount": '"many"'}, "replicaCount"),
        ("hub", {"networkPolicy.enabled": '"no"'}, "networkPolicy"),
        ("agent", {"target": '"Pods"'}, "'Node', 'Pod'"),
        ("agent", {"tenant": ""}, "tenant is empty; name the member as the hub knows it"),
        ("hub", {"addressPool": '"10.0.0.0/33"'}, "addressPool"),
        ("hub", {"addressPool": '"10.0.0.0/8,"'}, "addressPool"),
        ("hub", {"podLabels": '{"app.kubernetes.io/name": "other"}'}, "app.kubernetes.io/name"),
        ("hub", {"namespace": "default"}, "--namespace fairlead-system"),
        ("agent", {"namespace": "default"}, "--namespace fairlead-system"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(name: str, values: dict[str, str], sentence: str) -> None:
    done = render(name, **values)
    assert done.returncode != 0
    assert sentence in done.stderr


@pytest.mark.req("OP-1", "P-35")
@needs_helm
def test_egress_of_the_rendered_chart_is_that_of_the_manifest() -> None:
    there = by_name(list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "egress.yaml").read_text())))
    [daemon] = [obj for (kind, _), obj in there.items() if kind == "DaemonSet"]
    image = daemon["spec"]["template"]["spec"]["containers"][0]["image"]
    on = by_name(rendered("agent", **{"egress.enabled": "true", "egress.image": json.dumps(image)}))
    assert {key: on.get(key) for key in there} == there
    assert by_name(rendered("agent")).keys().isdisjoint(there)


@pytest.mark.req("OP-1", "P-35")
def test_egress_of_the_chart_has_the_rights_of_the_manifest_and_needs_an_image() -> None:
    templates = CHARTS / "fairlead-agent" / "templates"
    manifest = (ROOT / "deploy" / "kubernetes" / "egress.yaml").read_text()
    made = "".join((templates / f"{name}.yaml").read_text() for name in ("egress-rbac", "egress"))
    for document in manifest.split("\n---\n"):
        lines = [line for line in document.splitlines() if line.strip() and "image:" not in line and line[0] != "#"]
        assert [line for line in lines if line not in made] == []
    assert 'image: {{ required "egress.image is empty' in made
    assert "add: [NET_ADMIN]" in made


#: A value that is not the default, for those that have no obvious one.
OTHER = {
    "image.tag": '"1.2.3"',
    "image.digest": json.dumps("sha256:" + "0" * 64),
    "image.pullPolicy": '"Always"',
    "image.pullSecrets": '[{"name": "s"}]',
    "addressPool": '"192.0.2.0/24"',
    "logLevel": '"debug"',
    "extraArgs": '["--region=eu"]',
    "tolerations": '[{"operator": "Exists"}]',
    "topologySpreadConstraints": '[{"maxSkew": 2}]',
    "serviceMonitor.interval": '"5s"',
    "target": '"Pod"',
    "cloudLoadBalancer": '"present"',
    "proxyNodes.tolerations": '[{"operator": "Exists"}]',
}
#: Values that count only when something else is asked for.
TOGETHER = {
    "readinessGates.inject": {"readinessGates.enabled": "true"},
    "serviceMonitor.interval": {"serviceMonitor.enabled": "true"},
    "serviceMonitor.labels": {"serviceMonitor.enabled": "true"},
    "prometheusRule.labels": {"prometheusRule.enabled": "true"},
    "dashboard.labels": {"dashboard.enabled": "true"},
    "proxyNodes.hubs": {"proxyNodes.enabled": "true"},
    "proxyNodes.tolerations": {"proxyNodes.enabled": "true"},
    "egress.enabled": {"egress.image": '"registry.example.com/fairlead-egress:1"'},
    "egress.image": {"egress.enabled": "true", "egress.image": '"registry.example.com/fairlead-egress:1"'},
}


def another(path: str, node: dict[str, Any]) -> str:
    by_type = {
        "boolean": lambda: json.dumps(not node["default"]),
        "integer": lambda: json.dumps(node["default"] + 1),
        "string": lambda: '"other"',
        "object": lambda: '{"a.example": "b"}',
    }
    return OTHER.get(path) or by_type[node["type"]]()


@NAMES
@pytest.mark.req("OP-1")
@needs_helm
def test_each_value_changes_something(name: str) -> None:
    without_effect: list[str] = []
    for path, node in leaves(schema(name)):
        if path == "global":
            continue
        together = TOGETHER.get(path, {})
        before, after = rendered(name, **together), rendered(name, **(together | {path: another(path, node)}))
        if before == after:
            without_effect.append(path)
    assert without_effect == []


@pytest.mark.req("OP-1")
@needs_helm
def test_alerts_and_dashboard_have_one_home() -> None:
    made = by_name(rendered("hub", **ALL_ON))
    alerts = yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text())
    assert made["PrometheusRule", "fairlead"]["spec"] == alerts
    board = made["ConfigMap", "fairlead-dashboard"]["data"]["fairlead.json"]
    assert json.loads(board) == json.loads((ROOT / "deploy" / "monitoring" / "dashboard.json").read_text())
    monitor, service = made["ServiceMonitor", "fairlead-hub"], made["Service", "fairlead-hub-pages"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert (
        not monitor["spec"]["selector"]["matchLabels"].items()
        <= made["Service", "fairlead-hub"]["metadata"]["labels"].items()
    )


@pytest.mark.req("OP-1", "KI-8")
@needs_helm
async def test_a_real_api_takes_all_of_it_and_hub_and_agent_work_so(world: World, authority: bytes) -> None:
    """The embedded API has no admission policies; with a real one every object is made and deleted again."""
    of_hub, of_agent = rendered("hub", **ALL_ON), rendered("agent")
    made: list[str] = []
    try:
        if authority:
            for obj in [*of_hub, *of_agent]:
                if obj["kind"] not in OF_OTHERS:
                    await apply(world, obj, made)
        await work(world, authority, of_hub=of_hub, of_agent=of_agent)
    finally:
        for path in reversed(made):
            if "customresourcedefinitions" not in path:
                with contextlib.suppress(NotFound):
                    await world.admin.raw("DELETE", path, params={"propagationPolicy": "Background"})


async def apply(world: World, obj: JSONObject, made: list[str]) -> None:
    """Apply an object as ``kubectl apply --server-side`` does, and add its path to ``made``."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    served = json.loads(await world.admin.raw("GET", base))["resources"]
    (resource,) = [each for each in served if each["kind"] == obj["kind"] and "/" not in each["name"]]
    place = f"/namespaces/{obj['metadata']['namespace']}" if resource["namespaced"] else ""
    path = f"{base}{place}/{resource['name']}/{obj['metadata']['name']}"
    try:
        await world.admin.raw(
            "PATCH",
            path,
            params={"fieldManager": "helm", "force": "true", "fieldValidation": "Strict"},
            body=json.dumps(obj).encode(),
            content_type="application/apply-patch+yaml",
        )
    except FairleadError as error:
        raise AssertionError(f"{path}: {error.sentence}") from error
    made.append(path)
