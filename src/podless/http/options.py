"""Read the parameters of a request, from query and headers, into what the registry understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from aiohttp import web

from podless.auth.identity import User
from podless.failure import (
    MAX_SHOWN,
    ApiFailure,
    Cause,
    bad_request,
    clipped,
    forbidden_field,
    invalid,
    invalid_value,
    required_value,
    too_long,
    unsupported_value,
)
from podless.http.info import RequestInfo, boolean_parameter
from podless.kinds.kind import Kind
from podless.objects import Obj, at
from podless.registry.context import Context, DeleteOptions
from podless.selectors import Selection, parse_fields, parse_labels

_PROPAGATION = {"Background", "Foreground", "Orphan"}
_DELETE_TYPES = {
    "dryRun": list,
    "gracePeriodSeconds": int,
    "orphanDependents": bool,
    "preconditions": dict,
    "propagationPolicy": str,
}
_DIGITS = 19
_MATCHES = {"Exact", "NotOlderThan"}


def default_manager(user_agent: str) -> str:
    """Return the field manager of a client that names none: the first word of its user agent."""
    text = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return text.encode()[:128].decode(errors="ignore") or "unknown"


def dry_run_of(values: object, kind: str) -> bool:
    """Return whether the value of ``dryRun`` in options of this kind asks for a dry run; raises 422."""
    texts = cast("list[object]", values) if isinstance(values, list) else [values] if values else []
    if wrong := [value for value in texts if value != "All"]:
        raise invalid(kind, "meta.k8s.io", "", [unsupported_value("dryRun", wrong[0], ["All"])])
    return bool(texts)


def write_context(request: web.BaseRequest, user: User, info: RequestInfo, *, applies: bool) -> Context:
    """Return the options of a write request; ``applies``: it is a server-side apply. Raises 400 or 422."""
    query = request.query
    dry_run = dry_run_of(query.getall("dryRun", []), "CreateOptions")
    validation = query.get("fieldValidation") or "Warn"
    if validation not in {"Ignore", "Warn", "Strict"}:
        raise _bad_validation(validation)
    manager = query.get("fieldManager", "")
    causes = too_long("fieldManager", len(manager.encode()), 128)
    if not manager.isprintable():
        causes.append(invalid_value("fieldManager", manager, "should not contain non-printable characters"))
    if causes:
        raise invalid("PatchOptions", "meta.k8s.io", "", causes)
    if info.verb == "patch":
        _check_patch(query, manager, applies=applies)
    return Context(
        user=user,
        manager=manager or default_manager(request.headers.get("User-Agent", "")),
        dry_run=dry_run,
        field_validation=validation,
        force=boolean_parameter(query, "force"),
        subresource=info.subresource,
    )


def _check_patch(query: Mapping[str, str], manager: str, *, applies: bool) -> None:
    causes: list[Cause] = []
    if applies and not manager:
        causes.append(required_value("fieldManager", "is required for apply patch"))
    if not applies and "force" in query:
        causes.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if causes:
        raise invalid("PatchOptions", "meta.k8s.io", "", causes)


def version_match(request: web.BaseRequest) -> str:
    """Return how the resourceVersion of a list is meant: ``Exact``, ``NotOlderThan`` or empty; raises 422."""
    query = request.query
    match = query.get("resourceVersionMatch", "")
    causes: list[Cause] = []
    if "sendInitialEvents" in query:
        causes.append(forbidden_field("sendInitialEvents", "is forbidden for list"))
    if match and match not in _MATCHES:
        causes.append(unsupported_value("resourceVersionMatch", match, sorted(_MATCHES)))
    elif match and query.get("continue"):
        causes.append(forbidden_field("resourceVersionMatch", "is forbidden when continue is provided"))
    elif match and not query.get("resourceVersion"):
        causes.append(forbidden_field("resourceVersionMatch", "is forbidden unless resourceVersion is provided"))
    elif match == "Exact" and not version(request):
        causes.append(forbidden_field("resourceVersionMatch", 'Exact is forbidden for resourceVersion "0"'))
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)
    if query.get("continue") and version(request):
        raise bad_request("specifying resource version is not allowed when using continue")
    return match


def _bad_validation(value: str) -> ApiFailure:
    cause = unsupported_value("fieldValidation", value, ["", "Ignore", "Strict", "Warn"])
    return invalid("CreateOptions", "meta.k8s.io", "", [cause])


def selection(request: web.BaseRequest, kind: Kind, info: RequestInfo) -> Selection:
    """Return the selectors of a list or watch; a name in the URL of a watch is a field selector."""
    query = request.query
    fields = parse_fields(query.get("fieldSelector", ""), kind.selectable)
    if info.name:
        fields += parse_fields(f"metadata.name={info.name}", kind.selectable)
    return Selection(info.namespace, parse_labels(query.get("labelSelector", "")), fields)


def delete_options(request: web.BaseRequest, body: Obj | None) -> DeleteOptions:
    """Return the ``DeleteOptions`` of a delete: its body or, without one, its query. Raises 400 or 422."""
    if body is None:
        signed_number(request, "gracePeriodSeconds")
        body = {key: request.query[key] for key in ("propagationPolicy",) if key in request.query}
        if "orphanDependents" in request.query:
            body["orphanDependents"] = boolean_parameter(request.query, "orphanDependents")
        body["dryRun"] = request.query.getall("dryRun", [])
    if body.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f"the body of a delete must be DeleteOptions, not {clipped(str(body['kind']), MAX_SHOWN)}")
    for field, wanted in _DELETE_TYPES.items():
        value = body.get(field)
        if value is not None and (not isinstance(value, wanted) or (wanted is int and isinstance(value, bool))):
            raise bad_request(f"json: cannot unmarshal DeleteOptions.{field}: it must be of type {wanted.__name__}")
    propagation, orphan = body.get("propagationPolicy") or "", body.get("orphanDependents")
    if propagation and orphan is not None:
        cause = invalid_value("propagationPolicy", propagation, "orphanDependents and propagationPolicy are exclusive")
        raise invalid("DeleteOptions", "meta.k8s.io", "", [cause])
    propagation = propagation or ("Orphan" if orphan else "Background")
    if propagation not in _PROPAGATION:
        cause = unsupported_value("propagationPolicy", propagation, sorted(_PROPAGATION))
        raise invalid("DeleteOptions", "meta.k8s.io", "", [cause])
    return DeleteOptions(
        uid=str(at(body, "preconditions", "uid") or ""),
        rv=str(at(body, "preconditions", "resourceVersion") or ""),
        propagation=propagation,
        dry_run=dry_run_of(body.get("dryRun"), "DeleteOptions"),
    )


def number(request: web.BaseRequest, name: str) -> int | None:
    """Return a query parameter as an integer, None without it; raises 400."""
    text = request.query.get(name, "")
    return whole_number(text, name) if text else None


def signed_number(request: web.BaseRequest, name: str) -> int:
    """Return a query parameter as an integer that may be negative, 0 without it; raises 400."""
    text = request.query.get(name, "")
    return whole_number(text.removeprefix("-"), name) * (-1 if text.startswith("-") else 1) if text else 0


def whole_number(text: str, name: str) -> int:
    """Return the integer that ``text`` is, if it fits into 64 bits; raises 400."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise bad_request(f'{name}: Invalid value: "{clipped(text, MAX_SHOWN)}": must be a whole number')
    return int(text)


def version(request: web.BaseRequest) -> int:
    """Return the resourceVersion of a read request, 0 without one; raises 400."""
    return number(request, "resourceVersion") or 0
