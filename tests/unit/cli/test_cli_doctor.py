"""The last line of ``fairlead doctor`` counts the checks, and says what none of them could look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.api.tenant import TENANTS
from fairlead.cli.doctor import gather_facts, lines_of, not_looked_at
from fairlead.cli.verbs import Where
from fairlead.doctor.facts import ApiFacts, Facts, Machine, error
from fairlead.kube.cluster import Cluster
from tests.scenario.installed_kinds import server_with_kinds

MEMBER, MACHINE = "members (--member-kubeconfig)", "this machine (--machine)"
CONNECT = "connections to targets (--connect)"


@pytest.mark.req("OP-5")
@pytest.mark.parametrize(
    ("hub", "member", "machine", "connect", "left"),
    [
        (None, None, False, False, [MEMBER, MACHINE, CONNECT]),
        ("hub", None, True, True, [MEMBER]),
        (None, "east", True, True, ["the hub (--kubeconfig)", CONNECT]),
        ("hub", "east", True, True, []),
    ],
)
def test_unchecked_parts_name_their_option(
    hub: str | None, member: str | None, machine: bool, connect: bool, left: list[str]
) -> None:
    files = [Path(each) if each else None for each in (hub, member)]
    facts = Facts(
        version="1", member=ApiFacts(name="member") if member else None, machine=Machine() if machine else None
    )
    where = Where(files[0], "", files[1], "", None)
    assert not_looked_at(where, facts, connect=connect) == left


@pytest.mark.req("OP-5")
def test_the_last_line_promises_no_more_than_was_looked_at() -> None:
    findings = [error("Lease/hub", "no hub leads", "fairlead hub")]
    assert list(lines_of([], checks=57, not_looked_at=[])) == ["57 checks: no faults."]
    assert list(lines_of([], checks=57, not_looked_at=[MEMBER, MACHINE])) == [
        f"57 checks: no fault in what was checked; not checked: {MEMBER}, {MACHINE}."
    ]
    assert list(lines_of(findings, checks=57, not_looked_at=[MACHINE]))[-1] == (
        f"57 checks: 1 error; not checked: {MACHINE}."
    )


@pytest.mark.req("X-48")
@pytest.mark.parametrize("tenant", ["local", "east"])
async def test_one_cluster_that_is_hub_and_member_is_looked_at_as_both(tenant: str, tmp_path: Path) -> None:
    server = await server_with_kinds()
    await server.start()
    kubeconfig = tmp_path / "kubeconfig"
    try:
        server.write_kubeconfig(kubeconfig)
        async with Cluster.from_kubeconfig(kubeconfig, name="hub") as cluster:
            await cluster.create(TENANTS, {"metadata": {"name": tenant}, "spec": {}})
        where = Where(kubeconfig)
        facts = await gather_facts(where)
    finally:
        await server.stop()
    assert (facts.member is not None) == (tenant == "local")
    assert (MEMBER in not_looked_at(where, facts, connect=False)) == (tenant != "local")
