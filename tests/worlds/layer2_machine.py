"""The process of a machine in tests of layer 2: the announcer.

``python -m tests.worlds.layer2_machine PLAN STATE``: ``PLAN`` is read again when it changes, ``STATE`` has what the
announcer reports.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from fairlead.announce.layer2 import Layer2
from fairlead.model.machine import AddressState, LinkState, MachinePlan
from fairlead.runtime.background import end, first_done
from fairlead.runtime.logs import configure_logging


class PlanFile(msgspec.Struct, kw_only=True):
    """What a test wants of a machine."""

    plan: MachinePlan
    serving: dict[str, bool]
    withdraw: bool = False


class StateFile(msgspec.Struct, kw_only=True):
    """What the announcer of a machine reports."""

    plan: str
    addresses: list[AddressState]
    links: list[LinkState]


async def main(plan_file: Path, state_file: Path) -> None:
    configure_logging("info", json=False)
    layer2 = Layer2()
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await first_done(layer2.run(), follow(layer2, plan_file, state_file))


async def follow(layer2: Layer2, plan_file: Path, state_file: Path) -> None:
    read = (0, 0)
    heard = False
    wanted: PlanFile | None = None
    withdrawing: asyncio.Task[None] | None = None
    try:
        while True:
            status = await asyncio.to_thread(plan_file.stat)
            if wanted is None or (status.st_ino, status.st_mtime_ns) != read:
                read = (status.st_ino, status.st_mtime_ns)
                wanted = msgspec.json.decode(await asyncio.to_thread(plan_file.read_bytes), type=PlanFile)
                if wanted.withdraw:
                    withdrawing = asyncio.create_task(layer2.withdraw())
                else:
                    await layer2.apply(wanted.plan, serving=wanted.serving)
            if len(wanted.plan.addresses) < 2000 or not heard:
                addresses = list(layer2.addresses())[:20]
                state = StateFile(plan=wanted.plan.version, addresses=addresses, links=list(layer2.links()))
                heard = any(link.hears for link in state.links)
                new = state_file.with_suffix(".new")
                new.write_bytes(msgspec.json.encode(state))
                new.rename(state_file)
            await asyncio.sleep(0.05 if len(wanted.plan.addresses) < 100 else 1)
    finally:
        await end(withdrawing)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
