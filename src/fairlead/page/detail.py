"""One load balancer in detail: its conditions since when, its backends, its routes, what is held, and its history.

In: the caches and the memory of a running hub. Out: ``Detail``. Never: targets' parameters, or a credential.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.api.meta import WireCondition
from fairlead.hub.inspect.debug import KeyState, ProviderState
from fairlead.hub.inventory import Inventory
from fairlead.model.history import HistoryEntry
from fairlead.model.keys import LoadBalancerKey


class ConditionItem(msgspec.Struct, frozen=True, rename="camel"):
    """One condition as the hub wrote it last."""

    type: str
    status: str
    reason: str
    message: str
    since: str


class Detail(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One load balancer; ``history`` is oldest first."""

    id: str
    conditions: list[ConditionItem]
    providers: list[ProviderState]
    history: list[HistoryEntry]


def detail_of(key: LoadBalancerKey, state: KeyState | None, inventory: Inventory) -> Detail | None:
    """Return the detail of ``key``, None when nothing is known of it."""
    objects = inventory.intents.get(key.kind)
    obj: Any = objects.cache.get(key.namespace, key.name) if objects is not None else None
    if obj is None and state is None:
        return None
    return Detail(
        id=f"{key.kind}/{key.namespace}/{key.name}",
        conditions=[_condition(each) for each in obj.status.conditions or ()] if obj is not None else [],
        providers=state.providers if state is not None else [],
        history=state.history if state is not None else [],
    )


def _condition(condition: WireCondition) -> ConditionItem:
    return ConditionItem(
        condition.type, condition.status, condition.reason, condition.message, condition.last_transition_time or ""
    )
