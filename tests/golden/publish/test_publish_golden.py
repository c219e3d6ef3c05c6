"""From a Service to what is published at a hub, as files: what a change of the translation changes, a diff shows.

agent-<case>.in.json      settings, Service, its EndpointSlices, the member's nodes
regions-<case>.in.json    PoolService, the Service and the backends that its annotations hold
<case>.out.json           the decision, the objects as they are applied, conditions and Events
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.service.plan import NotOurs, NotYet, Ours, ServiceView, Settings, build_export, decide
from fairlead.agent.sources.service.source import find_warnings
from fairlead.api.kubernetes import EndpointSlice, Service
from fairlead.api.meta import JSONObject
from fairlead.api.poolservice import PoolService
from fairlead.publish.objects import Publication, Refused, canonical_slice, object_from_load_balancer, object_from_slice
from fairlead.regions.balancer_plan import build_status, translate
from fairlead.regions.source import decode_backends

HERE = Path(__file__).parent
NOW = "2030-01-01T00:00:00Z"


def of_agent(given: JSONObject) -> JSONObject:
    service = msgspec.convert(given["service"], type=Service)
    settings = given.get("settings", {})
    decision = decide(service, cloud=settings.get("cloudLoadBalancer", "absent"))
    events = [{"reason": each.reason, "message": each.message} for each in find_warnings(service, decision)]
    result: Any = decision
    if isinstance(decision, Ours):
        view = ServiceView(
            service=service,
            slices=tuple(
                canonical_slice(each) for each in msgspec.convert(given.get("slices", []), list[EndpointSlice])
            ),
            class_targets=given.get("classTargets", {}),
            node_addresses=given.get("nodes", {}),
        )
        target = settings.get("target", "Node")
        result = build_export(view, decision, Settings(tenant="east", namespace="tenant-east", target=target))
    if isinstance(result, Refused):
        events.append({"reason": result.reason, "message": result.sentence})
    return {**described(result), "events": events}


def of_regions(given: JSONObject) -> JSONObject:
    body = given["poolService"]
    annotations = {
        f"fairlead.dev/{name}": json.dumps(given[name])
        for name in ("service", "backends")
        if given.get(name) is not None
    }
    body["metadata"]["annotations"] = annotations
    pool_service = msgspec.convert(body, type=PoolService)
    backends = decode_backends(annotations.get("fairlead.dev/backends", "{}"))
    assert backends is not None
    result = translate(pool_service, backends, region=given["region"])
    status = build_status(pool_service, None, result if isinstance(result, Refused) else None, now=NOW)
    return {**described(result), "conditions": msgspec.to_builtins(status.conditions)}


def described(result: Publication | Refused | NotOurs | NotYet) -> JSONObject:
    match result:
        case Publication(load_balancer, slices):
            objects = [object_from_load_balancer(load_balancer), *map(object_from_slice, slices or ())]
            return {"decision": "published", "objects": objects}
        case Refused(_, _, keep):
            return {"decision": "refused; what was published before " + ("stays" if keep else "goes")}
        case NotOurs(why):
            return {"decision": f"not ours: {why}"}
        case NotYet(why):
            return {"decision": f"not yet: {why}"}


@pytest.mark.req("I-10")
@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".in.json") for path in HERE.glob("*.in.json")))
def test_golden(name: str, golden: Callable[[Path, str], None]) -> None:
    given = json.loads((HERE / f"{name}.in.json").read_text())
    out = of_agent(given) if name.startswith("agent-") else of_regions(given)
    golden(HERE / f"{name}.out.json", json.dumps(out, indent=2, ensure_ascii=False) + "\n")


def test_there_are_pairs_for_both() -> None:
    names = [path.name for path in HERE.glob("*.in.json")]
    assert len([name for name in names if name.startswith("agent-")]) >= 14
    assert len([name for name in names if name.startswith("regions-")]) >= 8
