"""A real Envoy with what the API server holds for its pod: bootstrap, certificate, and everything that is pushed."""

from __future__ import annotations

import asyncio
import ssl
from datetime import datetime, timedelta
from pathlib import Path

import grpc
import pytest
from deployment_pod import Checkpoint, Relay
from deployment_world import World, until

from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.providers.envoy.certificates import SERVER_SECRET, client_certificate, new_authority
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings, group_name
from fairlead.providers.envoy.resources import packaged_schema
from fairlead.runtime.clock import SystemClock
from tests.xds.world import ask, connected

pytestmark = pytest.mark.envoy

_METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"


@pytest.fixture
async def relay(traffic: World):
    relay = await Relay().start()
    traffic.settings = DeploymentSettings(xds_host="localhost", xds_port=relay.port)
    yield relay
    await relay.stop()


@pytest.mark.req("K-28")
@pytest.mark.req("K-29")
@pytest.mark.req("K-30")
@pytest.mark.req("K-31")
@pytest.mark.req("K-11")
@pytest.mark.req("KI-6")
@pytest.mark.req("I-5")
async def test_traffic_flows_through_a_takeover_that_changes_nothing(traffic: World, relay: Relay) -> None:
    first = await traffic.hub("first", lease_s=10.0)
    second = await traffic.hub("second", leading=False, lease_s=10.0)
    relay.target = first.provider.server.port
    namespace = await traffic.tenant()
    web = await traffic.load_balancer(namespace, "web", backend=await traffic.backend("one"))
    dns = await traffic.load_balancer(namespace, "dns", backend=await traffic.backend("two"))
    stay = await traffic.backend("stays", stay=True)
    held = await traffic.load_balancer(namespace, "held", backend=stay)
    await traffic.assign(web, ip="203.0.113.7")
    await traffic.assign(dns, hostname="lb-1.example.com")
    await traffic.assign(held, ip="203.0.113.8")
    async with traffic.pod(namespace):
        ingress = (await traffic.programmed(web)).status.load_balancer.ingress or ()
        assert [(entry.ip, entry.hostname) for entry in ingress] == [("203.0.113.7", "")]
        ingress = (await traffic.programmed(dns)).status.load_balancer.ingress or ()
        assert [(entry.ip, entry.hostname) for entry in ingress] == [("", "lb-1.example.com")]
        await traffic.programmed(held)
        port = await traffic.proxy_port(web)
        assert await ask("127.0.0.1", port) == "one"
        assert await ask("127.0.0.1", await traffic.proxy_port(dns)) == "two"

        async with connected("127.0.0.1", await traffic.proxy_port(held)) as (_, reader, writer):
            relay.target = second.provider.server.port
            await first.kill()
            await until(lambda: second.hub.leading, what="takeover")
            await until(lambda: [proxy.group for proxy in second.provider.proxies() if proxy.synced] == [namespace])
            await traffic.quiet(second)
            assert sum(second.provider.counters.changing_pushes.values()) == 0, "nothing changes for the proxy"
            writer.write(b"still here\n")
            assert await reader.readline() == b"still here\n"
        assert await ask("127.0.0.1", port) == "one"
        # Endpoints follow without a restart of anything, from the other replica now.
        await traffic.endpoints(namespace, "web", await traffic.backend("three"))

        async def moved() -> bool:
            return await ask("127.0.0.1", port) == "three"

        await until(moved)


@pytest.mark.req("K-34")
async def test_backends_see_client_addresses_through_local_proxies(traffic: World, relay: Relay) -> None:
    hub = await traffic.hub()
    relay.target = hub.provider.server.port
    namespace = await traffic.tenant()
    backend = await traffic.backend("one", header=28)
    key = await traffic.load_balancer(namespace, backend=backend, proxyProtocol="v2", externalTrafficPolicy="Local")
    await traffic.assign(key, ip="203.0.113.7")
    assert (await traffic.service(key)).spec.external_traffic_policy == "Local"
    async with traffic.pod(namespace):
        await traffic.programmed(key)
        assert await ask("127.0.0.1", await traffic.proxy_port(key), source="127.0.0.9") == "one"
    # PROXY v2 over IPv4: 12 bytes of signature, version and family, length, then the client's address.
    header = next(connection.header for connection in backend.seen if connection.header[12:13] == b"\x21")
    assert header[16:20] == bytes((127, 0, 0, 9))


@pytest.mark.req("I-5", "X-1")
async def test_leader_speaks_for_proxies_of_the_other_replica(traffic: World, relay: Relay) -> None:
    first = await traffic.hub("first")
    second = await traffic.hub("second", leading=False)
    relay.target = second.provider.server.port
    for replica in (first, second):
        replica.report()
    namespace = await traffic.tenant()
    backend = await traffic.backend("one")
    key = await traffic.load_balancer(namespace, backend=backend)
    await traffic.assign(key, ip="203.0.113.7")
    async with traffic.pod(namespace):
        assert (await traffic.programmed(key)).status.address == "203.0.113.7"
        assert first.provider.proxies() == []

        async def serving(status: str, reason: str) -> None:
            async def check() -> bool:
                return (await traffic.condition(key, "Serving"))[:2] == (status, reason)

            try:
                await until(check, what=f"Serving to be {status}")
            except AssertionError:
                raise AssertionError(await traffic.condition(key, "Serving")) from None

        # The proxy reports to the replica that does not lead, which passes on what it sees.
        await serving("True", "Serving")
        await backend.stop()
        await serving("False", "NoHealthyTargets")
        await second.kill()
        # It connects to the leader then, and reports there.
        relay.target = first.provider.server.port
        await until(lambda: bool(first.provider.proxies()), what="the proxy at the leader")
        await serving("False", "NoHealthyTargets")


@pytest.mark.req("KI-8")
@pytest.mark.req("W-21")
async def test_certificate_alone_decides_what_is_read(traffic: World, relay: Relay, directory: Path) -> None:
    hub = await traffic.hub()
    relay.target = hub.provider.server.port
    ours, theirs = await traffic.tenant("ours"), await traffic.tenant("theirs")
    for namespace in (ours, theirs):
        await traffic.load_balancer(namespace, f"of-{namespace[-6:]}", backend=await traffic.backend("x"))
    await until(lambda: hub.resources(ours) and hub.resources(theirs))

    async def certified() -> bool:
        return bool(await traffic.secret(ours, group_name(ours)))

    await until(certified)
    files = await traffic.secret(ours, group_name(ours))

    async def read(certificate: bytes | None, key: bytes | None) -> str:
        """Claim to be of the other tenant, and return what is answered."""
        credentials = grpc.ssl_channel_credentials(files["ca.crt"], key, certificate)
        options = (("grpc.ssl_target_name_override", "localhost"),)
        async with grpc.aio.secure_channel(f"127.0.0.1:{relay.port}", credentials, options=options) as channel:
            call = channel.stream_stream(_METHOD)()
            await call.write(clusters_wanted(theirs))
            async with asyncio.timeout(180):
                answer = await call.read()
        return answer.decode(errors="replace") if isinstance(answer, bytes) else ""

    answer = await read(files["tls.crt"], files["tls.key"])
    assert f"{ours}/of-" in answer
    assert theirs not in answer, "what a proxy claims does not count"
    foreign = client_certificate(new_authority(datetime.now().astimezone()), theirs, datetime.now().astimezone())
    server = await traffic.secret(SYSTEM_NAMESPACE, SERVER_SECRET)
    for certificate, key in ((None, None), (foreign.certificate, foreign.key), (server["tls.crt"], server["tls.key"])):
        with pytest.raises(grpc.aio.AioRpcError):
            await read(certificate, key)


def clusters_wanted(group: str) -> bytes:
    """Ask for all clusters, as Envoy begins."""
    schema = packaged_schema()
    kind = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    fields = {"node": {"id": "pod-1", "cluster": group}, "type_url": kind}
    return schema.encode("envoy.service.discovery.v3.DeltaDiscoveryRequest", fields)


class Shifted(SystemClock):
    """The machine's clock, some days ago: Envoy looks at the real one."""

    days = -61

    def now(self) -> datetime:
        return super().now() + timedelta(days=self.days)


@pytest.mark.req("KI-8")
@pytest.mark.req("KI-6")
async def test_certificates_are_renewed_while_everything_runs(traffic: World, relay: Relay) -> None:
    traffic.clock = clock = Shifted()
    hub = await traffic.hub()
    relay.target = hub.provider.server.port
    shared, certificates = hub.provider.shared, hub.provider.certificates
    namespace = await traffic.tenant()
    key = await traffic.load_balancer(namespace, backend=await traffic.backend("one"))
    await traffic.assign(key, ip="203.0.113.7")
    async with traffic.pod(namespace) as pod:
        await traffic.programmed(key)
        before = await traffic.secret(namespace, group_name(namespace))
        server = shared.files.certificate.read_bytes()
        clock.days = -2
        await shared.refresh()
        certificates.reconcile_all()
        await traffic.quiet(hub)
        assert await traffic.secret(namespace, group_name(namespace)) == before, "good for another month"

        clock.days = 0
        await shared.refresh()
        certificates.reconcile_all()

        async def renewed() -> bool:
            return (await traffic.secret(namespace, group_name(namespace)))["tls.crt"] != before["tls.crt"]

        await until(renewed)
        assert shared.files.certificate.read_bytes() != server
        assert (await traffic.secret(namespace, group_name(namespace)))["ca.crt"] == before["ca.crt"]
        await pod.mount(group_name(namespace))
        # Neither side restarts: the next handshake uses the new ones.
        after = await traffic.secret(namespace, group_name(namespace))
        checkpoint = await Checkpoint(shared.files).start()
        relay.target = checkpoint.port
        relay.cut()
        await until(lambda: ssl.PEM_cert_to_DER_cert(after["tls.crt"].decode()) in checkpoint.shown)
        await checkpoint.stop()
        relay.target = hub.provider.server.port
        relay.cut()
        await until(lambda: [proxy.synced for proxy in hub.provider.proxies()] == [True])
        assert sum(hub.provider.counters.nacks.values()) == 0
        assert await ask("127.0.0.1", await traffic.proxy_port(key)) == "one"
