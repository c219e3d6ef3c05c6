"""A HAProxy of an operator, with a frontend and a backend for each Service, and the class that uses it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.errors import NotFound
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import wait_until
from tests.contract.providers.provider_processes import HAProxy

ADDRESS = "127.0.0.1"
#: srv_check_result in ``show servers state``.
CHECK_PASSED = "3"


class Edge:
    """The HAProxy: a frontend and a backend for each Service, and in each backend a server that is not ours."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.ports = {name: free_port() for name in names}
        sections = (
            f"frontend default-{name}\n  bind {ADDRESS}:{port}\n  default_backend default-{name}\n"
            f"backend default-{name}\n  balance roundrobin\n  server theirs 192.0.2.1:1 weight 7 disabled\n"
            for name, port in self.ports.items()
        )
        self.haproxy = HAProxy(directory, backends=1, extra="".join(sections))

    def servers(self, name: str) -> dict[str, list[str]]:
        return self.haproxy.servers(f"default-{name}")

    def ours(self, name: str) -> set[str]:
        """Return the addresses of our servers that take traffic."""
        return {
            fields[0] for server, fields in self.servers(name).items() if server.startswith("fl-") and fields[2] == "0"
        }

    def theirs(self, name: str) -> dict[str, list[str]]:
        return {server: fields for server, fields in self.servers(name).items() if not server.startswith("fl-")}

    async def serves(self, name: str, *addresses: str) -> None:
        """Wait until exactly ``addresses`` take the traffic of a Service."""

        async def so() -> bool:
            with contextlib.suppress(OSError):
                return self.ours(name) == set(addresses)
            return False

        await wait_until(so, f"HAProxy sends {name} to {addresses}")

    async def checked(self, backend: str) -> None:
        """Wait until every server of ours has passed a health check: until then its state goes on changing."""

        async def so() -> bool:
            rows = map(str.split, self.haproxy.ask(f"show servers state {backend}").splitlines())
            return all(row[11] == CHECK_PASSED for row in rows if len(row) > 11 and row[3].startswith("fl-"))

        await wait_until(so, f"HAProxy has checked the servers of {backend}")


def edge_class(socket: str, **more: object) -> dict[str, object]:
    """Return the spec of a class for the member west."""
    return {
        "tenants": ["west"],
        "provider": "haproxy",
        "parameters": {"socket": socket, "backend": "{namespace}-{name}", "address": ADDRESS, "drainTimeout": "5s"},
        "targets": "Pod",
        "drain": "1s",
        **more,
    }


def started(directory: Path, names: Sequence[str]) -> Edge:
    """Start HAProxy; a port that was free a moment ago may be in use by now."""
    for _ in range(2):
        with contextlib.suppress(AssertionError):
            return Edge(directory, names)
    return Edge(directory, names)


async def add_class(fleet: Fleet, name: str, spec: dict[str, object]) -> None:
    await fleet.cluster.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": name}, "spec": spec}, manager="operator")


async def no_class(fleet: Fleet, name: str) -> None:
    """Delete a class, and wait until it is gone: one that is still used stays until its load balancers are."""
    await fleet.cluster.delete(LOAD_BALANCER_CLASSES, "", name)

    async def gone() -> bool:
        try:
            await fleet.cluster.get(LOAD_BALANCER_CLASSES, "", name)
        except NotFound:
            return True
        return False

    await wait_until(gone, f"LoadBalancerClass {name} is gone")


async def on_haproxy(member: Member, edge: Edge, name: str, *pods: str, class_name: str = "edge-haproxy") -> None:
    """Make an ordinary Service that asks for the class, and wait until HAProxy serves its pods."""
    port = {"port": edge.ports[name], "targetPort": 8080}
    await member.service(name, port, loadBalancerClass=f"fairlead.dev/{class_name}")
    assert await member.address(name) == ADDRESS
    await edge.serves(name, *pods)


def without_ages(state: str) -> list[list[str]]:
    return [[*row[:9], *row[10:]] for row in map(str.split, state.splitlines())]


async def all_registered(fleet: Fleet, namespace: str, load_balancer: str) -> None:
    """Wait until each record says that its target is registered, which is written after the fact."""

    async def so() -> bool:
        records = await fleet.cluster.list(BACKEND_RECORDS, namespace)
        states = {record.status.state for record in records if record.spec.load_balancer.name == load_balancer}
        return states == {"Registered"}

    await wait_until(so, f"all targets of {load_balancer} are on record as registered")


async def record_versions(fleet: Fleet, namespace: str, load_balancer: str = "") -> dict[str, str]:
    """Return the versions of the records by their names: those of one load balancer, or all of a namespace."""
    records = await fleet.cluster.list(BACKEND_RECORDS, namespace)
    ours = [record for record in records if load_balancer in ("", record.spec.load_balancer.name)]
    return {record.metadata.name: record.metadata.resource_version for record in ours}
