"""The kinds and webhooks of a manager of Cluster API, as they are installed where it is a process and not a Pod.

In: the directory of its manifests, where its webhooks listen, and their authority (PEM). Out: objects to apply. The
services that the manifests name are replaced by addresses, and no cert-manager is needed.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

#: Which versions of its kinds follow which contract.
_CONTRACTS = {"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}


def kinds(config: Path, url: str, authority: bytes) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions, whose versions are converted by the manager at ``url``."""
    files = sorted((config / "crd" / "bases").glob("*.yaml"))
    return [_converted(crd, url, authority) for file in files for crd in _documents(file)]


def webhooks(config: Path, name: str, url: str, authority: bytes) -> list[dict[str, Any]]:
    """Return the configurations of its webhooks, which the manager ``name`` answers at ``url``."""
    configurations = _documents(config / "webhook" / "manifests.yaml")
    for configuration in configurations:
        configuration["metadata"]["name"] = f"{name}-{configuration['kind'].lower()}"
        for each in configuration["webhooks"]:
            path = each["clientConfig"]["service"]["path"]
            each["clientConfig"] = {"url": url + path, "caBundle": _bundle(authority)}
    return configurations


def _converted(crd: dict[str, Any], url: str, authority: bytes) -> dict[str, Any]:
    crd["metadata"].setdefault("labels", {}).update(_CONTRACTS)
    if len(crd["spec"]["versions"]) > 1:
        client = {"url": f"{url}/convert", "caBundle": _bundle(authority)}
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": client}
        crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return crd


def _documents(file: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader) if each]


def _bundle(authority: bytes) -> str:
    return base64.b64encode(authority).decode()
