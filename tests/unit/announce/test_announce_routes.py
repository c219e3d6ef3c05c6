"""Addresses announced as routes: what a speaker that cannot run does to a machine, and prefixes."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from fairlead.announce.bird import Bird
from fairlead.announce.routes import RouteAnnouncer, prefix_of
from fairlead.model.machine import AnnouncedAddress, BgpAttributes, BgpPeerPlan, MachinePlan

PEER = BgpPeerPlan(name="tor", asn=65000, local_asn=65001, address="127.0.0.1")


@pytest.mark.req("P-25")
@pytest.mark.parametrize(
    ("address", "aggregate", "prefix"),
    [
        ("192.0.2.7", "", "192.0.2.7/32"),
        ("2001:db8::7", "", "2001:db8::7/128"),
        ("192.0.2.7", "192.0.2.0/24", "192.0.2.0/24"),
    ],
)
def test_the_prefix_of_an_address(address, aggregate, prefix) -> None:
    assert prefix_of(AnnouncedAddress(address=address, bgp=BgpAttributes(aggregate=aggregate))) == prefix


@pytest.mark.req("P-18")
async def test_a_speaker_that_cannot_run_is_a_problem_and_no_error(tmp_path: Path) -> None:
    changes = asyncio.Event()
    speaker = Bird(tmp_path / "speaker", binary=tmp_path / "no-such-bird")
    announcer = RouteAnnouncer("BGP", speaker, tmp_path / "speaker", on_change=changes.set)
    plan = MachinePlan(machine="m1", version="1", bgp_peers=(PEER,))
    await announcer.apply(plan, serving={})
    running = asyncio.create_task(announcer.run())
    try:
        async with asyncio.timeout(30):
            while not announcer.sessions():
                changes.clear()
                await changes.wait()
        [session] = announcer.sessions()
        assert not session.up
        assert "BIRD does not start" in session.problem
        assert not running.done()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_a_machine_without_bgp_starts_no_speaker(tmp_path: Path) -> None:
    speaker = Bird(tmp_path / "speaker", binary=tmp_path / "no-such-bird")
    announcer = RouteAnnouncer("BGP", speaker, tmp_path / "speaker")
    address = AnnouncedAddress(address="192.0.2.1", announcement="L2", machines=("m1",))
    await announcer.apply(MachinePlan(machine="m1", version="1", addresses=(address,)), serving={"192.0.2.1": True})
    await announcer.withdraw()
    assert (announcer.addresses(), announcer.sessions(), announcer.links()) == ((), (), ())
    assert await speaker.adopted() is None
