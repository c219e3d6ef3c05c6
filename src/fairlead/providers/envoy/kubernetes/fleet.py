"""The fleet of Envoys that run as Deployments in a Kubernetes cluster.

A group (a tenant, or the Clusters of a namespace) has one Deployment of Envoys; each load balancer has one Service of
type LoadBalancer in front of it, whose status says where users reach it. It talks to Kubernetes through
``KubeObjects`` alone, which writes only what differs, and deletes only what carries its own label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from fairlead.errors import Terminal
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import IPV4, IPV6, Family, LoadBalancerKey, in_order
from fairlead.model.observed import Ensured
from fairlead.providers.envoy.fleet import NOT_CLOSED
from fairlead.providers.envoy.http.names import http3_ports
from fairlead.providers.envoy.kubernetes.manifests import (
    DeploymentSettings,
    Manifest,
    ManifestRef,
    group_labels,
    group_manifests,
    group_name,
    group_of,
    ref_of,
    service_manifest,
    service_name,
)
from fairlead.runtime.queue import KeyedLock

#: Which part of a proxy's connections one port, or one HTTP backend, may have: all of them are of one member.
_PER_CLUSTER = 2

_MIXED = "; if its load balancer rejects TCP and UDP on one Service, set http3 to false in the class"

_WILDCARDS: dict[Family, str] = {IPV4: "0.0.0.0", IPV6: "::"}

_log = structlog.get_logger(__name__)


class ServiceAddresses(msgspec.Struct, frozen=True):
    """The addresses (IP or host names) in the status of a Service of type LoadBalancer, in its own order.

    ``problem``: why the Service could not be written, in one sentence; empty when it could. ``udp``: the UDP ports of
    the Service, and why its load balancer does not serve them; empty where it reports nothing against it.
    """

    namespace: str
    name: str
    addresses: tuple[str, ...]
    problem: str = ""
    udp: Mapping[int, str] = {}


class KubeObjects(Protocol):
    """The operations of Kubernetes that this fleet needs. Errors are those of ``errors``; all calls may be repeated."""

    async def apply(self, manifest: Manifest) -> None:
        """Keep this object from now on; an identical existing object is not written."""
        ...

    async def certify(self, ref: ManifestRef, *, group: str, labels: Mapping[str, str]) -> None:
        """Keep a Secret with a client certificate of ``group``, renewed in time."""
        ...

    async def delete(self, ref: ManifestRef) -> None:
        """Delete the object and stop keeping it; the Secret with the name of a ConfigMap is deleted with it."""
        ...

    async def owned(self) -> Sequence[ManifestRef]:
        """List objects with our labels whose load balancers no longer exist, except Secrets."""
        ...

    def on_service_addresses(self, notify: Callable[[ServiceAddresses], None]) -> None:
        """Call ``notify`` with the addresses of each Service of ours whenever they change."""
        ...


class DeploymentFleet:
    """Envoy Deployments in Kubernetes."""

    allocation = AllocationKind.PROXY_PORT
    on_hub_machine = False
    #: A pod has its own network: no other program can bind there.
    reuse_port = True

    def __init__(self, *, kube: KubeObjects, settings: DeploymentSettings | None = None) -> None:
        self._kube = kube
        self._settings = settings or DeploymentSettings()
        self.connections_per_cluster = self._settings.max_connections // _PER_CLUSTER
        self._specs: dict[LoadBalancerKey, FrontendSpec] = {}
        #: By group: its proxies are not deleted by one call while another begins to use them.
        self._locks = KeyedLock()
        self._services: dict[ManifestRef, ServiceAddresses] = {}
        self._keys: dict[ManifestRef, LoadBalancerKey] = {}
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        kube.on_service_addresses(self._on_addresses)

    def groups_of(self, spec: FrontendSpec) -> tuple[str, ...]:
        """Return the load balancer's own group, or that of the Clusters of its namespace."""
        return (group_of(spec.key, spec.group),)

    def bind_addresses(self, spec: FrontendSpec) -> tuple[str, ...]:
        """Return the wildcard of each family: load balancers differ by their proxy ports."""
        families = spec.families.families or (IPV4,)
        return tuple(address for family, address in _WILDCARDS.items() if family in families)

    def sees_clients(self, spec: FrontendSpec) -> bool:
        """Return whether the Service uses local proxies only: otherwise a client's address does not arrive."""
        return spec.local_traffic_only

    def http3_problem(self, spec: FrontendSpec) -> str:
        """Return why clients cannot use HTTP/3: the Service, or the load balancer behind it, lacks the UDP port."""
        ports = http3_ports(spec)
        if not ports:
            return ""
        ref = self._service(spec.key, group_of(spec.key, spec.group))
        name, service = f"Service {ref.namespace}/{ref.name}", self._services.get(ref)
        if service is None or not service.addresses:
            return f"{name} has no address yet"
        problems = [service.udp.get(port, f"{name} does not have UDP/{port} yet") for port in ports]
        return service.problem or next(filter(None, problems), "")

    def refuse(self, *, group: str, listeners: int) -> str:
        """Reject more listeners than there are proxy ports."""
        first, last = self._settings.proxy_ports
        ports = last - first + 1
        return "" if listeners <= ports else f"the proxies of group {group} have {ports} ports, and all are taken"

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with load balancers whose Service has a new address."""
        self._notify.append(notify)

    def why_not_closed(self, groups: Sequence[str], *, resets: bool) -> str:  # noqa: ARG002 - none of them
        """Return that only proxies on the hub's own machine can close connections."""
        return f"{NOT_CLOSED}: the proxies run in pods; nodes as proxy machines close them"

    def pids(self, groups: Sequence[str]) -> list[int]:  # noqa: ARG002 - none of them
        """Return nothing: the proxies run elsewhere."""
        return []

    async def start(self) -> None:
        """Do nothing: Deployments come with the first load balancer of a group."""

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Apply the group's proxies and the load balancer's Service."""
        if any(not listener.proxy_port for listener in spec.listeners):
            raise Terminal(f"{spec.key}: no proxy port is assigned", reason=ConditionReason.PENDING)
        spec = replace(spec, group=group_of(spec.key, spec.group))
        old = self._specs.get(spec.key)
        self._specs[spec.key] = spec
        service = service_manifest(spec, self._settings)
        self._keys[ref_of(service)] = spec.key
        async with self._locks.hold(spec.group):
            await self._kube.certify(self._secret(spec.group), group=spec.group, labels=group_labels(spec.group))
            for manifest in (*group_manifests(spec.group, self._settings), service):
                await self._kube.apply(manifest)
        if old is not None and old.group != spec.group:
            if self._settings.namespace_of(old.group) != self._settings.namespace_of(spec.group):
                await self._delete_service(self._service(spec.key, old.group))
            await self._delete_unused(old.group)
        return self.addresses(spec.key)

    def addresses(self, key: LoadBalancerKey) -> Ensured:
        """Return the addresses of the Service, or why there are none."""
        spec = self._specs.get(key)
        ref = self._service(key, spec.group if spec is not None else group_of(key))
        service = self._services.get(ref)
        if service is not None and service.addresses:
            return Ensured(in_order(service.addresses, spec.families.families if spec is not None else ()))
        problem = service.problem or next(filter(None, service.udp.values()), "") if service is not None else ""
        mixed = _MIXED if spec is not None and http3_ports(spec) else ""
        return Ensured(message=(problem or f"Service {ref.namespace}/{ref.name} has no address yet") + mixed)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Delete the Service, and the group's proxies when this was its last load balancer.

        Of a load balancer that this process has never seen only the Service is known; ``sweep`` sees to the group.
        """
        spec = self._specs.get(key)
        await self._delete_service(self._service(key, spec.group if spec is not None else group_of(key)))
        if spec is not None:
            await self._delete_unused(spec.group, leaving=key)
            # Only now: a delete that has failed half-way and is repeated gets to the group again.
            del self._specs[key]

    async def sweep(self) -> None:
        """Delete our objects whose load balancer or group was deleted while no hub was running."""
        orphans = await self._kube.owned()
        wanted = self._wanted()
        for ref in [ref for ref in orphans if ref not in wanted]:
            # Computed again each time: it may have been wanted while the one before was being deleted.
            if ref not in self._wanted():
                _log.info("deleting an object that no load balancer needs", kind=ref.kind, name=ref.name)
                await self._kube.delete(ref)

    async def close(self) -> None:
        """Stop reporting; everything keeps serving."""
        self._notify.clear()

    async def stop(self) -> None:
        """Delete all of our objects."""
        for key in list(self._specs):
            await self.delete(key)

    async def _delete_service(self, ref: ManifestRef) -> None:
        await self._kube.delete(ref)
        self._keys.pop(ref, None)
        self._services.pop(ref, None)

    def _service(self, key: LoadBalancerKey, group: str) -> ManifestRef:
        return ManifestRef("v1", "Service", self._settings.namespace_of(group), service_name(key))

    def _secret(self, group: str) -> ManifestRef:
        return ManifestRef("v1", "Secret", self._settings.namespace_of(group), group_name(group))

    def _wanted(self) -> set[ManifestRef]:
        groups = {spec.group for spec in self._specs.values()}
        wanted = {ref_of(manifest) for group in groups for manifest in group_manifests(group, self._settings)}
        wanted |= {self._secret(group) for group in groups}
        return wanted | {ref_of(service_manifest(spec, self._settings)) for spec in self._specs.values()}

    async def _delete_unused(self, group: str, *, leaving: LoadBalancerKey | None = None) -> None:
        async with self._locks.hold(group):
            if any(spec.group == group for key, spec in self._specs.items() if key != leaving):
                return
            # The Secret first: nothing but its group leads to it.
            await self._kube.delete(self._secret(group))
            for manifest in reversed(group_manifests(group, self._settings)):
                await self._kube.delete(ref_of(manifest))

    def _on_addresses(self, status: ServiceAddresses) -> None:
        ref = ManifestRef("v1", "Service", status.namespace, status.name)
        empty = ServiceAddresses(status.namespace, status.name, ())
        if self._services.get(ref, empty) == status:
            return
        self._services[ref] = status
        if status == empty:
            del self._services[ref]
        key = self._keys.get(ref)
        if key is not None:
            for notify in self._notify:
                notify(key)
