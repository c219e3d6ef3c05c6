"""The tables of the page, from the caches of a running hub.

In: the hub's inventory, and what it knows of itself. Out: one ``Source`` for each table. Never: asks the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

from fairlead.api.addresspool import ADDRESS_POOLS, AddressPool
from fairlead.api.heartbeat import StampedLease
from fairlead.api.load_balancers import LOAD_BALANCER_KINDS
from fairlead.api.meta import KubeObject, ObjectKey, Resource
from fairlead.api.names import AGENT_LEASE
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.hub.inventory import Inventory
from fairlead.kube.cache import WatchCache
from fairlead.page.board import VisibleItem
from fairlead.page.items import HubItem, Item, ProxyItem, load_balancer_item, member_item, own_pool_item, pool_item
from fairlead.status.rows import ProxyRow, Trouble
from fairlead.translate.address_pools import OWN_POOL

T = TypeVar("T", bound=KubeObject)
Changed = Callable[[Hashable], None]

#: The kinds of load balancers that have traffic, with their resources.
RESOURCE_OF = {each.kind: each.plural for each in LOAD_BALANCER_KINDS}


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


class Pools(Objects[AddressPool]):
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
