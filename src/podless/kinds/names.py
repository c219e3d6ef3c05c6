"""The rules for names, labels and annotations, with the messages of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from podless.failure import Cause, invalid_value, required_value, too_long, too_many
from podless.objects import Obj

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL = re.compile(rf"^{_LABEL}\Z")
DNS_SUBDOMAIN = re.compile(rf"^{_LABEL}(\.{_LABEL})*\Z")
DNS_1035 = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z")
QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
RBAC = "rbac.authorization.k8s.io"
PORT_RULE = "must be between 1 and 65535, inclusive"
ANNOTATIONS_MAX_BYTES = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_DATA_KEY = re.compile(r"^[-._a-zA-Z0-9]+\Z")
_DATA_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
#: Limit of owner references: each is checked whenever the owner or the object changes.
MAX_FINALIZERS = MAX_OWNERS = 100
_OWNER_TEXTS = {"apiVersion": 317, "kind": 63, "name": 253, "uid": 128}

LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
DNS_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def check_name(value: str, style: str, field: str) -> list[Cause]:
    """Check an object's name; ``style`` is ``label``, ``dns1035``, ``path`` or ``subdomain``."""
    if style == "path":
        if value in {".", ".."}:
            return [invalid_value(field, value, f"may not be '{value}'")]
        return [invalid_value(field, value, f"may not contain '{bad}'") for bad in ("/", "%") if bad in value]
    pattern, rule, limit = {"label": (DNS_LABEL, LABEL_RULE, 63), "dns1035": (DNS_1035, DNS_1035_RULE, 63)}.get(
        style, (DNS_SUBDOMAIN, SUBDOMAIN_RULE, 253)
    )
    if len(value) > limit:
        return [invalid_value(field, value, f"must be no more than {limit} characters")]
    return [] if pattern.match(value) else [invalid_value(field, value, rule)]


def check_key(key: str, field: str) -> list[Cause]:
    """Check a label or annotation key, or a finalizer."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not DNS_SUBDOMAIN.match(prefix)):
        return [invalid_value(field, key, f"prefix part {SUBDOMAIN_RULE}")]
    if not name:
        return [invalid_value(field, key, "name part must be non-empty")]
    if len(name) > 63:
        return [invalid_value(field, key, "name part must be no more than 63 characters")]
    return [] if QUALIFIED.match(name) else [invalid_value(field, key, _KEY_RULE)]


def check_labels(labels: Any, field: str) -> list[Cause]:
    """Check a mapping of labels."""
    causes: list[Cause] = []
    for key, value in cast("Obj", labels or {}).items():
        causes += check_key(key, field)
        if not isinstance(value, str):
            continue
        if len(value) > 63:
            causes.append(invalid_value(field, value, "must be no more than 63 characters"))
        elif value and not QUALIFIED.match(value):
            causes.append(invalid_value(field, value, _VALUE_RULE))
    return causes


def check_metadata(meta: Obj, *, namespaced: bool, style: str) -> list[Cause]:
    """Check ``metadata`` as every kind has it."""
    causes: list[Cause] = []
    name = meta.get("name") or ""
    if not name:
        causes.append(required_value("metadata.name", "name or generateName is required"))
    else:
        causes += check_name(name, style, "metadata.name")
    if namespaced and not meta.get("namespace"):
        causes.append(required_value("metadata.namespace"))
    causes += check_labels(meta.get("labels"), "metadata.labels")
    for key in cast("Obj", meta.get("annotations") or {}):
        causes += check_key(key.lower(), "metadata.annotations")
    annotations = cast("Obj", meta.get("annotations") or {})
    size_bytes = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    causes += too_long("metadata.annotations", size_bytes, ANNOTATIONS_MAX_BYTES)
    finalizers = cast("list[str]", meta.get("finalizers") or [])
    owners = cast("list[Obj]", meta.get("ownerReferences") or [])
    if crowds := [
        *too_many("metadata.finalizers", len(finalizers), MAX_FINALIZERS),
        *too_many("metadata.ownerReferences", len(owners), MAX_OWNERS),
    ]:
        return causes + crowds
    for finalizer in finalizers:
        causes += check_key(finalizer, "metadata.finalizers")
    return causes + _check_owners(owners)


def check_standard_finalizers(finalizers: list[str]) -> list[Cause]:
    """Check the finalizers of a built-in kind: one without a domain must be one of Kubernetes' own."""
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid_value(f"metadata.finalizers[{index}]", finalizer, why)
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def check_data(keys: Mapping[str, Collection[str]]) -> list[Cause]:
    """Check the keys of the entries of a ConfigMap or Secret, by field."""
    causes: list[Cause] = []
    for field, entries in keys.items():
        for key in entries:
            if len(key) > 253:
                causes.append(invalid_value(f"{field}[{key[:253]}]", key, "must be no more than 253 characters"))
            elif not _DATA_KEY.match(key) or key == "." or key.startswith(".."):
                causes.append(invalid_value(f"{field}[{key}]", key, _DATA_KEY_RULE))
    if len(keys) > 1:
        first, second = keys
        why = f"duplicate of key present in {second}"
        causes += [invalid_value(f"{first}[{key}]", key, why) for key in keys[second] if key in keys[first]]
    return causes


def _check_owners(owners: list[Obj]) -> list[Cause]:
    causes: list[Cause] = []
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        causes += [
            invalid_value(f"{path}.{field}", "", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
        api_version = str(owner.get("apiVersion") or "")
        if api_version.count("/") > 1 or api_version.endswith("/"):
            causes.append(invalid_value(f"{path}.apiVersion", api_version, "version must not be empty"))
        if (api_version, owner.get("kind")) == ("v1", "Event"):
            causes.append(invalid_value(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        for field, limit in _OWNER_TEXTS.items():
            causes += too_long(f"{path}.{field}", len(str(owner.get(field) or "")), limit)
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        message = "Only one reference can have Controller set to true"
        causes.append(Cause("FieldValueInvalid", message, "metadata.ownerReferences"))
    return causes
