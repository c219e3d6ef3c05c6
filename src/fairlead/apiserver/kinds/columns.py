"""What does ``kubectl get`` show of each kind? One list of columns per kind, as a Kubernetes API server prints them.

In: an object and the time. Out: cells. Ages are texts such as ``3d4h``, made here like a real server does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from fairlead.apiserver.kinds.jsonpath import find, parse
from fairlead.apiserver.kinds.kind import Column
from fairlead.apiserver.objects import Obj, encode, items, look, seconds


def human_duration(age_s: float) -> str:
    """Return a span as kubectl prints it: two units at most, the second only while it matters."""
    total = int(age_s)
    if total < 0:
        return "<invalid>" if total < -1 else "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
    return f"{days // 365}y"


def age(text: object, now: float) -> str:
    """Return how long ago an RFC 3339 time was."""
    moment = seconds(text)
    return "<unknown>" if moment is None else human_duration(now - moment)


def at(*path: str, default: str = "<none>") -> Callable[[Obj, float], Any]:
    """Return a cell that shows the value at ``path``."""

    def cell(obj: Obj, _now: float) -> Any:
        value = look(obj, *path)
        return default if value in (None, "") else value

    return cell


def since(*path: str) -> Callable[[Obj, float], Any]:
    """Return a cell that shows how long ago the time at ``path`` was."""
    return lambda obj, now: age(look(obj, *path), now)


NAME = Column("Name", at("metadata", "name"), format="name", description="Name must be unique within a namespace.")
AGE = Column("Age", since("metadata", "creationTimestamp"))
DEFAULT = (NAME, Column("Created At", at("metadata", "creationTimestamp"), type="date"))


def _joined(values: list[Any], default: str = "<none>") -> str:
    return ",".join(str(value) for value in values) if values else default


def _selector(*path: str) -> Callable[[Obj, float], Any]:
    def cell(obj: Obj, _now: float) -> str:
        chosen = cast("Obj", look(obj, *path) or {})
        return _joined([f"{key}={value}" for key, value in sorted(chosen.items())])

    return cell


def _external_ip(obj: Obj, _now: float) -> str:
    kind = look(obj, "spec", "type")
    external = [str(ip) for ip in items(obj, "spec", "externalIPs")]
    if kind == "ExternalName":
        return str(look(obj, "spec", "externalName"))
    if kind == "LoadBalancer":
        found = [point.get("ip") or point.get("hostname") for point in items(obj, "status", "loadBalancer", "ingress")]
        return _joined([point for point in found if point] + external, "<pending>")
    return _joined(external)


def _service_ports(obj: Obj, _now: float) -> str:
    texts: list[str] = []
    for port in items(obj, "spec", "ports"):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node_port}/{port.get('protocol')}")
    return _joined(texts)


def _node_status(obj: Obj, _now: float) -> str:
    ready = [c.get("status") for c in items(obj, "status", "conditions") if c.get("type") == "Ready"]
    words = ["Unknown"] if not ready else ["Ready" if ready[0] == "True" else "NotReady"]
    return ",".join(words + (["SchedulingDisabled"] if look(obj, "spec", "unschedulable") else []))


def _node_roles(obj: Obj, _now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    return _joined(
        sorted(key.removeprefix(prefix) for key in look(obj, "metadata", "labels") or {} if key.startswith(prefix))
    )


def _node_address(kind: str) -> Callable[[Obj, float], Any]:
    def cell(obj: Obj, _now: float) -> str:
        return next((a["address"] for a in items(obj, "status", "addresses") if a.get("type") == kind), "<none>")

    return cell


def _pod_ready(obj: Obj, _now: float) -> str:
    ready = sum(1 for status in items(obj, "status", "containerStatuses") if status.get("ready"))
    return f"{ready}/{len(items(obj, 'spec', 'containers'))}"


def _pod_status(obj: Obj, _now: float) -> str:
    if look(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return str(look(obj, "status", "reason") or look(obj, "status", "phase") or "Unknown")


def _pod_restarts(obj: Obj, _now: float) -> str:
    return str(sum(int(status.get("restartCount") or 0) for status in items(obj, "status", "containerStatuses")))


def _slice_ports(obj: Obj, _now: float) -> str:
    return _joined([port.get("port", "*") for port in items(obj, "ports")], "<unset>")


def _slice_addresses(obj: Obj, _now: float) -> str:
    found = [address for endpoint in items(obj, "endpoints") for address in endpoint.get("addresses") or ()]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return _joined(found[:3], "<unset>") + more


def _endpoints(obj: Obj, _now: float) -> str:
    found: list[str] = []
    for subset in items(obj, "subsets"):
        ports = [port.get("port") for port in subset.get("ports") or ()]
        for address in subset.get("addresses") or ():
            found += [f"{address.get('ip')}:{port}" for port in ports] or [str(address.get("ip"))]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return _joined(found[:3]) + more


def _event_object(obj: Obj, _now: float) -> str:
    about = cast("Obj", look(obj, "involvedObject") or {})
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_seen(obj: Obj, now: float) -> str:
    last = look(obj, "series", "lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime")
    return age(last or look(obj, "metadata", "creationTimestamp"), now)


def _count(*path: str) -> Callable[[Obj, float], Any]:
    def cell(obj: Obj, _now: float) -> int:
        value = look(obj, *path)
        return len(cast("list[Any]", value)) if isinstance(value, (list, dict)) else int(value or 0)

    return cell


def _ready(obj: Obj, _now: float) -> str:
    return f"{look(obj, 'status', 'readyReplicas') or 0}/{look(obj, 'spec', 'replicas') or 0}"


def _hosts(obj: Obj, _now: float) -> str:
    return _joined([rule["host"] for rule in items(obj, "spec", "rules") if rule.get("host")], "*")


def _ingress_address(obj: Obj, _now: float) -> str:
    points = items(obj, "status", "loadBalancer", "ingress")
    return _joined([point.get("ip") or point.get("hostname") for point in points], "")


def _role_ref(obj: Obj, _now: float) -> str:
    return f"{look(obj, 'roleRef', 'kind')}/{look(obj, 'roleRef', 'name')}"


COLUMNS: dict[str, tuple[Column, ...]] = {
    "namespaces": (NAME, Column("Status", at("status", "phase")), AGE),
    "services": (
        NAME,
        Column("Type", at("spec", "type")),
        Column("Cluster-IP", at("spec", "clusterIP")),
        Column("External-IP", _external_ip),
        Column("Port(s)", _service_ports),
        AGE,
        Column("Selector", _selector("spec", "selector"), wide=True),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", at("status", "nodeInfo", "kubeletVersion", default="")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", at("status", "nodeInfo", "osImage", default="<unknown>"), wide=True),
        Column("Kernel-Version", at("status", "nodeInfo", "kernelVersion", default="<unknown>"), wide=True),
        Column(
            "Container-Runtime", at("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>"), wide=True
        ),
    ),
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", at("status", "podIP"), wide=True),
        Column("Node", at("spec", "nodeName"), wide=True),
    ),
    "endpoints": (NAME, Column("Endpoints", _endpoints), AGE),
    "endpointslices.discovery.k8s.io": (
        NAME,
        Column("AddressType", at("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_addresses),
        AGE,
    ),
    "events": (
        Column("Last Seen", _event_seen),
        Column("Type", at("type", default="")),
        Column("Reason", at("reason", default="")),
        Column("Object", _event_object),
        Column("Subobject", at("involvedObject", "fieldPath", default=""), wide=True),
        Column("Source", at("source", "component", default=""), wide=True),
        Column("Message", at("message", default="")),
        Column("First Seen", since("firstTimestamp"), wide=True),
        Column("Count", at("count", default="1"), wide=True),
        Column("Name", at("metadata", "name"), wide=True, format="name"),
    ),
    "secrets": (NAME, Column("Type", at("type")), Column("Data", _count("data"), type="integer"), AGE),
    "configmaps": (NAME, Column("Data", _count("data"), type="integer"), AGE),
    "serviceaccounts": (NAME, Column("Secrets", _count("secrets"), type="integer"), AGE),
    "leases.coordination.k8s.io": (NAME, Column("Holder", at("spec", "holderIdentity", default="")), AGE),
    "deployments.apps": (
        NAME,
        Column("Ready", _ready),
        Column("Up-to-date", _count("status", "updatedReplicas"), type="integer"),
        Column("Available", _count("status", "availableReplicas"), type="integer"),
        AGE,
        Column("Selector", _selector("spec", "selector", "matchLabels"), wide=True),
    ),
    "replicasets.apps": (
        NAME,
        Column("Desired", _count("spec", "replicas"), type="integer"),
        Column("Current", _count("status", "replicas"), type="integer"),
        Column("Ready", _count("status", "readyReplicas"), type="integer"),
        AGE,
    ),
    "statefulsets.apps": (NAME, Column("Ready", _ready), AGE),
    "daemonsets.apps": (
        NAME,
        Column("Desired", _count("status", "desiredNumberScheduled"), type="integer"),
        Column("Current", _count("status", "currentNumberScheduled"), type="integer"),
        Column("Ready", _count("status", "numberReady"), type="integer"),
        AGE,
    ),
    "ingresses.networking.k8s.io": (
        NAME,
        Column("Class", at("spec", "ingressClassName")),
        Column("Hosts", _hosts),
        Column("Address", _ingress_address),
        Column("Ports", lambda obj, _now: "80, 443" if items(obj, "spec", "tls") else "80"),
        AGE,
    ),
    "ingressclasses.networking.k8s.io": (NAME, Column("Controller", at("spec", "controller")), AGE),
    "networkpolicies.networking.k8s.io": (
        NAME,
        Column("Pod-Selector", _selector("spec", "podSelector", "matchLabels")),
        AGE,
    ),
    "poddisruptionbudgets.policy": (
        NAME,
        Column("Min Available", at("spec", "minAvailable", default="N/A")),
        Column("Max Unavailable", at("spec", "maxUnavailable", default="N/A")),
        Column("Allowed Disruptions", _count("status", "disruptionsAllowed"), type="integer"),
        AGE,
    ),
    "rolebindings.rbac.authorization.k8s.io": (NAME, Column("Role", _role_ref), AGE),
    "clusterrolebindings.rbac.authorization.k8s.io": (NAME, Column("Role", _role_ref), AGE),
}


def custom_columns(declared: list[Obj]) -> tuple[Column, ...]:
    """Return the columns of a CRD version; raises ``ValueError`` for a path that cannot be read."""
    if not declared:
        return (NAME, AGE)
    return (NAME, *(_custom(column) for column in declared))


def _custom(column: Obj) -> Column:
    steps, kind = parse(column["jsonPath"]), column.get("type", "string")

    def cell(obj: Obj, now: float) -> Any:
        found = find(steps, obj)
        if not found or found[0] is None:
            return None
        if kind == "date":
            return age(found[0], now)
        if kind in {"integer", "number", "boolean"}:
            return found[0]
        return _joined(found) if len(found) > 1 else _plain(found[0])

    wide = bool(column.get("priority"))
    return Column(column["name"], cell, wide, kind, column.get("format", ""), column.get("description", ""))


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    # As the real server does: what is no plain value is shown as JSON.
    return value if isinstance(value, str) else encode(value).decode()
