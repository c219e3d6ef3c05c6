"""A network in which the machines of Cluster API's development provider have an address each.

All its API servers are one process, which listens at every address of its network namespace. So the process is in a
namespace of its own, where a machine has its address from when its infrastructure is created until it is deleted:
then its connections end, and the address is unreachable, as that of an instance that was ended.

    this namespace (API server, hub with its Envoy, managers)  10.67.0.1 --- 10.67.0.2  the machines, 10.68.0.0/16
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

from fairlead.api.clusterapi import TargetObject
from fairlead.api.meta import Resource
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.networks import ip

MANAGEMENT, MACHINES = "10.67.0.1", "10.67.0.2"
_NETWORK = "10.68.0.0/16"
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
DEV_MACHINES = Resource(INFRASTRUCTURE, "v1beta2", "DevMachine", "devmachines", True, TargetObject)
_LOOK_S = 0.1


@contextmanager
def machines_network() -> Generator[str]:
    """Make the namespace of the machines, linked with the one that this thread is in; yields its name."""
    name = f"fairlead-machines-{os.getpid()}-{secrets.token_hex(3)}"
    ip("netns", "add", name)
    try:
        ip("link", "add", "machines0", "type", "veth", "peer", "name", "machines1", "netns", name)
        ip("addr", "add", f"{MANAGEMENT}/30", "dev", "machines0")
        ip("link", "set", "machines0", "up")
        ip("-n", name, "addr", "add", f"{MACHINES}/30", "dev", "machines1")
        ip("-n", name, "link", "set", "machines1", "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "route", "add", "default", "via", MANAGEMENT)
        ip("route", "add", _NETWORK, "via", MACHINES)
        yield name
    finally:
        ip("netns", "delete", name)


class Instances:
    """Gives each DevMachine an address, and takes it away when the DevMachine is gone."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._numbers = itertools.count(11)
        #: The addresses of all machines, including deleted ones.
        self.addresses: dict[str, str] = {}
        self.ended: list[str] = []
        #: Around the end of a machine: what is open ends inside.
        self.ending: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    async def run(self) -> None:
        """Follow the DevMachines, until cancelled."""
        while True:
            # Their kind is installed after this is started.
            with contextlib.suppress(FairleadError):
                await self._look()
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> None:
        machines = {each.metadata.name: each for each in await self._cluster.list(DEV_MACHINES)}
        for name, machine in machines.items():
            if name not in self.addresses:
                self.addresses[name] = address = f"10.68.0.{next(self._numbers)}"
                ip("-n", self._namespace, "route", "add", "local", address, "dev", "lo")
            if not machine.status.addresses:
                status = {"status": {"addresses": [{"type": "InternalIP", "address": self.addresses[name]}]}}
                with contextlib.suppress(NotFound):
                    await self._cluster.merge_patch(
                        DEV_MACHINES, machine.metadata.namespace, name, status, subresource="status"
                    )
        for name in self.addresses.keys() - machines.keys():
            address = self.addresses.pop(name)
            # What is open ends, as the sockets of a machine that shuts down do.
            with self.ending():
                ip("netns", "exec", self._namespace, "ss", "-K", "src", address)
            ip("-n", self._namespace, "route", "delete", "local", address, "dev", "lo")
            ip("-n", self._namespace, "route", "add", "unreachable", address)
            self.ended.append(address)
