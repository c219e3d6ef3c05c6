"""The reason for which a load balancer has no target, as far as the member knows, and the command that shows it.

In: a Service, its EndpointSlices, and the type of its targets. Out: the end of a sentence. Pure. Counts are left out: a
Service that starts would have an Event for each of its pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.api.kubernetes import EndpointSlice, Service, ServicePort
from fairlead.api.names import LABEL_SERVICE_NAME
from fairlead.api.tcploadbalancer import TargetType
from fairlead.translate.endpoints import in_service, state_of

_NODES = "kubectl get nodes"


class Missing(NamedTuple):
    """What a Service lacks, and the command that shows it."""

    why: str
    command: str


def why_no_targets(service: Service, slices: Sequence[EndpointSlice], targets: TargetType) -> str:
    """Return what is missing, of the endpoints or of the nodes."""
    local = service.spec.external_traffic_policy == "Local"
    if targets == "Address":
        return "the cluster's own load balancer shows no address that may be used"
    if targets == "Node" and not local:
        return f"no node of the cluster takes traffic: {_NODES}"
    if missing := missing_endpoints(service, slices):
        return f"{missing.why}: {missing.command}"
    if targets == "Node":
        return f"no node with a ready pod takes traffic (externalTrafficPolicy Local): {_NODES}"
    return "look at its EndpointSlices"


def missing_endpoints(service: Service, slices: Sequence[EndpointSlice]) -> Missing | None:
    """Return why some port of a Service has no ready endpoint; None when each has one."""
    namespace, of = service.metadata.namespace, f"-l {LABEL_SERVICE_NAME}={service.metadata.name}"
    selector = ",".join(f"{key}={value}" for key, value in sorted((service.spec.selector or {}).items()))
    pods = f"kubectl get pods -n {namespace} -l {selector}"
    listed = [(each, endpoint) for each in slices for endpoint in each.endpoints or ()]
    if not listed and not selector:
        why = "it has no selector, and no EndpointSlice of its own has an endpoint"
        return Missing(why, f"kubectl get endpointslices -n {namespace} {of}")
    if not listed:
        return Missing("its selector matches no pod that has an address", pods)
    serving = in_service({place: state_of(endpoint) for place, (_, endpoint) in enumerate(listed)})
    ready = [listed[place][0] for place in sorted(serving)]
    slices_in_full = f"kubectl describe endpointslices -n {namespace} {of}"
    if not ready and selector:
        return Missing("none of its pods is ready", pods)
    if not ready:
        return Missing("none of its endpoints is ready", slices_in_full)
    served = {(port.name or "", port.protocol or "TCP") for each in ready for port in each.ports or ()}
    missing = [port for port in service.spec.ports or () if (port.name, port.protocol) not in served]
    return Missing(_no_port(missing[0]), slices_in_full) if missing else None


def _no_port(port: ServicePort) -> str:
    title = f"{port.protocol}/{port.port}" + (f" ({port.name})" if port.name else "")
    if isinstance(port.target_port, str):
        return f"its pods have no container port that is named {port.target_port!r}, the targetPort of {title}"
    return f"its EndpointSlices have no port for {title}; they match by name and protocol"
