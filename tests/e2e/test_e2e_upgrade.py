"""A hub of version 0.1 is replaced by the present one on the same data, under traffic: nothing changes.

The code of 0.1 comes out of the history of this repository. Envoy and HAProxy run on, as they do in every upgrade.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import INGRESSES, NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.providers.envoy.envoy_process import find_running
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import PATIENCE_S, Child, run_fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic
from fairlead_demo.worlds.web import ingress_address, put
from fairlead_demo.worlds.workload import POD_PORT, Workload
from tests.e2e.e2e_backends import ask, http, ready, refused
from tests.e2e.e2e_haproxy import Edge, add_class, edge_class, on_haproxy, record_versions, started, without_ages
from tests.e2e.e2e_http import HttpClient
from tests.e2e.e2e_own import no_ingresses, own_class
from tests.e2e.e2e_versions import VERSION_0_1, environment_of, packages_of_0_1

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]

#: Of HAProxy: that of the Service, and one that a LoadBalancer uses.
BACKENDS = ("default-web", "b0")
#: Of an Ingress: the Service ``web``.
WEB = {"service": {"name": "web", "port": {"number": 81}}}
#: Versions of listeners, clusters and endpoints, and counters of everything that has changed any of them.
STATS = re.compile(
    r"(listener_manager|cluster_manager)\.(lds|cds|listener|cluster)[._]"
    r"(version|added|modified|removed|updated|in_place_updated|updated_via_merge)"
    r"|cluster\..*\.(version|membership_change|membership_total)"
)


@pytest.fixture
def old_code(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which ``fairlead`` is that of version 0.1."""
    return environment_of(VERSION_0_1, tmp_path, packages_of_0_1())


@pytest.fixture
async def fleet(old_code: dict[str, str]) -> AsyncIterator[Fleet]:
    """A hub and a member, each process of them of version 0.1."""
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        apis = EmbeddedApis(directory, ("hub", "east"), environment=old_code)
        fleet = Fleet(apis=apis, directory=directory, members={"east": "Pod"}, drain="1s", environment=old_code)
        try:
            await fleet.start()
            yield fleet
        finally:
            await fleet.close()


@pytest.fixture
async def workload(fleet: Fleet) -> AsyncIterator[Workload]:
    """Two pods of the Service ``web``."""
    east = fleet.members["east"]
    workload = Workload(cluster=east.cluster, service="web", directory=fleet.directory)
    host = east.host("web")
    await east.node(host.node, f"{east.network}.1")
    try:
        for _ in range(2):
            await workload.start_pod(host)
        yield workload
    finally:
        await workload.stop()


async def upgrade(fleet: Fleet) -> None:
    """Replace the hub first, then the agent, as docs/how-to/upgrade.md says; return when both are at work."""
    assert isinstance(fleet.apis, EmbeddedApis)
    east = fleet.members["east"]
    await fleet.hub.terminate()
    await renew(fleet.apis.children["hub"], first_line_s=PATIENCE_S)
    fleet.hub.environment.clear()
    await fleet.hub.start_ready()
    await renew(fleet.apis.children["east"], first_line_s=PATIENCE_S)
    await renew(east.agent)
    # A change that comes after says that both are at work again.
    await east.service("proof", {"port": 1, "targetPort": 1}, loadBalancerClass="fairlead.dev/no-such")

    async def answered() -> bool:
        return "NoSuchClass" in await east.events("proof")

    await wait_until(answered, "hub and agent are at work again")
    await east.delete("proof")
    await fleet.gone("east", "default.proof")

    async def connected() -> bool:
        return await fleet.hub.metric("fairlead_xds_streams") == 1

    await wait_until(connected, "Envoy is back at the hub")


async def renew(child: Child, *, first_line_s: float = 0.0) -> None:
    """Replace one process by one of the present version."""
    await child.terminate()
    child.environment.clear()
    await child.start(first_line_s=first_line_s)


async def at_envoy(fleet: Fleet) -> list[str]:
    """Return what Envoy has, by its own account: listeners, versions of what it was sent, and how often it changed."""
    stats = (await fleet.hub.envoy_page("/stats")).splitlines()
    listeners = (await fleet.hub.envoy_page("/listeners")).splitlines()
    return sorted([*listeners, *(line for line in stats if STATS.fullmatch(line.partition(":")[0]))])


async def conditions(fleet: Fleet) -> dict[str, list[tuple[str, str, str, str | None]]]:
    """Return the conditions of every load balancer that 0.1 has too, with the time of their last transition."""
    objects = await fleet.cluster.list(TCP_LOAD_BALANCERS)
    return {
        obj.metadata.name: [
            (condition.type, condition.status, condition.reason, condition.last_transition_time)
            for condition in obj.status.conditions or ()
            if condition.type not in ("Serving", "Ready")
        ]
        for obj in objects
    }


async def test_a_hub_of_0_1_upgraded_under_traffic_changes_nothing_at_envoy(fleet: Fleet, workload: Workload) -> None:
    east = fleet.members["east"]
    await east.service("web", http(80, POD_PORT))
    await east.service("twin", http(81, POD_PORT), annotations={"fairlead.dev/proxy-protocol": "v2"})
    addresses = {"web": await ready(east, "web", 80), "twin": await east.address("twin")}
    await synced(fleet)
    versions = {name: (await east.get(name)).metadata.resource_version for name in addresses}
    states = await conditions(fleet)
    envoy, running = await at_envoy(fleet), find_running(fleet.hub.envoy_directory)
    assert running is not None
    assert any(line.startswith("listener_manager.lds.version") for line in envoy)
    traffic = Traffic(host=addresses["web"], new_per_s=50)
    traffic.start()

    await upgrade(fleet)
    await synced(fleet)
    assert find_running(fleet.hub.envoy_directory) == running, "the same Envoy"
    assert await fleet.hub.metric("fairlead_xds_changing_pushes_total") == 0
    assert await at_envoy(fleet) == envoy
    assert {name: await east.address(name) for name in addresses} == addresses
    assert {name: (await east.get(name)).metadata.resource_version for name in addresses} == versions
    assert await conditions(fleet) == states

    # What 0.1 made can be changed and deleted.
    pod = await workload.start_pod(east.host("web"))

    async def answers() -> bool:
        return traffic.count.by_pod[pod.name] > 0

    await wait_until(answers, "a pod that came after the upgrade answers")
    await traffic.stop()
    assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
    await east.delete("web")
    await fleet.gone("east", "default.web")

    async def closed() -> bool:
        return await refused(addresses["web"], 80)

    await wait_until(closed, "the address of the deleted Service is closed")


async def downgrade(fleet: Fleet, old_code: dict[str, str]) -> None:
    """Replace agent, hub and their APIs by 0.1, the agent first; return when both are at work."""
    assert isinstance(fleet.apis, EmbeddedApis)
    east = fleet.members["east"]
    await east.agent.terminate()
    await fleet.hub.terminate()
    for name in ("hub", "east"):
        api = fleet.apis.children[name]
        await api.terminate()
        api.environment.update(old_code)
        await api.start(first_line_s=PATIENCE_S)
    fleet.hub.environment.update(old_code)
    await fleet.hub.start_ready()
    east.agent.environment.update(old_code)
    await east.agent.start()
    await east.service("proof", {"port": 1, "targetPort": 1}, loadBalancerClass="fairlead.dev/no-such")

    async def answered() -> bool:
        return "NoSuchClass" in await east.events("proof")

    await wait_until(answered, "hub and agent of 0.1 are at work")
    await east.delete("proof")
    await fleet.gone("east", "default.proof")

    async def connected() -> bool:
        return await fleet.hub.metric("fairlead_xds_streams") == 1

    await wait_until(connected, "Envoy is at the hub of 0.1")


async def test_back_to_0_1_under_traffic_changes_nothing_that_0_1_has_made(
    fleet: Fleet, old_code: dict[str, str], workload: Workload
) -> None:
    """What 0.1 made is served by 0.1 again without a change, and what came between without a cut connection."""
    east = fleet.members["east"]
    await east.service("web", http(80, POD_PORT))
    address = await ready(east, "web", 80)
    await synced(fleet)
    await upgrade(fleet)
    await east.service("twin", http(81, POD_PORT), annotations={"fairlead.dev/proxy-protocol": "v2"})
    addresses = {"web": address, "twin": await east.address("twin")}
    await synced(fleet)
    envoy, running = await at_envoy(fleet), find_running(fleet.hub.envoy_directory)
    assert running is not None
    traffic = Traffic(host=address, new_per_s=50)
    traffic.start()

    await downgrade(fleet, old_code)
    await synced(fleet)
    assert find_running(fleet.hub.envoy_directory) == running, "the same Envoy"
    # One cluster is sent once more: that of ``twin``, without the limit of connections, which 0.1 does not know.
    assert await fleet.hub.metric("fairlead_xds_changing_pushes_total") == 1
    changed = {line.partition(":")[0] for line in {*envoy} ^ {*await at_envoy(fleet)}}
    assert changed == {"cluster_manager.cluster_modified"}
    assert {name: await east.address(name) for name in addresses} == addresses

    pod = await workload.start_pod(east.host("web"))

    async def answers() -> bool:
        return traffic.count.by_pod[pod.name] > 0

    await wait_until(answers, "a pod that came after the downgrade answers")
    await traffic.stop()
    assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
    for name in addresses:
        await east.delete(name)
        await fleet.gone("east", f"default.{name}")


@pytest.mark.skipif(service_port(80) != 80, reason="an Ingress is served at port 80, which this user may not open")
async def test_back_to_0_1_with_a_kind_that_it_does_not_know(
    fleet: Fleet, old_code: dict[str, str], workload: Workload
) -> None:
    """Deleted objects stay deleted, and the others serve again with the new one (docs/how-to/upgrade.md)."""
    east = fleet.members["east"]
    await east.service("web", http(81, POD_PORT))
    address = await ready(east, "web", 81)
    await upgrade(fleet)
    web = {}
    for name in ("deleted", "left"):
        await own_class(east, name)
        rules = [{"host": "a.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": WEB}]}}]
        await put(east, INGRESSES, name, {"ingressClassName": name, "rules": rules})
        web[name] = HttpClient(await ingress_address(east, name))
        await answers_200(web[name])
    await no_ingresses(fleet, east, "deleted", "deleted")
    running = find_running(fleet.hub.envoy_directory)
    traffic = Traffic(host=address, port=81, new_per_s=50)
    traffic.start()

    await downgrade(fleet, old_code)
    assert find_running(fleet.hub.envoy_directory) == running, "the same Envoy"
    for client in web.values():

        async def closed(client: HttpClient = client) -> bool:
            return await refused(client.address, 80)

        await wait_until(closed, "0.1 serves no Ingress")
    left = await fleet.cluster.get(HTTP_LOAD_BALANCERS, "tenant-east", "ingressclass.left")
    assert left.metadata.finalizers, "0.1 lets no object go that it does not know"
    await upgrade(fleet)
    await answers_200(web["left"])
    await traffic.stop()
    assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
    assert await ingress_address(east, "left") == web["left"].address
    assert await refused(web["deleted"].address, 80)
    await no_ingresses(fleet, east, "left", "left")


async def answers_200(client: HttpClient) -> None:
    async def answers() -> bool:
        return (await client.get("a.example"))[0] == 200

    await wait_until(answers, "the Ingress serves")


async def synced(fleet: Fleet) -> None:
    """Wait until the hub says that everything is healthy, Envoy included, but for the Service without endpoints."""
    arguments = ("status", "--kubeconfig", str(fleet.kubeconfig))

    async def healthy() -> bool:
        code, out, _ = await run_fairlead(*arguments, environment=fleet.hub.environment)
        faults = [line for line in out.splitlines() if line.startswith("✗")]
        # This version says that ``twin`` does not serve; 0.1 does not.
        of_twin = [fault for fault in faults if "/twin: " in fault]
        return code == 0 or (code == 5 and " SYNCED " in out and faults == of_twin != [])

    await wait_until(healthy, "the hub is healthy")


@pytest.fixture
def edge() -> Iterator[Edge]:
    with tempfile.TemporaryDirectory(prefix="fl-edge-") as name:
        edge = started(Path(name), ("web",))
        yield edge
        edge.haproxy.stop()


async def test_records_of_0_1_are_read_and_haproxy_is_not_called(fleet: Fleet, workload: Workload, edge: Edge) -> None:
    # 0.1 knows no tenants of a class: what it has accepted for all of them is served on.
    of_old = {field: value for field, value in edge_class(str(edge.haproxy.socket)).items() if field != "tenants"}
    await add_class(fleet, "edge-haproxy", of_old)
    pods = {pod.address for pod in workload.pods}
    east = fleet.members["east"]
    await on_haproxy(east, edge, "web", *pods)
    await open_shop(fleet, str(edge.haproxy.socket), f"{workload.pods[0].address}:{POD_PORT}")
    for backend in BACKENDS:
        await edge.checked(backend)
    theirs = edge.theirs("web")
    haproxy = at_haproxy(edge)
    records = {namespace: await record_versions(fleet, namespace) for namespace in ("tenant-east", "shop")}
    assert [len(names) for names in records.values()] == [2, 1]
    states = await conditions(fleet)
    written = json.loads(await fleet.cluster.raw("GET", TCP_LOAD_BALANCERS.path("tenant-east", "default.web")))
    assert written["status"]["provider"] == "haproxy", "the field in which 0.1 says who serves it"
    traffic = Traffic(host="127.0.0.1", port=edge.ports["web"], new_per_s=50)
    traffic.start()

    await upgrade(fleet)
    assert at_haproxy(edge) == haproxy
    assert {namespace: await record_versions(fleet, namespace) for namespace in records} == records
    assert await fleet.hub.metric("fairlead_sync_changes_total", 'provider="haproxy"') == 0
    # It keeps members apart by a class's backends, and this one says of none whose it is: served on, and said.
    after = await conditions(fleet)
    assert [row[2] for row in after["default.web"] if row[0] == "Accepted"] == ["ClassNotUsable"]
    assert [row for row in after["default.web"] if row[0] != "Accepted"] == [
        row for row in states["default.web"] if row[0] != "Accepted"
    ]
    assert {name: rows for name, rows in after.items() if name != "default.web"} == {
        name: rows for name, rows in states.items() if name != "default.web"
    }
    await fleet.cluster.merge_patch(
        LOAD_BALANCER_CLASSES, "", "edge-haproxy", {"spec": {"tenants": ["east"]}}, manager="operator"
    )

    async def accepted_again() -> bool:
        rows = (await conditions(fleet))["default.web"]
        return [row[:3] for row in rows] == [row[:3] for row in states["default.web"]]

    await wait_until(accepted_again, "the class is for one member, and may name backends as it likes")
    assert at_haproxy(edge) == haproxy

    # The present hub goes on where 0.1 has stopped: one more, and then nothing of ours is left.
    pod = await workload.start_pod(east.host("web"))
    await edge.serves("web", *pods, pod.address)
    await traffic.stop()
    assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
    assert await ask("127.0.0.1", edge.ports["web"])
    await east.delete("web")
    await fleet.gone("east", "default.web")
    assert edge.servers("web") == theirs
    await fleet.cluster.delete(LOAD_BALANCERS, "shop", "shared")
    await fleet.cluster.delete(BACKEND_GROUPS, "shop", "fixed")

    async def nothing_on_record() -> bool:
        return await fleet.cluster.list(BACKEND_RECORDS) == []

    await wait_until(nothing_on_record, "no record is left")
    assert set(edge.haproxy.servers("b0")) == {"theirs"}


def at_haproxy(edge: Edge) -> dict[str, list[list[str]]]:
    """Return every server of HAProxy with its state, but not the seconds since the last change."""
    return {backend: without_ages(edge.haproxy.ask(f"show servers state {backend}")) for backend in BACKENDS}


async def open_shop(fleet: Fleet, socket: str, backend: str) -> None:
    """Make a LoadBalancer with a BackendGroup on a backend of the same HAProxy, and wait until it is on record."""
    await fleet.cluster.create(NAMESPACES, {"metadata": {"name": "shop"}})
    await add_class(fleet, "existing", {"provider": "haproxy", "parameters": {"socket": socket}, "drain": "0s"})
    spec: dict[str, Any] = {"className": "existing", "existing": {"backend": "b0"}}
    spec["listeners"] = [{"name": "http", "port": 80}]
    await fleet.cluster.create(LOAD_BALANCERS, {"metadata": {"name": "shared", "namespace": "shop"}, "spec": spec})
    spec = {"loadBalancers": ["shared"], "static": [backend]}
    await fleet.cluster.create(BACKEND_GROUPS, {"metadata": {"name": "fixed", "namespace": "shop"}, "spec": spec})

    async def registered() -> bool:
        records = await fleet.cluster.list(BACKEND_RECORDS, "shop")
        return [record.status.state for record in records] == ["Registered"]

    await wait_until(registered, "the backend of shop is registered")
