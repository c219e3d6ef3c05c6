"""``fairlead member`` and ``fairlead shift``: all that is asked for is written, or nothing is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from cli_api import api

from fairlead.api.drill import DRILLS
from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalShift
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import JSONObject
from fairlead.cli import member
from fairlead.cli.options import HubApi, Output
from fairlead.errors import BadConfiguration, Terminal
from fairlead.kube.cluster import Cluster


@contextlib.asynccontextmanager
async def hub(directory: Path, **services: object) -> AsyncGenerator[tuple[Cluster, HubApi]]:
    async with api(directory) as (cluster, kubeconfig):
        await cluster.create(NAMESPACES, {"metadata": {"name": "tenant-east"}})
        for name, members in services.items():
            body = {"metadata": {"name": name, "namespace": "tenant-east"}, "spec": {"members": members}}
            await cluster.create(GLOBAL_SERVICES, body)
        yield cluster, HubApi(kubeconfig=kubeconfig)


async def change(name: str, hub_api: HubApi, *, drained: bool = True, force: bool = False) -> None:
    await member.change_drain(name, hub_api, Output.JSON, drained=drained, force=force)


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


@pytest.mark.req("MC-13", "MC-14")
async def test_statuses_that_the_hub_writes_meanwhile_leave_nothing_half_done(tmp_path, monkeypatch):
    both = [{"tenant": "east"}, {"tenant": "west"}]
    async with hub(tmp_path, a=both, b=both, web=both) as (cluster, hub_api):
        write, pending = member._write, ["a", "b", "web"]

        async def after_a_status(api_cluster, obj):
            if obj.metadata.name in pending:
                pending.remove(obj.metadata.name)
                status = {"status": {"shares": f"written by the hub {len(pending)}"}}
                where = ("tenant-east", obj.metadata.name, status)
                await cluster.merge_patch(GLOBAL_SERVICES, *where, subresource="status", manager="t")
            await write(api_cluster, obj)

        monkeypatch.setattr(member, "_write", after_a_status)
        await change("west", hub_api)
        assert await drained(cluster) == {"a": ["west"], "b": ["west"], "web": ["west"]}
        await change("west", hub_api, drained=False)
        pending.append("web")
        shifted = await shift(cluster, hub_api, west=10, east=90)
        assert {entry.tenant: entry.weight for entry in shifted.spec.members} == {"west": 10, "east": 90}


@pytest.mark.req("MC-13")
async def test_a_drain_gives_no_member_far_more_than_drills_have_measured_of_it(tmp_path):
    async with hub(tmp_path, web=[{"tenant": "east"}, {"tenant": "west"}]) as (cluster, hub_api):
        shown = [{"tenant": name, "share": "50%", "state": "Serving"} for name in ("east", "west")]
        patch = {"status": {"members": shown}}
        await cluster.merge_patch(GLOBAL_SERVICES, "tenant-east", "web", patch, subresource="status", manager="t")
        await cluster.create(DRILLS, {"metadata": {"name": "d"}, "spec": {"member": "west"}})

        async def measured(**connections: int) -> None:
            members = [{"tenant": name, "connections": count} for name, count in connections.items()]
            phase = {"phase": "Before", "seconds": 10, "connections": 600, "members": members}
            status: JSONObject = {"status": {"services": [{"name": "tenant-east/web", "phases": [phase]}]}}
            await cluster.merge_patch(DRILLS, "", "d", status, subresource="status", manager="t")

        # Both together have had 60 connections a second.
        await measured(east=499, west=101)
        with pytest.raises(
            Terminal, match=r"east would get up to 60\.0/s.*at most 49\.9/s.*fairlead drill member west"
        ):
            await change("west", hub_api)
        assert await drained(cluster) == {"web": []}
        await measured(east=500, west=100)
        await change("west", hub_api)
        assert await drained(cluster) == {"web": ["west"]}
        await change("west", hub_api, drained=False)
        await measured(east=100, west=500)
        await change("west", hub_api, force=True)
        assert await drained(cluster) == {"web": ["west"]}


async def test_an_unknown_member_is_an_error_that_says_where_to_look(tmp_path):
    async with hub(tmp_path, a=[{"tenant": "east"}]) as (_, hub_api):
        with pytest.raises(Terminal, match="no GlobalService lists member north"):
            await change("north", hub_api)


async def shift(cluster: Cluster, hub_api: HubApi, service: str = "tenant-east/web", **weights: int):
    await member.move_weights(service, weights, GlobalShift(20, "30s", "failed>1%"), hub_api, Output.JSON)
    return await cluster.get(GLOBAL_SERVICES, "tenant-east", "web")


@pytest.mark.req("MC-14")
async def test_a_shift_is_written_for_the_hub_and_a_second_one_is_refused(tmp_path):
    async with hub(tmp_path, web=[{"tenant": "east", "drain": True}, {"tenant": "west"}, {"tenant": "north"}]) as (
        cluster,
        hub_api,
    ):
        obj = await shift(cluster, hub_api, east=10, west=90)
        assert [(entry.tenant, entry.weight) for entry in obj.spec.members] == [
            ("east", 10),
            ("west", 90),
            ("north", 100),
        ]
        assert obj.spec.members[0].drain
        assert (obj.spec.shift.step, obj.spec.shift.every, obj.spec.shift.stop_on) == (20, "30s", "failed>1%")
        with pytest.raises(Terminal, match="already being shifted"):
            await shift(cluster, hub_api, east=20)
        members = [{"tenant": "east", "start": 0, "target": 10}, {"tenant": "west", "start": 100, "target": 90}]
        status = {"shift": {"state": "Shifting", "members": members, "moved": 5, "request": obj.spec.shift.request}}
        about = {"metadata": {"name": "web", "namespace": "tenant-east"}, "status": status}
        await cluster.apply(GLOBAL_SERVICES, about, manager="hub", subresource="status")
        with pytest.raises(Terminal, match="already being shifted"):
            await shift(cluster, hub_api, east=20)
        # It can be ended where it is.
        assert [entry.weight for entry in (await shift(cluster, hub_api)).spec.members] == [50, 950, 100]


@pytest.mark.req("MC-14")
async def test_a_shift_that_cannot_be_is_refused_before_anything_is_written(tmp_path):
    web = [{"tenant": "east"}, {"tenant": "west", "maxShare": 60}]
    async with hub(tmp_path, web=web) as (cluster, hub_api):
        for wrong, weights in (
            ("no member nobody", {"nobody": 1}),
            ("its maxShare is 60", {"east": 30, "west": 70}),
            ("is not being shifted", {}),
        ):
            with pytest.raises(Terminal, match=wrong):
                await shift(cluster, hub_api, "tenant-east/web", **weights)
        with pytest.raises(Terminal, match="no GlobalService"):
            await shift(cluster, hub_api, "shop/other", east=1)
        assert (await cluster.get(GLOBAL_SERVICES, "tenant-east", "web")).spec.shift is None
    for text in ("west", "west=1001", "west=x", "=1", "west=1,,east=2"):
        with pytest.raises(BadConfiguration, match="is not a weight"):
            member.parsed_weights([text])
    with pytest.raises(BadConfiguration, match="west has two weights, 1 and 2"):
        member.parsed_weights(["west=1,east=2", "west=2"])
    assert member.parsed_weights(["west=1,east=2", "north=3"]) == {"west": 1, "east": 2, "north": 3}
