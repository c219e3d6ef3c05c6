"""What Envoy and Kubernetes are given, byte by byte.

Each case has ``<case>.in.yaml`` (a load balancer and its targets) and ``<case>.out.json`` (for each resource its
bytes in hexadecimal and the same as JSON, to be read). A changed listener closes established connections at every
user's site: change its bytes only when there is no other way, and say so in the release notes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from fairlead.model.desired import Affinity, FrontendSpec, Listener, Owner, ProxyProtocol, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.envoy.bootstrap import Bootstrap, bootstrap_json
from fairlead.providers.envoy.clusters import CLUSTER, EndpointSet, cluster_bytes, is_dns_name
from fairlead.providers.envoy.connection_frontend import LISTENER, listener_bytes
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings, group_manifests, service_manifest
from fairlead.providers.envoy.resources import packaged_schema, resource_name
from tests.envoy_json import to_json

HERE = Path(__file__).parent
CASES = sorted(path.name.removesuffix(".in.yaml") for path in HERE.glob("*.in.yaml"))
ASSIGNMENT = "envoy.config.endpoint.v3.ClusterLoadAssignment"

Golden = Callable[[Path, str], None]


def read(case: str) -> tuple[FrontendSpec, list[Target]]:
    fields = yaml.safe_load((HERE / f"{case}.in.yaml").read_text())
    targets = [
        Target(TargetKey(target["address"], target["port"]), target.get("weight", 1), target.get("draining", False))
        for target in fields.pop("targets", [])
    ]
    listeners = tuple(
        Listener(
            listener["port"],
            Protocol(listener.get("protocol", "TCP")),
            listener.get("name", ""),
            listener.get("proxyPort", 0),
        )
        for listener in fields.pop("listeners")
    )
    check = fields.pop("healthCheck", {})
    spec = FrontendSpec(
        key=LoadBalancerKey("TCPLoadBalancer", *fields.pop("key")),
        group=fields.pop("group"),
        listeners=listeners,
        address=fields.pop("address", ""),
        source_ranges=tuple(fields.pop("sourceRanges", ())),
        affinity=Affinity(fields.pop("affinity", "None")),
        proxy_protocol=ProxyProtocol(fields.pop("proxyProtocol", "")),
        health_check=None if check is None else HealthCheck(**check),
        parameters=fields.pop("parameters", {}),
        owner=Owner(**fields.pop("owner", {})),
        local_traffic_only=fields.pop("localTrafficOnly", False),
        limits_connections=fields.pop("limitsConnections", False),
    )
    assert not fields, fields
    return spec, targets


def dump(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.req("K-31")
def test_resources(case: str, golden: Golden) -> None:
    spec, targets = read(case)
    schema = packaged_schema()
    out: list[object] = []
    for listener in spec.listeners:
        endpoints = EndpointSet(targets)
        inline = any(is_dns_name(target.key.address) for target in targets)
        name = resource_name(spec.key, listener.key)
        encoded = {
            LISTENER: listener_bytes(
                schema, spec, listener, bind_address=spec.address or "0.0.0.0", reuse_port=not spec.address
            ),
            CLUSTER: cluster_bytes(schema, spec, listener, endpoints.targets() if inline else (), connections=1000),
        }
        if not inline:
            encoded[ASSIGNMENT] = endpoints.assignment(name)
        for kind, content in encoded.items():
            short = kind.rpartition(".")[2]
            out.append({"type": short, "name": name, "hex": content.hex(), "json": to_json(schema, kind, content)})
    golden(HERE / f"{case}.out.json", dump(out))


@pytest.mark.req("K-29")
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("service-")])
def test_service(case: str, golden: Golden) -> None:
    spec, _ = read(case)
    golden(HERE / f"{case}.service.json", dump(service_manifest(spec, DeploymentSettings())))


@pytest.mark.req("K-28")
def test_deployment(golden: Golden) -> None:
    golden(HERE / "deployment.out.json", dump(group_manifests("tenant-a", DeploymentSettings())))


def test_local_bootstrap(golden: Golden) -> None:
    bootstrap = Bootstrap(node_id="local/here", group="local", xds_address="/run/xds.sock", admin_socket="/run/a.sock")
    golden(HERE / "bootstrap.out.json", dump(msgspec.to_builtins(bootstrap_json(bootstrap))))
