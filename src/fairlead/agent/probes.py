"""The readiness probes of the pods of a Service, as health checks of its targets.

    all pods have the same HTTP, TCP or gRPC probe     its path, port, service and scheme
    an exec probe, none, or pods that differ           connect: a check that suits every pod
    the pods cannot be read                            connect, and a sentence for an Event

In: Services with annotation fairlead.dev/follow-readiness-probe, and their endpoints. Out: settings. Pods are listed by
the selector of such a Service once it has an endpoint that was not there before: the agent reads pods of no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.agent.identity import ServiceKey
from fairlead.api.kubernetes import EndpointSlice, Service
from fairlead.api.meta import KubeObject, Resource, Wire
from fairlead.api.names import ANNOTATION_FOLLOW_READINESS_PROBE
from fairlead.errors import Forbidden
from fairlead.kube.cluster import Cluster
from fairlead.model.health import HealthCheckSettings, problem_of

RIGHTS = "deploy/kubernetes/readiness-probes.yaml"
#: Suits every pod that listens.
CONNECT = HealthCheckSettings(type="tcp")

Port = int | str


class HeaderOfProbe(Wire, frozen=True, gc=False):
    """One header of an HTTP probe."""

    name: str = ""
    value: str = ""


class HttpProbe(Wire, frozen=True, gc=False):
    """A request of the kubelet."""

    port: Port = 0
    path: str = "/"
    scheme: str = "HTTP"
    http_headers: list[HeaderOfProbe] | None = None


class TcpProbe(Wire, frozen=True, gc=False):
    """A connection of the kubelet."""

    port: Port = 0


class GrpcProbe(Wire, frozen=True, gc=False):
    """A call of grpc.health.v1.Health."""

    port: Annotated[int, Meta(ge=0)] = 0
    service: str | None = None


class ReadinessProbe(Wire, frozen=True, gc=False):
    """A probe; one of exec has none of these."""

    http_get: HttpProbe | None = None
    tcp_socket: TcpProbe | None = None
    grpc: GrpcProbe | None = None


class ProbedPort(Wire, frozen=True, gc=False):
    """A port of a container."""

    container_port: int = 0
    name: str = ""


class ProbedContainer(Wire, frozen=True, gc=False):
    """A container, as far as it is probed."""

    ports: list[ProbedPort] | None = None
    readiness_probe: ReadinessProbe | None = None


class ProbedPodSpec(Wire, frozen=True, gc=False):
    """The containers of a pod."""

    containers: list[ProbedContainer] | None = None


class ProbedPod(KubeObject, frozen=True, gc=False):
    """A pod with its probes."""

    spec: ProbedPodSpec = ProbedPodSpec()


PROBED_PODS = Resource("", "v1", "Pod", "pods", True, ProbedPod)


def follows(service: Service) -> bool:
    """Return whether the health checks of a Service follow the readiness probe of its pods."""
    return service.annotation(ANNOTATION_FOLLOW_READINESS_PROBE).strip().lower() == "true"


def check_of_pods(pods: Iterable[ProbedPod], service: Service) -> HealthCheckSettings:
    """Return the check that all of ``pods`` pass when they are ready."""
    checks = {_check_of_pod(pod, service) for pod in pods if not pod.deleting}
    return checks.pop() if len(checks) == 1 else CONNECT


def _check_of_pod(pod: ProbedPod, service: Service) -> HealthCheckSettings:
    containers = pod.spec.containers or []
    targets = {port.target_port or port.port for port in service.spec.ports or () if port.protocol == "TCP"}
    serving = [container for container in containers if _ports(container) & targets] or containers
    probed = [container for container in serving if container.readiness_probe is not None]
    if not probed or (probe := probed[0].readiness_probe) is None:
        return CONNECT
    named = {port.name: port.container_port for port in probed[0].ports or () if port.name}

    def number_of(port: Port) -> int:
        return port if isinstance(port, int) else int(port) if port.isdigit() else named.get(port, 0)

    numbers = set(map(number_of, targets))

    def other(port: Port) -> int | None:
        """Return the port of the check where it is not that of the traffic."""
        number = number_of(port)
        return None if numbers == {number} or not number else number

    check = CONNECT
    if (http := probe.http_get) is not None:
        host = next((entry.value for entry in http.http_headers or () if entry.name.lower() == "host"), "")
        path = http.path if http.path.startswith("/") else f"/{http.path}"
        port, tls = other(http.port), http.scheme == "HTTPS"
        check = HealthCheckSettings(type="http", path=path, host=host, port=port, tls=tls or None)
    elif (grpc := probe.grpc) is not None:
        check = HealthCheckSettings(type="grpc", service=grpc.service or "", port=other(grpc.port))
    elif (tcp := probe.tcp_socket) is not None:
        check = HealthCheckSettings(type="tcp", port=other(tcp.port))
    return CONNECT if problem_of(check) else check


def _ports(container: ProbedContainer) -> set[Port]:
    ports = container.ports or ()
    return {port.container_port for port in ports} | {port.name for port in ports if port.name}


class ReadinessProbes:
    """The checks of the Services that follow probes, as they were read last."""

    def __init__(self, member: Cluster) -> None:
        self._member = member
        #: The endpoints at the last reading, and its result.
        self._read: dict[ServiceKey, tuple[object, HealthCheckSettings, str]] = {}
        self._notify: list[Callable[[ServiceKey], None]] = []

    def on_change(self, notify: Callable[[ServiceKey], None]) -> None:
        """Call ``notify`` with each Service whose check has changed."""
        self._notify.append(notify)

    def check_of(self, key: ServiceKey) -> HealthCheckSettings | None:
        """Return the check of a Service, None for one that follows no probe."""
        return self._read[key][1] if key in self._read else None

    def problem_of(self, key: ServiceKey) -> str:
        """Return why the probes of a Service are not followed, empty when they are."""
        return self._read[key][2] if key in self._read else ""

    def forget(self, key: ServiceKey) -> None:
        """Forget a Service that is gone."""
        self._read.pop(key, None)

    async def read(self, service: Service, slices: Iterable[EndpointSlice]) -> None:
        """Read the pods of a Service if its endpoints have changed.

        Raises:
            Retry: the member does not answer.
        """
        key = (service.metadata.namespace, service.metadata.name)
        before, selector = self.check_of(key), service.spec.selector
        if follows(service) and selector:
            await self._read_pods(service, selector, slices)
        else:
            self._read.pop(key, None)
        if self.check_of(key) != before:
            for notify in self._notify:
                notify(key)

    async def _read_pods(self, service: Service, selector: Mapping[str, str], slices: Iterable[EndpointSlice]) -> None:
        key = (service.metadata.namespace, service.metadata.name)
        uids = frozenset(
            endpoint.target_ref.uid
            for endpoint_slice in slices
            for endpoint in endpoint_slice.endpoints or ()
            if endpoint.target_ref is not None
        )
        of = (uids, tuple(sorted(selector.items())), service.spec.ports)
        if key in self._read and self._read[key][0] == of:
            return
        labels = ",".join(f"{name}={value}" for name, value in sorted(selector.items()))
        try:
            pods = await self._member.listing(PROBED_PODS, key[0], label_selector=labels)
        except Forbidden:
            sentence = (
                f"annotation {ANNOTATION_FOLLOW_READINESS_PROBE}: the agent may not read pods, so targets are "
                f"checked by connecting: apply {RIGHTS}."
            )
            # Read again at the next chance.
            self._read[key] = (None, CONNECT, sentence)
        else:
            # Of a pod that cannot be read, nothing is known.
            self._read[key] = (of, CONNECT if pods.broken else check_of_pods(pods.items, service), "")


def with_probe(own: HealthCheckSettings | None, probe: HealthCheckSettings | None) -> HealthCheckSettings | None:
    """Return the user's settings, completed by the probe if the user has chosen no type."""
    if probe is None or own is None:
        return own or probe
    if own.kind or own.port is not None:
        return own
    defaults = HealthCheckSettings()
    chosen = {name: value for name in own.__struct_fields__ if (value := getattr(own, name)) != getattr(defaults, name)}
    return msgspec.structs.replace(probe, **chosen)
