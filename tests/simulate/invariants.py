"""What must always hold, one function for each; docs/invariants.md says what each of them means.

In: a world, after each write, each change of a data plane and each second. Out: ``world.fail`` with the name of the
invariant. ``problems`` returns what is not yet as it should be once no fault is left.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from fairlead.errors import FairleadError
from fairlead.hub.tenants.addresses import REST_S
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from tests.simulate.api import Api, Bucket, Obj
from tests.simulate.api import Event as Change
from tests.simulate.loop import OUTSIDE
from tests.simulate.plane import Plane
from tests.simulate.simulated_world import HARDWARE, Intended, Running, World

#: Seconds by which information may be late in any story: what was wanted for so long is not late news.
LATE_S = 60.0

Problem = tuple[str, str]


def watch(world: World, skip: Iterable[str] = ()) -> None:
    """Check a world from now on; ``skip`` names invariants that are not checked."""
    world.skipped = frozenset(skip)
    writes, planes = _Writes(world), _Planes(world)
    world.on_write += [
        writes.at_most_one_leader,
        writes.one_owner_of_each_address,
        writes.one_owner_of_each_name,
        writes.foreign_objects_are_left_alone,
        writes.deleted_tenant_serves,
        writes.records_outlive_registrations,
    ]
    world.on_plane += [planes.registered_is_recorded, planes.nothing_is_lost]


# --- each second --------------------------------------------------------------------------------------------------


def tick(world: World) -> None:
    """Check what no single write shows."""
    for check in _ON_TICK:
        check(world)


def process_ends_on_request(world: World) -> None:
    """A process ends on request, and never by itself."""
    for running in world.processes.values():
        process = running.process
        if process is None or not process.alive or process.main is None or not process.main.done() or running.ended:
            continue
        error = None if process.main.cancelled() else process.main.exception()
        while isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        if isinstance(error, FairleadError):
            # It says why it cannot go on; its supervisor starts it again.
            world.note(f"{running.name} ended: {error}")
            process.kill()
            world.loop.call_later(5.0, world.start, running.name, context=OUTSIDE)
            continue
        world.fail("process_ends_on_request", f"{running.name} ended by itself: {_text(error)}")
        return
    for failure in world.loop.failures:
        if "never retrieved" in str(failure.get("message")) or "exception" in failure:
            world.fail("process_ends_on_request", f"a task ended: {_text(failure.get('exception'))}")


def _text(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {str(error)[:200]}" if error is not None else "without an error"


def at_most_one_leader(world: World) -> None:
    """Of the replicas of one lease at most one believes that it leads."""
    leaders: dict[str, list[str]] = {}
    for running in world.hubs():
        process = running.process
        if process is not None and not process.suspended and running.app is not None and running.app.elector.is_leader:
            lease = running.flags.get("site", "") + running.flags.get("region", "")
            leaders.setdefault(lease, []).append(running.name)
    for names in leaders.values():
        if len(names) > 1:
            world.fail("at_most_one_leader", f"{' and '.join(names)} both lead")


def one_owner_of_each_address(world: World) -> None:
    """An address has one owner: at no data plane two load balancers answer at one address and port."""
    for plane in world.planes.values():
        if plane.name == "outside":
            continue
        owners: dict[tuple[str, int], LoadBalancerKey] = {}
        for key, spec in plane.specs.items():
            for address in spec.addresses:
                for listener in spec.listeners:
                    other = owners.setdefault((address, listener.port), key)
                    if other != key:
                        text = f"{other.namespace}/{other.name} and {key.namespace}/{key.name} both serve {address}"
                        world.fail("one_owner_of_each_address", f"{text}:{listener.port} at {plane.name}")


def one_tenant_holds_up_no_other(world: World) -> None:
    """Problems of one tenant do not delay the targets of another one."""
    if "*" in world.troubled:
        return
    for intended in world.intended.values():
        if intended.namespace.removeprefix("tenant-") in world.troubled:
            continue
        obj = world.hub_api.get("tcploadbalancers", intended.namespace, intended.name)
        address = _given_here(obj) if obj is not None else ""
        refused = bool(intended.request) and address != intended.request
        if obj is None or intended.class_name == HARDWARE or not address or refused or _may_wait(world, intended, obj):
            intended.waited_s = world.loop.now_s
            continue  # whether it may have an address is checked once no fault is left
        if not _old(world, max(intended.since_s, intended.waited_s)):
            continue
        late = {at for at in intended.targets() if _old(world, intended.wanted_since_s.get(at, world.loop.now_s))}
        for plane in world.planes.values():
            if not _serves(world, plane.name, intended):
                continue
            for port in intended.ports:
                if missing := late - _ready(plane, intended, port):
                    text = f"{intended.namespace}/{intended.name}:{port} has no {min(missing)} at {plane.name} yet"
                    world.fail("one_tenant_holds_up_no_other", text)


def _ready(plane: Plane, intended: Intended, port: int) -> set[str]:
    """Return the addresses that get new connections to a port."""
    return {each.partition(":")[0] for each in plane.ready(intended.key, ListenerKey(Protocol.TCP, port))}


_ON_TICK: tuple[Callable[[World], None], ...] = (
    process_ends_on_request,
    at_most_one_leader,
    one_owner_of_each_address,
    one_tenant_holds_up_no_other,
)


# --- after each write ---------------------------------------------------------------------------------------------


class _Writes:
    """Checks of single writes."""

    def __init__(self, world: World) -> None:
        self.world = world
        #: When each load balancer was given its address.
        self._given_s: dict[tuple[str, str], float] = {}

    def at_most_one_leader(self, api: Api, bucket: Bucket, change: Change, by: str) -> None:
        """No hub writes while another one leads."""
        if by.startswith("fairlead") and bucket.plural != "leases":
            at_most_one_leader(self.world)

    def one_owner_of_each_address(self, api: Api, bucket: Bucket, change: Change, by: str) -> None:
        """No two tenants are given one address, and what is given is not taken back."""
        if bucket.plural != "tcploadbalancers":
            return
        address = _allocation(change.entry.obj) if change.type != "DELETED" else ""
        before = _allocation(change.before.obj) if change.before is not None else ""
        if before and before != address:
            self.world.released[before] = (change.key[0], self.world.loop.now_s)
        if change.type == "DELETED":
            return
        if address == before:
            return
        world, (namespace, name) = self.world, change.key
        since_s = self._given_s.get(change.key, world.loop.now_s)
        self._given_s[change.key] = world.loop.now_s
        if address:
            for key, entry in bucket.entries.items():
                if key[0] != namespace and _given_here(entry.obj) == address:
                    text = f"{address} is given to {namespace}/{name} and to {'/'.join(key)}"
                    world.fail("one_owner_of_each_address", text)
        # A load balancer that has changed its region gets an address of the new one.
        kept = change.before is not None and before and _given_here(change.before.obj) == before
        if kept and not change.entry.obj["metadata"].get("deletionTimestamp"):
            intended = world.intended.get(_key(*change.key))
            # What was given after its user's last change is given for good.
            known = intended is not None and (_old(world, intended.since_s) or intended.since_s < since_s)
            if intended is not None and known and not intended.request and intended.class_name != HARDWARE:
                world.fail("nothing_is_lost", f"{namespace}/{name} had {before}, and has {address or 'none'}")

    def one_owner_of_each_name(self, api: Api, bucket: Bucket, change: Change, by: str) -> None:
        """A name stays with its tenant while the tenant asks for it."""
        if bucket.plural != "hostnames" or change.before is None:
            return
        before = change.before.obj["spec"].get("owner", {}).get("loadBalancer", "")
        after = change.entry.obj["spec"].get("owner", {}).get("loadBalancer", "")
        gone = change.type == "DELETED" or bool(change.entry.obj["metadata"].get("deletionTimestamp"))
        if not before or (before == after and not gone):
            return
        if change.before.obj["metadata"].get("deletionTimestamp"):
            return  # it was judged when its deletion began
        _, namespace, name = before.split("/")
        if not gone and after.split("/")[1] == namespace:
            return  # which object of one tenant has a name is for its tenant to say
        intended = self.world.intended.get(_key(namespace, name))
        if intended is None or not _old(self.world, intended.since_s) or by == "kubectl":
            return
        host, spec = change.entry.obj["spec"]["host"], change.entry.obj["spec"]
        if spec.get("generated") or host == intended.host:
            what = "deleted" if gone else f"given to {after}"
            self.world.fail("one_owner_of_each_name", f"{host} of {namespace}/{name} was {what}")

    def foreign_objects_are_left_alone(self, api: Api, bucket: Bucket, change: Change, by: str) -> None:
        """A namespace that a user has made is not taken over, and goes only when its owner does."""
        if bucket.plural != "namespaces" or api is not self.world.hub_api or by == "kubectl":
            return
        if change.before is None:
            return
        before = (change.before.obj["metadata"].get("labels") or {}).get("fairlead.dev/tenant")
        after = (change.entry.obj["metadata"].get("labels") or {}).get("fairlead.dev/tenant")
        if change.type != "DELETED" and before != after:
            text = f"namespace {change.key[1]} was {before or 'no one'}'s, and is {after or 'no one'}'s by {by}"
            self.world.fail("foreign_objects_are_left_alone", text)

    def deleted_tenant_serves(self, api: Api, bucket: Bucket, change: Change, by: str) -> None:
        """A Tenant that is deleted stays as long as it serves."""
        if bucket.plural != "tenants" or change.type != "DELETED":
            return
        spec = change.entry.obj.get("spec") or {}
        namespace = spec.get("namespace") or f"tenant-{change.key[1]}"
        there = api.get("namespaces", "", namespace, "")
        label = ((there or {}).get("metadata", {}).get("labels") or {}).get("fairlead.dev/tenant")
        if there is None or label != change.key[1] or there["metadata"].get("deletionTimestamp"):
            return
        for intended in self.world.intended.values():
            there = api.get("tcploadbalancers", namespace, intended.name)
            if intended.namespace == namespace and there is not None and _old(self.world, intended.since_s):
                text = f"Tenant {change.key[1]} is gone, and {intended.name} was to be served"
                self.world.fail("nothing_is_lost", text)

    def records_outlive_registrations(self, api: Api, bucket: Bucket, change: Change, by: str) -> None:
        """A record goes only when its backend is no longer registered."""
        if bucket.plural != "backendrecords" or change.type != "DELETED" or by in ("kubectl", "storage"):
            return
        spec = change.entry.obj["spec"]
        place = _place(spec)
        for listener, at in self.world.planes["outside"].members.get(place[0], {}):
            if (listener, at) == place[1:]:
                self.world.fail("registered_is_recorded", f"the record of {at} was deleted, and it is registered")


class _Planes:
    """Checks of changes at data planes."""

    def __init__(self, world: World) -> None:
        self.world = world

    def registered_is_recorded(
        self,
        plane: str,
        key: LoadBalancerKey,
        listener: ListenerKey,
        at: TargetKey,
        old: Target | None,
        new: Target | None,
    ) -> None:
        """Nothing is registered at an appliance before it is on record."""
        if plane != "outside" or old is not None or new is None:
            return
        for record in self.world.hub_api.objects("backendrecords"):
            if _place(record["spec"]) == (key, listener, at):
                return
        self.world.fail("registered_is_recorded", f"{at} of {key.namespace}/{key.name} is registered without a record")

    def nothing_is_lost(
        self,
        plane: str,
        key: LoadBalancerKey,
        listener: ListenerKey,
        at: TargetKey,
        old: Target | None,
        new: Target | None,
    ) -> None:
        """A target that has been wanted all the time keeps its new connections."""
        if old is None or old.draining or (new is not None and not new.draining):
            return
        world = self.world
        intended = world.intended.get(key)
        if intended is None or listener.port not in intended.ports or not _old(world, intended.since_s):
            return
        since_s = intended.wanted_since_s.get(at.address)
        if since_s is None or not _old(world, since_s) or not _serves(world, plane, intended):
            return
        what = "drained" if new is not None else "removed"
        world.fail("nothing_is_lost", f"{at} of {key.namespace}/{key.name} was {what} at {plane}, and is wanted")


def _serves(world: World, plane: str, intended: Intended) -> bool:
    """Return whether a data plane is to serve a load balancer."""
    if plane == "outside":
        return intended.class_name == HARDWARE
    running = world.processes.get(plane)
    region = running.flags.get("region", "") if running is not None else ""
    return intended.class_name != HARDWARE and region == intended.region


def _old(world: World, since_s: float) -> bool:
    return world.loop.now_s - since_s >= LATE_S


def _key(namespace: str, name: str) -> LoadBalancerKey:
    return LoadBalancerKey("TCPLoadBalancer", namespace, name)


def _allocation(obj: Obj) -> str:
    return str(((obj.get("status") or {}).get("allocation") or {}).get("address") or "")


def _given_here(obj: Obj) -> str:
    """Return the address that the hub of its present region has given it."""
    accepted = (obj.get("status") or {}).get("accepted") or {}
    return _allocation(obj) if accepted.get("region", "") == obj["spec"].get("region", "") else ""


def _place(spec: Obj) -> tuple[LoadBalancerKey, ListenerKey, TargetKey]:
    owner, listener, target = spec["loadBalancer"], spec["listener"], spec["target"]
    return (
        LoadBalancerKey(owner["kind"], owner["namespace"], owner["name"]),
        ListenerKey(Protocol(listener["protocol"]), listener["port"]),
        TargetKey(target["address"], target["port"]),
    )


# --- once no fault is left ----------------------------------------------------------------------------------------


def problems(world: World) -> list[Problem]:
    """Return what is not as it should be, first what matters most."""
    return [problem for check in _AT_REST for problem in check(world) if problem[0] not in world.skipped]


def what_is_wanted_is_done(world: World) -> Iterator[Problem]:
    """What users want is served, at its address, with the targets that new connections should reach."""
    name = "what_is_wanted_is_done"
    for intended in world.intended.values():
        if intended.class_name != HARDWARE and not any(
            intended.region == hub.flags.get("region", "") for hub in world.hubs()
        ):
            continue
        where = f"{intended.namespace}/{intended.name}"
        obj = world.hub_api.get("tcploadbalancers", intended.namespace, intended.name)
        if obj is None:
            if not _may_be_missing(world, intended):
                yield name, f"{where} is not there"
            continue
        if obj["metadata"].get("deletionTimestamp"):
            yield name, f"{where} is being deleted, and is wanted"
            continue
        if intended.service is not None and _may_be_missing(world, intended):
            continue
        ports = tuple(port["port"] for port in obj["spec"]["ports"])
        if ports != intended.ports:
            yield name, f"{where} has the ports {ports}, wanted {intended.ports}"
            continue
        if _may_wait(world, intended, obj):
            continue
        conditions = {each["type"]: each for each in (obj.get("status") or {}).get("conditions") or ()}
        wanted = intended.targets()
        programmed = conditions.get("Programmed", {})
        if programmed.get("status") != "True":
            waits = programmed.get("reason") in (
                "AddressPoolExhausted",
                "PortConflict",
                "QuotaExceeded",
                "AddressNotUsable",
            )
            why = "what_is_released_is_given" if waits else name
            yield why, f"{where} is not programmed: {programmed.get('reason')} {programmed.get('message', '')[:120]}"
            continue
        yield from _targets(world, intended, wanted, where)
        if intended.service is not None:
            yield from _service(world, intended, obj, where)


def _targets(world: World, intended: Intended, wanted: set[str], where: str) -> Iterator[Problem]:
    for plane in world.planes.values():
        if not _serves(world, plane.name, intended) or (
            plane.name != "outside" and not world.processes[plane.name].alive
        ):
            continue
        for port in intended.ports:
            ready = _ready(plane, intended, port)
            if wanted and ready != wanted:
                text = f"{where}:{port} sends to {sorted(ready)} at {plane.name}, and should to {sorted(wanted)}"
                yield "new_connections_reach_the_right_pods", text
            elif not wanted and (dead := ready & {a for a in intended.finished if a not in intended.endpoints}):
                yield "what_is_gone_gets_nothing", f"{where}:{port} sends to {sorted(dead)}, which terminated"


def _service(world: World, intended: Intended, obj: Obj, where: str) -> Iterator[Problem]:
    assert intended.service is not None
    tenant, namespace, service = intended.service
    there = world.members[tenant].get("services", namespace, service, "")
    shown = [
        each.get("ip") for each in ((there or {}).get("status", {}).get("loadBalancer") or {}).get("ingress") or ()
    ]
    address = (obj.get("status") or {}).get("address", "")
    if shown != [address]:
        yield "status_is_true", f"Service {service} of {tenant} shows {shown}, {where} has {address}"


def _may_be_missing(world: World, intended: Intended) -> bool:
    """Return whether no agent can make or change the object, or it was deleted with its namespace."""
    home = world.hub_api.get("namespaces", "", intended.namespace, "")
    if intended.home and (home is None or home["metadata"]["uid"] != intended.home):
        return True
    tenant = world.hub_api.get("tenants", "", intended.namespace.removeprefix("tenant-"))
    return tenant is None or bool(tenant["metadata"].get("deletionTimestamp"))


def _may_wait(world: World, intended: Intended, obj: Obj) -> bool:
    """Return whether there is a reason for which it cannot be served."""
    if intended.class_name == HARDWARE:
        return False
    if _may_be_missing(world, intended):
        return True
    others = [
        (key, entry.obj)
        for key, entry in world.hub_api.bucket("tcploadbalancers").entries.items()
        if key != (intended.namespace, intended.name) and _allocation(entry.obj)
    ]
    mine = set(intended.ports)
    limit = (_owner(world, intended.namespace).get("spec") or {}).get("maxPorts", 0)
    if limit:
        taken = sum(len(other["spec"]["ports"]) for key, other in others if key[0] == intended.namespace)
        if taken + len(mine) > limit:
            return True
    pools = _pools(world, intended.region)
    wanted = intended.request
    if wanted:
        if not any(ipaddress.ip_address(wanted) in pool for pool in pools):
            return True
        by, released_s = world.released.get(wanted, (intended.namespace, 0.0))
        if by != intended.namespace and world.loop.now_s - released_s < REST_S + LATE_S:
            return True  # it rests, so that clients of the former one do not reach this one
        return any(
            _allocation(other) == wanted
            and (key[0] != intended.namespace or not mine.isdisjoint(_ports(world, key, other)))
            for key, other in others
        )
    if address := _given_here(obj):
        # A port that it has come to ask for may be taken at its address, which it keeps.
        return any(
            _allocation(other) == address and not mine.isdisjoint(_ports(world, key, other)) for key, other in others
        )
    taken_addresses = {_allocation(other) for _, other in others}
    return not any(str(address) not in taken_addresses for pool in pools for address in pool.hosts())


def _owner(world: World, namespace: str) -> Obj:
    """Return the Tenant that has a namespace: another one may name it, too."""
    home = world.hub_api.get("namespaces", "", namespace, "") or {}
    name = ((home.get("metadata") or {}).get("labels") or {}).get("fairlead.dev/tenant", "")
    return world.hub_api.get("tenants", "", name) or {}


def _ports(world: World, key: tuple[str, str], obj: Obj) -> set[int]:
    """Return the ports that a load balancer asks for or serves: it serves on while a change of it waits."""
    served = (spec for plane in world.planes.values() if (spec := plane.specs.get(_key(*key))) is not None)
    return {port["port"] for port in obj["spec"]["ports"]} | {each.port for spec in served for each in spec.listeners}


def _pools(world: World, region: str) -> list[ipaddress.IPv4Network]:
    own = world.pool(region)
    pools = [_network(own)] if own else []
    for obj in world.hub_api.objects("addresspools"):
        if not obj["metadata"].get("deletionTimestamp") and obj["spec"].get("region", "") == region:
            pools += map(_network, obj["spec"]["addresses"])
    return pools


_network = lru_cache(maxsize=None)(ipaddress.IPv4Network)


def what_is_not_wanted_is_gone(world: World) -> Iterator[Problem]:
    """What users have deleted is torn down, and nothing of it is left."""
    name = "what_is_not_wanted_is_gone"
    for key, entry in world.hub_api.bucket("tcploadbalancers").entries.items():
        region = entry.obj["spec"].get("region", "")
        if not any(region == hub.flags.get("region", "") for hub in world.hubs()):
            continue
        if _key(*key) not in world.intended and key[0].startswith("tenant-"):
            yield name, f"{'/'.join(key)} was deleted, and is there"
    for plane in world.planes.values():
        running = world.processes.get(plane.name)
        if plane.name != "outside" and (running is None or not running.alive):
            continue
        for key in plane.specs:
            if key.kind == "TCPLoadBalancer" and key not in world.intended:
                yield name, f"{key.namespace}/{key.name} was deleted, and is served at {plane.name}"
    outside = world.planes["outside"].members
    for record in world.hub_api.objects("backendrecords"):
        key, listener, at = _place(record["spec"])
        if key.kind == "TCPLoadBalancer" and (listener, at) not in outside.get(key, {}):
            yield name, f"there is a record of {at} of {key.name}, which is not registered"
    for tenant in world.hub_api.objects("tenants"):
        namespace = tenant["spec"].get("namespace") or f"tenant-{tenant['metadata']['name']}"
        wanted = any(each.namespace == namespace for each in world.intended.values())
        if tenant["metadata"].get("deletionTimestamp") and not wanted:
            yield name, f"Tenant {tenant['metadata']['name']} was deleted, and is there"


def tenants_are_ready(world: World) -> Iterator[Problem]:
    """A Tenant has its namespace, and says why not only while that is so."""
    for tenant in world.hub_api.objects("tenants"):
        meta = tenant["metadata"]
        if meta.get("deletionTimestamp"):
            continue
        namespace = tenant["spec"].get("namespace") or f"tenant-{meta['name']}"
        there = world.hub_api.get("namespaces", "", namespace, "")
        label = ((there or {}).get("metadata", {}).get("labels") or {}).get("fairlead.dev/tenant")
        if there is None:
            yield "every_key_is_retried", f"Tenant {meta['name']} has no namespace"
        elif label == meta["name"]:
            accepted = [
                each
                for each in (tenant.get("status") or {}).get("conditions") or ()
                if each["type"] == "Accepted" and each["status"] != "True"
            ]
            if accepted:
                text = f"Tenant {meta['name']} owns {namespace}, and says {accepted[0].get('message', '')[:80]}"
                yield "every_key_is_retried", text


_AT_REST: tuple[Callable[[World], Iterator[Problem]], ...] = (
    what_is_wanted_is_done,
    what_is_not_wanted_is_gone,
    tenants_are_ready,
    lambda world: world.zone.problems(),
)

__all__ = ["LATE_S", "Running", "problems", "tick", "watch"]
