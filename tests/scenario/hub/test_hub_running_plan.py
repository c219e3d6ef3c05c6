"""What a running hub plans and holds, from its own memory, as its page shows it."""

from __future__ import annotations

from typing import Any

import pytest
from group_shop import KEY

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.page.tables import Plans


def item_of(table: Plans) -> Any:
    shown = table.visible_item(KEY)
    return shown.item if shown is not None else None


def pause(text):
    return {"metadata": {"annotations": {"fairlead.dev/paused": text}}}


@pytest.mark.req("OP-10")
async def test_a_pause_is_in_the_plan_of_every_replica_until_it_ends(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(2)
    await world.quiet(5)
    second = await world.start(identity="hub-2", lead=False)
    tables = [Plans(each.hub.inventory, each.hub.providers, world.clock) for each in (hub, second)]
    marked: list[object] = []
    tables[0].watch(marked.append)
    assert KEY in set(tables[0].all_keys())
    assert tables[0].visible_item(KEY) is None, "all is as it was asked for"
    await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", pause("true"))
    await world.quiet(3)
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await world.quiet(20)
    assert KEY in marked
    for table in tables:
        shown, item = table.visible_item(KEY), item_of(table)
        assert shown is not None
        assert (shown.resource, shown.namespace) == ("loadbalancers", "shop")
        assert (item.provider, item.held, item.more) == ("memory", 2, 0)
        assert {(row.action, row.held_by) for row in item.rows} == {("Deregister", "Paused")}
        assert item.command == "fairlead plan lb/shared -n shop"
    (row, _) = item_of(tables[0]).rows
    assert row.message.endswith("fairlead resume LoadBalancer/shop/shared")
    await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", pause("false"))
    await world.quiet(20)
    assert [table.visible_item(KEY) for table in tables] == [None, None]
