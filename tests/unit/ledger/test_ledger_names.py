"""Records keep their names over upgrades: a record of another name is another backend."""

from __future__ import annotations

import pytest

from fairlead.ledger.records import record_name
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey

WEB = LoadBalancerKey("TCPLoadBalancer", "tenant-east", "default.web")


@pytest.mark.req("S-3")
def test_records_of_0_1_are_found_under_their_names() -> None:
    target = TargetKey("127.36.114.12", 8080)
    name = record_name(WEB, ListenerKey(Protocol.TCP, 29965), target, provider="haproxy")
    assert name == "default.web-045bad8eb8d5a3bc3497", "as release 0.1 wrote it"
    of_http = record_name(WEB, ListenerKey(Protocol.TCP, 29965, "shop"), target)
    moving = record_name(WEB, ListenerKey(Protocol.TCP, 29965), target, provider="envoy")
    assert len({name, of_http, moving}) == 3
