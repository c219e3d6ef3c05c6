"""Drills: their steps in time, what refuses them, blocked windows, and the times of schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from fairlead.api.drill import Drill, DrillSchedule
from fairlead.api.globalservice import GlobalService
from fairlead.testing.builders import decoded, tenant
from fairlead.translate.drill import (
    Times,
    blocked,
    concerned,
    due_s,
    due_time,
    left_s,
    next_status,
    refusal_of,
    zone_of,
)

#: A Tuesday.
NOW = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)
BOTH = [{"tenant": "west"}, {"tenant": "east"}]


def drill(state="", name="d", **spec):
    return decoded({"metadata": {"name": name}, "spec": {"member": "west", **spec}, "status": {"state": state}}, Drill)


def service(name="web", members=BOTH, shift=None, **states):
    shown = {"west": "Serving", "east": "Serving", **states}
    status = {"members": [{"tenant": tenant, "state": state} for tenant, state in shown.items()]}
    spec = {"service": f"shop/{name}", "members": members}
    if shift:
        status["shift"] = shift
    return decoded({"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status}, GlobalService)


def schedule(*windows, cron="", made="", last="", zone="", **drilled):
    spec = {"schedule": cron, "timeZone": zone, "blockedWindows": list(windows)}
    spec |= {"drill": drilled} if drilled else {}
    meta = {"name": "weekly", **({"creationTimestamp": made} if made else {})}
    return decoded({"metadata": meta, "spec": spec, "status": {"lastScheduleTime": last}}, DrillSchedule)


def step(present, now, *, refusal="", stop="", problem=""):
    status = next_status(present, now=now, refusal=refusal, stop=stop, services=["ns/web"], problem=problem)
    return msgspec.structs.replace(present, status=status)


@pytest.mark.req("MC-25")
def test_a_member_is_out_of_service_only_between_two_recorded_times():
    present, now = drill(duration="60s"), NOW
    present = step(present, now)
    assert (present.status.state, left_s(present, now)) == ("Before", 0)
    assert step(present, now + timedelta(seconds=29)).status == present.status
    now += timedelta(seconds=30)
    present = step(present, now)
    assert (present.status.state, left_s(present, now), due_s(present, now)) == ("Drilling", 60, 60)
    # Each replica sees the end, whether a hub has written it or not.
    assert left_s(present, now + timedelta(seconds=60)) == 0
    assert left_s(msgspec.structs.replace(present, spec=msgspec.structs.replace(present.spec, stop=True)), now) == 0
    now += timedelta(hours=5)
    present = step(present, now)
    assert (present.status.state, present.status.message) == ("After", "")
    present = step(measured(present, {"connections": 1}), now + timedelta(seconds=30))
    assert (present.status.state, present.status.message) == ("Passed", "")
    assert step(present, now + timedelta(days=1)).status == present.status


def measured(present, *phases):
    """Return a drill whose GlobalServices have a phase without the member each, or none for None."""
    services = [
        {"name": f"ns/{number}", "phases": [{"phase": "Before", "connections": 9}]}
        | ({"phases": [{"phase": "Drilling", "seconds": 9, **figures}]} if figures is not None else {})
        for number, figures in enumerate(phases)
    ]
    status = decoded({"metadata": {"name": "d"}, "status": {"services": services}}, Drill).status
    return msgspec.structs.replace(present, status=msgspec.structs.replace(present.status, services=status.services))


@pytest.mark.req("MC-25")
@pytest.mark.parametrize(
    ("phases", "state", "message"),
    [
        ([{"connections": 1}], "Passed", ""),
        ([{"requests": 1, "seconds": 0}], "Passed", ""),
        ([{"connections": 1}, {}], "Passed", ""),
        ([{"connections": 1}, None], "Passed", "1 of 2 GlobalServices were not measured"),
        ([{}, {}], "Inconclusive", "no client connected"),
        ([{}, None], "Inconclusive", "no client connected"),
        ([{"seconds": 0}], "Inconclusive", "proxy p1 does not answer"),
        ([None], "Inconclusive", "proxy p1 does not answer"),
    ],
)
def test_a_drill_passes_only_with_measured_traffic(phases, state, message):
    present = measured(drill("After"), *phases)
    after = step(present, NOW, problem="proxy p1 does not answer").status
    assert (after.state, message in after.message) == (state, True)
    assert bool(after.message) is bool(message)


@pytest.mark.req("MC-25")
def test_what_stops_a_drill_makes_it_fail():
    present = step(step(drill(), NOW), NOW + timedelta(seconds=30))
    now = NOW + timedelta(seconds=40)
    present = step(present, now, stop="5.0 % failed")
    assert (present.status.state, left_s(present, now)) == ("After", 0)
    present = step(present, now + timedelta(seconds=30), stop="no more")
    assert (present.status.state, present.status.message) == ("Failed", "5.0 % failed")


@pytest.mark.req("MC-25")
def test_a_drill_is_refused_before_and_after_it_measures():
    assert step(drill(), NOW, refusal="no").status.state == "Refused"
    measuring = step(drill(), NOW)
    assert step(measuring, NOW + timedelta(seconds=5), refusal="no").status.state == "Before"
    assert step(measuring, NOW + timedelta(seconds=30), refusal="no").status.state == "Refused"
    assert step(drill(stop=True), NOW).status.state == "Refused"


@pytest.mark.req("MC-25")
def test_a_drill_does_not_begin_hours_after_it_was_wanted():
    measuring = step(drill(), NOW)
    assert step(measuring, NOW + timedelta(minutes=9)).status.state == "Drilling"
    assert step(measuring, NOW + timedelta(minutes=11)).status.state == "Refused"
    meta = msgspec.structs.replace(drill().metadata, creation_timestamp="2026-12-01T09:00:00Z")
    late = step(msgspec.structs.replace(drill(), metadata=meta), NOW)
    assert (late.status.state, "no hub" in late.status.message) == ("Refused", True)


def refusal(present, *services, drills=(), schedules=(), tenants=("west", "east")):
    return refusal_of(
        present,
        concerned(present.spec, services),
        tenants=map(tenant, tenants),
        drills=drills,
        schedules=schedules,
        now=NOW,
    )


@pytest.mark.req("MC-25")
def test_a_drill_of_a_member_that_others_can_replace_is_not_refused():
    assert refusal(drill(), service()) == ""
    assert refusal(drill(), service(east="Standby")) == ""
    # Where the member is a later priority, nothing would be rehearsed; where it serves, something is.
    assert [obj.metadata.name for obj in concerned(drill().spec, [service("b", west="Standby"), service("a")])] == ["a"]
    assert [obj.metadata.name for obj in concerned(drill(service="shop/b").spec, [service("b"), service("a")])] == ["b"]


@pytest.mark.req("MC-25")
@pytest.mark.parametrize(
    ("present", "services", "others", "problem"),
    [
        (drill(), [service(west="Down")], {}, "out of service already: Down"),
        (drill(), [service(west="Drilled")], {}, "out of service already: Drilled"),
        (drill(), [service(west="Standby")], {}, "nothing would be rehearsed"),
        (drill(), [service(east="Down")], {}, "no member other than west can serve"),
        (drill(), [service(members=[BOTH[0], {"tenant": "east", "weight": 0}])], {}, "no member other than west"),
        (drill(), [service(members=[BOTH[0], {"tenant": "east", "maxShare": 60}])], {}, "maxShare is 60 %"),
        (drill(), [service(), service("b", east="Missing")], {}, "ns/b"),
        (drill(), [], {}, "no GlobalService lists member west"),
        (drill(service="shop/other"), [service()], {}, "no GlobalService shop/other"),
        (drill(), [service()], {"tenants": ["east"]}, "spec.member: there is no Tenant west"),
        (drill(), [service()], {"drills": [drill("Before", name="other", member="east")]}, "drill other"),
        (drill(duration="1s"), [service()], {}, "spec.duration"),
        (drill(duration="25h"), [service()], {}, "spec.duration"),
        (drill(), [service()], {"schedules": [schedule("Tue 10:04-12:00")]}, "blockedWindows of DrillSchedule weekly"),
        (
            drill(),
            [service(shift={"state": "Shifting", "members": [{"tenant": "east", "start": 0, "target": 100}]})],
            {},
            "shifting to east 100%",
        ),
    ],
)
def test_refusals_name_what_is_in_the_way(present, services, others, problem):
    assert problem in refusal(present, *services, **others)


@pytest.mark.req("MC-25")
def test_a_member_whose_agent_is_silent_is_dark_already():
    silent = service()
    members = [msgspec.structs.replace(each, silent_since="2026-12-01T09:00:00Z") for each in silent.status.members]
    silent = msgspec.structs.replace(silent, status=msgspec.structs.replace(silent.status, members=members))
    assert "dark already" in refusal(drill(), silent)


@pytest.mark.req("MC-26")
@pytest.mark.parametrize(
    ("window", "start", "blocks"),
    [
        ("Mon-Fri 08:00-18:00", "2026-12-01T10:00Z", True),
        ("Mon-Fri 08:00-18:00", "2026-12-01T18:00Z", False),
        ("Mon-Fri 08:00-18:00", "2026-12-05T10:00Z", False),
        # It would still be under way when the window opens.
        ("08:00-18:00", "2026-12-05T07:58Z", True),
        ("08:00-18:00", "2026-12-05T07:50Z", False),
        ("22:00-06:00", "2026-12-05T03:00Z", True),
        # Saturday to Monday, until Tuesday morning.
        ("Sat-Mon 22:00-06:00", "2026-12-01T05:00Z", True),
        ("Sat-Mon 22:00-06:00", "2026-12-02T05:00Z", False),
        ("2026-12-20/2027-01-03", "2027-01-03T23:00Z", True),
        ("2026-12-20/2027-01-03", "2027-01-04T00:00Z", False),
        ("2026-12-24", "2026-12-24T00:00Z", True),
        ("2026-12-24", "2026-12-23T23:58Z", True),
        # Not a date.
        ("2026-02-31", "2026-12-24T00:00Z", True),
        ("2026-12-24/2026-12-20", "2026-12-30T00:00Z", True),
    ],
)
def test_blocked_windows(window, start, blocks):
    begin = datetime.fromisoformat(start)
    for of in (schedule(window), schedule(window, member="west")):
        assert bool(blocked([of], "west", begin, begin + timedelta(minutes=5))) is blocks
    assert not blocked([schedule(window, member="east")], "west", begin, begin + timedelta(minutes=5))


@pytest.mark.req("MC-26")
@pytest.mark.parametrize(
    ("zone", "window", "start", "blocks"),
    [
        ("Europe/Berlin", "Mon-Fri 08:00-18:00", "2026-12-01T06:50Z", False),
        ("Europe/Berlin", "Mon-Fri 08:00-18:00", "2026-12-01T07:00Z", True),
        ("Europe/Berlin", "Mon-Fri 08:00-18:00", "2026-12-01T17:00Z", False),
        ("Europe/Berlin", "Mon-Fri 08:00-18:00", "2026-07-01T06:00Z", True),
        # Monday there, Sunday in UTC; and the reverse.
        ("Asia/Tokyo", "Mon 00:00-08:00", "2026-12-06T15:00Z", True),
        ("America/New_York", "Sun 20:00-23:00", "2026-12-07T01:00Z", True),
        ("America/New_York", "Sun 20:00-23:00", "2026-12-06T21:00Z", False),
        ("America/New_York", "2026-12-24", "2026-12-25T04:30Z", True),
        ("America/New_York", "2026-12-24", "2026-12-24T04:30Z", False),
        # The clock shows 01:00 to 02:00 twice on that day, and 02:00 to 03:00 never on the other.
        ("America/New_York", "00:00-01:30", "2026-11-01T06:15Z", True),
        ("America/New_York", "00:00-01:30", "2026-11-01T06:30Z", False),
        ("America/New_York", "02:15-02:45", "2026-03-08T06:50Z", True),
        ("Europe/Nowhere", "Mon 08:00-09:00", "2026-12-06T15:00Z", True),
        ("Europe", "Mon 08:00-09:00", "2026-12-06T15:00Z", True),
    ],
)
def test_blocked_windows_are_in_the_time_zone_of_their_schedule(zone, window, start, blocks):
    begin = datetime.fromisoformat(start)
    problem = blocked([schedule(window, zone=zone)], "west", begin, begin + timedelta(minutes=5))
    assert bool(problem) is blocks
    assert not blocks or zone in problem


@pytest.mark.req("MC-26")
@pytest.mark.parametrize(
    ("zone", "text", "after", "expected"),
    [
        ("Europe/Berlin", "0 10 * * 2", "2026-12-01T08:59Z", "2026-12-01T09:00Z"),
        ("Europe/Berlin", "0 10 * * 2", "2026-07-06T08:59Z", "2026-07-07T08:00Z"),
        ("Asia/Tokyo", "30 0 * * 1", "2026-12-05T00:00Z", "2026-12-06T15:30Z"),
        # Never shown on that day; shown twice on that one.
        ("America/New_York", "30 2 * * *", "2026-03-08T05:00Z", "2026-03-09T06:30Z"),
        ("America/New_York", "30 1 * * *", "2026-11-01T05:00Z", "2026-11-01T05:30Z"),
        ("America/New_York", "30 1 * * *", "2026-11-01T05:30Z", "2026-11-02T06:30Z"),
    ],
)
def test_a_schedule_goes_by_the_clock_of_its_time_zone(zone, text, after, expected):
    following = Times(text, zone_of(schedule(zone=zone))).after(datetime.fromisoformat(after))
    assert following == datetime.fromisoformat(expected)


@pytest.mark.req("MC-26")
@pytest.mark.parametrize(
    ("field", "fields"), [("timeZone", {"zone": "Mars/Base"}), ("schedule", {"cron": "99 * * * *"})]
)
def test_a_fault_of_a_schedule_names_its_field(field, fields):
    with pytest.raises(ValueError, match=f"spec.{field}"):
        due_time(schedule(**{"cron": "* * * * *", **fields}), NOW)


@pytest.mark.req("MC-26")
@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("0 10 * * 2", "2026-12-01T09:59Z", "2026-12-01T10:00Z"),
        ("0 10 * * 2", "2026-12-01T10:00Z", "2026-12-08T10:00Z"),
        ("*/15 8-9 * * mon-fri", "2026-12-04T09:45Z", "2026-12-07T08:00Z"),
        ("5/20 * * * *", "2026-12-01T10:06Z", "2026-12-01T10:25Z"),
        ("0 0 29 2 *", "2026-12-01T10:00Z", "2028-02-29T00:00Z"),
        # As cron does, either day is enough.
        ("0 0 13 * 5", "2026-12-01T00:00Z", "2026-12-04T00:00Z"),
        ("0 0 * JAN,jul 7", "2026-12-01T00:00Z", "2027-01-03T00:00Z"),
        ("0 0 30 2 *", "2026-12-01T00:00Z", None),
    ],
)
def test_the_next_time_of_a_schedule(text, after, expected):
    following = Times(text).after(datetime.fromisoformat(after))
    assert following == (datetime.fromisoformat(expected) if expected else None)


@pytest.mark.req("MC-26")
@pytest.mark.parametrize("text", ["", "0 10 * *", "60 * * * *", "* 9-8 * * *", "a * * * *", "* * * * */0", "* * 0 * *"])
def test_a_schedule_that_says_no_time_is_an_error(text):
    with pytest.raises(ValueError, match=r"."):
        Times(text)


@pytest.mark.req("MC-26")
@pytest.mark.parametrize(
    ("made", "last", "due"),
    [
        ("2026-11-01T00:00:00Z", "", True),
        ("2026-11-01T00:00:00Z", "2026-11-24T09:55:00Z", True),
        ("2026-11-01T00:00:00Z", "2026-12-01T09:55:00Z", False),
        # It was not there yet.
        ("2026-12-01T09:58:00Z", "", False),
    ],
)
def test_a_drill_is_due_once(made, last, due):
    moment, following = due_time(schedule(cron="55 9 * * 2", made=made, last=last, member="west"), NOW)
    assert moment == (NOW - timedelta(minutes=5) if due else None)
    assert following == datetime(2026, 12, 8, 9, 55, tzinfo=UTC)


@pytest.mark.req("MC-26")
def test_a_time_that_no_hub_saw_for_long_is_left_out():
    moment, _ = due_time(schedule(cron="0 9 * * 2", made="2026-11-01T00:00:00Z", member="west"), NOW)
    assert moment is None
