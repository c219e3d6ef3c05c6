"""Parse a URL into resource, name, namespace and verb.

In: method, path and query. Out: ``RequestInfo``. Knows no kinds: whether the resource exists is decided later.
"""

from __future__ import annotations

from typing import NamedTuple

from multidict import MultiMapping

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_FALSE = {"0", "false"}


class RequestInfo(NamedTuple):
    """A parsed URL; ``resource`` is empty for a non-resource path."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""


def boolean_parameter(query: MultiMapping[str], name: str) -> bool:
    """Return whether a boolean query parameter is set, as kube-apiserver reads it."""
    return name in query and query[name].lower() not in _FALSE


def parse(method: str, path: str, query: MultiMapping[str]) -> RequestInfo:
    """Parse method, path and query of a request."""
    verb = _VERBS.get(method, "other")
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(verb, path)
    legacy_watch = rest[0] == "watch" and len(rest) > 1
    if legacy_watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    if resource == "namespaces":
        namespace = ""
    if verb == "get" and not subresource:
        if legacy_watch or boolean_parameter(query, "watch"):
            verb = "watch"
        elif not name:
            verb = "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return RequestInfo(verb, path, group, version, namespace, resource, name, subresource)
