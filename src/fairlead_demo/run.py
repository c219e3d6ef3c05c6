"""Run a demo on this machine, with nothing but Fairlead and Envoy, and print a summary.

In: ``DemoSettings``. Out: text on stdout, and whether every check has passed. All processes and networks are removed at
the end; with ``keep`` they run until Ctrl-C.
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

from fairlead.errors import BadConfiguration, FairleadError
from fairlead_demo.stories import clusterapi, members, names, proxies, regions, rollout, shared, web
from fairlead_demo.stories.context import DOMAIN, FleetContext, NamesContext, StoryContext
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.bgp import bird_missing
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.guard import guard
from fairlead_demo.worlds.machines import ManagementWorld
from fairlead_demo.worlds.name_servers import bind_program
from fairlead_demo.worlds.networks import choose_networks
from fairlead_demo.worlds.proxy_machines import ProxySite, why_no_namespaces
from fairlead_demo.worlds.regions import RegionsWorld

S = TypeVar("S", bound=StoryContext)
F = TypeVar("F", bound=FleetContext)


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``fairlead demo``. ``data_dir`` None: a temporary directory, removed at the end.

    ``loopback``: no network namespaces, even if this user may create them.
    """

    keep: bool = False
    data_dir: Path | None = None
    plain: bool = False
    loopback: bool = False


async def run_demo(settings: DemoSettings) -> bool:
    """Run the demo of a hub with two members; return whether every check has passed."""
    return await _run_fleet(members.MembersContext, members.STEPS, settings)


async def run_global_demo(settings: DemoSettings) -> bool:
    """Run the demo of one Service of three members; return whether every check has passed."""
    return await _run_fleet(shared.SharedContext, shared.STEPS, settings, of=shared.MEMBERS, linked=(shared.CUT_OFF,))


async def run_http_demo(settings: DemoSettings) -> bool:
    """Run the demo of an Ingress and a Gateway over HTTPS; return whether every check has passed."""
    return await _run_fleet(web.WebContext, web.STEPS, settings)


async def run_rollout_demo(settings: DemoSettings) -> bool:
    """Run the demo of rollouts with and without the readiness gate; return whether every check has passed."""
    return await _run_fleet(rollout.RolloutContext, rollout.STEPS, settings, agent_options=("--readiness-gates",))


async def run_names_demo(settings: DemoSettings) -> bool:
    """Run the demo of DNS names and ACME certificates; return whether every check has passed.

    Raises:
        Terminal: no DNS server is installed; the message says what to install.
    """
    bind_program()
    return await _run_fleet(NamesContext, names.STEPS, settings, "--domain", DOMAIN)


async def run_regions_demo(settings: DemoSettings) -> bool:
    """Run the demo of one Service in several regions; return whether every check has passed."""
    directory = _directory(settings)
    world = RegionsWorld(directory, choose_networks(loopback=settings.loopback))
    context = regions.RegionsContext(world=world, console=Console(), plain=_plain(settings))
    return await _run(context, regions.STEPS, settings, directory)


async def run_clusterapi_demo(settings: DemoSettings) -> bool:
    """Run the demo of a Cluster API cluster whose control plane is replaced; return whether every check has passed."""
    directory = _directory(settings)
    context = clusterapi.MachinesContext(world=ManagementWorld(directory), console=Console(), plain=_plain(settings))
    return await _run(context, clusterapi.STEPS, settings, directory)


async def run_machines_demo(settings: DemoSettings) -> bool:
    """Run the demo of proxy machines that fail under load; return whether every limit was kept.

    Raises:
        BadConfiguration: network namespaces cannot be made here; the message has the next step.
    """
    if why := why_no_namespaces():
        raise BadConfiguration(f"This demo runs in network namespaces, and {why}.")
    directory = _directory(settings)
    site = ProxySite(directory, routed=True)
    context = proxies.ProxiesContext(site=site, bgp_missing=bird_missing(), console=Console(), plain=_plain(settings))
    return await _run(context, proxies.STEPS, settings, directory)


#: The demos that take all options of ``fairlead demo``, by command.
STORIES: dict[str, Callable[[DemoSettings], Awaitable[bool]]] = {
    "cluster-api": run_clusterapi_demo,
    "global": run_global_demo,
    "http": run_http_demo,
    "machines": run_machines_demo,
    "names": run_names_demo,
    "rollout": run_rollout_demo,
}


async def run_story(context: S, steps: Sequence[Callable[[S], Awaitable[None]]]) -> bool:
    """Run ``steps`` in order, then wait for requests in flight; return whether every check has passed."""
    async with context.progress as progress:
        for step in steps:
            try:
                await step(context)
            except FairleadError as error:
                progress.failed(error.sentence, *([error.detail] if error.detail else []))
                return False
        progress.step_started("the last requests are answered")
        await context.stop_traffic()
        under_way = sum(traffic.count.under_way for traffic in context.traffics.values())
        if failures := [*context.failures(), *([f"{under_way} requests unaccounted for"] if under_way else [])]:
            progress.failed(context.broken, *failures)
            return False
    return True


def sum_up(context: StoryContext, *, passed: bool) -> None:
    """Print the table of the demo, unless it was shown live, and the result with its counts."""
    console = context.console
    out = console if console.is_terminal else Console(width=200)
    out.print()
    if (table := context.table()) and not context.progress.is_live:
        out.print(table)
    verdict = "PASSED" if passed else "FAILED"
    ending = context.ending(passed=passed)
    text = f"{verdict} in {context.progress.elapsed_s:.0f} s: {context.summary()}{ending}"
    out.print(Text(text, style="bold green" if passed else "bold red"))


async def _run_fleet(
    kind: type[F],
    steps: Sequence[Callable[[F], Awaitable[None]]],
    settings: DemoSettings,
    *hub_options: str,
    agent_options: Sequence[str] = (),
    of: Sequence[str] = ("east", "west"),
    linked: Sequence[str] = (),
) -> bool:
    directory = _directory(settings)
    apis = EmbeddedApis(directory, ("hub", *of))
    fleet = Fleet(
        apis=apis,
        directory=directory,
        members=dict.fromkeys(of, "Pod"),
        drain="3s",
        hub_options=hub_options,
        agent_options=agent_options,
        linked=linked,
    )
    context = kind(fleet=fleet, apis=apis, console=Console(), plain=_plain(settings))
    return await _run(context, steps, settings, directory)


async def _run(
    context: S, steps: Sequence[Callable[[S], Awaitable[None]]], settings: DemoSettings, directory: Path
) -> bool:
    guard()
    task = asyncio.current_task()
    if task is not None:
        # As for Ctrl-C: everything is removed during the cancellation.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    passed = False
    try:
        passed = await run_story(context, steps)
        sum_up(context, passed=passed)
        if settings.keep:
            await _keep(context)
    finally:
        # A second Ctrl-C ends this at once; the guard process then kills what is left.
        await asyncio.shield(context.close())
        if settings.data_dir is None and passed:
            shutil.rmtree(directory, ignore_errors=True)
        elif not passed:
            context.console.print(Text(f"The logs are in {directory}"))
    return passed


async def _keep(context: StoryContext) -> None:
    """Keep everything running until Ctrl-C, and print commands to try."""
    lines = [
        "",
        "Everything keeps running. Try in another terminal:",
        *context.commands(),
        "",
        "Press Ctrl-C to stop everything.",
    ]
    for line in lines:
        context.console.print(Text(line), soft_wrap=True)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()


def _plain(settings: DemoSettings) -> bool:
    return settings.plain or bool(os.environ.get("CI"))


def _directory(settings: DemoSettings) -> Path:
    if settings.data_dir is None:
        # Short: the path of a unix socket is limited to 107 bytes.
        return Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
    directory = settings.data_dir.expanduser().absolute()
    directory.mkdir(parents=True, exist_ok=True)
    return directory
