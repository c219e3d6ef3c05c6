"""The kinds of Cluster API for tests: definitions generated from the types that Fairlead reads, in both versions.

They have what a controller depends on: names, versions, status subresources. They are not the official definitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from fairlead.api.clusterapi import CLUSTER_API_VERSIONS, CLUSTERS, MACHINES
from fairlead.api.crd import Crd, build_crd
from fairlead.api.meta import JSONObject, Resource


def cluster_api_crds(versions: Sequence[str] = CLUSTER_API_VERSIONS) -> list[JSONObject]:
    """Return the CRDs of Cluster and Machine, served in ``versions``; the first one is the storage version."""
    return [_crd(kind, versions) for kind in (CLUSTERS, MACHINES)]


def member_crd(resource: Resource[Any]) -> JSONObject:
    """Return the CRD of another kind whose objects can be members."""
    return _crd(resource, (resource.version,))


def _crd(kind: Resource[Any], versions: Sequence[str]) -> JSONObject:
    crd = build_crd(Crd(kind, (), ()))
    (only,) = crd["spec"]["versions"]
    # Tests write the status of machines in place of its controllers.
    only["subresources"] = {"status": {}}
    crd["spec"]["versions"] = [
        {**deepcopy(only), "name": version, "storage": version == versions[0]} for version in versions
    ]
    return crd
