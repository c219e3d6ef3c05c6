"""The objects that the suite needs: the CRDs of Gateway API, and the GatewayClass that the suite names.

Run inside the cluster's network namespace: ``python -m conformance.manifests KUBECONFIG DIRECTORY-OF-CRDS``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import yaml

from fairlead.api.meta import KubeObject, Resource
from fairlead.api.names import GATEWAY_CONTROLLER
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds

GATEWAY_CLASS = "gateway-conformance"
_MANAGER = "conformance"
_CLASSES = Resource("gateway.networking.k8s.io", "v1", "GatewayClass", "gatewayclasses", False, KubeObject)
_PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


def read_manifests(directory: Path) -> list[dict[str, Any]]:
    """Return every object in the files of one channel."""
    texts = [path.read_text() for path in sorted(directory.glob("gateway.networking.*.yaml"))]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


async def install(kubeconfig: Path, directory: Path) -> None:
    """Apply everything; wait until the kinds are served."""
    documents = read_manifests(directory)
    crds = [document for document in documents if document["kind"] == "CustomResourceDefinition"]
    async with Cluster.from_kubeconfig(kubeconfig, name="the cluster") as cluster:
        if problems := await install_crds(cluster, crds, _MANAGER):
            sys.exit("\n".join(problems))
        for document in documents:
            if document["kind"] in _PLURALS:
                group, _, version = str(document["apiVersion"]).rpartition("/")
                kind = document["kind"]
                resource = Resource(group, version, kind, _PLURALS[kind], False, KubeObject)
                await cluster.apply(resource, document, manager=_MANAGER)
        body = {"metadata": {"name": GATEWAY_CLASS}, "spec": {"controllerName": GATEWAY_CONTROLLER}}
        await cluster.apply(_CLASSES, body, manager=_MANAGER)


if __name__ == "__main__":
    asyncio.run(install(Path(sys.argv[1]), Path(sys.argv[2])))
