"""A snapshot of the hub has what is selected, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_api import EAST, SHARED, WEST, api, fill

from fairlead.cli.hub_reader import snapshot_of
from fairlead.cli.selection import selection_of
from fairlead.errors import NotFound


async def test_a_snapshot_has_what_is_selected(tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, _):
        await fill(hub)
        snapshot = await snapshot_of(hub, selection_of("", "shop", ""))
        assert [str(lb.key) for lb in snapshot.load_balancers] == [SHARED]
        snapshot = await snapshot_of(hub, selection_of("class/envoy", "", "in"))
        assert [str(lb.key) for lb in snapshot.load_balancers] == [EAST, WEST]
        assert snapshot.warning.startswith("No hub leads now")
        with pytest.raises(NotFound, match="LoadBalancer shop/none does not exist"):
            await snapshot_of(hub, selection_of("lb/none", "shop", ""))
        with pytest.raises(NotFound, match="No load balancer is in namespace 'none'"):
            await snapshot_of(hub, selection_of("", "none", ""))
