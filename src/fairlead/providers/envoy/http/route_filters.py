"""The settings of a rule for the HTTP filters of its listener: CORS, session persistence.

In: a route and its rule. Out: ``typed_per_filter_config`` of a Route. The filters are in every connection manager and
do nothing without these, so that a rule that needs one changes no listener. Requirements: G-78.
"""

from __future__ import annotations

import re

from fairlead.model.http import Cors, Route, Rule
from fairlead.providers.envoy.http.sessions import session_settings
from fairlead.providers.envoy.schema import Fields, Schema

CORS = "envoy.filters.http.cors"


def filter_settings(schema: Schema, route: Route, rule: Rule) -> dict[str, Fields]:
    """Build the settings by filter; empty when the rule has none."""
    settings = {**session_settings(schema, route, rule)}
    if rule.filters.cors is not None:
        settings[CORS] = schema.any("envoy.extensions.filters.http.cors.v3.CorsPolicy", _cors(rule.filters.cors))
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
