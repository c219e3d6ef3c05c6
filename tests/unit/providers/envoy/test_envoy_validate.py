"""What Envoy would refuse is refused before, with a reason."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.envoy.frontends import invalid_spec, invalid_target

SPEC = FrontendSpec(
    key=LoadBalancerKey("TCPLoadBalancer", "shop", "web"), group="t", listeners=(Listener(80),), address="192.0.2.1"
)


BAD_SPECS = [
    ({"listeners": ()}, "no ports"),
    ({"listeners": (Listener(0),)}, "not in 1..65535"),
    ({"listeners": (Listener(80, proxy_port=70_000),)}, "70000"),
    ({"listeners": (Listener(80), Listener(80, name="again"))}, "listed twice"),
    ({"listeners": (Listener(80, proxy_port=9), Listener(81, proxy_port=9))}, "share the proxy port TCP/9"),
    ({"address": "web.example.com"}, "not an IP address"),
    ({"address": ""}, "no address"),
    ({"source_ranges": ("10.0.0.0/40",)}, "not a CIDR"),
    ({"key": LoadBalancerKey("K", "a/b", "c")}, "not a valid name"),
    ({"health_check": HealthCheck(interval_s=0)}, "10 ms"),
    ({"health_check": HealthCheck(healthy_threshold=0)}, "1 or more"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_SPECS, ids=[reason for _, reason in BAD_SPECS])
def test_bad_specs_are_refused_with_a_reason(change: dict[str, object], reason: str) -> None:
    spec = msgspec.structs.replace(SPEC, **change)
    assert reason in "; ".join(invalid_spec(spec, bind_addresses=spec.addresses))
    assert not invalid_spec(SPEC, bind_addresses=SPEC.addresses)


@pytest.mark.parametrize(
    ("target", "ok"),
    [
        (Target(TargetKey("10.0.0.1", 80)), True),
        (Target(TargetKey("2001:db8::1", 80)), True),
        (Target(TargetKey("lb.example.com", 80)), True),
        (Target(TargetKey("lb.example.com.", 80)), True),
        (Target(TargetKey("10.0.0", 80)), False),
        (Target(TargetKey("300.0.0.1", 80)), False),
        (Target(TargetKey("a b", 80)), False),
        (Target(TargetKey("fe80::1%eth0", 80)), False),
        (Target(TargetKey("", 80)), False),
        (Target(TargetKey("a" * 64, 80)), False),
        (Target(TargetKey("10.0.0.1", 0)), False),
        (Target(TargetKey("10.0.0.1", 65_536)), False),
        (Target(TargetKey("10.0.0.1", 80), weight=-1), False),
        (Target(TargetKey("10.0.0.1", 80), weight=65_536), False),
    ],
    ids=str,
)
def test_targets_are_checked(target: Target, *, ok: bool) -> None:
    assert (invalid_target(target) == "") is ok
