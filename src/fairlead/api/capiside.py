"""The fields of a LoadBalancer that serves the machines of a Cluster of Cluster API.

In: the fields of ``LoadBalancer.spec`` and ``status`` that mean something only with ``spec.clusterName``. Out: types.
Never: anything that the hub's engine reads to decide about a backend; that comes to it as a BackendGroup.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fairlead.api.loadbalancerclass import Duration
from fairlead.api.meta import LIST_ATOMIC, Wire
from fairlead.model.health import CheckName, CheckPort, CheckType, Expected, HealthCheckSettings, Threshold
from fairlead.model.in_words import host_port
from fairlead.model.keys import canonical_address

#: Members that a status lists; it counts them all.
MEMBERS_LISTED = 100


class ControlPlaneEndpoint(Wire, frozen=True, gc=False):
    """Where clients reach the cluster; host is an IP address or a DNS name."""

    host: Annotated[str, Meta(max_length=253)] = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0

    @property
    def given(self) -> bool:
        """Return whether there is one."""
        return bool(self.host and self.port)

    @property
    def place(self) -> str:
        """Return where it is, the same for all spellings of an address or name."""
        return host_port(canonical_address(self.host), self.port)

    def __str__(self) -> str:
        return host_port(self.host, self.port)


class TargetKind(Wire, frozen=True, gc=False):
    """The kind of the members."""

    api_group: Annotated[str, Meta(max_length=253)] = "cluster.x-k8s.io"
    kind: Annotated[str, Meta(max_length=63)] = "Machine"

    def __str__(self) -> str:
        return f"{self.kind}.{self.api_group}" if self.api_group else self.kind


class InfrastructureReference(Wire, frozen=True, gc=False):
    """The load balancer of another provider, of a kind of its own, in the same namespace."""

    api_group: Annotated[str, Meta(min_length=1, max_length=253)]
    kind: Annotated[str, Meta(min_length=1, max_length=63)]
    name: Annotated[str, Meta(min_length=1, max_length=253)]


class SelectorTerm(Wire, frozen=True, gc=False):
    """One term of a selector, as Kubernetes has it."""

    key: str
    operator: str
    values: Annotated[list[str] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None


class TargetSelector(Wire, frozen=True, gc=False):
    """Which objects of the kind are members."""

    match_labels: dict[str, str] | None = None
    match_expressions: Annotated[list[SelectorTerm] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None

    @property
    def empty(self) -> bool:
        """Return whether it has no term."""
        return not self.match_labels and not self.match_expressions


class RequestCheck(Wire, frozen=True, gc=False):
    """The health check of the members; what is left out is as the class has it.

    Without a type, it is a request over TLS that is answered 200. caBundle is the authority (PEM) that a member's
    certificate is checked against; empty: it is not checked. host is the name that is asked for. disabled: members are
    checked as the class says. healthy and unhealthy count before healthyThreshold and unhealthyThreshold.
    """

    disabled: bool = False
    type: CheckType = ""
    path: Annotated[str, Meta(max_length=1024)] = "/readyz"
    host: Annotated[str, Meta(max_length=253)] = ""
    ca_bundle: Annotated[str, Meta(max_length=65536)] = ""
    interval: Duration | None = None
    timeout: Duration | None = None
    unhealthy_threshold: Annotated[int, Meta(ge=1, le=10)] | None = None
    healthy_threshold: Annotated[int, Meta(ge=1, le=10)] | None = None
    service: CheckName = ""
    port: CheckPort | None = None
    expected: Expected = ""
    tls: bool | None = None
    healthy: Threshold | None = None
    unhealthy: Threshold | None = None

    @property
    def field_without_type(self) -> str:
        """Return a field that has a meaning only with a type, and is set without one; empty for none."""
        fields = {"service": self.service, "port": self.port, "expected": self.expected, "tls": self.tls is not None}
        return "" if self.type or self.disabled else next((name for name, value in fields.items() if value), "")

    @property
    def settings(self) -> HealthCheckSettings | None:
        """Return what a user asks for with a type; None for the request over TLS."""
        if self.disabled or not self.type:
            return None
        requested = self.type in {"http", "grpc"}
        return HealthCheckSettings(
            type=self.type,
            path=self.path if self.type == "http" else "",
            host=self.host if requested else "",
            service=self.service,
            port=self.port,
            interval=self.interval or "",
            timeout=self.timeout or "",
            healthy=self.healthy or self.healthy_threshold,
            unhealthy=self.unhealthy or self.unhealthy_threshold,
            expected=self.expected,
            tls=self.tls,
        )


class MemberStatus(Wire, frozen=True, gc=False):
    """One member, and how far it has come."""

    name: str
    addresses: Annotated[list[str] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None
    state: str = ""
    reason: str = ""
    since: str | None = None
