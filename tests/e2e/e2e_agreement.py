"""Compares members, hub and traffic, and reports each difference.

In: a fleet and the backend that each Service should have. Out: one text for each Service about which they differ, and
for each process that has ended. Only reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import msgspec

from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.errors import FairleadError
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.member import Member
from tests.e2e.e2e_backends import ask


async def differences(
    fleet: Fleet, wanted: Mapping[tuple[str, str], str], names: Iterable[str], *, longest: bool = False
) -> list[str]:
    """Return what differs, nothing when all agree; with ``longest`` all of it and what Envoy has, else only the first.

    ``wanted``: the backend, which answers with its name, by member and Service; other Services must be gone.
    """
    lines: list[str] = []
    for member in fleet.members.values():
        for name in names:
            if difference := await _difference(fleet, member, name, wanted.get((member.name, name))):
                lines.append(difference)
                if not longest:
                    return lines
    if lines:
        children = (fleet.hub, *(member.agent for member in fleet.members.values()))
        lines += [f"{child.name} has ended: {child.log_tail()}" for child in children if not child.running]
        lines.append(f"Envoy: {await _envoy(fleet)}")
    return lines


async def _difference(fleet: Fleet, member: Member, name: str, backend: str | None) -> str:
    at_hub = await fleet.at_hub(member.name, f"default.{name}")
    if backend is None:
        return "" if at_hub is None else f"{member.name}/{name} is deleted; at the hub: {_shown(at_hub)}"
    service = await member.get(name)
    ingress = service.status.load_balancer.ingress or ()
    answer = "no address to ask"
    if ingress:
        try:
            answer = await ask(ingress[0].address, 80)
        except (OSError, AssertionError, EOFError) as error:
            answer = f"{type(error).__name__} {error}"
    if answer == backend and at_hub is not None:
        return ""
    return (
        f"{member.name}/{name} should answer {backend}, and answers: {answer}; "
        f"member: {msgspec.json.encode(service.status).decode()}; at the hub: {_shown(at_hub)}"
    )


def _shown(at_hub: TCPLoadBalancer | None) -> str:
    if at_hub is None:
        return "nothing"
    meta = {"generation": at_hub.metadata.generation, "deletion": at_hub.metadata.deletion_timestamp}
    return msgspec.json.encode([meta, at_hub.spec, at_hub.status]).decode()


async def _envoy(fleet: Fleet) -> str:
    with contextlib.suppress(FairleadError, OSError):
        listeners, clusters = [await fleet.hub.envoy_page(page) for page in ("/listeners", "/clusters")]
        hosts = sorted({line for line in clusters.splitlines() if "health_flags" in line})
        return "\n".join(["listeners", listeners.strip(), "hosts", *hosts])
    return "does not answer"
