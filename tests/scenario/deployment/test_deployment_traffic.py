"""Statistics of a real Envoy, run as its Deployment says: every replica of the hub reads them, no other client."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest
from deployment_pod import Relay
from deployment_world import Replica, World, until

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Totals
from fairlead.page.traffic import TrafficRates
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings
from fairlead.providers.envoy.kubernetes.provider import ProxyTraffic, StatisticsPlace
from tests.xds.world import ask

pytestmark = pytest.mark.envoy


@pytest.fixture
async def relay(traffic: World):
    relay = await Relay().start()
    traffic.settings = DeploymentSettings(xds_host="localhost", xds_port=relay.port)
    yield relay
    await relay.stop()


async def status(port: int, path: str, **files: Path) -> int:
    """Return what the proxy answers to a client with these files; 0 when it closes the connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if files:
        context.load_cert_chain(files["certificate"], files["key"])
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}{path}", ssl=context) as answer,
        ):
            return answer.status
    except aiohttp.ClientError:
        return 0


async def counted(replica: Replica, rates: TrafficRates, key: LoadBalancerKey) -> Totals:
    readings = await replica.provider.traffic.read()
    assert [each.problem for each in readings] == [""]
    return rates.take(readings).get(Counted(key), Totals())


@pytest.mark.req("OP-11")
async def test_all_replicas_read_the_figures_of_a_proxy_and_no_other_client_does(traffic: World, relay: Relay) -> None:
    first = await traffic.hub("first")
    second = await traffic.hub("second", leading=False)
    relay.target = second.provider.server.port
    for replica in (first, second):
        replica.report()
    namespace = await traffic.tenant()
    key = await traffic.load_balancer(namespace, backend=await traffic.backend("one"))
    await traffic.assign(key, ip="203.0.113.7")
    async with traffic.pod(namespace) as pod:
        await traffic.programmed(key)

        async def known() -> bool:
            return bool(first.provider.peers.places)

        await until(known, what="the other replica's proxy")
        rates = {replica.name: TrafficRates() for replica in (first, second)}
        for replica in (first, second):
            assert await counted(replica, rates[replica.name], key) == Totals()
        for _ in range(3):
            assert await ask("127.0.0.1", await traffic.proxy_port(key)) == "one"

        async def figures() -> bool:
            for replica in (first, second):
                added = await counted(replica, rates[replica.name], key)
                seen[replica.name] = seen[replica.name][0] + added.connections, seen[replica.name][1] + added.bytes_out
            return set(seen.values()) == {(3, 12)}

        seen = {replica.name: (0, 0) for replica in (first, second)}
        try:
            await until(figures, what="three connections in the figures of both")
        except AssertionError:
            raise AssertionError(seen) from None

        port, its = pod.ports["statistics"], pod.home / "tls"
        hub = second.provider.shared.files
        assert await status(port, "/stats?usedonly", certificate=hub.certificate, key=hub.key) == 200
        assert await status(port, "/clusters", certificate=hub.certificate, key=hub.key) == 404
        assert await status(port, "/stats") == 0
        assert await status(port, "/stats", certificate=its / "tls.crt", key=its / "tls.key") == 0

        # Another group's proxy at that address is not believed, nor is one that has said nothing of itself.
        places = {"pod-1": StatisticsPlace("another", f"127.0.0.1:{port}"), "pod-2": StatisticsPlace(namespace)}
        reader = ProxyTraffic(proxies=lambda: places, groups_of=lambda _key: [namespace], files=hub)
        problems = [each.problem for each in await reader.read()]
        assert problems == [
            f"proxy pod-1 of group another does not answer a question for its statistics at 127.0.0.1:{port}",
            f"proxy pod-2 of group {namespace} does not say where its statistics are: it was started by an older "
            "version; restart its Deployment",
        ]
        # And none is believed about load balancers of other groups.
        places = {"pod-1": StatisticsPlace(namespace, f"127.0.0.1:{port}")}
        foreign = ProxyTraffic(proxies=lambda: places, groups_of=lambda _key: ["another"], files=hub)
        assert [(each.totals, each.problem) for each in await foreign.read()] == [({}, "")]
