"""Behaviour of the small built-in kinds beyond their schema.

In: an object before and after a write. Out: the object as kube-apiserver would store it, or causes. Services,
EndpointSlices, Events and CustomResourceDefinitions have their own modules.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, cast

from podless.failure import (
    Cause,
    forbidden_field,
    immutable_field,
    invalid_value,
    required_value,
    too_long,
    unsupported_value,
)
from podless.kinds.kind import Behaviour, ObjectChange
from podless.kinds.names import RBAC, check_data
from podless.objects import Obj, at, child, items, meta

#: The entries that a Secret of each type must have.
_REQUIRED_ENTRIES = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
}
#: The size of all values of a ConfigMap or Secret together.
_DATA_MAX_BYTES = 2**20
_BASIC_AUTH, _BASIC_AUTH_ENTRIES = "kubernetes.io/basic-auth", frozenset({"username", "password"})
SA_TOKEN_TYPE, SA_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"
_POD_DEFAULTS: Obj = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
}
_CONTAINER_DEFAULTS: Obj = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}


def _add_defaults(obj: Obj, defaults: Obj) -> None:
    for key, value in defaults.items():
        obj.setdefault(key, value)


class NamespaceBehaviour(Behaviour):
    """Namespaces have a finalizer in their spec until their content has been deleted."""

    def default(self, obj: Obj) -> None:
        """Set the label ``kubernetes.io/metadata.name``."""
        labels = child(meta(obj), "labels")
        if meta(obj).get("name"):
            labels["kubernetes.io/metadata.name"] = meta(obj)["name"]
        super().default(obj)

    def on_create(self, obj: Obj) -> None:
        """Set the phase Active and the finalizer ``kubernetes``."""
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def on_update(self, change: ObjectChange) -> None:
        """Keep the finalizers of the spec: only the namespace controller removes them."""
        change.new["spec"] = (change.old or {}).get("spec", {})


class NodeBehaviour(Behaviour):
    """Nodes."""

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check that a provider ID, once set, does not change."""
        before = at(change.old, "spec", "providerID")
        changed = before and at(change.new, "spec", "providerID") != before
        return (
            [forbidden_field("spec.providerID", "node updates may only change labels, taints, or capacity")]
            if changed
            else []
        )


class PodBehaviour(Behaviour):
    """Pods are created as Pending; no kubelet runs them here."""

    def default(self, obj: Obj) -> None:
        """Set the defaults that most readers of a Pod rely on."""
        spec = child(obj, "spec")
        _add_defaults(spec, _POD_DEFAULTS)
        child(spec, "securityContext")
        for container in items(spec, "containers"):
            _add_defaults(container, _CONTAINER_DEFAULTS)
            child(container, "resources")
            for port in container.get("ports") or ():
                port.setdefault("protocol", "TCP")
        super().default(obj)

    def on_create(self, obj: Obj) -> None:
        """Set the phase Pending."""
        obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check that there are containers, and that an assigned Pod stays on its node."""
        causes = [] if items(change.new, "spec", "containers") else [required_value("spec.containers")]
        before = at(change.old, "spec", "nodeName")
        if before and at(change.new, "spec", "nodeName") != before and not change.status:
            causes.append(
                forbidden_field("spec", "pod updates may not change fields other than `spec.containers[*].image`")
            )
        return causes


class DataBehaviour(Behaviour):
    """ConfigMaps; one with ``immutable: true`` cannot be changed."""

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check immutability, keys and the size of the whole."""
        text, binary = _entries(change.new, "data"), _entries(change.new, "binaryData")
        size = sum(len(str(value).encode()) for value in text.values()) + sum(map(_decoded_size, binary.values()))
        causes = [*check_data({"data": text.keys(), "binaryData": binary.keys()}), *_changed_although_immutable(change)]
        # An empty path means the object as a whole.
        return [*causes, *too_long("[]", size, _DATA_MAX_BYTES)]


def _changed_although_immutable(change: ObjectChange) -> list[Cause]:
    new, old = change.new, change.old
    if old is None or not old.get("immutable"):
        return []
    changed = [field for field in ("immutable", "data", "binaryData") if new.get(field) != old.get(field)]
    return [forbidden_field(field, "field is immutable when `immutable` is set") for field in changed]


def _decoded_size(value: Any) -> int:
    """Return the size of a base64 value once decoded, in bytes."""
    text = str(value)
    return len(text) * 3 // 4 - (len(text) - len(text.rstrip("=")))


def _entries(obj: Obj, field: str) -> Obj:
    return cast("Obj", obj.get(field) or {})


class SecretBehaviour(Behaviour):
    """Secrets; ``fill_token`` writes the token of a service account into its Secret."""

    def __init__(self, fill_token: Callable[[Obj], None]) -> None:
        super().__init__()
        self._fill_token = fill_token

    def default(self, obj: Obj) -> None:
        """Encode ``stringData`` into ``data``."""
        obj.setdefault("type", "Opaque")
        for key, value in cast("Obj", obj.pop("stringData", None) or {}).items():
            child(obj, "data")[key] = base64.b64encode(str(value).encode()).decode()

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check immutability, keys and encodings, and what the type requires."""
        new, old = change.new, change.old
        entries = _entries(new, "data")
        causes = [*_changed_although_immutable(change), *check_data({"data": entries.keys()})]
        for key, value in entries.items():
            try:
                base64.b64decode(str(value), validate=True)
            except binascii.Error:
                causes.append(invalid_value(f"data[{key}]", "<redacted>", "must be base64"))
        causes += too_long("data", sum(map(_decoded_size, entries.values())), _DATA_MAX_BYTES)
        required = _REQUIRED_ENTRIES.get(str(new.get("type")), ())
        causes += [required_value(f"data[{key}]") for key in required if key not in entries]
        if new.get("type") == _BASIC_AUTH and not entries.keys() & _BASIC_AUTH_ENTRIES:
            causes += [required_value(f"data[{key}]") for key in sorted(_BASIC_AUTH_ENTRIES, reverse=True)]
        if old is not None and old.get("type") != new.get("type"):
            causes.append(immutable_field("type", new.get("type")))
        if new.get("type") == SA_TOKEN_TYPE and not at(new, "metadata", "annotations", SA_NAME):
            causes.append(required_value(f"metadata.annotations[{SA_NAME}]"))
        return causes

    def allocate(self, new: Obj) -> None:
        """Write the token into a Secret of type service-account-token."""
        if new.get("type") == SA_TOKEN_TYPE:
            self._fill_token(new)


class WorkloadBehaviour(Behaviour):
    """Deployments, ReplicaSets, StatefulSets and DaemonSets; no controller acts on them here."""

    def __init__(self, spec_defaults: Obj) -> None:
        super().__init__("status")
        self._spec_defaults = spec_defaults

    def default(self, obj: Obj) -> None:
        """Set the defaults."""
        _add_defaults(child(obj, "spec"), self._spec_defaults)
        super().default(obj)

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check that the selector matches the labels of the template and does not change."""
        new, old = change.new, change.old
        selector = at(new, "spec", "selector")
        labels = cast("Obj", at(new, "spec", "template", "metadata", "labels") or {})
        causes: list[Cause] = []
        if not selector:
            causes.append(required_value("spec.selector"))
        elif any(labels.get(key) != value for key, value in (at(selector, "matchLabels") or {}).items()):
            causes.append(
                invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
            )
        if old is not None and at(old, "spec", "selector") != selector:
            causes.append(immutable_field("spec.selector", selector))
        return causes


class BindingBehaviour(Behaviour):
    """RoleBindings: ``roleRef`` is immutable; subjects get the API group that their kind implies."""

    def default(self, obj: Obj) -> None:
        """Fill in the API groups."""
        child(obj, "roleRef").setdefault("apiGroup", RBAC)
        for subject in items(obj, "subjects"):
            if subject.get("kind") in {"User", "Group"}:
                subject.setdefault("apiGroup", RBAC)

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check the reference and the subjects."""
        new, old = change.new, change.old
        causes: list[Cause] = []
        ref = child(new, "roleRef")
        if ref.get("kind") not in {"Role", "ClusterRole"}:
            causes.append(unsupported_value("roleRef.kind", ref.get("kind"), ["ClusterRole", "Role"]))
        if not ref.get("name"):
            causes.append(required_value("roleRef.name"))
        if old is not None and ref != old.get("roleRef"):
            causes.append(invalid_value("roleRef", ref, "cannot change roleRef"))
        allowed: list[Any] = ["Group", "ServiceAccount", "User"]
        for index, subject in enumerate(items(new, "subjects")):
            if subject.get("kind") not in allowed:
                causes.append(unsupported_value(f"subjects[{index}].kind", subject.get("kind"), allowed))
            elif subject["kind"] == "ServiceAccount" and not subject.get("namespace"):
                causes.append(required_value(f"subjects[{index}].namespace"))
        return causes


class IngressBehaviour(Behaviour):
    """Ingresses."""

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check that there is a default backend or a rule."""
        new = change.new
        if items(new, "spec", "rules") or at(new, "spec", "defaultBackend"):
            return []
        return [invalid_value("spec", new.get("spec"), "either `defaultBackend` or `rules` must be specified")]


class LeaseBehaviour(Behaviour):
    """Leases."""

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check that durations are positive and transitions not negative."""
        causes: list[Cause] = []
        for field, minimum, rule in (
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ):
            value = at(change.new, "spec", field)
            if value is not None and value < minimum:
                causes.append(invalid_value(f"spec.{field}", value, rule))
        return causes
