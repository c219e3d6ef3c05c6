"""Objects of a hub as ``fairlead status`` reads them, and the status built from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fairlead.api.kubernetes import Lease, LeaseSpec
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.tcploadbalancer import LoadBalancerPort, TCPLoadBalancer, TCPLoadBalancerSpec, TCPLoadBalancerStatus
from fairlead.api.tenant import Tenant, TenantSpec
from fairlead.cli.status_builder import build_status
from fairlead.cli.status_rows import FleetStatus
from fairlead.standalone.proxy_report import ProxyRow, ReplicaReport

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def lease(age_s: float, *, holder: str = "hub-1", namespace: str = "tenant-east") -> Lease:
    renewed = (NOW - timedelta(seconds=age_s)).isoformat()
    spec = LeaseSpec(holder_identity=holder, renew_time=renewed, lease_duration_seconds=15)
    return Lease(metadata=ObjectMeta(name="l", namespace=namespace), spec=spec)


def load_balancer(*conditions: WireCondition, generation: int = 1, observed: int = 1) -> TCPLoadBalancer:
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
    reports = {"hub-1": ReplicaReport("2030-01-01T00:00:00Z", [ProxyRow("local/here", "local", state)])}
    leases = {} if agent_age_s is None else {"tenant-east": lease(agent_age_s)}
    hub = None if hub_age_s is None else lease(hub_age_s)
    return build_status([EAST], [lb or load_balancer(*GOOD)], leases, hub, reports, now=NOW)
