"""What every proxy of a group should have: versions, quarantine, and the cost of a change."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fairlead.providers.envoy.resources import EncodedResource, ResourceType, encoded_resource
from fairlead.providers.envoy.store import NodeGroup, ResourceChange, ResourceStore

LISTENER = ResourceType.LISTENER


def listener(content: bytes, name: str = "a") -> EncodedResource:
    return encoded_resource(LISTENER, name, content)


GOOD, BAD, NEWER = listener(b"good"), listener(b"bad"), listener(b"newer")


class Marks:
    """A stream that remembers which names were marked."""

    def __init__(self) -> None:
        self.marked: list[tuple[ResourceType, list[str], bool]] = []

    def lacks(self, kind: ResourceType, name: str, version: str) -> bool:
        del kind, name, version
        return False

    def mark(self, kind: ResourceType, names: Iterable[str], *, alone: bool = False) -> None:
        self.marked.append((kind, list(names), alone))

    def take(self) -> list[tuple[ResourceType, list[str], bool]]:
        marked, self.marked = self.marked, []
        return marked


@pytest.fixture
def group() -> NodeGroup:
    return ResourceStore().group("g")


@pytest.fixture
def stream(group: NodeGroup) -> Marks:
    stream = Marks()
    group.subscribers.append(stream)
    return stream


def put(group: NodeGroup, resource: EncodedResource | None, name: str = "a") -> int:
    return group.apply([ResourceChange(LISTENER, name, resource)])


def test_only_real_changes_are_marked_and_counted(group: NodeGroup, stream: Marks) -> None:
    assert put(group, GOOD) == 1
    assert stream.take() == [(LISTENER, ["a"], False)]
    assert put(group, listener(b"good")) == 0
    assert put(group, None, "unknown") == 0
    assert (stream.take(), group.revision) == ([], 1)
    assert put(group, None) == 1
    assert (stream.take(), group.revision) == ([(LISTENER, ["a"], False)], 2)


def test_a_refused_version_gives_way_to_the_last_good_one(group: NodeGroup) -> None:
    put(group, GOOD)
    group.accept(LISTENER, "a", GOOD.version)
    put(group, BAD)
    group.refuse(LISTENER, "a", BAD.version, "no\n  good", now=0.0)
    assert (group.wanted(LISTENER, "a"), group.effective(LISTENER, "a")) == (BAD, GOOD)
    assert (group.refusal(LISTENER, "a"), group.refusals(LISTENER)) == ("no good", ["no good"])
    put(group, NEWER)
    assert (group.effective(LISTENER, "a"), group.refusal(LISTENER, "a")) == (NEWER, "")


def test_without_a_good_version_nothing_is_sent(group: NodeGroup) -> None:
    put(group, BAD)
    group.refuse(LISTENER, "a", BAD.version, "no", now=0.0)
    assert group.effective(LISTENER, "a") is None
    put(group, None)
    put(group, BAD)
    assert group.effective(LISTENER, "a") == BAD, "removed and wanted again: the refusal is forgotten"


def test_reports_about_other_versions_do_not_count(group: NodeGroup) -> None:
    put(group, NEWER)
    group.refuse(LISTENER, "a", BAD.version, "no", now=0.0)
    group.accept(LISTENER, "a", GOOD.version)
    group.refuse(LISTENER, "b", BAD.version, "no", now=0.0)
    assert group.effective(LISTENER, "a") == NEWER
    group.refuse(LISTENER, "a", NEWER.version, "no", now=0.0)
    assert group.effective(LISTENER, "a") is None


def test_attempts_come_later_each_time_until_the_longest_wait(group: NodeGroup, stream: Marks) -> None:
    put(group, BAD)
    now, waits = 0.0, []
    for _ in range(8):
        group.refuse(LISTENER, "a", BAD.version, "no", now=now)
        due = group.next_retry()
        assert due is not None
        waits.append(due - now)
        now = due
        stream.take()
        group.retry_refused(now=now - 0.1)
        assert stream.take() == []
        group.retry_refused(now=now)
        assert stream.take() == [(LISTENER, ["a"], True)], "each attempt has a response of its own"
        assert (group.effective(LISTENER, "a"), group.next_retry()) == (BAD, None)
    assert waits == [15, 30, 60, 120, 240, 480, 600, 600]
    group.accept(LISTENER, "a", BAD.version)
    assert group.refusal(LISTENER, "a") == ""


def test_the_end_of_a_long_message_is_shown(group: NodeGroup) -> None:
    put(group, BAD)
    group.refuse(LISTENER, "a", BAD.version, "x" * 1000 + " the cause", now=0.0)
    assert len(group.refusal(LISTENER, "a")) == 1010, "whole where a culprit is looked for in it"
    (message,) = group.refusals(LISTENER)
    assert len(message) == 402
    assert message.endswith("x the cause")


def test_publishing_wakes_every_stream(group: NodeGroup, stream: Marks) -> None:
    store = ResourceStore()
    store.group("g").subscribers.append(stream)
    assert not store.group("g").published
    store.publish()
    assert store.group("g").published
    assert {kind for kind, _, _ in stream.take()} == set(ResourceType)
    assert [each.name for each in store.groups()] == ["g"]
