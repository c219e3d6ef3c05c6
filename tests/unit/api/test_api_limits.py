"""The limits that users set: what is read, and what is refused with its field."""

from __future__ import annotations

import pytest

from fairlead.api.annotations import Limits, connection_limits_problem, kib_per_second, read_limits

pytestmark = pytest.mark.req("F-18")


def test_limits_are_read() -> None:
    assert read_limits("") == Limits()
    limits = read_limits('{"requestsPerSecond": 5, "burst": 9, "key": "header:X-Api-Key", "bandwidth": "10Mi"}')
    assert (limits.requests_per_second, limits.burst, limits.bandwidth_kib) == (5, 9, 10_240)
    assert (limits.header, limits.by_client) == ("x-api-key", False)
    by_client = read_limits('{"requestsPerSecond": 5, "key": "client", "connections": 7}')
    assert (by_client.header, by_client.by_client, by_client.connections) == ("", True, 7)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("x", "JSON"),
        ("[]", "object"),
        ('{"requests": 5}', "requests"),
        ('{"requestsPerSecond": -1}', "requestsPerSecond"),
        ('{"requestsPerSecond": "5"}', "requestsPerSecond"),
        ('{"requestsPerSecond": 5, "burst": 4}', "burst"),
        ('{"burst": 4}', "requestsPerSecond"),
        ('{"key": "client"}', "requestsPerSecond"),
        ('{"requestsPerSecond": 5, "key": "cookie"}', "key"),
        ('{"requestsPerSecond": 5, "key": "header:"}', "key"),
        ('{"requestsPerSecond": 5, "key": "header:a b"}', "key"),
        ('{"bandwidth": "10MB"}', "bandwidth"),
        ('{"bandwidth": "0Mi"}', "bandwidth"),
        ('{"bandwidth": "9999999999Gi"}', "bandwidth"),
        ('{"connections": 10000001}', "connections"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        read_limits(text)


def test_a_load_balancer_of_connections_limits_connections_alone() -> None:
    assert connection_limits_problem('{"connections": 5}') == ""
    assert "connections" in connection_limits_problem('{"bandwidth": "1Mi"}')
    assert "connections" in connection_limits_problem('{"requestsPerSecond": 5}')
    assert kib_per_second("512Ki") == 512
