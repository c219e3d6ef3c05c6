"""The loggers of a listener: none where nothing is asked for, and which parameters are refused."""

from __future__ import annotations

import json

import pytest

from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.access_log import (
    ACCESS_LOG,
    ACCESS_LOG_SINK,
    Kind,
    access_log_of,
    access_logs,
    invalid_access_log,
)
from fairlead.providers.envoy.resources import packaged_schema

pytestmark = pytest.mark.req("F-14")

KEY = LoadBalancerKey("HTTPLoadBalancer", "tenant-west", "main")


def loggers(kind: Kind, **parameters: str) -> list[str]:
    built = access_logs(packaged_schema(), access_log_of(parameters), kind, KEY)
    return [str(each["name"]) for each in built]


@pytest.mark.parametrize("kind", ["request", "connection", "session"])
def test_nothing_is_logged_by_default(kind: Kind) -> None:
    assert loggers(kind) == loggers(kind, accessLog="off") == loggers(kind, accessLog='{"format": "off"}') == []


def test_the_plain_form_logs_requests_alone() -> None:
    assert loggers("request", accessLog="json") == ["envoy.access_loggers.stdout"]
    assert loggers("connection", accessLog="json") == loggers("session", accessLog="json") == []
    assert loggers("session", accessLog="{}") == ["envoy.access_loggers.stdout"]


def test_a_sink_is_a_file_or_a_collector() -> None:
    assert loggers("request", accessLog="{}", accessLogSink="file:/x") == ["envoy.access_loggers.file"]
    collector = loggers("request", accessLog="{}", accessLogSink="otlp://[2001:db8::1]:4317")
    assert collector == ["envoy.access_loggers.open_telemetry"]


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({ACCESS_LOG_SINK: "file:relative"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "otlp:collector:4317"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "otlp://collector"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "otlp://collector:0"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "syslog"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG: json.dumps({"sampling": 200})}, "sampling"),
        ({ACCESS_LOG: "xml"}, ACCESS_LOG),
    ],
)
def test_an_invalid_parameter_is_named(parameters: dict[str, str], named: str) -> None:
    (problem,) = invalid_access_log(parameters)
    assert named in problem
