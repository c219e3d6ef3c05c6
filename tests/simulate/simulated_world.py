"""The world of one story: APIs, hubs, agents, data planes, and what is true of what users want.

In: a shape and events. Out: processes of the real code, and state for the invariants. Only the link, the APIs and the
data planes are models.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from typing import Any
from zlib import crc32

import msgspec

from fairlead.agent.app import Agent
from fairlead.agent.config import AgentConfig
from fairlead.agent.identity import hub_name
from fairlead.api.crd import build_crd
from fairlead.api.kinds import CRDS
from fairlead.api.times import wire_time
from fairlead.hub.app import Hub, HubConfig
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.providers.memory import MemoryCloud
from fairlead.testing.builders import slice_body, tcp_body
from fairlead.translate.addresses import AddressRanges
from tests.simulate.api import Api, Bucket, Entry, Obj
from tests.simulate.api import Event as Change
from tests.simulate.link import Network
from tests.simulate.loop import OUTSIDE, START, Process, SimLoop
from tests.simulate.plane import Plane, SimProvider, Trouble
from tests.simulate.zone import Zone

POOL = "192.0.2.0/29"
_SECOND_POOL = "203.0.113.0/29"
HARDWARE = "hw"
#: The API of the second of two hubs that share a zone.
SECOND_SITE = "hub-b"
_KINDS = (
    ("", "v1", "Namespace", "namespaces", False),
    ("", "v1", "Secret", "secrets", True),
    ("", "v1", "ConfigMap", "configmaps", True),
    ("", "v1", "Event", "events", True),
    ("", "v1", "Service", "services", True),
    ("", "v1", "Node", "nodes", False),
    ("", "v1", "ServiceAccount", "serviceaccounts", True),
    ("coordination.k8s.io", "v1", "Lease", "leases", True),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", True),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", True),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", True),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False),
)
_GROUPS = {
    "leases": "coordination.k8s.io",
    "endpointslices": "discovery.k8s.io",
    "ingresses": "networking.k8s.io",
    "ingressclasses": "networking.k8s.io",
    **dict.fromkeys(("namespaces", "secrets", "configmaps", "events", "services", "nodes"), ""),
}


def group_of(plural: str) -> str:
    """Return the API group of a kind."""
    return _GROUPS.get(plural, "fairlead.dev")


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Shape(msgspec.Struct, frozen=True):
    """Which processes there are, and how they are configured."""

    kind: str = "hub"
    hubs: int = 1
    regions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    lease_s: float = 15.0
    heartbeat_s: float = 10.0
    domain: str = "lb.example.com"
    pool: str = POOL
    no_rights: bool = False


@dataclass
class Intended:
    """What its user wants of one load balancer: ``endpoints`` maps addresses to R, N, TS or T0."""

    namespace: str
    name: str
    class_name: str
    ports: tuple[int, ...]
    request: str = ""
    host: str = ""
    region: str = ""
    since_s: float = 0.0
    #: When it last had to wait for something that another one has.
    waited_s: float = 0.0
    endpoints: dict[str, str] = field(default_factory=dict)
    #: When each address was wanted last without a break.
    wanted_since_s: dict[str, float] = field(default_factory=dict)
    #: Since when each address is shown as terminated.
    terminated_s: dict[str, float] = field(default_factory=dict)
    #: Addresses that were shown as terminated and are gone.
    finished: set[str] = field(default_factory=set)
    service: tuple[str, str, str] | None = None
    #: The uid of the namespace in which its user created it at the hub: it goes with that namespace.
    home: str = ""

    @property
    def key(self) -> LoadBalancerKey:
        """Return the key of the load balancer at the hub."""
        return LoadBalancerKey("TCPLoadBalancer", self.namespace, self.name)

    def targets(self) -> set[str]:
        """Return the addresses that new connections should reach: ready ones, or else serving terminating ones."""
        ready = {address for address, state in self.endpoints.items() if state == "R"}
        return ready or {address for address, state in self.endpoints.items() if state == "TS"}


@dataclass
class Running:
    """One process, or the place of one that is not running now."""

    name: str
    kind: str
    flags: dict[str, str]
    process: Process | None = None
    app: Any = None
    ended: str = ""

    @property
    def alive(self) -> bool:
        """Return whether it runs; one that is suspended does."""
        return self.process is not None and self.process.alive


@lru_cache(maxsize=10_000)
def _wire_time(seconds: int) -> str:
    return wire_time(START + timedelta(seconds=seconds))


@cache
def _definitions() -> tuple[tuple[Obj, bytes], ...]:
    return tuple((crd, msgspec.json.encode(crd)) for crd in map(build_crd, CRDS))


class World:
    """Everything that outlives processes, and the processes."""

    def __init__(self, shape: Shape, seed: str) -> None:
        self.shape = shape
        self.seed = seed
        self.loop = SimLoop()
        self.network = Network(self.loop, seed)
        self.trace: list[str] | None = None
        self.digest = 0
        self.violation: Violation | None = None
        self.intended: dict[LoadBalancerKey, Intended] = {}
        self.processes: dict[str, Running] = {}
        self.skipped: frozenset[str] = frozenset()
        self.trouble = Trouble()
        #: The tenants that something was wrong with, "*" for all.
        self.troubled: set[str] = set()
        self.calm_since_s = 0.0
        #: The namespace that released each address last, and when.
        self.released: dict[str, tuple[str, float]] = {}
        self.on_write: list[Callable[[Api, Bucket, Change, str], None]] = []
        self.on_plane: list[
            Callable[[str, LoadBalancerKey, ListenerKey, TargetKey, Target | None, Target | None], None]
        ] = []
        self.starts = 0
        self.hub_api = self._api("hub")
        self._put_definitions(self.hub_api)
        self.members = {tenant: self._api(f"m-{tenant}") for tenant in shape.agents}
        self.outside = MemoryCloud(clock=Process(self.loop, "outside").clock)
        self.planes: dict[str, Plane] = {"outside": Plane("outside", self._plane_changed)}
        self.tenants: dict[str, Obj] = {}
        self.network.note = self.note
        self.zone = Zone(self)
        if shape.kind == "zone":
            self._put_definitions(self._api(SECOND_SITE))

    # --- APIs -----------------------------------------------------------------------------------------------------

    def _api(self, name: str) -> Api:
        def now() -> str:
            return _wire_time(int(self.loop.now_s + self.network.skew_s.get(name, 0.0)))

        api = Api(name, now=now)
        api.later = lambda run: self.loop.call_later(1.0, run, context=OUTSIDE) and None
        for kind in _KINDS:
            api.serve(*kind)
        self.network.apis[name] = api
        for namespace in ("default", "kube-system", "shop"):
            self._user(api, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        api.written = lambda bucket, change, by: self._written(api, bucket, change, by)
        return api

    def _put_definitions(self, api: Api) -> None:
        bucket = api.bucket("customresourcedefinitions", "apiextensions.k8s.io")
        for crd, _ in _definitions():
            spec = crd["spec"]
            for version in spec["versions"]:
                names = spec["names"]
                api.serve(spec["group"], version["name"], names["kind"], names["plural"], spec["scope"] == "Namespaced")
            bucket.entries["", crd["metadata"]["name"]] = _definition_entry(crd["metadata"]["name"])

    def _written(self, api: Api, bucket: Bucket, change: Change, by: str) -> None:
        self.digest = crc32(change.entry.raw, crc32(f"{self.loop.now_s!r} {by} {change.type}".encode(), self.digest))
        if self.trace is not None and bucket.plural not in ("leases", "events"):
            self.note(f"{by} {change.type} {bucket.plural} {'/'.join(change.key)} at {api.name} {_brief(change)}")
        for check in self.on_write:
            check(api, bucket, change, by)

    def _plane_changed(
        self,
        plane: str,
        key: LoadBalancerKey,
        listener: ListenerKey,
        at: TargetKey,
        old: Target | None,
        new: Target | None,
    ) -> None:
        if self.trace is not None:
            self.note(f"plane {plane}: {key.namespace}/{key.name} {listener} {at}: {_state(old)} -> {_state(new)}")
        for check in self.on_plane:
            check(plane, key, listener, at, old, new)

    def note(self, text: str) -> None:
        """Add a line to the trace, if one is kept."""
        if self.trace is not None:
            self.trace.append(f"{self.loop.now_s:9.3f} {text}")

    def fail(self, invariant: str, text: str) -> None:
        """Note the first violation; the story ends with it."""
        if self.violation is None and invariant not in self.skipped:
            self.violation = Violation(invariant, f"at {self.loop.now_s:.1f} s: {text}")
            self.loop.ended = True
            self.note(f"VIOLATION {self.violation}")

    def _user(self, api: Api, method: str, path: str, body: Obj | None = None, how: str = "application/json") -> int:
        """Return the status of the answer: a user need not be able to read the body."""
        params = {"fieldManager": "kubectl"}
        answer = api.request(
            method, path, params, msgspec.json.encode(body) if body is not None else None, how, "kubectl"
        )
        return answer.status

    def apply(self, api: Api, plural: str, body: Obj, *, subresource: str = "") -> int:
        """Apply an object as its user; an answer that refuses is for the user to see."""
        return self._user(
            api, "PATCH", self.path(api, plural, body["metadata"], subresource), body, "application/apply-patch+yaml"
        )

    def delete(self, api: Api, plural: str, namespace: str, name: str) -> int:
        """Delete an object as its user."""
        return self._user(api, "DELETE", self.path(api, plural, {"namespace": namespace, "name": name}), {})

    def path(self, api: Api, plural: str, meta: Obj, subresource: str = "") -> str:
        """Return the path of an object."""
        bucket = api.bucket(plural, group_of(plural))
        root = f"/apis/{bucket.group}/{bucket.version}" if bucket.group else f"/api/{bucket.version}"
        middle = f"/namespaces/{meta['namespace']}" if bucket.namespaced else ""
        return f"{root}{middle}/{plural}/{meta['name']}" + (f"/{subresource}" if subresource else "")

    # --- processes ------------------------------------------------------------------------------------------------

    def start(self, name: str, kind: str = "", **flags: str) -> None:
        """Start a process, or start it again with other flags."""
        running = self.processes.get(name) or Running(name, kind, {})
        self.processes[name] = running
        if running.alive:
            return
        running.flags.update(flags)
        self.starts += 1
        process = running.process = Process(self.loop, name)
        make = self._hub if running.kind == "hub" else self._agent
        process.context.run(lambda: process.start(make(running, process)))

    def kill(self, name: str) -> None:
        """Kill a process: it takes no further step."""
        running = self.processes.get(name)
        if running is not None and running.process is not None:
            running.process.kill()
            for (process, _), line in self.network.lines.items():
                if process == name:
                    for stream in list(line.streams):
                        stream.close()

    def stop(self, name: str) -> None:
        """Ask a process to end, as SIGTERM does."""
        running = self.processes.get(name)
        if running is not None and running.process is not None and running.process.main is not None:
            running.ended = "told"
            running.process.main.cancel()

    def _hub(self, running: Running, process: Process) -> Coroutine[Any, Any, None]:
        plane = self.planes.setdefault(running.name, Plane(running.name, self._plane_changed))
        seed = f"{self.seed}/{running.name}/{self.starts}"
        # What an Envoy serves is of its hub alone: a process begins with nothing, and the plane keeps what it has.
        own = SimProvider(
            process, self.loop, MemoryCloud(clock=process.clock), plane, self.trouble, seed, serves_whole_state=True
        )

        def hardware() -> SimProvider:
            outside = self.planes["outside"]
            return SimProvider(
                process, self.loop, self.outside, outside, self.trouble, seed + "hw", serves_whole_state=False
            )

        config = HubConfig(
            identity=f"{running.name}-{self.starts}",
            address_pool=AddressRanges.parse(pool) if (pool := self.pool(running.flags.get("region", ""))) else None,
            region=running.flags.get("region", ""),
            workers=2,
            domain=self.shape.domain,
            lease_s=self.shape.lease_s,
        )
        hub = running.app = Hub(
            cluster=self._cluster(process, site := running.flags.get("site", "hub")),
            providers={"envoy": own},
            config=config,
            clock=process.clock,
            factories={"memory": hardware, "rfc2136": lambda: self.zone.provider(process, site)},
        )
        return hub.run()

    def _agent(self, running: Running, process: Process) -> Coroutine[Any, Any, None]:
        tenant = running.flags["tenant"]
        config = AgentConfig(
            tenant=tenant,
            target="Pod",
            identity=f"{running.name}-{self.starts}",
            renew_token=False,
            workers=2,
            heartbeat_s=self.shape.heartbeat_s,
            lease_s=self.shape.lease_s,
            preflight_retry_s=3600.0 if self.shape.no_rights else 15.0,
        )
        agent = running.app = Agent(
            member=self._cluster(process, f"m-{tenant}"), hub=self._cluster(process, "hub"), config=config
        )
        return agent.run()

    def _cluster(self, process: Process, host: str) -> Cluster:
        config = ClusterConfig(server=f"http://{host}", sign_in=bearer(process.name))
        return Cluster(config, name=host, clock=process.clock, qps=0)

    def pool(self, region: str) -> str:
        """Return the addresses of the hub of a region: each of several hubs has its own."""
        return _SECOND_POOL if self.shape.regions and region == self.shape.regions[-1] else self.shape.pool

    def hubs(self) -> list[Running]:
        """Return the hubs that run."""
        return [each for each in self.processes.values() if each.kind == "hub" and each.alive]

    # --- what users do --------------------------------------------------------------------------------------------

    def tenant(self, name: str, spec: Obj) -> None:
        """Create or change a Tenant."""
        self.tenants[name] = spec
        self.apply(self.hub_api, "tenants", {"metadata": {"name": name}, "spec": spec})

    def load_balancer(self, intended: Intended) -> bool:
        """Create or change a load balancer at the hub, or the Service in the member that asks for one."""
        if intended.service is not None:
            return self._service(intended)
        spec: Obj = {"targets": "Pod", "className": intended.class_name, "generateHostname": True}
        if intended.request:
            spec["address"] = intended.request
        if intended.host:
            spec["hostnames"] = [intended.host]
        if intended.region:
            spec["region"] = intended.region
        spec["origin"] = {"kind": "Service", "namespace": "shop", "name": intended.name, "uid": "u"}
        body = tcp_body(
            intended.name, namespace=intended.namespace, ports=[{"port": p} for p in intended.ports], spec=spec
        )
        return self.apply(self.hub_api, "tcploadbalancers", body) < 300

    def _service(self, intended: Intended) -> bool:
        assert intended.service is not None
        tenant, namespace, name = intended.service
        annotations = {"fairlead.dev/target": "Pod"}
        if intended.request:
            annotations["fairlead.dev/address-request"] = intended.request
        spec: Obj = {
            "type": "LoadBalancer",
            "selector": {"app": name},
            "ports": [{"name": f"p{p}", "port": p, "protocol": "TCP", "targetPort": 8080} for p in intended.ports],
        }
        if intended.class_name == HARDWARE:
            spec["loadBalancerClass"] = "fairlead.dev/" + HARDWARE
        meta = {"name": name, "namespace": namespace, "annotations": annotations}
        return self.apply(self.members[tenant], "services", {"metadata": meta, "spec": spec}) < 300

    def slices(self, intended: Intended) -> bool:
        """Write the EndpointSlice of a load balancer as its controller does."""
        endpoints = [
            {"addresses": [address], "conditions": _conditions(state)}
            for address, state in sorted(intended.endpoints.items())
        ]
        if intended.service is not None:
            tenant, namespace, name = intended.service
            body: Obj = {
                "metadata": {
                    "name": f"{name}-1",
                    "namespace": namespace,
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": [{"name": f"p{p}", "port": 8080, "protocol": "TCP"} for p in intended.ports],
            }
            return self.apply(self.members[tenant], "endpointslices", body) < 300
        body = slice_body(f"{intended.name}-1", endpoints, load_balancer=intended.name, namespace=intended.namespace)
        return self.apply(self.hub_api, "endpointslices", body) < 300


def _conditions(state: str) -> Obj:
    ready = state == "R"
    return {"ready": ready, "serving": ready or state == "TS", "terminating": state in ("TS", "T0")}


@cache
def _definition_entry(name: str) -> Entry:
    crd = next(crd for crd, _ in _definitions() if crd["metadata"]["name"] == name)
    meta = {
        **crd["metadata"],
        "uid": name,
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": "2030-01-01T00:00:00Z",
    }
    conditions = [{"type": kind, "status": "True"} for kind in ("Established", "NamesAccepted")]
    return Entry({**crd, "metadata": meta, "status": {"conditions": conditions}}, 1, {})


def _state(target: Target | None) -> str:
    return "-" if target is None else "draining" if target.draining else "ready"


def _brief(change: Change) -> str:
    obj = change.entry.obj
    status = obj.get("status") or {}
    parts = [f"deleting {obj['metadata'].get('finalizers')}"] if obj["metadata"].get("deletionTimestamp") else []
    if allocation := status.get("allocation"):
        parts.append(f"allocation={allocation.get('address', '')}")
    parts += [
        f"{each['type']}={each['status']}/{each.get('reason', '')}"
        for each in status.get("conditions") or ()
        if each["type"] in ("Programmed", "Accepted", "Ready")
    ]
    if "state" in status:
        parts.append(str(status["state"]))
    return " ".join(parts)


def new_random(*parts: object) -> random.Random:
    """Return a source of randomness that depends on nothing but ``parts``."""
    return random.Random("/".join(map(str, parts)))


__all__ = [
    "HARDWARE",
    "POOL",
    "SECOND_SITE",
    "Intended",
    "Running",
    "Shape",
    "Violation",
    "World",
    "group_of",
    "hub_name",
    "new_random",
]
