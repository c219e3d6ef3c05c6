"""The machine of a hub that announces addresses itself: the one-machine case of proxy machines.

    Machines (this process) ──plan──► AnnouncingMachine ◄── Envoys of the hub's data directory
                            ◄─report─

The same code as on a machine that joined, without certificate, relay and snapshot: the Envoys have their configuration
from this process, and its API or cluster has everything else. Load balancers without a recorded machine are here.
Only the leader's machine announces: what a hub announced is withdrawn when it follows another one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from fairlead.api.names import name_problem
from fairlead.errors import BadConfiguration, Retry
from fairlead.hub.machines.control import Machines
from fairlead.machine.announcing import AnnouncingMachine
from fairlead.machine.app import MachineSettings, all_announcers
from fairlead.machine.kernel import KernelPath
from fairlead.model.machine import DrainState, ForwardingTable, MachinePlan, MachineReport
from fairlead.providers.envoy.envoy_process import LocalEnvoy
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.resources import ResourceType
from fairlead.providers.envoy.store import shortened
from fairlead.providers.kernel import KernelProvider
from fairlead.runtime.background import Supervisor, first_done
from fairlead.standalone.process import ANNOUNCERS

_POLL_S = 1.0
#: In the hub's data directory.
FORWARDING = "forwarding.json"
#: Announcers withdraw at once when their plan is empty; this is for a speaker of BGP that ends.
_WITHDRAW_S = 0.5
#: Version of the plan that a hub's machine has while another hub leads: it announces nothing.
_FOLLOWING = "following"


def own_name() -> str:
    """Return the name of this machine: that of the host.

    Raises:
        BadConfiguration: it cannot be the name of an object.
    """
    name = os.uname().nodename.lower()
    if (problem := name_problem(name)) or len(name) > 63:
        raise BadConfiguration(
            f"--announce: this machine is named by its host, and {problem or f'{name!r} has more than 63 characters'}; "
            "set another name with  hostnamectl hostname NAME"
        )
    return name


class LedByThisHub:
    """The plans of the hub in this process. ``follows``: another hub leads."""

    def __init__(self, machines: Machines, *, name: str, epoch: Callable[[], int], follows: Callable[[], bool]) -> None:
        self._machines = machines
        self._name = name
        self._epoch = epoch
        self._follows = follows
        self._registered = -1

    async def plan(self, after: str) -> MachinePlan | None:
        """Return the plan once its version is another than ``after``; None when nothing has changed for a while."""
        try:
            if self._registered != (epoch := self._epoch()):
                await self._machines.register(self._name)
                self._registered = epoch
            return await self._machines.plan(self._name, after)
        except Retry:
            if self._follows() and after != _FOLLOWING:
                return MachinePlan(machine=self._name, version=_FOLLOWING, drained=True)
            await asyncio.sleep(_POLL_S)
            return None

    async def forwarding(self, after: str) -> ForwardingTable | None:
        """Return what the kernel forwards, or what changed since version ``after``; None if nothing has for a while."""
        try:
            return await self._machines.forwarding(self._name, after)
        except Retry:
            await asyncio.sleep(_POLL_S)
            return None

    async def report(self, report: MachineReport) -> None:
        """Take in the state of this machine."""
        await self._machines.report(self._name, report)


class OwnMachine:
    """The Envoys of the hub's data directory as those of a machine."""

    def __init__(
        self,
        name: str,
        *,
        hub: LedByThisHub,
        provider: EnvoyProvider,
        fleet: LocalFleet,
        kernel: KernelProvider,
        data_dir: Path,
    ) -> None:
        self._provider = provider
        self._fleet = fleet
        changed = asyncio.Event()
        directory = data_dir / ANNOUNCERS
        directory.mkdir(exist_ok=True, mode=0o700)
        provider.machine = fleet.machine = name
        kernel.own_machine = name
        path = KernelPath(data_dir / FORWARDING, on_change=changed.set)
        path.load()
        self._machine = AnnouncingMachine(
            name,
            hub=hub,
            proxies=self,
            kernel=path,
            announcers=all_announcers(MachineSettings(), directory, changed.set),
            changed=changed,
        )

    async def begin(self, supervisor: Supervisor) -> None:
        """Follow plans from now on: the Envoys run, and everything was published to them."""
        self._machine.follow(supervisor)
        self._machine.watch(supervisor)

    @property
    def envoys(self) -> Sequence[LocalEnvoy]:
        """Return the Envoys; each address is served by one of them."""
        return tuple(self._fleet.envoys.values())

    @property
    def max_listeners(self) -> int:
        """Return how many listeners they can open."""
        return self._fleet.max_listeners * len(self._fleet.envoys)

    def listeners(self) -> Collection[str]:
        """Return the names of the listeners that the Envoys have acknowledged."""
        sessions = self._provider.sessions_here()
        return {name for session in sessions for name in session.acknowledged(ResourceType.LISTENER)}

    def refused(self) -> Mapping[str, str]:
        """Return the listeners that an Envoy has rejected, each with its message."""
        return {
            name: shortened(message)
            for session in self._provider.sessions_here()
            for kind, name in session.group.refused_names()
            if kind is ResourceType.LISTENER and (message := session.group.refusal(kind, name))
        }

    def draining(self) -> tuple[DrainState, ...]:
        """Return nothing: the provider in this process counts the connections of these Envoys."""
        return ()

    @property
    def synced(self) -> bool:
        """Return whether all Envoys are connected, and have acknowledged or rejected all that came."""
        sessions = self._provider.sessions_here()
        return len(sessions) >= len(self._fleet.envoys) and all(session.synced for session in sessions)


async def withdraw(data_dir: Path) -> bool:
    """Take off the network what a hub of this data directory announced; return whether it announced anything.

    Raises:
        FairleadError: this process lacks a capability.
    """
    directory = data_dir / ANNOUNCERS
    if not directory.exists():
        return False
    for announcer in all_announcers(MachineSettings(), directory, lambda: None).values():
        await announcer.apply(MachinePlan(machine="", version="", drained=True), serving={})
        await first_done(announcer.run(), asyncio.sleep(_WITHDRAW_S))
    shutil.rmtree(directory, ignore_errors=True)
    return True
