"""What an object reads about its names: nothing while all is well, and nothing of other members ever."""

from __future__ import annotations

import pytest
from names_parts import claimant

from fairlead.api.intent import NamesStatus
from fairlead.hub.names.controller import names_status
from fairlead.hub.names.ownership import NameDecision
from fairlead.model.condition import ConditionReason

NOW = "2026-01-01T00:00:00Z"
OURS, THEIRS = claimant("east"), claimant("west")
TAKEN = NameDecision(owner=THEIRS, refused={OURS.space: ConditionReason.HOSTNAME_TAKEN})


def status(decisions, before=None, **claims):
    claims = claims or dict.fromkeys(decisions, OURS)
    return names_status(claims, decisions, before or NamesStatus(), generation=1, now=NOW)


def test_nothing_is_written_while_nothing_is_refused():
    assert status({"a.com": NameDecision(owner=OURS)}) == NamesStatus()


@pytest.mark.req("KI-9", "KI-10")
def test_a_taken_name_is_named_without_its_owner():
    (condition,) = status({"a.com": TAKEN, "b.com": NameDecision(owner=OURS)}).conditions or []
    assert (condition.type, condition.status, condition.reason) == ("HostnamesAccepted", "False", "HostnameTaken")
    assert "a.com" in condition.message
    assert "b.com" not in condition.message
    assert "west" not in condition.message


def test_of_many_names_the_first_three_are_named():
    (condition,) = status({f"{n}.com": TAKEN for n in range(5)}).conditions or []
    assert "0.com, 1.com, 2.com and 2 more" in condition.message


def test_a_condition_is_true_after_a_rejection_ends():
    refused = status({"a.com": TAKEN})
    accepted = status({"a.com": NameDecision(owner=OURS)}, before=refused)
    assert [(each.status, each.reason) for each in accepted.conditions] == [("True", "HostnamesAccepted")]
    assert status({"a.com": NameDecision(owner=OURS)}, before=accepted) == accepted


@pytest.mark.req("K-49")
def test_the_name_that_the_hub_made_is_shown_once_it_is_owned():
    made = claimant("east", generated=True)
    assert status({"w.lb.com": NameDecision(owner=made)}, **{"w.lb.com": made}).hostname == "w.lb.com"
    refused = NameDecision(refused={made.space: ConditionReason.DOMAIN_RESERVED})
    assert status({"w.lb.com": refused}, **{"w.lb.com": made}).hostname == ""


@pytest.mark.req("KI-10")
def test_unwritten_records_are_shown_with_the_reason():
    owned = {f"{n}.com": NameDecision(owner=OURS) for n in range(2)}
    bad = names_status(
        dict.fromkeys(owned, OURS), owned, NamesStatus(), generation=1, now=NOW, unpublished={"1.com": "DNSRefused"}
    )
    (condition,) = bad.conditions or []
    assert (condition.type, condition.status, condition.reason) == (
        "HostnamesPublished",
        "False",
        "HostnameNotPublished",
    )
    assert "host 1.com: the records cannot be written (DNSRefused)" in condition.message
    assert "0.com" not in condition.message
    good = status(owned, before=bad)
    assert [(each.type, each.status) for each in good.conditions] == [("HostnamesPublished", "True")]


def test_a_name_that_was_only_refused_says_nothing_of_its_records():
    accepted = status({"a.com": NameDecision(owner=OURS)}, before=status({"a.com": TAKEN}))
    assert [each.type for each in accepted.conditions] == ["HostnamesAccepted"]
