"""The columns that ``kubectl get`` shows of the built-in kinds.

In: an object and the time. Out: cells, as a Kubernetes API server prints them.
"""

from __future__ import annotations

from typing import Any, cast

from podless.kinds.columns import AGE, NAME, age, column, count, joined, selector, since, text
from podless.kinds.kind import PrinterColumn
from podless.objects import Obj, at, items


def _first_three(values: list[Any], default: str = "<none>") -> str:
    return joined(values[:3], default) + (f" + {len(values) - 3} more..." if len(values) > 3 else "")


def _ingress_points(obj: Obj) -> list[Any]:
    points = [point.get("ip") or point.get("hostname") for point in items(obj, "status", "loadBalancer", "ingress")]
    return [point for point in points if point]


def _external_ip(obj: Obj) -> str:
    kind, external = at(obj, "spec", "type"), items(obj, "spec", "externalIPs")
    if kind == "ExternalName":
        return str(at(obj, "spec", "externalName"))
    return joined(_ingress_points(obj) + external, "<pending>") if kind == "LoadBalancer" else joined(external)


def _service_ports(obj: Obj) -> str:
    def text(port: Obj) -> str:
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node_port}/{port.get('protocol')}"

    return joined(text(port) for port in items(obj, "spec", "ports"))


def _node_status(obj: Obj) -> str:
    ready = [c.get("status") for c in items(obj, "status", "conditions") if c.get("type") == "Ready"]
    status = "Unknown" if not ready else "Ready" if ready[0] == "True" else "NotReady"
    return status + (",SchedulingDisabled" if at(obj, "spec", "unschedulable") else "")


def _node_roles(obj: Obj) -> str:
    prefix, labels = "node-role.kubernetes.io/", cast("Obj", at(obj, "metadata", "labels") or {})
    return joined(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix)))


def _node_address(name: str, kind: str) -> PrinterColumn:
    def cell(obj: Obj) -> str:
        return next((a["address"] for a in items(obj, "status", "addresses") if a.get("type") == kind), "<none>")

    return column(name, cell, wide=True)


def _pod_ready(obj: Obj) -> str:
    ready = sum(1 for status in items(obj, "status", "containerStatuses") if status.get("ready"))
    return f"{ready}/{len(items(obj, 'spec', 'containers'))}"


def _readiness_gates(obj: Obj) -> str:
    gates = [gate.get("conditionType") for gate in items(obj, "spec", "readinessGates")]
    true = {entry.get("type") for entry in items(obj, "status", "conditions") if entry.get("status") == "True"}
    return f"{sum(gate in true for gate in gates)}/{len(gates)}" if gates else "<none>"


def _pod_status(obj: Obj) -> str:
    if at(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return str(at(obj, "status", "reason") or at(obj, "status", "phase") or "Unknown")


def _pod_restarts(obj: Obj) -> str:
    return str(sum(int(status.get("restartCount") or 0) for status in items(obj, "status", "containerStatuses")))


def _slice_ports(obj: Obj) -> str:
    return joined((port.get("port", "*") for port in items(obj, "ports")), "<unset>")


def _slice_addresses(obj: Obj) -> str:
    addresses = [address for endpoint in items(obj, "endpoints") for address in endpoint.get("addresses") or ()]
    return _first_three(addresses, "<unset>")


def _endpoints(obj: Obj) -> str:
    texts: list[str] = []
    for subset in items(obj, "subsets"):
        ports = [port.get("port") for port in subset.get("ports") or ()]
        for address in subset.get("addresses") or ():
            ip = str(address.get("ip"))
            texts += [f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for port in ports] or [ip]
    return _first_three(texts)


def _event_object(obj: Obj) -> str:
    return f"{str(at(obj, 'involvedObject', 'kind') or '').lower()}/{at(obj, 'involvedObject', 'name') or ''}"


def _event_seen(obj: Obj, now: float) -> str:
    last = at(obj, "series", "lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime")
    return age(last or at(obj, "metadata", "creationTimestamp"), now)


def _replicas(obj: Obj) -> str:
    return f"{at(obj, 'status', 'readyReplicas') or 0}/{at(obj, 'spec', 'replicas') or 0}"


def _hosts(obj: Obj) -> str:
    return joined((rule["host"] for rule in items(obj, "spec", "rules") if rule.get("host")), "*")


DEFAULT = (NAME, text("Created At", "metadata.creationTimestamp")._replace(type="date"))
_ROLE = column("Role", lambda obj: f"{at(obj, 'roleRef', 'kind')}/{at(obj, 'roleRef', 'name')}")
_INFO = "status.nodeInfo."

COLUMNS: dict[str, tuple[PrinterColumn, ...]] = {
    "namespaces": (NAME, text("Status", "status.phase"), AGE),
    "services": (
        NAME,
        text("Type", "spec.type"),
        text("Cluster-IP", "spec.clusterIP"),
        column("External-IP", _external_ip),
        column("Port(s)", _service_ports),
        AGE,
        selector("Selector", "spec.selector", wide=True),
    ),
    "nodes": (
        NAME,
        column("Status", _node_status),
        column("Roles", _node_roles),
        AGE,
        text("Version", _INFO + "kubeletVersion", ""),
        _node_address("Internal-IP", "InternalIP"),
        _node_address("External-IP", "ExternalIP"),
        text("OS-Image", _INFO + "osImage", "<unknown>", wide=True),
        text("Kernel-Version", _INFO + "kernelVersion", "<unknown>", wide=True),
        text("Container-Runtime", _INFO + "containerRuntimeVersion", "<unknown>", wide=True),
    ),
    "pods": (
        NAME,
        column("Ready", _pod_ready),
        column("Status", _pod_status),
        column("Restarts", _pod_restarts),
        AGE,
        text("IP", "status.podIP", wide=True),
        text("Node", "spec.nodeName", wide=True),
        text("Nominated Node", "status.nominatedNodeName", wide=True),
        column("Readiness Gates", _readiness_gates, wide=True),
    ),
    "endpoints": (NAME, column("Endpoints", _endpoints), AGE),
    "endpointslices.discovery.k8s.io": (
        NAME,
        text("AddressType", "addressType"),
        column("Ports", _slice_ports),
        column("Endpoints", _slice_addresses),
        AGE,
    ),
    "events": (
        PrinterColumn("Last Seen", _event_seen),
        text("Type", "type", ""),
        text("Reason", "reason", ""),
        column("Object", _event_object),
        text("Subobject", "involvedObject.fieldPath", "", wide=True),
        text("Source", "source.component", "", wide=True),
        text("Message", "message", ""),
        since("First Seen", "firstTimestamp", wide=True),
        text("Count", "count", "1", wide=True),
        text("Name", "metadata.name", wide=True, format_="name"),
    ),
    "secrets": (NAME, text("Type", "type"), count("Data", "data"), AGE),
    "configmaps": (NAME, count("Data", "data"), AGE),
    "serviceaccounts": (NAME, count("Secrets", "secrets"), AGE),
    "leases.coordination.k8s.io": (NAME, text("Holder", "spec.holderIdentity", ""), AGE),
    "deployments.apps": (
        NAME,
        column("Ready", _replicas),
        count("Up-to-date", "status.updatedReplicas"),
        count("Available", "status.availableReplicas"),
        AGE,
        selector("Selector", "spec.selector.matchLabels", wide=True),
    ),
    "replicasets.apps": (
        NAME,
        count("Desired", "spec.replicas"),
        count("Current", "status.replicas"),
        count("Ready", "status.readyReplicas"),
        AGE,
    ),
    "statefulsets.apps": (NAME, column("Ready", _replicas), AGE),
    "daemonsets.apps": (
        NAME,
        count("Desired", "status.desiredNumberScheduled"),
        count("Current", "status.currentNumberScheduled"),
        count("Ready", "status.numberReady"),
        AGE,
    ),
    "ingresses.networking.k8s.io": (
        NAME,
        text("Class", "spec.ingressClassName"),
        column("Hosts", _hosts),
        column("Address", lambda obj: joined(_ingress_points(obj), "")),
        column("Ports", lambda obj: "80, 443" if items(obj, "spec", "tls") else "80"),
        AGE,
    ),
    "ingressclasses.networking.k8s.io": (NAME, text("Controller", "spec.controller"), AGE),
    "networkpolicies.networking.k8s.io": (NAME, selector("Pod-Selector", "spec.podSelector.matchLabels"), AGE),
    "poddisruptionbudgets.policy": (
        NAME,
        text("Min Available", "spec.minAvailable", "N/A"),
        text("Max Unavailable", "spec.maxUnavailable", "N/A"),
        count("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ),
    "rolebindings.rbac.authorization.k8s.io": (NAME, _ROLE, AGE),
    "clusterrolebindings.rbac.authorization.k8s.io": (NAME, _ROLE, AGE),
}
