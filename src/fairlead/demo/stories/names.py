"""Names and certificates for an Ingress and a Gateway: a real DNS server, orders over ACME, renewal under load.

In: a ``NamesStage``. Out: lines of the show; ``ExpectationFailed`` with one sentence for a broken promise.
Where this user may not open ports 80 and 443, the only ones of an Ingress, a Gateway stands for it on higher ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from fairlead.api.certificateissuer import CERTIFICATE_ISSUERS
from fairlead.api.dnszone import DNS_ZONES
from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS
from fairlead.api.gateway_routes import HTTP_ROUTES
from fairlead.api.ingress import INGRESS_CLASSES, INGRESSES
from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import Resource
from fairlead.api.names import (
    ANNOTATION_CERTIFICATE_ISSUER,
    ANNOTATION_HOSTNAME,
    DEFAULT_CLASS,
    GATEWAY_CONTROLLER,
    INGRESS_CONTROLLER,
    SYSTEM_NAMESPACE,
)
from fairlead.demo.stories.fleet_stage import start_everything
from fairlead.demo.stories.names_stage import HOSTS, MOVING, ZONE, NamedClient, NamesStage
from fairlead.errors import AlreadyExists
from fairlead.kube.preflight import install_crds
from fairlead.testing.gateway_kinds import gateway_crds
from fairlead.testing.worlds.loopback import service_port
from fairlead.testing.worlds.member import Member
from fairlead.testing.worlds.objects import write_slice
from fairlead.testing.worlds.processes import ExpectationFailed, wait_until
from fairlead.testing.worlds.traffic import Traffic
from fairlead.testing.worlds.web import gateway_address, ingress_address, put
from fairlead.testing.worlds.workload import POD_PORT, Workload

REPLICAS = 2
CLASS = "fairlead"
ISSUER = "demo"
#: A request that meets a pod which has ended gets a 503: what a preStop hook is for.
_PRE_STOP_S = 2.0
_CONNECTIONS_OF_CERTIFICATE = 20
_SLOW_S = 150.0
#: Clients that have asked where the name is connect within that time.
_RESOLVED_S = 1.0
_ANSWERS_AFTER_THE_MOVE = 50


async def start_authorities(stage: NamesStage) -> None:
    """Start the DNS server and the certificate authority, and name both at the hub."""
    stage.show.doing("a DNS server and a certificate authority start")
    bind, authority = stage.bind, stage.authority
    await asyncio.gather(bind.start(), authority.start())
    await bind.write(
        ("add", f"www.{ZONE}", "A", "192.0.2.80"),
        ("add", f"a-www.{ZONE}", "TXT", '"heritage=external-dns,external-dns/owner=another"'),
    )
    stage.others = await bind.names()
    hub = stage.fleet.cluster
    with contextlib.suppress(AlreadyExists):
        await hub.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
    meta = {"name": "zone-key", "namespace": SYSTEM_NAMESPACE}
    key = {"metadata": meta, "stringData": {"tsig-secret": bind.secrets["fairlead"]}}
    await hub.apply(SECRETS, key, manager="operator")
    parameters = {"server": bind.server, "keyName": "fairlead", "credentials": meta["name"]}
    spec = {"zone": ZONE, "provider": "rfc2136", "parameters": parameters}
    await hub.apply(DNS_ZONES, {"metadata": {"name": "example"}, "spec": spec}, manager="operator")
    of_issuer = {"server": authority.directory, "solvers": ["DNS01"]}
    await hub.apply(CERTIFICATE_ISSUERS, {"metadata": {"name": ISSUER}, "spec": of_issuer}, manager="operator")
    named = {"metadata": {"annotations": {ANNOTATION_CERTIFICATE_ISSUER: ISSUER}}}
    await hub.merge_patch(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS, named, manager="operator")
    for kind, name in ((DNS_ZONES, "example"), (CERTIFICATE_ISSUERS, ISSUER)):
        await wait_until(lambda kind=kind, name=name: _accepted(stage, kind, name), f"{kind.kind} {name} is accepted")
    stage.show.done(
        "a DNS server and a certificate authority run",
        f"BIND 9, zone {ZONE} at {bind.server}, with {_number(stage.others)} records of others",
        "the authority is Fairlead's own small one for tests, over the real protocol (ACME, RFC 8555): "
        "it looks into that zone for what proves a name",
    )


async def give_names(stage: NamesStage) -> None:
    """Create an Ingress in one member and a Gateway in the other, and wait until their names resolve."""
    stage.show.doing("an Ingress and a Gateway wait for names and certificates")
    members = stage.fleet.members
    await asyncio.gather(*(_prepare(stage, member) for member in members.values()))
    started_s = time.monotonic()
    await asyncio.gather(*(_enter(stage, member) for member in members.values()))
    facts = await asyncio.gather(*(_named(stage, member, started_s) for member in members.values()))
    if stage.entry["east"] is GATEWAYS:
        facts.append("an Ingress is served at ports 80 and 443 only: a Gateway stands for it")
    stage.show.done("both resolve at the zone's own server, and are served with a certificate", *facts)


async def reach_every_backend(stage: NamesStage) -> None:
    """Send traffic to the names until every pod has answered."""
    stage.show.doing("requests to the names flow over HTTPS")
    for traffic in stage.traffics.values():
        traffic.start()
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("at first")
    stage.show.done("requests over HTTPS reach every backend", "each connection asks the DNS server where its name is")


async def refuse_a_taken_host(stage: NamesStage) -> None:
    """Ask in the west for the host that the east has."""
    host, west = HOSTS["east"], stage.fleet.members["west"]
    stage.show.doing(f"the other member asks for {host} too")
    before = await stage.clients["east"].addresses()
    port = {"port": POD_PORT, "targetPort": POD_PORT}
    await west.service("late", port, annotations={ANNOTATION_HOSTNAME: host}, selector={"app": "web"})
    stage.services.append(("west", "late"))

    async def refused() -> bool:
        return "HostnameTaken" in await west.events("late")

    await wait_until(refused, "the Event HostnameTaken at the Service of the other member")
    message = (await west.events("late"))["HostnameTaken"]
    if "east" in message:
        raise ExpectationFailed(f"the refusal names another tenant: {message}")
    if await stage.clients["east"].addresses() != before:
        raise ExpectationFailed(f"{host} points elsewhere since another member asked for it")
    stage.check_traffic("while another member asked for a host that is taken")
    stage.show.done("a member that asks for a host of another one reads that it is taken", f"west: {message}")


async def roll_pods(stage: NamesStage) -> None:
    """Replace every pod of both members, gracefully."""
    stage.show.doing("all pods are replaced, one by one: not ready, drained, stopped")
    await asyncio.gather(*(workload.roll(workload.pods) for workload in stage.workloads.values()))
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("while pods were rolled")
    stage.show.done(f"{REPLICAS} pods of each member were replaced, and no request failed")


async def renew_certificates(stage: NamesStage) -> None:
    """Wait until both certificates have been renewed while requests flow; no connection may be cut."""
    stage.show.doing("the certificates are at two thirds of their life, and are renewed")
    facts = await asyncio.gather(*(_renewed(stage, name) for name in stage.clients))
    stage.check_traffic("while certificates were renewed")
    if cut := stage.cut():
        raise ExpectationFailed(f"{cut} kept connections were cut")
    stage.show.done("both certificates were renewed under load, and no connection was cut", *facts)


async def move_a_name(stage: NamesStage) -> None:
    """Move a name from one load balancer to another under load: both take it, then only the new one."""
    stage.show.doing(f"{MOVING} moves to another address")
    east, client = stage.fleet.members["east"], NamedClient(MOVING, stage.bind, stage.authority.root)
    old = await _moving_service(stage, east, "blue", named=True)
    await _points_to(client, {old})
    traffic = stage.traffics["east Service default/blue, green"] = Traffic(
        host=MOVING, port=POD_PORT, authority=MOVING, connect=client.connect_plainly, new_per_s=50.0, kept=0
    )
    await wait_until(traffic.is_answered, f"http://{MOVING}:{POD_PORT} answers")
    traffic.start()
    new = await _moving_service(stage, east, "green", named=True)
    await _points_to(client, {old, new})
    await _moving_service(stage, east, "blue", named=False)
    await _points_to(client, {new})
    await asyncio.sleep(_RESOLVED_S)
    await east.delete("blue")
    before = traffic.count.answered

    async def goes_on() -> bool:
        return traffic.count.answered >= before + _ANSWERS_AFTER_THE_MOVE

    await wait_until(goes_on, f"{MOVING} is answered at its new address")
    stage.check_traffic(f"while {MOVING} moved")
    fact = f"{MOVING} was at {old}, then at both, and is at {new} now: {traffic.count.sent} requests meanwhile"
    stage.show.done("a name moved to another address under load, and no request failed", fact)


async def take_names_back(stage: NamesStage) -> None:
    """Delete the users' objects: the zone has what others wrote, and nothing else."""
    await stage.stop_traffic()
    stage.show.doing("the Ingress and the Gateway are deleted")
    if missing := [
        name for name, values in stage.others.items() if not values <= (await _zone(stage)).get(name, set())
    ]:
        raise ExpectationFailed(f"records of others are gone from the zone: {', '.join(missing)}")
    ours = _number(await _zone(stage)) - _number(stage.others)
    for name, member in stage.fleet.members.items():
        await member.cluster.delete(stage.entry[name], "default", "web")
    await asyncio.gather(*(stage.fleet.members[member].delete(service) for member, service in stage.services))

    async def as_before() -> bool:
        return await _zone(stage) == stage.others

    await wait_until(as_before, "the zone has the records of others, and nothing else", timeout_s=_SLOW_S)
    stage.show.done(
        "the zone is as it was: all of ours are gone, and every record of others is there",
        f"{ours} records of ours removed, {_number(stage.others)} of others kept",
    )


STEPS = (
    start_everything,
    start_authorities,
    give_names,
    reach_every_backend,
    refuse_a_taken_host,
    roll_pods,
    renew_certificates,
    move_a_name,
    take_names_back,
)


async def _prepare(stage: NamesStage, member: Member) -> None:
    """Write what there is before anything asks for a name: a node, pods, a Service and the classes."""
    host = member.host("web")
    workload = stage.workloads[member.name] = Workload(
        cluster=member.cluster, service="web", directory=stage.fleet.directory, pre_stop_s=_PRE_STOP_S
    )
    await member.node(host.node, f"{member.network}.1")
    await asyncio.gather(*(workload.start_pod(host) for _ in range(REPLICAS)))
    await member.service("web", {"port": 80, "targetPort": POD_PORT}, type="ClusterIP", selector={"app": "web"})
    if stage.entry[member.name] is INGRESSES:
        await put(member, INGRESS_CLASSES, CLASS, {"controller": INGRESS_CONTROLLER})
        return
    if problems := await install_crds(member.cluster, gateway_crds(), "user"):
        raise ExpectationFailed(problems[0])
    await put(member, GATEWAY_CLASSES, CLASS, {"controllerName": GATEWAY_CONTROLLER})
    rules = [{"backendRefs": [{"name": "web", "port": 80}]}]
    await put(member, HTTP_ROUTES, "web", {"parentRefs": [{"name": "web"}], "rules": rules})


async def _enter(stage: NamesStage, member: Member) -> None:
    """Write the Ingress or Gateway; the hub is asked for its certificate."""
    kind, host = stage.entry[member.name], HOSTS[member.name]
    meta = {"name": "web", "namespace": "default", "annotations": {ANNOTATION_CERTIFICATE_ISSUER: ISSUER}}
    spec = _ingress(host) if kind is INGRESSES else _gateway(host)
    await member.cluster.apply(kind, {"metadata": meta, "spec": spec}, manager="user")


def _ingress(host: str) -> dict[str, Any]:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        "ingressClassName": CLASS,
        "tls": [{"hosts": [host], "secretName": "web-tls"}],
        "rules": [{"host": host, "http": {"paths": [path]}}],
    }


def _gateway(host: str) -> dict[str, Any]:
    https = {
        "name": "https",
        "port": service_port(443),
        "protocol": "HTTPS",
        "hostname": host,
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": "web-tls"}]},
    }
    return {"gatewayClassName": CLASS, "listeners": [https]}


async def _named(stage: NamesStage, member: Member, started_s: float) -> str:
    """Wait until a member's names resolve to its address, and are served; return how long each took."""
    name, bind = member.name, stage.bind
    host, made = HOSTS[name], stage.generated(name)
    client = stage.clients[name] = NamedClient(host, bind, stage.authority.root)
    port = service_port(443)

    async def resolves() -> bool:
        there = await bind.ask(host, "A")
        return bool(there) and await bind.ask(made, "A") == there

    await wait_until(resolves, f"{host} and {made} resolve", timeout_s=_SLOW_S)
    resolved_s = time.monotonic() - started_s
    traffic = stage.traffics[stage.title(name)] = Traffic(host=host, port=port, authority=host, connect=client.connect)
    await wait_until(traffic.is_answered, f"https://{host}:{port} answers with a certificate", timeout_s=_SLOW_S)
    served_s = time.monotonic() - started_s
    at_made = NamedClient(made, bind, stage.authority.root)
    generated = Traffic(host=made, port=port, authority=made, connect=at_made.connect)
    await wait_until(generated.is_answered, f"https://{made}:{port} answers with a certificate", timeout_s=_SLOW_S)
    address = await (ingress_address if stage.entry[name] is INGRESSES else gateway_address)(member, "web")
    if await client.addresses() != {address}:
        raise ExpectationFailed(f"{host} does not point to {address}, the address that {name} shows")
    kind = stage.entry[name].kind
    return (
        f"{name}: {kind} web   {host} and {made} are {address} after {resolved_s:.1f} s, "
        f"https://{host}:{port} after {served_s:.1f} s, https://{made}:{port} too"
    )


async def _moving_service(stage: NamesStage, member: Member, name: str, *, named: bool) -> str:
    """Write one of the two Services that the name moves between, with the pods of the Ingress; return its address."""
    port = {"port": POD_PORT, "targetPort": POD_PORT}
    endpoints = [pod.endpoint() for pod in stage.workloads[member.name].pods]
    await write_slice(member.cluster, name, endpoints, port=POD_PORT)
    annotations = {ANNOTATION_HOSTNAME: MOVING} if named else {}
    await member.service(name, port, annotations=annotations, selector={"app": "web"})
    if name == "green":
        stage.services.append((member.name, name))
    return await member.address(name)


async def _points_to(client: NamedClient, addresses: set[str]) -> None:
    async def so() -> bool:
        return await client.addresses() == addresses

    await wait_until(so, f"{client.host} points to {' and '.join(sorted(addresses))}", timeout_s=_SLOW_S)


async def _renewed(stage: NamesStage, name: str) -> str:
    """Wait until new connections to a member's name get another certificate than the first; return how many did."""
    shown = stage.clients[name].https.shown
    # In the order in which they were seen first.
    first = next(iter(shown))

    async def in_use() -> bool:
        return shown.total() - shown[first] >= _CONNECTIONS_OF_CERTIFICATE

    await wait_until(in_use, f"{name} uses a renewed certificate", timeout_s=_SLOW_S)
    return f"{name}: {shown[first]} connections got the first one, {shown.total() - shown[first]} so far a newer one"


async def _accepted(stage: NamesStage, kind: Resource[Any], name: str) -> bool:
    """Return whether the hub can use a zone or an authority."""
    conditions = (await stage.fleet.cluster.get(kind, "", name)).status.conditions or ()
    return any(each.type == "Accepted" and each.status == "True" for each in conditions)


async def _zone(stage: NamesStage) -> dict[str, set[str]]:
    return await stage.bind.names()


def _number(records: dict[str, set[str]]) -> int:
    return sum(map(len, records.values()))
