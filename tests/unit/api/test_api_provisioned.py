"""Requests to providers as recorded in a status, by this release and by 0.1."""

from __future__ import annotations

import re

import msgspec
import pytest

from fairlead.api.intent import AskedListener, Provisioned, asked_of, spec_of
from fairlead.api.loadbalancer import LoadBalancerObjectStatus
from fairlead.api.tcploadbalancer import TCPLoadBalancerStatus
from fairlead.model.desired import Affinity, FrontendSpec, Listener, Owner, ProxyProtocol
from fairlead.model.health import HealthCheck
from fairlead.model.keys import LoadBalancerKey, Protocol

KEY = LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web")
SPECS = {
    "plain": FrontendSpec(KEY, "tenant-east", (Listener(80),)),
    "unchecked": FrontendSpec(KEY, "tenant-east", (Listener(80),), health_check=None),
    "whole": FrontendSpec(
        KEY,
        "tenant-east",
        (Listener(80), Listener(53, Protocol.UDP, "dns", 30053)),
        address="192.0.2.1",
        source_ranges=("10.0.0.0/8",),
        affinity=Affinity.CLIENT_IP,
        proxy_protocol=ProxyProtocol.V2,
        health_check=HealthCheck(0.5, 0.25, 3, 2),
        parameters={"socket": "/s"},
        attributes={"size": "l"},
        owner=Owner("east", "Service", "shop", "web", "uid-1"),
        existing=True,
        local_traffic_only=True,
    ),
}
#: As release 0.1 wrote them into ``frontend.ensured``.
TEXTS = {
    "plain": '{"address":"","affinity":"None","attributes":{},"existing":false,"group":"tenant-east","health_check":'
    '{"healthy_threshold":1,"interval_s":2.0,"timeout_s":1.0,"unhealthy_threshold":2},'
    '"key":["TCPLoadBalancer","tenant-east","shop.web"],"listeners":[{"name":"","port":80,"protocol":"TCP",'
    '"proxy_port":0}],"local_traffic_only":false,"owner":{"kind":"","member":"","name":"","namespace":"","uid":""},'
    '"parameters":{},"proxy_protocol":"","source_ranges":[]}',
    "unchecked": '{"address":"","affinity":"None","attributes":{},"existing":false,"group":"tenant-east",'
    '"health_check":null,"key":["TCPLoadBalancer","tenant-east","shop.web"],"listeners":[{"name":"","port":80,'
    '"protocol":"TCP","proxy_port":0}],"local_traffic_only":false,"owner":{"kind":"","member":"","name":"",'
    '"namespace":"","uid":""},"parameters":{},"proxy_protocol":"","source_ranges":[]}',
    "whole": '{"address":"192.0.2.1","affinity":"ClientIP","attributes":{"size":"l"},"existing":true,'
    '"group":"tenant-east","health_check":{"healthy_threshold":2,"interval_s":0.5,"timeout_s":0.25,'
    '"unhealthy_threshold":3},"key":["TCPLoadBalancer","tenant-east","shop.web"],"listeners":[{"name":"","port":80,'
    '"protocol":"TCP","proxy_port":0},{"name":"dns","port":53,"protocol":"UDP","proxy_port":30053}],'
    '"local_traffic_only":true,"owner":{"kind":"Service","member":"east","name":"web","namespace":"shop",'
    '"uid":"uid-1"},"parameters":{"socket":"/s"},"proxy_protocol":"v2","source_ranges":["10.0.0.0/8"]}',
}


def old(provider: str, name: str = "plain", **fields: object) -> dict[str, object]:
    return {"provider": provider, "state": "Ensured", "ensured": TEXTS[name], **fields}


def tcp(**fields: object) -> TCPLoadBalancerStatus:
    return msgspec.convert(fields, TCPLoadBalancerStatus)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_a_spec_is_written_and_read_equal_also_as_an_api_server_gives_it_back(name: str) -> None:
    entry = Provisioned("webhook", "Ensured", asked=asked_of(SPECS[name]))
    text = msgspec.json.encode(entry)
    # An API server writes whole numbers without a fraction.
    for written in (text, re.sub(rb":(\d+)\.0([,}])", rb":\1\2", text)):
        read = msgspec.json.decode(written, type=Provisioned)
        assert read == entry
        assert read.spec(KEY) == SPECS[name]


@pytest.mark.parametrize("name", sorted(SPECS))
def test_what_0_1_wrote_is_read_equal(name: str) -> None:
    status = tcp(provider="webhook", frontend=old("webhook", name, info={"id": "7"}, addresses=["a"], epoch="9"))
    entry = status.frontend_of("webhook")
    wanted = Provisioned("webhook", "Ensured", True, asked_of(SPECS[name]), ["a"], info={"id": "7"}, epoch="9")
    assert entry == wanted
    assert entry is not None
    assert entry.spec(KEY) == SPECS[name]
    assert (status.serving_provider, status.recorded_providers) == ("webhook", {"webhook"})


def test_entries_of_0_1_during_a_move_are_read() -> None:
    status = tcp(provider="haproxy", frontend=old("haproxy"), frontends={"webhook": old("webhook", state="Ensuring")})
    assert (status.serving_provider, status.recorded_providers) == ("haproxy", {"haproxy", "webhook"})
    entry = status.frontend_of("webhook")
    assert entry is not None
    assert entry.state == "Ensuring"
    assert status.old_places("haproxy") == {"frontend": None}
    assert status.old_places("webhook") == {"frontends": None}
    both = tcp(frontend=old("a"), frontends={"a": old("a", "whole"), "b": old("b")})
    assert both.old_places("a") == {"frontend": None, "frontends": {"a": None}}
    entry = both.frontend_of("a")
    assert entry is not None
    assert entry.spec(KEY) == SPECS["whole"], "beside was written later"


def test_what_0_1_wrote_of_a_provider_that_the_hub_serves_itself() -> None:
    status = tcp(provider="envoy")
    assert (status.serving_provider, status.recorded, status.old_places("envoy")) == ("envoy", (), {})


def test_an_unreadable_text_is_an_unknown_entry() -> None:
    for text in ("", "{}", "nonsense"):
        entry = tcp(frontend={"provider": "webhook", "state": "Ensuring", "ensured": text}).frontend_of("webhook")
        assert entry == Provisioned("webhook", "Ensuring")
        assert entry.spec(KEY) is None


def test_a_load_balancer_of_0_1_is_served_by_the_only_provider_it_has() -> None:
    status = msgspec.convert({"frontend": old("haproxy")}, LoadBalancerObjectStatus)
    assert (status.serving_provider, status.recorded_providers) == ("haproxy", {"haproxy"})
    assert status.old_places("haproxy") == {"frontend": None}
    assert status.old_places("webhook") == {}
    assert LoadBalancerObjectStatus().serving_provider == ""


def test_current_entries_outrank_those_of_0_1() -> None:
    entry = {"provider": "webhook", "state": "Ensured", "asked": {"group": "new", "listeners": [{"port": 1}]}}
    serving = {"provider": "envoy", "serving": True}
    status = tcp(provider="webhook", frontend=old("webhook"), provisioned=[entry, serving])
    assert (status.serving_provider, status.recorded_providers) == ("envoy", {"webhook"})
    read = status.frontend_of("webhook")
    assert read is not None
    assert read.asked is not None
    assert (read.asked.group, read.asked.listeners) == ("new", [AskedListener(1)])
    assert spec_of(KEY, read.asked).health_check is None
    assert status.frontend_of("envoy") is None, "nothing was asked of a provider that has no state"
