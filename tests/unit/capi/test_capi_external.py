"""Infrastructure that is managed externally: when nothing is asked of the API at all."""

from __future__ import annotations

from typing import Any, cast

from capi_builders import cluster
from msgspec.structs import replace

from fairlead.api.capiside import ControlPlaneEndpoint
from fairlead.api.clusterapi import CapiReference
from fairlead.capi.reconcile import ExternallyManaged


async def test_a_cluster_without_infrastructure_asks_nothing():
    nothing: Any = None
    assert await ExternallyManaged(nothing).provision(cluster(), ControlPlaneEndpoint("192.0.2.1", 6443)) == ""


async def test_an_api_with_other_answers_is_reported():
    class Garbled:
        name = "management"

        async def raw(self, _method: str, _path: str) -> bytes:
            return b"<html>a proxy in between</html>"

    known = cluster()
    ref = CapiReference(api_group="infra.example", kind="MetalCluster", name="blue")
    owner = replace(known, spec=replace(known.spec, infrastructure_ref=ref))
    problem = await ExternallyManaged(cast("Any", Garbled())).provision(owner, ControlPlaneEndpoint("192.0.2.1", 6443))
    assert problem.startswith("spec.infrastructureRef: The discovery of management at /apis/infra.example cannot be")
