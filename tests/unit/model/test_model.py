"""The vocabulary: frozen, hashable where it names something, and spelt as users read it."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from fairlead.model import change, condition, desired, keys, observed
from fairlead.model.desired import Listener
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey

STRUCTS = [
    each
    for module in (change, condition, desired, observed)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_everything_is_frozen(struct):
    assert struct.__struct_config__.frozen


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web"), "TCPLoadBalancer/tenant-east/shop.web"),
        (ListenerKey(Protocol.UDP, 53), "UDP/53"),
        (TargetKey("10.0.0.1", 8080), "10.0.0.1:8080"),
        (TargetKey("2001:db8::1", 8080), "[2001:db8::1]:8080"),
        (TargetKey("db.example.com", 5432), "db.example.com:5432"),
    ],
)
def test_keys_read_as_people_write_them(key, text):
    assert str(key) == text


def test_the_same_port_of_two_protocols_are_two_listeners():
    assert Listener(53, Protocol.TCP).key != Listener(53, Protocol.UDP).key


def test_a_listener_opens_the_proxys_port_when_it_has_one():
    assert (Listener(80).bind_port, Listener(80, proxy_port=10080).bind_port) == (80, 10080)


@pytest.mark.parametrize("text", [change.Action, change.Reason, condition.ConditionReason, condition.ConditionType])
def test_reasons_are_fit_for_conditions(text):
    assert all(word.value[0].isupper() and word.value.isalnum() for word in text)
    assert keys.Protocol.TCP == "TCP"
