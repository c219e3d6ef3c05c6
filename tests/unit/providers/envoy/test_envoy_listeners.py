"""Listener bytes change only when the listener does."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.desired import Affinity, FrontendSpec, Listener, ProxyProtocol
from fairlead.model.health import HealthCheck
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.connection_frontend import LISTENER, listener_bytes
from fairlead.providers.envoy.resources import Schema, packaged_schema
from tests.envoy_json import to_json

SPEC = FrontendSpec(
    key=LoadBalancerKey("TCPLoadBalancer", "shop", "web"), group="t", listeners=(Listener(80),), address="192.0.2.1"
)


@pytest.fixture(scope="module")
def schema() -> Schema:
    return packaged_schema()


CHANGES_OF_THE_CLUSTER_ONLY = [
    {"proxy_protocol": ProxyProtocol.V2},
    {"health_check": None},
    {"health_check": HealthCheck(interval_s=9.0)},
    {"local_traffic_only": True},
    {"parameters": {"a": "b"}},
    {"group": "other"},
]


@pytest.mark.parametrize("change", CHANGES_OF_THE_CLUSTER_ONLY, ids=str)
def test_listener_bytes_depend_on_the_listener_only(schema: Schema, change: dict[str, object]) -> None:
    def encoded(spec: FrontendSpec) -> bytes:
        return listener_bytes(schema, spec, spec.listeners[0], bind_address=spec.address, reuse_port=False)

    assert encoded(msgspec.structs.replace(SPEC, **change)) == encoded(SPEC)
    assert encoded(msgspec.structs.replace(SPEC, affinity=Affinity.CLIENT_IP)) != encoded(SPEC)


def test_listener_opens_the_proxy_port(schema: Schema) -> None:
    spec = msgspec.structs.replace(SPEC, listeners=(Listener(80, proxy_port=10_001),))
    encoded = listener_bytes(schema, spec, spec.listeners[0], bind_address="0.0.0.0", reuse_port=True)
    listener = to_json(schema, LISTENER, encoded)
    assert listener["address"] == {"socket_address": {"address": "0.0.0.0", "port_value": 10_001}}
