"""Allocate cluster IPs and node ports, from an index over the stored Services.

In: every change of a Service (the store calls ``observe``). Out: free addresses and ports. A port that was just freed
is allocated last, so that late clients of its old Service do not reach another one.
"""

from __future__ import annotations

import ipaddress
from typing import cast

from podless.failure import Cause, invalid_value
from podless.objects import Obj, at, items
from podless.store.entry import BucketEntry, Key

NODE_PORTS = range(30000, 32768)
#: The default ranges of cluster IPs; the first one is for Services that name no family.
SERVICE_RANGE = "10.96.0.0/16,fd00:10:96::/112"

ServiceNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def service_networks(text: str) -> tuple[ServiceNetwork, ...]:
    """Return the comma-separated ranges of ``text``; ``ValueError`` for an invalid one, or two of one family."""
    networks = tuple(ipaddress.ip_network(part.strip()) for part in text.split(","))
    if len({network.version for network in networks}) < len(networks):
        raise ValueError("one range of each family")
    if any(network.num_addresses < 16 for network in networks):
        raise ValueError("16 addresses at the least")
    return networks


def node_ports(obj: Obj) -> list[tuple[int, str]]:
    """Return the (node port, protocol) pairs in the spec of a Service, with its health check port."""
    held = [
        (port["nodePort"], str(port.get("protocol", "TCP")))
        for port in cast("list[Obj]", items(obj, "spec", "ports"))
        if port.get("nodePort")
    ]
    if check := at(obj, "spec", "healthCheckNodePort"):
        held.append((check, "TCP"))
    return held


def cluster_ips(obj: Obj) -> list[str]:
    """Return the cluster IPs in the spec of a Service."""
    return [ip for ip in cast("list[str]", items(obj, "spec", "clusterIPs")) if ip and ip != "None"]


class Allocations:
    """The node ports and cluster IPs in use, with the Service that holds each."""

    def __init__(self, service_range: str = SERVICE_RANGE) -> None:
        self._networks: dict[str, ServiceNetwork] = {
            f"IPv{network.version}": network for network in service_networks(service_range)
        }
        self._ports: dict[int, dict[str, Key]] = {}
        self._ips: dict[str, Key] = {}
        self._next_port = 0
        self._next_ip = dict.fromkeys(self._networks, 10)

    @property
    def families(self) -> tuple[str, ...]:
        """Return the families of the configured ranges, the default one first."""
        return tuple(self._networks)

    def observe(self, bucket: str, before: BucketEntry | None, after: BucketEntry | None) -> None:
        """Update the index after a change in the store."""
        if bucket != "services":
            return
        if before is not None:
            old = before.obj()
            for port, protocol in node_ports(old):
                self._ports.get(port, {}).pop(protocol, None)
            for ip in cluster_ips(old):
                self._ips.pop(ip, None)
        if after is not None:
            new = after.obj()
            for port, protocol in node_ports(new):
                self._ports.setdefault(port, {})[protocol] = after.key
            for ip in cluster_ips(new):
                self._ips[ip] = after.key

    def free_port(self, taken: set[int]) -> int | None:
        """Return a free node port that is not in ``taken``, or None when all are in use."""
        for step in range(len(NODE_PORTS)):
            port = NODE_PORTS[(self._next_port + step) % len(NODE_PORTS)]
            if not self._ports.get(port) and port not in taken:
                self._next_port += step + 1
                return port
        return None

    def free_ip(self, family: str) -> str | None:
        """Return a free cluster IP of a family, or None when all are in use."""
        network, start = self._networks[family], self._next_ip[family]
        size = network.num_addresses - 2
        for step in range(size):
            ip = str(network[1 + (start + step) % size])
            if ip not in self._ips:
                self._next_ip[family] = start + step + 1
                return ip
        return None

    def check_port(self, port: int, protocol: str, owner: Key, field: str) -> Cause | None:
        """Return why ``port`` cannot be allocated to the Service ``owner``, None when it can."""
        if port not in NODE_PORTS:
            message = (
                f"provided port is not in the valid range. The range of valid ports is {NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            )
            return invalid_value(field, port, message)
        if self._ports.get(port, {}).get(protocol, owner) != owner:
            return invalid_value(field, port, "provided port is already allocated")
        return None

    def check_ip(self, ip: str, owner: Key) -> Cause | None:
        """Return why ``ip`` cannot be allocated to the Service ``owner``, None when it can."""
        field = "spec.clusterIPs"
        try:
            network = self._networks.get(f"IPv{ipaddress.ip_address(ip).version}")
        except ValueError:
            return invalid_value(
                "spec.clusterIPs[0]", ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            )
        if network is None or ipaddress.ip_address(ip) not in network:
            message = f"failed to allocate IP {ip}: the provided IP is not in the valid range. "
            return invalid_value(field, [ip], message + f"The range of valid IPs is {network}")
        if self._ips.get(ip, owner) != owner:
            return invalid_value(field, [ip], f"failed to allocate IP {ip}: provided IP is already allocated")
        return None
