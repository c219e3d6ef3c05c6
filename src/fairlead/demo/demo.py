"""What does Fairlead do, on this machine, in about a minute, with nothing but itself and Envoy?

In: ``DemoSettings``. Out: text on stdout, and whether everything that was promised has happened.
Never: leaves a process behind, unless it is told to keep them (and then it says how to end them).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from fairlead.demo.play import play, sum_up
from fairlead.demo.show import Show
from fairlead.demo.steps import STEPS, Stage
from fairlead.demo.traffic import Traffic
from fairlead.demo.world import World


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How ``fairlead demo`` was called. ``data_dir`` None: a temporary directory, removed at the end."""

    keep: bool = False
    data_dir: Path | None = None
    plain: bool = False


async def run_demo(settings: DemoSettings) -> bool:
    """Run the demo; return whether all of it went as promised."""
    directory = _directory(settings)
    plain = settings.plain or bool(os.environ.get("CI"))
    task = asyncio.current_task()
    if task is not None:
        # As with Ctrl-C: everything is taken down on the way out.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    traffics: dict[str, Traffic] = {}
    world = World(directory)
    console = Console()
    show = Show(traffics=traffics, plain=plain, console=console)
    stage = Stage(world=world, show=show, traffics=traffics)
    passed = False
    try:
        passed = await play(stage, STEPS, sorry="some requests failed")
        lost = sum(traffic.count.lost for traffic in traffics.values())
        sum_up(console, stage, passed=passed, ending=f", {lost} lost with the pod that was killed")
        if settings.keep:
            await _keep(console, stage)
    finally:
        # Two Ctrl-C in a row must not leave half of it running.
        await asyncio.shield(_take_down(stage))
        if settings.data_dir is None and passed:
            shutil.rmtree(directory, ignore_errors=True)
        elif not passed:
            console.print(Text(f"The logs are in {directory}"))
    return passed


async def _keep(console: Console, stage: Stage) -> None:
    """Leave everything running until Ctrl-C, and say how to play with it."""
    world = stage.world
    lines = [
        "",
        "Everything runs on. Try, in another terminal:",
        f"  fairlead status --kubeconfig {world.kubeconfig}",
        f"  kubectl --kubeconfig {world.kubeconfig} get tenants,tcplb -A",
    ]
    for name, member in world.members.items():
        lines.append(f"  kubectl --kubeconfig {member.kubeconfig} get services,pods     # {name}")
    lines += [f"  curl http://{traffic.host}/          # {name}" for name, traffic in stage.traffics.items()]
    lines += ["", "Ctrl-C ends all of it."]
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()


async def _take_down(stage: Stage) -> None:
    for traffic in stage.traffics.values():
        await traffic.stop()
    for workload in stage.workloads.values():
        await workload.stop()
    await stage.world.close()


def _directory(settings: DemoSettings) -> Path:
    if settings.data_dir is None:
        # Short: the path of a unix socket has room for 107 bytes.
        return Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
    directory = settings.data_dir.expanduser().absolute()
    directory.mkdir(parents=True, exist_ok=True)
    return directory
