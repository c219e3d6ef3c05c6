"""The input and the result of one decision about a load balancer of a Cluster: frozen values.

In: decoded objects, taken from the caches at one moment. Never: a reference to a cache or a client.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.capiside import Endpoint, MemberStatus, TargetKind
from fairlead.api.clusterapi import Cluster, InfraLoadBalancer, TargetObject
from fairlead.api.loadbalancer import LoadBalancer, LoadBalancerListener
from fairlead.api.names import ANNOTATION_AUTHORITY, ANNOTATION_TIED_IN, ANNOTATION_TIED_TO, short_hash
from fairlead.capi.endpoints import Verdict
from fairlead.capi.hooks import Marks
from fairlead.capi.selection import Selection

DEFAULT_KIND = TargetKind()


class Probe(msgspec.Struct, frozen=True):
    """Whether an endpoint was reached, and why not; ``resolved``: its name has addresses."""

    reached: bool
    resolved: bool = True
    message: str = ""


class Plane(msgspec.Struct, frozen=True):
    """The state of the control plane of a Cluster without a provider for it; ``problem``: why it is not ready."""

    initialized: bool
    problem: str = ""


class View(msgspec.Struct, frozen=True):
    """One LoadBalancer with ``spec.clusterName``.

    ``objects`` are those of the kind of its members, in its namespace. ``groups`` are its BackendGroups by name.
    ``incomplete``: why the objects are not all known, else empty. ``claimed_by``: the older load balancer that claims
    the endpoint of the same Cluster, else empty. ``taken_by``: a load balancer of another Cluster with the same
    endpoint, as namespace/name. ``authority``: the certificate (PEM) of the Cluster's authority.
    """

    load_balancer: LoadBalancer
    cluster: Cluster | None
    objects: tuple[TargetObject, ...] = ()
    groups: Mapping[str, BackendGroup] = {}
    incomplete: str = ""
    claimed_by: str = ""
    taken_by: str = ""
    authority: str = ""
    probe: Probe | None = None
    plane: Plane | None = None
    #: The identity of the management cluster, where the hub is another cluster; empty: the same, or unknown.
    management: str = ""
    #: What spec.infrastructureRef names, and why it is not known.
    foreign: InfraLoadBalancer | None = None
    foreign_problem: str = ""

    @property
    def unmanaged(self) -> bool:
        """Return whether the Cluster has no control-plane provider, and this is the LoadBalancer of its endpoint."""
        without = self.cluster is not None and self.cluster.spec.control_plane_ref is None
        return without and not self.load_balancer.spec.additional

    @property
    def follows_authority(self) -> bool:
        """Return whether the bundle of its health check is that of the Cluster, and not one that a user gave."""
        check = self.load_balancer.spec.health_check
        if self.load_balancer.spec.additional or (check is not None and check.disabled):
            return False
        if check is None or not check.ca_bundle or check.ca_bundle == self.authority:
            return True
        return self.load_balancer.annotation(ANNOTATION_AUTHORITY) == short_hash(check.ca_bundle)

    @property
    def foreign_name(self) -> str:
        """Return the name in spec.infrastructureRef, empty without one."""
        ref = self.load_balancer.spec.infrastructure_ref
        return ref.name if ref is not None else ""

    @property
    def name(self) -> str:
        """Return the name of the load balancer."""
        return self.load_balancer.metadata.name

    @property
    def cluster_is_gone(self) -> bool:
        """Return whether the Cluster that owned it is known to be deleted."""
        tied, tied_in = map(self.load_balancer.annotation, (ANNOTATION_TIED_TO, ANNOTATION_TIED_IN))
        if not self.management or tied_in != self.management:
            return False  # of what is in another management cluster nothing is known here
        cluster_gone = self.cluster is None or self.cluster.metadata.uid != tied
        return bool(tied) and cluster_gone and not self.incomplete

    @property
    def kind(self) -> TargetKind:
        """Return the kind of its members."""
        return self.load_balancer.spec.target_kind or DEFAULT_KIND

    @property
    def listeners(self) -> dict[str, LoadBalancerListener]:
        """Return its listeners by the name of the BackendGroup that has their backends."""
        listeners = self.load_balancer.spec.listeners
        if len(listeners) == 1:
            return {self.name: listeners[0]}
        return {f"{self.name}-{each.protocol.lower()}-{each.port}": each for each in listeners}


class GroupPlan(msgspec.Struct, frozen=True):
    """The backends of a BackendGroup, and those of them that get no new connections.

    ``members``: the member of each backend, also of one that is not asked for any more and not deregistered yet.
    """

    members: Mapping[str, str]
    static: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()


class MarkPlan(msgspec.Struct, frozen=True):
    """The marks that one object should have."""

    target: TargetObject
    before: Marks
    after: Marks


class Plan(msgspec.Struct, frozen=True):
    """All that is to be written, in this order: marks that hold, groups, endpoint, marks that are released, status.

    ``patch`` changes the spec of the LoadBalancer. ``held_up``: nothing is written, and why.
    """

    selection: Selection
    verdict: Verdict
    members: tuple[MemberStatus, ...] = ()
    holds: tuple[MarkPlan, ...] = ()
    groups: Mapping[str, GroupPlan] = {}
    patch: Mapping[str, object] = {}
    releases: tuple[MarkPlan, ...] = ()
    #: For what another provider serves: the endpoint that it is given when it has none.
    to_provider: Endpoint | None = None
    held_up: str = ""
    #: Members that are kept although nothing is known of them any more.
    kept: tuple[str, ...] = ()
