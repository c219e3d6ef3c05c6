"""The action of a route: what Envoy does with a request that a rule has matched.

In: a rule and its match, the listener's port, the backends that exist. Out: the fields of a Route: redirect, direct
response or cluster with weights, rewrites, mirrors, time-outs, retries, and settings of the HTTP filters (CORS, session
persistence). The filters are in every connection manager and do nothing without settings, so that a rule that needs
one changes no listener.

    the rule has         Envoy retries
    -------------------  ------------------------------------------------------------------------------------------
    no retry             what never reached a backend; of GET, HEAD and OPTIONS also what was cut without an answer
    a retry of its own   what never reached a backend, was cut, took too long or got one of the codes: any method

Envoy limits a policy to methods only as a whole. The policy for safe methods is in a header that every request of the
route configuration has on its way to the router, which removes it.

    requestsPerSecond of a class    a filter of the listener, before all others: no route can change it
    requests per second of a rule   a bucket in the route configuration, shared by all matches and hostnames of the rule
    limits of users                 what the route configuration takes, together or for each client; bandwidth
    connections of a class          a filter of each chain of connections; of UDP, a limit of the cluster

Each proxy counts alone. A request above a limit is answered 429, and a connection above it is closed.

Lists of client addresses are settings of two filters, for a listener and for a rule: each can only refuse. The address
is that of the connection or PROXY protocol header, or the one behind the trusted hops of X-Forwarded-For.
Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from ipaddress import ip_network
from typing import Literal, cast

import msgspec

from fairlead.api.annotations import Limits
from fairlead.api.names import short_hash
from fairlead.model.http import (
    FRAMING,
    HEADERS_OF_CLIENTS,
    MAX_DURATION_S,
    BackendRef,
    Cors,
    ExternalAuth,
    ExternalProcessor,
    Filters,
    HeaderModifier,
    HeaderValue,
    JWTProvider,
    JWTProviders,
    L7Listener,
    Mirror,
    PathMatch,
    Redirect,
    RequestMatch,
    Route,
    RouteKind,
    Rule,
)
from fairlead.providers.envoy.connection_frontend import source_ranges
from fairlead.providers.envoy.http.route_match import is_every_path, prefix_of
from fairlead.providers.envoy.http.sessions import SESSION_HEADER, session_settings
from fairlead.providers.envoy.resources import Fields, Schema, duration

#: Gives the cluster of a backend; that of an unresolved or unknown one does not exist.
ClusterOf = Callable[[str], str]

_NOT_FOUND = {500: "INTERNAL_SERVER_ERROR", 503: "SERVICE_UNAVAILABLE"}
_MILLION = 1_000_000
_NOTHING_ADDED: Mapping[str, Fields] = {}
#: The stream idle time-out of the connection manager: a rule that may take longer than this has its own.
STREAM_IDLE_S = 300.0
#: Of older kubectl exec, and of docker attach; both are a tunnel once the backend agrees, as a WebSocket is.
UPGRADES = ("websocket", "SPDY/3.1", "tcp")


def status_without_backend(kind: RouteKind, backends: Iterable[BackendRef] = ()) -> int:
    """Return the answer to requests of a rule, or of the share of a rule, without a backend that could be resolved.

    ``backends`` are those of the rule. If none has a weight although one is resolved, it is 503 as without targets.
    Envoy makes UNAVAILABLE of 503 for gRPC, which is what Gateway API asks for; of 500 it makes UNKNOWN.
    """
    of_rule = list(backends)
    drained = not any(backend.weight for backend in of_rule) and any(backend.backend for backend in of_rule)
    return 503 if drained or kind == "GRPC" else 500


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
    if rule.is_undecided:
        return {"direct_response": {"status": 500}}
    if rule.filters.redirect is not None:
        action = redirect_action(rule.filters.redirect, match.path, port=port, secure=secure)
        return {**headers, "redirect": action}
    backends = [backend for backend in rule.backends if backend.weight]
    if not any(backend.backend for backend in backends):
        return {**headers, "direct_response": {"status": status_without_backend(kind, rule.backends)}}
    if len(backends) == 1 and backends[0].filters == Filters() and not added_to_answers:
        clusters: Fields = {"cluster": cluster_of(backends[0].backend)}
    else:
        shares = [_share(backend, cluster_of, added_to_answers) for backend in backends]
        clusters = {"weighted_clusters": {"clusters": shares}}
    route: dict[str, object] = {
        **clusters,
        "cluster_not_found_response_code": _NOT_FOUND[status_without_backend(kind)],
        **_times(rule),
        "retry_policy": retry_policy(schema, rule),
    }
    if rule.session is not None:
        for side in ("request", "response"):
            removed = cast("list[str]", headers.get(f"{side}_headers_to_remove", []))
            headers = {**headers, f"{side}_headers_to_remove": [*removed, SESSION_HEADER]}
    if rule.backend_timeout_ms and rule.retry is None:
        changes = cast("list[Fields]", headers.get("request_headers_to_add", []))
        headers = {**headers, "request_headers_to_add": [*changes, _NO_RETRY_HEADER]}
    if sees_bodies(rule):
        # Upgrades without a body have entries of their own. One with a body would wait for its end, which never comes.
        route["upgrade_configs"] = [{"upgrade_type": name, "enabled": {"value": False}} for name in UPGRADES]
    rewrite = rule.filters.rewrite
    if rewrite is not None and rewrite.hostname:
        route["host_rewrite_literal"] = rewrite.hostname
    if rewrite is not None and rewrite.path is not None:
        if rewrite.path.type == "ReplaceFullPath":
            route |= _regex(_WHOLE_PATH, rewrite.path.value or "/")
        else:
            route |= _prefix(rewrite.path.value, match.path)
    mirrors = [_mirror(mirror, cluster_of) for mirror in mirrors_of(rule) if mirror.backend]
    if mirrors:
        route["request_mirror_policies"] = mirrors
    return {**headers, "route": route}


def refused_rule(rule: Rule) -> Rule:
    """Return the replacement for a rule that cannot be served: its matches, answered 500."""
    return Rule(name=rule.name, matches=rule.matches)


def mirrors_of(rule: Rule) -> list[Mirror]:
    """Return the mirrors of a rule, and those of its backend when it has only one."""
    mirrors = list(rule.filters.mirrors)
    if len(rule.backends) == 1:
        mirrors += rule.backends[0].filters.mirrors
    return mirrors


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
    limits_ms = [time for time in (rule.request_timeout_ms, rule.backend_timeout_ms) if time is not None]
    if 0 in limits_ms:
        fields["idle_timeout"] = duration(0)
    elif limits_ms and max(limits_ms) >= STREAM_IDLE_S * 1000:
        fields["idle_timeout"] = duration(max(limits_ms) / 1000 + 1)
    return fields


def _mirror(mirror: Mirror, cluster_of: ClusterOf) -> Fields:
    numerator = min(_MILLION, round(mirror.numerator * _MILLION / mirror.denominator))
    return {
        "cluster": cluster_of(mirror.backend),
        "runtime_fraction": {"default_value": {"numerator": numerator, "denominator": "MILLION"}},
        "disable_shadow_host_suffix_append": True,
    }


def header_fields(filters: Filters) -> dict[str, object]:
    """Build the header changes of requests and responses; empty if there are none."""
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
    if redirect.path is not None and redirect.path.type == "ReplaceFullPath":
        fields["path_redirect"] = redirect.path.value or "/"
    elif redirect.path is not None:
        fields |= _prefix(redirect.path.value, path)
    return fields


def redirect_port(redirect: Redirect, *, port: int, secure: bool) -> int | None:
    """Return the port to write into the location; None if Envoy writes the right one, or none, by itself."""
    scheme = redirect.scheme or ("https" if secure else "http")
    well_known = WELL_KNOWN_PORTS[scheme]
    wanted = redirect.port or (well_known if redirect.scheme else port)
    if wanted != well_known or redirect.port:
        return wanted
    # With a new host Envoy writes no port. Without one it keeps that of the Host header, which belongs to the old
    # scheme.
    return None if redirect.hostname or not redirect.scheme else wanted


_WHOLE_PATH = "(?s)^.+$"


def removed_prefix(path: PathMatch) -> str:
    """Return the expression of the text that is replaced by a slash when the prefix is removed."""
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


CORS = "envoy.filters.http.cors"
#: Refuse clients by the lists of a rule, and by those of a listener: a route cannot replace the settings of the latter.
SOURCES = "envoy.filters.http.rbac"
LISTENER_SOURCES = f"{SOURCES}.listener"
HTTP_RBAC = "envoy.extensions.filters.http.rbac.v3.RBAC"
_NETWORK_RBAC = "envoy.filters.network.rbac"
_RBAC_OF_ROUTE = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"


def source_settings(schema: Schema, of: Rule | L7Listener) -> Fields:
    """Build the settings of a filter that answers 403 to clients that the lists exclude."""
    return schema.any(_RBAC_OF_ROUTE, {"rbac": {"rules": _excluded_sources(of)}})


def connection_sources(schema: Schema, of: L7Listener, stat_prefix: str) -> list[Fields]:
    """Build the filter that closes connections of clients that the lists exclude; none without lists."""
    if not of.checks_sources:
        return []
    kind = "envoy.extensions.filters.network.rbac.v3.RBAC"
    return [schema.extension(_NETWORK_RBAC, kind, {"rules": _excluded_sources(of), "stat_prefix": stat_prefix})]


def _excluded_sources(of: Rule | L7Listener) -> Fields:
    """Build the rules; access logs have the name of the policy as the reason of the 403."""
    policies: dict[str, list[Fields]] = {}
    if of.denied_sources:
        policies["in_deniedSources"] = _principals(of.denied_sources)
    if of.allowed_sources:
        policies["not_in_allowedSources"] = [{"not_id": {"or_ids": {"ids": _principals(of.allowed_sources)}}}]
    return {
        "action": "DENY",
        "policies": {
            name: {"permissions": [{"any": True}], "principals": principals} for name, principals in policies.items()
        },
    }


def _principals(ranges: Iterable[str]) -> list[Fields]:
    """Return the clients of ranges; a proxy in front may write an IPv4 address as one of IPv6."""
    ranges = list(ranges)
    networks = [ip_network(text, strict=False) for text in ranges]
    mapped = [
        f"::ffff:{network.network_address}/{96 + network.prefixlen}" for network in networks if network.version == 4
    ]
    return [{"remote_ip": source} for source in source_ranges([*ranges, *mapped])]


EXT_AUTHZ = "envoy.filters.http.ext_authz"
#: The same for rules whose requests pass while the service does not answer.
EXT_AUTHZ_OPEN = f"{EXT_AUTHZ}.open"
EXT_AUTHZ_CONFIG = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
#: Removes what only the external service may write, and what it would not be shown.
HEADER_MUTATION = "envoy.filters.http.header_mutation"
_HEADER_MUTATION = "envoy.extensions.filters.http.header_mutation.v3"
#: How long the external service may take.
AUTH_S = 5.0
#: Describe the answer of the external service and its connection, and not the request to the backend.
_OF_ANSWERS = (
    "connection", "content-encoding", "content-length", "content-type", "date", "expect", "host", "keep-alive",
    "proxy-authenticate", "proxy-authorization", "proxy-connection", "server", "set-cookie", "te", "trailer",
    "transfer-encoding", "upgrade",
)  # fmt: skip


def auth_settings(schema: Schema, auth: ExternalAuth, cluster_of: ClusterOf) -> dict[str, Fields]:
    """Build the settings of the filters that ask an external service."""
    cluster, time = cluster_of(auth.backend), duration(AUTH_S)
    names = sorted({name.lower() for name in auth.allowed_headers} - {"host"})  # the service is shown the host anyway
    shown = [{"key": name, "value": f"%REQ({name})%"} for name in names]
    check: dict[str, object] = {"disable_request_body_buffering": not auth.max_size}
    if auth.max_size:
        check = {"with_request_body": {"max_request_bytes": auth.max_size, "pack_as_bytes": True}}
    if auth.protocol == "GRPC":
        check["grpc_service"] = {"envoy_grpc": {"cluster_name": cluster}, "timeout": time}
    else:
        to_backend = [{"exact": name, "ignore_case": True} for name in auth.allowed_response_headers]
        service: dict[str, object] = {
            "server_uri": {"uri": "http://auth", "cluster": cluster, "timeout": time},
            "authorization_response": {
                "allowed_upstream_headers": {
                    "patterns": to_backend or [{"safe_regex": {"regex": all_but(_OF_ANSWERS)}}]
                }
            },
        }
        if auth.path:
            service["path_prefix"] = auth.path.rstrip("/")
        if shown:
            service["authorization_request"] = {"headers_to_add": shown}
        check["http_service"] = service
    name = EXT_AUTHZ_OPEN if auth.fail_open else EXT_AUTHZ
    settings = {name: schema.any(f"{EXT_AUTHZ_CONFIG}PerRoute", {"check_settings": check})}
    # Of several headers with one name the service is shown the first: the backend must not get another one.
    once = [{"append": {"header": header, "append_action": "OVERWRITE_IF_EXISTS"}} for header in shown]
    removed = sorted({name.lower() for name in auth.allowed_response_headers} - {*names, *HEADERS_OF_CLIENTS})
    if once or removed:
        mutations = {"request_mutations": [*once, *({"remove": name} for name in removed)]}
        settings[HEADER_MUTATION] = schema.any(f"{_HEADER_MUTATION}.HeaderMutationPerRoute", {"mutations": mutations})
    return settings


def auth_filters(schema: Schema) -> list[Fields]:
    """Return the filters that ask external services, disabled: the settings of a rule name the service."""
    nowhere = {"server_uri": {"uri": "http://auth", "cluster": "unset", "timeout": duration(AUTH_S)}}
    common: Fields = {"http_service": nowhere, "status_on_error": {"code": "ServiceUnavailable"}}
    filters = [
        schema.extension(HEADER_MUTATION, f"{_HEADER_MUTATION}.HeaderMutation"),
        schema.extension(EXT_AUTHZ, EXT_AUTHZ_CONFIG, common),
        schema.extension(EXT_AUTHZ_OPEN, EXT_AUTHZ_CONFIG, {**common, "failure_mode_allow": True}),
    ]
    return [{**entry, "disabled": True} for entry in filters]


_EXT_PROC = "envoy.extensions.filters.http.ext_proc.v3"


def processor_filters(schema: Schema, timeouts_ms: Iterable[int]) -> list[Fields]:
    """Return the filters that have services inspect requests, disabled: the settings of a rule name the service.

    Only the filter has the time-out, so there is one for each. A request stays at the rule that has chosen the service.
    """
    framing = {"regex": "|".join(map(re.escape, sorted(FRAMING))) + "|proxy-.*"}
    common: Fields = {
        "grpc_service": {"envoy_grpc": {"cluster_name": "unset"}},
        "processing_mode": _PROCESSED,
        # Addresses and paths are what later filters and the backend decide by.
        "mutation_rules": {"disallow_system": {"value": True}, "disallow_expression": framing},
        "route_cache_action": "RETAIN",
        "status_on_error": {"code": "ServiceUnavailable"},
    }
    filters = [
        schema.extension(
            processor_filter(ms), f"{_EXT_PROC}.ExternalProcessor", {**common, "message_timeout": duration(ms / 1000)}
        )
        for ms in sorted(timeouts_ms)
    ]
    return [{**entry, "disabled": True} for entry in filters]


#: The filter never sees the response.
_PROCESSED: Fields = {
    "request_header_mode": "SEND",
    "response_header_mode": "SKIP",
    "request_body_mode": "NONE",
    "response_body_mode": "NONE",
    "request_trailer_mode": "SKIP",
    "response_trailer_mode": "SKIP",
}


def processor_filter(timeout_ms: int) -> str:
    """Name the filter whose services may take so many milliseconds."""
    return f"envoy.filters.http.ext_proc.{timeout_ms}ms"


def processor_settings(schema: Schema, processor: ExternalProcessor, cluster_of: ClusterOf) -> dict[str, Fields]:
    """Build the settings of the filter that has a service inspect requests."""
    overrides: Fields = {
        "grpc_service": {"envoy_grpc": {"cluster_name": cluster_of(processor.backend)}},
        "processing_mode": {**_PROCESSED, "request_body_mode": "BUFFERED" if processor.max_size else "NONE"},
        "failure_mode_allow": {"value": processor.fail_open},
    }
    settings = schema.any(f"{_EXT_PROC}.ExtProcPerRoute", {"overrides": overrides})
    return {processor_filter(processor.timeout_ms): settings}


def sees_bodies(rule: Rule) -> bool:
    """Return whether bodies of requests are buffered for a processor: an upgrade, whose body never ends, would hang."""
    return rule.processor is not None and rule.processor.max_size > 0


JWT = "envoy.filters.http.jwt_authn"
_JWT = "envoy.extensions.filters.http.jwt_authn.v3"
#: Refuses tokens whose claims do not fit.
CLAIMS = f"{SOURCES}.claims"
_JWKS_S = 5.0
#: Claims with several values in one text, which are compared one by one.
_LISTED_CLAIMS = ("scope", "scp")


def jwt_filters(schema: Schema, asked: Collection[JWTProviders], cluster_of: ClusterOf) -> list[Fields]:
    """Return the filters that check tokens, disabled: the settings of a rule name one of ``asked``, else 403.

    They hold the keys, so keys outlive a change of routes, and not one of the listener.
    """
    providers = {_jwt_name(each): _jwt_provider(each, cluster_of) for listed in asked for each in listed}
    requirements = {
        _jwt_name(*listed): {"requires_any": {"requirements": [{"provider_name": _jwt_name(each)} for each in listed]}}
        if len(listed) > 1
        else {"provider_name": _jwt_name(*listed)}
        for listed in asked
    }
    config = {
        "providers": dict(sorted(providers.items())),
        "requirement_map": dict(sorted(requirements.items())),
        "strip_failure_response": True,
    }
    filters = [schema.extension(JWT, f"{_JWT}.JwtAuthentication", config), schema.extension(CLAIMS, HTTP_RBAC)]
    return [{**each, "disabled": True} for each in filters]


def _jwt_name(*providers: JWTProvider) -> str:
    return short_hash(msgspec.json.encode(providers).decode())


def _jwt_provider(provider: JWTProvider, cluster_of: ClusterOf) -> Fields:
    fields: dict[str, object] = {
        "issuer": provider.issuer,
        "audiences": list(provider.audiences),
        "forward": True,
        # A token in a query would be in access logs.
        "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
        "payload_in_metadata": _jwt_name(provider),
        "normalize_payload_in_metadata": {"space_delimited_claims": list(_LISTED_CLAIMS)},
        "claim_to_headers": [{"claim_name": m.claim, "header_name": m.header} for m in provider.claim_to_headers],
    }
    if provider.jwks:
        return {**fields, "local_jwks": {"inline_string": provider.jwks}}
    http_uri = {"uri": provider.uri, "cluster": cluster_of(provider.backend), "timeout": duration(_JWKS_S)}
    # Read in the background, keys never expire: the last ones are kept while they cannot be read.
    fetch = {"failed_refetch_duration": duration(1.0)}
    cached = duration(provider.cache_seconds)
    return {**fields, "remote_jwks": {"http_uri": http_uri, "cache_duration": cached, "async_fetch": fetch}}


def jwt_settings(schema: Schema, providers: JWTProviders) -> dict[str, Fields]:
    """Build the settings of the filters that check tokens."""
    named = {"requirement_name": _jwt_name(*providers)}
    settings = {JWT: schema.any(f"{_JWT}.PerRouteConfig", named)}
    if any(provider.required_claims for provider in providers):
        policy = {"permissions": [{"any": True}], "principals": list(map(_with_claims, providers))}
        rules = {"action": "ALLOW", "policies": {"claims": policy}}
        settings[CLAIMS] = schema.any(_RBAC_OF_ROUTE, {"rbac": {"rules": rules}})
    return settings


def _with_claims(provider: JWTProvider) -> Fields:
    """Return who has a token of ``provider`` with all claims that it requires."""
    wanted: list[tuple[list[str], Sequence[str]]] = [(["iss"], [provider.issuer])]
    for claim in provider.required_claims:
        # A name that is a URI has dots of its own.
        path = [claim.name] if "/" in claim.name else claim.name.split(".")
        wanted.append((path, claim.values))
    return {"and_ids": {"ids": [_claim(_jwt_name(provider), path, values) for path, values in wanted]}}


def _claim(payload: str, path: Iterable[str], values: Iterable[str]) -> Fields:
    texts: list[Fields] = [{"string_match": {"exact": value}} for value in values]
    texts += [{"bool_match": value == "true"} for value in values if value in {"true", "false"}]
    either = [*texts, *({"list_match": {"one_of": text}} for text in texts)]
    matcher = {
        "filter": JWT,
        "path": [{"key": key} for key in (payload, *path)],
        "value": {"or_match": {"value_matchers": either}},
    }
    return {"sourced_metadata": {"metadata_matcher": matcher}}


def all_but(names: Collection[str]) -> str:
    """Return an expression that matches every text except ``names``; RE2 has no look-ahead."""
    heads = sorted({name[0] for name in names if name})
    if not heads:
        return ".+" if names else ".*"
    parts = [f"[^{re.escape(''.join(heads))}].*"]
    parts += [re.escape(head) + all_but({name[1:] for name in names if name.startswith(head)}) for head in heads]
    optional = "" if "" in names else "?"
    return f"(?:{'|'.join(parts)}){optional}"


def filter_settings(schema: Schema, route: Route, rule: Rule, cluster_of: ClusterOf) -> dict[str, Fields]:
    """Build the settings by filter; empty when the rule has none."""
    settings = {**session_settings(schema, route, rule)}
    if rule.filters.auth is not None and rule.filters.auth.backend:
        settings |= auth_settings(schema, rule.filters.auth, cluster_of)
    if rule.processor is not None and not rule.is_undecided:
        settings |= processor_settings(schema, rule.processor, cluster_of)
    if rule.jwt and not rule.is_undecided:
        settings |= jwt_settings(schema, rule.jwt)
    if rule.checks_sources:
        settings[SOURCES] = source_settings(schema, rule)
    if rule.filters.cors is not None:
        settings[CORS] = schema.any("envoy.extensions.filters.http.cors.v3.CorsPolicy", _cors(rule.filters.cors))
    return settings


def origin_regex(origin: str) -> str:
    """Return the expression of an origin; a star matches any characters."""
    return ".*".join(re.escape(part) for part in origin.split("*"))


def _cors(cors: Cors) -> Fields:
    return {
        "allow_origin_string_match": [
            {"safe_regex": {"regex": origin_regex(origin)}} if "*" in origin else {"exact": origin}
            for origin in cors.allow_origins
        ],
        "allow_methods": _list(cors.allow_methods),
        "allow_headers": _list(cors.allow_headers),
        "expose_headers": ", ".join(cors.expose_headers),
        "max_age": str(cors.max_age),
        "allow_credentials": {"value": cors.allow_credentials},
        # The default sends the preflight of a foreign origin to the backend.
        "forward_not_matching_preflights": {"value": False},
    }


def _list(values: tuple[str, ...]) -> str:
    # Envoy answers a lone star with what was asked for, which holds with credentials too.
    return "*" if "*" in values else ", ".join(values)


_NEVER_PROCESSED = "connect-failure,refused-stream,reset-before-request"
_RETRY_ON = "x-envoy-retry-on"
#: A server that closes an idle connection cuts the request that is sent at the same moment. Envoy ignores ``none``.
RETRY_HEADER: Fields = {
    "header": {"key": _RETRY_ON, "value": "%CEL(request.method in ['GET', 'HEAD', 'OPTIONS'] ? 'reset' : 'none')%"},
    "append_action": "ADD_IF_ABSENT",
}
#: Of a rule with a time-out of its own and no retry: a try that took too long was cut, too, and is its answer.
_NO_RETRY_HEADER: Fields = {
    "header": {"key": _RETRY_ON, "value": "none"},
    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
}
#: A dead pod of two costs no request.
_CONNECT_ATTEMPTS = 3


def retry_policy(schema: Schema, rule: Rule) -> Fields:
    """Build the policy."""
    retry = rule.retry
    conditions, attempts = _NEVER_PROCESSED, _CONNECT_ATTEMPTS
    fields: dict[str, object] = {}
    if retry is not None:
        attempts = retry.attempts
        # A reset and a time-out are failures as well as the status codes are.
        conditions = f"{_NEVER_PROCESSED},reset,retriable-status-codes"
        fields["retriable_status_codes"] = list(retry.codes)
        if retry.backoff_ms:
            base_s = retry.backoff_ms / 1000
            longest_s = max(base_s, min(10 * base_s, MAX_DURATION_S))
            fields["retry_back_off"] = {"base_interval": duration(base_s), "max_interval": duration(longest_s)}
    if rule.backend_timeout_ms:
        fields["per_try_timeout"] = duration(rule.backend_timeout_ms / 1000)
    previous_hosts = schema.extension(
        "envoy.retry_host_predicates.previous_hosts",
        "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
    )
    return {
        **fields,
        "retry_on": conditions,
        "num_retries": {"value": attempts},
        "retry_host_predicate": [previous_hosts],
        "host_selection_retry_max_attempts": 3,
    }


RATE_LIMIT = "envoy.filters.http.local_ratelimit"
LOCAL_RATE_LIMIT = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
#: A route with a limited rule has the name of its bucket in its metadata, under this key.
_METADATA, BUCKET, LOG = "fairlead", "bucket", "log"
_CLASS_RATE_LIMIT = f"{RATE_LIMIT}.class"
_ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
#: Names the value of the header by which requests are limited; the value of requests without it.
_KEY, _ABSENT = "key", "absent"
#: How many clients, or values of a header, have a bucket each; the one that was not used for longest is forgotten.
_MOST_KEYS = 10_000
NO_LIMITS = Limits()
#: Of requests whose rule has no limit, while another rule of the configuration has one.
_UNLIMITED = 2**32 - 1


def class_rate_limit(schema: Schema, requests_per_second: int) -> list[Fields]:
    """Return the filter of a listener's requests, none without a limit."""
    if not requests_per_second:
        return []
    return [schema.extension(_CLASS_RATE_LIMIT, LOCAL_RATE_LIMIT, _settings(requests_per_second))]


def rate_limits(buckets: Mapping[str, int], limits: Limits = NO_LIMITS) -> Fields:
    """Return the limits of a route configuration: those of its load balancer, and buckets of rules by name."""
    descriptors: list[Fields] = [
        {"entries": [{"key": BUCKET, "value": name}], "token_bucket": _bucket(limit)}
        for name, limit in sorted(buckets.items())
    ]
    rest = {**_settings(_UNLIMITED), "max_dynamic_descriptors": {"value": _MOST_KEYS}}
    by_key: list[Fields] = []
    if limits.requests_per_second and not limits.key:
        rest = _settings(limits.requests_per_second, limits.burst)
    elif limits.requests_per_second:
        bucket = _bucket(limits.requests_per_second, limits.burst)
        # A descriptor without a value has a bucket for each value.
        descriptors.append({"entries": [{"key": _KEY}], "token_bucket": bucket})
        if limits.by_client:
            # A client chooses among 2^64 addresses of its own network.
            masked = {"v4_prefix_mask_len": {"value": 32}, "v6_prefix_mask_len": {"value": 64}}
            by_key.append({"actions": [{"masked_remote_address": masked}]})
            descriptors[-1] = {"entries": [{"key": "masked_remote_address"}], "token_bucket": bucket}
        else:
            by_key += _by_header(limits.header)
            # Requests without the header count together.
            descriptors.append({"entries": [{"key": "header_match", "value": _ABSENT}], "token_bucket": bucket})
    named_by_route = {
        "metadata": {
            "descriptor_key": BUCKET,
            "metadata_key": {"key": _METADATA, "path": [{"key": BUCKET}]},
            "source": "ROUTE_ENTRY",
            "skip_if_absent": True,
        }
    }
    of_rules: list[Fields] = [{"actions": [named_by_route]}] if buckets else []
    return {**rest, "descriptors": descriptors, "rate_limits": [*of_rules, *by_key]}


def _by_header(name: str) -> list[Fields]:
    """Return the descriptor of a request: the value of a header, or its absence."""
    absent = {"name": name, "present_match": True, "invert_match": True}
    return [
        {"actions": [{"request_headers": {"header_name": name, "descriptor_key": _KEY}}]},
        {"actions": [{"header_value_match": {"descriptor_value": _ABSENT, "headers": [absent]}}]},
    ]


BANDWIDTH_LIMIT = "envoy.filters.http.bandwidth_limit"
BANDWIDTH_CONFIG = "envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimit"


def bandwidth_limit(schema: Schema, kib: int) -> Fields:
    """Return the settings of a route configuration that limit requests, and responses, to so many KiB a second."""
    fields = {
        "stat_prefix": "bandwidth_limit",
        "enable_mode": "REQUEST_AND_RESPONSE",
        "limit_kbps": {"value": kib},
        "fill_interval": duration(0.05),
    }
    return schema.any(BANDWIDTH_CONFIG, fields)


def route_metadata(marks: Mapping[str, str]) -> Fields:
    """Return the metadata of a route: the bucket in which its requests count, its log, and its share of traces."""
    fields = {name: {"string_value": text} for name, text in marks.items()}
    return {"filter_metadata": {_METADATA: {"fields": fields}}}


def _settings(requests_per_second: int, burst: int = 0) -> dict[str, object]:
    return {
        "stat_prefix": "rate_limit",
        "token_bucket": _bucket(requests_per_second, burst),
        "response_headers_to_add": [{"header": {"key": "retry-after", "value": "1"}}],
        "filter_enabled": _ALWAYS,
        "filter_enforced": _ALWAYS,
    }


def _bucket(requests_per_second: int, burst: int = 0) -> Fields:
    """Return a bucket that gets so many tokens each second, and holds ``burst``, or as many."""
    return {
        "max_tokens": burst or requests_per_second,
        "tokens_per_fill": {"value": requests_per_second},
        "fill_interval": duration(1.0),
    }
