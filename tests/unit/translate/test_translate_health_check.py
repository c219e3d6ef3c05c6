"""The health check of a LoadBalancer: as its class says, unless it asks for a request over TLS itself."""

from __future__ import annotations

import pytest

from fairlead.api.capiside import RequestCheck
from fairlead.api.loadbalancer import LoadBalancerSpec
from fairlead.api.loadbalancerclass import ClassHealthCheck, LoadBalancerClassSpec
from fairlead.model.health import HealthCheck, HealthRequest
from fairlead.translate.loadbalancer import health_check_of
from fairlead.translate.view import behaviour_of_class
from fairlead_demo.worlds.certificates import self_signed

CLASS = LoadBalancerClassSpec(
    provider="envoy",
    health_check=ClassHealthCheck(interval="2s", timeout="1s", unhealthy_threshold=4, healthy_threshold=6),
)
PEM = self_signed("api.example.com")[0].decode()
OF_CLASS = HealthCheck(interval_s=2.0, timeout_s=1.0, unhealthy_threshold=4, healthy_threshold=6)


def of(asked: RequestCheck | None, of_class: LoadBalancerClassSpec = CLASS) -> HealthCheck | None:
    return health_check_of(LoadBalancerSpec(health_check=asked), behaviour_of_class(of_class).health_check)


@pytest.mark.parametrize("asked", [None, RequestCheck(disabled=True, path="/x")], ids=["not asked", "disabled"])
def test_without_a_check_of_its_own_the_class_decides(asked):
    assert of(asked) == OF_CLASS


def test_a_request_takes_what_it_does_not_say_from_the_class():
    asked = RequestCheck(path="/readyz", host="api.example.com", ca_bundle=f"\ufeff{PEM.strip()}".replace("\n", "\r"))
    check = of(asked)
    assert check.request == HealthRequest(path="/readyz", host="api.example.com", ca_bundle=PEM)
    assert (check.interval_s, check.timeout_s) == (2.0, 1.0)
    assert (check.unhealthy_threshold, check.healthy_threshold) == (4, 6)


def test_a_request_says_its_own_times_and_thresholds():
    check = of(RequestCheck(interval="7s", timeout="300ms", unhealthy_threshold=9, healthy_threshold=8))
    assert (check.interval_s, check.timeout_s) == (7.0, 0.3)
    assert (check.unhealthy_threshold, check.healthy_threshold) == (9, 8)


@pytest.mark.req("F-11")
def test_a_type_replaces_the_request_over_tls():
    check = of(RequestCheck(type="http", path="/healthz", port=8080, expected="200-299", healthy_threshold=8))
    assert check.request == HealthRequest(path="/healthz", expected=(200, 299), tls=False)
    assert (check.port, check.healthy_threshold, check.unhealthy_threshold) == (8080, 8, 4)
    assert of(RequestCheck(type="tcp", interval="7s")) == HealthCheck(7.0, 1.0, 4, 6)
    assert of(RequestCheck(type="none")) is None
    verified = of(RequestCheck(type="http", tls=True, host="api.example.com", ca_bundle=PEM * 2))
    assert verified.request.ca_bundle == PEM * 2
    assert of(RequestCheck(unhealthy=2, healthy=3)).unhealthy_threshold == 2
    assert of(RequestCheck(type="grpc", service="shop.Cart", disabled=True)) == OF_CLASS
