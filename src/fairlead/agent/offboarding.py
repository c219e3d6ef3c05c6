"""The end of a tenant that is removed at the hub: its agent exports nothing more and notifies the Services.

    the hub marks the agent's Lease ──► nothing is exported; a Warning on each Service that has a load balancer
    a load balancer is gone at the hub ──► its address leaves the Service
    no Service shows an address of ours ──► the Lease says so, and the hub ends the tenant

In: the Lease as the hub answers each heartbeat, the caches. Out: whether the tenant leaves, and whether all is done.
Never: takes an address away while its load balancer may still answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from fairlead.agent.events import ServiceEvent, warning_event
from fairlead.agent.sources import MemberService, Sources
from fairlead.api.kubernetes import Lease
from fairlead.api.names import ANNOTATION_ADDRESS
from fairlead.api.tenant import ANNOTATION_LEAVING

K = TypeVar("K")

REMOVED = "TenantRemoved"


class Offboarding:
    """Whether the tenant leaves; ``begin`` is called once when it does."""

    def __init__(self, *, tenant: str, sources: Sources, begin: Callable[[], None]) -> None:
        self._tenant = tenant
        self._sources = sources
        self._begin = begin
        self.leaving = False
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent").bind(tenant=tenant)

    @property
    def problem(self) -> str:
        """Return what a person should know, empty while the tenant stays."""
        if not self.leaving:
            return ""
        return f"Tenant {self._tenant} is being removed at the hub: nothing is exported any more. Stop this agent."

    @property
    def done(self) -> bool:
        """Return whether no Service shows an address of ours any more."""
        return self.leaving and self._sources.synced and not any(map(self._shows, self._sources.services.values()))

    def heard(self, lease: Lease) -> None:
        """Apply what the hub has written into the Lease."""
        if lease.annotation(ANNOTATION_LEAVING) and not self.leaving:
            self.leaving = True
            self._log.warning("leaving", sentence=self.problem)
            self._begin()

    def unless_leaving(
        self, reconcile: Callable[[K], Awaitable[float | None]]
    ) -> Callable[[K], Awaitable[float | None]]:
        """Return ``reconcile``, which does nothing once the tenant leaves."""

        async def guarded(key: K) -> float | None:
            return None if self.leaving else await reconcile(key)

        return guarded

    @staticmethod
    def _shows(service: MemberService) -> bool:
        by_status = service.status_is_ours and bool(service.status.load_balancer.ingress)
        return by_status or ANNOTATION_ADDRESS in (service.metadata.annotations or {})


def removed_event(addresses: str) -> ServiceEvent:
    """Return what the author of a Service is informed of; ``addresses`` are those that it shows, empty for none."""
    consequence = (
        f"{addresses} stops answering once its connections have ended" if addresses else "it has no load balancer"
    )
    return warning_event(
        REMOVED,
        f"This cluster is being removed from its hub: {consequence}. To keep this Service reachable, give it another "
        "load balancer (spec.loadBalancerClass), or ask the administrator of the hub.",
    )
