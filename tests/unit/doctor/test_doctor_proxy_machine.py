"""The facts of a proxy machine with faults: each part is read by itself, without secrets, and no file is left."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fairlead.doctor.proxy_machine import gather_proxy_machine
from fairlead.machine.state import NewKey, StateDirectory
from fairlead.model.machine import BgpPeerPlan, EnrolAnswer, MachinePlan
from fairlead_demo.worlds.loopback import free_port
from tests.unit.machine.machine_authority import Authority

pytestmark = pytest.mark.req("P-28")


async def test_a_directory_without_a_machine_has_a_problem(tmp_path: Path) -> None:
    facts = await gather_proxy_machine(tmp_path)
    assert "not joined" in facts.problem
    assert facts.machine == ""


async def test_a_stopped_machine_whose_hub_is_gone(tmp_path: Path) -> None:
    authority, key, state = Authority(), NewKey("m1"), StateDirectory(tmp_path / "state")
    state.take()
    hub = f"127.0.0.1:{free_port()}"
    answer = EnrolAnswer(machine="m1", certificate=authority.sign(key.csr), ca=authority.ca, xds=hub, renew_after_s=60)
    state.store(answer, key, hubs=(hub,), now=time.time())
    peer = BgpPeerPlan(name="tor", asn=64512, local_asn=64513, address="192.0.2.254", password="of the router")
    state.store_plan(MachinePlan(machine="m1", version="1", bgp_peers=(peer,), link_key="of the link"))
    state.release()
    before = sorted(path.name for path in state.path.iterdir())
    facts = await gather_proxy_machine(state.path)
    assert (facts.machine, facts.problem, facts.directory_problem) == ("m1", "", "")
    assert (facts.runs, facts.envoy_answers, facts.sessions) == (False, False, ())
    (reached,) = facts.hubs
    assert "does not answer" in reached.problem
    assert reached.xds_problem
    assert facts.certificate_ends > facts.now
    assert {setting.name for setting in facts.settings} >= {"net.ipv4.ip_nonlocal_bind"}
    assert "of the router" not in repr(facts.plan.bgp_peers[0].password)
    assert facts.plan.link_key == ""
    assert sorted(path.name for path in state.path.iterdir()) == before


async def test_a_directory_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / ".doctor").mkdir()
    authority, key, state = Authority(), NewKey("m1"), StateDirectory(tmp_path)
    answer = EnrolAnswer(machine="m1", certificate=authority.sign(key.csr), ca=authority.ca, xds="", renew_after_s=60)
    state.store(answer, key, hubs=(), now=time.time())
    facts = await gather_proxy_machine(tmp_path)
    assert facts.directory_problem
    assert (tmp_path / ".doctor").exists()
