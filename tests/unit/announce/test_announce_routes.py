"""Addresses announced as routes: what a speaker that cannot run does to a machine, and prefixes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

import msgspec
import pytest

from fairlead.announce import bird, external, routes
from fairlead.announce.bird import Bird
from fairlead.announce.routes import AnnouncedRoute, RouteAnnouncer, prefix_of
from fairlead.errors import Retry
from fairlead.model.machine import AnnouncedAddress, BgpAttributes, BgpPeerPlan, MachinePlan, SessionState

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
        async with asyncio.timeout(180):
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


class StubbornSpeaker(Bird):
    """A BIRD that refuses every change while ``refuses``, and counts renewals."""

    refuses = False
    renewals = 0
    prefixes: Collection[str] = ()

    async def adopted(self) -> Collection[str] | None:
        return self.prefixes or None

    async def apply(self, peers: Sequence[BgpPeerPlan], routes: Sequence[AnnouncedRoute]) -> None:
        if self.refuses:
            raise Retry("BIRD refuses its configuration")
        self.prefixes = [route.prefix for route in routes]

    async def renew(self) -> None:
        self.renewals += 1

    async def sessions(self, peers: Sequence[BgpPeerPlan] | None = None) -> Sequence[SessionState]:
        return ()


@pytest.mark.req("P-21")
async def test_routes_are_renewed_unless_one_cannot_be_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_addresses(*_: object, **__: object) -> None:
        """Leave the addresses of this machine alone."""

    monkeypatch.setattr(routes, "ip_batch", no_addresses)
    speaker = StubbornSpeaker(tmp_path / "speaker")
    announcer = RouteAnnouncer("BGP", speaker, tmp_path / "speaker")
    web, dns = (
        AnnouncedAddress(address=f"192.0.2.{number}", announcement="BGP", machines=("m1", "m2")) for number in (1, 2)
    )
    both = MachinePlan(machine="m1", version="1", bgp_peers=(PEER,), addresses=(web, dns))
    without_web = msgspec.structs.replace(both, version="2", addresses=(dns,))
    drained = msgspec.structs.replace(both, version="3", drained=True)

    async def renewed(plan: MachinePlan, *, web_serves: bool = True) -> bool:
        await announcer.apply(plan, serving={web.address: web_serves, dns.address: True})
        before = speaker.renewals
        await announcer._look()
        return speaker.renewals > before

    assert await renewed(both)
    speaker.refuses = True
    assert await renewed(msgspec.structs.replace(both, version="4")), "all routes serve; only the change is refused"
    assert await renewed(without_web), "an address that left the plan takes no others with it"
    assert not await renewed(both, web_serves=False), "what is dead must not be announced for ever"
    assert await renewed(both)
    assert not await renewed(drained)
    speaker.refuses = False
    assert await renewed(both, web_serves=False)


@pytest.mark.req("P-21")
async def test_ended_routes_are_withdrawn_before_addresses_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A route that ended with its address would else be back with it, for an address that nothing serves."""
    speaker = StubbornSpeaker(tmp_path / "speaker")
    announced: list[Collection[str]] = []

    async def note(*_: object, **__: object) -> None:
        announced.append(speaker.prefixes)

    async def adopted() -> Collection[str]:
        return ()

    speaker.prefixes = ["192.0.2.1/32"]  # in its configuration; nothing of it is announced
    monkeypatch.setattr(routes, "ip_batch", note)
    monkeypatch.setattr(speaker, "adopted", adopted)
    web = AnnouncedAddress(address="192.0.2.1", announcement="BGP", machines=("m1", "m2"))
    plan = MachinePlan(machine="m1", version="1", bgp_peers=(PEER,), addresses=(web,))
    await RouteAnnouncer("BGP", speaker, tmp_path / "speaker").apply(plan, serving={})
    assert announced == [[]]


def test_the_next_hop_of_routes_with_a_lifetime_belongs_to_no_service() -> None:
    taken = ("192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/31")
    for address, next_hop in ((bird.ALIVE, bird.NEXT_HOP), (external.ALIVE, external.NEXT_HOP)):
        alive = ip_interface(address)
        assert ip_address(next_hop) in alive.network
        assert not any(alive.network.overlaps(ip_network(network)) for network in taken), "IANA has assigned these"
        assert alive.ip not in {ip_address(next_hop), alive.network[0], alive.network[-1]}
    assert not ip_interface(bird.ALIVE).network.overlaps(ip_interface(external.ALIVE).network), "both may run"
