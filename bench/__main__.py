"""``python -m bench [CASE ...]``: print each figure next to its limit; exit 1 when one is over, or a case failed.

``python -m bench --help`` lists the cases and options.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import inspect
import signal
import sys
from collections.abc import AsyncIterator, Callable

from bench import (
    agents,
    bgp,
    certificates,
    cluster_api,
    cluster_api_fleet,
    cluster_set,
    envoy_alone,
    fairness,
    global_scale,
    global_service,
    haproxy,
    health,
    health_reports,
    health_storm,
    http,
    http_canary,
    http_gateways,
    http_proxies,
    hub_scale,
    kernelpath,
    layer2,
    names,
    page,
    peers,
    records,
    records_restart,
    regions,
    routes_delivery,
    storm,
    takeover,
    tracker,
    traffic,
    way,
    xds_streams,
)
from bench.cluster_world import Settings
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
    "global": global_service.measured,
    "global-scale": global_scale.measured,
    "cluster-set": cluster_set.measured,
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
    "kernelpath": kernelpath.measured,
    "l2": layer2.measured,
    "names": names.measured,
    "bgp": bgp.measured,
    "page": page.measured,
    "hub-scale": hub_scale.scale,
    "envoy-alone": envoy_alone.starts,
    "routes-delivery": routes_delivery.measured,
    "proxies": xds_streams.one_change,
    "takeover": takeover.takeover,
    "agents": agents.all_at_once,
    "regions-start": regions.cold_start,
    "regions-label": regions.label_change,
    "regions-change": regions.endpoint_to_effect,
}

#: Cases whose size is chosen on the command line.
SIZED: dict[str, Callable[[Settings], AsyncIterator[Figure]]] = {"storm": storm.measured, "peers": peers.measured}


async def main(names: list[str], settings: Settings) -> int:
    guard()
    if task := asyncio.current_task():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    cases = CASES | {name: functools.partial(case, settings) for name, case in SIZED.items()}
    print(heading(), flush=True)
    failed = 0
    for name in names or cases:
        try:
            async for figure in cases[name]():
                print(figure.row(), flush=True)
                failed += figure.verdict == "OVER"
        except FairleadError as error:  # a program that is not installed costs its own case
            print(f"{name}: {error.sentence}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    known = {**CASES, **SIZED}
    lines = [f"  {name:<16} {first_line(case)}" for name, case in known.items()]
    commands = argparse.ArgumentParser(
        prog="python -m bench",
        description="Print each figure next to its limit; without a CASE, all cases run.",
        epilog="cases:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands.add_argument("cases", nargs="*", metavar="CASE")
    sized = commands.add_argument_group(f"options of {' and '.join(SIZED)}")
    sized.add_argument("--routes", type=int, default=5000, metavar="N", help="routes on the Gateway (default: 5000)")
    sized.add_argument("--seconds", type=float, default=60.0, metavar="S", help="length of the churn (default: 60)")
    sized.add_argument("--runs", type=int, default=1, metavar="N", help="runs of each side; medians count (default: 1)")
    sized.add_argument("--real", action="store_true", help="use kube-apiserver, in a network namespace; needs root")
    sized.add_argument("--compare", action="store_true", help="peers: compare with Envoy Gateway; implies --real")
    return commands


def first_line(case: Callable[..., object]) -> str:
    of = case.func if isinstance(case, functools.partial) else case
    return (inspect.getdoc(of) or "").partition("\n")[0]


def _run(arguments: list[str]) -> int:
    commands = parser()
    chosen = commands.parse_args(arguments)
    if unknown := [name for name in chosen.cases if name not in CASES and name not in SIZED]:
        commands.error(f"no such case: {', '.join(unknown)}; --help lists them")
    settings = Settings(
        routes=chosen.routes,
        seconds=chosen.seconds,
        runs=chosen.runs,
        real=chosen.real or chosen.compare,
        compare=chosen.compare,
    )
    return asyncio.run(main(chosen.cases, settings))


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1:]))
