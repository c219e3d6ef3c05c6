"""The loggers of a listener: none where nothing is asked for, and which parameters are refused."""

from __future__ import annotations

import json

import pytest

from fairlead.api.annotations import Fraction
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.clusters import SYSTEM_AUTHORITIES, collector_clusters
from fairlead.providers.envoy.resources import EncodedResource, packaged_schema
from fairlead.providers.envoy.settings import (
    ACCESS_LOG,
    ACCESS_LOG_SINK,
    COLLECTOR_CA,
    TRACING,
    TRACING_SINK,
    Kind,
    access_log_of,
    access_logs,
    invalid_access_log,
    invalid_tracing,
    traced_below,
)
from fairlead_demo.worlds.certificates import self_signed

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


def test_a_collector_over_tls_is_verified_by_the_authorities_of_the_class() -> None:
    bundle = self_signed("collector.internal")[0].decode()
    parameters = {ACCESS_LOG: "{}", ACCESS_LOG_SINK: "otlps://collector:4317", COLLECTOR_CA: f"\ufeff{bundle}"}
    assert list(invalid_access_log(parameters)) == []
    for of_routes in ((), ("json",)):  # also the log of a route
        built = access_logs(packaged_schema(), access_log_of(parameters), "request", KEY, of_routes)
        assert all(bundle.encode() in logger["typed_config"]["value"] for logger in built)  # type: ignore[index]
        assert len(built) == 1 + len(of_routes)
        assert not any(b"\xef\xbb\xbf" in logger["typed_config"]["value"] for logger in built)  # type: ignore[index]
    parameters[COLLECTOR_CA] = bundle + bundle[:200]
    assert [problem.partition(":")[0] for problem in invalid_access_log(parameters)] == [COLLECTOR_CA]
    # A version that is on record is served as it is.
    assert len(access_logs(packaged_schema(), access_log_of(parameters), "request", KEY, ())) == 1


@pytest.mark.req("F-15")
@pytest.mark.parametrize(
    ("tracing", "named"),
    [
        ({TRACING: "{}"}, TRACING_SINK),
        ({TRACING_SINK: "grpc://collector:4318"}, TRACING_SINK),
        ({TRACING: "on"}, TRACING),
        ({TRACING: '{"samplingRate": {"numerator": 3, "denominator": 2}}'}, "samplingRate"),
        ({TRACING: '{"samplingRate": {"numerator": 1, "denominator": 0}}'}, "denominator"),
        ({TRACING: '{"samplingRate": 5}'}, "samplingRate"),
        ({TRACING: '{"parentBasedSampling": {"mode": "ImplementationDefault"}}'}, "mode"),
        ({TRACING: '{"sampling": 5}'}, "sampling"),
        ({TRACING: '{"attributes": [{"name": "a", "type": "Attribute", "literalValue": "b"}]}'}, "attributes"),
    ],
)
def test_an_invalid_parameter_of_traces_is_named(tracing: dict[str, str], named: str) -> None:
    (problem,) = invalid_tracing(
        {TRACING_SINK: "otlp://collector:4317", **tracing} if named != TRACING_SINK else tracing
    )
    assert named in problem


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({ACCESS_LOG_SINK: "file:relative"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "otlp:collector:4317"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "otlp://collector"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "otlp://collector:0"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "syslog"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "otlp://collector:4317/v1/logs"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "http://collector/v1/logs"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "http://user:secret@collector:4318"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "http://collector:4318/v1 logs"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG_SINK: "https://collector:4318/v1/logs?token=secret"}, ACCESS_LOG_SINK),
        ({ACCESS_LOG: json.dumps({"sampling": 200})}, "sampling"),
        ({ACCESS_LOG: "xml"}, ACCESS_LOG),
        ({COLLECTOR_CA: "-----BEGIN"}, COLLECTOR_CA),
    ],
)
def test_an_invalid_parameter_is_named(parameters: dict[str, str], named: str) -> None:
    (problem,) = invalid_access_log(parameters)
    assert named in problem


def clusters(sink: str, **parameters: str) -> dict[str, EncodedResource]:
    settings = access_log_of({ACCESS_LOG: "{}", ACCESS_LOG_SINK: sink, **parameters})
    return collector_clusters(packaged_schema(), KEY, settings)


def test_a_collector_over_http_has_a_cluster() -> None:
    assert clusters("stdout") == clusters("otlp://collector:4317") == {}
    ((name, cluster),) = clusters("http://[2001:db8::1]:4318").items()
    assert name == "HTTPLoadBalancer/tenant-west/main/collector/logs"
    assert b"2001:db8::1" in cluster.field
    bundle = self_signed("collector.internal")[0].decode()
    ((_, secure),) = clusters("https://collector:4318", collectorCA=bundle).items()
    assert bundle.encode() in secure.field
    ((_, of_system),) = clusters("https://collector:4318").items()
    assert SYSTEM_AUTHORITIES.encode() in of_system.field


@pytest.mark.parametrize(
    ("sink", "uri"),
    [
        ("http://collector:4318", b"http://collector:4318/v1/logs"),
        ("http://collector:4318/", b"http://collector:4318/v1/logs"),
        ("https://collector:4318/otlp/logs", b"https://collector:4318/otlp/logs"),
    ],
)
def test_a_collector_over_http_has_the_path_of_its_signal_by_default(sink: str, uri: bytes) -> None:
    parameters = {ACCESS_LOG: "{}", ACCESS_LOG_SINK: sink}
    assert list(invalid_access_log(parameters)) == []
    (logger,) = access_logs(packaged_schema(), access_log_of(parameters), "request", KEY)
    config = logger["typed_config"]["value"]  # type: ignore[index]
    assert uri in config
    assert config.count(b"/logs") == uri.count(b"/logs") + b"HTTPLoadBalancer/tenant-west/main/collector/logs".count(
        b"/logs"
    )


@pytest.mark.req("F-15")
@pytest.mark.parametrize(
    ("share", "below"),
    [
        (Fraction(0), "00000000"),
        (Fraction(1, 1_000_000), "000010c6"),
        (Fraction(50), "80000000"),
        (Fraction(999_999, 1_000_000), "ffffef39"),
        (Fraction(100), "g"),
    ],
)
def test_a_share_of_the_request_ids_is_traced(share: Fraction, below: str) -> None:
    assert traced_below(share) == below
    # All IDs, and none.
    assert (below > "ffffffff-ffff-4fff") is (share == Fraction(100))
    assert (below > "00000000-0000-4000") is (share.numerator > 0)
