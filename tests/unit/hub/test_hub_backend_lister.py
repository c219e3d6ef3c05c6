"""The list of a group's backends is never ahead of the data plane."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.api.backendgroup import BackendGroup
from fairlead.hub.intents.backend_groups import BackendLister, count_awaited
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed
from fairlead.sync.plan import LoadBalancerState, Registered
from fairlead.testing.builders import decoded
from fairlead.translate.view import LoadBalancerDecision

KEY = LoadBalancerKey("LoadBalancer", "fleet", "api")
LISTENER = Listener(6443).key
OWNERS = ("BackendGroup/fleet/api",)


def target(number: int, *, draining: bool = False) -> Target:
    return Target(TargetKey(f"10.0.0.{number}", 6443), draining=draining, owners=OWNERS)


def group(generation: int = 3) -> BackendGroup:
    meta = {"name": "api", "namespace": "fleet", "generation": generation}
    return decoded({"metadata": meta, "spec": {"loadBalancers": ["api"], "static": []}}, BackendGroup)


class Provider:
    def __init__(self, observed: Observed | None) -> None:
        self.observed = observed

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        return self.observed


class Runner:
    durable = False
    loaded = True

    def __init__(self, state: LoadBalancerState | None, observed: Observed | None, *, dirty: bool = False) -> None:
        self.provider = Provider(observed)
        states = {KEY: state} if state is not None else {}
        self.tracker: Any = _Tracker(states, dirty=dirty)


class _Tracker(dict[LoadBalancerKey, LoadBalancerState]):
    def __init__(self, states: dict[LoadBalancerKey, LoadBalancerState], *, dirty: bool) -> None:
        super().__init__(states)
        self._dirty = dirty

    def state(self, key: LoadBalancerKey) -> LoadBalancerState | None:
        return self.get(key)

    def is_dirty(self, key: LoadBalancerKey) -> bool:
        return self._dirty


def state(wanted: list[Target], done: list[Registered]) -> LoadBalancerState:
    spec = FrontendSpec(KEY, "fleet", (Listener(6443),))
    desired = DesiredLoadBalancer(spec, {LISTENER: {each.key: each for each in wanted}})
    return LoadBalancerState(desired, spec, {LISTENER: {each.target.key: each for each in done}})


DONE = Observed(programmed=True, proxies=1, acknowledged=1)


async def listed(runner: Runner, *, generation: int = 3, known: int = 3) -> dict[str, str] | None:
    translation = LoadBalancerDecision(None, (), provider="envoy", generations={("fleet", "api"): known})
    context: Any = SimpleNamespace(providers={"envoy": runner})
    rows = await BackendLister(context, decision=lambda _key: translation).listed(group(generation))
    return None if rows is None else {each.backend: each.state for each in rows}


@pytest.mark.req("C-62", "C-64")
async def test_each_backend_has_the_state_in_which_it_is():
    wanted = [target(1), target(2, draining=True), target(3), target(4)]
    done = [
        Registered(target(1)),
        Registered(target(2, draining=True)),
        Registered(target(4), unknown=True),
        Registered(target(5, draining=True), draining_since=1.0),
        Registered(target(6), unknown=True, deregistering=True),
    ]
    assert await listed(Runner(state(wanted, done), DONE)) == {
        "10.0.0.1:6443": "Registered",
        "10.0.0.2:6443": "Draining",
        "10.0.0.3:6443": "Pending",
        "10.0.0.4:6443": "Pending",
        "10.0.0.5:6443": "Deregistering",
        "10.0.0.6:6443": "Deregistering",
    }


@pytest.mark.req("C-64")
@pytest.mark.parametrize(
    ("observed", "dirty", "generation"),
    [
        (None, False, 3),
        (Observed(programmed=False, proxies=1), False, 3),
        (Observed(programmed=True, proxies=0), False, 3),
        (DONE, True, 3),
        (DONE, False, 4),
    ],
)
async def test_what_has_not_taken_effect_is_not_listed(observed, dirty, generation):
    runner = Runner(state([target(1)], [Registered(target(1))]), observed, dirty=dirty)
    assert await listed(runner, generation=generation) is None


async def test_an_object_never_accepted_has_nothing():
    assert await listed(Runner(None, None)) == {}


async def test_backends_of_other_groups_are_not_listed():
    other = Target(TargetKey("10.0.0.9", 6443), owners=("BackendGroup/fleet/other",))
    assert await listed(Runner(state([other], [Registered(other)]), DONE)) == {}


@pytest.mark.req("F-25")
@pytest.mark.parametrize(
    ("done", "awaited"),
    [
        ([Registered(target(1)), Registered(target(2))], 0),
        # The backend of the generation before is registered, in place of a desired one.
        ([Registered(target(1)), Registered(target(9))], 1),
        ([Registered(target(1)), Registered(target(2), unknown=True)], 1),
        ([Registered(target(1)), Registered(target(2), deregistering=True)], 1),
        ([], 2),
    ],
)
def test_a_desired_backend_is_awaited_until_it_is_registered(done: list[Registered], awaited: int):
    wanted = [target(1), target(2), target(3, draining=True)]
    assert count_awaited(state(wanted, done), OWNERS[0]) == awaited
    assert count_awaited(state(wanted, done), "BackendGroup/fleet/other") == 0
