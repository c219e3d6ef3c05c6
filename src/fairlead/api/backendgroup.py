"""BackendGroup: which backends go onto which LoadBalancers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, PROGRAMMED, Column, Crd, Rule
from fairlead.api.intent import Port, ProtocolName
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
        Rule(
            "[has(self.pods), has(self.service), has(self.static)].filter(x, x).size() == 1",
            "exactly one of pods, service and static is needed",
        ),
        Rule(
            "has(self.pods) == has(oldSelf.pods) && has(self.service) == has(oldSelf.service)",
            "the kind of backends (pods, service or static) is immutable: create another BackendGroup",
        ),
        Rule(
            "!has(self.pods) || has(self.pods.byLabel) != has(self.pods.byName)",
            "pods: exactly one of byLabel and byName is needed",
        ),
        Rule(
            "!has(self.deregisterPolicy) || self.deregisterPolicy != 'Webhook' || has(self.deregisterWebhook)",
            "deregisterPolicy Webhook needs deregisterWebhook",
        ),
    ),
)
