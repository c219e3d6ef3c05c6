"""Which records a batch adds and deletes, and what is left alone because it is not ours."""

from __future__ import annotations

import pytest

from fairlead.providers.zones.plan import (
    Holder,
    Mark,
    PeerHubs,
    Planned,
    RecordChange,
    RRKey,
    RRSet,
    lease_key,
    mark_from_text,
    mark_key,
    mark_text,
    marked,
    plan_records,
    reads,
)

US = Holder("hub-1", "aaaa")
OTHER_HUB = Holder("hub-2", "bbbb")
HOST, ZONE = "www.example.test", "example.test"
OURS = frozenset({("A", "192.0.2.1")})


def change(value: str = "192.0.2.1", type_: str = "A", *, wanted: bool = True, ttl: int = 60, **more) -> RecordChange:
    return RecordChange(HOST, type_, value, ttl, US, wanted, ZONE, **more)


def marks(type_: str, *values: str, holder: Holder = US) -> dict[RRKey, RRSet]:
    return {mark_key(HOST, type_): RRSet(frozenset(mark_text(Mark(holder, marked(value))) for value in values), 60)}


def records(type_: str, *values: str, ttl: int = 60) -> dict[RRKey, RRSet]:
    return {RRKey(HOST, type_): RRSet(frozenset(values), ttl)}


def brief(planned: Planned) -> list[str]:
    """Return the edits without marks' texts."""
    out = []
    for edit in planned.edits:
        mark = mark_from_text(edit.value)
        out.append(f"{'+' if edit.add else '-'}{edit.key.type} {f'mark {mark.value}' if mark else edit.value}")
    return out


def test_a_new_value_comes_with_its_mark():
    assert brief(plan_records([change()], {})) == ["+TXT mark 192.0.2.1", "+A 192.0.2.1"]


def test_marked_entries_need_no_change():
    assert plan_records([change()], records("A", "192.0.2.1") | marks("A", "192.0.2.1")) == Planned((), {})


def test_a_value_without_a_mark_is_left_alone_and_the_change_refused():
    planned = plan_records([change(), change("192.0.2.2")], records("A", "192.0.2.1"))
    assert planned.edits == ()
    assert set(planned.refused) == {0, 1}
    assert "a record of type A" in planned.refused[0]


def test_a_value_whose_mark_was_lost_is_ours_while_the_ledger_has_it():
    assert brief(plan_records([change(ours=OURS)], records("A", "192.0.2.1"))) == ["+TXT mark 192.0.2.1"]
    assert brief(plan_records([change(wanted=False, ours=OURS)], records("A", "192.0.2.1"))) == ["-A 192.0.2.1"]
    assert plan_records([change(wanted=False)], records("A", "192.0.2.1")).edits == ()


@pytest.mark.req("C-53")
def test_a_registry_mark_of_external_dns_makes_the_record_theirs():
    theirs = RRSet(frozenset({"heritage=external-dns,external-dns/owner=prod,external-dns/resource=ingress/a/b"}))
    for key in (RRKey("a-www.example.test", "TXT"), RRKey(HOST, "TXT")):
        planned = plan_records([change()], {key: theirs})
        assert planned.edits == ()
        assert "external-dns" in planned.refused[0]
    prefixed = change(prefix="edns-")
    assert plan_records([prefixed], {RRKey("edns-a-www.example.test", "TXT"): theirs}).refused
    assert {RRKey("edns-a-www.example.test", "TXT"), RRKey("edns-www.example.test", "TXT")} <= reads([prefixed])


def test_several_hubs_have_values_of_one_name_and_each_removes_only_its_own():
    there = records("A", "192.0.2.9", ttl=300) | marks("A", "192.0.2.9", holder=OTHER_HUB)
    planned = plan_records([change()], there)
    assert brief(planned) == ["+TXT mark 192.0.2.1", "+A 192.0.2.1"]
    assert planned.edits[1].ttl == 300
    assert plan_records([change("192.0.2.9", wanted=False)], there).edits == ()


def test_a_value_that_two_hubs_have_goes_with_the_last_mark():
    text = {mark_text(Mark(holder, "192.0.2.1")) for holder in (US, OTHER_HUB)}
    both = {mark_key(HOST, "A"): RRSet(frozenset(text), 60)} | records("A", "192.0.2.1")
    assert brief(plan_records([change(wanted=False)], both)) == ["-TXT mark 192.0.2.1"]
    alone = records("A", "192.0.2.1") | marks("A", "192.0.2.1")
    assert brief(plan_records([change(wanted=False)], alone)) == ["-A 192.0.2.1", "-TXT mark 192.0.2.1"]


def test_a_cname_takes_the_place_of_our_addresses_in_one_update_and_back():
    addresses = records("A", "192.0.2.1") | marks("A", "192.0.2.1")
    to_cname = plan_records([change("edge.example", "CNAME")], addresses)
    assert brief(to_cname) == ["-A 192.0.2.1", "-TXT mark 192.0.2.1", "+TXT mark edge.example", "+CNAME edge.example"]
    alias = records("CNAME", "edge.example") | marks("CNAME", "edge.example")
    back = plan_records([change()], alias)
    assert brief(back) == ["-CNAME edge.example", "-TXT mark edge.example", "+TXT mark 192.0.2.1", "+A 192.0.2.1"]


@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize("type_", ["TXT", "A", "MX", "NS", "TYPE65280"])
def test_a_cname_next_to_records_of_others_is_rejected(type_):
    planned = plan_records([change("edge.example", "CNAME")], records(type_, "192.0.2.9"))
    assert planned.edits == ()
    assert f"record of type {type_} of another owner" in planned.refused[0]


@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize("type_", ["TXT", "MX"])
def test_our_address_stays_when_a_cname_is_refused_for_records_of_others(type_):
    there = records("A", "192.0.2.1") | marks("A", "192.0.2.1") | records(type_, "theirs")
    planned = plan_records([change("edge.example", "CNAME")], there)
    assert planned.edits == ()
    assert f"type {type_}" in planned.refused[0]


@pytest.mark.req("EDGE-02")
def test_a_text_of_others_is_not_adopted_and_so_never_removed():
    planned = plan_records([change("token", "TXT")], records("TXT", "token", "v=spf1 -all"))
    assert planned.edits == ()
    assert "this very text" in planned.refused[0]
    assert brief(
        plan_records([change("token", "TXT", ours=frozenset({("TXT", "token")}))], records("TXT", "token"))
    ) == ["+TXT mark token"]


def test_a_cname_moves_when_it_is_ours_and_not_when_another_hub_has_it():
    ours = records("CNAME", "old.example") | marks("CNAME", "old.example")
    moved = brief(plan_records([change("new.example", "CNAME")], ours))
    assert moved == ["-CNAME old.example", "-TXT mark old.example", "+TXT mark new.example", "+CNAME new.example"]
    theirs = records("CNAME", "old.example") | marks("CNAME", "old.example", holder=OTHER_HUB)
    assert plan_records([change("new.example", "CNAME")], theirs).refused


def test_a_text_coexists_with_other_records():
    planned = plan_records([change("token", "TXT")], records("TXT", "v=spf1 -all", ttl=300))
    assert brief(planned) == ["+TXT mark token", "+TXT token"]
    assert [edit.ttl for edit in planned.edits] == [60, 300]


def test_a_new_ttl_is_written_with_the_same_value():
    planned = plan_records([change()], records("A", "192.0.2.1", ttl=5) | marks("A", "192.0.2.1"))
    assert [(edit.key.type, edit.ttl, edit.add) for edit in planned.edits] == [("A", 60, True)]


def test_a_refused_change_stops_no_other():
    other = RecordChange("api.example.test", "A", "192.0.2.5", 60, US, True, ZONE)
    planned = plan_records([change(), other], records("A", "192.0.2.1"))
    assert set(planned.refused) == {0}
    assert brief(planned) == ["+TXT mark 192.0.2.5", "+A 192.0.2.5"]


def test_marks_are_read_back_and_long_values_named_by_their_digest():
    mark = Mark(US, marked('a "strange", value'))
    assert mark.value.startswith("sha256:")
    assert mark_from_text(mark_text(mark)) == mark
    assert mark_from_text("heritage=external-dns,external-dns/owner=x") is None
    assert mark_from_text("heritage=fairlead,fairlead/owner=x") is None


def both(*more: str, ttl: int = 60) -> dict[RRKey, RRSet]:
    """Return an address of ours with one of another hub."""
    key = mark_key(HOST, "A")
    texts = marks("A", "192.0.2.1", *more)[key].values | marks("A", "192.0.2.9", holder=OTHER_HUB)[key].values
    return {**records("A", "192.0.2.1", "192.0.2.9", *more, ttl=ttl), key: RRSet(texts, ttl)}


def shared(
    value: str = "192.0.2.1", *unhealthy: str, expired: str = "", hubs: PeerHubs | None = None, **more
) -> RecordChange:
    hubs = hubs or PeerHubs(frozenset({"hub-2"} - {expired}), {owner: frozenset() for owner in {expired} - {""}})
    return change(value, unhealthy=frozenset(unhealthy), hubs=hubs, **more)


@pytest.mark.req("MC-22")
def test_an_unhealthy_address_is_withdrawn_while_another_answers():
    planned = plan_records([shared("192.0.2.1", "192.0.2.1")], both())
    assert brief(planned) == ["-A 192.0.2.1", "-TXT mark 192.0.2.1"]
    assert {edit.as_read for edit in planned.edits if edit.key.type == "A"} == {frozenset({RRKey(HOST, "A")})}
    there = {**records("A", "192.0.2.1"), **marks("A", "192.0.2.1")}
    assert plan_records([shared("192.0.2.1", "192.0.2.1")], there).edits == ()
    # The others do not serve either: one by its load balancer, one by the lease of its hub.
    down = [shared(value, "192.0.2.1", "192.0.2.2", expired="hub-2") for value in ("192.0.2.1", "192.0.2.2")]
    assert plan_records(down, both("192.0.2.2")).edits == ()
    assert brief(plan_records([shared("192.0.2.1", "192.0.2.1")], {})) == ["+TXT mark 192.0.2.1", "+A 192.0.2.1"]
    # No other hub shares the zone: the address stays, as it always has.
    assert plan_records([change(unhealthy=frozenset({"192.0.2.1"}))], both()).edits == ()


@pytest.mark.req("MC-21")
@pytest.mark.parametrize("leaves", [change(wanted=False), shared("192.0.2.1", "192.0.2.1")])
def test_a_value_of_two_hubs_is_left_to_the_other_only_while_its_mark_is_there(leaves):
    key = mark_key(HOST, "A")
    texts = marks("A", "192.0.2.1")[key].values | marks("A", "192.0.2.1", "192.0.2.9", holder=OTHER_HUB)[key].values
    there = {**records("A", "192.0.2.1", "192.0.2.9"), key: RRSet(texts, 60)}
    planned = plan_records([leaves], there)
    assert brief(planned) == ["-TXT mark 192.0.2.1"]
    assert planned.edits[0].as_read == {key}


@pytest.mark.req("MC-21")
def test_the_last_owner_of_a_value_removes_it_only_while_no_other_marks_it():
    there = {**records("A", "192.0.2.1"), **marks("A", "192.0.2.1")}
    planned = plan_records([change(wanted=False)], there)
    assert brief(planned) == ["-A 192.0.2.1", "-TXT mark 192.0.2.1"]
    assert planned.edits[0].as_read == {mark_key(HOST, "A")}


@pytest.mark.req("MC-21")
def test_records_are_exchanged_for_a_cname_only_while_no_other_hub_marks_them():
    there = {**records("A", "192.0.2.1"), **marks("A", "192.0.2.1")}
    edits = plan_records([change("other.example.", "CNAME", ours=OURS)], there).edits
    assert {edit.as_read for edit in edits if edit.key == RRKey(HOST, "A")} == {frozenset({mark_key(HOST, "A")})}


@pytest.mark.req("MC-22")
def test_addresses_of_an_expired_hub_go_only_next_to_a_healthy_one():
    assert brief(plan_records([shared(expired="hub-2")], both())) == ["-A 192.0.2.9", "-TXT mark 192.0.2.9"]
    assert plan_records([shared("192.0.2.1", "192.0.2.1", expired="hub-2")], both()).edits == ()
    assert plan_records([shared(expired="hub-3")], both()).edits == ()
    # A hub whose lease could not be read is neither relied on nor withdrawn.
    unknown = PeerHubs(frozenset({"hub-3"}))
    assert plan_records([shared(hubs=unknown)], both()).edits == ()
    assert plan_records([shared("192.0.2.1", "192.0.2.1", hubs=unknown)], both()).edits == ()
    text = shared("token", type_="TXT", expired="hub-2")
    theirs = {**records("TXT", "theirs"), **marks("TXT", "theirs", holder=OTHER_HUB)}
    assert brief(plan_records([text], theirs)) == ["+TXT mark token", "+TXT token"]


@pytest.mark.req("MC-22")
def test_addresses_of_an_expired_hub_go_only_while_its_lease_stays_expired():
    key = lease_key("hub-2", ZONE)
    hubs = PeerHubs(expired={"hub-2": frozenset({"old"})})
    edits = plan_records([shared(hubs=hubs)], both()).edits
    assert edits
    assert all(key in edit.as_read for edit in edits)
    assert hubs.leases(ZONE) == {key}
    assert hubs.confirmed(ZONE, {key: RRSet(frozenset({"old"}), 5)}) == hubs
    for there in ({}, {key: RRSet(frozenset({"renewed"}), 5)}):
        assert hubs.confirmed(ZONE, there) == PeerHubs()


@pytest.mark.req("MC-21")
def test_hubs_that_share_a_name_agree_on_the_shortest_ttl():
    added = plan_records([shared(ttl=30)], both(ttl=60)).edits
    assert {edit.ttl for edit in added if edit.key.type == "A"} == {30}
    assert plan_records([shared(ttl=60)], both(ttl=30)).edits == ()
