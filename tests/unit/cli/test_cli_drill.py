"""``fairlead drill``: a preview writes nothing, and a command ends as its drill does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from cli_api import api
from typer.testing import CliRunner

from fairlead.api.drill import DRILLS, Drill, DrillSpec
from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.tenant import TENANTS
from fairlead.cli import drill
from fairlead.cli.main import app
from fairlead.cli.options import HubApi, Output
from fairlead.cli.run import ATTENTION, OK
from fairlead.errors import BadConfiguration, NotFound, Terminal
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster

SPEC = DrillSpec("west", duration="1m")


@contextlib.asynccontextmanager
async def hub(directory: Path, **weights: int) -> AsyncGenerator[tuple[Cluster, HubApi]]:
    """Run an API with a GlobalService whose members serve."""
    async with api(directory) as (cluster, kubeconfig):
        await cluster.create(NAMESPACES, {"metadata": {"name": "ns"}})
        for name in weights:
            await cluster.create(TENANTS, {"metadata": {"name": name}, "spec": {}})
        members = [{"tenant": name, "weight": weight} for name, weight in weights.items()]
        spec = {"service": "shop/web", "members": members}
        await cluster.create(GLOBAL_SERVICES, {"metadata": {"name": "web", "namespace": "ns"}, "spec": spec})
        whole = sum(weights.values())
        shown = [
            {"tenant": name, "state": "Serving", "share": f"{100 * weight // whole}%"}
            for name, weight in weights.items()
        ]
        patch = {"status": {"members": shown}}
        await cluster.merge_patch(GLOBAL_SERVICES, "ns", "web", patch, subresource="status", manager="t")
        yield cluster, HubApi(kubeconfig=kubeconfig)


async def set_status(cluster: Cluster, name: str, **status: object) -> None:
    await cluster.merge_patch(DRILLS, "", name, {"status": status}, subresource="status", manager="t")


async def begun(cluster: Cluster) -> Drill:
    """Return the drill that a command creates, once it is there."""
    cache: WatchCache[Drill] = WatchCache(cluster, DRILLS)
    seen: asyncio.Future[Drill] = asyncio.get_running_loop().create_future()
    cache.on_change(lambda _old, new: seen.set_result(new) if new is not None and not seen.done() else None)
    watching = asyncio.create_task(cache.run())
    try:
        return await seen
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.req("MC-24")
async def test_a_preview_shows_shares_and_writes_nothing(tmp_path, capsys):
    async with hub(tmp_path, west=60, east=30, north=10) as (cluster, hub_api):
        status = {"state": "Passed", "services": [{"name": "ns/web", "phases": [
            {"phase": "Before", "seconds": 10, "connections": 400, "members": [{"tenant": "east", "connections": 120}]}
        ]}]}  # fmt: skip
        await cluster.create(DRILLS, {"metadata": {"name": "earlier"}, "spec": {"member": "west"}})
        await set_status(cluster, "earlier", **status)
        before = (await cluster.get(GLOBAL_SERVICES, "ns", "web")).metadata.resource_version
        assert await drill.preview_drill(SPEC, hub_api, Output.JSON) == OK
        (service,) = json.loads(capsys.readouterr().out)["globalServices"]
        shown = {each["tenant"]: each for each in service["members"]}
        assert {name: each["after"] for name, each in shown.items()} == {"west": 0, "east": 75, "north": 25}
        assert (shown["west"]["now"], shown["east"]["peak"], shown["east"]["expected"]) == ("60%", 12, 30)
        assert [obj.metadata.name for obj in await cluster.list(DRILLS)] == ["earlier"]
        assert (await cluster.get(GLOBAL_SERVICES, "ns", "web")).metadata.resource_version == before


@pytest.mark.req("MC-24")
async def test_a_preview_of_a_drill_that_would_be_refused_says_why(tmp_path, capsys):
    async with hub(tmp_path, west=60) as (_, hub_api):
        assert await drill.preview_drill(SPEC, hub_api, Output.TABLE) == ATTENTION
        assert "no member other than west" in capsys.readouterr().out


@pytest.mark.req("MC-25", "MC-26")
@pytest.mark.parametrize(("state", "code"), [("Passed", OK), ("Failed", ATTENTION), ("Inconclusive", ATTENTION)])
async def test_the_command_ends_as_the_drill_does(tmp_path, capsys, monkeypatch, state, code):
    monkeypatch.setattr(drill, "_LOOK_S", 0.01)
    async with hub(tmp_path, west=60, east=40) as (cluster, hub_api):
        async with asyncio.TaskGroup() as group:
            command = group.create_task(drill.run_drill(SPEC, hub_api, Output.TABLE))
            name = (await begun(cluster)).metadata.name
            await set_status(cluster, name, state="Drilling", endsAt="2026-12-01T10:00:00Z")
            await set_status(cluster, name, state=state)
        assert command.result() == code
        assert capsys.readouterr().out.startswith(f"# Drill {name}: {state}\n")
        assert await drill.show_drills("", hub_api, Output.TABLE) == code
        assert await drill.show_drills(name, hub_api, Output.TABLE) == code
        with pytest.raises(Terminal, match="has ended already"):
            await drill.stop_drill(name, hub_api, Output.TABLE)


@pytest.mark.req("MC-25")
async def test_a_refused_drill_is_an_error_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(drill, "_LOOK_S", 0.01)
    async with hub(tmp_path, west=60, east=40) as (cluster, hub_api):
        command = asyncio.create_task(drill.run_drill(SPEC, hub_api, Output.TABLE))
        await set_status(cluster, (await begun(cluster)).metadata.name, state="Refused", message="it is blocked")
        with pytest.raises(Terminal, match="it is blocked"):
            await command


@pytest.mark.req("MC-25")
async def test_a_drill_that_no_hub_begins_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(drill, "_BEGINS_S", 0.05)
    async with hub(tmp_path, west=60, east=40) as (cluster, hub_api):
        with pytest.raises(Terminal, match="no hub began drill west-"):
            await drill.run_drill(SPEC, hub_api, Output.TABLE)
        assert await cluster.list(DRILLS) == []
        with pytest.raises(BadConfiguration, match="--for"):
            await drill.run_drill(DrillSpec("west", duration="soon"), hub_api, Output.TABLE)


async def test_a_drill_can_be_stopped_by_name(tmp_path):
    async with hub(tmp_path, west=60, east=40) as (cluster, hub_api):
        await cluster.create(DRILLS, {"metadata": {"name": "d"}, "spec": {"member": "west"}})
        await drill.stop_drill("d", hub_api, Output.NAME)
        assert (await cluster.get(DRILLS, "", "d")).spec.stop
        with pytest.raises(NotFound, match="no drill is named e"):
            await drill.stop_drill("e", hub_api, Output.NAME)


@pytest.mark.req("MC-14", "MC-25")
@pytest.mark.parametrize("limit", ["5xx", "5xx>1", "latency>1%", "failed>100%"])
@pytest.mark.parametrize("command", ["drill member west", "shift shop/web west=10"])
def test_a_limit_that_is_none_is_refused_before_anything_is_written(command, limit):
    result = CliRunner().invoke(app, [*command.split(), "--stop-on", limit])
    assert result.exit_code == 2
    assert "--stop-on" in result.output
    assert limit in result.output
