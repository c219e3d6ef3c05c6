"""The tables of the page, from the caches and trackers of a running hub.

In: the hub's inventory and providers. Out: one ``Source`` for each table; the plan lists what the hub is about to do,
what is held and why, with the command that helps. Never: asks a provider or the API server; a parameter of a target,
which may be a credential.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

import msgspec

from fairlead.api.addresspool import ADDRESS_POOLS, AddressPool
from fairlead.api.intent import IntentObject
from fairlead.api.kinds import LOAD_BALANCER_KINDS
from fairlead.api.meta import KubeObject, ObjectKey, Resource
from fairlead.api.names import AGENT_LEASE
from fairlead.api.tenant import TENANTS, StampedLease, Tenant
from fairlead.hub.inspect.preview import Previewed, pending_keys, running_plans
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.kube.cache import WatchCache
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import VisibleItem
from fairlead.page.items import (
    HubItem,
    Item,
    ProxyItem,
    load_balancer_item,
    member_item,
    name_item,
    own_pool_item,
    pool_item,
)
from fairlead.runtime.clock import Clock
from fairlead.status.fleet import ProxyRow, Trouble
from fairlead.status.formatting import reason_text
from fairlead.status.object_ref import ObjectRef
from fairlead.status.plan_rows import Row, rows_of
from fairlead.translate.addresses import OWN_POOL

T = TypeVar("T", bound=KubeObject)
Changed = Callable[[Hashable], None]

#: The kinds of load balancers that have traffic, with their resources.
RESOURCE_OF = {kind.kind: kind.plural for kind in LOAD_BALANCER_KINDS}


class LoadBalancers:
    """The load balancers of all kinds; a key is (kind, namespace, name)."""

    table = "lb"
    every_s = 0.0

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def watch(self, changed: Changed) -> None:
        """Call ``changed`` for each object that changes, and for all of a member that does."""
        for kind in RESOURCE_OF:
            if (objects := self._inventory.intents.get(kind)) is not None:
                objects.cache.on_change(_keyed(changed, kind))

        def tenant_changed(old: Tenant | None, new: Tenant | None) -> None:
            if old is None or new is None or old.spec != new.spec:
                for tenant in filter(None, (old, new)):
                    for kind, objects in self._inventory.intents.items():
                        if kind in RESOURCE_OF:
                            for obj in objects.cache.by_index("namespace", tenant.namespace):
                                changed((kind, *obj.key))

        self._inventory.tenants.on_change(tenant_changed)

    def all_keys(self) -> Iterable[Hashable]:
        """Return the key of each load balancer, whichever hub serves it."""
        return [(key.kind, key.namespace, key.name) for key, _ in self._inventory.objects() if key.kind in RESOURCE_OF]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        kind, namespace, name = cast("tuple[str, str, str]", key)
        obj = self._inventory.intents[kind].cache.get(namespace, name)
        if obj is None:
            return None
        return VisibleItem(load_balancer_item(obj, self._inventory.tenant_of(namespace)), RESOURCE_OF[kind], namespace)


class Members:
    """The members; a key is the name of the Tenant. Also polled: an agent that has ended causes no watch event."""

    table = "member"
    every_s = 2.0

    def __init__(self, inventory: Inventory, now: Callable[[], datetime]) -> None:
        self._inventory = inventory
        self._now = now

    def watch(self, changed: Changed) -> None:
        """Call ``changed`` for each Tenant that changes, and when its agent reports."""
        self._inventory.tenants.on_change(lambda old, new: changed(_any(old, new).metadata.name))

        def lease_changed(old: StampedLease | None, new: StampedLease | None) -> None:
            lease = _any(old, new)
            if lease.metadata.name == AGENT_LEASE:
                for tenant in self._inventory.tenants.by_index("namespace", lease.metadata.namespace):
                    changed(tenant.metadata.name)

        self._inventory.leases.on_change(lease_changed)

    def all_keys(self) -> Iterable[Hashable]:
        """Return the names of all Tenants."""
        return [tenant.metadata.name for tenant in self._inventory.tenants.values()]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        tenant = self._inventory.tenants.get("", str(key))
        if tenant is None:
            return None
        lease = self._inventory.leases.get(tenant.namespace, AGENT_LEASE)
        return VisibleItem(member_item(tenant, lease, self._now()), TENANTS.plural)


class Objects(Generic[T]):
    """The objects of one kind, a row each: certificates, host names, shares of Services that regions have."""

    def __init__(
        self,
        table: str,
        cache: WatchCache[T],
        resource: Resource[T],
        item: Callable[[T], Item],
        *,
        every_s: float = 0.0,
    ) -> None:
        self.table = table
        self.every_s = every_s
        self._cache = cache
        self._resource = resource
        self._item = item

    def watch(self, changed: Changed) -> None:
        """Call ``changed`` for each that changes."""
        self._cache.on_change(_keyed(changed))

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of all."""
        return [obj.key for obj in self._cache.values()]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        obj = self._cache.get(*cast("ObjectKey", key))
        return VisibleItem(self._item(obj), self._resource.plural, obj.metadata.namespace) if obj is not None else None


class PoolTable(Objects[AddressPool]):
    """The AddressPools, and the hub's ``--address-pool`` (``own``, empty for none), which is polled."""

    def __init__(self, inventory: Inventory, own: str) -> None:
        super().__init__("pool", inventory.address_pools, ADDRESS_POOLS, pool_item, every_s=2.0)
        self._inventory = inventory
        self._own = own

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of all."""
        return [*super().all_keys(), *([OWN_POOL] if self._own else [])]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        if key != OWN_POOL:
            return super().visible_item(key)
        given = (
            address
            for kind in RESOURCE_OF
            if (objects := self._inventory.intents.get(kind)) is not None
            for obj in objects.cache.values()
            for address in obj.status.addresses
        )
        return VisibleItem(own_pool_item(self._own, given), ADDRESS_POOLS.plural)


class Proxies:
    """The proxies that are connected to this hub; looked at now and then, since an acknowledgement takes a moment."""

    table = "proxy"
    every_s = 2.0

    def __init__(self, proxies: Callable[[], Sequence[ProxyRow]]) -> None:
        self._proxies = proxies
        self._rows: dict[str, ProxyRow] = {}

    def watch(self, changed: Changed) -> None:
        """Do nothing: the table is polled."""

    def all_keys(self) -> Iterable[Hashable]:
        """Return the names of all that are, and of those that have just gone."""
        before = set(self._rows)
        self._rows = {row.node: row for row in self._proxies()}
        return sorted({*self._rows, *before})

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of one."""
        row = self._rows.get(str(key))
        if row is None:
            return None
        synced = row.state == "SYNCED"
        state = Trouble.NONE if synced else Trouble.ATTENTION
        item = ProxyItem(id=row.node, state=state, group=row.group, synced=synced, refused=row.refused)
        return VisibleItem(item, TENANTS.plural)


class ThisHub:
    """This replica."""

    table = "hub"
    every_s = 2.0

    def __init__(
        self,
        *,
        identity: str,
        version: str,
        started: str,
        leading: Callable[[], bool],
        leader: Callable[[], str] = str,
        problems: Callable[[], list[str]],
    ) -> None:
        self._identity = identity
        self._version = version
        self._started = started
        self._leading = leading
        self._leader = leader
        self._problems = problems

    def watch(self, changed: Changed) -> None:
        """Do nothing: the table is polled."""

    def all_keys(self) -> Iterable[Hashable]:
        """Return the one key."""
        return [self._identity]

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of this replica, which every viewer may see."""
        problems, leading, leader = tuple(self._problems()), self._leading(), self._leader()
        item = HubItem(
            id=str(key),
            state=Trouble.ATTENTION if problems else Trouble.NONE,
            problems=problems,
            leading=leading,
            # A lease that has our own name while we do not lead is one that we have lost.
            leader="" if leading or leader == self._identity else leader,
            version=self._version,
            started=self._started,
        )
        return VisibleItem(item, "")


def _keyed(changed: Changed, *first: str) -> Callable[[Any, Any], None]:
    def call(old: KubeObject | None, new: KubeObject | None) -> None:
        key = _any(old, new).key
        changed((*first, *key) if first else key)

    return call


def _any(old: Any, new: Any) -> Any:
    """Return the object of a change: as it is now, or as it was last."""
    return new if new is not None else old


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
