"""The state of one load balancer in a running hub, as JSON: for ``/debug/keys/<kind>/<namespace>/<name>``.

In: a key. Out: who holds it, what is pending, and its history, oldest entry first. Never: targets' parameters, or
anything else that may be a credential.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.runner import ProviderRunner
from fairlead.model.change import HistoryEntry
from fairlead.model.keys import LoadBalancerKey
from fairlead.sync.history import History


class ProviderState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of one provider: backends by state, and whether its worker still has to run."""

    provider: str
    desired: bool
    pending: bool
    backends: int


class KeyState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of one load balancer. ``exists``: there is an object that asks for it, and this hub serves it."""

    kind: str
    namespace: str
    name: str
    exists: bool
    providers: list[ProviderState]
    history: list[HistoryEntry]


def debug_key(
    key: LoadBalancerKey, *, inventory: Inventory, providers: Mapping[str, ProviderRunner], history: History
) -> KeyState | None:
    """Return what is known of ``key``, None when that is nothing."""
    states: list[ProviderState] = []
    for name, runner in providers.items():
        if (state := runner.tracker.state(key)) is not None:
            backends = sum(len(targets) for targets in state.recorded.values())
            pending = runner.tracker.is_dirty(key)
            states.append(ProviderState(name, state.desired is not None, pending, backends))
    exists, entries = inventory.intent(key) is not None, history.of(key)
    return KeyState(*key, exists, states, entries) if exists or states or entries else None
