"""Objects of a hub as ``fairlead status`` reads them, and the status built from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fairlead.api.httploadbalancer import HTTPLoadBalancer, HTTPLoadBalancerStatus
from fairlead.api.kubernetes import LeaseSpec
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.tcploadbalancer import LoadBalancerPort, TCPLoadBalancer, TCPLoadBalancerSpec, TCPLoadBalancerStatus
from fairlead.api.tenant import Stamp, StampedLease, StampedMeta, Tenant, TenantSpec
from fairlead.status.fleet import FleetObjects, FleetStatus, ProxyRow, ReplicaReport, build_status

#: The moment at which every status of a test is read.
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def lease(age_s: float, *, holder: str = "hub-1", namespace: str = "tenant-east") -> StampedLease:
    """Return a Lease that was renewed ``age_s`` seconds ago; its holder's clock is a year ahead."""
    stamp = Stamp(time=(NOW - timedelta(seconds=age_s)).isoformat())
    # The holder's clock is a year ahead: nothing is judged by it.
    renewed = (NOW + timedelta(days=365)).isoformat()
    spec = LeaseSpec(holder_identity=holder, renew_time=renewed, lease_duration_seconds=15)
    return StampedLease(metadata=StampedMeta(name="l", namespace=namespace, managed_fields=[stamp]), spec=spec)


def load_balancer(*conditions: WireCondition, generation: int = 1, observed: int = 1) -> TCPLoadBalancer:
    """Return the load balancer of a Service of the member east."""
    return TCPLoadBalancer(
        metadata=ObjectMeta(
            name="default.web",
            namespace="tenant-east",
            generation=generation,
            annotations={"fairlead.dev/origin": "east/default/web"},
        ),
        spec=TCPLoadBalancerSpec(ports=[LoadBalancerPort(port=80)]),
        status=TCPLoadBalancerStatus(
            address="127.200.0.1", targets="2/3", observed_generation=observed, conditions=list(conditions)
        ),
    )


GOOD = (
    WireCondition(type="Accepted", status="True", reason="Accepted"),
    WireCondition(type="Programmed", status="True", reason="Programmed"),
)


EAST = Tenant(metadata=ObjectMeta(name="east"), spec=TenantSpec(region="eu"))


def status(
    *,
    lb: TCPLoadBalancer | None = None,
    agent_age_s: float | None = 3.0,
    hub_age_s: float | None = 2.0,
    state: str = "SYNCED",
) -> FleetStatus:
    """Return the status of one member with one load balancer and one proxy."""
    reports = {"hub-1": ReplicaReport("2030-01-01T00:00:00Z", [ProxyRow("local/here", "local", state)])}
    leases = {} if agent_age_s is None else {"tenant-east": lease(agent_age_s)}
    hub = None if hub_age_s is None else lease(hub_age_s)
    return fleet_of(
        tenants=[EAST], load_balancers=[lb or load_balancer(*GOOD)], leases=leases, hub_lease=hub, reports=reports
    )


def fleet_of(**read: Any) -> FleetStatus:
    """Return the status of the objects in ``read``; the hub's Lease is valid unless another one is passed."""
    objects: dict[str, Any] = {"hub_lease": lease(1.0), **read}
    return build_status(FleetObjects(**objects), now=NOW)


def condition(kind: str, value: str, reason: str = "Why", message: str = "the message") -> WireCondition:
    """Return a condition."""
    return WireCondition(type=kind, status=value, reason=reason, message=message)


def many(count: int, broken: int) -> FleetStatus:
    """Return the status of ``count`` load balancers; the first ``broken`` have drifted."""

    def service(number: int) -> TCPLoadBalancer:
        bad = condition("Drifted", "True", "Drifted", "1 was changed")
        lb = load_balancer(*GOOD, *([bad] if number < broken else []))
        metadata = msgspec.structs.replace(
            lb.metadata,
            name=f"shop.s{number}",
            labels={"app": "web" if number % 2 else "api"},
            annotations={"fairlead.dev/origin": f"east/shop/s{number}"},
        )
        return msgspec.structs.replace(lb, metadata=metadata)

    return fleet_of(load_balancers=[service(number) for number in range(count)])


def http_load_balancer(*conditions: WireCondition, routes: int = 2, targets: str = "2/3") -> HTTPLoadBalancer:
    """Return the HTTPLoadBalancer of an IngressClass of the member east."""
    return HTTPLoadBalancer(
        metadata=ObjectMeta(
            name="ingressclass.edge",
            namespace="tenant-east",
            generation=1,
            annotations={"fairlead.dev/origin": "east/edge"},
        ),
        status=HTTPLoadBalancerStatus(
            address="127.200.0.2", targets=targets, routes=routes, observed_generation=1, conditions=list(conditions)
        ),
    )
