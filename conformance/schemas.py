"""The definitions of Gateway API as the data that ships with Fairlead.

``python -m conformance.schemas`` writes ``gateway.json`` from the module that conformance/go pins: the experimental
channel, version v1 of each kind and the one that is stored, without descriptions. Out: one definition a line.

Source: https://github.com/kubernetes-sigs/gateway-api/tree/main/config/crd (Apache-2.0).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from conformance.build import source_of
from conformance.manifests import read_manifests
from conformance.paths import ROOT

OUT = ROOT / "src" / "podless" / "schema" / "gateway.json"
_GROUP = "gateway.networking.k8s.io"
_VERSION = "v1"
_KEPT_ANNOTATIONS = ("api-approved.kubernetes.io", "gateway.networking.k8s.io/bundle-version",
                     "gateway.networking.k8s.io/channel")  # fmt: skip


def without_descriptions(node: Any, *, names: bool = False) -> Any:
    """Return a schema without its descriptions; ``names``: the keys of ``node`` are names of properties."""
    if isinstance(node, list):
        return [without_descriptions(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    return {
        key: without_descriptions(value, names=key == "properties" and not names)
        for key, value in cast("dict[str, Any]", node).items()
        if names or key != "description"
    }


def shortened(crd: dict[str, Any]) -> dict[str, Any]:
    """Return a definition with the versions that are used, and without what a check of objects does not need."""
    versions = [
        {**each, "schema": without_descriptions(each["schema"])}
        for each in crd["spec"]["versions"]
        if each["name"] == _VERSION or each["storage"]
    ]
    metadata = crd["metadata"]
    annotations = {name: metadata["annotations"][name] for name in _KEPT_ANNOTATIONS}
    return {
        "apiVersion": crd["apiVersion"],
        "kind": crd["kind"],
        "metadata": {"name": metadata["name"], "annotations": annotations},
        "spec": {**crd["spec"], "versions": versions},
    }


def read_definitions(directory: Path) -> list[dict[str, Any]]:
    """Return the shortened definitions of the group in a directory of CRDs, by name."""
    definitions = [
        shortened(each)
        for each in read_manifests(directory)
        if each["kind"] == "CustomResourceDefinition" and each["spec"]["group"] == _GROUP
    ]
    return sorted(definitions, key=lambda each: str(each["metadata"]["name"]))


def main() -> None:
    """Write the file."""
    directory = source_of("sigs.k8s.io/gateway-api") / "config" / "crd" / "experimental"
    lines = [json.dumps(each, separators=(",", ":")) for each in read_definitions(directory)]
    OUT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
