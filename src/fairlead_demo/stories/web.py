"""HTTPS for two members, an Ingress and a Gateway: a canary, new certificates, rolled pods, hub and agents killed.

In: a ``WebContext``. Out: lines of progress; ``ExpectationFailed`` with one sentence when a check fails.
Where this user may not open ports 80 and 443, the only ones of an Ingress, a Gateway takes its place on higher ports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from rich.console import Console

from fairlead.api.gateway import GATEWAYS, HTTP_ROUTES
from fairlead.api.kubernetes import INGRESSES
from fairlead_demo.stories.context import HTTPSContext, start_everything
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.https_client import HttpsClient
from fairlead_demo.worlds.loopback import free_network, service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.traffic import Traffic
from fairlead_demo.worlds.web import certificate, https_spec, put, put_class, write_certificate
from fairlead_demo.worlds.workload import POD_PORT, Host, Workload

REPLICAS = 2
HOST = "shop.example.com"
#: Weights of the new version in percent, in the order of the steps.
STEPS_OF_CANARY = (10, 25, 50, 75, 100)
_ANSWERS_OF_STEP = 40
#: Duration of the preStop hook of pods; without it, requests to a pod that has ended get a 503.
_PRE_STOP_S = 2.0
_CONNECTIONS_OF_CERTIFICATE = 20
#: The Services of each member; the first one gets all traffic at the beginning.
_SERVICES = {"east": ("web",), "west": ("stable", "canary")}


class WebContext(HTTPSContext):
    """The context of this demo; ``traffics`` by member and user's object, ``workloads`` by Service.

    ``serving``: the Service whose pods answer, by member.
    """

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(fleet=fleet, apis=apis, console=console, plain=plain)
        self.serving = {member: services[0] for member, services in _SERVICES.items()}
        self.clients: dict[str, HttpsClient] = {}
        self.certificates: dict[str, bytes] = {}

    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (title of its traffic, name) of every pod that should answer."""
        return (
            (self.title(member), pod.name)
            for member, service in self.serving.items()
            for pod in self.workloads[service].pods
        )

    def answers(self, member: str, service: str) -> int:
        """Return the number of requests to a member that pods of a Service have answered."""
        by_pod = self.traffics[self.title(member)].count.by_pod
        return sum(number for pod, number in by_pod.items() if pod.startswith(f"{service}-"))

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary: what was checked in addition to failed requests."""
        return f", {self.cut()} connections cut" if passed else ""

    def commands(self) -> list[str]:
        """Return commands that the user can try while everything is kept running."""
        port = service_port(443)
        return [
            *self.kubectl("httplb,lbroute", "ingresses,gateways,httproutes"),
            f"  fairlead route GET https://{HOST}:{port}/ --kubeconfig {self.fleet.kubeconfig}",
            *(
                f"  curl --insecure --resolve {HOST}:{port}:{traffic.host} https://{HOST}:{port}/     # {name}"
                for name, traffic in self.traffics.items()
            ),
        ]


async def give_addresses(context: WebContext) -> None:
    """Create pods, certificates, an Ingress in one member and a Gateway in the other, and wait for their addresses."""
    context.progress.step_started("an Ingress and a Gateway wait for their addresses")
    await asyncio.gather(*(_prepare(context, member) for member in context.fleet.members.values()))
    facts: list[str] = []
    for name, member in context.fleet.members.items():
        address = await context.address(member)
        context.clients[name] = HttpsClient(HOST, context.certificates[name])
        context.traffics[context.title(name)] = Traffic(
            host=address, port=service_port(443), authority=HOST, connect=context.clients[name].connect
        )
        facts.append(f"{name}: {context.entry[name].kind} web   ADDRESS {address}   https://{HOST}:{service_port(443)}")
    context.progress.step_done("both members have an address for HTTPS", *facts, *context.instead_of_ingress())


async def reach_every_backend(context: WebContext) -> None:
    """Send traffic until every pod has answered."""
    context.progress.step_started("requests over HTTPS flow")
    for name, traffic in context.traffics.items():
        # An Ingress shows the address of its class, which exists before its own routes are served.
        await wait_until(traffic.is_answered, f"{name} answers")
        traffic.start()
    await context.every_pod_answers(context.pods)
    context.check_traffic("at first")
    context.progress.step_done("requests over HTTPS reach every backend", "certificates are verified by the clients")


async def shift_canary(context: WebContext) -> None:
    """Shift the traffic of the west to another Service by the weights of its HTTPRoute."""
    context.progress.step_started("an HTTPRoute shifts the traffic to a new version")
    if early := context.answers("west", "canary"):
        raise ExpectationFailed(f"{early} requests reached the new version while its weight was 0")
    facts: list[str] = []
    for percent in STEPS_OF_CANARY:
        await _route(context.fleet.members["west"], {"stable": 100 - percent, "canary": percent})
        share = await _shares(context, percent)
        facts.append(f"{percent} %: {share}")
        context.check_traffic(f"at a weight of {percent} %")
    context.serving["west"] = "canary"
    await context.every_pod_answers(context.pods)
    context.progress.step_done(
        "all traffic went over to the new version, step by step, and no request failed", ";  ".join(facts)
    )


async def rotate_certificates(context: WebContext) -> None:
    """Replace the certificates of both members; check that open connections are kept."""
    context.progress.step_started("the certificates of both members are replaced")
    cut = context.cut()
    facts: list[str] = []
    for name, member in context.fleet.members.items():
        old, client = context.certificates[name], context.clients[name]
        new = context.certificates[name] = await _rotated(member, client, old)
        counts = client.connections_by_certificate
        facts.append(f"{name}: {counts[old]} connections got the old one, {counts[new]} so far the new one")
    await context.every_pod_answers(context.pods)
    context.check_traffic("while certificates were replaced")
    if context.cut() != cut:
        raise ExpectationFailed(f"{context.cut() - cut} kept connections were cut by a new certificate")
    context.progress.step_done("both certificates were replaced, and no connection was cut", *facts)


async def roll_pods(context: WebContext) -> None:
    """Replace every pod of both members, gracefully."""
    await context.roll_pods(f"{REPLICAS} pods of each Service")


async def kill_control_plane(context: WebContext) -> None:
    """Kill hub and agents with SIGKILL under load and restart them; check that nothing was changed."""
    await context.survive_control_plane(lambda: _versions(context), "objects")


STEPS = (
    start_everything,
    give_addresses,
    reach_every_backend,
    shift_canary,
    rotate_certificates,
    roll_pods,
    kill_control_plane,
)


async def _prepare(context: WebContext, member: Member) -> None:
    """Create all objects of a member."""
    services = _SERVICES[member.name]
    for number, service in enumerate(services):
        workload = context.workloads[service] = Workload(
            cluster=member.cluster, service=service, directory=context.fleet.directory, pre_stop_s=_PRE_STOP_S
        )
        # A node for each Service: pods of two Services on one node would get the same addresses.
        network = free_network() if number else member.network
        host = Host(f"{member.name}-node-{number + 1}", network, f"{service}-{member.name}")
        await member.node(host.node, f"{network}.1")
        await asyncio.gather(*(workload.start_pod(host) for _ in range(REPLICAS)))
        port = {"port": 80, "targetPort": POD_PORT}
        await member.service(service, port, type="ClusterIP", selector={"app": service})
    context.certificates[member.name] = await certificate(member, HOST)
    kind = context.entry[member.name]
    await put_class(member, kind)
    if kind is GATEWAYS:
        await _route(member, {service: 0 if number else 100 for number, service in enumerate(services)})
    await put(member, kind, "web", https_spec(kind, HOST, services[0]))


async def _route(member: Member, weights: Mapping[str, int]) -> None:
    """Write the HTTPRoute that splits the requests by ``weights``."""
    backends = [{"name": service, "port": 80, "weight": weight} for service, weight in weights.items()]
    spec = {"parentRefs": [{"name": "web"}], "hostnames": [HOST], "rules": [{"backendRefs": backends}]}
    await put(member, HTTP_ROUTES, "web", spec)


async def _shares(context: WebContext, percent: int) -> str:
    """Wait until the answers match the weights; return "N of M" requests to the new version."""
    stable, canary = context.answers("west", "stable"), context.answers("west", "canary")

    async def met() -> bool:
        nonlocal stable, canary
        to_stable, to_canary = context.answers("west", "stable") - stable, context.answers("west", "canary") - canary
        if percent == 100 and to_stable:
            # At 100 % the change has taken effect when no request still goes to the old version.
            stable, canary = context.answers("west", "stable"), context.answers("west", "canary")
            return False
        both = to_canary and (to_stable or percent == 100)
        return bool(both) and to_stable + to_canary >= _ANSWERS_OF_STEP

    await wait_until(met, f"requests meet a weight of {percent} %")
    to_stable, to_canary = context.answers("west", "stable") - stable, context.answers("west", "canary") - canary
    return f"{to_canary} of {to_stable + to_canary}"


async def _rotated(member: Member, client: HttpsClient, old: bytes) -> bytes:
    """Replace the certificate of a member, wait until new connections get it, and return it (PEM)."""
    # Clients trust both certificates during the rotation.
    new, key = self_signed(HOST)
    client.trust(old, new)
    await write_certificate(member, new, key)

    async def in_use() -> bool:
        return client.connections_by_certificate[new] >= _CONNECTIONS_OF_CERTIFICATE

    await wait_until(in_use, f"{member.name} uses its new certificate")
    client.trust(new)
    return new


async def _versions(context: WebContext) -> dict[str, str]:
    """Return the resourceVersion of every user's object; any write changes it."""
    versions: dict[str, str] = {}
    for name, member in context.fleet.members.items():
        kinds = [INGRESSES] if context.entry[name] is INGRESSES else [GATEWAYS, HTTP_ROUTES]
        for kind in kinds:
            body = await member.cluster.get(kind, "default", "web")
            versions[f"{name} {kind.kind}"] = body.metadata.resource_version
    return versions
