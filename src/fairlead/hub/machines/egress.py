"""Egress identities at the hub: the pods that members name, the machines that translate them, and their statuses.

    annotation of a TCPLoadBalancer ──► decide_egress ──► tables of machines, ports in plans
    reports of machines ──────────────► status.egress, absent while no pod leaves with an address of the load balancer

Every machine gets all identities: packets of a pod arrive at the one that announces the address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec
import structlog

from fairlead.api.intent import IntentObject
from fairlead.api.names import ANNOTATION_EGRESS_PODS, MANAGER_EGRESS
from fairlead.api.proxymachine import ProxyMachine
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, EgressStatus, TCPLoadBalancer
from fairlead.api.tenant import TenantSpec
from fairlead.errors import FairleadError, NotFound
from fairlead.hub.inventory import Inventory
from fairlead.hub.machines.plans import MachinePlans, interfaces_of
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import apply_status
from fairlead.model.machine import AnnouncedAddress, MachineReport
from fairlead.translate.egress import NOT_POSSIBLE, Egress, EgressRequest, decide_egress
from fairlead.translate.endpoints import TargetPolicy
from fairlead.translate.member import target_ranges

log = structlog.get_logger(__name__)


class EgressIdentities:
    """The egress identities of one hub."""

    def __init__(self, *, cluster: Cluster, inventory: Inventory, events: EventRecorder) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._events = events
        self._decided = Egress()
        #: The policies of namespaces as they were when the Tenant could be read.
        self._policies: dict[str, TargetPolicy] = {}

    @property
    def ports(self) -> Mapping[str, tuple[int, int]]:
        """Return the first and last source port of each egress address."""
        return {each.address: (each.first_port, each.last_port) for each in self._decided.identities}

    def decide(self, load_balancers: Sequence[IntentObject], machines: Iterable[ProxyMachine]) -> Egress:
        """Return the identities; ``load_balancers`` are all those on proxy machines."""
        requesting = [obj for obj in load_balancers if isinstance(obj, TCPLoadBalancer) and pods_of(obj)]
        reserved: set[str] = set()
        ports: dict[str, set[int]] = {}
        if requesting:
            links = (link for machine in machines for link in machine.status.links)
            reserved |= {str(interface.ip) for link in links for interface in interfaces_of(link.addresses)}
            for obj in load_balancers:
                objects = self._inventory.intents[_kind_of(obj)]
                for address, _ in obj.status.allocation.places:
                    ports.setdefault(address, set()).update(objects.open_ports(obj))
        requests = map(self._request, requesting)
        self._decided = decide_egress(requests, ports=ports, reserved=reserved | ports.keys())
        return self._decided

    def _request(self, obj: TCPLoadBalancer) -> EgressRequest:
        namespace = obj.metadata.namespace
        if not self._inventory.tenant_problem(namespace):
            tenant = self._inventory.tenant_of(namespace)
            ranges = target_ranges(tenant.spec if tenant is not None else TenantSpec())
            self._policies[namespace] = TargetPolicy(ranges=ranges, ipv6=True)
        return EgressRequest(
            name="/".join(obj.key),
            order=obj.age_order,
            text=pods_of(obj),
            addresses=tuple(address for address, _ in obj.status.allocation.places),
            policy=self._policies.get(namespace),
        )

    async def write_statuses(self, plans: MachinePlans, reports: Mapping[str, MachineReport]) -> None:
        """Write ``status.egress`` where it differs."""
        plan = next(iter(plans.by_machine.values()), None)
        planned = {each.address: each for each in plan.addresses} if plan is not None else {}
        objects = self._inventory.intents[TCP_LOAD_BALANCERS.kind]
        for cached in objects.served():
            if not (pods_of(cached) or cached.status.egress):
                continue
            obj = cast("TCPLoadBalancer", objects.get(objects.key(cached)) or cached)
            status = self._status(obj, plans, planned, reports)
            if status != obj.status.egress and not obj.deleting:
                await self._write(obj, status)

    def _status(
        self,
        obj: TCPLoadBalancer,
        plans: MachinePlans,
        planned: Mapping[str, AnnouncedAddress],
        reports: Mapping[str, MachineReport],
    ) -> EgressStatus | None:
        name = "/".join(obj.key)
        if not pods_of(obj):
            return None
        if name not in self._decided.sources:
            allocated = obj.status.allocation.address
            why = "no proxy machine serves the load balancer" if allocated else "the load balancer has no address yet"
            return EgressStatus(message=f"pods cannot leave with its address: {why}")
        ports = self.ports
        addresses = [address for address, _ in obj.status.allocation.places if address in ports]
        ready: dict[str, None] = {}
        sentences = [self._decided.problems.get(name, "")]
        for address in addresses:
            machines, sentence = translating(address, planned.get(address), reports)
            ready |= dict.fromkeys(machines)
            sentences.append(plans.problems.get(address, "") or sentence)
        message = "; ".join(filter(None, sentences))
        return EgressStatus(sources=self._decided.sources[name], machines=tuple(ready), message=message)

    async def _write(self, obj: TCPLoadBalancer, status: EgressStatus | None) -> None:
        body = {} if status is None else {"egress": msgspec.to_builtins(status)}
        objects = self._inventory.intents[TCP_LOAD_BALANCERS.kind]
        try:
            answer = await apply_status(self._cluster, TCP_LOAD_BALANCERS, obj, body, manager=MANAGER_EGRESS)
        except NotFound:
            return
        except FairleadError as error:
            log.warning("egress not recorded", load_balancer="/".join(obj.key), sentence=error.sentence)
            return
        objects.present.written(answer, before=obj)
        before = obj.status.egress
        if status is not None and status.message and (before is None or before.message != status.message):
            self._events.emit_about(TCP_LOAD_BALANCERS, obj, warning=True, reason=NOT_POSSIBLE, message=status.message)


def pods_of(obj: IntentObject) -> str:
    """Return the addresses of the pods that use a load balancer's address as source, as written by its member."""
    return obj.annotation(ANNOTATION_EGRESS_PODS) if not obj.deleting else ""


def translating(
    address: str, planned: AnnouncedAddress | None, reports: Mapping[str, MachineReport]
) -> tuple[list[str], str]:
    """Return the machines that translate to an address, and why packets of pods do not leave with it."""
    if planned is None or not planned.machines:
        return [], f"no machine announces {address}"
    if planned.announcement != "L2":
        text = f"{address} is announced by {planned.announcement}, and nodes find its machine by ARP or NDP only"
        return [], f"{text}; announce it by L2"
    states = {name: reports[name].forwarding for name in planned.machines if name in reports}
    ready = [name for name, state in states.items() if state is not None and address in state.egress]
    for name in planned.machines:
        if name in ready or name not in states:
            continue
        state = states[name]
        why = state.problem if state is not None else "upgrade the machine"
        return ready, f"machine {name} does not translate to {address}: {why or 'the hub waits for its answer'}"
    return ready, "" if ready else f"the hub does not hear a machine that announces {address}"


def _kind_of(obj: IntentObject) -> str:
    return type(obj).__name__
