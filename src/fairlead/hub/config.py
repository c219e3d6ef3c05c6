"""The settings of a hub, and its requirements of a provider whose data plane it serves itself."""

from __future__ import annotations

from typing import Protocol

import msgspec

from fairlead.model.contract import Provider
from fairlead.translate.addresses import AddressRanges


class RunningProvider(Provider, Protocol):
    """A provider whose data plane the hub serves itself: started, published and closed by the hub."""

    async def start(self) -> None:
        """Get ready; nothing is published yet."""
        ...

    def publish(self) -> None:
        """Send the data plane what has been put in so far, and every change from now on."""
        ...

    async def close(self) -> None:
        """Disconnect from the data plane, which goes on with what it has."""
        ...


class HubConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a hub. ``identity`` names this replica in the lease; the same after a restart on one machine.

    ``region`` empty: load balancers of all regions that have no hub of their own. ``reclaim_lease``: a lock keeps every
    other process from that identity, so a restarted hub leads again at once. ``loopback_targets``: load balancers are
    on this machine only, so their backends may be, too. ``bound_in_tenants``: what it may write in a Tenant's namespace
    is granted by a role that it binds there itself. ``tenant_ports``: how many ports a Tenant may have that does not
    say; 0: any number. ``domain``: each member's objects get names in <tenant>.<domain>; empty: none.
    """

    identity: str
    address_pool: AddressRanges | None = None
    loopback_targets: bool = False
    tenant_ports: int = 0
    domain: str = ""
    bound_in_tenants: bool = False
    region: str = ""
    workers: int = 8
    lease_s: float = 15.0
    reclaim_lease: bool = False
