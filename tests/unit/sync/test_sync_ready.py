"""Which load balancers of a worker begin next."""

from __future__ import annotations

import pytest

from fairlead.sync.worker import Ready
from fairlead.testing.builders import lb_key


@pytest.mark.req("CORE-17")
def test_namespaces_take_turns_in_a_failure_domain():
    ready, slots = Ready(), 4
    for number in range(3000):
        ready.add(lb_key(f"bulk-{number}", namespace="tenant-bulk"), 0.0, lambda _key: "appliance")
    ready.add(lb_key("web"), 1.0, lambda _key: "appliance")
    begun = []
    for key, _ in ready.begin(lambda _domain: len(begun) < slots):
        begun.append(key)
    assert lb_key("web") in begun
    assert len(begun) == slots


def test_pending_calls_are_returned_at_the_end():
    ready = Ready()
    ready.add(lb_key("web"), 1.0, lambda _key: "a")
    assert list(ready.begin(lambda _domain: True)) == [(lb_key("web"), "a")]
    assert not ready.add(lb_key("web"), 2.0, lambda _key: "a")
    assert ready.ended(lb_key("web")) == 2.0
    assert not ready
