"""Turn a CustomResourceDefinition into served kinds, and check it.

In: a stored CRD. Out: one ``Kind`` per served version, sharing one bucket. Versions are converted by renaming only
(strategy ``None``); webhooks are refused.
"""

from __future__ import annotations

import re
from typing import Any, cast

from podless.failure import Cause, immutable_field, invalid_value, required_value, unsupported_value
from podless.kinds.columns import custom_columns, parse_path
from podless.kinds.kind import Behaviour, Conversion, Kind, ObjectChange
from podless.kinds.names import DNS_1035, DNS_1035_RULE, DNS_SUBDOMAIN, SUBDOMAIN_RULE
from podless.objects import Obj, at, child, clone, items, meta, rfc3339
from podless.schema.builtin import BuiltinSchemas
from podless.schema.node import compile_pattern
from podless.schema.rules import Rules

BUCKET = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_VERSION = re.compile(r"^v[0-9]+((alpha|beta)[0-9]+)?\Z")


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key that puts the most stable, newest version first."""
    match = re.match(r"^v(\d+)(?:(alpha|beta)(\d+))?$", version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match.group(2)]
    return (stage, -int(match.group(1)), -int(match.group(3) or 0), version)


def kinds_of(crd: Obj, schemas: BuiltinSchemas) -> list[Kind]:
    """Return the kinds that ``crd`` serves, best version first."""
    spec, names = child(crd, "spec"), cast("Obj", crd["spec"]["names"])
    storage = next(str(version["name"]) for version in spec["versions"] if version.get("storage"))
    kinds: list[Kind] = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        kind = _kind(spec, names, cast("Obj", version), schemas)
        if version["name"] != storage:
            kind.conversion = _renaming(spec["group"], storage, version["name"])
        kinds.append(kind)
    return sorted(kinds, key=lambda kind: version_rank(kind.version))


def _kind(spec: Obj, names: Obj, version: Obj, schemas: BuiltinSchemas) -> Kind:
    schema = cast("Obj", at(version, "schema", "openAPIV3Schema") or {"x-kubernetes-preserve-unknown-fields": True})
    fields = {str(item["jsonPath"]).lstrip(".") for item in items(version, "selectableFields")}
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        node=schemas.of_custom_resource(schema),
        namespaced=spec["scope"] == "Namespaced",
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status=at(version, "subresources", "status") is not None,
        built_in=False,
        generation=True,
        schema=schema,
        columns=custom_columns(cast("list[Obj]", items(version, "additionalPrinterColumns"))),
        selectable=frozenset({"metadata.name", "metadata.namespace"} | fields),
    )


def _renaming(group: str, storage: str, version: str) -> Conversion:
    return Conversion(
        to_storage=lambda obj: obj | {"apiVersion": f"{group}/{storage}"},
        from_storage=lambda obj: obj | {"apiVersion": f"{group}/{version}"},
    )


class CrdBehaviour(Behaviour):
    """CustomResourceDefinitions."""

    def __init__(self, schemas: BuiltinSchemas, rules: Rules, now: Any) -> None:
        self._schemas = schemas
        self._rules = rules
        self._now = now

    def default(self, obj: Obj) -> None:
        """Fill in names and conversion."""
        names = child(child(obj, "spec"), "names")
        if names.get("kind"):
            if not names.get("singular"):
                names["singular"] = str(names["kind"]).lower()
            if not names.get("listKind"):
                names["listKind"] = f"{names['kind']}List"
        child(obj["spec"], "conversion").setdefault("strategy", "None")

    def on_create(self, obj: Obj) -> None:
        """Add the finalizer for which the instances are deleted before the definition."""
        finalizers = meta(obj).setdefault("finalizers", [])
        if CLEANUP not in finalizers:
            finalizers.append(CLEANUP)
        obj.pop("status", None)

    def allocate(self, new: Obj) -> None:
        """Set the conditions NamesAccepted and Established."""
        spec, status = child(new, "spec"), child(new, "status")
        status["acceptedNames"] = clone(spec["names"])
        stored = [*(status.get("storedVersions") or [])]
        stored += [v["name"] for v in spec["versions"] if v.get("storage") and v["name"] not in stored]
        status["storedVersions"] = stored
        types = {condition.get("type") for condition in items(status, "conditions")}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ):
            if kind not in types:
                condition = {"type": kind, "status": "True", "lastTransitionTime": rfc3339(self._now())}
                status.setdefault("conditions", []).append(condition | {"reason": reason, "message": message})

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Return why the definition cannot be served."""
        new, old = change.new, change.old
        spec = child(new, "spec")
        causes = _check_names(new, spec)
        versions = cast("list[Obj]", spec.get("versions") or [])
        if sum(1 for version in versions if version.get("storage")) != 1:
            causes.append(
                invalid_value("spec.versions", versions, "must have exactly one version marked as storage version")
            )
        for index, version in enumerate(versions):
            causes += self._check_version(version, f"spec.versions[{index}]")
        if at(spec, "conversion", "strategy") != "None":
            causes.append(unsupported_value("spec.conversion.strategy", at(spec, "conversion", "strategy"), ["None"]))
        if old is not None:
            before = child(old, "spec")
            causes += [
                immutable_field(f"spec.{f}", spec.get(f)) for f in ("group", "scope") if spec.get(f) != before.get(f)
            ]
            for field in ("plural", "kind"):
                if at(spec, "names", field) != at(before, "names", field):
                    causes.append(immutable_field(f"spec.names.{field}", at(spec, "names", field)))
        return causes

    def _check_version(self, version: Obj, path: str) -> list[Cause]:
        schema = at(version, "schema", "openAPIV3Schema")
        if schema is None:
            return [required_value(f"{path}.schema.openAPIV3Schema", "schemas are required")]
        causes = self._check_schema(cast("Obj", schema), f"{path}.schema.openAPIV3Schema", root=True)
        for index, column in enumerate(items(version, "additionalPrinterColumns")):
            try:
                parse_path(str(column.get("jsonPath")))
            except ValueError as error:
                field = f"{path}.additionalPrinterColumns[{index}].jsonPath"
                causes.append(invalid_value(field, column.get("jsonPath"), str(error)))
        return causes

    def _check_rule(self, rule: Obj, path: str) -> list[Cause]:
        written = [(f"{path}.{field}", rule[field]) for field in ("rule", "messageExpression") if rule.get(field)]
        return [invalid_value(field, text, why) for field, text in written if (why := self._rules.check(text))]

    def _check_schema(self, schema: Obj, path: str, *, root: bool = False) -> list[Cause]:
        causes: list[Cause] = []
        open_type = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
        if root and schema.get("type") != "object":
            causes.append(invalid_value(f"{path}.type", schema.get("type", ""), "must be object at the root"))
        elif not schema.get("type") and not open_type:
            causes.append(required_value(f"{path}.type", "must not be empty for specified object fields"))
        if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
            causes.append(required_value(f"{path}.items", "must be specified"))
        if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
            why = "must not be empty if x-kubernetes-list-type is map"
            causes.append(required_value(f"{path}.x-kubernetes-list-map-keys", why))
        if schema.get("pattern"):
            try:
                compile_pattern(schema["pattern"])
            except re.error as error:
                causes.append(
                    invalid_value(f"{path}.pattern", schema["pattern"], f"must be a valid regular expression: {error}")
                )
        for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
            causes += self._check_rule(rule, f"{path}.x-kubernetes-validations[{index}]")
        for name, sub in cast("Obj", schema.get("properties") or {}).items():
            if not (root and name in {"metadata", "apiVersion", "kind"}):
                causes += self._check_schema(sub, f"{path}.properties[{name}]")
        for keyword in ("items", "additionalProperties"):
            if isinstance(schema.get(keyword), dict):
                causes += self._check_schema(schema[keyword], f"{path}.{keyword}")
        return causes


def _check_names(new: Obj, spec: Obj) -> list[Cause]:
    causes: list[Cause] = []
    group, plural = spec.get("group") or "", at(spec, "names", "plural") or ""
    if not DNS_SUBDOMAIN.match(group) or "." not in group:
        causes.append(invalid_value("spec.group", group, f"should be a domain with at least one dot: {SUBDOMAIN_RULE}"))
    if meta(new).get("name") != f"{plural}.{group}":
        causes.append(invalid_value("metadata.name", meta(new).get("name"), 'must be spec.names.plural+"."+spec.group'))
    for field in ("plural", "singular", "kind", "listKind"):
        value = at(spec, "names", field) or ""
        if not value:
            causes.append(required_value(f"spec.names.{field}"))
        elif not DNS_1035.match(value.lower()):
            causes.append(invalid_value(f"spec.names.{field}", value, DNS_1035_RULE))
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        causes.append(unsupported_value("spec.scope", spec.get("scope"), ["Cluster", "Namespaced"]))
    for index, version in enumerate(spec.get("versions") or ()):
        if not DNS_1035.match(version.get("name") or ""):
            causes.append(invalid_value(f"spec.versions[{index}].name", version.get("name"), DNS_1035_RULE))
    return causes
