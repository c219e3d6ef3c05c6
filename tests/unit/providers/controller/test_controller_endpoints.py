"""Which slices a change of targets touches."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.kubernetes import EndpointSlice
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import Target
from fairlead.model.http import Backend
from fairlead.model.keys import LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.controller.objects import PER_SLICE, changed_slices, observed_targets

KEY = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "web")
BACKEND = Backend("shop/web:80", "shop/web")


def change(address, port=8080, action=Action.REGISTER, *, draining=False):
    target = Target(TargetKey(address, port), draining=draining)
    return TargetChange(KEY, backend_key(BACKEND.name), target, action, Reason.NEW)


def after(present, *changes):
    """Return the slices after ``changes``, as the API server would hold them, and how many writes that took."""
    result = changed_slices(KEY, BACKEND, present, changes)
    there = {each.metadata.name: each for each in present}
    for made in result.write:
        there[made.name] = msgspec.convert(made.body, EndpointSlice)
    for gone in result.delete:
        del there[gone.metadata.name]
    return list(there.values()), len(result.write) + len(result.delete)


def keys(slices):
    return [str(each.key) for each in observed_targets(slices)]


def test_targets_of_each_port_and_family_have_slices_of_their_own():
    slices, writes = after([], change("10.0.0.1"), change("10.0.0.2", 9090), change("2001:db8::1"))
    assert sorted((each.address_type, each.ports[0].port) for each in slices) == [
        ("IPv4", 8080),
        ("IPv4", 9090),
        ("IPv6", 8080),
    ]
    assert writes == 3
    assert keys(slices) == ["10.0.0.1:8080", "10.0.0.2:9090", "[2001:db8::1]:8080"]


@pytest.mark.req("K-43")
def test_one_change_among_many_is_one_write():
    many, writes = after([], *(change(f"10.0.{number // 250}.{number % 250}") for number in range(PER_SLICE + 20)))
    assert (len(many), writes) == (2, 2)
    changed, writes = after(many, change("10.0.0.7", action=Action.DEREGISTER))
    assert writes == 1
    _, writes = after(changed, change("10.9.9.9"))
    assert writes == 1


def test_existing_targets_cause_no_write():
    slices, _ = after([], change("10.0.0.1"))
    assert after(slices, change("10.0.0.1"))[1] == 0
    assert after(slices, change("10.0.0.2", action=Action.DEREGISTER))[1] == 0
    assert after(slices, change("10.0.0.1", action=Action.DEREGISTER)) == ([], 1)


def test_a_drained_target_stays_and_is_not_ready_and_a_drain_adds_nothing():
    slices, _ = after([], change("10.0.0.1"), change("10.0.0.2"))
    drained, _ = after(slices, change("10.0.0.1", action=Action.DRAIN))
    assert [each.draining for each in observed_targets(drained)] == [True, False]
    back, _ = after(drained, change("10.0.0.1", action=Action.UPDATE))
    assert [each.draining for each in observed_targets(back)] == [False, False]
    assert after([], change("10.0.0.3", action=Action.DRAIN)) == ([], 0)


def test_lists_that_are_null_are_empty():
    empty = EndpointSlice()
    assert observed_targets([empty]) == ()
