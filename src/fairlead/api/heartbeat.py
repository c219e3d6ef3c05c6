"""The heartbeat Lease of an agent: its content, and when the API server stored it.

In: a Lease with its managedFields, which the API server stamps with its own clock. Out: times that no clock of a
member has touched, and by how much the agent's clock differs. Never: an age from ``renewTime``, which is the agent's.
"""

from __future__ import annotations

from datetime import datetime

from fairlead.api.kubernetes import LEASES, Lease
from fairlead.api.meta import ObjectMeta, Resource, Wire
from fairlead.api.names import GROUP
from fairlead.api.times import parsed_time

ANNOTATION_REGION = f"{GROUP}/region"
ANNOTATION_VERSION = f"{GROUP}/version"
ANNOTATION_LAST_SYNC = f"{GROUP}/last-sync"
ANNOTATION_MEMBER_UID = f"{GROUP}/member-uid"
#: Written by the hub: the tenant is being removed, and its agent is to inform the member's Services.
ANNOTATION_LEAVING = f"{GROUP}/leaving"
#: Written by the agent: Services of the member no longer show an address of the hub.
ANNOTATION_SERVICES_INFORMED = f"{GROUP}/services-informed"


class Stamp(Wire, frozen=True, gc=False):
    """One entry of managedFields: when this manager's fields changed last."""

    time: str = ""


class StampedMeta(ObjectMeta, frozen=True, gc=False):
    """Metadata with the API server's own record of who changed what, and when."""

    managed_fields: list[Stamp] | None = None


class StampedLease(Lease, frozen=True, gc=False):
    """A Lease that knows when the API server stored its last change."""

    metadata: StampedMeta = StampedMeta()

    @property
    def stored_at(self) -> datetime | None:
        """Return when it was changed last by the API server's clock, to the second; None where that is not said."""
        times = [parsed_time(entry.time) for entry in self.metadata.managed_fields or ()]
        return max((time for time in times if time is not None), default=None)

    @property
    def clock_ahead_s(self) -> float:
        """Return by how many seconds its holder's clock was ahead of the API server's, 0 where that is unknown."""
        stored, renewed = self.stored_at, parsed_time(self.spec.renew_time)
        return (renewed - stored).total_seconds() if stored is not None and renewed is not None else 0.0


#: Leases with their managedFields.
STAMPED_LEASES = Resource(LEASES.group, LEASES.version, LEASES.kind, LEASES.plural, LEASES.namespaced, StampedLease)


def age_s(lease: StampedLease, now: datetime) -> float | None:
    """Return the seconds since ``lease`` was stored, by ``now`` of the same server; None if unknown."""
    stored = lease.stored_at
    return None if stored is None else max(0.0, (now - stored).total_seconds())
