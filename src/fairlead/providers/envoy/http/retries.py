"""The RetryPolicy of a rule.

In: a rule. Out: fields of a RetryPolicy. Without a word of the user only what never reached a backend is sent again:
connections that fail, and streams that the backend refused to process.
"""

from __future__ import annotations

from fairlead.model.http import MAX_DURATION_S, Rule
from fairlead.providers.envoy.schema import Fields, Schema, duration

_NEVER_PROCESSED = "connect-failure,refused-stream,reset-before-request"
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
