"""What a provider keeps of its load balancers, and the outcome of changes of those that it does not know."""

from __future__ import annotations

import pytest

from fairlead.model.change import DONE, Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.readback_watch import LoadBalancerStates

KEY = LoadBalancerKey("LoadBalancer", "shop", "web")


def change(action: Action, key: LoadBalancerKey = KEY) -> TargetChange:
    target = Target(TargetKey("10.0.0.1", 80))
    return TargetChange(key, ListenerKey(Protocol.TCP, 80), target, action, Reason.NEW)


@pytest.mark.parametrize("action", [Action.REGISTER, Action.UPDATE, Action.DRAIN, Action.DEREGISTER])
def test_a_removal_is_done_only_on_a_load_balancer_that_was_released(action: Action) -> None:
    states: LoadBalancerStates[str] = LoadBalancerStates()
    unknown = states.outcome_without(change(action), "has not been ensured yet")
    assert unknown.status is OutcomeStatus.RETRY
    assert unknown.message.startswith("10.0.0.1:80: LoadBalancer/shop/web has not been ensured yet")
    states.put(KEY, "state")
    states.release(KEY)
    released = states.outcome_without(change(action), "has not been ensured yet")
    assert released == (DONE if change(action).is_removal else unknown)
    states.put(KEY, "again")
    assert states.outcome_without(change(action), "has not been ensured yet") == unknown


def test_the_overlay_maps_writes_that_are_not_released() -> None:
    states: LoadBalancerStates[int] = LoadBalancerStates()
    keys = [LoadBalancerKey("LoadBalancer", "shop", str(number)) for number in range(3)]
    for number, key in enumerate(keys):
        states.put(key, number)
    states.release(keys[1])
    assert dict(states) == {keys[0]: 0, keys[2]: 2}


def test_the_oldest_released_keys_are_forgotten() -> None:
    states: LoadBalancerStates[int] = LoadBalancerStates()
    keys = [LoadBalancerKey("LoadBalancer", "shop", str(number)) for number in range(4097)]
    for key in keys:
        states.release(key)
    statuses = [states.outcome_without(change(Action.DEREGISTER, key), "").status for key in keys[:2]]
    assert statuses == [OutcomeStatus.RETRY, OutcomeStatus.DONE]
