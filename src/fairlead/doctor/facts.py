"""The input and the result of checks: what was read of a hub, a member and this machine, and what is wrong with it.

In: nothing; gatherers fill ``Facts``. Objects are as the API server sent them, by ``plural.group``; functions read
their fields, which may be missing or null. Out: ``Finding``, with the object at fault and the command that fixes it.
Never: a key or a token (of a certificate or token only its expiry is kept); a finding without a next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar, cast

import msgspec

from fairlead.api.kubernetes import LEASES
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource, Wire
from fairlead.api.names import AGENT_LEASE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import ANNOTATION_MEMBER_UID, TENANTS
from fairlead.model.machine import MachinePlan, SessionState

T = TypeVar("T", bound=KubeObject)

#: What ``JSONObject`` lists are kept by: ``plural.group``.
Objects = dict[str, list[JSONObject]]


class Expiry(msgspec.Struct, frozen=True):
    """The expiry of a certificate or token: its name and place, when it expires, and the command that renews it.

    ``names`` are those that a certificate is valid for.
    """

    what: str
    where: str
    ends: datetime
    renew: str
    names: tuple[str, ...] = ()


class Denied(msgspec.Struct, frozen=True):
    """A right that an account lacks; ``resource`` is plural.group with a subresource after a slash."""

    account: str
    verb: str
    resource: str
    namespace: str = ""


class ApiFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster. ``error`` is why nothing of it could be read; ``unread`` why one kind could not.

    ``flags`` are those of kubectl and of the verbs that name its kubeconfig and context; empty in a pod.
    ``ahead_s`` is by how many seconds its clock is ahead of this machine's, ``uid`` that of its namespace kube-system,
    ``key_of`` the tenant whose key the kubeconfig is. ``denied`` is about the account that works there, where there
    is one, else about the kubeconfig's own user.
    """

    name: str
    server: str = ""
    flags: str = ""
    error: str = ""
    version: str = ""
    uid: str = ""
    key_of: str = ""
    ahead_s: float | None = None
    now: datetime = datetime.fromtimestamp(0, UTC)
    served: frozenset[str] = frozenset()
    objects: Objects = msgspec.field(default_factory=Objects)
    unread: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    denied: tuple[Denied, ...] = ()
    endings: tuple[Expiry, ...] = ()
    #: Objects decoded during one examination, by kind and type, and why others could not be.
    decoded: dict[tuple[str, type], list[KubeObject]] = msgspec.field(
        default_factory=dict[tuple[str, type], list[KubeObject]]
    )
    undecodable: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def undecoded(self) -> ApiFacts:
        """Return the same facts before any object is decoded."""
        return msgspec.structs.replace(self, decoded={}, undecodable={})

    def list(self, resource: AnyResource) -> list[JSONObject]:
        """Return the objects of a kind; none where they were not read."""
        return self.objects.get(resource.full_name, [])

    def read(self, resource: Resource[T]) -> Sequence[T]:
        """Return the objects of a kind, decoded; ``undecodable`` has those of another version."""
        key = (resource.full_name, resource.type)
        if key not in self.decoded:
            objects = self.decoded.setdefault(key, [])
            for obj in self.list(resource):
                try:
                    objects.append(msgspec.convert(obj, resource.type))
                except msgspec.ValidationError as error:
                    self.undecodable[path_of(resource.kind, obj)] = str(error)
        return cast("Sequence[T]", self.decoded[key])

    def knows(self, resource: AnyResource) -> bool:
        """Return whether the objects of a kind were read, so that a missing one is really missing."""
        return resource.full_name in self.objects


class Container(Wire, frozen=True):
    """One container of a Deployment."""

    image: str = ""
    args: list[str] | None = None


class PodTemplateSpec(Wire, frozen=True):
    """The containers of a pod."""

    containers: list[Container] | None = None


class PodTemplate(Wire, frozen=True):
    """The pods of a Deployment."""

    spec: PodTemplateSpec = PodTemplateSpec()


class DeployedSpec(Wire, frozen=True):
    """The number of pods and their containers."""

    replicas: int = 1
    template: PodTemplate = PodTemplate()


class DeployedStatus(Wire, frozen=True):
    """The number of available pods."""

    available_replicas: int | None = None


class Deployed(KubeObject, frozen=True):
    """A Deployment of hub, agent or proxies."""

    spec: DeployedSpec = DeployedSpec()
    status: DeployedStatus = DeployedStatus()

    @property
    def part(self) -> str:
        """Return which part of Fairlead it is, such as fairlead-hub."""
        return self.label("app.kubernetes.io/name")

    @property
    def containers(self) -> list[Container]:
        """Return its containers."""
        return self.spec.template.spec.containers or []


DEPLOYED = Resource("apps", "v1", "Deployment", "deployments", True, Deployed)


class Reports(KubeObject, frozen=True):
    """The ConfigMap with the reports of the hub's replicas."""

    data: dict[str, str] | None = None


REPORTS = Resource("", "v1", "ConfigMap", "configmaps", True, Reports)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """This machine, as far as a hub with a local Envoy depends on it. Paths are empty where there are none."""

    data_dir: str = ""
    data_dir_problem: str = ""
    envoy: str = ""
    envoy_problem: str = ""
    low_ports_problem: str = ""
    file_limit: int = 1_048_576
    free_bytes: int = 1 << 40
    ephemeral_ports: tuple[int, int] = (32_768, 60_999)
    open_kubeconfigs: tuple[str, ...] = ()
    lost_envoys: tuple[str, ...] = ()


class ReachedHub(msgspec.Struct, frozen=True):
    """A hub as a proxy machine sees it; ``ahead_s`` is by how much this machine's clock is ahead, None if unknown."""

    place: str
    xds: str
    problem: str = ""
    xds_problem: str = ""
    ahead_s: float | None = None


class KernelSetting(msgspec.Struct, frozen=True):
    """A setting of the kernel that is in force, such as ``net.ipv4.conf.eth0.arp_ignore``."""

    name: str
    value: int

    @property
    def interface(self) -> str:
        """Return the interface of a setting; empty for one of the whole machine."""
        return self.name.removeprefix("net.ipv4.conf.").rpartition(".")[0] if ".conf." in self.name else ""


class LinkFacts(msgspec.Struct, frozen=True):
    """An interface; ``small`` are the neighbours that answer small packets, and none as large as its MTU."""

    name: str
    up: bool
    mtu: int
    subnets: tuple[str, ...] = ()
    small: tuple[str, ...] = ()


class AskedAddress(msgspec.Struct, frozen=True):
    """The MAC addresses of the other hosts that answered for an address; ``owned``: this machine announces it."""

    address: str
    interface: str
    mac: str
    owned: bool
    macs: tuple[str, ...] = ()


class ProxyMachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """This machine as a proxy machine; ``problem`` is why no more than its directory was read.

    ``ageing_s``: after how long each bridge here forgets a MAC address.
    """

    state_dir: str
    problem: str = ""
    directory_problem: str = ""
    free_bytes: int = 1 << 40
    now: datetime = datetime.fromtimestamp(0, UTC)
    machine: str = ""
    plan: MachinePlan = MachinePlan(machine="", version="")
    runs: bool = False
    missing_capabilities: tuple[str, ...] = ()
    envoy_answers: bool = False
    certificate_ends: datetime = datetime.fromtimestamp(0, UTC)
    renew_at: datetime = datetime.fromtimestamp(0, UTC)
    hubs: tuple[ReachedHub, ...] = ()
    settings: tuple[KernelSetting, ...] = ()
    links: tuple[LinkFacts, ...] = ()
    ageing_s: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    addresses: tuple[AskedAddress, ...] = ()
    sessions: tuple[SessionState, ...] = ()


class ConnectionResult(msgspec.Struct, frozen=True):
    """The result of a connection from this machine to a target; ``problem`` is empty when it succeeded."""

    load_balancer: str
    target: str
    problem: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that was read; what was not asked for is None."""

    version: str
    hub: ApiFacts | None = None
    member: ApiFacts | None = None
    machine: Machine | None = None
    proxy: ProxyMachineFacts | None = None
    reach: tuple[ConnectionResult, ...] = ()

    @property
    def sides(self) -> tuple[ApiFacts, ...]:
        """Return the clusters that answered."""
        return tuple(side for side in (self.hub_read, self.member_read) if side is not None)

    @property
    def hub_read(self) -> ApiFacts | None:
        """Return the hub if it answered: only then is what is missing there really missing."""
        return self.hub if self.hub is not None and not self.hub.error else None

    @property
    def member_read(self) -> ApiFacts | None:
        """Return the member if it answered."""
        return self.member if self.member is not None and not self.member.error else None


def mapping(value: Any) -> JSONObject:
    """Return a mapping that may be missing or null."""
    return value or {}


def meta(obj: JSONObject, field: str) -> Any:
    """Return a field of the metadata, None without it."""
    return mapping(obj.get("metadata")).get(field)


def name_of(obj: JSONObject) -> str:
    """Return the name."""
    return str(meta(obj, "name") or "")


def path_of(kind: str, obj: JSONObject) -> str:
    """Return KIND/NAMESPACE/NAME, or KIND/NAME of what has no namespace."""
    return "/".join(filter(None, (kind, str(meta(obj, "namespace") or ""), name_of(obj))))


def path_to(kind: str, obj: KubeObject) -> str:
    """Return the same for a decoded object."""
    return "/".join(filter(None, (kind, *obj.key)))


def annotation(obj: JSONObject, key: str) -> str:
    """Return the value of an annotation, empty without it."""
    return str(mapping(meta(obj, "annotations")).get(key, ""))


def spec(obj: JSONObject) -> JSONObject:
    """Return the spec, empty without one."""
    return mapping(obj.get("spec"))


def items(value: Any) -> list[Any]:
    """Return a list that may be null."""
    return value or []


class Severity(StrEnum):
    """error: something does not work. warning: it will stop working. unknown: it could not be checked."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """One fault. ``object`` is KIND/NAMESPACE/NAME, or what else is at fault; ``fix`` is the command that fixes it."""

    severity: Severity
    object: str
    fault: str
    fix: str
    check: str = ""


class Check(msgspec.Struct, frozen=True):
    """One check: its name, the question that it answers, and the function that finds what is wrong.

    ``side`` is the cluster for which its commands are: hub or member. ``causes`` are the checks whose findings about
    the same object are the cause of its own.
    """

    name: str
    question: str
    run: Callable[[Facts], Iterator[Finding]]
    side: str = "hub"
    causes: tuple[str, ...] = ()


#: Verbs of ours that read the cluster of ``--kubeconfig``.
_READING = ("drift", "explain", "names", "plan", "repair", "resume", "route", "status")


def pasteable(fix: str, flags: str) -> str:
    """Return a fix that a shell takes as it is: for the cluster that was looked at, and with its hint as a comment.

    Checks write the hint after three spaces; ``flags`` are the options that name the kubeconfig, if any.
    """
    command, _, hint = fix.partition("   ")
    program, _, rest = command.partition(" ")
    # Which member it is that a check of the hub names is not known here.
    if flags and "--kubeconfig" not in command and not hint.startswith("in member"):
        if program == "kubectl":
            command = f"kubectl {flags} {rest}"
        elif program == "fairlead" and rest.partition(" ")[0] in _READING:
            command = f"{command} {flags}"
    return f"{command}   # {hint}" if hint else command


def error(object_: str, fault: str, fix: str) -> Finding:
    """Return a fault that keeps something from working."""
    return Finding(Severity.ERROR, object_, fault, fix)


def warning(object_: str, fault: str, fix: str) -> Finding:
    """Return a fault that will keep something from working."""
    return Finding(Severity.WARNING, object_, fault, fix)


def unknown(object_: str, fault: str, fix: str) -> Finding:
    """Return what could not be checked."""
    return Finding(Severity.UNKNOWN, object_, fault, fix)


def objects_by_path(facts: Facts) -> dict[str, JSONObject]:
    """Return every object that was read, by KIND/NAMESPACE/NAME."""
    return {
        path_of(str(obj.get("kind", "")), obj): obj
        for side in facts.sides
        for objects in side.objects.values()
        for obj in objects
    }


def namespaces_of_member(facts: Facts) -> set[str]:
    """Return the namespace of the member that was read at the hub that was read; empty where that is not known."""
    hub, member = facts.hub, facts.member
    if hub is None or member is None or not member.uid:
        return set()
    leases = (lease for lease in hub.read(LEASES) if lease.metadata.name == AGENT_LEASE)
    return {lease.metadata.namespace for lease in leases if lease.annotation(ANNOTATION_MEMBER_UID) == member.uid}


def is_in_set(facts: Facts) -> bool:
    """Return whether the Tenant of the member that was read has a cluster set; False where that is not known."""
    namespaces = namespaces_of_member(facts)
    tenants = facts.hub.read(TENANTS) if facts.hub is not None and namespaces else ()
    return any(tenant.spec.cluster_set and tenant.namespace in namespaces for tenant in tenants)


def service_of(facts: Facts) -> dict[str, str]:
    """Return the Service of the member that was read by the path of its load balancer at the hub that was read."""
    namespaces, hub = namespaces_of_member(facts), facts.hub
    return {
        path_to(TCP_LOAD_BALANCERS.kind, lb): f"Service/{lb.spec.origin.namespace}/{lb.spec.origin.name}"
        for lb in (hub.read(TCP_LOAD_BALANCERS) if hub is not None else ())
        if lb.metadata.namespace in namespaces and lb.spec.origin.namespace
    }
