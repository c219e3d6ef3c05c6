"""The last accepted version of a LoadBalancer and its groups, read and written.

In: a LoadBalancer's status, a group's, and the ledger. Out: the spec and parameters that were last accepted; a record
of what is accepted now, written before anything uses it, so that the next leader neither validates it again nor takes
it for new. Never: None for a group that has backends on record, whichever version wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fairlead.api.backendgroup import BACKEND_GROUPS, AcceptedBackends, BackendGroup
from fairlead.api.backendrecord import BackendRecord
from fairlead.api.intent import Allocation
from fairlead.api.loadbalancer import LOAD_BALANCERS, AcceptedFrontend, LoadBalancer, LoadBalancerObjectStatus
from fairlead.api.meta import JSONObject
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB, MANAGER_RECORD
from fairlead.kube.cluster import Cluster
from fairlead.kube.finalizers import hold
from fairlead.kube.leadership import check_leads
from fairlead.kube.status import write_status
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey


class LastAccepted:
    """Reads and writes what was accepted."""

    def __init__(self, cluster: Cluster, leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._leading = leading
        #: What we wrote, and onto which version of the group: until our own cache shows another one.
        self._written: dict[tuple[str, LoadBalancerKey], tuple[str, AcceptedBackends]] = {}

    def forget(self) -> None:
        """Drop what we wrote: another replica may lead now."""
        self._written.clear()

    def drop(self, key: LoadBalancerKey) -> None:
        """Drop what we wrote about a load balancer that is gone."""
        for place in [place for place in self._written if place[1] == key]:
            del self._written[place]

    @staticmethod
    def is_living(load_balancer: LoadBalancer) -> bool:
        """Return whether it was accepted before: the finalizer is the first thing written."""
        return load_balancer.held_by(FINALIZER_CLEANUP)

    @staticmethod
    def spec_of(load_balancer: LoadBalancer) -> FrontendSpec | None:
        """Return what its provider was last asked for, None when it never was."""
        entry = next(iter(load_balancer.status.recorded), None)
        return entry.spec(LoadBalancerKey(LOAD_BALANCERS.kind, *load_balancer.key)) if entry is not None else None

    def parameters_of(
        self, group: BackendGroup, load_balancer: LoadBalancer, key: LoadBalancerKey, records: Iterable[BackendRecord]
    ) -> Mapping[str, str] | None:
        """Return the parameters with which ``load_balancer`` accepted ``group``, None when it never did."""
        accepted = self._accepted(group, key)
        if accepted is not None and accepted.uid == load_balancer.metadata.uid:
            return accepted.parameters or {}
        owner = f"BackendGroup/{group.metadata.namespace}/{group.metadata.name}"
        mine = (record for record in records if owner in (record.spec.owners or ()) and not record.deleting)
        record = next(mine, None)
        return record.spec.parameters or {} if record is not None else None

    async def hold(self, load_balancer: LoadBalancer) -> None:
        """Put our finalizer on a load balancer."""
        await hold(self._cluster, LOAD_BALANCERS, load_balancer, FINALIZER_CLEANUP, manager=MANAGER_HUB)

    async def accept(
        self, load_balancer: LoadBalancer, allocation: Allocation, accepted: AcceptedFrontend | None
    ) -> None:
        """Record what proxies of the hub serve, and where, before anything uses it; no write when that is on record."""
        status = load_balancer.status
        old = LoadBalancerObjectStatus(allocation=status.allocation, accepted=status.accepted)
        new = LoadBalancerObjectStatus(allocation=allocation, accepted=accepted)
        check_leads(self._leading, f"{LOAD_BALANCERS.kind} {load_balancer.key}")
        await write_status(self._cluster, LOAD_BALANCERS, load_balancer, old, new, manager=MANAGER_RECORD)

    async def record(
        self, group: BackendGroup, load_balancer: LoadBalancer, key: LoadBalancerKey, parameters: Mapping[str, str]
    ) -> None:
        """Record that ``load_balancer`` accepts ``group`` with ``parameters``; no write when that is on record."""
        meta = group.metadata
        wanted = AcceptedBackends(load_balancer.metadata.uid, dict(parameters))
        known = self._accepted(group, key)
        names = {name if "/" in name else f"{meta.namespace}/{name}" for name in group.spec.load_balancers}
        removed: JSONObject = {name: None for name in group.status.accepted or () if name not in names}
        if known == wanted and not removed:
            return
        # A merge patch adds to maps; what is not there any more must be named.
        value = {
            "uid": wanted.uid,
            "parameters": {**dict.fromkeys(known.parameters or () if known is not None else ()), **parameters},
        }
        patch = {
            "metadata": {"uid": meta.uid},
            "status": {"accepted": {**removed, f"{key.namespace}/{key.name}": value}},
        }
        check_leads(self._leading, f"{BACKEND_GROUPS.kind} {group.key}")
        await self._cluster.merge_patch(
            BACKEND_GROUPS, meta.namespace, meta.name, patch, subresource="status", manager=MANAGER_RECORD
        )
        self._written[meta.uid, key] = (meta.resource_version, wanted)

    def _accepted(self, group: BackendGroup, key: LoadBalancerKey) -> AcceptedBackends | None:
        """Return what is on record, or what we wrote and the cache does not show yet."""
        place = (group.metadata.uid, key)
        version, written = self._written.get(place, ("", None))
        if written is not None and version == group.metadata.resource_version:
            return written
        self._written.pop(place, None)
        return (group.status.accepted or {}).get(f"{key.namespace}/{key.name}")
