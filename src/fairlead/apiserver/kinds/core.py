"""What do the small built-in kinds do beyond their schema?

In: an object before and after a write. Out: the object as a Kubernetes API server would store it. Services have
their own file.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable
from typing import Any, cast

from fairlead.apiserver.failure import Cause, denied, immutable, missing, unsupported, wrong
from fairlead.apiserver.kinds.kind import Behaviour, Change
from fairlead.apiserver.kinds.names import DNS_LABEL, LABEL_WORDS
from fairlead.apiserver.objects import Obj, child, items, look, meta

MAX_ENDPOINTS, MAX_PORTS, MAX_ADDRESSES = 1000, 20_000, 100
SA_TOKEN_TYPE, SA_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"


class NamespaceBehaviour(Behaviour):
    """Namespaces carry a finalizer in their spec until their content is gone."""

    def default(self, obj: Obj) -> None:
        """Name the namespace in a label, as selectors need."""
        labels = child(meta(obj), "labels")
        if meta(obj).get("name"):
            labels["kubernetes.io/metadata.name"] = meta(obj)["name"]
        child(obj, "spec")
        child(obj, "status")

    def on_create(self, obj: Obj) -> None:
        """Start as Active."""
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def on_update(self, change: Change) -> None:
        """Keep the finalizers: only the server itself takes them out."""
        new, old = change.new, change.old
        new["spec"] = (old or {}).get("spec", {})


class NodeBehaviour(Behaviour):
    """Nodes keep both halves as they are written."""

    def default(self, obj: Obj) -> None:
        """Have both halves."""
        child(obj, "spec")
        child(obj, "status")

    def validate(self, change: Change) -> list[Cause]:
        """Check the provider ID, which is written once."""
        new, old = change.new, change.old
        before = look(old, "spec", "providerID")
        now = look(new, "spec", "providerID")
        return (
            [denied("spec.providerID", "node updates may only change labels, taints, or capacity")]
            if before and now != before
            else []
        )


class PodBehaviour(Behaviour):
    """Pods start as Pending; nothing runs them here."""

    def default(self, obj: Obj) -> None:
        """Fill in what nearly every reader of a pod expects."""
        spec = child(obj, "spec")
        for key, value in (
            ("restartPolicy", "Always"),
            ("dnsPolicy", "ClusterFirst"),
            ("schedulerName", "default-scheduler"),
            ("terminationGracePeriodSeconds", 30),
            ("enableServiceLinks", True),
        ):
            spec.setdefault(key, value)
        child(spec, "securityContext")
        for container in items(spec, "containers"):
            container.setdefault("terminationMessagePath", "/dev/termination-log")
            container.setdefault("terminationMessagePolicy", "File")
            container.setdefault("imagePullPolicy", "IfNotPresent")
            child(container, "resources")
            for port in container.get("ports") or ():
                port.setdefault("protocol", "TCP")
        child(obj, "status")

    def on_create(self, obj: Obj) -> None:
        """Start as Pending."""
        obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}

    def validate(self, change: Change) -> list[Cause]:
        """Check that there is something to run and that it stays where it is."""
        new, old = change.new, change.old
        causes = [] if items(new, "spec", "containers") else [missing("spec.containers")]
        before = look(old, "spec", "nodeName")
        if before and look(new, "spec", "nodeName") != before and not change.status:
            causes.append(denied("spec", "pod updates may not change fields other than `spec.containers[*].image`"))
        return causes


class EndpointSliceBehaviour(Behaviour):
    """EndpointSlices; loopback addresses are welcome here, so that one machine can play a fleet."""

    def default(self, obj: Obj) -> None:
        """Print what Go prints: empty lists are null, conditions are always there."""
        obj["endpoints"] = obj.get("endpoints") or None
        obj["ports"] = obj.get("ports") or None
        for endpoint in items(obj, "endpoints"):
            if isinstance(endpoint, dict):
                child(cast("Obj", endpoint), "conditions")
        for port in items(obj, "ports"):
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def validate(self, change: Change) -> list[Cause]:
        """Check sizes, addresses and ports."""
        new, old = change.new, change.old
        causes: list[Cause] = []
        kind = new.get("addressType") or ""
        if not kind:
            causes.append(missing("addressType"))
        elif kind not in {"IPv4", "IPv6", "FQDN"}:
            causes.append(unsupported("addressType", kind, ["FQDN", "IPv4", "IPv6"]))
        if old is not None and old.get("addressType") != kind:
            causes.append(immutable("addressType", kind))
        endpoints = items(new, "endpoints")
        if len(endpoints) > MAX_ENDPOINTS:
            message = f"Too many: {len(endpoints)}: must have at most {MAX_ENDPOINTS} items"
            causes.append(Cause("FieldValueTooMany", message, "endpoints"))
        if old is None or old.get("endpoints") != new.get("endpoints"):
            for index, endpoint in enumerate(endpoints):
                causes += _check_addresses(cast("Obj", endpoint), kind, f"endpoints[{index}]")
        return causes + _check_slice_ports(cast("list[Obj]", items(new, "ports")))


def _check_addresses(endpoint: Obj, kind: str, here: str) -> list[Cause]:
    addresses = cast("list[str]", endpoint.get("addresses") or [])
    if not addresses:
        return [missing(f"{here}.addresses", "must contain at least 1 address")]
    if len(addresses) > MAX_ADDRESSES:
        message = f"Too many: {len(addresses)}: must have at most {MAX_ADDRESSES} items"
        return [Cause("FieldValueTooMany", message, f"{here}.addresses")]
    causes: list[Cause] = []
    for index, address in enumerate(addresses):
        field = f"{here}.addresses[{index}]"
        try:
            if kind == "IPv4":
                ipaddress.IPv4Address(address)
            elif kind == "IPv6":
                ipaddress.IPv6Address(address)
        except ValueError:
            causes.append(wrong(field, address, f"must be an {kind} address"))
    return causes


def _check_slice_ports(ports: list[Obj]) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        name, number = port.get("name") or "", port.get("port")
        if name in names:
            causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"ports[{index}].name"))
        names.add(name)
        if name and (len(name) > 63 or not DNS_LABEL.match(name)):
            causes.append(wrong(f"ports[{index}].name", name, LABEL_WORDS))
        if number is not None and not 1 <= number <= 65535:
            causes.append(wrong(f"ports[{index}].port", number, "must be between 1 and 65535, inclusive"))
        if port.get("protocol") not in {"TCP", "UDP", "SCTP"}:
            causes.append(unsupported(f"ports[{index}].protocol", port.get("protocol"), ["SCTP", "TCP", "UDP"]))
    return causes


class DataBehaviour(Behaviour):
    """ConfigMaps and, with ``base64_data``, Secrets; an immutable one stays as it is."""

    def __init__(self, *, base64_data: bool, fill_token: Callable[[Obj], None] | None = None) -> None:
        self._secret = base64_data
        self._fill_token = fill_token

    def default(self, obj: Obj) -> None:
        """Fold ``stringData`` into ``data``."""
        if not self._secret:
            return
        obj.setdefault("type", "Opaque")
        for key, value in cast("Obj", obj.pop("stringData", None) or {}).items():
            child(obj, "data")[key] = base64.b64encode(str(value).encode()).decode()

    def validate(self, change: Change) -> list[Cause]:
        """Check immutability and, for Secrets, the encoding."""
        new, old = change.new, change.old
        causes: list[Cause] = []
        if old is not None and old.get("immutable"):
            causes += [
                denied(field, "field is immutable when `immutable` is set")
                for field in ("immutable", "data", "binaryData")
                if new.get(field) != old.get(field)
            ]
        if self._secret:
            causes += self._check_secret(new, old)
        return causes

    @staticmethod
    def _check_secret(new: Obj, old: Obj | None) -> list[Cause]:
        causes: list[Cause] = []
        for key, value in cast("Obj", new.get("data") or {}).items():
            try:
                base64.b64decode(str(value), validate=True)
            except binascii.Error:
                causes.append(wrong(f"data[{key}]", "<redacted>", "must be base64"))
        if old is not None and old.get("type") != new.get("type"):
            causes.append(immutable("type", new.get("type")))
        if new.get("type") == SA_TOKEN_TYPE and not look(new, "metadata", "annotations", SA_NAME):
            causes.append(missing(f"metadata.annotations[{SA_NAME}]"))
        return causes

    def allocate(self, new: Obj) -> None:
        """Fill in the token of a service account token Secret."""
        if self._fill_token is not None and new.get("type") == SA_TOKEN_TYPE:
            self._fill_token(new)


class WorkloadBehaviour(Behaviour):
    """Deployments, ReplicaSets, StatefulSets and DaemonSets; no controller acts on them here."""

    def __init__(self, *, replicas: bool) -> None:
        self._replicas = replicas

    def default(self, obj: Obj) -> None:
        """Fill in what the user left out."""
        spec = child(obj, "spec")
        if self._replicas:
            spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        child(obj, "status")

    def validate(self, change: Change) -> list[Cause]:
        """Check that the selector selects the template and stays."""
        new, old = change.new, change.old
        chosen = cast("Obj", look(new, "spec", "selector", "matchLabels") or {})
        labels = cast("Obj", look(new, "spec", "template", "metadata", "labels") or {})
        causes: list[Cause] = []
        if not look(new, "spec", "selector"):
            causes.append(missing("spec.selector"))
        elif any(labels.get(key) != value for key, value in chosen.items()):
            causes.append(wrong("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
        if old is not None and look(old, "spec", "selector") != look(new, "spec", "selector"):
            causes.append(immutable("spec.selector", look(new, "spec", "selector")))
        return causes


class BindingBehaviour(Behaviour):
    """RoleBindings: the role is written once; subjects get the API group that their kind implies."""

    def default(self, obj: Obj) -> None:
        """Fill in the API groups."""
        child(obj, "roleRef").setdefault("apiGroup", "rbac.authorization.k8s.io")
        for subject in items(obj, "subjects"):
            if subject.get("kind") in {"User", "Group"}:
                subject.setdefault("apiGroup", "rbac.authorization.k8s.io")

    def validate(self, change: Change) -> list[Cause]:
        """Check the reference and the subjects."""
        new, old = change.new, change.old
        causes: list[Cause] = []
        ref = child(new, "roleRef")
        if ref.get("kind") not in {"Role", "ClusterRole"}:
            causes.append(unsupported("roleRef.kind", ref.get("kind"), ["ClusterRole", "Role"]))
        if not ref.get("name"):
            causes.append(missing("roleRef.name"))
        if old is not None and ref != old.get("roleRef"):
            causes.append(wrong("roleRef", ref, "cannot change roleRef"))
        for index, subject in enumerate(items(new, "subjects")):
            if subject.get("kind") not in {"User", "Group", "ServiceAccount"}:
                allowed: list[Any] = ["Group", "ServiceAccount", "User"]
                causes.append(unsupported(f"subjects[{index}].kind", subject.get("kind"), allowed))
            elif subject["kind"] == "ServiceAccount" and not subject.get("namespace"):
                causes.append(missing(f"subjects[{index}].namespace"))
        return causes


class StatusBehaviour(Behaviour):
    """A kind whose status is an object even when nobody has written it."""

    def default(self, obj: Obj) -> None:
        """Have a status."""
        child(obj, "status")


class IngressBehaviour(Behaviour):
    """Ingresses."""

    def default(self, obj: Obj) -> None:
        """Have a status."""
        child(child(obj, "status"), "loadBalancer")

    def validate(self, change: Change) -> list[Cause]:
        """Check that there is something to route."""
        new = change.new
        if not items(new, "spec", "rules") and not look(new, "spec", "defaultBackend"):
            return [wrong("spec", new.get("spec"), "either `defaultBackend` or `rules` must be specified")]
        return []


class LeaseBehaviour(Behaviour):
    """Leases."""

    def validate(self, change: Change) -> list[Cause]:
        """Check the numbers."""
        new = change.new
        causes: list[Cause] = []
        for field, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
            value = look(new, "spec", field)
            if value is not None and value < least:
                words = "must be greater than 0" if least else "must be greater than or equal to 0"
                causes.append(wrong(f"spec.{field}", value, words))
        return causes
