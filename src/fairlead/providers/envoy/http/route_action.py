"""The action of a route: what is done with a request that a rule has matched.

In: a rule and its match, the listener's port, the backends that exist. Out: the fields of a Route that say what is
done: redirect, direct response or cluster with weights, rewrites, mirrors, time-outs, retries.
Requirements: G-54..G-61, G-70..G-77, G-109, G-110, G-112.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from fairlead.model.http import BackendRef, Filters, Mirror, RequestMatch, RouteKind, Rule
from fairlead.providers.envoy.http.headers import header_fields
from fairlead.providers.envoy.http.paths import rewrite_fields
from fairlead.providers.envoy.http.redirects import redirect_action
from fairlead.providers.envoy.http.retries import retry_headers, retry_policy
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
