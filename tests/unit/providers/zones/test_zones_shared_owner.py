"""Which marks of ours are not on record here: the sign of a second hub with the same ownerId."""

from __future__ import annotations

from fairlead.providers.zones.plan import Holder, Mark, RecordChange, RRSet, mark_key, mark_text
from fairlead.providers.zones.provider import shared_owner

HOST, US = "www.example.test", Holder("hub-1", "5d2c")


def change(value="192.0.2.1", *, wanted=True, ours=()):
    return RecordChange(HOST, "A", value, 60, US, wanted, "example.test", ours=frozenset(ours))


def marked(*values, holder=US):
    return {mark_key(HOST, "A"): RRSet(frozenset(mark_text(Mark(holder, value)) for value in values), 60)}


def test_a_mark_of_a_value_that_is_not_on_record_is_named():
    sentence = shared_owner([change()], marked("192.0.2.1", "192.0.2.9"))[US]
    assert sentence.startswith("A 192.0.2.9 is marked with ownerId hub-1")


def test_recorded_entries_and_those_of_the_batch_are_ours():
    there = marked("192.0.2.1", "192.0.2.2", "192.0.2.3")
    changes = [change(ours=[("A", "192.0.2.2")]), change("192.0.2.3", wanted=False)]
    assert shared_owner(changes, there) == {US: ""}


def test_marks_of_another_hub_or_of_another_object_of_ours_say_nothing():
    for holder in (Holder("hub-2", "5d2c"), Holder("hub-1", "77")):
        assert shared_owner([change()], marked("192.0.2.9", holder=holder)) == {US: ""}


def test_a_removal_alone_says_nothing():
    assert shared_owner([change(wanted=False)], marked("192.0.2.1", "192.0.2.9")) == {US: ""}
