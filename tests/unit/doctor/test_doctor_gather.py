"""Reading a hub for the checks and for the support bundle."""

from __future__ import annotations

import pytest

from fairlead.api.kinds import all_crds
from fairlead.doctor.gather import HUB


@pytest.mark.req("OP-6")
def test_every_kind_of_ours_is_gathered() -> None:
    gathered = {wanted.resource.full_name for wanted in HUB}
    assert {crd["metadata"]["name"] for crd in all_crds()} - gathered == set()
