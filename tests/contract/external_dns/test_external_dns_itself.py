"""external-dns itself reads what Fairlead writes for it, and writes it into a real BIND's zone.

It is built with Go on request (`make test-external-dns`); without it these tests are left out.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import dns.asyncquery
import dns.message
import msgspec
import pytest
import yaml

from conformance.externaldns import DEFINITION, PROGRAM, directory, why_not
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.discovery import install_crds
from fairlead.model.change import DONE, Action, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.external_dns import annotations_provider, provider
from fairlead.providers.zones.provider import DNSProvider
from fairlead_demo.worlds.name_servers import Bind, binary
from fairlead_demo.worlds.processes import Child, wait_until
from podless import ApiServer

pytestmark = [
    pytest.mark.req("C-53"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.skipif(binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root"),
]
HOST = "www.example.test"
OTHER_KEY = LoadBalancerKey("Hostname", SYSTEM_NAMESPACE, "other")
AT = TargetKey("192.0.2.5", RECORD_PORT)
Create = Callable[..., DNSProvider]
#: What external-dns calls its annotations, before 0.22 and since.
RELEASED = ("external-dns.alpha.kubernetes.io/", "external-dns.kubernetes.io/")


class World:
    """An API server, a BIND, and how external-dns is run between them."""

    def __init__(self, cluster: Cluster, bind: Bind, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.bind = bind
        self.kubeconfig = kubeconfig

    @asynccontextmanager
    async def external_dns(self, *more: str) -> AsyncGenerator[None]:
        flags = {
            "kubeconfig": str(self.kubeconfig),
            "provider": "rfc2136",
            "registry": "txt",
            "txt-owner-id": "theirs",
            "policy": "sync",
            "interval": "300ms",
            "min-ttl": "1s",
            "rfc2136-host": "127.0.0.1",
            "rfc2136-port": str(self.bind.port),
            "rfc2136-zone": self.bind.zone,
            "rfc2136-tsig-keyname": "other",
            "rfc2136-tsig-secret": self.bind.secrets["other"],
            "rfc2136-tsig-secret-alg": "hmac-sha256",
        }
        command = [
            str(directory() / PROGRAM),
            *(f"--{name}={value}" for name, value in flags.items()),
            "--rfc2136-tsig-axfr",
            *more,
        ]
        child = Child("external-dns", command, log=self.kubeconfig.with_name("external-dns.log"))
        await child.start()
        try:
            yield
            child.check_running()
        finally:
            await child.kill()

    async def ttl(self, type_: str) -> int:
        question = dns.message.make_query(f"{HOST}.", type_)
        return (await dns.asyncquery.tcp(question, "127.0.0.1", port=self.bind.port, timeout=5)).answer[0].ttl

    async def answers(self, type_: str, *values: str) -> None:
        async def so() -> bool:
            return await self.bind.ask(HOST, type_) == set(values)

        await wait_until(so, f"{HOST} {type_} {values}")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = ApiServer()  # external-dns sends its token over TLS only
    api = ClusterConfig(server=await server.start(), sign_in=bearer(server.admin_token), user="admin")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(server.kubeconfig()))
    bind = Bind(tmp_path / "bind", records=["theirs A 192.0.2.99"])
    await bind.start()
    async with Cluster(api, name="hub", qps=0) as cluster:
        definition = yaml.safe_load((directory() / DEFINITION).read_text())
        assert not await install_crds(cluster, [definition], "kubectl")
        await cluster.apply(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}}, manager="user")
        yield World(cluster, bind, kubeconfig)
    await bind.kill()
    await server.stop()


OTHER = {"zone": "example.test", "host": "other.example.test", "ownerId": "hub-1"}


def spec(bind: Bind) -> FrontendSpec:
    key = LoadBalancerKey("Hostname", SYSTEM_NAMESPACE, "www")
    parameters = {"zone": bind.zone, "host": HOST, "ownerId": "hub-1", "server": bind.server}
    return FrontendSpec(key, "", (), health_check=None, parameters=parameters)


async def change(names: DNSProvider, bind: Bind, *, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> None:
    """Have values added and removed, each of the type that it has."""

    def rows(values: tuple[str, ...], action: Action, reason: Reason) -> list[TargetChange]:
        return [
            TargetChange(
                spec(bind).key,
                backend_key("AAAA" if ":" in value else "A" if value[-1].isdigit() else "CNAME"),
                Target(TargetKey(value, RECORD_PORT), parameters=(("ttl", "30"),)),
                action,
                reason,
            )
            for value in values
        ]

    changes = [*rows(add, Action.REGISTER, Reason.NEW), *rows(remove, Action.DEREGISTER, Reason.OWNER_DELETED)]
    assert await names.apply(changes) == [DONE] * len(changes)


@pytest.mark.parametrize(
    ("create", "flags"),
    [
        (provider.create, ["--source=crd"]),
        *((annotations_provider.create, ["--source=service", f"--annotation-prefix={prefix}"]) for prefix in RELEASED),
    ],
    ids=["DNSEndpoint", "annotations", "annotations-since-0.22"],
)
async def test_requested_records_are_written_and_removed(world: World, create: Create, flags: list[str]):
    before = await world.bind.names()
    names = create(cluster=world.cluster)
    async with world.external_dns(*flags):
        await names.ensure(spec(world.bind))
        await change(names, world.bind, add=("192.0.2.1", "2001:db8::1"))
        await world.answers("A", "192.0.2.1")
        await world.answers("AAAA", "2001:db8::1")
        observed = await names.observe(spec(world.bind).key)
        assert observed is not None
        assert observed.programmed
        assert await world.ttl("A") == 30

        await change(names, world.bind, add=("192.0.2.2",), remove=("192.0.2.1", "2001:db8::1"))
        await world.answers("A", "192.0.2.2")
        await world.answers("AAAA")

        await change(names, world.bind, add=("lb.example.net",), remove=("192.0.2.2",))
        await world.answers("CNAME", "lb.example.net")
        await world.answers("A")

        await names.delete(spec(world.bind).key)
        await world.answers("CNAME")

        async def clean() -> bool:
            return await world.bind.names() == before

        await wait_until(clean, "the zone is as it was, without marks")
    await names.close()


@pytest.mark.parametrize(
    ("create", "source"), [(provider.create, "crd"), (annotations_provider.create, "service")], ids=["crd", "service"]
)
async def test_a_foreign_record_stays_and_the_name_is_not_published(world: World, create: Create, source: str):
    await world.bind.write(("add", HOST, "A", "192.0.2.77"))
    names = create(cluster=world.cluster)
    async with world.external_dns(f"--source={source}"):
        await names.ensure(spec(world.bind))
        await change(names, world.bind, add=("192.0.2.1",))
        await names.ensure(
            msgspec.structs.replace(spec(world.bind), key=OTHER_KEY, parameters={**OTHER, "server": world.bind.server})
        )
        rows = [TargetChange(OTHER_KEY, backend_key("A"), Target(AT), Action.REGISTER, Reason.NEW)]
        assert await names.apply(rows) == [DONE]

        async def other() -> bool:
            return await world.bind.ask(OTHER["host"], "A") == {AT.address}

        await wait_until(other, "it has looked at the objects")
        assert await world.bind.ask(HOST, "A") == {"192.0.2.77"}
        observed = await names.observe(spec(world.bind).key)
        assert observed is not None
        assert (observed.programmed, observed.message.rpartition(" answers ")[2]) == (False, "0 of 1 records")
        await names.delete(OTHER_KEY)
    await names.close()
