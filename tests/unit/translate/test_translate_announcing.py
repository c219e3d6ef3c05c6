"""How addresses are announced: which Advertisement, which routers, which attributes, and what is wrong with objects."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.announcing import Advertisement, BGPPeer
from fairlead.model.condition import ConditionReason
from fairlead.translate.announcing import JoinedMachine, PlacedAddress, accept, choose_keeper

M1, M2 = JoinedMachine("m1", "edge", {"rack": "a"}), JoinedMachine("m2", "core", {"rack": "b"})
WEB = PlacedAddress(
    "192.0.2.7", ("m1", "m2"), ("east/default.web",), ("east/default/web",), class_name="gold", pool="public"
)


def peer(name="tor", *, last=None, **spec):
    body = {"address": "10.0.0.1", "asn": 65000, "localASN": 65001, **spec}
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": body, "status": {"accepted": last} if last else {}}, BGPPeer
    )


def advertisement(name="all", *, created="2026-01-01T00:00:00Z", last=None, **spec):
    body = {"announcement": "BGP", **spec}
    metadata = {"name": name, "creationTimestamp": created}
    return msgspec.convert(
        {"metadata": metadata, "spec": body, "status": {"accepted": last} if last else {}}, Advertisement
    )


def announced(*objects, placed=WEB, machines=(M1, M2), peers=()):
    return accept(peers or [peer()], objects, {}).announce(placed, machines)


@pytest.mark.req("P-18", "P-19")
def test_every_machine_announces_with_the_same_attributes():
    address, problem = announced(
        advertisement(communities=["no-export", "65000:01", "65000:1:2"], localPreference=0, med=10, prepend=2)
    )
    assert problem == ""
    assert (address.announcement, address.machines) == ("BGP", ("m1", "m2"))
    assert address.bgp is not None
    assert address.bgp.communities == ("65000:1", "65000:1:2", "65535:65281")
    assert (address.bgp.local_preference, address.bgp.med, address.bgp.prepend) == (0, 10, 2)


@pytest.mark.req("P-25")
@pytest.mark.parametrize(
    ("address", "aggregate"), [("192.0.2.7", "192.0.2.0/24"), ("2001:db8:7::9", "2001:db8:7::/48"), ("::1", "")]
)
def test_aggregates_are_of_the_family_of_the_address(address, aggregate):
    lengths = {"ipv4Length": 24, "ipv6Length": 128 if address == "::1" else 48}
    result, _ = announced(advertisement(aggregation=lengths), placed=msgspec.structs.replace(WEB, address=address))
    assert result.bgp is not None
    assert result.bgp.aggregate == aggregate


@pytest.mark.req("P-18")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["everything", "class", "pool", "service"], "service"),
        (["everything", "class", "pool"], "pool"),
        (["everything", "class"], "class"),
        (["everything", "older"], "older"),
        (["elsewhere"], None),
    ],
)
def test_the_most_precise_then_the_oldest_advertisement_is_used(names, expected):
    every = {
        "everything": advertisement("everything"),
        "older": advertisement("older", created="2025-01-01T00:00:00Z"),
        "class": advertisement("class", classes=["gold"]),
        "pool": advertisement("pool", pools=["public"]),
        "service": advertisement("service", services=["east/default/web"]),
        "elsewhere": advertisement("elsewhere", pools=["private"], classes=["gold"]),
    }
    entry = accept([peer()], [every[name] for name in names], {}).selecting(WEB)
    assert (entry[0] if entry else None) == expected


@pytest.mark.req("P-27")
def test_an_address_without_an_announcement_has_a_reason():
    address, problem = announced()
    assert address.announcement == "None"
    assert "no usable Advertisement" in problem
    _, problem = announced(advertisement(pools=["private"]))
    assert "192.0.2.7 (AddressPool public, LoadBalancerClass gold)" in problem
    _, problem = announced(advertisement("south", machines={"names": ["m9"]}))
    assert "Advertisement south" in problem
    assert "m1, m2" in problem
    _, problem = announced(advertisement(), peers=(peer(machines={"groups": ["edge"]}),))
    assert "no BGPPeer selects m2" in problem


@pytest.mark.req("P-18")
def test_peers_and_addresses_go_to_the_chosen_machines():
    accepted = accept(
        [peer("a", machines={"groups": ["edge"]}), peer("b", machines={"matchLabels": {"rack": "b"}}), peer("c")],
        [advertisement(machines={"names": ["m2"]})],
        {},
    )
    assert [plan.name for plan in accepted.peers_of(M1)] == ["a", "c"]
    assert [plan.name for plan in accepted.peers_of(M2)] == ["b", "c"]
    address, _ = accepted.announce(WEB, [M1, M2], keeper="m1")
    assert (address.machines, address.keeper) == (("m2",), ""), "a machine that may not announce keeps nothing"


@pytest.mark.req("P-18")
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"address": "router.example.com"}, "spec.address"),
        ({"address": "10.0.0.1:179"}, "spec.address"),
        ({"address": "fe80::1"}, "spec.interface"),
        ({"interface": "eth0"}, "spec.interface"),
        ({"address": "224.0.0.5"}, "spec.address"),
        ({"address": ""}, "address or interface"),
        ({"address": "", "interface": "eth0", "hops": 3}, ""),
    ],
)
def test_the_last_accepted_session_stays_while_the_spec_is_invalid(spec, field):
    good = {"address": "10.0.0.9", "asn": 65000, "localASN": 65001}
    accepted = accept([peer(last=good, **spec)], [], {})
    condition = accepted.peer_conditions["tor"][0]
    if not field:
        assert condition.status
        return
    assert (condition.status, condition.reason) == (False, ConditionReason.INVALID)
    assert field in condition.message
    assert [plan.address for plan in accepted.peers_of(M1)] == ["10.0.0.9"]
    assert accept([peer(**spec)], [], {}).peers_of(M1) == (), "there never was a valid one"


@pytest.mark.req("P-18")
def test_an_invalid_advertisement_withdraws_nothing():
    last = {"announcement": "BGP", "med": 7}
    for field, value, part in (("communities", "65000:70000", "65000:70000"), ("peers", "gone", "BGPPeer gone")):
        changed = msgspec.structs.replace(advertisement(last=last).spec, **{field: [value]})
        accepted = accept([peer()], [msgspec.structs.replace(advertisement(last=last), spec=changed)], {})
        assert accepted.conditions["all"].reason == ConditionReason.INVALID
        assert part in accepted.conditions["all"].message
        address, problem = accepted.announce(WEB, [M1, M2])
        assert problem == ""
        assert address.bgp is not None
        assert address.bgp.med == 7


@pytest.mark.req("P-18")
@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        ({"password": b"s3cret-pass\n"}, ""),
        (None, "create it"),
        ({"other": b"x"}, "no entry password"),
        ({"password": b'with"quote'}, "printable ASCII"),
        ({"password": b"x" * 81}, "printable ASCII"),
        ({"password": "pässword".encode()}, "printable ASCII"),
        ({"password": b""}, "printable ASCII"),
        ({"password": b"two words"}, "printable ASCII"),
    ],
)
def test_a_password_comes_from_its_secret_or_stays_as_it_was(secret, problem):
    accepted = accept([peer(passwordSecret="md5")], [], {"md5": secret})
    resolved = accepted.peer_conditions["tor"][1]
    [plan] = accepted.peers_of(M1)
    assert resolved.status is (problem == "")
    assert problem in resolved.message
    assert (plan.password, plan.keep_password) == (("s3cret-pass", False) if not problem else ("", True))
    assert "pass" not in repr(plan)
    assert not secret or "quote" not in resolved.message


@pytest.mark.req("P-20")
@pytest.mark.parametrize(
    ("former", "healthy", "keeper"),
    [
        ("", {"m1": True, "m2": True}, "m1"),
        ("m2", {"m1": True, "m2": True}, "m2"),
        ("m2", {"m1": True, "m2": False}, "m1"),
        ("m2", {"m1": False, "m2": False}, "m2"),
        ("m2", {"m1": False}, "m1"),
        ("m2", {}, "m2"),
        ("m9", {}, ""),
    ],
)
def test_the_keeper_is_healthy_if_any_machine_is_and_rarely_changes(former, healthy, keeper):
    assert choose_keeper(["m1", "m2"], former, healthy) == keeper
