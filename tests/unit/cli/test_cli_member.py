"""``fairlead member``: a member is drained in all GlobalServices, or in none."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from cli_api import api

from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.cli import member
from fairlead.cli.options import HubApi, Output
from fairlead.errors import Terminal
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds


@contextlib.asynccontextmanager
async def hub(directory: Path, **services: object) -> AsyncGenerator[tuple[Cluster, HubApi]]:
    async with api(directory) as (cluster, kubeconfig):
        await install_crds(cluster, all_crds(), "tests")
        await cluster.create(NAMESPACES, {"metadata": {"name": "tenant-east"}})
        for name, members in services.items():
            body = {"metadata": {"name": name, "namespace": "tenant-east"}, "spec": {"members": members}}
            await cluster.create(GLOBAL_SERVICES, body)
        yield cluster, HubApi(kubeconfig=kubeconfig)


async def change(name: str, hub_api: HubApi, *, drained: bool = True, force: bool = False) -> None:
    await member._change(name, hub_api, Output.JSON, drained=drained, force=force)


async def drained(cluster: Cluster) -> dict[str, list[str]]:
    """Return the drained members of each GlobalService."""
    return {
        obj.metadata.name: [entry.tenant for entry in obj.spec.members if entry.drain]
        for obj in await cluster.list(GLOBAL_SERVICES)
    }


@pytest.mark.req("MC-13")
async def test_a_member_is_drained_everywhere_and_used_again(tmp_path):
    both = [{"tenant": "east", "weight": 7}, {"tenant": "west"}]
    async with hub(tmp_path, a=both, b=both, other=[{"tenant": "east"}]) as (cluster, hub_api):
        await change("west", hub_api)
        assert await drained(cluster) == {"a": ["west"], "b": ["west"], "other": []}
        assert (await cluster.get(GLOBAL_SERVICES, "tenant-east", "a")).spec.members[0].weight == 7
        await change("west", hub_api, drained=False)
        assert await drained(cluster) == {"a": [], "b": [], "other": []}


@pytest.mark.req("MC-13")
async def test_nothing_is_drained_when_one_service_cannot_be_without_the_member(tmp_path):
    both = [{"tenant": "east"}, {"tenant": "west"}]
    small = [{"tenant": "east", "maxShare": 60}, {"tenant": "west"}]
    async with hub(tmp_path, a=both, small=small) as (cluster, hub_api):
        with pytest.raises(Terminal, match=r"GlobalService tenant-east/small.*maxShare"):
            await change("west", hub_api)
        assert await drained(cluster) == {"a": [], "small": []}
        await change("west", hub_api, force=True)
        assert await drained(cluster) == {"a": ["west"], "small": ["west"]}
        with pytest.raises(Terminal, match="no other member"):
            await change("east", hub_api, force=True)


async def test_an_unknown_member_is_an_error_that_says_where_to_look(tmp_path):
    async with hub(tmp_path, a=[{"tenant": "east"}]) as (_, hub_api):
        with pytest.raises(Terminal, match="no GlobalService lists member north"):
            await change("north", hub_api)
