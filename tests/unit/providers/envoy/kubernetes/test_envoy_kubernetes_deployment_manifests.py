"""The manifests that run the proxies of a group."""

from __future__ import annotations

import msgspec

from fairlead.providers.envoy.kubernetes.deployment_manifests import DeploymentSettings, group_manifests


def test_pods_are_locked_down() -> None:
    (deployment,) = [each for each in group_manifests("a", DeploymentSettings()) if each["kind"] == "Deployment"]
    text = msgspec.json.encode(deployment).decode()
    for wanted in (
        '"readOnlyRootFilesystem":true', '"runAsNonRoot":true', '"drop":["ALL"]',
        '"automountServiceAccountToken":false',
        '"allowPrivilegeEscalation":false', '"RuntimeDefault"', "topologySpreadConstraints", "podAntiAffinity",
    ):  # fmt: skip
        assert wanted in text
