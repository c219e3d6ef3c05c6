"""``python -m bench [CASE ...]``: print each figure next to its limit; exit 1 when one is over, or a case failed."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import AsyncIterator, Callable

from bench import (
    agents,
    certificates,
    cluster_api,
    cluster_api_fleet,
    envoy_alone,
    fairness,
    haproxy,
    health,
    health_reports,
    health_storm,
    http,
    http_canary,
    http_gateways,
    http_proxies,
    hub_scale,
    names,
    page,
    records,
    records_restart,
    regions,
    takeover,
    tracker,
    traffic,
    way,
    xds_streams,
)
from bench.figures import Figure, heading
from fairlead.errors import FairleadError
from fairlead_demo.worlds.guard import guard

CASES: dict[str, Callable[[], AsyncIterator[Figure]]] = {
    "way": way.measured,
    "first-sync": traffic.first_sync,
    "change": traffic.change_to_effect,
    "idle": traffic.idle_and_restart,
    "node": traffic.node_added,
    "memory": traffic.memory,
    "tracker-change": tracker.one_change,
    "tracker-cold": tracker.cold_diff,
    "records-batch": records.batching,
    "records-restart": records_restart.restart,
    "haproxy": haproxy.measured,
    "health": health.death_to_status,
    "health-reports": health_reports.reports,
    "fairness": fairness.beside_a_noisy_member,
    "health-storm": health_storm.all_at_once,
    "http-change": http.change_to_effect,
    "https-change": functools.partial(http.change_to_effect, secure=True),
    "http-gateways": http_gateways.change_to_effect,
    "http-sync": http.first_sync,
    "http-idle": http.idle,
    "certificates": certificates.renewed,
    "http-canary": http_canary.canary_and_roll,
    "http-proxies": http_proxies.beside_others,
    "capi-roll": cluster_api.rolling_replacement,
    "capi-machine": cluster_api.one_machine,
    "capi-start": cluster_api_fleet.cold_start,
    "names": names.measured,
    "page": page.measured,
    "hub-scale": hub_scale.scale,
    "envoy-alone": envoy_alone.starts,
    "proxies": xds_streams.one_change,
    "takeover": takeover.takeover,
    "agents": agents.all_at_once,
    "regions-start": regions.cold_start,
    "regions-label": regions.label_change,
    "regions-change": regions.endpoint_to_effect,
}


async def main(cases: list[str]) -> int:
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        print(f"no such case: {', '.join(unknown)}; there are: {', '.join(CASES)}", file=sys.stderr)
        return 2
    guard()
    if task := asyncio.current_task():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    print(heading(), flush=True)
    failed = 0
    for name in cases or CASES:
        try:
            async for figure in CASES[name]():
                print(figure.row(), flush=True)
                failed += figure.verdict == "OVER"
        except FairleadError as error:  # a program that is not installed costs its own case
            print(f"{name}: {error.sentence}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
