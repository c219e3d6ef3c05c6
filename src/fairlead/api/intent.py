"""The fields that all kinds of load balancers share: class, status, allocation, and what providers were asked for."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.json_text import decode
from fairlead.api.kubernetes import LoadBalancerStatus
from fairlead.api.meta import LIST_ATOMIC, LIST_BY_PORT, ONE_LINE, Conditions, JSONObject, KubeObject, Wire, list_by
from fairlead.model.desired import Affinity, FrontendSpec, Listener, Owner, ProxyProtocol
from fairlead.model.health import HealthCheck, HealthRequest, OutlierDetection
from fairlead.model.keys import Family, LoadBalancerKey, Protocol, WantedFamilies


class AskedListener(Wire, frozen=True, gc=False):
    """One open port; proxyPort is the port of the shared proxies that serves it."""

    port: int
    protocol: Literal["TCP", "UDP"] = "TCP"
    name: str = ""
    proxy_port: int = 0


class AskedRequest(Wire, frozen=True, gc=False):
    """The request that a backend has to answer; caBundle is whom its certificate must come from.

    expected are the first and last status code of a healthy backend; 200 when empty.
    """

    path: str
    host: str = ""
    ca_bundle: str = ""
    expected: Annotated[list[int], Meta(extra_json_schema=LIST_ATOMIC)] = msgspec.field(default_factory=list[int])
    tls: bool = True
    grpc: bool = False
    http2: bool = False


class AskedHealthCheck(Wire, frozen=True, gc=False):
    """The health check of its backends."""

    interval_seconds: float
    timeout_seconds: float
    unhealthy_threshold: int
    healthy_threshold: int
    request: AskedRequest | None = None
    port: int = 0


class AskedOwner(Wire, frozen=True, gc=False):
    """The user's object that it is for."""

    member: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Asked(Wire, frozen=True, gc=False):
    """What the provider was last asked for.

    Without healthCheck its backends are not checked. existing: another party made it, and it is never deleted.
    """

    group: str = ""
    listeners: Annotated[list[AskedListener], Meta(extra_json_schema=LIST_ATOMIC)] = msgspec.field(
        default_factory=list[AskedListener]
    )
    address: str = ""
    second_address: str = ""
    ip_families: Annotated[tuple[Family, ...], Meta(extra_json_schema=LIST_ATOMIC)] = ()
    dual_stack_required: bool = False
    source_ranges: Annotated[list[str], Meta(extra_json_schema=LIST_ATOMIC)] = msgspec.field(default_factory=list[str])
    affinity: Literal["", "ClientIP"] = ""
    proxy_protocol: Literal["", "v1", "v2"] = ""
    health_check: AskedHealthCheck | None = None
    outlier_detection: OutlierDetection | None = None
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    attributes: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    owner: AskedOwner = AskedOwner()
    existing: bool = False
    local_traffic_only: bool = False


class Provisioned(Wire, frozen=True, gc=False):
    """What one provider has, or may have, of this load balancer; stored before and after the provider is asked for it.

    The one that serves it is marked as serving. Without a state nothing was asked of the provider. info is the
    provider's identity of it; epoch is the provider's own life in which its backends were registered.
    """

    provider: str
    state: Literal["", "Ensuring", "Ensured"] = ""
    serving: bool = False
    asked: Asked | None = None
    # None, so that who records which one serves writes nothing of these.
    addresses: Annotated[list[str] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None
    info: dict[str, str] | None = None
    epoch: str = ""

    def spec(self, key: LoadBalancerKey) -> FrontendSpec | None:
        """Return what the provider was last asked for; None when that is not known."""
        return spec_of(key, self.asked) if self.asked is not None else None


class Frontend(Wire, frozen=True, gc=False):
    """Deprecated: written by release 0.1, read and replaced by an entry of provisioned."""

    provider: str = ""
    state: Literal["", "Ensuring", "Ensured"] = ""
    ensured: str = ""
    info: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    addresses: Annotated[list[str], Meta(extra_json_schema=LIST_ATOMIC)] = msgspec.field(default_factory=list[str])
    epoch: str = ""


ProvisionedList = Annotated[list[Provisioned] | None, Meta(extra_json_schema=list_by("provider"))]


class ProvisionedStatus(Wire, frozen=True, gc=False):
    """The part of a status that says what providers have: accessors for ``provisioned`` and for what 0.1 wrote."""

    provisioned: ProvisionedList = None
    frontend: Frontend | None = None

    def frontend_of(self, provider: str) -> Provisioned | None:
        """Return what is on record of one provider, None when it was never asked for anything."""
        return next((entry for entry in self.recorded if entry.provider == provider), None)

    @property
    def recorded(self) -> tuple[Provisioned, ...]:
        """Return what is on record of every provider that was asked for something, ordered by provider."""
        serving = self.serving_provider
        entries = {old.provider: _provisioned(old, serving=old.provider == serving) for old in self.old_frontends()}
        entries.pop("", None)
        entries |= {entry.provider: entry for entry in self.provisioned or () if entry.state}
        return tuple(entry for _, entry in sorted(entries.items()))

    @property
    def recorded_providers(self) -> frozenset[str]:
        """Return the providers that were, or may have been, asked for it."""
        return frozenset(entry.provider for entry in self.recorded)

    @property
    def serving_provider(self) -> str:
        """Return the provider that serves it, also when its class is gone; empty when none does yet."""
        return self.recorded_serving_provider or self.old_serving_provider()

    @property
    def recorded_serving_provider(self) -> str:
        """Return the provider that is marked as serving, empty when only release 0.1 has written which one does."""
        return next((entry.provider for entry in self.provisioned or () if entry.serving), "")

    def old_frontends(self) -> tuple[Frontend, ...]:
        """Return what release 0.1 wrote and nothing has replaced yet."""
        return () if self.frontend is None else (self.frontend,)

    def old_places(self, provider: str) -> JSONObject:
        """Return the merge patch of the status that removes what release 0.1 wrote of ``provider``; often empty."""
        return {"frontend": None} if self.frontend is not None and self.frontend.provider == provider else {}

    def old_serving_provider(self) -> str:
        """Return which provider serves it, as release 0.1 wrote it."""
        return self.frontend.provider if self.frontend is not None else ""


def asked_of(spec: FrontendSpec) -> Asked:
    """Return ``spec`` as it is written; the object that contains it is its key."""
    check = spec.health_check
    return Asked(
        group=spec.group,
        listeners=[
            AskedListener(listener.port, listener.protocol.value, listener.name, listener.proxy_port)
            for listener in spec.listeners
        ],
        address=spec.address,
        second_address=spec.second_address,
        ip_families=spec.families.families,
        dual_stack_required=spec.families.all_required,
        source_ranges=list(spec.source_ranges),
        affinity="" if spec.affinity is Affinity.NONE else spec.affinity.value,
        proxy_protocol=spec.proxy_protocol.value,
        health_check=None if check is None else _asked_check(check),
        outlier_detection=spec.outlier_detection,
        parameters=dict(spec.parameters),
        attributes=dict(spec.attributes),
        owner=AskedOwner(spec.owner.member, spec.owner.kind, spec.owner.namespace, spec.owner.name, spec.owner.uid),
        existing=spec.existing,
        local_traffic_only=spec.local_traffic_only,
    )


def spec_of(key: LoadBalancerKey, asked: Asked) -> FrontendSpec:
    """Return what was asked for the load balancer ``key``."""
    check, owner = asked.health_check, asked.owner
    return FrontendSpec(
        key=key,
        group=asked.group,
        listeners=tuple(
            Listener(listener.port, Protocol(listener.protocol), listener.name, listener.proxy_port)
            for listener in asked.listeners or ()
        ),
        address=asked.address,
        second_address=asked.second_address,
        families=WantedFamilies(asked.ip_families, asked.dual_stack_required),
        source_ranges=tuple(asked.source_ranges or ()),
        affinity=Affinity(asked.affinity or Affinity.NONE),
        proxy_protocol=ProxyProtocol(asked.proxy_protocol),
        health_check=None if check is None else _check_of(check),
        outlier_detection=asked.outlier_detection,
        parameters=dict(asked.parameters or {}),
        attributes=dict(asked.attributes or {}),
        owner=Owner(owner.member, owner.kind, owner.namespace, owner.name, owner.uid),
        existing=asked.existing,
        local_traffic_only=asked.local_traffic_only,
    )


def _asked_check(check: HealthCheck) -> AskedHealthCheck:
    asked, request = check.request, None
    if asked is not None:
        expected = list(asked.expected or ())
        request = AskedRequest(asked.path, asked.host, asked.ca_bundle, expected, asked.tls, asked.grpc, asked.http2)
    return AskedHealthCheck(
        check.interval_s, check.timeout_s, check.unhealthy_threshold, check.healthy_threshold, request, check.port
    )


def _check_of(check: AskedHealthCheck) -> HealthCheck:
    asked, request = check.request, None
    if asked is not None:
        expected = (asked.expected[0], asked.expected[-1]) if asked.expected else None
        request = HealthRequest(asked.path, asked.host, asked.ca_bundle, expected, asked.tls, asked.grpc, asked.http2)
    return HealthCheck(
        check.interval_seconds,
        check.timeout_seconds,
        check.unhealthy_threshold,
        check.healthy_threshold,
        request,
        check.port,
    )


def _provisioned(old: Frontend, *, serving: bool) -> Provisioned:
    """Return what release 0.1 wrote as it is written now; what it asked for is unknown when it cannot be read."""
    try:
        asked = asked_of(decode(old.ensured, FrontendSpec)) if old.ensured else None
    except msgspec.DecodeError:
        asked = None
    return Provisioned(
        old.provider, old.state, serving, asked, addresses=old.addresses or None, info=old.info or None, epoch=old.epoch
    )


Port = Annotated[int, Meta(ge=1, le=65535)]
Families = Annotated[tuple[Family, ...], Meta(max_length=2, extra_json_schema=LIST_ATOMIC)]
#: CIDR ranges of clients.
SourceRanges = Annotated[
    list[Annotated[str, Meta(max_length=43, extra_json_schema=ONE_LINE)]], Meta(extra_json_schema=LIST_ATOMIC)
]
FamilyPolicy = Literal["", "SingleStack", "PreferDualStack", "RequireDualStack"]
ProtocolName = Literal["TCP", "UDP"]
#: Held changes that a status lists, as a hub that starts holds those and no others; it counts them all.
HELD_LISTED = 1000


class ProxyPort(Wire, frozen=True, gc=False):
    """The port of the shared proxies that serves one port of this load balancer."""

    port: Port
    protocol: ProtocolName
    proxy_port: Port


class Allocation(Wire, frozen=True, gc=False):
    """The addresses and ports of this load balancer, recorded before anything is programmed.

    pool is the AddressPool that the address is of; empty for --address-pool. secondAddress is that of the other family,
    and secondPool where it is from; both are empty for a load balancer of one family. limitsConnections: its proxies
    limit its connections, which release 0.1 did not; their listeners stay unchanged until they are recreated.
    """

    address: str = ""
    ports: Annotated[list[ProxyPort], Meta(extra_json_schema=LIST_BY_PORT)] = msgspec.field(
        default_factory=list[ProxyPort]
    )
    pool: str = ""
    second_address: str = ""
    second_pool: str = ""
    limits_connections: bool = False

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Return each address with its pool, in order."""
        both = ((self.address, self.pool), (self.second_address, self.second_pool))
        return tuple(place for place in both if place[0])


Machines = Annotated[tuple[str, ...], Meta(extra_json_schema=LIST_ATOMIC)]


class MachinePlacement(Wire, frozen=True, gc=False):
    """The proxy machines of this load balancer, recorded before anything uses them.

    machines announce its addresses; the first one owns them where only one can. joining serve it already, and announce
    once they have all of it. leaving still serve it for clients that have not noticed. message is why it has fewer
    machines than it should.
    """

    machines: Machines = ()
    joining: Machines = ()
    leaving: Machines = ()
    message: str = ""

    @property
    def target(self) -> tuple[str, ...]:
        """Return the machines that it has, or moves to."""
        return tuple(name for name in (*self.machines, *self.joining) if name not in self.leaving)

    @property
    def serving(self) -> tuple[str, ...]:
        """Return all machines that serve it; with an empty name while the hub's own proxies do, too."""
        on_hub = ("",) if self.joining and not self.machines else ()
        return tuple(dict.fromkeys((*on_hub, *self.machines, *self.joining, *self.leaving)))


class HeldChange(Wire, frozen=True, gc=False):
    """One change that a pause or a guard holds back: what, why it would be made, which guard holds it, and why.

    backend is that of a load balancer of requests; port is then 0. owners are those of the target.
    """

    action: str
    reason: str
    held_by: str
    message: str
    protocol: ProtocolName
    port: Annotated[int, Meta(ge=0, le=65535)]
    address: str
    backend_port: Port
    source: str = ""
    backend: str = ""
    owners: Annotated[list[str] | None, Meta(extra_json_schema=LIST_ATOMIC)] = None


#: Pods that a status lists at most as served, and as not served yet; others follow as these become ready.
GATED_LISTED = 1000
_Uids = Annotated[tuple[str, ...], Meta(extra_json_schema={**LIST_ATOMIC, "maxItems": GATED_LISTED})]


class GatedPods(Wire, frozen=True, gc=False):
    """The pods that wait for readiness gate fairlead.dev/serving, by uid.

    Every proxy that reports has those in serving healthy; those in waiting are not healthy yet, or not checked. A pod
    that no proxy reports is in neither. time is renewed while pods wait.
    """

    serving: _Uids = ()
    waiting: _Uids = ()
    time: str = ""


class IntentStatus(ProvisionedStatus, frozen=True, gc=False):
    """What became of an intent, as far as every kind has it.

    address is the first of loadBalancer.ingress. placement is absent while the hub's own proxies serve it.
    provisioned has what its provider was asked for. held has the first
    changes that are held, of heldTotal. repaired is the value of annotation fairlead.dev/repair that was done last.
    unhealthyTargets names the first fifty targets that a proxy sees unhealthy. gatedPods answers for pods that wait for
    their readiness gate, and is absent without any.
    """

    address: str = ""
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    allocation: Allocation = Allocation()
    placement: MachinePlacement | None = None
    observed_generation: int = 0
    held: Annotated[list[HeldChange] | None, Meta(extra_json_schema={**LIST_ATOMIC, "maxItems": HELD_LISTED})] = None
    held_total: int = 0
    repaired: str = ""
    unhealthy_targets: Annotated[list[str] | None, Meta(extra_json_schema={**LIST_ATOMIC, "maxItems": 50})] = None
    gated_pods: GatedPods | None = None
    conditions: Conditions = None

    @property
    def serving_machines(self) -> tuple[str, ...]:
        """Return the proxy machines that serve it; none are recorded when empty."""
        return self.placement.serving if self.placement is not None else ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return every address at which it answers, in order."""
        entries = self.load_balancer.ingress or ()
        return tuple(entry.address for entry in entries if entry.address) or tuple(filter(None, (self.address,)))


class NamesStatus(Wire, frozen=True, gc=False):
    """What became of the host names of an object: the name that the hub made for it, and which it may not have."""

    hostname: str = ""
    conditions: Conditions = None


class IntentObject(KubeObject, frozen=True, gc=False):
    """An object that asks for a load balancer."""

    status: IntentStatus = IntentStatus()

    @property
    def is_observed(self) -> bool:
        """Return whether its status is about its present spec."""
        return self.status.observed_generation >= self.metadata.generation

    @property
    def class_name(self) -> str:
        """Return the LoadBalancerClass that it asks for; empty for the default one."""
        raise NotImplementedError
