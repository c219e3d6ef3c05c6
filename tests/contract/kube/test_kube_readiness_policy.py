"""The admission policies that give pods their readiness gate, at a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api.kubernetes import NAMESPACES, PODS, SERVICES
from fairlead.api.meta import JSONObject
from fairlead.api.names import CONDITION_SERVING, LABEL_READINESS_GATE
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer, tls_context
from fairlead_demo.worlds.processes import wait_until
from tests.contract.podless.real_api import Real, real

__all__ = ["real"]

pytestmark = pytest.mark.real_api
MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "readiness-gates.yaml"
ENABLED = {LABEL_READINESS_GATE: "enabled"}


async def make_pod(cluster: Cluster, namespace: str, name: str, **meta: Any) -> JSONObject:
    """Create a pod without a node, and return it as it is stored."""
    spec = {"containers": [{"name": "web", "image": "web"}], **meta.pop("spec", {})}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}
    return json.loads(await cluster.raw("POST", PODS.path(namespace), body=json.dumps(body).encode()))


def is_gated(pod: JSONObject) -> bool:
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates", ())]
    labelled = pod["metadata"].get("labels", {}).get(LABEL_READINESS_GATE) == "enabled"
    assert gates.count(CONDITION_SERVING) <= 1
    return CONDITION_SERVING in gates and labelled


@pytest.mark.req("F-2")
async def test_policies_inject_the_gate_where_it_is_enabled(real: Real) -> None:
    config = ClusterConfig(server=real.url, sign_in=bearer(real.token, tls=tls_context(authority=real.authority)))
    async with Cluster(config, name="real") as cluster:
        for namespace, labels in (("gated", ENABLED), ("plain", {}), ("fairlead-system", ENABLED)):
            body = {"metadata": {"name": namespace, "labels": labels}}
            await cluster.apply(NAMESPACES, body, manager="user")
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            await cluster.raw(
                "PATCH", path, params={"fieldManager": "user"}, body=json.dumps(account).encode(),
                content_type="application/apply-patch+yaml",
            )  # fmt: skip
        for obj in yaml.safe_load_all(MANIFEST.read_text()):
            group, _, version = str(obj["apiVersion"]).rpartition("/")
            plural = {"MutatingAdmissionPolicy": "mutatingadmissionpolicies"}.get(
                obj["kind"], f"{obj['kind']}s".lower()
            )
            await cluster.raw(
                "PATCH",
                f"/apis/{group}/{version}/{plural}/{obj['metadata']['name']}",
                params={"fieldManager": "user", "fieldValidation": "Strict"},
                body=json.dumps(obj).encode(),
                content_type="application/apply-patch+yaml",
            )
        number = 0

        async def in_effect() -> bool:
            nonlocal number
            number += 1
            return is_gated(await make_pod(cluster, "gated", f"probe-{number}"))

        await wait_until(in_effect, "the policy takes effect")
        other = {"readinessGates": [{"conditionType": "example.com/other"}]}
        kept = await make_pod(cluster, "gated", "other", labels={"app": "web"}, spec=other)
        assert is_gated(kept)
        assert (len(kept["spec"]["readinessGates"]), kept["metadata"]["labels"]["app"]) == (2, "web")
        assert not is_gated(await make_pod(cluster, "gated", "out", labels={LABEL_READINESS_GATE: "disabled"}))
        assert not is_gated(await make_pod(cluster, "fairlead-system", "agent"))

        for name, labels in (("labelled", ENABLED), ("also", ENABLED), ("not", {})):
            selector = {"app": "not" if name == "not" else "web"}
            spec = {"selector": selector, "ports": [{"port": 80}]}
            service = {"metadata": {"name": name, "namespace": "plain", "labels": labels}, "spec": spec}
            await cluster.apply(SERVICES, service, manager="user")

        async def by_service() -> bool:
            nonlocal number
            number += 1
            return is_gated(await make_pod(cluster, "plain", f"probe-{number}", labels={"app": "web"}))

        await wait_until(by_service, "the policy for Services takes effect")
        assert not is_gated(await make_pod(cluster, "plain", "not", labels={"app": "not"}))
        assert not is_gated(await make_pod(cluster, "plain", "bare"))
