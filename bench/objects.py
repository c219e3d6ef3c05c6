"""The objects of the member: Services, their endpoints, nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, SERVICES
from fairlead.api.meta import JSONObject
from fairlead.kube.cluster import Cluster


def service(name: str, *, node_target: bool = False) -> JSONObject:
    return {
        "metadata": {"namespace": "default", "name": name},
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
            "allocateLoadBalancerNodePorts": node_target,
        },
    }


def endpoint_slice(name: str, addresses: Sequence[str], *, port: int) -> JSONObject:
    return {
        "metadata": {"namespace": "default", "name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }


def node(name: str, address: str) -> JSONObject:
    return {
        "metadata": {"name": name},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
        },
    }


def pod_address(service_number: int, endpoint: int) -> str:
    """Return a loopback address without a listener, spread over 127.160.0.0/12."""
    number = service_number * 64 + endpoint
    return f"127.{160 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"


async def create_services(member: Cluster, first: int, count: int, *, endpoints: int) -> None:
    """Create services with endpoints (pods), many at once."""
    await _all(
        [
            call
            for number in range(first, first + count)
            for call in (
                member.create(SERVICES, service(f"svc-{number}")),
                member.create(
                    ENDPOINT_SLICES,
                    endpoint_slice(
                        f"svc-{number}", [pod_address(number, index) for index in range(endpoints)], port=8080
                    ),
                ),
            )
        ]
    )


async def create_node_services(member: Cluster, count: int) -> None:
    await _all([member.create(SERVICES, service(f"svc-{number}", node_target=True)) for number in range(count)])


async def create_node(member: Cluster, name: str, address: str) -> None:
    body = node(name, address)
    await member.create(NODES, {"metadata": body["metadata"]})
    await member.merge_patch(NODES, "", name, {"status": body["status"]}, subresource="status")


async def _all(calls: Sequence[Awaitable[object]]) -> None:
    slots = asyncio.Semaphore(32)

    async def limited(call: Awaitable[object]) -> None:
        async with slots:
            await call

    await asyncio.gather(*(limited(call) for call in calls))
