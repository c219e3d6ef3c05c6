"""Measures the cost of four proxies' health reports with 20,000 backends: unchanged, and with one difference.

In: the hub's own health streams, fed with reports as Envoy encodes them. Out: CPU time (of this process, so other work
on the machine counts little). Not in it: receiving the bytes by gRPC.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from bench.figures import Figure
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.providers.envoy.clusters import EndpointSet, GroupChecks, TargetPort, check_of
from fairlead.providers.envoy.health_board import HealthStream, report_interval_s
from fairlead.providers.envoy.resources import Schema, packaged_schema, resource_name

CLUSTERS, PER_CLUSTER, PROXIES = 5_000, 4, 4
REPORTS, CHANGES = 40, 20
_REPORT = "envoy.service.health.v3.HealthCheckRequestOrEndpointHealthResponse"
_CHECKED_S = 3_600.0


async def reports() -> AsyncIterator[Figure]:
    """Measure the share of a core that unchanged reports take, and the time for one that has one change."""
    schema, places = packaged_schema(), _places()
    checks = GroupChecks(lambda name, pace: check_of(schema, *places[name], pace), published=lambda: True)
    streams = [HealthStream(checks=checks, schema=schema, node_id=f"proxy-{number}") for number in range(PROXIES)]
    checks.touch(places)
    for stream in streams:
        stream.pump(now=0.0)
    healthy = [_report(schema, places, unhealthy=-1) for _ in streams]
    for stream, raw in zip(streams, healthy, strict=True):
        stream.on_report(raw, now=_CHECKED_S)
    # A report that is equal comes as other bytes from the network.
    again = [[bytes(bytearray(raw)) for raw in healthy] for _ in range(REPORTS)]
    began_s = time.process_time()
    for raws in again:
        for stream, raw in zip(streams, raws, strict=True):
            assert not stream.on_report(raw, now=_CHECKED_S)
    per_round_s = (time.process_time() - began_s) / REPORTS
    interval_s = report_interval_s(CLUSTERS * PER_CLUSTER, quick=False)
    where = f"{CLUSTERS * PER_CLUSTER:,} backends, {PROXIES} proxies"
    yield Figure(
        name=f"hub's CPU for health reports while nothing changes, {where}, each {interval_s:g} s",
        value=per_round_s / interval_s * 100,
        unit="% of a core",
        limit=5.0,
    )
    changed = [_report(schema, places, unhealthy=number) for number in range(CHANGES)]
    began_s = time.process_time()
    for raw in changed:
        names = streams[0].on_report(raw, now=_CHECKED_S)
        assert 1 <= len(names) <= 2, f"one backend died and another came back: {names}"
    yield Figure(
        name=f"one report of {CLUSTERS * PER_CLUSTER:,} backends in which one differs",
        value=(time.process_time() - began_s) / CHANGES * 1_000,
        unit="ms",
    )


def _places() -> dict[str, tuple[FrontendSpec, ListenerKey, TargetPort]]:
    places: dict[str, tuple[FrontendSpec, ListenerKey, TargetPort]] = {}
    listener = Listener(80)
    for number in range(CLUSTERS):
        key = LoadBalancerKey("TCPLoadBalancer", "bench", f"service-{number}")
        name = resource_name(key, listener.key)
        targets = [Target(TargetKey(f"10.{number >> 8}.{number & 255}.{each}", 8080)) for each in range(PER_CLUSTER)]
        spec = FrontendSpec(key=key, group="bench", listeners=(listener,))
        places[name] = (spec, listener.key, TargetPort(name, EndpointSet(targets), set()))
    return places


def _report(
    schema: Schema, places: dict[str, tuple[FrontendSpec, ListenerKey, TargetPort]], *, unhealthy: int
) -> bytes:
    """Encode what Envoy sends: every endpoint twice, once next to its cluster; of cluster ``unhealthy`` one is dead."""
    clusters: list[dict[str, object]] = []
    every: list[dict[str, object]] = []
    for number, (name, (_, _, port)) in enumerate(places.items()):
        entries: list[dict[str, object]] = [
            {
                "endpoint": {
                    "address": {"socket_address": {"address": target.key.address, "port_value": target.key.port}}
                },
                "health_status": "UNHEALTHY" if number == unhealthy and at == 0 else "HEALTHY",
            }
            for at, target in enumerate(port.targets.targets())
        ]
        every += entries
        clusters.append({"cluster_name": name, "locality_endpoints_health": [{"endpoints_health": entries}]})
    response = {"endpoints_health": every, "cluster_endpoints_health": clusters}
    return schema.encode(_REPORT, {"endpoint_health_response": response})
