"""Run a node: ``python -m conformance.podlet --kubeconfig FILE``, inside the network namespace of its cluster.

All addresses of --pod-cidr are made local with one route, so no interface for each pod is needed, and EndpointSlices
take them since they are not loopback. That is refused where there is a default route: in the machine's own namespace.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from conformance.podlet.kubelet import serve_logs
from conformance.podlet.node import PodNode
from fairlead.kube.cluster import Cluster


def make_local(network: str) -> None:
    """Make every address of the network local, in a namespace that leads nowhere else."""
    outside = subprocess.run(["ip", "route", "show", "default"], check=True, capture_output=True, text=True).stdout
    if outside.strip():
        sys.exit("podlet: this network namespace has a default route; run it inside one made for the cluster")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "route", "replace", "local", network, "dev", "lo"], check=True)


async def run(arguments: argparse.Namespace) -> None:
    """Run the node until SIGTERM."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory(prefix="podlet-") as directory:
        async with Cluster.from_kubeconfig(arguments.kubeconfig, name="the cluster", qps=500) as cluster:
            port = arguments.kubelet_port
            node = PodNode(
                cluster, name=arguments.node, network=arguments.pod_cidr, kubelet_port=port, directory=Path(directory)
            )
            await node.register()
            await serve_logs(node, port)
            running, waiting = asyncio.create_task(node.run()), asyncio.create_task(stopped.wait())
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            if running.done() and not running.cancelled():
                running.result()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="podlet", description="A node whose pods are servers of this process.")
    parser.add_argument("--kubeconfig", required=True, help="administrator's kubeconfig of the cluster")
    parser.add_argument("--node", default="podlet", help="name of the node")
    parser.add_argument(
        "--pod-cidr",
        default="10.244.0.0/16",
        help="addresses of pods; the last one is the node's. With a second range, pods have an IPv6 address, too",
    )
    parser.add_argument("--kubelet-port", type=int, default=10250)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for network in arguments.pod_cidr.split(","):
        make_local(network)
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
