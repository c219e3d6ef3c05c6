"""What Envoy is given for an L7 load balancer, to be read.

Each case has ``<case>.in.json`` (an ``L7Config``) and ``<case>.out.json`` (each resource as JSON). The bytes of a
listener are in it too: a changed listener closes established connections, so it changes only when there is no other
way. The one certificate that cases name is made again in each run, so no secret is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import L7Config
from fairlead.model.keys import LoadBalancerKey, Protocol
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.http.frontend import HttpFrontend
from fairlead.providers.envoy.resources import TYPE_URL_PREFIX, ResourceType, packaged_schema
from tests.envoy_json import to_json
from tests.xds.http_world import Authority

HERE = Path(__file__).parent
CASES = sorted(path.name.removesuffix(".in.json") for path in HERE.glob("*.in.json"))
RESPONSE = "envoy.service.discovery.v3.DeltaDiscoveryResponse"

Golden = Callable[[Path, str], None]


def read(case: str) -> FrontendSpec:
    config = msgspec.json.decode((HERE / f"{case}.in.json").read_bytes(), type=L7Config)
    ports = sorted({(each.port, "UDP" if each.protocol == "UDP" else "TCP") for each in config.listeners})
    return FrontendSpec(
        key=LoadBalancerKey("HTTPLoadBalancer", "shop", case),
        group="tenant-a",
        listeners=tuple(Listener(port, Protocol(protocol)) for port, protocol in ports),
        address="192.0.2.11",
        l7=msgspec.structs.replace(
            config, certificates={"shop-tls": Authority().issue("shop-tls", "shop.example.com")}
        ),
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.req("K-41", "G-29", "G-63", "G-64", "G-108", "G-109", "G-110", "G-111", "G-112", "G-114")
def test_resources(case: str, golden: Golden) -> None:
    spec, schema = read(case), packaged_schema()
    frontend = HttpFrontend(schema, LocalFleet(data_dir=Path("/tmp/x"), max_files=65_536), spec)
    out: list[object] = []
    for change in frontend.update(spec, bind_addresses=spec.addresses):
        assert change.resource is not None
        response = schema._class(RESPONSE).FromString(change.resource.field)
        (resource,) = response.resources
        assert resource.name == change.name
        content = resource.resource.value
        entry = {"type": change.kind.short, "name": change.name}
        if change.kind is ResourceType.LISTENER:
            entry["hex"] = content.hex()
        if change.kind is ResourceType.SECRET:
            out.append(entry)
            continue
        out.append({**entry, "json": to_json(schema, change.kind.value.removeprefix(TYPE_URL_PREFIX), content)})
    refused = [part._asdict() for part in frontend.refused]
    golden(
        HERE / f"{case}.out.json", json.dumps({"resources": out, "refused": refused}, indent=1, sort_keys=True) + "\n"
    )
