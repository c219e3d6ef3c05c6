"""Common parts of all our objects in the cluster: identity, names, labels and a hash of themselves.

In: the name of a group, or a manifest as plain JSON values. Out: values, the same for the same input. No input or
output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import cast

import msgspec

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY
from fairlead.model.keys import LoadBalancerKey

Manifest = Mapping[str, object]

GROUP_LABEL = "fairlead.dev/envoy-group"
HASH_ANNOTATION = "fairlead.dev/applied-hash"

#: What no namespace is named like: the load balancers of Clusters have proxies of their own.
_OF_CLUSTERS = "clusters."

_NOT_A_LABEL_CHARACTER = re.compile(r"[^a-z0-9-]+")


class ObjectRef(msgspec.Struct, frozen=True):
    """The identity of a Kubernetes object."""

    api_version: str
    kind: str
    namespace: str
    name: str


def ref_of(manifest: Manifest) -> ObjectRef:
    """Return the identity of a manifest."""
    metadata = cast("Mapping[str, str]", manifest["metadata"])
    return ObjectRef(str(manifest["apiVersion"]), str(manifest["kind"]), metadata["namespace"], metadata["name"])


def dns_label(prefix: str, name: str, *, unique: str) -> str:
    """Make a DNS-1035 label of at most 63 characters, readable by ``name`` and unique by a hash of ``unique``."""
    tail = blake2b(unique.encode(), digest_size=5).hexdigest()
    readable = _NOT_A_LABEL_CHARACTER.sub("-", name.lower()).strip("-")
    return f"{prefix}-{readable[: 63 - len(prefix) - len(tail) - 2].strip('-')}-{tail}".replace("--", "-")


def group_of(key: LoadBalancerKey, own: str = "") -> str:
    """Return the group that serves a load balancer: that of Clusters, or its ``own``, by default its namespace."""
    return f"{_OF_CLUSTERS}{key.namespace}" if key.kind == LOAD_BALANCERS.kind else own or key.namespace


def is_of_clusters(group: str) -> bool:
    """Return whether a group serves load balancers of Clusters: their namespaces are none that the hub writes in."""
    return group.startswith(_OF_CLUSTERS)


def group_name(group: str) -> str:
    """Name the objects of a group."""
    return dns_label("envoy", group, unique=group)


def group_labels(group: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a group; the second one selects its pods."""
    return {
        LABEL_MANAGED_BY: MANAGED_BY,
        "app.kubernetes.io/name": "fairlead-envoy",
        GROUP_LABEL: group_name(group),
    }


def hashed(manifest: Manifest) -> Manifest:
    """Add an annotation with the hash of the rest, so that a writer sees without a diff that nothing has changed."""
    digest = blake2b(msgspec.json.encode(manifest, order="deterministic"), digest_size=8).hexdigest()
    metadata = cast("Mapping[str, object]", manifest["metadata"])
    annotations = {**_annotations(manifest), HASH_ANNOTATION: digest}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def hash_of(manifest: Manifest) -> str:
    """Return the hash that ``hashed`` has added."""
    return _annotations(manifest)[HASH_ANNOTATION]


def _annotations(manifest: Manifest) -> Mapping[str, str]:
    return cast("Mapping[str, Mapping[str, str]]", manifest["metadata"]).get("annotations", {})
