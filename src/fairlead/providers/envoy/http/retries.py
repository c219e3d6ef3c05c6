"""The RetryPolicy of a rule.

    the rule has         is sent again
    -------------------  ------------------------------------------------------------------------------------------
    no retry             what never reached a backend; of GET, HEAD and OPTIONS also what was cut without an answer
    a retry of its own   what never reached a backend, was cut, took too long or got one of the codes: any method

Envoy limits a policy to methods as a whole only. What holds for safe methods is in a header that every request of the
route configuration has on its way to the router, which removes it.
In: a rule. Out: fields of a RetryPolicy.
Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter
"""

from __future__ import annotations

from fairlead.model.http import MAX_DURATION_S, Rule
from fairlead.providers.envoy.schema import Fields, Schema, duration

_NEVER_PROCESSED = "connect-failure,refused-stream,reset-before-request"
_RETRY_ON = "x-envoy-retry-on"
#: A server that closes an idle connection cuts the request that is sent at the same moment. Envoy ignores ``none``.
RETRY_HEADER: Fields = {
    "header": {"key": _RETRY_ON, "value": "%CEL(request.method in ['GET', 'HEAD', 'OPTIONS'] ? 'reset' : 'none')%"},
    "append_action": "ADD_IF_ABSENT",
}
#: A try that took too long was cut, too: it is the answer that the rule asked for.
_NO_RETRY_HEADER: Fields = {
    "header": {"key": _RETRY_ON, "value": "none"},
    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
}
#: A dead pod of two costs no request.
_CONNECT_ATTEMPTS = 3


def retry_headers(rule: Rule) -> list[Fields]:
    """Return what keeps ``RETRY_HEADER`` away from the requests of a rule; empty where it may hold."""
    return [_NO_RETRY_HEADER] if rule.backend_timeout_ms and rule.retry is None else []


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
