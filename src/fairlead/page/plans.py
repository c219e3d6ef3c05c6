"""The plan as the page shows it: what the hub is about to do, what it holds and why, with the command that helps.

In: the trackers and caches of a running hub. Out: a table of the load balancers and names that have a row. Never: asks
a provider or the API; a parameter of a target, which may be a credential.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.hub.inspect.preview import Previewed
from fairlead.hub.inspect.running import pending_keys, running_plans
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import VisibleItem
from fairlead.page.items import Item, load_balancer_item, name_item
from fairlead.page.sources import RESOURCE_OF
from fairlead.runtime.clock import Clock
from fairlead.status.formatting import reason_text
from fairlead.status.object_ref import ObjectRef
from fairlead.status.plan_rows import Row, rows_of
from fairlead.status.rows import Trouble

#: More rows of one load balancer than that are counted, not listed.
MOST_ROWS = 20
_HIDDEN = ("parameters.", "attributes.")


class PlanRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One change; ``held_by`` names what holds it, and then ``message`` says why. ``fields``: name, old and new."""

    action: str
    what: str
    reason: str
    held_by: str = ""
    message: str = ""
    fields: tuple[tuple[str, str, str], ...] = ()


class PlanItem(Item, frozen=True, gc=False):
    """The plan of one load balancer, or name; ``held`` and ``more`` count rows, those not listed."""

    title: str
    provider: str
    rows: tuple[PlanRow, ...]
    held: int = 0
    more: int = 0
    command: str = ""


class Plans:
    """The plans that have a row; a key is that of the load balancer."""

    table = "plan"
    #: What waits for a provider or a moment changes without an object that does.
    every_s = 2.0

    def __init__(self, inventory: Inventory, providers: ProviderRegistry, clock: Clock) -> None:
        self._inventory = inventory
        self._providers = providers
        self._clock = clock
        self._planned: set[LoadBalancerKey] = set()
        self._begun = False

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        """Call ``changed`` for each object that changes: what is held is in its status."""
        for objects in self._inventory.intents.values():

            def call(old: Any, new: Any, key: Callable[[Any], LoadBalancerKey] = objects.key) -> None:
                changed(key(new if new is not None else old))

            objects.cache.on_change(call)

    def all_keys(self) -> Iterable[Hashable]:
        """Return every key once; after that those that may have changed without their object."""
        known = {*pending_keys(self._providers), *self._planned}
        if self._begun:
            return known
        self._begun = True
        return {*known, *self._inventory.all_keys(), *self._providers.restored()}

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the plan of one; None when there is nothing to do, and nothing is held."""
        if not isinstance(key, LoadBalancerKey) or key.kind not in self._inventory.intents:
            return None
        plans = running_plans(key, inventory=self._inventory, providers=self._providers, now_s=self._clock.monotonic())
        item = plan_item(key, self._inventory.intent(key), plans)
        if item is None:
            self._planned.discard(key)
            return None
        self._planned.add(key)
        return VisibleItem(item, self._inventory.intents[key.kind].resource.plural, key.namespace)


def plan_item(key: LoadBalancerKey, obj: IntentObject | None, plans: Sequence[Previewed]) -> PlanItem | None:
    """Return the item of what is planned, None for nothing; what is held comes first."""
    rows = sorted((row for plan in plans for row in rows_of(plan)), key=lambda row: not row.held_by)
    if not rows:
        return None
    more = sum(plan.more_held for plan in plans)
    held = sum(bool(row.held_by) for row in rows) + more
    ref = ObjectRef(*key)
    title, problems = _known(obj, key)
    return PlanItem(
        id=str(key),
        state=Trouble.ATTENTION if held else Trouble.NONE,
        # What is not held and not done yet waits for what is wrong with the load balancer.
        problems=problems if any(not row.held_by for row in rows) else (),
        title=title,
        provider=", ".join(dict.fromkeys(filter(None, (plan.provider for plan in plans)))),
        rows=tuple(_row(row) for row in rows[:MOST_ROWS]),
        held=held,
        more=more + max(0, len(rows) - MOST_ROWS),
        command=f"fairlead plan {ref.argument}",
    )


def _known(obj: Any, key: LoadBalancerKey) -> tuple[str, tuple[str, ...]]:
    """Return what people call it, and what is wrong with it; what is gone has its key only."""
    if obj is None:
        return f"{key.namespace}/{key.name}", ()
    if key.kind in RESOURCE_OF:
        item = load_balancer_item(obj, None)
        return item.title, item.problems
    name = name_item(obj)
    return name.host, name.problems


def _row(row: Row) -> PlanRow:
    description = " ".join(filter(None, (row.listener, row.target, f"({row.source})" if row.source else "")))
    return PlanRow(
        row.action,
        description or "the load balancer itself",
        reason_text(row.reason),
        row.held_by,
        row.message,
        tuple(_fields(row)),
    )


def _fields(row: Row) -> Iterator[tuple[str, str, str]]:
    for field in row.fields:
        if not field.field.startswith(_HIDDEN):
            yield field.field, field.ledger, field.wanted
