"""The steps that every write goes through before it is stored, in their order.

    decode checks ─► unknown fields ─► types ─► defaults ─► (kind's own changes) ─► validation

In: an object as the user sent it, in the version of the request. Out: the object in its stored form, or 400/422.
"""

from __future__ import annotations

import contextlib

from podless.failure import MAX_CAUSES, MAX_SHOWN, Cause, Causes, EnoughCauses, bad_request, clipped, invalid
from podless.kinds.kind import Kind, ObjectChange
from podless.kinds.names import RBAC, check_metadata, check_standard_finalizers
from podless.objects import Obj, meta
from podless.registry.context import Context
from podless.schema.node import SchemaNode
from podless.schema.prune import fill_defaults, prune
from podless.schema.rules import Rules
from podless.schema.validate import ABSENT, validate

# With one of these causes a CEL rule could fail on a value that it may rely on.
_BLOCKING = frozenset(
    ("FieldValueTypeInvalid", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueNotSupported")
)
_UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_STYLES = {"services": "label", "namespaces": "label"}


def name_style(kind: Kind) -> str:
    """Return the rule for names of ``kind``."""
    if kind.group == RBAC:
        return "path"
    return _STYLES.get(kind.bucket, "subdomain")


def check_identity(obj: Obj, kind: Kind, namespace: str, name: str, *, named: bool = False) -> None:
    """Raise 400 when kind, namespace or name of the body differ from the URL; set those that it omits.

    ``named``: the body may not omit the name.
    """
    sent = (obj.setdefault("apiVersion", kind.api_version), obj.setdefault("kind", kind.kind))
    if sent != (kind.api_version, kind.kind):
        raise bad_request(
            f"{sent[1]} of apiVersion {sent[0]} cannot be handled as a {kind.kind}: the URL is for kind {kind.kind} of "
            f"apiVersion {kind.api_version}"
        )
    about = meta(obj)
    if not isinstance(about.get("namespace") or "", str) or not isinstance(about.get("name") or "", str):
        raise bad_request(f"{kind.kind} cannot be handled: metadata.name and metadata.namespace must be texts")
    if named and not about.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if kind.namespaced:
        if (about.get("namespace") or namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        about["namespace"] = namespace
    else:
        about.pop("namespace", None)
    if name and (about.get("name") or name) != name:
        raise bad_request(f"the name of the object ({about['name']}) does not match the name on the URL ({name})")
    if name:
        about["name"] = name


def strip_unknown(obj: Obj, kind: Kind, context: Context) -> None:
    """Remove unknown fields; ``fieldValidation`` of the request makes them an error, a warning or nothing."""
    unknown: list[str] = []
    prune(obj, kind.node, "", unknown, drop_nulls=kind.built_in)
    if kind.built_in and isinstance(about := obj.get("metadata"), dict):
        obj["metadata"] = about
    if not unknown or context.field_validation == "Ignore":
        return
    texts = [f'unknown field "{clipped(path, MAX_SHOWN)}"' for path in unknown[:MAX_CAUSES]]
    if context.field_validation == "Strict":
        unknown_fields = ", ".join(texts)
        message = (
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: ' if kind.built_in else ""
        )
        raise bad_request(f"{message}strict decoding error: {unknown_fields}")
    context.warnings += texts


def check_types(obj: Obj, kind: Kind, *, partial: bool = False) -> None:
    """Raise 400 when a built-in object has a value of the wrong type, with the message of the Go decoder.

    ``partial``: the body of a server-side apply, which may omit required fields.
    """
    causes = Causes()
    with contextlib.suppress(EnoughCauses):
        if kind.built_in:
            validate(obj, kind.node, "", causes)
        elif (about := kind.node.properties.get("metadata")) is not None:
            validate(meta(obj), about, "metadata", causes)  # other causes are checked after defaulting
    wrong_types = [cause for cause in causes if cause.reason == "FieldValueTypeInvalid"]
    if wrong_types:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: cannot unmarshal '
            + "; ".join(f"{cause.field}: {cause.message}" for cause in wrong_types)
        )
    required = [c for c in causes if c.reason == "FieldValueRequired" and not c.field.startswith("status")]
    if required and not partial:
        raise invalid(kind.kind, kind.group, str(meta(obj).get("name") or ""), required)


def to_storage(obj: Obj, kind: Kind, context: Context, *, partial: bool = False) -> Obj:
    """Return a decoded object in its storage version: pruned, type-checked and defaulted."""
    strip_unknown(obj, kind, context)
    check_types(obj, kind, partial=partial)
    if not kind.built_in:
        fill_defaults(obj, kind.node)
    return kind.to_storage(obj)


def check_valid(new: Obj, old: Obj | None, kind: Kind, context: Context, rules: Rules) -> None:
    """Raise 422 with every cause; ``kind`` is that of the storage version."""
    causes = Causes()
    with contextlib.suppress(EnoughCauses):
        collect_causes(new, old, kind, causes, context=context, rules=rules)
    if causes:
        raise invalid(kind.kind, kind.group, str(meta(new).get("name") or ""), causes)
    if not context.status:
        context.warnings += [text for text in kind.behaviour.warnings(new) if text not in context.warnings]


def collect_causes(
    new: Obj, old: Obj | None, kind: Kind, causes: list[Cause], *, context: Context, rules: Rules
) -> None:
    """Append every cause for which ``new`` is refused; ``kind`` is that of the storage version."""
    about = meta(new)
    causes += check_metadata(about, namespaced=kind.namespaced, style=name_style(kind))
    # As kube-apiserver: definitions have a finalizer of their own without a domain.
    if (
        kind.built_in
        and kind.group != "apiextensions.k8s.io"
        and (old is None or meta(old).get("finalizers") != about.get("finalizers"))
    ):
        causes += check_standard_finalizers(about.get("finalizers") or [])
    if not kind.built_in:
        _check_custom(new, old, kind, causes, context=context, rules=rules)
    if old is not None and "deletionTimestamp" in about:
        before = meta(old).get("finalizers") or []
        if added := [finalizer for finalizer in about.get("finalizers") or [] if finalizer not in before]:
            added_text = ", ".join(f'"{finalizer}"' for finalizer in added)
            why = "no new finalizers can be added if the object is being deleted, found new finalizers []string{"
            causes.append(Cause("FieldValueForbidden", f"Forbidden: {why}{added_text}}}", "metadata.finalizers"))
    causes += kind.behaviour.validate(ObjectChange(new, old, context.status))


def _check_custom(
    new: Obj, old: Obj | None, kind: Kind, causes: list[Cause], *, context: Context, rules: Rules
) -> None:
    node = _only_status(kind.node) if context.status else kind.node
    body = {"status": new["status"]} if context.status and "status" in new else new
    if context.status and "status" not in new:
        return
    before = len(causes)
    validate(body, node, "", causes, ABSENT if old is None else old)
    violations = causes[before:]
    if not node.has_rules:
        return
    if any(cause.reason in _BLOCKING for cause in violations):
        causes.append(Cause("FieldValueInvalid", _UNCHECKED, "<nil>"))
    else:
        rules.evaluate(new, old, node, "", causes)


def _only_status(node: SchemaNode) -> SchemaNode:
    status = node.properties.get("status")
    if status is None:
        return SchemaNode()
    return SchemaNode(type="object", properties={"status": status}, has_rules=status.has_rules)
