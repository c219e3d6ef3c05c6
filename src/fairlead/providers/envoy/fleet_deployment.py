"""How does a Kubernetes cluster run the proxies?

A group (a tenant) has one Deployment of Envoys; each load balancer has one Service of type LoadBalancer in front of it,
whose status says where users reach it. Objects are written only when they differ from what was written last.
It talks to Kubernetes through ``KubeObjects`` alone, and deletes only what carries its own label.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

import msgspec
import structlog

from fairlead.errors import Terminal
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import LoadBalancerSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.providers.envoy.deployment_objects import DeploymentSettings, Manifest, group_manifests
from fairlead.providers.envoy.service_objects import service_manifest, service_name

_log = structlog.get_logger(__name__)


class ObjectRef(msgspec.Struct, frozen=True):
    """The identity of a Kubernetes object."""

    api_version: str
    kind: str
    namespace: str
    name: str


class ServiceStatus(msgspec.Struct, frozen=True):
    """What a Service of type LoadBalancer says of itself: addresses (IP or host names) in its own order."""

    namespace: str
    name: str
    addresses: tuple[str, ...]


class KubeObjects(Protocol):
    """What this fleet needs of Kubernetes. Errors are those of ``errors``; all calls may be repeated."""

    async def apply(self, manifest: Manifest) -> None:
        """Create or change the object (server-side apply); nothing is written when it is so already."""
        ...

    async def delete(self, ref: ObjectRef) -> None:
        """Delete the object; not found is success."""
        ...

    async def owned(self, *, namespace: str) -> Sequence[ObjectRef]:
        """List our objects: those labelled ``app.kubernetes.io/managed-by=fairlead`` that have an Envoy group label."""
        ...

    def on_service_status(self, notify: Callable[[ServiceStatus], None]) -> None:
        """Call ``notify`` with the status of each Service of ours, now and whenever it changes."""
        ...


class DeploymentFleet:
    """Envoy Deployments in Kubernetes."""

    allocation = AllocationKind.PROXY_PORT
    #: A pod has its own network: nobody else can bind there.
    reuse_port = True

    def __init__(self, *, kube: KubeObjects, settings: DeploymentSettings | None = None) -> None:
        self._kube = kube
        self._settings = settings or DeploymentSettings()
        self._specs: dict[LoadBalancerKey, LoadBalancerSpec] = {}
        self._applied: dict[ObjectRef, Manifest] = {}
        #: A group's proxies are not taken away by one while another begins to use them.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._keys: dict[str, LoadBalancerKey] = {}
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        kube.on_service_status(self._on_status)

    def group_of(self, spec: LoadBalancerSpec) -> str:
        """Return the load balancer's own group."""
        return spec.group

    def bind_address(self, spec: LoadBalancerSpec) -> str:  # noqa: ARG002 - the same for all
        """Return the wildcard: load balancers are told apart by their proxy ports."""
        return "0.0.0.0"

    def sees_clients(self, spec: LoadBalancerSpec) -> bool:
        """Say that a client's address arrives only when the Service keeps to local proxies."""
        return spec.local_traffic_only

    def refuse(self, *, group: str, listeners: int) -> str:
        """Refuse more listeners than there are proxy ports."""
        first, last = self._settings.proxy_ports
        ports = last - first + 1
        return "" if listeners <= ports else f"the proxies of group {group} have {ports} ports, and all are taken"

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Tell of Services that have got another address."""
        self._notify.append(notify)

    async def start(self) -> None:
        """Do nothing: Deployments come with the first load balancer of a group."""

    async def ensure(self, spec: LoadBalancerSpec) -> Ensured:
        """Apply the group's proxies and the load balancer's Service."""
        if any(not listener.proxy_port for listener in spec.listeners):
            raise Terminal(f"{spec.key}: no proxy port is assigned", reason=ConditionReason.PENDING)
        old = self._specs.get(spec.key)
        self._specs[spec.key] = spec
        self._keys[service_name(spec.key)] = spec.key
        async with self._locks[spec.group]:
            await self._apply([*group_manifests(spec.group, self._settings), service_manifest(spec, self._settings)])
        if old is not None and old.group != spec.group:
            await self._delete_unused(old.group)
        return self.addresses(spec.key)

    def addresses(self, key: LoadBalancerKey) -> Ensured:
        """Return what the Service's status says."""
        name = service_name(key)
        found = self._addresses.get(name, ())
        if found:
            return Ensured(found)
        return Ensured(message=f"Service {self._settings.namespace}/{name} has no address yet")

    async def delete(self, key: LoadBalancerKey) -> None:
        """Delete the Service, and the group's proxies when this was its last load balancer."""
        name = service_name(key)
        await self._delete(ObjectRef("v1", "Service", self._settings.namespace, name))
        self._keys.pop(name, None)
        self._addresses.pop(name, None)
        spec = self._specs.get(key)
        if spec is not None:
            await self._delete_unused(spec.group, leaving=key)
            # Only now: whoever repeats a delete that has failed half-way gets to the group again.
            del self._specs[key]

    async def sweep(self) -> None:
        """Delete our objects whose load balancer or group is gone: deleted while no hub was running."""
        found = await self._kube.owned(namespace=self._settings.namespace)
        wanted = self._wanted()
        for ref in [ref for ref in found if ref not in wanted]:
            # Asked again each time: it may have been wanted while the one before was being deleted.
            if ref not in self._wanted():
                _log.info("deleting what nobody wants any more", kind=ref.kind, name=ref.name)
                await self._delete(ref)

    async def close(self) -> None:
        """Let go: everything goes on serving."""
        self._notify.clear()

    async def stop(self) -> None:
        """Delete everything of ours."""
        for key in list(self._specs):
            await self.delete(key)

    async def _apply(self, manifests: Iterable[Manifest]) -> None:
        for manifest in manifests:
            ref = ref_of(manifest)
            if self._applied.get(ref) != manifest:
                await self._kube.apply(manifest)
                self._applied[ref] = manifest

    async def _delete(self, ref: ObjectRef) -> None:
        self._applied.pop(ref, None)
        await self._kube.delete(ref)

    def _wanted(self) -> set[ObjectRef]:
        groups = {spec.group for spec in self._specs.values()}
        wanted = {ref_of(each) for group in groups for each in group_manifests(group, self._settings)}
        return wanted | {ref_of(service_manifest(spec, self._settings)) for spec in self._specs.values()}

    async def _delete_unused(self, group: str, *, leaving: LoadBalancerKey | None = None) -> None:
        async with self._locks[group]:
            if any(spec.group == group for key, spec in self._specs.items() if key != leaving):
                return
            for manifest in reversed(group_manifests(group, self._settings)):
                await self._delete(ref_of(manifest))

    def _on_status(self, status: ServiceStatus) -> None:
        if status.namespace != self._settings.namespace or self._addresses.get(status.name) == status.addresses:
            return
        self._addresses[status.name] = status.addresses
        key = self._keys.get(status.name)
        if key is not None:
            for notify in self._notify:
                notify(key)


def ref_of(manifest: Manifest) -> ObjectRef:
    """Return the identity of a manifest."""
    metadata = cast("dict[str, str]", manifest["metadata"])
    return ObjectRef(str(manifest["apiVersion"]), str(manifest["kind"]), metadata["namespace"], metadata["name"])
