"""Play a story on this machine, with nothing but Fairlead and Envoy, and sum it up.

In: ``DemoSettings``. Out: text on stdout, and whether everything that was promised has happened.
Never leaves a process or a network behind, except with ``keep``, and then it says how to end them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.text import Text

from fairlead.demo.show import traffic_table
from fairlead.demo.stories import clusterapi, members, names, names_stage, regions, web
from fairlead.demo.stories.fleet_stage import FleetStage
from fairlead.demo.stories.stage import Stage
from fairlead.errors import FairleadError
from fairlead.testing.worlds.apis import EmbeddedApis
from fairlead.testing.worlds.fleet import Fleet
from fairlead.testing.worlds.guard import guard
from fairlead.testing.worlds.machines import ManagementWorld
from fairlead.testing.worlds.name_servers import bind_program
from fairlead.testing.worlds.networks import choose_networks
from fairlead.testing.worlds.regions import RegionsWorld

S = TypeVar("S", bound=Stage)
F = TypeVar("F", bound=FleetStage)


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``fairlead demo``. ``data_dir`` None: a temporary directory, removed at the end.

    ``loopback``: no network namespaces, also where they could be made.
    """

    keep: bool = False
    data_dir: Path | None = None
    plain: bool = False
    loopback: bool = False


async def run_demo(settings: DemoSettings) -> bool:
    """Show a hub with two members; return whether all of it went as promised."""
    return await _run_fleet(members.MembersStage, members.STEPS, settings)


async def run_http_demo(settings: DemoSettings) -> bool:
    """Show an Ingress and a Gateway of two members over HTTPS; return whether all of it went as promised."""
    return await _run_fleet(web.WebStage, web.STEPS, settings)


async def run_names_demo(settings: DemoSettings) -> bool:
    """Show names in a real DNS server, and certificates by ACME; return whether all of it went as promised.

    Raises:
        Terminal: there is no DNS server on this machine; it says what to install.
    """
    bind_program()
    return await _run_fleet(names_stage.NamesStage, names.STEPS, settings, "--domain", names_stage.DOMAIN)


async def run_regions_demo(settings: DemoSettings) -> bool:
    """Show one Service in several regions; return whether all of it went as promised."""
    directory = _directory(settings)
    world = RegionsWorld(directory, choose_networks(loopback=settings.loopback))
    stage = regions.RegionsStage(world=world, console=Console(), plain=_plain(settings))
    return await _run(stage, regions.STEPS, settings, directory)


async def run_clusterapi_demo(settings: DemoSettings) -> bool:
    """Show a cluster of Cluster API whose control plane is replaced; return whether all of it went as promised."""
    directory = _directory(settings)
    stage = clusterapi.MachinesStage(world=ManagementWorld(directory), console=Console(), plain=_plain(settings))
    return await _run(stage, clusterapi.STEPS, settings, directory)


#: The stories that every option of the demo is for, by their command.
STORIES: dict[str, Callable[[DemoSettings], Awaitable[bool]]] = {
    "cluster-api": run_clusterapi_demo,
    "http": run_http_demo,
    "names": run_names_demo,
}


async def play(stage: S, steps: Sequence[Callable[[S], Awaitable[None]]]) -> bool:
    """Play ``steps`` in order, then wait for the last answers; return whether every promise was kept."""
    async with stage.show as show:
        for step in steps:
            try:
                await step(stage)
            except FairleadError as error:
                show.failed(error.sentence, *([error.detail] if error.detail else []))
                return False
        show.doing("the last requests come back")
        await stage.stop_traffic()
        under_way = sum(traffic.count.under_way for traffic in stage.traffics.values())
        if failures := [*stage.failures(), *([f"{under_way} requests unaccounted for"] if under_way else [])]:
            show.failed("some requests failed", *failures)
            return False
    return True


def sum_up(stage: Stage, *, passed: bool) -> None:
    """Print the table of the traffic, where it was not live, and the verdict with its counts."""
    console = stage.console
    out = console if console.is_terminal else Console(width=200)
    out.print()
    if stage.traffics and not console.is_terminal:
        out.print(traffic_table(stage.traffics))
    sent = sum(traffic.count.sent for traffic in stage.traffics.values())
    failed = sum(traffic.count.failed for traffic in stage.traffics.values())
    verdict = "PASSED" if passed else "FAILED"
    ending = stage.ending(passed=passed)
    text = f"{verdict} in {stage.show.elapsed_s:.0f} s: {sent} requests sent, {failed} failed{ending}"
    out.print(Text(text, style="bold green" if passed else "bold red"))


async def _run_fleet(
    kind: type[F], steps: Sequence[Callable[[F], Awaitable[None]]], settings: DemoSettings, *hub_options: str
) -> bool:
    directory = _directory(settings)
    apis = EmbeddedApis(directory, ("hub", "east", "west"))
    both = {"east": "Pod", "west": "Pod"}
    fleet = Fleet(apis=apis, directory=directory, members=both, drain="3s", hub_options=hub_options)
    stage = kind(fleet=fleet, apis=apis, console=Console(), plain=_plain(settings))
    return await _run(stage, steps, settings, directory)


async def _run(
    stage: S, steps: Sequence[Callable[[S], Awaitable[None]]], settings: DemoSettings, directory: Path
) -> bool:
    guard()
    task = asyncio.current_task()
    if task is not None:
        # As with Ctrl-C: everything is taken down on the way out.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    passed = False
    try:
        passed = await play(stage, steps)
        sum_up(stage, passed=passed)
        if settings.keep:
            await _keep(stage)
    finally:
        # Ctrl-C once more ends this at once; what is left then, the guard ends.
        await asyncio.shield(stage.close())
        if settings.data_dir is None and passed:
            shutil.rmtree(directory, ignore_errors=True)
        elif not passed:
            stage.console.print(Text(f"The logs are in {directory}"))
    return passed


async def _keep(stage: Stage) -> None:
    """Leave everything running until Ctrl-C, and print commands to try."""
    lines = ["", "Everything runs on. Try, in another terminal:", *stage.commands(), "", "Ctrl-C ends all of it."]
    for line in lines:
        stage.console.print(Text(line), soft_wrap=True)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()


def _plain(settings: DemoSettings) -> bool:
    return settings.plain or bool(os.environ.get("CI"))


def _directory(settings: DemoSettings) -> Path:
    if settings.data_dir is None:
        # Short: the path of a unix socket has room for 107 bytes.
        return Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
    directory = settings.data_dir.expanduser().absolute()
    directory.mkdir(parents=True, exist_ok=True)
    return directory
