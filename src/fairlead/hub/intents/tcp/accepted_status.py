"""What must be on record before it is used: the finalizer, the allocation, the accepted spec.

Intent first: when the hub dies after this write and before the provider's answer, the next one finds the same
address, the same ports and the same last good configuration. It is applied by a manager of its own, so that nobody
who writes conditions from an older view of the object can take it away.
"""

from __future__ import annotations

import msgspec

from fairlead.api.meta import JSONObject
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB, MANAGER_LEDGER, MANAGER_RECORD
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, Allocation, TCPLoadBalancer, TCPLoadBalancerStatus
from fairlead.kube.cluster import Cluster
from fairlead.translate.view import TCPView, Translation


class AcceptedStatus:
    """Writes the record of one load balancer when it is not what it has to be."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def record(self, view: TCPView, built: Translation, allocation: Allocation) -> None:
        """Make the record whole; one write for each part that differs, none when nothing does."""
        load_balancer = view.load_balancer
        if built.desired is None:
            return
        if FINALIZER_CLEANUP not in (load_balancer.metadata.finalizers or ()):
            await self._add_finalizer(load_balancer)
        if not built.serving_last_accepted:
            accepted = load_balancer.spec
            await self._apply(
                load_balancer,
                TCPLoadBalancerStatus(allocation=allocation, accepted=accepted, provider=built.provider),
            )

    async def record_move(self, view: TCPView) -> None:
        """Record what the next provider is given; who serves, and as what, stays as it is."""
        status = view.load_balancer.status
        allocation = status.allocation if view.allocation == Allocation() else view.allocation
        record = TCPLoadBalancerStatus(allocation=allocation, accepted=status.accepted, provider=status.provider)
        await self._apply(view.load_balancer, record)

    async def forget_frontend(self, load_balancer: TCPLoadBalancer, provider: str) -> None:
        """Take one provider's frontend off the record: it has let go of all that it had."""
        status, meta = load_balancer.status, load_balancer.metadata
        gone: JSONObject = {}
        if provider in status.frontends:
            gone["frontends"] = {provider: None}
        if status.frontend is not None and status.frontend.provider == provider:
            gone["frontend"] = None
        patch: JSONObject = {"metadata": {"resourceVersion": meta.resource_version}, "status": gone}
        await self._cluster.merge_patch(
            TCP_LOAD_BALANCERS, meta.namespace, meta.name, patch, subresource="status", manager=MANAGER_LEDGER
        )

    async def _apply(self, load_balancer: TCPLoadBalancer, record: TCPLoadBalancerStatus) -> None:
        if not _same_record(load_balancer.status, record):
            await _apply_status(self._cluster, load_balancer, msgspec.to_builtins(record), MANAGER_RECORD)

    async def _add_finalizer(self, load_balancer: TCPLoadBalancer) -> None:
        meta = load_balancer.metadata
        patch: JSONObject = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "finalizers": [*(meta.finalizers or ()), FINALIZER_CLEANUP],
            }
        }
        await self._cluster.merge_patch(TCP_LOAD_BALANCERS, meta.namespace, meta.name, patch, manager=MANAGER_HUB)


def _same_record(one: TCPLoadBalancerStatus, other: TCPLoadBalancerStatus) -> bool:
    return (one.allocation, one.accepted, one.provider) == (other.allocation, other.accepted, other.provider)


async def write_status(
    cluster: Cluster, load_balancer: TCPLoadBalancer, status: TCPLoadBalancerStatus
) -> TCPLoadBalancer:
    """Apply the words of the status; what is left out is gone, but never the record, which has its own manager."""
    words = msgspec.structs.replace(
        status, allocation=Allocation(), accepted=None, frontend=None, frontends={}, provider=""
    )
    return await _apply_status(cluster, load_balancer, msgspec.to_builtins(words), MANAGER_HUB)


async def _apply_status(
    cluster: Cluster, load_balancer: TCPLoadBalancer, status: JSONObject, manager: str
) -> TCPLoadBalancer:
    meta = load_balancer.metadata
    written: TCPLoadBalancer = await cluster.apply(
        TCP_LOAD_BALANCERS,
        {
            # The uid keeps a status from landing on a successor of the same name.
            "metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
            "status": status,
        },
        manager=manager,
        subresource="status",
    )
    return written
