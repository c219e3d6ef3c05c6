"""The load balancer of another provider, as far as the contract says: any kind with these fields will do.

In: what the provider of that kind has written. Out: types. Never: a field that only one provider knows.
"""

from __future__ import annotations

from fairlead.api.capiside import Endpoint
from fairlead.api.meta import KubeObject, Wire, WireCondition


class InfraSpec(Wire, frozen=True, gc=False):
    """The endpoint at which its clients reach it: set by its owner, or by its provider."""

    endpoint: Endpoint = Endpoint()


class InfraStatus(Wire, frozen=True, gc=False):
    """The status that its provider reports."""

    targets: int = 0
    active_targets: int = 0
    conditions: list[WireCondition] | None = None


class InfraLoadBalancer(KubeObject, frozen=True, gc=False):
    """A load balancer that another provider serves."""

    spec: InfraSpec = InfraSpec()
    status: InfraStatus = InfraStatus()
