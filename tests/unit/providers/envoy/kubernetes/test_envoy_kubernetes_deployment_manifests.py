"""The manifests that run the proxies of a group."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings, group_manifests


def manifest(kind: str, settings: DeploymentSettings) -> Any:
    (made,) = [each for each in group_manifests("a", settings) if each["kind"] == kind]
    return made


@pytest.mark.req("E-33")
def test_replicas_drain_time_and_connection_limit_can_be_set() -> None:
    settings = DeploymentSettings(replicas=5, drain_s=60, max_connections=1234)
    spec = manifest("Deployment", settings)["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 5
    assert manifest("Deployment", DeploymentSettings())["spec"]["replicas"] == DeploymentSettings().replicas
    assert pod["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 60}}}
    assert pod["terminationGracePeriodSeconds"] > 60, "the pod may live until its connections have ended"
    (monitor,) = msgspec.json.decode(manifest("ConfigMap", settings)["data"]["bootstrap.json"])["overload_manager"][
        "resource_monitors"
    ]
    assert monitor["typed_config"]["max_active_downstream_connections"] == 1234


def test_pods_are_locked_down() -> None:
    deployment = manifest("Deployment", DeploymentSettings())
    text = msgspec.json.encode(deployment).decode()
    for wanted in (
        '"readOnlyRootFilesystem":true', '"runAsNonRoot":true', '"drop":["ALL"]',
        '"automountServiceAccountToken":false',
        '"allowPrivilegeEscalation":false', '"RuntimeDefault"', "topologySpreadConstraints", "podAntiAffinity",
    ):  # fmt: skip
        assert wanted in text
