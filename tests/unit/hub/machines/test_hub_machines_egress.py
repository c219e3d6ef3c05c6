"""Which machines translate to an address, and why packets of pods do not leave with it."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_EGRESS_PODS
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import Tenant, TenantSpec
from fairlead.hub.machines.egress import EgressIdentities, translating
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


class Rights:
    """An inventory of one load balancer whose Tenant may be unreadable."""

    def __init__(self) -> None:
        self.problem = ""
        self.ranges = ["10.0.0.0/24"]
        self.intents = {"TCPLoadBalancer": self}

    def tenant_problem(self, _namespace: str) -> str:
        return self.problem

    def tenant_of(self, _namespace: str) -> Tenant:
        return Tenant(metadata=ObjectMeta("east"), spec=TenantSpec(target_ranges=self.ranges))

    def open_ports(self, _obj: TCPLoadBalancer) -> set[int]:
        return {80}


@pytest.mark.req("P-35")
def test_a_tenant_that_cannot_be_read_keeps_its_last_policy():
    rights = Rights()
    web = msgspec.convert(
        {
            "metadata": {
                "namespace": "tenant-east",
                "name": "web",
                "annotations": {ANNOTATION_EGRESS_PODS: "10.0.0.1,10.9.9.9"},
            },
            "status": {"allocation": {"address": VIP}},
        },
        TCPLoadBalancer,
    )
    first, later = (
        EgressIdentities(cluster=cast("Any", None), inventory=cast("Any", rights), events=cast("Any", None))
        for _ in range(2)
    )
    admitted = [(VIP, ("10.0.0.1",))]
    assert [(each.address, each.sources) for each in first.decide([web], ()).identities] == admitted
    rights.problem, rights.ranges = "Tenant east cannot be read", ["0.0.0.0/0"]
    assert [(each.address, each.sources) for each in first.decide([web], ()).identities] == admitted
    started = later.decide([web], ())
    assert (started.identities, started.kept) == ((), (VIP,)), "a hub that has just started does not know more"
