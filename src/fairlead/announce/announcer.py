"""The interface between a proxy machine and an announcer: layer 2, BGP, or a routing daemon of the operator.

    MachinePlan + serving ──apply──► Announcer ──► ARP and neighbour discovery, BGP sessions, routes
    MachineReport ◄── addresses, sessions, links

A machine has several announcers. Each one gets every plan as a whole, and ignores the addresses of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from fairlead.model.machine import AddressState, LinkState, MachinePlan, SessionState


class Announcer(Protocol):
    """Announces the addresses of a machine in one way.

    Constructors take ``on_change``, a callback without arguments: the announcer calls it when ``addresses``,
    ``sessions`` or ``links`` return something else, so that the machine reports at once.
    """

    async def apply(
        self, plan: MachinePlan, *, serving: Mapping[str, bool], unhealthy: Collection[str] | None = ()
    ) -> None:
        """Follow ``plan``, which is the whole state; calling this twice with the same values changes nothing.

        ``serving`` has the addresses whose state on this machine is known. True: the proxy is alive, its listener was
        accepted, and a target is healthy where the plan asks for that. False: the address must not be announced here.
        A missing address keeps its state: announced or not.
        ``unhealthy`` has those whose targets are all unhealthy as the proxy sees it, None until the proxy has answered:
        this machine leaves them at the machine that has them.
        """
        ...

    def due_back(self) -> bool:
        """Return whether an address is to move here from a machine after this one: ``unhealthy`` matters then."""
        ...

    def addresses(self) -> Sequence[AddressState]:
        """Return the state of each address of the plan that this announcer is responsible for."""
        ...

    def sessions(self) -> Sequence[SessionState]:
        """Return the sessions with routers; empty where there are none."""
        ...

    def links(self) -> Sequence[LinkState]:
        """Return the network interfaces that this announcer watches; empty if it watches none."""
        ...

    async def run(self) -> None:
        """Work in the background until cancelled; a cancelled announcer leaves the network as it is.

        After a restart an announcer adopts what it announced before: nothing changes at routers and neighbours.

        Raises:
            FairleadError: the machine lacks a capability or a program; the sentence names the next step.
        """
        ...

    async def withdraw(self) -> None:
        """Stop announcing all addresses, for a planned stop; ``run`` may continue; ``apply`` ends the withdrawal."""
        ...
