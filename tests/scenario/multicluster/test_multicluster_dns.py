"""Names of imports, as CoreDNS answers them from the objects that the agent writes into a member.

CoreDNS with its plugin multicluster is built with Go on request (`make test-coredns`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import pytest
import pytest_asyncio
from multicluster_world import Member, SetWorld, until

from conformance.coredns import PROGRAM, directory, why_not
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.meta import JSONObject
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import Child

pytestmark = [
    pytest.mark.req("MC-5"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.asyncio(loop_scope="session"),
]
ZONE = "clusterset.local"
NXDOMAIN = "NXDOMAIN"
Answer = set[str] | str


class CoreDNS:
    """A CoreDNS that reads the objects of one member."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, name: str, type_: str) -> tuple[Answer, set[str]]:
        """Return the values, or the error, and the names and addresses that come with them."""
        question = dns.message.make_query(f"{name}.svc.{ZONE}.", type_)
        answer = await dns.asyncquery.udp(question, "127.0.0.1", port=self._port, timeout=5)
        if answer.rcode() != dns.rcode.NOERROR:
            return dns.rcode.to_text(answer.rcode()), set()
        return _values(answer.answer), _values(answer.additional, names=True)

    async def answers(self, name: str, type_: str, expected: Answer) -> set[str]:
        """Wait for an answer, and return what comes with it."""

        async def same() -> Any:
            values, additional = await self.ask(name, type_)
            return (additional,) if values == expected else None

        return (await until(same, what=f"{name} {type_} {expected}"))[0]


def _values(sets: Iterable[Any], *, names: bool = False) -> set[str]:
    return {f"{rrset.name} {value}" if names else str(value) for rrset in sets for value in rrset}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def coredns(shared_world: SetWorld, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CoreDNS]:
    home: Path = tmp_path_factory.mktemp("coredns")
    shared_world.members["east"].server.write_kubeconfig(home / "kubeconfig")
    port = free_port("127.0.0.1")
    (home / "Corefile").write_text(
        f".:{port} {{\n bind 127.0.0.1\n errors\n multicluster {ZONE} {{\n  kubeconfig {home}/kubeconfig\n }}\n}}\n"
    )
    child = Child("coredns", [str(directory() / PROGRAM), "-conf", str(home / "Corefile")], log=home / "coredns.log")
    await child.start()
    server = CoreDNS(port)

    async def started() -> bool:
        child.check_running()
        try:
            return (await server.ask("nothing.nowhere", "A"))[0] == NXDOMAIN
        except (OSError, dns.exception.DNSException):
            return False

    try:
        await until(started, what="CoreDNS answers")
        yield server
        child.check_running()
    finally:
        await child.kill()


async def test_a_cluster_set_ip_has_one_name(west: Member, east: Member, coredns: CoreDNS) -> None:
    name = f"hello.{west.home}"
    await coredns.answers(name, "A", NXDOMAIN)
    await west.service("hello", "10.1.0.1")
    await west.export()
    (address,) = (await east.imported(check=lambda obj: obj.spec.ips)).spec.ips or [""]
    await coredns.answers(name, "A", {address})
    await coredns.answers(name, "AAAA", set())
    full = f"{name}.svc.{ZONE}."
    for port in ("_tcp._tcp", "_udp._udp"):
        assert await coredns.answers(f"{port}.{name}", "SRV", {f"0 100 42 {full}"}) == {f"{full} {address}"}
    await coredns.answers(f"_http._tcp.{name}", "SRV", NXDOMAIN)
    await until(east.slices, what="endpoints in east")
    # No member has a name of its own.
    for member in (west, east):
        await coredns.answers(f"{member.name}.{name}", "A", NXDOMAIN)
    await coredns.answers(f"clusterset-{name}", "A", NXDOMAIN)
    await west.unexport()
    await coredns.answers(name, "A", NXDOMAIN)


async def test_a_headless_name_is_that_of_all_endpoints(west: Member, east: Member, coredns: CoreDNS) -> None:
    name = f"hello.{west.home}"
    pods: dict[str, tuple[str, ...]] = {"west": ("10.1.0.1", "10.1.0.2"), "east": ("10.2.0.1",)}
    for member in (west, east):
        await member.service("hello", *pods[member.name], clusterIP="None")
        await member.export()
    await coredns.answers(name, "A", {"10.1.0.1", "10.1.0.2", "10.2.0.1"})
    names = {
        f"{host}.{name}.svc.{ZONE}.": address
        for host, address in (("hello-0.west", pods["west"][0]), ("hello-1.west", pods["west"][1]))
    } | {f"hello-0.east.{name}.svc.{ZONE}.": pods["east"][0]}
    additional = await coredns.answers(f"_tcp._tcp.{name}", "SRV", {f"0 33 42 {target}" for target in names})
    assert additional == {f"{target} {address}" for target, address in names.items()}
    for host, address in (("hello-0.west", "10.1.0.1"), ("hello-1.west", "10.1.0.2"), ("hello-0.east", "10.2.0.1")):
        await coredns.answers(f"{host}.{name}", "A", {address})
    for host in ("hello-1.east", "hello-0.north", "west", "hello-0"):
        await coredns.answers(f"{host}.{name}", "A", NXDOMAIN)
    await west.unexport()
    await coredns.answers(name, "A", {"10.2.0.1"})
    await east.unexport()
    await coredns.answers(name, "A", NXDOMAIN)


async def test_endpoints_of_both_families_have_names(west: Member, east: Member, coredns: CoreDNS) -> None:
    name = f"hello.{west.home}"
    # The cluster has addresses of one family: without a selector, it leaves those of endpoints to the user.
    both: JSONObject = {"selector": None, "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
    await west.service("hello", "10.1.0.1", clusterIP="None", **both)
    six = {
        "metadata": {"name": "hello-six", "namespace": west.home, "labels": {"kubernetes.io/service-name": "hello"}},
        "addressType": "IPv6",
        "endpoints": [{"addresses": ["fd00:1::1"]}, {"addresses": ["fd00:1::2"], "conditions": {"ready": False}}],
        "ports": [{"name": "tcp", "port": 42, "protocol": "TCP"}],
    }
    await west.user.apply(ENDPOINT_SLICES, six, manager="endpointslice-controller")
    await west.export()
    await coredns.answers(name, "AAAA", {"fd00:1::1"})
    await coredns.answers(name, "A", {"10.1.0.1"})
    # An endpoint without a hostname is named after its address.
    await coredns.answers(f"fd00-1--1.west.{name}", "AAAA", {"fd00:1::1"})
