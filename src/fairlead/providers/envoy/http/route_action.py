"""The action of a route: what is done with a request that a rule has matched.

In: a rule and its match, the listener's port, the backends that exist. Out: the fields of a Route that say what is
done: redirect, direct response or cluster with weights, rewrites, mirrors, time-outs, retries.
Requirements: G-54..G-61, G-70..G-77, G-109, G-110, G-112.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, cast

from fairlead.model.http import (
    BackendRef,
    Filters,
    HeaderModifier,
    HeaderValue,
    Mirror,
    PathMatch,
    PathModifier,
    Redirect,
    RequestMatch,
    RouteKind,
    Rule,
)
from fairlead.providers.envoy.http.retries import retry_headers, retry_policy
from fairlead.providers.envoy.http.route_match import is_every_path, prefix_of
from fairlead.providers.envoy.schema import Fields, Schema, duration

#: Gives the cluster of a backend; that of an unresolved or unknown one does not exist.
ClusterOf = Callable[[str], str]

_NOT_FOUND = {500: "INTERNAL_SERVER_ERROR", 503: "SERVICE_UNAVAILABLE"}
_MILLION = 1_000_000
_NOTHING_ADDED: Mapping[str, Fields] = {}
#: The stream idle time-out of the connection manager: a rule that may take longer than this has its own.
STREAM_IDLE_S = 300.0


def status_without_backend(kind: RouteKind) -> int:
    """Return the answer to requests of a rule, or of the share of a rule, without a backend that could be resolved.

    Envoy makes UNAVAILABLE of 503 for gRPC, which is what Gateway API asks for; of 500 it makes UNKNOWN.
    """
    return 503 if kind == "GRPC" else 500


def action_fields(
    schema: Schema,
    rule: Rule,
    match: RequestMatch,
    *,
    kind: RouteKind = "HTTP",
    port: int,
    secure: bool,
    cluster_of: ClusterOf,
    added_to_answers: Mapping[str, Fields] = _NOTHING_ADDED,
) -> dict[str, object]:
    """Build the action with its header changes, as fields of a Route.

    ``added_to_answers`` has a header for the answers of each backend.
    """
    headers = header_fields(rule.filters)
    if rule.filters.redirect is not None:
        action = redirect_action(rule.filters.redirect, match.path, port=port, secure=secure)
        return {**headers, "redirect": action}
    backends = [backend for backend in rule.backends if backend.weight]
    if not any(backend.backend for backend in backends):
        return {**headers, "direct_response": {"status": status_without_backend(kind)}}
    route: dict[str, object] = {
        **_clusters(backends, cluster_of, added_to_answers),
        "cluster_not_found_response_code": _NOT_FOUND[status_without_backend(kind)],
        **_times(rule),
        "retry_policy": retry_policy(schema, rule),
    }
    if own := retry_headers(rule):
        changes = cast("list[Fields]", headers.get("request_headers_to_add", []))
        headers = {**headers, "request_headers_to_add": [*changes, *own]}
    rewrite = rule.filters.rewrite
    if rewrite is not None and rewrite.hostname:
        route["host_rewrite_literal"] = rewrite.hostname
    if rewrite is not None and rewrite.path is not None:
        route |= rewrite_fields(rewrite.path, match.path)
    mirrors = [_mirror(mirror, cluster_of) for mirror in mirrors_of(rule) if mirror.backend]
    if mirrors:
        route["request_mirror_policies"] = mirrors
    return {**headers, "route": route}


def mirrors_of(rule: Rule) -> list[Mirror]:
    """Return the mirrors of a rule, and those of its backend when it has only one."""
    mirrors = list(rule.filters.mirrors)
    if len(rule.backends) == 1:
        mirrors += rule.backends[0].filters.mirrors
    return mirrors


def _clusters(backends: list[BackendRef], cluster_of: ClusterOf, added: Mapping[str, Fields]) -> Fields:
    if len(backends) == 1 and backends[0].filters == Filters() and not added:
        return {"cluster": cluster_of(backends[0].backend)}
    return {"weighted_clusters": {"clusters": [_share(backend, cluster_of, added) for backend in backends]}}


def _share(backend: BackendRef, cluster_of: ClusterOf, added: Mapping[str, Fields]) -> Fields:
    fields: dict[str, object] = {
        "name": cluster_of(backend.backend),
        "weight": {"value": backend.weight},
        **header_fields(backend.filters),
    }
    if backend.filters.rewrite is not None and backend.filters.rewrite.hostname:
        fields["host_rewrite_literal"] = backend.filters.rewrite.hostname
    if backend.backend in added:
        changes = cast("list[Fields]", fields.get("response_headers_to_add", []))
        fields["response_headers_to_add"] = [*changes, added[backend.backend]]
    return fields


def _times(rule: Rule) -> Fields:
    # Envoy's default for a request is 15 s.
    request_ms = rule.request_timeout_ms or 0
    fields: dict[str, object] = {"timeout": duration(request_ms / 1000)}
    given = [time for time in (rule.request_timeout_ms, rule.backend_timeout_ms) if time is not None]
    if 0 in given:
        fields["idle_timeout"] = duration(0)
    elif given and max(given) >= STREAM_IDLE_S * 1000:
        fields["idle_timeout"] = duration(max(given) / 1000 + 1)
    return fields


def _mirror(mirror: Mirror, cluster_of: ClusterOf) -> Fields:
    numerator = min(_MILLION, round(mirror.numerator * _MILLION / mirror.denominator))
    return {
        "cluster": cluster_of(mirror.backend),
        "runtime_fraction": {"default_value": {"numerator": numerator, "denominator": "MILLION"}},
        "disable_shadow_host_suffix_append": True,
    }


def header_fields(filters: Filters) -> dict[str, object]:
    """Build what changes the headers of requests and responses; empty when nothing does."""
    return {**_modifier(filters.request_headers, "request"), **_modifier(filters.response_headers, "response")}


def _modifier(modifier: HeaderModifier | None, side: Literal["request", "response"]) -> dict[str, object]:
    if modifier is None:
        return {}
    changes = [_option(header, "OVERWRITE_IF_EXISTS_OR_ADD") for header in modifier.set]
    changes += [_option(header, "APPEND_IF_EXISTS_OR_ADD") for header in modifier.add]
    fields: dict[str, object] = {}
    if changes:
        fields[f"{side}_headers_to_add"] = changes
    if modifier.remove:
        fields[f"{side}_headers_to_remove"] = list(modifier.remove)
    return fields


def _option(header: HeaderValue, action: str) -> Fields:
    return {
        "header": {"key": header.name, "value": header.value.replace("%", "%%")},
        "append_action": action,
        "keep_empty_value": True,
    }


_CODES = {
    301: "MOVED_PERMANENTLY",
    302: "FOUND",
    303: "SEE_OTHER",
    307: "TEMPORARY_REDIRECT",
    308: "PERMANENT_REDIRECT",
}
WELL_KNOWN_PORTS = {"http": 80, "https": 443}


def redirect_action(redirect: Redirect, path: PathMatch, *, port: int, secure: bool) -> Fields:
    """Build the action; ``port`` and ``secure`` are those of the listener."""
    fields: dict[str, object] = {"response_code": _CODES[redirect.status_code]}
    if redirect.scheme:
        fields["scheme_redirect"] = redirect.scheme
    if redirect.hostname:
        fields["host_redirect"] = redirect.hostname
    if (new_port := redirect_port(redirect, port=port, secure=secure)) is not None:
        fields["port_redirect"] = new_port
    if redirect.path is not None:
        fields |= redirect_fields(redirect.path, path)
    return fields


def redirect_port(redirect: Redirect, *, port: int, secure: bool) -> int | None:
    """Return the port to be written into the location; None when Envoy writes none, or the right one, by itself."""
    scheme = redirect.scheme or ("https" if secure else "http")
    well_known = WELL_KNOWN_PORTS[scheme]
    wanted = redirect.port or (well_known if redirect.scheme else port)
    if wanted != well_known or redirect.port:
        return wanted
    # With a new host Envoy writes no port. Without one it keeps that of the Host header, which belongs to the old
    # scheme.
    return None if redirect.hostname or not redirect.scheme else wanted


_WHOLE_PATH = "(?s)^.+$"


def rewrite_fields(modifier: PathModifier, path: PathMatch) -> Fields:
    """Build what changes the path towards the backend."""
    if modifier.type == "ReplaceFullPath":
        return _regex(_WHOLE_PATH, modifier.value or "/")
    return _prefix(modifier.value, path)


def redirect_fields(modifier: PathModifier, path: PathMatch) -> Fields:
    """Build what changes the path of the new location."""
    if modifier.type == "ReplaceFullPath":
        return {"path_redirect": modifier.value or "/"}
    return _prefix(modifier.value, path)


def removed_prefix(path: PathMatch) -> str:
    """Return the expression of what a slash takes the place of when the prefix is removed."""
    return f"^{re.escape(prefix_of(path))}/*"


def _prefix(value: str, path: PathMatch) -> Fields:
    new = value.rstrip("/")
    if is_every_path(path):
        return {"prefix_rewrite": f"{new}/"}
    if not new:
        # prefix_rewrite would leave two slashes at the beginning.
        return _regex(removed_prefix(path), "/")
    return {"prefix_rewrite": new}


def _regex(pattern: str, value: str) -> Fields:
    substitution = value.replace("\\", "\\\\")
    return {"regex_rewrite": {"pattern": {"regex": pattern}, "substitution": substitution}}
