"""HTTPS for two members, an Ingress and a Gateway: a canary, new certificates, rolled pods, hub and agents killed.

In: a ``WebStage``. Out: lines of the show; ``ExpectationFailed`` with one sentence for a broken promise.
Where this user may not open ports 80 and 443, the only ones of an Ingress, a Gateway stands for it on higher ports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS
from fairlead.api.gateway_routes import HTTP_ROUTES
from fairlead.api.ingress import INGRESS_CLASSES, INGRESSES
from fairlead.api.meta import Resource
from fairlead.api.names import GATEWAY_CONTROLLER, INGRESS_CONTROLLER
from fairlead.demo.stories.fleet_stage import FleetStage, start_everything
from fairlead.kube.preflight import install_crds
from fairlead.testing.certificates import self_signed
from fairlead.testing.gateway_kinds import gateway_crds
from fairlead.testing.worlds.apis import EmbeddedApis
from fairlead.testing.worlds.fleet import Fleet
from fairlead.testing.worlds.https_client import HttpsClient
from fairlead.testing.worlds.loopback import free_network, service_port
from fairlead.testing.worlds.member import Member
from fairlead.testing.worlds.processes import ExpectationFailed, wait_until
from fairlead.testing.worlds.traffic import Traffic
from fairlead.testing.worlds.web import certificate, gateway_address, ingress_address, put, write_certificate
from fairlead.testing.worlds.workload import POD_PORT, Host, Workload

REPLICAS = 2
HOST = "shop.example.com"
CLASS = "fairlead"
#: Percent of the requests that the new version gets, step by step.
STEPS_OF_CANARY = (10, 25, 50, 75, 100)
_ANSWERS_OF_STEP = 40
#: A request that meets a pod which has ended gets a 503: what a preStop hook is for.
_PRE_STOP_S = 2.0
_CONNECTIONS_OF_CERTIFICATE = 20
#: Members, and the Services of each; the first one has all the traffic at the beginning.
_SERVICES = {"east": ("web",), "west": ("stable", "canary")}


class WebStage(FleetStage):
    """``traffics``: by member and the user's object. ``workloads``: by Service.

    ``entry``: the kind that gives each member its address. ``serving``: the Service whose pods answer in each member.
    """

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(fleet=fleet, apis=apis, console=console, plain=plain)
        low_ports = service_port(80) == 80
        self.entry: dict[str, Resource[Any]] = {"east": INGRESSES if low_ports else GATEWAYS, "west": GATEWAYS}
        self.serving = {member: services[0] for member, services in _SERVICES.items()}
        self.clients: dict[str, HttpsClient] = {}
        self.certificates: dict[str, bytes] = {}

    def title(self, member: str) -> str:
        """Return what the traffic of a member is called."""
        return f"{member} {self.entry[member].kind} default/web"

    def pods(self) -> Iterator[tuple[str, str]]:
        """Return every pod that should answer, with the name of its traffic."""
        return (
            (self.title(member), pod.name)
            for member, service in self.serving.items()
            for pod in self.workloads[service].pods
        )

    def answers(self, member: str, service: str) -> int:
        """Return how many requests to a member were answered by pods of a Service."""
        by_pod = self.traffics[self.title(member)].count.by_pod
        return sum(number for pod, number in by_pod.items() if pod.startswith(f"{service}-"))

    def ending(self, *, passed: bool) -> str:
        """Return what else was checked."""
        return f", {self.cut()} connections cut" if passed else ""

    def commands(self) -> list[str]:
        """Return commands to try while everything is kept running."""
        port = service_port(443)
        return [
            *self.kubectl("httplb,lbroute", "ingresses,gateways,httproutes"),
            f"  fairlead route GET https://{HOST}:{port}/ --kubeconfig {self.fleet.kubeconfig}",
            *(
                f"  curl --insecure --resolve {HOST}:{port}:{traffic.host} https://{HOST}:{port}/     # {name}"
                for name, traffic in self.traffics.items()
            ),
        ]


async def give_addresses(stage: WebStage) -> None:
    """Create pods, certificates, an Ingress in one member and a Gateway in the other, and wait for their addresses."""
    stage.show.doing("an Ingress and a Gateway wait for their addresses")
    await asyncio.gather(*(_prepare(stage, member) for member in stage.fleet.members.values()))
    facts: list[str] = []
    for name, member in stage.fleet.members.items():
        is_ingress = stage.entry[name] is INGRESSES
        address = await (ingress_address if is_ingress else gateway_address)(member, "web")
        stage.clients[name] = HttpsClient(HOST, stage.certificates[name])
        stage.traffics[stage.title(name)] = Traffic(
            host=address, port=service_port(443), authority=HOST, connect=stage.clients[name].connect
        )
        facts.append(f"{name}: {stage.entry[name].kind} web   ADDRESS {address}   https://{HOST}:{service_port(443)}")
    if GATEWAYS is stage.entry["east"]:
        facts.append("an Ingress is served at ports 80 and 443 only: a Gateway stands for it")
    stage.show.done("both members have an address for HTTPS", *facts)


async def reach_every_backend(stage: WebStage) -> None:
    """Send traffic until every pod has answered."""
    stage.show.doing("requests over HTTPS flow")
    for name, traffic in stage.traffics.items():
        # An Ingress shows the address of its class, which is there before its own routes are.
        await wait_until(traffic.is_answered, f"{name} answers")
        traffic.start()
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("at first")
    stage.show.done("requests over HTTPS reach every backend", "certificates are verified by the clients")


async def shift_canary(stage: WebStage) -> None:
    """Shift the traffic of the west to another Service by the weights of its HTTPRoute."""
    stage.show.doing("an HTTPRoute shifts the traffic to a new version")
    if early := stage.answers("west", "canary"):
        raise ExpectationFailed(f"{early} requests reached the new version while its weight was 0")
    facts: list[str] = []
    for percent in STEPS_OF_CANARY:
        await _route(stage.fleet.members["west"], {"stable": 100 - percent, "canary": percent})
        share = await _shares(stage, percent)
        facts.append(f"{percent} %: {share}")
        stage.check_traffic(f"at a weight of {percent} %")
    stage.serving["west"] = "canary"
    await stage.every_pod_answers(stage.pods)
    stage.show.done("all traffic went over to the new version, step by step, and no request failed", ";  ".join(facts))


async def rotate_certificates(stage: WebStage) -> None:
    """Replace the certificates of both members; connections that are open stay open."""
    stage.show.doing("the certificates of both members are replaced")
    cut = stage.cut()
    facts: list[str] = []
    for name, member in stage.fleet.members.items():
        old, client = stage.certificates[name], stage.clients[name]
        new = stage.certificates[name] = await _rotated(member, client, old)
        facts.append(f"{name}: {client.shown[old]} connections got the old one, {client.shown[new]} so far the new one")
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("while certificates were replaced")
    if stage.cut() != cut:
        raise ExpectationFailed(f"{stage.cut() - cut} kept connections were cut by a new certificate")
    stage.show.done("both certificates were replaced, and no connection was cut", *facts)


async def roll_pods(stage: WebStage) -> None:
    """Replace every pod of both members, gracefully."""
    stage.show.doing("all pods are replaced, one by one: not ready, drained, stopped")
    cut = stage.cut()
    await asyncio.gather(*(workload.roll(workload.pods) for workload in stage.workloads.values()))
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("while pods were rolled")
    if stage.cut() != cut:
        raise ExpectationFailed(f"rolling pods cut {stage.cut() - cut} kept connections of clients")
    stage.show.done(f"{REPLICAS} pods of each Service were replaced, and no request failed")


async def kill_control_plane(stage: WebStage) -> None:
    """Kill hub and agents with SIGKILL while traffic flows; bring them back; look for any difference."""
    alone = await stage.survive_control_plane(lambda: _versions(stage))
    stage.show.done(
        "hub and agents were killed with -9, came back, and changed nothing",
        f"{alone} requests answered meanwhile; 0 changed xDS resources, 0 cut connections, "
        "0 writes to users' objects, the same addresses",
    )


STEPS = (
    start_everything,
    give_addresses,
    reach_every_backend,
    shift_canary,
    rotate_certificates,
    roll_pods,
    kill_control_plane,
)


async def _prepare(stage: WebStage, member: Member) -> None:
    """Write all objects of a member."""
    services = _SERVICES[member.name]
    for number, service in enumerate(services):
        workload = stage.workloads[service] = Workload(
            cluster=member.cluster, service=service, directory=stage.fleet.directory, pre_stop_s=_PRE_STOP_S
        )
        # A node for each Service: pods of two Services on one node would get the same addresses.
        network = free_network() if number else member.network
        host = Host(f"{member.name}-node-{number + 1}", network, f"{service}-{member.name}")
        await member.node(host.node, f"{network}.1")
        await asyncio.gather(*(workload.start_pod(host) for _ in range(REPLICAS)))
        port = {"port": 80, "targetPort": POD_PORT}
        await member.service(service, port, type="ClusterIP", selector={"app": service})
    stage.certificates[member.name] = await certificate(member, HOST)
    if stage.entry[member.name] is INGRESSES:
        await put(member, INGRESS_CLASSES, CLASS, {"controller": INGRESS_CONTROLLER})
        await put(member, INGRESSES, "web", _ingress(services[0]))
        return
    if problems := await install_crds(member.cluster, gateway_crds(), "user"):
        raise ExpectationFailed(problems[0])
    await put(member, GATEWAY_CLASSES, CLASS, {"controllerName": GATEWAY_CONTROLLER})
    await _route(member, {service: 0 if number else 100 for number, service in enumerate(services)})
    await put(member, GATEWAYS, "web", _gateway())


def _ingress(service: str) -> dict[str, Any]:
    backend = {"service": {"name": service, "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        "ingressClassName": CLASS,
        "tls": [{"hosts": [HOST], "secretName": "cert"}],
        "rules": [{"host": HOST, "http": {"paths": [path]}}],
    }


def _gateway() -> dict[str, Any]:
    https = {
        "name": "https",
        "port": service_port(443),
        "protocol": "HTTPS",
        "hostname": HOST,
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": "cert"}]},
    }
    return {"gatewayClassName": CLASS, "listeners": [https]}


async def _route(member: Member, weights: Mapping[str, int]) -> None:
    """Write the HTTPRoute that shares the requests by weight."""
    backends = [{"name": service, "port": 80, "weight": weight} for service, weight in weights.items()]
    spec = {"parentRefs": [{"name": "web"}], "hostnames": [HOST], "rules": [{"backendRefs": backends}]}
    await put(member, HTTP_ROUTES, "web", spec)


async def _shares(stage: WebStage, percent: int) -> str:
    """Wait until requests meet the weights; return how many the new version got, out of how many."""
    stable, canary = stage.answers("west", "stable"), stage.answers("west", "canary")

    async def met() -> bool:
        nonlocal stable, canary
        to_stable, to_canary = stage.answers("west", "stable") - stable, stage.answers("west", "canary") - canary
        if percent == 100 and to_stable:
            # The change is on its way: it has come when nothing goes to the old version any more.
            stable, canary = stage.answers("west", "stable"), stage.answers("west", "canary")
            return False
        both = to_canary and (to_stable or percent == 100)
        return bool(both) and to_stable + to_canary >= _ANSWERS_OF_STEP

    await wait_until(met, f"requests meet a weight of {percent} %")
    to_stable, to_canary = stage.answers("west", "stable") - stable, stage.answers("west", "canary") - canary
    return f"{to_canary} of {to_stable + to_canary}"


async def _rotated(member: Member, client: HttpsClient, old: bytes) -> bytes:
    """Replace the certificate of a member, and wait until new connections get the new one; return it."""
    # Clients trust the new one before it is used, and the old one until it is not.
    new, key = self_signed(HOST)
    client.trust(old, new)
    await write_certificate(member, new, key)

    async def in_use() -> bool:
        return client.shown[new] >= _CONNECTIONS_OF_CERTIFICATE

    await wait_until(in_use, f"{member.name} uses its new certificate")
    client.trust(new)
    return new


async def _versions(stage: WebStage) -> dict[str, str]:
    """Return the version of every user's object: any write changes it."""
    shown: dict[str, str] = {}
    for name, member in stage.fleet.members.items():
        kinds = [INGRESSES] if stage.entry[name] is INGRESSES else [GATEWAYS, HTTP_ROUTES]
        for kind in kinds:
            body = await member.cluster.get(kind, "default", "web")
            shown[f"{name} {kind.kind}"] = body.metadata.resource_version
    return shown
