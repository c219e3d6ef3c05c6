"""Health checks and outlier detection that users set: what annotations mean, and what is wrong with them."""

from __future__ import annotations

import json

import pytest

from fairlead.api.names import ANNOTATION_HEALTH_CHECK, ANNOTATION_OUTLIER_DETECTION, HEALTH_ANNOTATIONS
from fairlead.model.health import (
    HealthCheck,
    HealthCheckSettings,
    HealthRequest,
    OutlierDetection,
    check_with,
    single_annotations,
)
from fairlead.publish.objects import SettingError, settings_from_annotations

CHECK, OUTLIER = "fairlead.dev/health-check", "fairlead.dev/outlier-detection"
OF_CLASS = HealthCheck(interval_s=5.0, timeout_s=1.0, unhealthy_threshold=3, healthy_threshold=2)


def read(annotations: dict[str, str]) -> HealthCheckSettings | None:
    return settings_from_annotations(annotations, CHECK, HealthCheckSettings)


@pytest.mark.req("F-11")
@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({CHECK: "  "}, None),
        ({CHECK: "{}"}, HealthCheckSettings()),
        ({CHECK: '{"type": "none"}'}, HealthCheckSettings(type="none")),
        (
            {CHECK: '{"type": "http", "path": "/healthz", "port": 8080, "expected": "204", "tls": true}'},
            HealthCheckSettings(type="http", path="/healthz", port=8080, expected="204", tls=True),
        ),
        ({f"{CHECK}-path": "/healthz", f"{CHECK}-port": "8080"}, HealthCheckSettings(path="/healthz", port=8080)),
        ({f"{CHECK}-type": "http", f"{CHECK}-tls": "false"}, HealthCheckSettings(type="http", tls=False)),
        (
            {CHECK: '{"path": "/a", "interval": "2s"}', f"{CHECK}-path": "/b"},
            HealthCheckSettings(path="/b", interval="2s"),
        ),
        ({CHECK: '{"expected": 204}'}, HealthCheckSettings(expected="204")),
        ({CHECK: '{"port": null, "unhealthy": "4"}'}, HealthCheckSettings(unhealthy=4)),
        ({CHECK: '{"service": "shop.Cart", "tls": true}'}, HealthCheckSettings(service="shop.Cart", tls=True)),
    ],
)
def test_json_and_single_annotations_set_the_same_fields(annotations, expected):
    assert read(annotations) == expected


WRONG = [
    ({CHECK: "http"}, [f"annotation {CHECK} ", "JSON object"]),
    ({CHECK: '["http"]'}, ["JSON object"]),
    ({CHECK: '{"pth": "/x"}'}, ["pth", "Did you mean 'path'"]),
    ({CHECK: '{"type": "udp"}'}, ["type", "'udp'", "tcp, http, grpc or none"]),
    ({f"{CHECK}-type": "HTTP"}, [f"annotation {CHECK}-type", "'HTTP'"]),
    ({CHECK: '{"path": "healthz"}'}, ["path", "'healthz'", "slash"]),
    ({f"{CHECK}-path": "/a b"}, [f"annotation {CHECK}-path", "slash"]),
    ({CHECK: '{"path": "/é"}'}, ["path"]),
    ({CHECK: '{"interval": "0s"}'}, ["interval", "'0s'", "1s to 5m"]),
    ({CHECK: '{"interval": 0}'}, ["interval", "1s to 5m"]),
    ({CHECK: '{"interval": "999ms"}'}, ["interval"]),
    ({CHECK: '{"interval": "6m"}'}, ["interval"]),
    ({CHECK: '{"interval": "9999999999999s"}'}, ["interval"]),
    ({CHECK: '{"timeout": "1ms"}'}, ["timeout", "100ms"]),
    ({CHECK: '{"port": 0}'}, ["port", "1 to 65535"]),
    ({CHECK: '{"port": 65536}'}, ["port"]),
    ({f"{CHECK}-port": "http"}, [f"annotation {CHECK}-port", "'http'", "whole number"]),
    ({CHECK: '{"healthy": 0}'}, ["healthy", "1 to 10"]),
    ({CHECK: '{"unhealthy": 11}'}, ["unhealthy"]),
    ({CHECK: '{"expected": "99"}'}, ["expected", "200-399"]),
    ({CHECK: '{"expected": "399-200"}'}, ["expected"]),
    ({CHECK: '{"tls": "yes", "type": "http"}'}, ["tls", "true or false"]),
    ({CHECK: '{"host": "a b", "type": "http"}'}, ["host"]),
    ({CHECK: '{"path": ["/x"]}'}, ["path", "one value"]),
    ({CHECK: '{"type": "tcp", "path": "/x"}'}, ["path", "type http"]),
    ({CHECK: '{"type": "grpc", "path": "/x"}'}, ["path", "type http"]),
    ({CHECK: '{"type": "http", "service": "x"}'}, ["service", "type grpc"]),
    ({CHECK: '{"tls": true}'}, ["tls", "http or grpc"]),
    ({CHECK: '{"type": "none", "interval": "5s"}'}, ["interval", "none"]),
]


@pytest.mark.req("F-11")
@pytest.mark.parametrize(("annotations", "parts"), WRONG)
def test_a_wrong_value_names_annotation_and_field(annotations, parts):
    with pytest.raises(SettingError) as caught:
        read(annotations)
    assert str(caught.value).startswith(f"annotation {CHECK}")
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.req("F-13")
@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"consecutive5xx": -1}, "consecutive5xx"),
        ({"consecutiveGatewayErrors": 1001}, "consecutiveGatewayErrors"),
        ({"ejectionTime": "0s"}, "ejectionTime"),
        ({"maxEjectionPercent": 101}, "maxEjectionPercent"),
        ({"consecutive": 5}, "consecutive"),
    ],
)
def test_wrong_outlier_detection_names_the_field(value, field):
    with pytest.raises(SettingError, match=f"{OUTLIER}: {field} "):
        settings_from_annotations({OUTLIER: json.dumps(value)}, OUTLIER, OutlierDetection)
    single = settings_from_annotations({f"{OUTLIER}-consecutive-5xx": "7"}, OUTLIER, OutlierDetection)
    assert single == OutlierDetection(consecutive_5xx=7)


@pytest.mark.req("F-11")
def test_the_class_has_what_a_user_leaves_out():
    assert check_with(OF_CLASS, None) is OF_CLASS
    assert check_with(OF_CLASS, HealthCheckSettings()) == OF_CLASS
    assert check_with(OF_CLASS, HealthCheckSettings(type="none")) is None
    own = check_with(OF_CLASS, HealthCheckSettings(interval="1500ms", timeout="2s", unhealthy=1, healthy=4, port=9))
    assert own == HealthCheck(interval_s=1.5, timeout_s=2.0, unhealthy_threshold=1, healthy_threshold=4, port=9)
    # The class makes no checks, and the user asks for one.
    assert check_with(None, HealthCheckSettings(type="tcp")) == HealthCheck()


@pytest.mark.req("F-11")
def test_a_path_or_a_service_says_the_type():
    http = check_with(OF_CLASS, HealthCheckSettings(path="/healthz"))
    assert http is not None
    assert http.request == HealthRequest(path="/healthz", expected=(200, 399), tls=False)
    grpc = check_with(OF_CLASS, HealthCheckSettings(service="shop.Cart"))
    assert grpc is not None
    assert grpc.request == HealthRequest(path="shop.Cart", tls=False, grpc=True, http2=True)


@pytest.mark.req("F-11")
def test_a_check_speaks_as_the_traffic_does_unless_its_port_is_another():
    def request(**fields):
        check = check_with(OF_CLASS, HealthCheckSettings(type="http", **fields), tls=True, http2=True)
        assert check is not None
        assert check.request is not None
        return check.request.tls, check.request.http2

    assert request() == (True, True)
    assert request(port=8080) == (False, False)
    assert request(port=8080, tls=True) == (True, False)
    assert request(tls=False) == (False, True)


@pytest.mark.req("F-11")
def test_no_member_has_its_targets_checked_more_than_once_a_second():
    # Any client of the hub may have written the object, and its schema knows no durations.
    check = check_with(OF_CLASS, HealthCheckSettings(interval="1ms", timeout="0s"))
    assert check is not None
    assert (check.interval_s, check.timeout_s) == (1.0, 0.1)


def test_every_field_of_the_settings_has_its_annotation():
    fields = [
        *single_annotations(ANNOTATION_HEALTH_CHECK, HealthCheckSettings),
        *single_annotations(ANNOTATION_OUTLIER_DETECTION, OutlierDetection),
    ]
    assert {*HEALTH_ANNOTATIONS} == {ANNOTATION_HEALTH_CHECK, ANNOTATION_OUTLIER_DETECTION, *fields}
