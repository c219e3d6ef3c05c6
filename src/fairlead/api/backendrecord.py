"""BackendRecord: one backend that is, or may be, registered somewhere, with all that is needed to deregister it.

The ledger's entry. It is stored, with its finalizer, before the first call that could register the backend, and it
goes only when the provider has deregistered it. Key: load balancer, listener, address.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, Column, Crd, Rule
from fairlead.api.intent import Port, ProtocolName
from fairlead.api.kubernetes import NodeAddress, plausible_epoch
from fairlead.api.meta import LIST_ATOMIC, LIST_SET, KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION

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
        Rule(
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
