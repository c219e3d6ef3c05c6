"""Proxy machines as the hub sees them: enrolment, certificates, plans, reports, and their objects.

    ProxyMachine deleted ──► revoked: its plan requests are refused, its xDS streams end
    load balancer, link or machine changed ──► plans are built again; waiting requests get them at once
    report ──► status (coalesced) and Lease (at most every 10 s)

Every replica serves xDS to machines; only the leader handles enrolment, renewal, plans and reports, because it alone
knows the epoch. In: requests of the HTTPS server, each of a verified machine or with a token. Out: values of
``model.machine``, or an error whose class is the status of the answer. Never: moves load balancers because a machine is
silent, or logs a token or a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec
import structlog

from fairlead.api.intent import IntentObject
from fairlead.api.json_text import decode
from fairlead.api.kubernetes import CONFIG_MAPS, CONFIG_MAPS_WITH_DATA, LEASES
from fairlead.api.meta import JSONObject, transitions
from fairlead.api.names import (
    ANNOTATION_FIRST_CERTIFICATE,
    LABEL_MANAGED_BY,
    LABEL_NODE_MACHINE,
    LABEL_PROXY_MACHINE,
    MANAGED_BY,
    MANAGER_HUB,
    SYSTEM_NAMESPACE,
    name_problem,
    replica_key,
)
from fairlead.api.proxymachine import (
    EXPECTED,
    OF_THE_HUB,
    PROXY_MACHINES,
    MachineCertificate,
    ProxyMachine,
    ProxyMachineStatus,
    lease_name,
)
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import AlreadyExists, FairleadError, Forbidden, Invalid, NotFound, Retry
from fairlead.hub.inventory import Inventory
from fairlead.hub.machines.announcing import AnnouncementObjects
from fairlead.hub.machines.egress import EgressIdentities, pods_of
from fairlead.hub.machines.placement import PAUSES, MachineEnvoys, MachineFacts, Placements, SeveralProxies
from fairlead.hub.machines.plans import MachinePlans, PlanInput, build_plans, placed_addresses
from fairlead.hub.machines.states import (
    SKEW_S,
    UNREACHABLE_S,
    AddressMoves,
    Heard,
    MachineCollector,
    MachinesNow,
    machine_status,
    skew_text,
)
from fairlead.hub.machines.tokens import Ticket, check_node_token, check_token, consume
from fairlead.hub.machines.upgrades import Upgrades
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import Heartbeat
from fairlead.kube.writes import Overlay, emit_transitions, shared_key, write_status
from fairlead.model.keys import machine_of, node_group
from fairlead.model.machine import (
    EnrolAnswer,
    EnrolRequest,
    ForwardingTable,
    MachinePlan,
    MachineReport,
    fingerprint_of,
)
from fairlead.providers.envoy.certificates import (
    SharedAuthority,
    ShownCertificate,
    SignedKey,
    machine_certificate,
    machine_named_in,
    shown_certificate,
)
from fairlead.providers.kernel import KernelProvider
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.announcing import Announcements, PlacedAddress, choose_keeper

#: ConfigMap with the ``host:port`` of each hub replica that machines reach, and the fingerprint of the authority.
ENDPOINTS = "fairlead-proxy-hubs"
#: Secret with the key with which machines sign the packets by which they watch each other.
LINK_KEY_SECRET = "fairlead-proxy-link-key"  # noqa: S105 - a name
CERTIFICATE_LIFE = timedelta(days=90)
#: Owns ``status.certificate`` of ProxyMachines alone.
_MANAGER_CERTIFICATE = "fairlead-hub-machine-certificate"
_PLAN_WAIT_S = 25.0
_LEASE_S = 10.0
_LOOK_S = 2.0
#: A machine that knows only a hub replica that died cannot reach the others.
_ENDPOINTS_S = 5.0
#: Time between two writes of one status.
_PACE_S = 1.0
#: Reports of one machine with alternating network cards within this time come from two machines.
_COPIES_S = 60.0

log = structlog.get_logger(__name__)


class HubEndpoint(msgspec.Struct, frozen=True):
    """The address at which machines reach one hub replica, and the fingerprint of its authority."""

    address: str
    fingerprint: str


async def read_endpoints(cluster: Cluster) -> dict[str, HubEndpoint]:
    """Return the endpoints at which machines reach the hub replicas, by replica."""
    try:
        config_map = await cluster.get(CONFIG_MAPS_WITH_DATA, SYSTEM_NAMESPACE, ENDPOINTS)
    except NotFound:
        return {}
    return {replica: decode(text, HubEndpoint) for replica, text in sorted((config_map.data or {}).items())}


class _Machine:
    """State of one machine as reported to this replica."""

    def __init__(self, since_s: float) -> None:
        self.report: MachineReport | None = None
        self.heard_s = since_s
        self.skew_s = 0.0
        self.leased_s = float("-inf")
        self.written_s = float("-inf")
        self.copies_until_s = float("-inf")
        self._cards: frozenset[str] = frozenset()
        self._others: frozenset[str] = frozenset()
        self._swapped_s = float("-inf")

    def hear(self, report: MachineReport, *, now_s: float, skew_s: float) -> None:
        """Process a report."""
        cards = frozenset(link.mac for link in report.links if link.mac and link.name != "lo")
        if cards and self._cards and not cards & self._cards:
            if cards == self._others and now_s - self._swapped_s <= _COPIES_S:
                self.copies_until_s = now_s + _COPIES_S
            self._others, self._swapped_s = self._cards, now_s
        self._cards = cards or self._cards
        self.report, self.heard_s, self.skew_s = report, now_s, skew_s


class Machines:
    """The proxy machines of one hub.

    ``address`` is the ``host:port`` at which machines reach this replica, empty when none can join; ``revoked`` is
    called with the node group of a removed machine; ``leading`` and ``epoch`` come from the hub's leader election.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        machines: WatchCache[ProxyMachine],
        proxies: MachineEnvoys,
        kernel: KernelProvider,
        authority: SharedAuthority,
        identity: str,
        address: str,
        xds_address: str,
        clock: Clock,
        leading: Callable[[], bool],
        epoch: Callable[[], int],
        revoked: Callable[[str], None] = lambda _group: None,
        certificate_life: timedelta = CERTIFICATE_LIFE,
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._kernel = kernel
        self._authority = authority
        self._replica = replica_key(identity)
        self._address = address
        self._xds_address = xds_address
        self._clock = clock
        self._leading = leading
        self._epoch = epoch
        self._revoked = revoked
        self._life = certificate_life
        self.machines = machines
        self._dirty = asyncio.Event()
        self._news = asyncio.Event()
        self._enrolling = asyncio.Lock()
        self._present: Overlay[ProxyMachine] = Overlay(self.machines)
        self._envoys = proxies
        self._events = EventRecorder(cluster, component="fairlead-hub")
        self.announcements = AnnouncementObjects(cluster=cluster, events=self._events, changed=self.changed)
        self.placements = Placements(
            cluster=cluster,
            inventory=inventory,
            machines=machines,
            proxies=SeveralProxies(proxies, kernel),
            facts=self._facts,
            leading=leading,
            events=self._events,
            clock=clock,
        )
        self._upgrades = Upgrades(
            cluster=cluster,
            machines=self._present_members,
            written=lambda obj, before: self._present.written(obj, before=before),
            reports=self._reports,
            moving=self.placements.are_moving,
            leading=leading,
            events=self._events,
            clock=clock,
        )
        self._egress = EgressIdentities(cluster=cluster, inventory=inventory, events=self._events)
        self._queue: KeyedQueue[str] = KeyedQueue(clock=clock)
        self._heard: dict[str, _Machine] = {}
        self._endpoints: dict[str, HubEndpoint] = {}
        self._link_key = ""
        self._plans = MachinePlans()
        self._keepers: dict[str, str] = {}
        self._planned_epoch = 0
        self._moves = AddressMoves()
        self.metrics = MachineCollector(self._now, self._moves)
        self.machines.on_change(self._machine_changed)
        inventory.classes.on_object(lambda _class: self.changed())
        for objects in inventory.intents.values():
            objects.cache.on_object(lambda _obj: self.changed(), part=self._planned_of)

    @property
    def authorities(self) -> bytes:
        """Return the certificates (PEM) that machines trust."""
        return self._authority.authority.trusted

    def all_trust(self, trusted: bytes) -> bool:
        """Return whether each machine has reported that it trusts exactly these authorities (PEM)."""
        fingerprint = fingerprint_of(trusted.decode())
        reports = {name: heard.report for name, heard in self._heard.items() if heard.report is not None}
        joined = [member.metadata.name for member in self._members() if not member.is_of_hub]
        return all(name in reports and reports[name].authorities == fingerprint for name in joined)

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the input of plans.

        Raises:
            FairleadError: the hub's API refuses.
        """
        self._link_key = await shared_key(self._cluster, LINK_KEY_SECRET)
        await self._publish_endpoint()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events.run())
            group.create_task(self.announcements.run())
            group.create_task(self.placements.run())
            group.create_task(self._upgrades.run())
            group.create_task(self._replan())
            group.create_task(self._look())
            group.create_task(self._keep_endpoint())
            group.create_task(run_workers(self._queue, self._write, workers=4, name="proxymachine"))

    # --- requests of machines ---------------------------------------------------------------------------------

    async def enrol(self, request: EnrolRequest) -> EnrolAnswer:
        """Sign the first certificate of a machine, and create its object.

        Raises:
            Unauthorized: the token is wrong, used or expired.
            AlreadyExists: another machine has the name.
            Invalid: the name, the certificate request or the clock of the machine is wrong.
            Retry: this replica does not lead.
        """
        self._check_leads()
        if (problem := name_problem(request.name)) or len(request.name) > 63:
            raise Invalid(problem or f"{request.name!r} has more than 63 characters; choose another name with --name")
        ticket = await self._check_token(request)
        skew_s = request.clock - self._clock.now().timestamp() if request.clock else 0.0
        if abs(skew_s) > SKEW_S:
            raise Invalid(f"{skew_text(skew_s)}; then run the same command again: the token is still valid")
        async with self._enrolling:
            machine = await self._get(request.name)
            # A recreated node keeps its name; its former certificate is no longer valid.
            again = ticket.of_node and machine is not None and LABEL_NODE_MACHINE in (machine.metadata.labels or {})
            if machine is not None and machine.status.certificate.serial and not again:
                raise AlreadyExists(
                    f"A machine named {request.name} has joined already. Choose another name with --name, or remove it "
                    f"at the hub first: fairlead proxy remove {request.name}"
                )
            signed = self._sign(request.name, request.csr)
            if not ticket.of_node:
                await consume(self._cluster, ticket)
            if machine is None:
                labels: JSONObject = {LABEL_NODE_MACHINE: "true"} if ticket.of_node else {}
                machine = await self._create(request.name, signed.serial, labels, {"group": ticket.group})
            await self._record(machine, MachineCertificate(serial=signed.serial, expires=wire_time(signed.expires)))
            if again:
                self._revoked(node_group(request.name))
        log.info("machine joined", machine=request.name, group=ticket.group)
        return self._answer(request.name, signed.certificate)

    async def _check_token(self, request: EnrolRequest) -> Ticket:
        if request.token.count(".") == 2:  # a JSON Web Token
            return await check_node_token(self._cluster, request.token, request.name)
        return await check_token(self._cluster, request.token, self._cluster.server_clock.now())

    async def renew(self, machine: ProxyMachine, serial: str, csr: str) -> EnrolAnswer:
        """Sign the next certificate of a machine; the current one stays valid until the machine uses the next."""
        self._check_leads()
        name = machine.metadata.name
        signed = self._sign(name, csr)
        await self._record(machine, MachineCertificate(signed.serial, serial, wire_time(signed.expires)))
        log.info("certificate of a machine renewed", machine=name, serial=signed.serial)
        return self._answer(name, signed.certificate)

    async def register(self, name: str) -> None:
        """As the leader, create the object of the hub's own machine, replacing the previous leader's.

        Raises:
            AlreadyExists: another machine has joined with this name.
            Retry: this replica does not lead.
        """
        self._check_leads()
        for other in await self._cluster.list(PROXY_MACHINES):
            if other.is_of_hub and other.metadata.name != name:
                await self._cluster.delete(PROXY_MACHINES, "", other.metadata.name, uid=other.metadata.uid)
        machine = await self._get(name)
        if machine is not None and machine.status.certificate.serial not in ("", OF_THE_HUB):
            raise AlreadyExists(
                f"Machine {name} is this host, and has joined by itself. Stop it (systemctl disable --now "
                f"fairlead-proxy), then: fairlead proxy remove {name}. Or start the hub without --announce"
            )
        if machine is None:
            machine = await self._create(name, OF_THE_HUB, {}, {})
        if not machine.is_of_hub:
            await self._record(machine, MachineCertificate(serial=OF_THE_HUB))
            log.info("this host is a machine of the hub", machine=name)

    async def plan(self, machine: str, after: str) -> MachinePlan | None:
        """Return the plan of a machine once its version differs from ``after``; None on a timeout."""
        end_s = self._clock.monotonic() + _PLAN_WAIT_S
        while True:
            self._check_leads()
            await self.member(machine)
            plan, news = self._plans.by_machine.get(machine), self._news
            if plan is not None and plan.version != after:
                return plan
            try:
                async with asyncio.timeout(max(0.0, end_s - self._clock.monotonic())):
                    await news.wait()
            except TimeoutError:
                return None

    async def forwarding(self, machine: str, after: str) -> ForwardingTable | None:
        """Return the forwarding table of a machine once it differs from ``after``; None on a timeout."""
        self._check_leads()
        await self.member(machine)
        return await self._kernel.table(machine, after, wait_s=_PLAN_WAIT_S)

    async def report(self, machine: str, report: MachineReport) -> None:
        """Process the report of a machine."""
        self._check_leads()
        heard, now_s = self._of(machine), self._clock.monotonic()
        skew_s = report.sent - self._clock.now().timestamp() if report.sent else 0.0
        before = heard.report
        heard.hear(report, now_s=now_s, skew_s=skew_s)
        self._kernel.reported(machine, report.forwarding)
        self._envoys.note_drains(machine, report.draining)
        self._envoys.note_traffic(machine, report.traffic)
        if before is None or _able(before) != _able(report):
            self.changed()
        if before is None or (before.addresses, before.max_listeners) != (report.addresses, report.max_listeners):
            self.placements.reported()
        if (before is not None and before.is_full) != report.is_full:
            self.placements.changed()
        if before is None or _upgraded(before) != _upgraded(report):
            self._upgrades.changed()
        obj = self._present.get("", machine)
        if obj is None:
            return
        if before is not None:
            if before.addresses != report.addresses:
                self._moves.count(machine, before.addresses, report.addresses)
        elif obj.status.announced == sum(state.announced for state in obj.status.addresses):
            # The first report to this leader: addresses may have moved meanwhile, for example because the hub's machine
            # was lost.
            self._moves.count(machine, obj.status.addresses, report.addresses)
        # Unchanged objects cost no turn of the queue.
        if now_s - heard.leased_s >= _LEASE_S or self._status(obj) != obj.status:
            self._queue.add(machine)

    async def identify(self, uris: Sequence[str], shown: ShownCertificate) -> ProxyMachine:
        """Return the machine of a verified certificate.

        Raises:
            Forbidden: the certificate names no machine or is not the machine's latest, or the machine was removed.
        """
        name = machine_named_in(uris)
        if not name:
            raise Forbidden("The certificate does not name a proxy machine; join with a token of: fairlead proxy token")
        machine = await self.member(name)
        mine, serial = machine.status.certificate, shown.serial
        if serial not in (mine.serial, mine.previous_serial) and mine.serial:
            # The cache may be a moment behind the replica that signed.
            machine = await self._get(name) or machine
            mine = machine.status.certificate
        if not _knows(machine, shown):
            raise Forbidden(
                f"The certificate of machine {name} was replaced by a newer one, perhaps of a copy with its state "
                "directory. Delete that directory here, and join with a token of: fairlead proxy token"
            )
        if self._leading() and (not mine.serial or (serial == mine.serial and mine.previous_serial)):
            machine = await self._record(machine, MachineCertificate(serial=serial, expires=mine.expires))
        return machine

    async def admission(self, group: str, certificate: bytes) -> str:
        """Return the reason to withhold the configuration of a machine's Envoy; empty if there is none."""
        name = machine_of(group)
        if not name:
            return f"node group {group} is not that of a proxy machine"
        machine, shown = self._present.get("", name), shown_certificate(certificate)
        if machine is None or not _knows(machine, shown):
            try:
                machine = await self._get(name)
            except FairleadError as error:
                # A hub that cannot reach its API serves the machines that it knows.
                return "" if machine is not None else error.sentence
        if machine is None or machine.deleting:
            return _removed(name)
        return "" if _knows(machine, shown) else f"the certificate of machine {name} was replaced"

    async def member(self, name: str) -> ProxyMachine:
        """Return the object of a machine.

        Raises:
            Forbidden: the machine was removed.
        """
        machine = self._present.get("", name) or await self._get(name)
        if machine is None or machine.deleting:
            raise Forbidden(_removed(name))
        return machine

    async def drop_replica(self, replica: str) -> None:
        """Remove the endpoint of a hub replica that no longer exists.

        Raises:
            FairleadError: the hub's API refuses.
        """
        if replica in await read_endpoints(self._cluster):
            patch = {"data": {replica: None}}
            await self._cluster.merge_patch(CONFIG_MAPS, SYSTEM_NAMESPACE, ENDPOINTS, patch, manager=MANAGER_HUB)

    # --- plans ------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """Begin or end a term: reports to another leader count as received now."""
        self._heard.clear()
        self._plans = MachinePlans()
        self.placements.changed()
        self.changed()

    def changed(self) -> None:
        """Rebuild the plans."""
        self._dirty.set()

    async def _replan(self) -> None:
        await self.announcements.wait_read()
        while True:
            self._dirty.clear()
            began_s = self._clock.processor_s()
            if self._leading():
                self._planned_epoch = self._epoch()
                ours, members = self.placements.load_balancers(), self._members()
                addresses = placed_addresses(ours, self.placements.by_address(ours))
                egress = self._egress.decide(ours, members)
                self._kernel.set_egress(egress.identities, kept=egress.kept)
                announcements = self.announcements.in_force()
                self._choose_keepers(addresses, announcements, members)
                given = PlanInput(
                    addresses=addresses,
                    epoch=self._planned_epoch,
                    announcements=announcements,
                    keepers=self._keepers,
                    egress_ports=self._egress.ports,
                    hubs=sorted({endpoint.address for endpoint in self._endpoints.values()}),
                    link_key=self._link_key,
                )
                plans = build_plans(members, given)
                if plans != self._plans:
                    self._plans = plans
                    self._wake()
                await self._egress.write_statuses(plans, self._reports())
                try:
                    await self.announcements.write_statuses(announcements, addresses, members)
                except FairleadError as error:
                    log.warning("a status is not written", sentence=error.sentence, detail=error.detail)
            else:
                self._wake()
            # A plan contains all addresses: building one with thousands takes a while, so other tasks run first.
            await self._clock.sleep(PAUSES * (self._clock.processor_s() - began_s))
            await self._dirty.wait()

    def _choose_keepers(
        self, addresses: Sequence[PlacedAddress], announcements: Announcements, members: Sequence[ProxyMachine]
    ) -> None:
        """Choose which machine keeps the route of each address that may be withdrawn without a healthy target."""
        now_s = self._clock.monotonic()
        able: dict[str, MachineReport] = {}
        for member in members:
            name, heard = member.metadata.name, self._of(member.metadata.name)
            alive = heard.report is not None and heard.report.proxy.alive and now_s - heard.heard_s < UNREACHABLE_S
            if heard.report is not None and alive and not member.drained:
                able[name] = heard.report
        keepers: dict[str, str] = {}
        for placed in addresses:
            selected = announcements.selecting(placed)
            if selected is None or not selected[1].withdraw_when_unhealthy or selected[1].anycast:
                continue
            healthy = {name: placed.address not in report.unhealthy for name, report in able.items()}
            keepers[placed.address] = choose_keeper(placed.machines, self._keepers.get(placed.address, ""), healthy)
        self._keepers = keepers

    def _wake(self) -> None:
        """Answer the waiting requests."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _members(self) -> list[ProxyMachine]:
        return [machine for machine in self.machines.values() if not machine.deleting]

    def _planned_of(self, obj: IntentObject) -> tuple[object, ...]:
        """Return the part of a load balancer that plans depend on; egress pods use ports other than its own."""
        status = obj.status
        ports = (obj.metadata.generation, status.observed_generation) if self._egress.ports else ()
        return status.allocation, status.placement, obj.class_name, pods_of(obj), ports

    # --- objects ----------------------------------------------------------------------------------------------

    def _machine_changed(self, old: ProxyMachine | None, new: ProxyMachine | None) -> None:
        if new is None or new.deleting:
            name = (new or old or ProxyMachine()).metadata.name
            self._heard.pop(name, None)
            self._revoked(node_group(name))
            self._wake()
            self._queue.add(name)
        if old is None or new is None or _planned(old) != _planned(new):
            self.changed()
        if new is not None and old is not None and old.spec != new.spec:
            self._queue.add(new.metadata.name)
            self._upgrades.changed()

    async def _write(self, name: str) -> float | None:
        """Write the status and the Lease of one machine."""
        if not self._leading():
            return None
        obj = self._present.get("", name)
        if obj is None:
            await self._cluster.delete(LEASES, SYSTEM_NAMESPACE, lease_name(name))
            return None
        heard, now_s = self._of(name), self._clock.monotonic()
        if heard.report is not None and now_s - heard.leased_s >= _LEASE_S and now_s - heard.heard_s < _LEASE_S:
            await self._beat(name)
            heard.leased_s = now_s
        status = self._status(obj)
        if status == obj.status:
            return None
        if (left_s := heard.written_s + _PACE_S - now_s) > 0:
            return left_s
        written = await write_status(
            self._cluster,
            PROXY_MACHINES,
            obj,
            obj.status,
            status,
            manager=MANAGER_HUB,
            others=("certificate", "upgrade"),
        )
        heard.written_s = now_s
        if written is not None:
            self._present.written(written, before=obj)
            changes = transitions(obj.status.conditions, status.conditions)
            emit_transitions(
                self._events, PROXY_MACHINES, obj, changes, quiet=lambda change: change.condition.reason in EXPECTED
            )
        return None

    def _status(self, obj: ProxyMachine) -> ProxyMachineStatus:
        return machine_status(obj, self._seen(obj.metadata.name), now=self._clock.now())

    def _seen(self, name: str) -> Heard:
        heard, now_s = self._of(name), self._clock.monotonic()
        return Heard(
            report=heard.report,
            silent_s=now_s - heard.heard_s,
            skew_s=heard.skew_s,
            copies=now_s < heard.copies_until_s,
        )

    def _now(self) -> MachinesNow | None:
        """Return the input of the metrics; None if this replica does not lead."""
        if not self._leading():
            return None
        members = [self._present.get("", machine.metadata.name) or machine for machine in self._members()]
        plan = next(iter(self._plans.by_machine.values()), None)
        return MachinesNow(
            members=members,
            heard={member.metadata.name: self._seen(member.metadata.name) for member in members},
            planned=plan.addresses if plan is not None else (),
            problems=self._plans.problems.keys(),
        )

    async def _look(self) -> None:
        """Detect silent machines and a raised epoch."""
        while True:
            await self._clock.sleep(_LOOK_S)
            if not self._leading():
                continue
            if self._epoch() != self._planned_epoch:
                self.changed()
            now_s = self._clock.monotonic()
            for machine in self._members():
                heard = self._of(machine.metadata.name)
                if now_s - heard.heard_s >= UNREACHABLE_S or now_s >= heard.copies_until_s > heard.written_s:
                    self._queue.add(machine.metadata.name)

    def _present_members(self) -> list[ProxyMachine]:
        """Return the machines with this replica's last writes."""
        return [self._present.get("", member.metadata.name) or member for member in self._members()]

    def _reports(self) -> dict[str, MachineReport]:
        """Return the last report of each machine that this replica hears."""
        now_s = self._clock.monotonic()
        return {
            name: heard.report
            for name, heard in self._heard.items()
            if heard.report is not None and now_s - heard.heard_s < UNREACHABLE_S
        }

    def _facts(self) -> dict[str, MachineFacts]:
        """Return the facts about each machine for placement."""
        now_s = self._clock.monotonic()
        recent = {name: heard for name, heard in self._heard.items() if now_s - heard.heard_s < UNREACHABLE_S}
        reports = [heard.report for heard in recent.values() if heard.report is not None]
        others_hear = {name for report in reports for link in report.links for name in link.hears}
        return {
            name: MachineFacts(heard.report, name not in recent and name not in others_hear)
            for name, heard in self._heard.items()
        }

    def _of(self, name: str) -> _Machine:
        return self._heard.setdefault(name, _Machine(self._clock.monotonic()))

    async def _beat(self, name: str) -> None:
        heartbeat = Heartbeat(
            self._cluster,
            namespace=SYSTEM_NAMESPACE,
            name=lease_name(name),
            identity=name,
            interval_s=_LEASE_S,
            labels={LABEL_PROXY_MACHINE: "true"},
            manager=MANAGER_HUB,
            clock=self._clock,
        )
        await heartbeat.beat()

    async def _create(self, name: str, serial: str, labels: JSONObject, spec: JSONObject) -> ProxyMachine:
        """Create the object of a machine, with the serial number of its first certificate."""
        annotations: JSONObject = {ANNOTATION_FIRST_CERTIFICATE: f"{serial} {wire_time(self._clock.now())}"}
        meta: JSONObject = {"name": name, "labels": labels, "annotations": annotations}
        created = await self._cluster.create(PROXY_MACHINES, {"metadata": meta, "spec": spec})
        return self._present.written(created, before=None)

    async def _record(self, machine: ProxyMachine, certificate: MachineCertificate) -> ProxyMachine:
        """Record which certificate of a machine is valid."""
        body: JSONObject = {
            "metadata": {"name": machine.metadata.name, "uid": machine.metadata.uid},
            "status": {"certificate": msgspec.to_builtins(certificate)},
        }
        written = await self._cluster.apply(PROXY_MACHINES, body, manager=_MANAGER_CERTIFICATE, subresource="status")
        return self._present.written(written, before=self._present.get("", machine.metadata.name))

    async def _get(self, name: str) -> ProxyMachine | None:
        try:
            return await self._cluster.get(PROXY_MACHINES, "", name)
        except NotFound:
            return None

    # --- shared with other replicas -----------------------------------------------------------------------------

    def _sign(self, name: str, csr: str) -> SignedKey:
        try:
            return machine_certificate(
                self._authority.authority, name, csr.encode(), self._clock.now(), life=self._life
            )
        except ValueError as error:
            raise Invalid(f"The certificate request of machine {name} is not valid: {error}") from error

    def _answer(self, name: str, certificate: bytes) -> EnrolAnswer:
        return EnrolAnswer(
            machine=name,
            certificate=certificate.decode(),
            ca=self.authorities.decode(),
            xds=self._xds_address,
            hubs=tuple(sorted({self._address, *(endpoint.address for endpoint in self._endpoints.values())})),
            renew_after_s=self._life.total_seconds() * 2 / 3,
        )

    def _check_leads(self) -> None:
        if not self._leading():
            raise Retry("This hub replica does not lead; ask another one, or this one again in some seconds")

    async def _keep_endpoint(self) -> None:
        while True:
            await self._clock.sleep(_ENDPOINTS_S)
            try:
                await self._publish_endpoint()
            except FairleadError as error:
                log.warning("endpoint of this hub is not published", sentence=error.sentence)

    async def _publish_endpoint(self) -> None:
        if not self._address:
            return
        endpoints = await read_endpoints(self._cluster)
        mine = HubEndpoint(self._address, fingerprint_of(self.authorities.decode()))
        if endpoints.get(self._replica) != mine:
            body: JSONObject = {
                "metadata": {
                    "namespace": SYSTEM_NAMESPACE,
                    "name": ENDPOINTS,
                    "labels": {LABEL_MANAGED_BY: MANAGED_BY},
                },
                "data": {self._replica: msgspec.json.encode(mine).decode()},
            }
            await self._cluster.apply(CONFIG_MAPS, body, manager=f"{MANAGER_HUB}-{self._replica}"[:128])
        endpoints[self._replica] = mine
        if endpoints != self._endpoints:
            self._endpoints = endpoints
            self.changed()


def _able(report: MachineReport) -> tuple[object, ...]:
    """Return the part of a report that plans depend on; links count once they are in the status."""
    forwarding = report.forwarding
    egress = (forwarding.egress, forwarding.problem) if forwarding is not None else None
    return report.proxy.alive, report.unhealthy, egress


def _upgraded(report: MachineReport) -> tuple[object, ...]:
    """Return the part of a report that an upgrade waits for."""
    return report.drained, report.proxy.alive, report.proxy.upgrade


def _planned(machine: ProxyMachine) -> tuple[object, ...]:
    """Return the part of a machine that plans, and the statuses of routers, depend on."""
    status = machine.status
    return machine.spec, machine.metadata.labels, status.links, status.sessions, status.upgrade.phase


def _knows(machine: ProxyMachine, shown: ShownCertificate) -> bool:
    """Return whether a certificate belongs to the machine.

    While the status has no serial number, the first certificate and later ones belong to the machine: a backup without
    statuses was restored, or the hub died before it recorded the first. Earlier ones belong to a removed machine of
    that name.
    """
    certificate = machine.status.certificate
    if certificate.serial:
        return shown.serial in (certificate.serial, certificate.previous_serial)
    serial, _, time = (machine.metadata.annotations or {}).get(ANNOTATION_FIRST_CERTIFICATE, "").partition(" ")
    joined = parsed_time(time)
    return joined is None or shown.serial == serial or shown.signed > joined


def _removed(name: str) -> str:
    return (
        f"Machine {name} was removed at the hub, so its certificate is revoked. To join again: fairlead proxy token at "
        "the hub"
    )
