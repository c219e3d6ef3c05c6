"""Externally managed infrastructure: writes endpoint and ``provisioned`` where the Cluster's provider does not.

    annotation cluster.x-k8s.io/managed-by: fairlead.dev    its provider makes no load balancer, and Fairlead writes
    spec.controlPlaneEndpoint                               the endpoint, when it has none
    status                                                  provisioned, once the endpoint is served
    any other value, or none                                nothing is written

In: a Cluster whose endpoint is settled and served. Out: at most two writes, once. Source: the contract of externally
managed infrastructure, https://cluster-api.sigs.k8s.io/developer/providers/contracts/infra-cluster
"""

from __future__ import annotations

import structlog

from fairlead.api.capiside import Endpoint, TargetKind
from fairlead.api.clusterapi import ANNOTATION_MANAGED_BY, Cluster
from fairlead.api.meta import KubeObject, ObjectKey, Resource, Wire
from fairlead.api.names import GROUP, MANAGER_CAPI
from fairlead.errors import FairleadError, NotFound, NotServed
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.discovery import find_kind

log = structlog.get_logger(__name__)


class _Spec(Wire, frozen=True, gc=False):
    control_plane_endpoint: Endpoint = Endpoint()


class _Initialization(Wire, frozen=True, gc=False):
    provisioned: bool = False


class _Status(Wire, frozen=True, gc=False):
    ready: bool = False
    initialization: _Initialization = _Initialization()


class _InfraCluster(KubeObject, frozen=True, gc=False):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class ExternallyManaged:
    """Writes endpoint and ``provisioned`` in place of the infrastructure provider; remembers finished objects."""

    def __init__(self, cluster: ApiCluster) -> None:
        self._cluster = cluster
        self._kinds: dict[TargetKind, Resource[_InfraCluster]] = {}
        self._looked: dict[ObjectKey, str] = {}

    async def provision(self, cluster: Cluster, endpoint: Endpoint) -> str:
        """Write the missing fields; return why that is not possible, empty when all are set."""
        ref = cluster.spec.infrastructure_ref
        if ref is None or self._looked.get(cluster.key) == cluster.metadata.resource_version:
            return ""
        try:
            await self._write(cluster, TargetKind(ref.group, ref.kind), ref.name, endpoint)
        except (NotFound, NotServed):
            # It is not there (yet), or not in that version any more: both are looked up anew when the Cluster changes.
            self._kinds.pop(TargetKind(ref.group, ref.kind), None)
            return ""
        except FairleadError as error:
            return f"spec.infrastructureRef: {error.sentence}"
        self._looked[cluster.key] = cluster.metadata.resource_version
        return ""

    async def _write(self, cluster: Cluster, kind: TargetKind, name: str, endpoint: Endpoint) -> None:
        resource = self._kinds.get(kind)
        if resource is None:
            resource = await find_kind(self._cluster, kind.api_group, kind.kind, _InfraCluster)
            if resource is None:
                raise NotServed(f"{self._cluster.name} does not serve {kind}")
            self._kinds[kind] = resource
        place = (cluster.metadata.namespace, name)
        obj = await self._cluster.get(resource, *place)
        if obj.annotation(ANNOTATION_MANAGED_BY) != GROUP:
            return
        if not obj.spec.control_plane_endpoint.given:
            spec = {"controlPlaneEndpoint": {"host": endpoint.host, "port": endpoint.port}}
            await self._cluster.merge_patch(resource, *place, {"spec": spec}, manager=MANAGER_CAPI)
        if not (obj.status.ready or obj.status.initialization.provisioned):
            # v1beta1 reads the one, v1beta2 the other; the definition of the kind keeps those that it has.
            status = {"ready": True, "initialization": {"provisioned": True}}
            await self._cluster.merge_patch(
                resource, *place, {"status": status}, subresource="status", manager=MANAGER_CAPI
            )
            log.info("infrastructure provisioned", cluster=str(cluster.key), endpoint=str(endpoint))
