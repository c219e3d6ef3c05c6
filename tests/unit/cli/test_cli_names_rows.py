"""What ``fairlead names`` says of each name."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.hostname import (
    DNSZone,
    DNSZoneSpec,
    Hostname,
    HostnameCertificate,
    HostnameOwner,
    HostnameSpec,
    HostnameStatus,
)
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.cli.names import NameRow, ask_zones, cells, expected, name_rows
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.hostname import longest_suffix
from fairlead_demo.worlds.loopback import free_port

KEY = LoadBalancerKey("Hostname", "fairlead-system", "www")


def hostname(*conditions: tuple[str, str, str], **spec: object) -> Hostname:
    wire = [WireCondition(type_, status, reason, f"{reason}: why") for type_, status, reason in conditions]
    status = HostnameStatus(
        zone="example", conditions=wire, certificate=HostnameCertificate(not_after="2030-01-02T00:00:00Z")
    )
    owner = HostnameOwner(member="east", kind="Ingress", namespace="default", name="shop")
    given = msgspec.structs.replace(HostnameSpec("www.example.test", owner=owner, addresses=["192.0.2.1"]), **spec)
    return Hostname(metadata=ObjectMeta("www", "fairlead-system"), spec=given, status=status)


GOOD = (("Accepted", "True", "Accepted"), ("Programmed", "True", "Programmed"))


def row(obj: Hostname, answer: frozenset[tuple[str, str]] | str) -> NameRow:
    return name_rows([obj], {KEY: answer})[0]


def test_a_name_that_resolves_as_it_should_is_good():
    shown = row(hostname(*GOOD), frozenset({("A", "192.0.2.1")}))
    assert (shown.good, shown.resolves, shown.state, shown.message) == (True, "Yes", "Published", "")
    assert cells(shown) == (
        "www.example.test", "east", "Ingress/default/shop", "192.0.2.1", "Yes", "2030-01-02", "Published"
    )  # fmt: skip


def test_a_name_that_resolves_to_something_else_says_to_what():
    shown = row(hostname(*GOOD), frozenset({("A", "192.0.2.9")}))
    assert (shown.good, shown.resolves) == (False, "No")
    assert shown.message == "the server answers A 192.0.2.9 instead of A 192.0.2.1"


def test_a_server_that_cannot_be_asked_leaves_it_unknown():
    shown = row(hostname(*GOOD), "no route")
    assert (shown.good, shown.resolves, shown.message) == (False, "Unknown", "no route")


def test_a_name_that_is_not_published_says_why():
    shown = row(hostname(("Accepted", "False", "NoSuchZone")), frozenset())
    assert (shown.good, shown.state, shown.message) == (False, "NoSuchZone", "NoSuchZone: why")
    assert row(hostname(), frozenset()).state == "Pending"


def test_a_name_without_records_is_good_when_nothing_is_answered():
    assert row(hostname(*GOOD, addresses=[]), frozenset()).good


def test_expected_records_are_those_of_the_accepted_spec():
    assert expected(hostname(addresses=["192.0.2.1", "2001:DB8::1"])) == {"A": {"192.0.2.1"}, "AAAA": {"2001:db8::1"}}
    assert expected(hostname(addresses=["nonsense"])) == {}


@pytest.mark.parametrize(
    ("server", "text"), [("", "names no server to ask"), ("not an address", "host:port"), ("free", "cannot be reached")]
)
async def test_what_cannot_be_asked_is_a_sentence(server: str, text: str):
    parameters = {"server": f"127.0.0.1:{free_port()}" if server == "free" else server} if server else {}
    spec = DNSZoneSpec(zone="example.test", provider="rfc2136", parameters=parameters)
    there = DNSZone(metadata=ObjectMeta(name="example"), spec=spec)
    assert longest_suffix("www.example.test", [there]) is there
    (answer,) = (await ask_zones([hostname()], [there])).values()
    assert isinstance(answer, str)
    assert text in answer
    assert (await ask_zones([hostname(host="www.other.test")], []))[KEY] == "no DNSZone holds it"
