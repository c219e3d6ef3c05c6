"""Limits of requests and connections at a proxy.

In: numbers, 0 for no limit. Out: settings of Envoy's local rate limit, which counts in each proxy alone, and its limit
of connections. A request above the limit is answered 429, and a connection above it is closed.
Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/local_rate_limit_filter
"""

from __future__ import annotations

from fairlead.providers.envoy.schema import Fields, Schema, duration

RATE_LIMIT = "envoy.filters.http.local_ratelimit"
LOCAL_RATE_LIMIT = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
_ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}


def rate_limit(requests_per_second: int) -> Fields:
    """Return the settings of a listener or a rule: a bucket that holds, and gets, as many tokens each second."""
    if not requests_per_second:
        return {"stat_prefix": "rate_limit"}
    bucket = {
        "max_tokens": requests_per_second,
        "tokens_per_fill": {"value": requests_per_second},
        "fill_interval": duration(1.0),
    }
    return {
        "stat_prefix": "rate_limit",
        "token_bucket": bucket,
        "filter_enabled": _ALWAYS,
        "filter_enforced": _ALWAYS,
    }


def connection_limit(schema: Schema, connections: int) -> list[Fields]:
    """Return the filter of a listener's connections, none without a limit."""
    if not connections:
        return []
    kind = "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit"
    fields = {"stat_prefix": "connection_limit", "max_connections": {"value": connections}}
    return [schema.extension("envoy.filters.network.connection_limit", kind, fields)]
