"""What has to hold after the hub's API was restored to an older state, whatever it is kept in."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.traffic import Traffic

#: Services of the member, by when they were made. The ports are what they are served at.
BEFORE, AFTER = "before-backup", "after-backup"
PORTS = {BEFORE: 8091, AFTER: 8092}


def asked(addresses: dict[str, str]) -> list[Traffic]:
    """Start traffic to both Services, at these addresses."""
    traffic = [Traffic(host=address, port=PORTS[name], kept=0) for name, address in addresses.items()]
    for each in traffic:
        each.start()
    return traffic


async def starts_over(fleet: Fleet) -> None:
    """Wait until a hub that was running has ended for it; whatever runs it starts it again."""
    assert await fleet.hub.ended() == 1
    assert "has been restored to an older state" in fleet.hub.log.read_text()
    await fleet.hub.start_ready()


async def published_again(fleet: Fleet, address: str) -> None:
    """Wait until the younger load balancer is at the hub again, with the address that it had."""

    async def so() -> bool:
        there = await fleet.at_hub("east", f"default.{AFTER}")
        return there is not None and there.status.address == address

    await wait_until(so, "the agent has published what the backup did not have")


async def none_failed(traffic: Sequence[Traffic], *, more: int) -> None:
    """Let ``more`` requests of each be answered, then end them: none of all has failed."""
    enough = [each.count.sent + more for each in traffic]

    async def so() -> bool:
        return all(each.count.sent >= wanted for each, wanted in zip(traffic, enough, strict=True))

    await wait_until(so, "traffic goes on", timeout_s=240)
    for each in traffic:
        await each.stop()
        assert (each.count.failed, each.count.failures) == (0, [])
