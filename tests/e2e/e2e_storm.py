"""A storm: links that reset, stall and go dark, processes that are suspended and killed, Services that come and go.

In: a fleet whose processes reach their APIs through links, and a seed: the same seed does the same things in the same
order. Out: what should be there afterwards. Envoy is left alone: it is what must not notice anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from fairlead.errors import NotFound
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.link import Link, LinkState
from fairlead_demo.worlds.processes import Child
from tests.e2e.e2e_backends import http

NAMES = tuple(f"storm-{number}" for number in range(6))
_PORT = 8080


def through(child: Child, link: Link, flag: str) -> None:
    """Have a process that does not run reach its API through a link."""
    child.command[child.command.index(flag) + 1] = str(link.kubeconfig)


@asynccontextmanager
async def linked(fleet: Fleet) -> AsyncGenerator[list[Link]]:
    """Start hub and agents again, each behind links of its own."""
    links = [Link(fleet.kubeconfig)]
    children: list[tuple[Child, Link, str]] = [(fleet.hub, links[0], "--kubeconfig")]
    for name, member in fleet.members.items():
        here, at_hub = Link(fleet.apis.kubeconfig(name)), Link(fleet.directory / f"{name}-at-hub.kubeconfig")
        links += [here, at_hub]
        children += [(member.agent, here, "--kubeconfig"), (member.agent, at_hub, "--hub-kubeconfig")]
    try:
        for link in links:
            await link.start()
        for child, link, flag in children:
            await child.terminate()
            through(child, link, flag)
        await asyncio.gather(*(member.agent.start() for member in fleet.members.values()))
        await fleet.hub.start_ready()
        yield links
    finally:
        for link in links:
            await link.close()


class Storm:
    """``wanted``: the backend of each Service that should be there, by member and name."""

    def __init__(self, fleet: Fleet, links: list[Link], *, seed: int) -> None:
        self.wanted: dict[tuple[str, str], str] = {}
        self.done: list[str] = []
        self._fleet = fleet
        self._links = links
        self._chooser = random.Random(seed)
        self._backends = [f"{member.network}.{last}" for member in fleet.members.values() for last in (201, 202)]
        self._starting = asyncio.Lock()
        self._healing: set[asyncio.Task[None]] = set()

    @property
    def backends(self) -> list[tuple[str, int, str]]:
        """Return the servers that Services send traffic to: address, port, name."""
        return [(address, _PORT, address) for address in self._backends]

    async def rage(self, seconds: float) -> None:
        """Do one thing after the other, some of them at once; when it returns everything runs again."""
        actions = (self._link, self._link, self._suspend, self._kill, self._kill_api, *[self._churn] * 4)
        end_s = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end_s:
            await self._chooser.choice(actions)()
            await asyncio.sleep(self._chooser.uniform(0.05, 0.6))
        await asyncio.gather(*self._healing)
        for link in self._links:
            link.become(LinkState.OPEN)

    def _later(self, heal: Callable[[], Awaitable[None]], *, longest_s: float) -> None:
        after_s = self._chooser.uniform(0.2, longest_s)

        async def wait() -> None:
            await asyncio.sleep(after_s)
            await heal()

        task = asyncio.create_task(wait())
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    async def _link(self) -> None:
        link = self._chooser.choice(self._links)
        state = self._chooser.choice((LinkState.RESET, LinkState.STALL, LinkState.DARK))
        self.done.append(f"link {self._links.index(link)} {state}")
        link.become(state)

        async def heal() -> None:
            link.become(LinkState.OPEN)

        self._later(heal, longest_s=4.0)

    async def _suspend(self) -> None:
        child = self._chooser.choice(self._children())
        self.done.append(f"suspend {child.name}")
        pid = child.pid
        if pid:
            os.kill(pid, signal.SIGSTOP)

        async def heal() -> None:
            with contextlib.suppress(ProcessLookupError):
                if pid and child.pid == pid:
                    os.kill(pid, signal.SIGCONT)

        self._later(heal, longest_s=3.0)

    async def _kill(self) -> None:
        child = self._chooser.choice(self._children())
        self.done.append(f"kill {child.name}")
        await child.kill()

        async def heal() -> None:
            # Two may have killed it: the second one must not start it next to the first one's.
            async with self._starting:
                if not child.running:
                    await child.start()

        self._later(heal, longest_s=3.0)

    async def _kill_api(self) -> None:
        name = self._chooser.choice(("hub", *self._fleet.members))
        self.done.append(f"kill the API of {name}")
        await self._fleet.apis.kill(name)
        await self._fleet.apis.restart(name)

    async def _churn(self) -> None:
        member = self._chooser.choice(list(self._fleet.members.values()))
        name = self._chooser.choice(NAMES)
        if (member.name, name) in self.wanted and self._chooser.random() < 0.4:
            self.done.append(f"delete {member.name}/{name}")
            with contextlib.suppress(NotFound):
                await member.delete(name)
            del self.wanted[member.name, name]
            return
        backend = self._chooser.choice(self._backends)
        self.done.append(f"{member.name}/{name} goes to {backend}")
        await member.endpoints(name, _PORT, backend)
        await member.service(name, http())
        self.wanted[member.name, name] = backend

    def _children(self) -> list[Child]:
        return [self._fleet.hub, *(member.agent for member in self._fleet.members.values())]
