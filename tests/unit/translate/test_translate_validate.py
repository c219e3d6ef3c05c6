"""Each reason to refuse, and that its sentence names the field and what to do."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.http import Certificate
from fairlead.testing.builders import ABLE, PLAIN, lb_class, tcp, tcp_view
from fairlead.translate.certificates import UNREAD
from fairlead.translate.member import decide_tcp, validate_tcp

R = ConditionReason
UDP = [{"port": 53, "protocol": "UDP", "nodePort": 30053}]
NO_IPV6 = msgspec.structs.replace(ABLE, ipv6=False)


def view(*, ports=None, spec=None, **others):
    return tcp_view(tcp(**({"ports": ports} if ports is not None else {}), spec=spec), **others)


def without_ports():
    # No API server lets this through; an object that was stored before the schema said so may be like it.
    load_balancer = tcp()
    return tcp_view(msgspec.structs.replace(load_balancer, spec=msgspec.structs.replace(load_balancer.spec, ports=[])))


@pytest.mark.req("KI-10")
@pytest.mark.parametrize(
    ("case", "reason", "fields"),
    [
        pytest.param(
            view(spec={"className": "gold"}, load_balancer_class=None),
            R.NO_SUCH_CLASS,
            ["spec.className", "'gold'", "kubectl get lbc"],
            id="class",
        ),
        pytest.param(
            view(load_balancer_class=lb_class("gold", provider="f5")),
            R.NO_SUCH_CLASS,
            ["spec.className", "'gold'", "'f5'", "it runs: memory"],
            id="provider",
        ),
        pytest.param(without_ports(), R.INVALID, ["spec.ports", "at least one"], id="no-ports"),
        pytest.param(
            view(ports=[{"port": 80, "nodePort": 1}, {"port": 80, "nodePort": 2}]),
            R.PORT_CONFLICT,
            ["spec.ports", "TCP/80", "twice"],
            id="port-twice",
        ),
        pytest.param(
            view(ports=UDP, capabilities=PLAIN), R.UNSUPPORTED_PROTOCOL, ["spec.ports", "UDP/53"], id="protocol"
        ),
        pytest.param(
            view(ports=[{"port": 80}, {"port": 443, "nodePort": 3}, {"port": 53, "protocol": "UDP"}]),
            R.NODE_PORT_MISSING,
            ["spec.ports", "TCP/80, UDP/53", "allocateLoadBalancerNodePorts", "fairlead.dev/target: Pod"],
            id="node-port",
            marks=pytest.mark.req("K-14"),
        ),
        pytest.param(
            view(spec={"loadBalancerSourceRanges": ["10.0.0.0/33"]}),
            R.INVALID,
            ["spec.loadBalancerSourceRanges", "'10.0.0.0/33'", "10.0.0.0/8"],
            id="cidr",
        ),
        pytest.param(
            view(spec={"loadBalancerSourceRanges": ["10.0.0.0/8"]}, capabilities=PLAIN),
            R.INVALID,
            ["spec.loadBalancerSourceRanges", "cannot restrict"],
            id="ranges",
        ),
        pytest.param(
            view(spec={"loadBalancerSourceRanges": ["2001:db8::/32"]}, capabilities=NO_IPV6),
            R.UNSUPPORTED_ADDRESS_FAMILY,
            ["spec.loadBalancerSourceRanges", "2001:db8::/32", "IPv6"],
            id="range-v6",
            marks=pytest.mark.req("K-4"),
        ),
        pytest.param(
            view(spec={"sessionAffinity": "ClientIP"}, capabilities=PLAIN),
            R.INVALID,
            ["spec.sessionAffinity", "use None"],
            id="affinity",
        ),
        pytest.param(
            view(spec={"proxyProtocol": "v2"}, capabilities=PLAIN), R.INVALID, ["spec.proxyProtocol"], id="proxy"
        ),
        pytest.param(
            view(ports=UDP, spec={"proxyProtocol": "v2"}),
            R.INVALID,
            ["spec.proxyProtocol", "no TCP port"],
            id="proxy-udp",
        ),
        pytest.param(
            view(spec={"address": "web"}), R.ADDRESS_NOT_USABLE, ["spec.address", "'web'", "IP address"], id="address"
        ),
        pytest.param(
            view(spec={"address": "2001:db8::1"}, capabilities=NO_IPV6),
            R.UNSUPPORTED_ADDRESS_FAMILY,
            ["spec.address", "2001:db8::1", "IPv6"],
            id="address-v6",
            marks=pytest.mark.req("K-4"),
        ),
        pytest.param(view(over_quota="member east has 3"), R.QUOTA_EXCEEDED, ["member east has 3"], id="quota"),
    ],
)
def test_refusal(case, reason, fields):
    refusal = validate_tcp(case, case.load_balancer.spec)
    assert refusal is not None
    assert (refusal.type, refusal.status, refusal.reason) == (ConditionType.ACCEPTED, False, reason)
    for word in fields:
        assert word in refusal.message


@pytest.mark.parametrize(
    "case",
    [
        view(),
        view(ports=[{"port": 53, "nodePort": 1}, *UDP]),
        view(ports=[{"port": 80}], spec={"targets": "Pod"}),
        view(spec={"loadBalancerSourceRanges": [" 10.0.0.1/8 "], "sessionAffinity": "ClientIP", "proxyProtocol": "v1"}),
        view(spec={"address": "192.0.2.1"}),
    ],
    ids=["plain", "udp-and-tcp", "pods-need-no-node-port", "all-features", "address"],
)
@pytest.mark.req("KI-4")
def test_accepted(case):
    assert validate_tcp(case, case.load_balancer.spec) is None


def test_the_first_reason_is_the_one_that_is_shown():
    case = msgspec.structs.replace(without_ports(), load_balancer_class=None, over_quota="x")
    assert "spec.className" in validate_tcp(case, case.load_balancer.spec).message


def test_the_default_class_is_named_when_it_is_missing():
    case = view(load_balancer_class=None)
    assert "'envoy'" in validate_tcp(case, case.load_balancer.spec).message


def test_an_address_is_refused_where_the_hub_gives_none():
    load_balancer = tcp(spec={"address": "192.0.2.7"})
    refused = validate_tcp(tcp_view(load_balancer, capabilities=ABLE), load_balancer.spec)
    assert refused is not None
    assert (refused.reason, "leave spec.address empty" in refused.message) == (R.ADDRESS_NOT_USABLE, True)
    its_own = lb_class(spec={"parameters": {"address": "192.0.2.7"}})
    assert (
        validate_tcp(tcp_view(load_balancer, capabilities=ABLE, load_balancer_class=its_own), load_balancer.spec)
        is None
    )


def test_a_provider_that_could_not_be_started_is_named_with_the_reason():
    load_balancer = tcp()
    problems = {"racks": "provider 'racks' cannot be started (ImportError)"}
    view = tcp_view(load_balancer, load_balancer_class=lb_class(provider="racks"), provider_problems=problems)
    refused = validate_tcp(view, load_balancer.spec)
    assert refused is not None
    assert "LoadBalancerClass 'envoy'" in refused.message
    assert "cannot be started (ImportError)" in refused.message


_TLS = {"backendTls": {"serverName": "web.internal", "clientCertificate": "c"}, "clientCertificate": {"name": "c"}}
_PAIR = {"c": Certificate("c", "1", b"chain", b"key")}


@pytest.mark.req("F-10")
@pytest.mark.parametrize(
    ("case", "reason", "part"),
    [
        (view(spec=_TLS, certificates=_PAIR, capabilities=PLAIN), R.INVALID, "provider envoy"),
        (view(spec=_TLS, certificates=_PAIR, ports=UDP), R.INVALID, "UDP/53"),
        (view(spec={**_TLS, "globalService": "web"}, certificates=_PAIR), R.INVALID, "GlobalService"),
        (view(spec=_TLS), R.INVALID, "certificate c"),
        (view(spec=_TLS, missing_certificates={"c": UNREAD}), R.PENDING, "certificate c"),
    ],
)
def test_backends_are_never_reached_in_plain_text_instead_of_tls(case, reason, part) -> None:
    refusal = validate_tcp(case, case.load_balancer.spec)
    assert refusal is not None
    assert refusal.reason == reason
    assert "spec.backendTls" in refusal.message
    assert part in refusal.message


@pytest.mark.req("F-10", "F-11")
def test_tls_towards_backends_and_its_checks_reach_the_provider() -> None:
    case = view(spec={**_TLS, "healthCheck": {"type": "http"}}, certificates=_PAIR)
    assert validate_tcp(case, case.load_balancer.spec) is None
    desired = decide_tcp(case).desired
    assert desired is not None
    assert desired.spec.backend_tls == case.load_balancer.spec.backend_tls
    assert desired.spec.certificates == _PAIR
    assert desired.spec.health_check is not None
    assert desired.spec.health_check.request is not None
    assert desired.spec.health_check.request.tls
