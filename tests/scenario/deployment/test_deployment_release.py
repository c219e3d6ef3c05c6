"""The files that `make release` writes for clusterctl, read as clusterctl reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from fairlead.api.kinds import all_crds
from tools.release import write

_VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::=([^}]*))?\}")


def _substituted(text: str, **variables: str) -> str:
    """Replace variables as clusterctl does: a default where there is one, two dollars are one."""
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[2]), text).replace("$$", "$")


def _components(directory: Path, **variables: str) -> list[dict[str, Any]]:
    path = directory / "addon-fairlead" / "v0.2.0" / "components.yaml"
    return [each for each in yaml.safe_load_all(_substituted(path.read_text(), **variables)) if each]


def test_a_local_repository_of_clusterctl_has_both_files(tmp_path: Path) -> None:
    written = write(tmp_path, "v0.2.0")
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "addon-fairlead/v0.2.0/components.yaml",
        "addon-fairlead/v0.2.0/metadata.yaml",
    ]
    metadata = yaml.safe_load(written[1].read_text())
    assert metadata["releaseSeries"] == [{"major": 0, "minor": 2, "contract": "v1beta2"}]


def test_components_are_the_kinds_and_the_controller_in_one_namespace(tmp_path: Path) -> None:
    write(tmp_path, "v0.2.0")
    objects = _components(tmp_path)
    kinds = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    assert [each["spec"] for each in kinds] == [each["spec"] for each in all_crds()]
    # clusterctl refuses components with several namespaces, and takes the only one as where the provider goes.
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"] == ["fairlead-system"]
    namespaced = {each["metadata"].get("namespace") for each in objects} - {None}
    assert namespaced == {"fairlead-system"}


def test_the_image_is_a_variable_with_the_release_as_its_default(tmp_path: Path) -> None:
    write(tmp_path, "v0.2.0")

    def image(**variables: str) -> str:
        (deployment,) = (each for each in _components(tmp_path, **variables) if each["kind"] == "Deployment")
        return deployment["spec"]["template"]["spec"]["containers"][0]["image"]

    assert image() == "registry.example.com/fairlead:0.2.0"
    assert image(FAIRLEAD_IMAGE="mirror.example.com/fairlead:mine") == "mirror.example.com/fairlead:mine"
