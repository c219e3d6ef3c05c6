"""Reading a hub for the checks and for the support bundle."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doctor_facts import healthy, with_object

from fairlead.api.kinds import all_crds
from fairlead.api.tenant import TENANTS
from fairlead.doctor.facts import is_in_set
from fairlead.doctor.gather import HUB, with_rights


@pytest.mark.req("OP-6")
def test_every_kind_of_ours_is_gathered() -> None:
    gathered = {wanted.resource.full_name for wanted in HUB}
    assert {crd["metadata"]["name"] for crd in all_crds()} - gathered == set()


class NoRights:
    """An API that has no agent, and refuses all that it is asked about."""

    async def list(self, _resource, _namespace):
        return []

    async def can_i(self, *_need):
        return False


@pytest.mark.req("MC-1", "OP-6")
async def test_rights_for_a_cluster_set_are_asked_for_where_the_tenant_has_one():
    in_set = with_object("hub", TENANTS, lambda tenant: tenant["spec"].update(clusterSet="prod"))
    for facts, wanted in ((healthy(), False), (in_set, True), (msgspec.structs.replace(in_set, hub=None), False)):
        assert facts.member is not None
        cluster: Any = NoRights()
        side = await with_rights(cluster, facts.member, cluster_set=is_in_set(facts))
        assert any("serviceimports" in right.resource for right in side.denied) is wanted
