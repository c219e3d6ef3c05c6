"""BackendGroup, the backends of LoadBalancers, and BackendRecord, one backend as it was registered."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, PROGRAMMED, CelRule, Column, Crd
from fairlead.api.intent import Port, ProtocolName
from fairlead.api.kubernetes import NodeAddress, plausible_epoch
from fairlead.api.loadbalancerclass import EnsurePolicy
from fairlead.api.meta import LIST_ATOMIC, LIST_SET, Conditions, KubeObject, Resource, Wire, list_by
from fairlead.api.names import GROUP, VERSION

Name = Annotated[str, Meta(min_length=1, max_length=253)]


class BackendPort(Wire, frozen=True, gc=False):
    """A port of the backends; listener names the load balancer's listener, where it has more than one."""

    port: Port
    protocol: ProtocolName = "TCP"
    listener: Annotated[str, Meta(max_length=63)] = ""


class PodLabels(Wire, frozen=True, gc=False):
    """Pods by label, but not those whose names are in except."""

    selector: Annotated[dict[str, str], Meta(min_length=1)]
    except_: Annotated[list[Name], Meta(max_length=1000, extra_json_schema=LIST_SET)] = msgspec.field(
        default_factory=list[str], name="except"
    )


class PodBackends(Wire, frozen=True, gc=False):
    """Pods, by label or by name."""

    ports: Annotated[list[BackendPort], Meta(min_length=1, max_length=64, extra_json_schema=LIST_ATOMIC)]
    by_label: PodLabels | None = None
    by_name: Annotated[list[Name], Meta(max_length=1000, extra_json_schema=LIST_SET)] | None = None


class ServiceBackends(Wire, frozen=True, gc=False):
    """The nodes at a NodePort Service's node port; nodeSelector picks some of them."""

    name: Name
    port: BackendPort
    node_selector: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class DeregisterWebhook(Wire, frozen=True, gc=False):
    """The class whose driver is asked which pods stay, and what holds while it does not answer."""

    class_name: Name
    failure_policy: Literal["DoNothing", "IfNotReady", "IfNotRunning"] = "DoNothing"


class BackendGroupSpec(Wire, frozen=True, gc=False):
    """Exactly one of pods, service and static; its kind never changes.

    loadBalancers are names in the same namespace, or namespace/name of those whose scope admits this one.
    static backends are address:port; those that are in draining too get no new connections. parameters go to the
    provider with each backend, such as weight. listBackends: the status lists each static backend with its state.
    """

    load_balancers: Annotated[list[Name], Meta(min_length=1, max_length=64, extra_json_schema=LIST_SET)]
    pods: PodBackends | None = None
    service: ServiceBackends | None = None
    static: Annotated[list[Name], Meta(max_length=1000, extra_json_schema=LIST_SET)] | None = None
    draining: Annotated[list[Name], Meta(max_length=1000, extra_json_schema=LIST_SET)] | None = None
    list_backends: bool = False
    listener: Annotated[str, Meta(max_length=63)] = ""
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    deregister_policy: Literal["IfNotReady", "IfNotRunning", "Webhook"] = "IfNotReady"
    deregister_webhook: DeregisterWebhook | None = None
    ensure_policy: EnsurePolicy | None = None


class AcceptedBackends(Wire, frozen=True, gc=False):
    """With which parameters a load balancer has taken the group on; uid is that load balancer's."""

    uid: str = ""
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class ListedBackend(Wire, frozen=True, gc=False):
    """One static backend as it is at the load balancers.

    Pending: not registered yet. Draining: it gets no new connections, at every proxy. Deregistering: on its way out.
    """

    backend: Name
    state: Literal["Pending", "Registered", "Draining", "Deregistering"]


class BackendGroupStatus(Wire, frozen=True, gc=False):
    """How far it has come: backends expected, and registered.

    listed has, with listBackends, what is registered or on its way; a backend that is not in it is deregistered, and
    that has taken effect, of the spec whose generation is listedGeneration.

    loadBalancers are those of the spec in one line, for the column of kubectl get.
    accepted is what is served, by namespace/name of the load balancer: when spec is refused, as it was before.
    """

    load_balancers: str = ""
    backends: int = 0
    registered_backends: int = 0
    accepted: dict[str, AcceptedBackends] | None = None
    listed: Annotated[list[ListedBackend] | None, Meta(extra_json_schema=list_by("backend"))] = None
    listed_generation: int = 0
    observed_generation: int = 0
    conditions: Conditions = None


class BackendGroup(KubeObject, frozen=True, gc=False):
    """Backends that go onto load balancers."""

    spec: BackendGroupSpec = BackendGroupSpec(load_balancers=[])
    status: BackendGroupStatus = BackendGroupStatus()


BACKEND_GROUPS = Resource(GROUP, VERSION, "BackendGroup", "backendgroups", True, BackendGroup)

BACKEND_GROUP_CRD = Crd(
    BACKEND_GROUPS,
    short_names=("bg",),
    columns=(
        Column("Load Balancers", ".status.loadBalancers"),
        Column("Programmed", f"{PROGRAMMED}.status"),
        Column("Reason", f"{PROGRAMMED}.reason"),
        Column("Registered", ".status.registeredBackends", "integer"),
        Column("Expected", ".status.backends", "integer"),
        AGE,
    ),
    rules=(
        CelRule(
            "[has(self.pods), has(self.service), has(self.static)].filter(x, x).size() == 1",
            "exactly one of pods, service and static is needed",
        ),
        CelRule(
            "has(self.pods) == has(oldSelf.pods) && has(self.service) == has(oldSelf.service)",
            "the kind of backends (pods, service or static) is immutable: create another BackendGroup",
        ),
        CelRule(
            "!has(self.pods) || has(self.pods.byLabel) != has(self.pods.byName)",
            "pods: exactly one of byLabel and byName is needed",
        ),
        CelRule(
            "!has(self.deregisterPolicy) || self.deregisterPolicy != 'Webhook' || has(self.deregisterWebhook)",
            "deregisterPolicy Webhook needs deregisterWebhook",
        ),
    ),
)


RecordState = Literal["", "Pending", "Registered", "Draining", "Deregistering", "Failed"]


class RecordLoadBalancer(Wire, frozen=True, gc=False):
    """The load balancer: the object that asked for it, and everything that a provider needs to find it again."""

    kind: str
    namespace: str
    name: str
    provider: str
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    attributes: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    info: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    existing: bool = False
    uid: str = ""


class RecordListener(Wire, frozen=True, gc=False):
    """The listener; of a load balancer of requests the backend by its name, with port 0."""

    port: Annotated[int, Meta(ge=0, le=65535)]
    protocol: ProtocolName
    name: str = ""
    backend: str = ""


class RecordOrigin(Wire, frozen=True, gc=False):
    """What a provider makes its own address of the backend from, as it was when the record was made.

    kind Pod: namespace, name and uid are the pod's, labels and phase too, nodeName is where it runs.
    kind Service: namespace, name, uid and labels are the Service's, servicePort the port of it that is meant, nodeName
    and nodeAddresses the node at whose node port it is reached.
    """

    kind: Literal["Pod", "Service"]
    namespace: str = ""
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    phase: str = ""
    node_name: str = ""
    service_port: int = 0
    node_addresses: Annotated[list[NodeAddress], Meta(extra_json_schema=LIST_ATOMIC)] = msgspec.field(
        default_factory=list[NodeAddress]
    )


class RecordTarget(Wire, frozen=True, gc=False):
    """The backend: its address, and the object behind it, if any, as kind/namespace/name/uid.

    origin only where the provider makes an address of its own from it; it never changes. name is the object in few
    words, for people.
    """

    address: Annotated[str, Meta(min_length=1, max_length=255)]
    port: Port
    weight: int = 1
    source: str = ""
    draining: bool = False
    origin: RecordOrigin | None = None
    name: str = ""


class BackendRecordSpec(Wire, frozen=True, gc=False):
    """Enough to register and to deregister, when pod, group and node are long gone.

    owners are the groups (or Services) that want it; it goes with the last one. epoch is the term of the leader that
    wrote it.
    """

    load_balancer: RecordLoadBalancer
    listener: RecordListener
    target: RecordTarget
    owners: Annotated[list[str], Meta(extra_json_schema=LIST_SET)] = msgspec.field(default_factory=list[str])
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    epoch: int = 0

    @property
    def leader_epoch(self) -> int:
        """Return the epoch of the leader that wrote it, 0 when the number cannot be one."""
        return plausible_epoch(self.epoch)


class BackendRecordStatus(Wire, frozen=True, gc=False):
    """The state of the backend at the provider.

    injectedInfo is the provider's own memory, given back to it with every later call; generatedAddress is its own
    word for the backend.
    """

    state: RecordState = ""
    reason: str = ""
    message: str = ""
    since: str | None = None
    generated_address: str = ""
    injected_info: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class BackendRecord(KubeObject, frozen=True, gc=False):
    """One backend that is, or may be, registered."""

    spec: BackendRecordSpec = BackendRecordSpec(
        load_balancer=RecordLoadBalancer(kind="", namespace="", name="", provider=""),
        listener=RecordListener(port=0, protocol="TCP"),
        target=RecordTarget(address="", port=0),
    )
    status: BackendRecordStatus = BackendRecordStatus()


BACKEND_RECORDS = Resource(GROUP, VERSION, "BackendRecord", "backendrecords", True, BackendRecord)

BACKEND_RECORD_CRD = Crd(
    BACKEND_RECORDS,
    short_names=("br",),
    columns=(
        Column("Load Balancer", ".spec.loadBalancer.name"),
        Column("Target", ".spec.target.name", description="the object behind the address, if there is one"),
        Column("Address", ".spec.target.address"),
        Column("Port", ".spec.target.port", "integer"),
        Column("State", ".status.state"),
        Column("Reason", ".status.reason"),
        Column("Since", ".status.since", "date", priority=1),
        AGE,
    ),
    rules=(
        CelRule(
            "self.loadBalancer.name == oldSelf.loadBalancer.name && "
            "self.loadBalancer.kind == oldSelf.loadBalancer.kind && "
            "self.loadBalancer.provider == oldSelf.loadBalancer.provider && "
            "self.listener.port == oldSelf.listener.port && "
            "self.listener.protocol == oldSelf.listener.protocol && "
            "self.target.address == oldSelf.target.address && self.target.port == oldSelf.target.port",
            "a record is about one backend for its whole life",
        ),
    ),
    one_write=True,
)
