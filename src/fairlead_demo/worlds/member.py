"""A member cluster: its API as its users and machines write to it, and its agent."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fairlead.api.kubernetes import EVENTS, NAMESPACES, SERVICES, Service
from fairlead.api.meta import JSONObject
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import AlreadyExists, NotFound
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.link import Link
from fairlead_demo.worlds.objects import ready_endpoint, write_node, write_slice
from fairlead_demo.worlds.processes import Child, ExpectationFailed, wait_until
from fairlead_demo.worlds.workload import Host


class Member:
    """One member; ``network`` is the first three parts of the addresses of its nodes and pods.

    ``link``: the way of its agent to the hub, if that can be cut.
    """

    def __init__(
        self, *, name: str, cluster: Cluster, hub: Cluster, agent: Child, network: str, link: Link | None = None
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.agent = agent
        self.network = network
        self.link = link
        self._hub = hub
        self._addresses = itertools.count(11)

    def new_address(self) -> str:
        """Return an address that was not used before in this member."""
        return f"{self.network}.{next(self._addresses)}"

    def host(self, service: str) -> Host:
        """Return where pods of a Service run."""
        return Host(f"{self.name}-node-1", self.network, f"{service}-{self.name}")

    async def namespace(self, name: str) -> None:
        """Create a namespace, if it is missing."""
        with contextlib.suppress(AlreadyExists):
            await self.cluster.create(NAMESPACES, {"metadata": {"name": name}})

    async def node(self, name: str, *addresses: str, ready: bool = True) -> None:
        """Write a node with these addresses."""
        await write_node(self.cluster, name, *addresses, ready=ready)

    async def endpoints(
        self,
        service: str,
        port: int,
        *addresses: str,
        namespace: str = "default",
        port_name: str = "",
        protocol: str = "TCP",
        part: str = "main",
        family: str = "IPv4",
    ) -> None:
        """Write one EndpointSlice whose endpoints are ready; ``part`` names an additional slice."""
        await write_slice(
            self.cluster,
            service,
            [ready_endpoint(address) for address in addresses],
            port=port,
            port_name=port_name,
            protocol=protocol,
            namespace=namespace,
            part=part,
            family=family,
        )

    async def service(
        self,
        name: str,
        *ports: Mapping[str, Any],
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Service:
        """Apply a Service of type LoadBalancer; ``spec`` has further fields of its spec."""
        meta: JSONObject = {"name": name, "namespace": namespace, "annotations": dict(annotations or {})}
        body: JSONObject = {"type": "LoadBalancer", "ports": [dict(port) for port in ports], **spec}
        return await self.cluster.apply(SERVICES, {"metadata": meta, "spec": body}, manager="user")

    async def get(self, name: str, namespace: str = "default") -> Service:
        """Return a Service as it is now."""
        return await self.cluster.get(SERVICES, namespace, name)

    async def delete(self, name: str, namespace: str = "default") -> None:
        """Delete a Service."""
        await self.cluster.delete(SERVICES, namespace, name)

    async def address(self, name: str, namespace: str = "default") -> str:
        """Return the address that a Service shows, once it has one."""

        async def shown() -> bool:
            return bool(_address(await self.get(name, namespace)))

        expectation = f"{self.name} {namespace}/{name} gets an address"
        try:
            await wait_until(shown, expectation)
        except ExpectationFailed as error:
            at_hub = await self._at_hub(f"{namespace}.{name}")
            # With the time, to compare with the times in the object.
            now = datetime.now(UTC).isoformat(timespec="seconds")
            raise ExpectationFailed(error.sentence, detail=f"at the hub, at {now}: {at_hub}") from error
        return _address(await self.get(name, namespace))

    async def events(self, name: str) -> dict[str, str]:
        """Return the messages of the Events about an object of the namespace ``default`` by their reasons."""
        events = json.loads(await self.cluster.raw("GET", EVENTS.path("default")))["items"]
        return {event["reason"]: event["message"] for event in events if event["involvedObject"].get("name") == name}

    async def close(self) -> None:
        """End the agent."""
        await self.cluster.aclose()
        await self.agent.terminate()
        if self.link is not None:
            await self.link.close()

    async def _at_hub(self, name: str) -> str:
        try:
            return (await self._hub.raw("GET", TCP_LOAD_BALANCERS.path(f"tenant-{self.name}", name))).decode()
        except NotFound:
            return "no such object"


def _address(service: Service) -> str:
    ingress = service.status.load_balancer.ingress or ()
    return ingress[0].address if ingress else ""
