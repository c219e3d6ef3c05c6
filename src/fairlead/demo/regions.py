"""What does one Service in many regions look like, on this machine, in about a minute?

In: ``RegionsDemoSettings``. Out: text on stdout, and whether everything that was promised has happened.
Never: leaves a process or a network behind.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from fairlead.demo.play import play, sum_up
from fairlead.demo.regions_net import choose_networks
from fairlead.demo.regions_steps import STEPS, RegionsStage
from fairlead.demo.regions_world import RegionsWorld
from fairlead.demo.show import Show
from fairlead.demo.traffic import Traffic


class RegionsDemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How ``fairlead demo regions`` was called. ``loopback``: no network namespaces, also where they could be made."""

    data_dir: Path | None = None
    loopback: bool = False
    plain: bool = False


async def run_regions_demo(settings: RegionsDemoSettings) -> bool:
    """Run the demo; return whether all of it went as promised."""
    # Short: the path of a unix socket has room for 107 bytes.
    directory = settings.data_dir or Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
    directory = directory.expanduser().absolute()
    directory.mkdir(parents=True, exist_ok=True)
    task = asyncio.current_task()
    if task is not None:
        # As with Ctrl-C: everything is taken down on the way out.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    traffics: dict[str, Traffic] = {}
    console = Console()
    show = Show(traffics=traffics, plain=settings.plain or bool(os.environ.get("CI")), console=console)
    world = RegionsWorld(directory, choose_networks(loopback=settings.loopback))
    stage = RegionsStage(world=world, show=show, traffics=traffics)
    passed = False
    try:
        passed = await play(stage, STEPS, sorry="some requests went wrong")
        sum_up(console, stage, passed=passed, ending=", none answered by another region" if passed else "")
    finally:
        # Two Ctrl-C in a row must not leave half of it running.
        await asyncio.shield(_take_down(stage))
        if settings.data_dir is None and passed:
            shutil.rmtree(directory, ignore_errors=True)
        elif not passed:
            console.print(Text(f"The logs are in {directory}"))
    return passed


async def _take_down(stage: RegionsStage) -> None:
    for traffic in stage.traffics.values():
        await traffic.stop()
    await stage.world.close()
