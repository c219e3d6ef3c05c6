"""The readiness probes of pods as health checks: what each kind of probe comes to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.probes import CONNECT, ProbedPod, check_of_pods, with_probe
from fairlead.model.health import HealthCheckSettings
from tests.unit.agent.agent_builders import service

WEB = service(ports=[{"port": 80, "targetPort": "http"}])
PORTS = [{"containerPort": 8080, "name": "http"}, {"containerPort": 9090, "name": "admin"}]


def pod(probe: dict[str, Any] | None, **container: Any) -> ProbedPod:
    web = {"ports": PORTS, **({"readinessProbe": probe} if probe is not None else {}), **container}
    return msgspec.convert({"spec": {"containers": [{"name": "sidecar"}, web]}}, ProbedPod)


@pytest.mark.req("F-12")
@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ({"httpGet": {"path": "/healthz", "port": 8080}}, HealthCheckSettings(type="http", path="/healthz")),
        ({"httpGet": {"path": "/healthz", "port": "http"}}, HealthCheckSettings(type="http", path="/healthz")),
        ({"httpGet": {"path": "ready", "port": "admin"}}, HealthCheckSettings(type="http", path="/ready", port=9090)),
        (
            {"httpGet": {"port": 9090, "scheme": "HTTPS", "httpHeaders": [{"name": "Host", "value": "shop.example"}]}},
            HealthCheckSettings(type="http", path="/", host="shop.example", port=9090, tls=True),
        ),
        ({"tcpSocket": {"port": 9090}}, HealthCheckSettings(type="tcp", port=9090)),
        ({"tcpSocket": {"port": "http"}}, CONNECT),
        ({"grpc": {"port": 8080, "service": "shop.Cart"}}, HealthCheckSettings(type="grpc", service="shop.Cart")),
        ({"grpc": {"port": 9090}}, HealthCheckSettings(type="grpc", port=9090)),
        ({"exec": {"command": ["true"]}}, CONNECT),
        ({"httpGet": {"path": "/a b", "port": 8080}}, CONNECT),
        (None, CONNECT),
    ],
)
def test_each_kind_of_probe(probe, expected):
    assert check_of_pods([pod(probe), pod(probe)], WEB) == expected


@pytest.mark.req("F-12")
def test_pods_that_differ_are_checked_by_connecting():
    old, new = (pod({"httpGet": {"path": path, "port": 8080}}) for path in ("/old", "/new"))
    assert check_of_pods([old, new], WEB) == CONNECT
    assert check_of_pods([], WEB) == CONNECT
    leaving = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    assert check_of_pods([leaving, new], WEB) == HealthCheckSettings(type="http", path="/new")


@pytest.mark.req("F-12")
def test_what_a_user_sets_counts_before_the_probe():
    probe = HealthCheckSettings(type="http", path="/healthz")
    assert with_probe(None, probe) is probe
    assert with_probe(None, None) is None
    own = HealthCheckSettings(interval="2s", unhealthy=4)
    assert with_probe(own, probe) == HealthCheckSettings(type="http", path="/healthz", interval="2s", unhealthy=4)
    for chosen in (HealthCheckSettings(type="none"), HealthCheckSettings(path="/x"), HealthCheckSettings(port=9)):
        assert with_probe(chosen, probe) is chosen
