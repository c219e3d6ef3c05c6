"""Limits of requests and connections at a proxy.

    requestsPerSecond of a class    a filter of the listener, before all others: no route can change it
    requests per second of a rule   a bucket in the route configuration, shared by all matches and hostnames of the rule
    connections of a class          a filter of each chain of connections; of UDP, a limit of the cluster

In: numbers, 0 for no limit. Out: settings of Envoy's local rate limit, which counts in each proxy alone, and its limit
of connections. A request above a limit is answered 429, and a connection above it is closed.
Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/local_rate_limit_filter
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.providers.envoy.schema import Fields, Schema, duration

RATE_LIMIT = "envoy.filters.http.local_ratelimit"
LOCAL_RATE_LIMIT = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
#: A route with a limited rule has the name of its bucket in its metadata, under this key.
_METADATA, _BUCKET = "fairlead", "bucket"
_CLASS_RATE_LIMIT = f"{RATE_LIMIT}.class"
_ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
#: Of requests whose rule has no limit, while another rule of the configuration has one.
_UNLIMITED = 2**32 - 1


def class_rate_limit(schema: Schema, requests_per_second: int) -> list[Fields]:
    """Return the filter of a listener's requests, none without a limit."""
    if not requests_per_second:
        return []
    return [schema.extension(_CLASS_RATE_LIMIT, LOCAL_RATE_LIMIT, _settings(requests_per_second))]


def rule_rate_limits(buckets: Mapping[str, int]) -> Fields:
    """Return the settings of a route configuration: a bucket by name, with the requests of a second."""
    descriptors = [
        {"entries": [{"key": _BUCKET, "value": name}], "token_bucket": _bucket(limit)}
        for name, limit in sorted(buckets.items())
    ]
    named_by_route = {
        "metadata": {
            "descriptor_key": _BUCKET,
            "metadata_key": {"key": _METADATA, "path": [{"key": _BUCKET}]},
            "source": "ROUTE_ENTRY",
            "skip_if_absent": True,
        }
    }
    return {**_settings(_UNLIMITED), "descriptors": descriptors, "rate_limits": [{"actions": [named_by_route]}]}


def in_bucket(name: str) -> Fields:
    """Return the metadata of a route whose requests count in the bucket ``name``."""
    return {"filter_metadata": {_METADATA: {"fields": {_BUCKET: {"string_value": name}}}}}


def _settings(requests_per_second: int) -> dict[str, object]:
    return {
        "stat_prefix": "rate_limit",
        "token_bucket": _bucket(requests_per_second),
        "filter_enabled": _ALWAYS,
        "filter_enforced": _ALWAYS,
    }


def _bucket(requests_per_second: int) -> Fields:
    """Return a bucket that holds, and gets, as many tokens each second."""
    return {
        "max_tokens": requests_per_second,
        "tokens_per_fill": {"value": requests_per_second},
        "fill_interval": duration(1.0),
    }


def connection_limit(schema: Schema, connections: int) -> list[Fields]:
    """Return the filter of a listener's connections, none without a limit."""
    if not connections:
        return []
    kind = "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit"
    fields = {"stat_prefix": "connection_limit", "max_connections": {"value": connections}}
    return [schema.extension("envoy.filters.network.connection_limit", kind, fields)]
