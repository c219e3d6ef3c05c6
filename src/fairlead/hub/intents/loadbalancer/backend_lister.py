"""Lists the backends of a group at its load balancers, once its spec has taken effect.

    Pending         wanted, and not registered yet; or a call about it is under way
    Registered      it takes new connections
    Draining        it gets no new connections, at every proxy
    Deregistering   on its way out; one that is not listed is deregistered, at every proxy

In: what the trackers hold, and what proxies of ours have acknowledged. Out: the list, or None while it is not known for
the group as it is now: then what was listed before stands. Never: a list that is ahead of the data plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from fairlead.api.backendgroup import BackendGroup, ListedBackend
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.loadbalancer.objects import load_balancers_of
from fairlead.hub.providers.observe import observed_of
from fairlead.hub.providers.runner import ProviderRunner
from fairlead.model.keys import LoadBalancerKey
from fairlead.sync.tracker import LoadBalancerState, Registered
from fairlead.translate.view import LoadBalancerTranslation

State = Literal["Pending", "Registered", "Draining", "Deregistering"]
#: When a list that is not known yet is looked for again, should no change wake it before.
AGAIN_S = 1.0
_LEAST_FIRST: tuple[State, ...] = ("Deregistering", "Pending", "Draining", "Registered")


class BackendLister:
    """Lists the backends of groups; ``translation`` is what a load balancer was translated to last."""

    def __init__(
        self, context: IntentContext, *, translation: Callable[[LoadBalancerKey], LoadBalancerTranslation | None]
    ) -> None:
        self._providers = context.providers
        self._translation = translation

    async def listed(self, group: BackendGroup) -> list[ListedBackend] | None:
        """Return the backends of ``group``, ordered; None while they are not known for its present generation."""
        states: dict[str, State] = {}
        for key in load_balancers_of(group):
            rows = await self._at(key, group)
            if rows is None:
                return None
            for backend, state in rows:
                known: State = states.get(backend, state)
                states[backend] = known if _LEAST_FIRST.index(known) <= _LEAST_FIRST.index(state) else state
        return [ListedBackend(backend, state) for backend, state in sorted(states.items())]

    async def _at(self, key: LoadBalancerKey, group: BackendGroup) -> list[tuple[str, State]] | None:
        translation = self._translation(key)
        if translation is None or translation.generations.get(group.key) != group.metadata.generation:
            return None
        if all(each.loaded and key not in each.tracker for each in self._providers.values()):
            return []  # it was never accepted, so nothing of it is anywhere
        runner = self._providers.get(translation.provider)
        state = runner.tracker.state(key) if runner is not None and runner.loaded else None
        if runner is None or state is None or state.desired is None:
            return None
        if not runner.durable and not await _has_taken_effect(runner, key):
            return None
        return list(_rows(state, f"BackendGroup/{'/'.join(group.key)}"))


async def _has_taken_effect(runner: ProviderRunner, key: LoadBalancerKey) -> bool:
    """Return whether every proxy has acknowledged all that was done."""
    if runner.tracker.is_dirty(key):
        return False
    observed = await observed_of(runner, key, None)
    return observed is not None and observed.programmed and bool(observed.proxies)


def _rows(state: LoadBalancerState, owner: str) -> Iterator[tuple[str, State]]:
    desired = state.desired.targets if state.desired is not None else {}
    for listener, targets in desired.items():
        done = state.recorded.get(listener, {})
        for key, target in targets.items():
            if owner in target.owners and key not in done and not target.draining:
                yield str(key), "Pending"
    for listener, registered in state.recorded.items():
        wanted = desired.get(listener, {})
        for key, each in registered.items():
            if owner in each.target.owners:
                yield str(key), _state(each, wanted=key in wanted)


def _state(registered: Registered, *, wanted: bool) -> State:
    if registered.deregistering or not wanted:
        return "Deregistering"
    if registered.unknown:
        return "Pending"
    return "Draining" if registered.target.draining else "Registered"
