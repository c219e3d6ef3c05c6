"""The state machine: every row of its table, and that no order of crashes breaks its two promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capi.view import TABLE, Goal, MemberAction, Presence, presence_of, step, together

ROWS = [
    # goal, presence, action, status
    ("alive", "absent", "add", "adding"),
    ("alive", "leaving", "add", "adding"),
    ("alive", "pending", "wait", "adding"),
    ("alive", "draining", "add", "adding"),
    ("alive", "out", "add", "adding"),
    ("alive", "active", "none", "active"),
    ("disabled", "absent", "none", "disabled"),
    ("disabled", "pending", "drain", "disabling"),
    ("disabled", "active", "drain", "disabling"),
    ("disabled", "draining", "wait", "disabling"),
    ("disabled", "leaving", "wait", "disabling"),
    ("disabled", "out", "none", "disabled"),
    ("leaving", "pending", "drain", "removing"),
    ("leaving", "active", "drain", "removing"),
    ("leaving", "draining", "wait", "removing"),
    ("leaving", "leaving", "wait", "removing"),
    ("leaving", "out", "remove", "removing"),
    ("leaving", "absent", "release", "removed"),
]


@pytest.mark.req("C-37", "C-38", "T-C-09", "T-C-11", "T-C-12", "T-C-13")
@pytest.mark.parametrize(("goal", "presence", "action", "status"), ROWS)
def test_each_row(goal, presence, action, status):
    assert step(Goal(goal), Presence(presence)) == (MemberAction(action), status)


def test_the_table_has_a_row_for_everything():
    assert set(TABLE) == {(goal, presence) for goal in Goal for presence in Presence}
    assert len(ROWS) == len(TABLE)


@pytest.mark.req("C-40")
def test_nothing_adds_a_member_that_is_disabled():
    assert all(step(Goal.DISABLED, presence).action is not MemberAction.ADD for presence in Presence)


@pytest.mark.req("C-43", "C-64")
def test_hooks_leave_in_exactly_one_row():
    rows = [key for key, row in TABLE.items() if row.action is MemberAction.RELEASE]
    assert rows == [(Goal.LEAVING, Presence.ABSENT)]


@pytest.mark.parametrize(
    ("asked", "draining", "listed", "in_effect", "presence"),
    [
        (False, False, "", True, "absent"),
        (False, False, "", False, "leaving"),
        (False, False, "Deregistering", True, "leaving"),
        (True, False, "Registered", True, "active"),
        (True, False, "Registered", False, "active"),
        (True, False, "Draining", True, "pending"),
        (True, False, "Pending", True, "pending"),
        (True, False, "", True, "pending"),
        (True, True, "Draining", True, "out"),
        (True, True, "Draining", False, "draining"),
        (True, True, "Registered", True, "draining"),
        (True, True, "Pending", True, "draining"),
        # It was never registered, so draining it means that it is not.
        (True, True, "", True, "out"),
    ],
)
def test_presence_of_a_backend(asked, draining, listed, in_effect, presence):
    assert presence_of(requested=asked, draining=draining, state=listed, in_effect=in_effect) == presence


@pytest.mark.parametrize(
    ("presences", "together_"),
    [
        ((), "absent"),
        (("active", "active"), "active"),
        (("active", "pending"), "pending"),
        (("absent", "out"), "out"),
        (("absent", "leaving"), "leaving"),
        (("out", "draining"), "draining"),
        (("out", "active"), "active"),
    ],
)
@pytest.mark.req("C-69")
def test_a_member_with_several_backends(presences, together_):
    assert together(Presence(each) for each in presences) == together_


class _World:
    """One member, its group and a hub that does what the group says, some time later; each step may be the last."""

    def __init__(self) -> None:
        self.hooked = False
        self.asked, self.draining = False, False
        self.generation, self.seen = 1, 1
        self.registered, self.no_new_connections = False, True
        self.listed, self.listed_generation = "", 1
        self.served_without_hook = False

    def controller(self, goal: Goal) -> None:
        presence = presence_of(
            requested=self.asked,
            draining=self.draining,
            state=self.listed,
            in_effect=self.listed_generation == self.generation,
        )
        row = step(goal, presence)
        if row.action is MemberAction.RELEASE:
            assert not self.registered, "released before its deregistration took effect"
            self.hooked = False
        elif goal is not Goal.LEAVING and not self.hooked:
            self.hooked = True  # and nothing else in the same step
        elif row.action is not MemberAction.NONE and row.action is not MemberAction.WAIT:
            self.asked = row.action is not MemberAction.REMOVE
            self.draining = row.action is MemberAction.DRAIN
            self.generation += 1

    def hub_reads(self) -> None:
        self.seen = self.generation
        self._target = (self.asked, self.draining)

    def hub_acts(self) -> None:
        asked, draining = getattr(self, "_target", (False, False))
        self.registered = asked and not (draining and not self.registered)
        self.no_new_connections = draining
        self.served_without_hook |= self.registered and not self.hooked

    def hub_reports(self) -> None:
        asked, draining = getattr(self, "_target", (False, False))
        settled = self.registered == (asked and not (draining and not self.registered))
        if settled:
            self.listed = ("Draining" if self.no_new_connections else "Registered") if self.registered else ""
            self.listed_generation = self.seen


@pytest.mark.req("C-43", "C-50", "C-64", "T-C-13")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["controller", "hub_reads", "hub_acts", "hub_reports", "stale"]),
            st.sampled_from([Goal.ALIVE, Goal.DISABLED]),
        ),
        max_size=40,
    )
)
def test_any_order_of_steps_releases_neither_too_early_nor_never(schedule):
    world = _World()
    for what, goal in schedule:
        # A crash is a step that never comes, and another one that comes instead; nothing is kept next to the objects.
        if what == "controller":
            world.controller(goal)
        elif what != "stale":
            getattr(world, what)()
    for _ in range(8):
        world.controller(Goal.LEAVING)
        world.hub_reads()
        world.hub_acts()
        world.hub_reports()
    assert not world.registered
    assert not world.hooked
    assert not world.served_without_hook
