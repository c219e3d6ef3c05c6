"""Generate ``kubernetes.json`` from a Kubernetes release.

In: the published OpenAPI v2 document of Kubernetes (``api/openapi-spec/swagger.json``) and a checkout of
``k8s.io/api`` and ``k8s.io/apimachinery`` (for the protobuf field numbers in their ``generated.proto`` files). Out:
``kubernetes.json`` next to this file: the definitions reachable from the kinds we serve, one per line. Run as
``python -m podless.schema.refresh SWAGGER PROTO_ROOT...``. Never imported by the server.

Source: https://github.com/kubernetes/kubernetes/tree/master/api/openapi-spec (Apache-2.0).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).with_name("kubernetes.json")
_ROOTS = {
    "io.k8s.api.core.v1": "Namespace Service Node Pod Endpoints Event Secret ConfigMap ServiceAccount "
    "PersistentVolumeClaim",
    "io.k8s.api.apps.v1": "Deployment ReplicaSet DaemonSet StatefulSet",
    "io.k8s.api.networking.v1": "Ingress IngressClass NetworkPolicy",
    "io.k8s.api.rbac.v1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "io.k8s.api.authorization.v1": "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview "
    "LocalSubjectAccessReview",
    "io.k8s.api.authentication.v1": "TokenReview TokenRequest SelfSubjectReview",
    "io.k8s.api.events.v1": "Event",
    "io.k8s.api.discovery.v1": "EndpointSlice",
    "io.k8s.api.coordination.v1": "Lease",
    "io.k8s.api.policy.v1": "PodDisruptionBudget",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1": "CustomResourceDefinition",
    "io.k8s.apimachinery.pkg.apis.meta.v1": "DeleteOptions Status ListMeta",
}
ROOTS = tuple(f"{package}.{kind}" for package, kinds in _ROOTS.items() for kind in kinds.split())
# Required in the document, yet a missing or empty value is accepted (Go has no "missing").
NOT_REQUIRED = {
    "io.k8s.api.discovery.v1.EndpointSlice": {"endpoints"},
    "io.k8s.api.rbac.v1.Role": {"rules"},
    "io.k8s.api.rbac.v1.ClusterRole": {"rules"},
    "io.k8s.api.core.v1.PodResourceClaimStatus": {"name"},
}
# The OpenAPI v2 document has no defaults; these two are keys of associative lists and so matter to merging.
DEFAULTS = {
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
}
FIRST_SENTENCE = re.compile(r"^.{1,240}?(?:\.(?=\s|$)|$)", re.DOTALL)
FIELD = re.compile(r"^\s+(?:optional |repeated )?(map<[^>]+>|[\w.]+)\s+(\w+) = (\d+);")
REF = "#/definitions/"


def shorten(node: Any) -> Any:
    """Return ``node`` with only the first sentence of each description, and without examples."""
    if isinstance(node, list):
        return [shorten(item) for item in node]
    if not isinstance(node, dict):
        return node
    short: dict[str, Any] = {}
    for key, value in node.items():
        if key == "description" and isinstance(value, str):
            match = FIRST_SENTENCE.match(value.replace("\n", " "))
            short[key] = match.group(0) if match else value[:240]
        elif key != "example":
            short[key] = shorten(value)
    return short


def references(node: Any) -> list[str]:
    """Return the names of the definitions that ``node`` references."""
    if isinstance(node, list):
        return [ref for item in node for ref in references(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"].removeprefix(REF)] if isinstance(node.get("$ref"), str) else []
    return own + [ref for value in node.values() for ref in references(value)]


def field_numbers(roots: list[Path]) -> dict[str, dict[str, str]]:
    """Return protobuf field numbers: definition name -> number -> ``field:definition``."""
    tables: dict[str, dict[str, str]] = {}
    for path in (path for root in roots for path in sorted(root.rglob("generated.proto"))):
        package, message = "", ""
        for line in path.read_text().splitlines():
            if line.startswith("package "):
                package = line.removeprefix("package k8s.io.").rstrip(";")
            elif line.startswith("message "):
                message = f"io.k8s.{package}.{line.split()[1]}"
                tables[message] = {}
            elif message and (match := FIELD.match(line)):
                kind = match.group(1).removeprefix(".k8s.io.").replace("k8s.io.", "")
                owner = f"io.k8s.{kind}" if "." in kind else f"io.k8s.{package}.{kind}"
                tables[message][match.group(3)] = f"{match.group(2)}:{owner}"
    return tables


def protobuf_table(name: str, properties: dict[str, Any], numbers: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return the protobuf fields by number: a name, or the table of a message that JSON inlines."""
    table: dict[str, Any] = {}
    for number, entry in numbers.get(name, {}).items():
        field, owner = entry.split(":", 1)
        inlined = properties and field not in properties and owner in numbers
        table[number] = protobuf_table(owner, properties, numbers) if inlined else field
    return table


def build(swagger: dict[str, Any], numbers: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return every definition reachable from ``ROOTS``, with its protobuf field numbers."""
    definitions: dict[str, Any] = {}
    pending = list(ROOTS)
    while pending:
        name = pending.pop()
        if name in definitions:
            continue
        definition = shorten(swagger["definitions"][name])
        lenient = NOT_REQUIRED.get(name, set())
        if required := [field for field in definition.get("required", ()) if field not in lenient]:
            definition["required"] = required
        else:
            definition.pop("required", None)
        for field, value in definition.get("properties", {}).items():
            if (name, field) in DEFAULTS:
                value["default"] = DEFAULTS[name, field]
        if table := protobuf_table(name, definition.get("properties", {}), numbers):
            definition["x-protobuf"] = table
        definitions[name] = definition
        pending += references(definition)
    return definitions


def main() -> None:
    """Rewrite ``kubernetes.json``."""
    swagger = json.loads(Path(sys.argv[1]).read_text())
    definitions = build(swagger, field_numbers([Path(root) for root in sys.argv[2:]]))
    lines = [
        f"{json.dumps(name)}:{json.dumps(definitions[name], separators=(',', ':'))}" for name in sorted(definitions)
    ]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
