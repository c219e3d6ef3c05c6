"""A Hostname becomes records: which types, which zone, and what is refused with the next step."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api.hostname import DNSZone, DNSZoneSpec, Hostname, HostnameSpec, HostnameStatus
from fairlead.api.loadbalancerclass import Guard
from fairlead.api.meta import ObjectMeta
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.contract import Capabilities
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.hostname import HostnameView, decide_hostname, longest_suffix

KEY = LoadBalancerKey("Hostname", "fairlead-system", "www")
NAMES = Capabilities(publishes_names=True)


def zone(name: str = "example.test", **spec: Any) -> DNSZone:
    spec = {"provider": "rfc2136", "parameters": {"server": "192.0.2.53"}, **spec}
    return DNSZone(metadata=ObjectMeta(name=name.split(".", maxsplit=1)[0]), spec=DNSZoneSpec(zone=name, **spec))


def view(zone_: DNSZone | None = None, *, accepted: HostnameSpec | None = None, **spec: Any) -> HostnameView:
    given: dict[str, Any] = {"host": "www.example.test", "addresses": ["192.0.2.1"], **spec}
    wanted = HostnameSpec(**given)
    meta = ObjectMeta(name="www", namespace="fairlead-system", uid="u1")
    obj = Hostname(metadata=meta, spec=wanted, status=HostnameStatus(accepted=accepted))
    return HostnameView(KEY, obj, zone_ or zone(), {"rfc2136": NAMES, "haproxy": Capabilities()})


def by_type(view_: HostnameView) -> dict[str, list[str]]:
    desired = decide_hostname(view_).desired
    assert desired is not None
    return {listener.backend: [key.address for key in targets] for listener, targets in desired.targets.items()}


def refusal(view_: HostnameView) -> tuple[ConditionReason, str]:
    condition = decide_hostname(view_).conditions[0]
    assert (condition.type, condition.status) == (ConditionType.ACCEPTED, False)
    return condition.reason, condition.message


def test_addresses_become_a_and_aaaa_records_and_both_types_are_always_guarded():
    assert by_type(view(addresses=["192.0.2.1", "2001:DB8::1"])) == {"A": ["192.0.2.1"], "AAAA": ["2001:db8::1"]}
    assert by_type(view(addresses=[])) == {"A": [], "AAAA": []}


def test_one_family_may_go_while_the_other_resolves():
    assert by_type(view(addresses=["2001:db8::1"])) == {"AAAA": ["2001:db8::1"]}
    assert by_type(view(addresses=["192.0.2.1"])) == {"A": ["192.0.2.1"]}


def test_a_cname_excludes_addresses_and_texts_are_there_while_there_are_any():
    assert by_type(view(addresses=[], cname="Edge.example.")) == {"CNAME": ["edge.example"]}
    assert by_type(view(texts=["token"])) == {"A": ["192.0.2.1"], "TXT": ["token"]}


def test_parameters_are_those_of_the_zone_with_zone_host_and_owner():
    desired = decide_hostname(view(zone(owner_id="hub-1", guard=Guard(30, 2)))).desired
    assert desired is not None
    assert desired.spec.parameters == {
        "host": "www.example.test",
        "ownerId": "hub-1",
        "server": "192.0.2.53",
        "zone": "example.test",
    }
    assert (desired.guard.max_removal_percent, desired.guard.min_targets) == (30, 2)
    assert (desired.spec.owner.uid, desired.drain_s) == ("u1", 0.0)


def test_the_ttl_is_the_names_own_or_the_zones():
    for own, expected in ((0, "60"), (5, "5")):
        desired = decide_hostname(view(ttl_seconds=own)).desired
        assert desired is not None
        (target,) = next(iter(desired.targets.values())).values()
        assert dict(target.parameters) == {"ttl": expected}


def test_the_longest_suffix_counts_and_of_two_alike_the_older():
    zones = [zone("example.test"), zone("eu.example.test"), zone("other.test")]
    assert longest_suffix("www.eu.example.test", zones) is zones[1]
    assert longest_suffix("eu.example.test", zones) is zones[1]
    assert longest_suffix("example.test", zones) is zones[0]
    assert longest_suffix("notexample.test", zones) is None
    young, old = (
        msgspec.structs.replace(each, metadata=ObjectMeta(name=name, creation_timestamp=at))
        for each, name, at in ((zone(), "a", "2030-01-02"), (zone(), "b", "2030-01-01"))
    )
    assert longest_suffix("www.example.test", [young, old]) is old


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"host": "example.test", "addresses": [], "cname": "a.example."}, "the apex of its zone"),
        ({"cname": "a.example."}, "set either cname or addresses"),
        ({"addresses": [], "cname": "www.example.test"}, "it is the name itself"),
        ({"addresses": ["nonsense"]}, "'nonsense'"),
        ({"host": "münchen.example.test"}, "write an internationalized name as its A-labels"),
        ({"host": ".".join(["a" * 60] * 4) + ".example.test"}, "at most 238 leave room for the ownership marks"),
        ({"host": "a" * 64 + ".example.test"}, "longer than 63 characters"),
    ],
)
def test_what_cannot_be_published_is_refused_with_the_next_step(spec: dict[str, Any], text: str):
    reason, message = refusal(view(**spec))
    assert reason is ConditionReason.INVALID
    assert text in message


def test_a_refused_version_leaves_the_records_of_the_last_accepted():
    accepted = HostnameSpec(host="www.example.test", addresses=["192.0.2.7"])
    translation = decide_hostname(view(accepted=accepted, addresses=["nonsense"]))
    assert translation.serving_last_accepted
    assert translation.desired is not None
    assert "the last accepted version is served" in translation.conditions[0].message


def test_without_a_zone_nothing_is_programmed_or_removed():
    nowhere = msgspec.structs.replace(view(), zone=None, zones=("other.test",))
    assert refusal(nowhere)[0] is ConditionReason.NO_SUCH_ZONE
    assert "there are other.test" in refusal(nowhere)[1]
    assert decide_hostname(nowhere).desired is None
    assert "does not run provider 'nsd'" in refusal(view(zone(provider="nsd")))[1]
    assert "publishes no names" in refusal(view(zone(provider="haproxy")))[1]


def test_a_dry_run_says_so_and_holds_everything():
    translation = decide_hostname(view(zone(dry_run=True)))
    assert translation.desired is not None
    assert translation.desired.dry_run
    assert translation.condition(ConditionReason.DRY_RUN) is not None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "a..example.test",
            "spec.cname: a label of a..example.test is empty or longer than 63 characters; choose another name",
        ),
        (
            f"{'a' * 64}.example.test",
            f"spec.cname: a label of {'a' * 60} is empty or longer than 63 characters; choose another name",
        ),
        (
            f"{'ü' * 61}.test",
            f"spec.cname: {'ü' * 60} is not ASCII; write an internationalized name as its A-labels (xn--…)",
        ),
    ],
)
def test_a_wrong_name_is_shown_shortened(name, message):
    assert refusal(view(addresses=[], cname=name)) == (ConditionReason.INVALID, message)


def test_without_a_zone_the_zones_that_there_are_are_listed():
    nowhere = msgspec.structs.replace(view(), zone=None)
    assert refusal(nowhere)[1] == (
        "spec.host: no DNSZone holds www.example.test (there is none yet); create a DNSZone for a suffix of it"
    )
    some = msgspec.structs.replace(nowhere, zones=("b.test", "c.test"))
    assert "(there are b.test, c.test)" in refusal(some)[1]


@pytest.mark.req("MC-21", "MC-22")
def test_a_name_that_hubs_share_has_a_short_ttl_and_marks_unhealthy_addresses():
    def parameters(zone_: DNSZone, **spec: Any) -> dict[str, tuple[tuple[str, str], ...]]:
        spec = {"addresses": ["192.0.2.1", "2001:db8::1"], "unhealthy_addresses": ["2001:DB8:0::1"], **spec}
        desired = decide_hostname(view(zone_, **spec)).desired
        assert desired is not None
        return {
            key.address: target.parameters for targets in desired.targets.values() for key, target in targets.items()
        }

    assert parameters(zone()) == dict.fromkeys(("192.0.2.1", "2001:db8::1"), (("ttl", "60"),))
    shared = zone(peer_lease_seconds=60)
    unhealthy = (("unhealthy", "true"), ("ttl", "30"))
    assert parameters(shared) == {"192.0.2.1": (("ttl", "30"),), "2001:db8::1": unhealthy}
    assert parameters(shared, ttl_seconds=300)["192.0.2.1"] == (("ttl", "300"),)
    assert parameters(zone(peer_lease_seconds=60, ttl_seconds=10))["192.0.2.1"] == (("ttl", "10"),)
    desired = decide_hostname(view(shared)).desired
    assert desired is not None
    assert desired.spec.parameters["peerLeaseSeconds"] == "60"
    reason, text = refusal(view(shared, unhealthy_addresses=["elsewhere"]))
    assert reason is ConditionReason.INVALID
    assert "spec.unhealthyAddresses" in text


def test_a_name_in_a_zone_that_cannot_be_read_is_not_said_to_have_none():
    hidden = msgspec.structs.replace(view(), zone=None, unreadable="DNSZone example: spec.zone is missing")
    reason, message = refusal(hidden)
    assert reason is ConditionReason.NO_SUCH_ZONE
    assert message.endswith("DNSZone example: spec.zone is missing; correct that")


def test_texts_need_a_provider_that_writes_them():
    without = msgspec.structs.replace(NAMES, publishes_texts=False)
    reason, message = refusal(msgspec.structs.replace(view(texts=["token"]), providers={"rfc2136": without}))
    assert reason is ConditionReason.INVALID
    assert "provider 'rfc2136', which has no TXT records" in message
