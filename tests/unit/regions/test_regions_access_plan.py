"""What a Service shows of its regions."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regions_builders import RegionKey, pool, pool_service, service

from fairlead.regions.plan import AccessView, SelectedPools, plan_access

WHEN = datetime(2030, 6, 1, tzinfo=UTC)


ADDRESSES = st.lists(st.sampled_from(["1.1.1.1", "2.2.2.2", "10.0.0.1", "9.9.9.9"]), max_size=2, unique=True)


@pytest.mark.req("O-35", "O-39", "W-O-4")
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), ADDRESSES), ADDRESSES, st.permutations(["a", "b", "c"]))
def test_the_status_is_stable_and_complete(regions: dict[str, list[str]], foreign: list[str], order: list[str]) -> None:
    result = tuple(
        (RegionKey("default", "test", name), pool_service("test", name, of=service(), ingress=regions[name]))
        for name in order
        if name in regions
    )
    wanted = SelectedPools({name: pool(name) for name in ("a", "b", "c")})
    source = service(status={"loadBalancer": {"ingress": [{"ip": each} for each in foreign]}})
    for _ in range(2):
        plan = plan_access(AccessView(source, wanted, result), now=WHEN)
        raw = json.loads(msgspec.json.encode(source))
        for step in plan.steps:
            annotations = step.patch.get("metadata", {}).get("annotations", {})
            raw["metadata"].setdefault("annotations", {}).update(annotations)
            raw["status"] = {**raw.get("status", {}), **step.patch.get("status", {})}
            shown = {each["ip"] for each in (raw["status"].get("loadBalancer") or {}).get("ingress") or ()}
            record = json.loads(raw["metadata"]["annotations"].get("fairlead.dev/access-points") or "{}")
            # Whatever moment we die at, each address that we have shown is recorded as ours.
            assert shown - set(foreign) <= {address for addresses in record.values() for address in addresses}
        raw["metadata"]["annotations"] = {k: v for k, v in raw["metadata"]["annotations"].items() if v is not None}
        source = service(annotations=raw["metadata"]["annotations"], status=raw.get("status"))
    union = {address for addresses in regions.values() for address in addresses}
    now_shown = [each.address for each in source.status.load_balancer.ingress or ()]
    assert set(now_shown) == union | set(foreign)
    assert len(now_shown) == len(set(now_shown))
    if union:
        assert now_shown == sorted(now_shown, key=lambda text: [int(part) for part in text.split(".")])
    assert plan_access(AccessView(source, wanted, result), now=WHEN).steps == ()
