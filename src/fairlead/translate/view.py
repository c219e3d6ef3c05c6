"""All that one decision may depend on, taken at one moment."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.tcploadbalancer import Allocation, TCPLoadBalancer
from fairlead.api.tenant import Tenant
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.contract import Capabilities
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey


class NodeAddresses(msgspec.Struct, frozen=True):
    """The nodes of one member that may take traffic; ``stale`` says why they are older than the truth."""

    ready: frozenset[str] = frozenset()
    stale: str = ""


class MemberState(msgspec.Struct, frozen=True, gc=False):
    """How the member's agent is. ``message`` is empty while it is heard from."""

    message: str = ""
    #: The tenant's drainWhenLost has passed: its targets get no new connections.
    drained: bool = False


class TCPView(msgspec.Struct, frozen=True):
    """The view of one TCPLoadBalancer.

    ``providers`` maps the provider names that this hub runs to what they can do, ``provider_problems`` those that
    could not be started to the reason; ``slices`` are those labelled
    with the load balancer, in any order. ``accepted_class`` is the class of the version that was last accepted, which
    is served on while the present one is refused. ``over_quota`` and ``port_conflict`` are sentences about its
    standing among others, empty when all is well. ``loopback_targets`` allows 127.0.0.0/8 where everything is
    one machine.
    """

    key: LoadBalancerKey
    load_balancer: TCPLoadBalancer
    tenant: Tenant | None
    load_balancer_class: LoadBalancerClass | None
    providers: Mapping[str, Capabilities]
    slices: tuple[EndpointSlice, ...]
    nodes: NodeAddresses
    allocation: Allocation
    allocation_problem: Condition | None = None
    accepted_class: LoadBalancerClass | None = None
    member: MemberState = MemberState()
    over_quota: str = ""
    stale: str = ""
    loopback_targets: bool = False
    provider_problems: Mapping[str, str] = {}


class Translation(msgspec.Struct, frozen=True):
    """What a view comes to.

    ``desired`` None means that there is nothing to program (yet): not that something is to be removed.
    ``serving_last_accepted`` says that ``desired`` is from an earlier, valid version of the object.
    """

    desired: DesiredLoadBalancer | None
    conditions: tuple[Condition, ...]
    targets: str = ""
    provider: str = ""
    serving_last_accepted: bool = False

    def condition(self, reason: ConditionReason) -> Condition | None:
        """Return the condition that has ``reason``, if any."""
        return next((one for one in self.conditions if one.reason is reason), None)
