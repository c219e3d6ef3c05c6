"""Names and certificates for an Ingress and a Gateway: a real DNS server, orders over ACME, renewal under load.

In: a ``NamesContext``. Out: lines of progress; ``ExpectationFailed`` with one sentence when a check fails.
Where this user may not open ports 80 and 443, the only ones of an Ingress, a Gateway takes its place on higher ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from fairlead.api.gateway import GATEWAYS, HTTP_ROUTES
from fairlead.api.hostname import DNS_ZONES
from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS
from fairlead.api.meta import Resource, is_true
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER, ANNOTATION_HOSTNAME, DEFAULT_CLASS, SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists
from fairlead_demo.stories.context import HOSTS, MOVING, ZONE, NamedClient, NamesContext, start_everything
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.objects import write_slice
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.traffic import Traffic
from fairlead_demo.worlds.web import https_spec, put, put_class
from fairlead_demo.worlds.workload import POD_PORT, Workload

REPLICAS = 2
ISSUER = "demo"
#: Duration of the preStop hook of pods; without it, requests to a pod that has ended get a 503.
_PRE_STOP_S = 2.0
_CONNECTIONS_OF_CERTIFICATE = 20
_SLOW_S = 150.0
#: Clients connect within this time after they have resolved the name.
_RESOLVED_S = 1.0
_ANSWERS_AFTER_THE_MOVE = 50


async def start_authorities(context: NamesContext) -> None:
    """Start the DNS server and the certificate authority, and name both at the hub."""
    context.progress.step_started("a DNS server and a certificate authority start")
    bind, authority = context.bind, context.authority
    await asyncio.gather(bind.start(), authority.start())
    await bind.write(
        ("add", f"www.{ZONE}", "A", "192.0.2.80"),
        ("add", f"a-www.{ZONE}", "TXT", '"heritage=external-dns,external-dns/owner=another"'),
    )
    context.others = await bind.names()
    hub = context.fleet.cluster
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
        await wait_until(lambda kind=kind, name=name: _accepted(context, kind, name), f"{kind.kind} {name} is accepted")
    context.progress.step_done(
        "a DNS server and a certificate authority run",
        f"BIND 9, zone {ZONE} at {bind.server}, with {_number(context.others)} records of others",
        "the authority is Fairlead's own small one for tests, over the real protocol (ACME, RFC 8555): "
        "it looks into that zone for what proves a name",
    )


async def give_names(context: NamesContext) -> None:
    """Create an Ingress in one member and a Gateway in the other, and wait until their names resolve."""
    context.progress.step_started("an Ingress and a Gateway wait for names and certificates")
    members = context.fleet.members
    await asyncio.gather(*(_prepare(context, member) for member in members.values()))
    started_s = time.monotonic()
    await asyncio.gather(*(_enter(context, member) for member in members.values()))
    facts = await asyncio.gather(*(_named(context, member, started_s) for member in members.values()))
    facts += context.instead_of_ingress()
    context.progress.step_done("both resolve at the zone's own server, and are served with a certificate", *facts)


async def reach_every_backend(context: NamesContext) -> None:
    """Send traffic to the names until every pod has answered."""
    context.progress.step_started("requests to the names flow over HTTPS")
    for traffic in context.traffics.values():
        traffic.start()
    await context.every_pod_answers(context.pods)
    context.check_traffic("at first")
    context.progress.step_done(
        "requests over HTTPS reach every backend", "each connection resolves its name at the DNS server"
    )


async def refuse_a_taken_host(context: NamesContext) -> None:
    """Request in the west a host that the east has; check that it is refused."""
    host, west = HOSTS["east"], context.fleet.members["west"]
    context.progress.step_started(f"the other member asks for {host} too")
    before = await context.clients["east"].addresses()
    port = {"port": POD_PORT, "targetPort": POD_PORT}
    await west.service("late", port, annotations={ANNOTATION_HOSTNAME: host}, selector={"app": "web"})
    context.services.append(("west", "late"))

    async def refused() -> bool:
        return "HostnameTaken" in await west.events("late")

    await wait_until(refused, "the Event HostnameTaken at the Service of the other member")
    message = (await west.events("late"))["HostnameTaken"]
    if "east" in message:
        raise ExpectationFailed(f"the refusal names another tenant: {message}")
    if await context.clients["east"].addresses() != before:
        raise ExpectationFailed(f"{host} points elsewhere since another member asked for it")
    context.check_traffic("while another member asked for a host that is taken")
    context.progress.step_done(
        "a member that asks for a host of another one reads that it is taken", f"west: {message}"
    )


async def roll_pods(context: NamesContext) -> None:
    """Replace every pod of both members, gracefully."""
    await context.roll_pods(f"{REPLICAS} pods of each member")


async def renew_certificates(context: NamesContext) -> None:
    """Wait until both certificates have been renewed while requests flow; no connection may be cut."""
    context.progress.step_started("the certificates are at two thirds of their life, and are renewed")
    facts = await asyncio.gather(*(_renewed(context, name) for name in context.clients))
    context.check_traffic("while certificates were renewed")
    if cut := context.cut():
        raise ExpectationFailed(f"{cut} kept connections were cut")
    context.progress.step_done("both certificates were renewed under load, and no connection was cut", *facts)


async def move_a_name(context: NamesContext) -> None:
    """Move a name from one load balancer to another under load: first both serve it, then only the new one."""
    context.progress.step_started(f"{MOVING} moves to another address")
    east, client = context.fleet.members["east"], NamedClient(MOVING, context.bind, context.authority.root)
    old = await _moving_service(context, east, "blue", named=True)
    await _points_to(client, {old})
    traffic = context.traffics["east Service default/blue, green"] = Traffic(
        host=MOVING, port=POD_PORT, authority=MOVING, connect=client.connect_plainly, new_per_s=50.0, kept=0
    )
    await wait_until(traffic.is_answered, f"http://{MOVING}:{POD_PORT} answers")
    traffic.start()
    new = await _moving_service(context, east, "green", named=True)
    await _points_to(client, {old, new})
    await _moving_service(context, east, "blue", named=False)
    await _points_to(client, {new})
    await asyncio.sleep(_RESOLVED_S)
    await east.delete("blue")
    before = traffic.count.answered

    async def goes_on() -> bool:
        return traffic.count.answered >= before + _ANSWERS_AFTER_THE_MOVE

    await wait_until(goes_on, f"{MOVING} is answered at its new address")
    context.check_traffic(f"while {MOVING} moved")
    fact = f"{MOVING} was at {old}, then at both, and is at {new} now: {traffic.count.sent} requests meanwhile"
    context.progress.step_done("a name moved to another address under load, and no request failed", fact)


async def take_names_back(context: NamesContext) -> None:
    """Delete the users' objects; check that only the records of others are left in the zone."""
    await context.stop_traffic()
    context.progress.step_started("the Ingress and the Gateway are deleted")
    if missing := [
        name for name, values in context.others.items() if not values <= (await context.bind.names()).get(name, set())
    ]:
        raise ExpectationFailed(f"records of others are gone from the zone: {', '.join(missing)}")
    ours = _number(await context.bind.names()) - _number(context.others)
    for name, member in context.fleet.members.items():
        await member.cluster.delete(context.entry[name], "default", "web")
    await asyncio.gather(*(context.fleet.members[member].delete(service) for member, service in context.services))

    async def as_before() -> bool:
        return await context.bind.names() == context.others

    await wait_until(as_before, "the zone has the records of others, and nothing else", timeout_s=_SLOW_S)
    context.progress.step_done(
        "the zone is as it was: all records of Fairlead are removed, and every record of others is there",
        f"{ours} records of Fairlead removed, {_number(context.others)} of others kept",
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


async def _prepare(context: NamesContext, member: Member) -> None:
    """Create the objects that an Ingress or Gateway needs: a node, pods, a Service and the classes."""
    host = member.host("web")
    workload = context.workloads[member.name] = Workload(
        cluster=member.cluster, service="web", directory=context.fleet.directory, pre_stop_s=_PRE_STOP_S
    )
    await member.node(host.node, f"{member.network}.1")
    await asyncio.gather(*(workload.start_pod(host) for _ in range(REPLICAS)))
    await member.service("web", {"port": 80, "targetPort": POD_PORT}, type="ClusterIP", selector={"app": "web"})
    await put_class(member, context.entry[member.name])
    if context.entry[member.name] is GATEWAYS:
        rules = [{"backendRefs": [{"name": "web", "port": 80}]}]
        await put(member, HTTP_ROUTES, "web", {"parentRefs": [{"name": "web"}], "rules": rules})


async def _enter(context: NamesContext, member: Member) -> None:
    """Create the Ingress or Gateway, whose certificate the hub orders."""
    kind, host = context.entry[member.name], HOSTS[member.name]
    meta = {"name": "web", "namespace": "default", "annotations": {ANNOTATION_CERTIFICATE_ISSUER: ISSUER}}
    await member.cluster.apply(kind, {"metadata": meta, "spec": https_spec(kind, host, "web")}, manager="user")


async def _named(context: NamesContext, member: Member, started_s: float) -> str:
    """Wait until a member's names resolve to its address and are served; return a line with the seconds of each."""
    name, bind = member.name, context.bind
    host, made = HOSTS[name], context.generated(name)
    client = context.clients[name] = NamedClient(host, bind, context.authority.root)
    port = service_port(443)

    async def resolves() -> bool:
        answered = await bind.ask(host, "A")
        return bool(answered) and await bind.ask(made, "A") == answered

    await wait_until(resolves, f"{host} and {made} resolve", timeout_s=_SLOW_S)
    resolved_s = time.monotonic() - started_s
    traffic = context.traffics[context.title(name)] = Traffic(
        host=host, port=port, authority=host, connect=client.connect
    )
    await wait_until(traffic.is_answered, f"https://{host}:{port} answers with a certificate", timeout_s=_SLOW_S)
    served_s = time.monotonic() - started_s
    at_made = NamedClient(made, bind, context.authority.root)
    generated = Traffic(host=made, port=port, authority=made, connect=at_made.connect)
    await wait_until(generated.is_answered, f"https://{made}:{port} answers with a certificate", timeout_s=_SLOW_S)
    address = await context.address(member)
    if await client.addresses() != {address}:
        raise ExpectationFailed(f"{host} does not point to {address}, the address that {name} shows")
    kind = context.entry[name].kind
    return (
        f"{name}: {kind} web   {host} and {made} are {address} after {resolved_s:.1f} s, "
        f"https://{host}:{port} after {served_s:.1f} s, https://{made}:{port} too"
    )


async def _moving_service(context: NamesContext, member: Member, name: str, *, named: bool) -> str:
    """Create one of the two Services between which the name moves, for the pods of the Ingress; return its address."""
    port = {"port": POD_PORT, "targetPort": POD_PORT}
    endpoints = [pod.endpoint() for pod in context.workloads[member.name].pods]
    await write_slice(member.cluster, name, endpoints, port=POD_PORT)
    annotations = {ANNOTATION_HOSTNAME: MOVING} if named else {}
    await member.service(name, port, annotations=annotations, selector={"app": "web"})
    if name == "green":
        context.services.append((member.name, name))
    return await member.address(name)


async def _points_to(client: NamedClient, addresses: set[str]) -> None:
    async def resolves() -> bool:
        return await client.addresses() == addresses

    await wait_until(resolves, f"{client.host} points to {' and '.join(sorted(addresses))}", timeout_s=_SLOW_S)


async def _renewed(context: NamesContext, name: str) -> str:
    """Wait until new connections to a member's name get a renewed certificate; return a line with their counts."""
    connections = context.clients[name].https.connections_by_certificate
    # A Counter keeps the order of insertion.
    first = next(iter(connections))

    async def in_use() -> bool:
        return connections.total() - connections[first] >= _CONNECTIONS_OF_CERTIFICATE

    await wait_until(in_use, f"{name} uses a renewed certificate", timeout_s=_SLOW_S)
    renewed = connections.total() - connections[first]
    return f"{name}: {connections[first]} connections got the first one, {renewed} so far a newer one"


async def _accepted(context: NamesContext, kind: Resource[Any], name: str) -> bool:
    """Return whether the condition Accepted of a zone or issuer is True."""
    return is_true((await context.fleet.cluster.get(kind, "", name)).status.conditions, "Accepted")


def _number(records: dict[str, set[str]]) -> int:
    return sum(map(len, records.values()))
