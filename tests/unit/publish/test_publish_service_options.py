"""What a Service asks for: legal values, wrong values, and the sentence about them."""

from __future__ import annotations

import pytest

from fairlead.model.health import HealthCheckSettings, OutlierDetection
from fairlead.publish.objects import Refused, ServiceOptions, read_options
from tests.unit.agent.agent_builders import service

BY_FIELD, CLOUD = False, True

LEGAL = [
    ({}, {}, BY_FIELD, ServiceOptions()),
    ({"fairlead.dev/target": "Pod"}, {}, BY_FIELD, ServiceOptions(target="Pod")),
    ({"fairlead.dev/proxy-protocol": "v2"}, {}, BY_FIELD, ServiceOptions(proxy_protocol="v2")),
    ({}, {"loadBalancerIP": "10.0.0.9"}, BY_FIELD, ServiceOptions(address="10.0.0.9")),
    ({}, {"loadBalancerIP": "10.0.0.9"}, CLOUD, ServiceOptions()),
    (
        {"fairlead.dev/address-request": "10.0.0.8"},
        {"loadBalancerIP": "10.0.0.9"},
        CLOUD,
        ServiceOptions(address="10.0.0.8"),
    ),
    (
        {},
        {"loadBalancerSourceRanges": ["192.0.2.0/24", " 10.0.0.0/8", "192.0.2.0/24", "::/0"]},
        BY_FIELD,
        ServiceOptions(source_ranges=("10.0.0.0/8", "192.0.2.0/24")),
    ),
    (
        {"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, 192.0.2.0/24"},
        {},
        BY_FIELD,
        ServiceOptions(source_ranges=("10.0.0.0/8", "192.0.2.0/24")),
    ),
    (
        {"fairlead.dev/hostname": "b.example.com, *.a.example.com,generate,b.example.com"},
        {},
        BY_FIELD,
        ServiceOptions(hostnames=("*.a.example.com", "b.example.com"), generate_hostname=True),
    ),
    ({"fairlead.dev/global": " web "}, {}, BY_FIELD, ServiceOptions(global_service="web")),
    ({"fairlead.dev/drain": "0s"}, {}, BY_FIELD, ServiceOptions(drain="0s")),
    ({"fairlead.dev/drain": "1h"}, {}, BY_FIELD, ServiceOptions(drain="1h")),
    (
        {"fairlead.dev/drain": "1m", "fairlead.dev/drain-close": "reset"},
        {},
        BY_FIELD,
        ServiceOptions(drain="1m", drain_close="reset"),
    ),
    (
        {"fairlead.dev/health-check-path": "/healthz", "fairlead.dev/outlier-detection": '{"consecutive5xx": 5}'},
        {},
        BY_FIELD,
        ServiceOptions(
            health_check=HealthCheckSettings(path="/healthz"), outlier_detection=OutlierDetection(consecutive_5xx=5)
        ),
    ),
]


@pytest.mark.parametrize(("annotations", "spec", "of_cloud", "expected"), LEGAL)
def test_legal(annotations, spec, of_cloud, expected):
    assert read_options(service(annotations=annotations, **spec), of_cloud=of_cloud) == expected


WRONG = [
    ({"fairlead.dev/target": "pods"}, {}, ["'pods'", "Did you mean 'Pod'"]),
    ({"fairlead.dev/proxy-protocol": "2"}, {}, ["'2'", "v1 or v2"]),
    ({"fairlead.dev/drain": "30"}, {}, ["fairlead.dev/drain", "'30'", "30s"]),
    ({"fairlead.dev/drain": "61m"}, {}, ["fairlead.dev/drain", "'61m'", "1h"]),
    ({"fairlead.dev/drain": "-1s"}, {}, ["fairlead.dev/drain", "'-1s'"]),
    (
        {"fairlead.dev/drain": "1s", "fairlead.dev/drain-close": "rst"},
        {},
        ["drain-close", "'rst'", "graceful or reset"],
    ),
    ({"fairlead.dev/drain-close": "reset"}, {}, ["fairlead.dev/drain-close", "needs fairlead.dev/drain"]),
    ({"fairlead.dev/global": "shop/web"}, {}, ["fairlead.dev/global", "'shop/web'"]),
    ({"fairlead.dev/health-check": '{"interval": "0s"}'}, {}, ["fairlead.dev/health-check: interval is '0s'"]),
    ({"fairlead.dev/outlier-detection": "5"}, {}, ["fairlead.dev/outlier-detection", "JSON object"]),
    ({}, {"loadBalancerIP": "10.0.0"}, ["spec.loadBalancerIP", "'10.0.0'"]),
    ({"fairlead.dev/address-request": "::1"}, {}, ["fairlead.dev/address-request", "IPv4"]),
    ({}, {"loadBalancerSourceRanges": ["10.0.0.0/8", "10.0.0.0/33"]}, ["'10.0.0.0/33'", "CIDR"]),
    ({}, {"loadBalancerSourceRanges": ["10.0.0.1"]}, ["'10.0.0.1'"]),
    ({}, {"loadBalancerSourceRanges": ["2001:db8::/32"]}, ["no range of IPv4"]),
]


@pytest.mark.req("KI-10", "F-11")
@pytest.mark.req("K-4")
@pytest.mark.req("I-7")
@pytest.mark.parametrize(("annotations", "spec", "parts"), WRONG)
def test_a_wrong_value_is_refused_by_name_and_keeps_what_works(annotations, spec, parts):
    refused = read_options(service(annotations=annotations, **spec))
    assert isinstance(refused, Refused)
    assert refused.keep
    assert all(part in refused.sentence for part in parts), refused.sentence


@pytest.mark.req("K-49", "KI-10")
@pytest.mark.parametrize(
    ("names", "step"),
    [
        ("bücher.example", "write it as xn--bcher-kva.example"),
        ("a.example.com,Shop.example.com", "write shop.example.com"),
        (",".join(f"h{number}.example.com" for number in range(33)), "32 are allowed"),
    ],
)
def test_a_host_name_that_is_none_is_refused_with_the_next_step(names, step):
    refused = read_options(service(annotations={"fairlead.dev/hostname": names}))
    assert isinstance(refused, Refused)
    assert refused.reason == "HostnameInvalid"
    assert "fairlead.dev/hostname" in refused.sentence
    assert step in refused.sentence


@pytest.mark.req("L4-7")
@pytest.mark.parametrize("by_annotation", [False, True])
def test_a_range_that_kubernetes_warns_of_is_used_and_named(by_annotation):
    name, text = "service.beta.kubernetes.io/load-balancer-source-ranges", "10.0.0.5/24"
    given = service(annotations={name: text}) if by_annotation else service(loadBalancerSourceRanges=[text])
    options = read_options(given)
    assert isinstance(options, ServiceOptions)
    assert options.source_ranges == ("10.0.0.0/24",)
    (warning,) = options.warnings
    assert text in warning
    assert "10.0.0.0/24" in warning
    assert ("annotation" in warning) is by_annotation
