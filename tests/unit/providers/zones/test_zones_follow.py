"""Which changes of others are noticed before the turn of a name, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.zones.plan import RRKey, RRSet, RRSets
from fairlead.providers.zones.provider import Followed, ZoneFollower, is_complete, moved_by_others
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.clock import SystemClock

ZONE = ServerSettings("example.test", "192.0.2.53", 53)
WWW = RRKey("www.example.test", "A")
KEY = LoadBalancerKey("Hostname", "fairlead-system", "www")


class Server:
    """Only what is asked of a zone when it is followed; counts questions."""

    def __init__(self, *, immediate: bool = True) -> None:
        self.immediate = immediate
        self.number = 7
        self.there: dict[RRKey, RRSet] = {}
        self.asked = 0

    async def serial(self) -> int:
        return self.number

    async def answers(self, keys: Iterable[RRKey]) -> RRSets:
        self.asked += 1
        return {key: self.there[key] for key in keys if key in self.there}


class Follow:
    def __init__(self, *, immediate: bool = True, complete: bool | None = True) -> None:
        self.server = Server(immediate=immediate)
        self.complete = complete
        self.noticed: list[LoadBalancerKey] = []
        self.follower = ZoneFollower(
            clock=SystemClock(),
            servers=dict,
            names=lambda _settings: [Followed(KEY, frozenset({(WWW, "192.0.2.1")}), self.complete)],
            notify=self.noticed.append,
        )

    async def look(self) -> list[LoadBalancerKey]:
        self.noticed.clear()
        self.follower._rest_until_s.clear()
        await self.follower.look(ZONE, self.server)
        return list(self.noticed)


@pytest.mark.parametrize(
    ("before", "now", "ours", "others"),
    [(7, 7, 0, False), (7, 8, 0, True), (7, 8, 1, False), (7, 9, 1, True), (2**32 - 1, 0, 1, False), (7, 7, 3, False)],
)
def test_a_serial_says_who_changed_a_zone(before: int, now: int, ours: int, others: bool):
    assert moved_by_others(before, now, ours) is others


def test_a_name_is_complete_when_every_record_is_answered():
    there = {WWW: RRSet(frozenset({"192.0.2.1"}), 60)}
    assert is_complete([(WWW, "192.0.2.1")], there)
    assert not is_complete([(WWW, "192.0.2.1"), (WWW, "192.0.2.2")], there)


async def test_a_zone_that_others_emptied_is_noticed_by_its_serial():
    follow = Follow()
    assert await follow.look() == []
    follow.server.number += 1
    assert await follow.look() == [KEY]
    assert await follow.look() == []


@pytest.mark.req("EDGE-14")
async def test_a_delegated_name_does_not_keep_the_others_from_being_followed():
    outside = RRKey("foo.sub.example.test", "A")

    class Referring(Server):
        async def answers(self, keys: Iterable[RRKey]) -> RRSets:
            keys = set(keys)
            if outside in keys:
                raise Retry("delegated", reason="DNSDelegated")
            return await super().answers(keys)

    follow, server = Follow(), Referring()
    other = LoadBalancerKey("Hostname", "fairlead-system", "foo")
    names = [Followed(key, frozenset({(at, "192.0.2.1")}), True) for key, at in ((other, outside), (KEY, WWW))]
    follow.follower._names = lambda _settings: names
    await follow.follower.look(ZONE, server)
    server.number += 1
    await follow.follower.look(ZONE, server)
    assert follow.noticed == [other, KEY], "both are read back, which reports what is wrong with the first"


async def test_a_zone_without_changes_costs_one_question_and_no_names():
    follow = Follow()
    for _ in range(3):
        assert await follow.look() == []
    assert follow.server.asked == 0


async def test_our_own_updates_are_not_followed():
    follow = Follow()
    await follow.look()
    follow.follower.updated(ZONE)
    follow.server.number += 1
    assert await follow.look() == []
    assert follow.server.asked == 0


async def test_a_server_that_answers_later_is_asked_until_it_does():
    follow = Follow(immediate=False, complete=False)
    assert await follow.look() == []
    follow.server.there[WWW] = RRSet(frozenset({"192.0.2.1"}), 60)
    assert await follow.look() == [KEY]
