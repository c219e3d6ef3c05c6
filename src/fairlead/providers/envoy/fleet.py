"""The protocol of fleets, which run the Envoys of a hub.

``fleet_local`` (one Envoy process on this machine) and ``kubernetes.fleet`` (a Deployment for each group) implement it.
A fleet never knows what the listeners look like, and the control plane never knows how a proxy is run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured


class Fleet(Protocol):
    """The proxies of all groups, and the way by which traffic reaches them."""

    @property
    def allocation(self) -> AllocationKind:
        """Return what the hub allocates for each load balancer."""
        ...

    @property
    def on_hub_machine(self) -> bool:
        """Return whether the proxies run on the machine of the hub, and reach its loopback addresses."""
        ...

    @property
    def reuse_port(self) -> bool:
        """Return whether TCP listeners may use SO_REUSEPORT: only where no other program can bind their ports."""
        ...

    @property
    def connections_per_cluster(self) -> int:
        """Return how many connections a port, or an HTTP backend, may have at its targets in each proxy."""
        ...

    def group_of(self, spec: FrontendSpec) -> str:
        """Name the node group whose proxies serve this load balancer."""
        ...

    def bind_addresses(self, spec: FrontendSpec) -> tuple[str, ...]:
        """Return the addresses that the proxy binds, one of each family at the most; none while they are unknown."""
        ...

    def sees_clients(self, spec: FrontendSpec) -> bool:
        """Return whether the proxy sees the client's own address, and so can check source ranges."""
        ...

    def refuse(self, *, group: str, listeners: int) -> str:
        """Return why a group cannot have so many listeners; empty when it can."""
        ...

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` when ``addresses`` of a load balancer would answer differently."""
        ...

    async def start(self) -> None:
        """Bring up what must run before anything else; proxies that run already are adopted."""
        ...

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Make traffic for this load balancer reach a proxy; returns ``addresses``."""
        ...

    def addresses(self, key: LoadBalancerKey) -> Ensured:
        """Return where users reach this load balancer, as known now."""
        ...

    async def delete(self, key: LoadBalancerKey) -> None:
        """Undo ``ensure``; not found is success."""
        ...

    async def sweep(self) -> None:
        """Delete what was left by load balancers that are gone: only when all that is wanted is known."""
        ...

    async def close(self) -> None:
        """Release the proxies; they go on serving."""
        ...

    async def stop(self) -> None:
        """End the proxies: for tests, demos and explicit requests only."""
        ...
