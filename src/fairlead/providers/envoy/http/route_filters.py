"""The settings of a rule for the HTTP filters of its listener: CORS, session persistence.

In: a rule. Out: ``typed_per_filter_config`` of a Route. The filters are in every connection manager and do nothing
without these, so that a rule that needs one changes no listener. Requirements: G-78, G-111.
"""

from __future__ import annotations

import re

from fairlead.model.http import Cors, Rule, SessionPersistence
from fairlead.providers.envoy.schema import Fields, Schema, duration

CORS = "envoy.filters.http.cors"
STATEFUL_SESSION = "envoy.filters.http.stateful_session"
_DEFAULT_SESSION_NAME = "fairlead-session"


def filter_settings(schema: Schema, rule: Rule) -> dict[str, Fields]:
    """Build the settings by filter; empty when the rule has none."""
    settings: dict[str, Fields] = {}
    if rule.filters.cors is not None:
        settings[CORS] = schema.any("envoy.extensions.filters.http.cors.v3.CorsPolicy", _cors(rule.filters.cors))
    if rule.session is not None:
        settings[STATEFUL_SESSION] = schema.any(
            "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",
            {"stateful_session": {"session_state": _session(schema, rule.session)}},
        )
    return settings


def origin_regex(origin: str) -> str:
    """Return the expression of an origin in which a star stands for any characters."""
    return ".*".join(re.escape(part) for part in origin.split("*"))


def _cors(cors: Cors) -> Fields:
    return {
        "allow_origin_string_match": [_origin(origin) for origin in cors.allow_origins],
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


def _origin(origin: str) -> Fields:
    if "*" in origin:
        return {"safe_regex": {"regex": origin_regex(origin)}}
    return {"exact": origin}


def _session(schema: Schema, session: SessionPersistence) -> Fields:
    name = session.name or _DEFAULT_SESSION_NAME
    if session.type == "Header":
        return schema.extension(
            "envoy.http.stateful_session.header",
            "envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState",
            {"name": name},
        )
    cookie: dict[str, object] = {"name": name, "path": "/", "attributes": [{"name": "HttpOnly"}]}
    if session.absolute_timeout_s:
        cookie["ttl"] = duration(session.absolute_timeout_s)
    return schema.extension(
        "envoy.http.stateful_session.cookie",
        "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
        {"cookie": cookie},
    )
