"""The health checks that Fairlead ships for Argo CD, by the tests in Argo CD's own format."""

from __future__ import annotations

from typing import Any, cast

import pytest
import yaml

from fairlead.api.kinds import all_crds
from tests.argocd import OURS, health

SCRIPT = (OURS / "health.lua").read_text()
CASES = cast("list[dict[str, Any]]", yaml.safe_load((OURS / "health_test.yaml").read_text())["tests"])


class Plain(yaml.SafeLoader):
    """YAML whose times stay text, as in JSON."""


Plain.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if not resolver[0].endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@pytest.mark.req("F-25")
@pytest.mark.parametrize("case", CASES, ids=[case["inputPath"] for case in CASES])
def test_health_of_the_example(case: dict[str, Any]) -> None:
    obj = yaml.load((OURS / case["inputPath"]).read_text(), Plain)
    assert health(SCRIPT, obj) == (case["healthStatus"]["status"], case["healthStatus"]["message"])


def test_every_example_has_a_case() -> None:
    assert {case["inputPath"] for case in CASES} == {f"testdata/{path.name}" for path in OURS.glob("testdata/*")}


def test_kinds_without_conditions_are_the_ones_of_the_script() -> None:
    for crd in all_crds():
        (version,) = crd["spec"]["versions"]
        status = version["schema"]["openAPIV3Schema"]["properties"].get("status", {"properties": {}})
        kind = crd["spec"]["names"]["kind"]
        new = {"kind": kind, "metadata": {"generation": 1}, "status": {"observedGeneration": -1}}
        expected = "Progressing" if "conditions" in status["properties"] else "Healthy"
        assert health(SCRIPT, new)[0] == expected, kind


def test_the_config_map_has_the_script() -> None:
    config = yaml.safe_load((OURS.parents[1] / "argocd-cm.yaml").read_text())
    checks = yaml.safe_load(config["data"]["resource.customizations"])
    assert checks == {"fairlead.dev/*": {"health.lua": SCRIPT}}
