"""Which machines translate to an address, and why packets of pods do not leave with it."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.hub.machines.egress import translating
from fairlead.model.machine import AnnouncedAddress, ForwardingState, MachineReport

VIP = "192.0.2.10"
PLANNED = AnnouncedAddress(address=VIP, announcement="L2", machines=("m1", "m2"))


def report(name: str, state: ForwardingState | None) -> MachineReport:
    return MachineReport(machine=name, forwarding=state)


HAS = ForwardingState(version="1", egress=(VIP,))


@pytest.mark.req("P-35")
def test_machines_that_have_the_identity_translate():
    reports = {name: report(name, HAS) for name in ("m1", "m2", "m3")}
    assert translating(VIP, PLANNED, reports) == (["m1", "m2"], "")
    assert translating(VIP, PLANNED, {"m1": reports["m1"]}) == (["m1"], ""), "a silent machine may well translate"


@pytest.mark.req("P-35")
def test_each_obstacle_is_one_sentence():
    bgp = msgspec.structs.replace(PLANNED, announcement="BGP")
    nowhere = msgspec.structs.replace(PLANNED, machines=())
    lacking = report("m2", ForwardingState(problem="nft is missing on this machine"))
    for planned, reports, text in (
        (None, {}, "no machine announces"),
        (nowhere, {}, "no machine announces"),
        (bgp, {"m1": report("m1", HAS)}, "announce it by L2"),
        (PLANNED, {}, "does not hear"),
        (PLANNED, {"m1": report("m1", HAS), "m2": lacking}, "machine m2 does not translate"),
        (PLANNED, {"m1": report("m1", None)}, "upgrade the machine"),
        (PLANNED, {"m1": report("m1", ForwardingState(version="1"))}, "waits"),
    ):
        assert text in translating(VIP, planned, reports)[1]
