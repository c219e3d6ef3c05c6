"""All objects of a member at the hub, as they are applied: rights, subjects and labels, to the letter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.testing.builders import tenant
from fairlead.translate.tenant import tenant_objects
from tests.golden.translate.golden_views import dump

HERE = Path(__file__).parent


@pytest.mark.req("K-9")
@pytest.mark.parametrize(("leaving", "hub_binding"), [(False, False), (True, True)])
def test_the_objects_of_a_member(leaving: bool, hub_binding: bool, golden: Callable[[Path, str], None]) -> None:
    objects = tenant_objects(tenant("east"), leaving=leaving, hub_binding=hub_binding)
    bodies = [{"apiVersion": resource.api_version, "kind": resource.kind, **body} for resource, body in objects]
    golden(HERE / ("tenant-leaving.out.json" if leaving else "tenant.out.json"), dump(bodies))
