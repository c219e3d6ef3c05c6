"""How does a Kubernetes cluster run the proxies?

A group (a tenant) has one Deployment of Envoys; each load balancer has one Service of type LoadBalancer in front of it,
whose status says where users reach it. All of it is in the group's namespace. It talks to Kubernetes through
``KubeObjects`` alone, which writes only what differs, and deletes only what carries its own label.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import msgspec
import structlog

from fairlead.errors import Terminal
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.providers.envoy.kubernetes.deployment_manifests import (
    DeploymentSettings,
    Manifest,
    group_labels,
    group_manifests,
    group_name,
)
from fairlead.providers.envoy.kubernetes.service_manifests import service_manifest, service_name

_log = structlog.get_logger(__name__)


class ObjectRef(msgspec.Struct, frozen=True):
    """The identity of a Kubernetes object."""

    api_version: str
    kind: str
    namespace: str
    name: str


class ServiceStatus(msgspec.Struct, frozen=True):
    """What a Service of type LoadBalancer says of itself: addresses (IP or host names) in its own order.

    ``problem``: why it could not be written, in one sentence; empty when it could.
    """

    namespace: str
    name: str
    addresses: tuple[str, ...]
    problem: str = ""


class KubeObjects(Protocol):
    """What this fleet needs of Kubernetes. Errors are those of ``errors``; all calls may be repeated."""

    async def apply(self, manifest: Manifest) -> None:
        """Want this object; nothing is written when it is so already, and what cannot be written now is later."""
        ...

    async def certify(self, ref: ObjectRef, *, group: str, labels: Mapping[str, str]) -> None:
        """Want a Secret with a client certificate of ``group`` that is always good for some time to come."""
        ...

    async def delete(self, ref: ObjectRef) -> None:
        """Delete the object, and want it no more; a ConfigMap takes the Secret of its name along."""
        ...

    async def owned(self) -> Sequence[ObjectRef]:
        """List objects with our labels whose load balancers do not exist any more, Secrets apart."""
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
        self._specs: dict[LoadBalancerKey, FrontendSpec] = {}
        #: A group's proxies are not taken away by one while another begins to use them.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._statuses: dict[ObjectRef, ServiceStatus] = {}
        self._keys: dict[ObjectRef, LoadBalancerKey] = {}
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        kube.on_service_status(self._on_status)

    def group_of(self, spec: FrontendSpec) -> str:
        """Return the load balancer's own group."""
        return spec.group

    def bind_address(self, spec: FrontendSpec) -> str:  # noqa: ARG002 - the same for all
        """Return the wildcard: load balancers are told apart by their proxy ports."""
        return "0.0.0.0"

    def sees_clients(self, spec: FrontendSpec) -> bool:
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

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Apply the group's proxies and the load balancer's Service."""
        if any(not listener.proxy_port for listener in spec.listeners):
            raise Terminal(f"{spec.key}: no proxy port is assigned", reason=ConditionReason.PENDING)
        old = self._specs.get(spec.key)
        self._specs[spec.key] = spec
        service = service_manifest(spec, self._settings)
        self._keys[ref_of(service)] = spec.key
        async with self._locks[spec.group]:
            await self._kube.certify(self._secret(spec.group), group=spec.group, labels=group_labels(spec.group))
            for manifest in (*group_manifests(spec.group, self._settings), service):
                await self._kube.apply(manifest)
        if old is not None and old.group != spec.group:
            if self._settings.namespace_of(old.group) != self._settings.namespace_of(spec.group):
                await self._delete_service(self._service(spec.key, old.group))
            await self._delete_unused(old.group)
        return self.addresses(spec.key)

    def addresses(self, key: LoadBalancerKey) -> Ensured:
        """Return what the Service's status says."""
        spec = self._specs.get(key)
        ref = self._service(key, spec.group if spec is not None else key.namespace)
        found = self._statuses.get(ref)
        if found is not None and found.addresses:
            return Ensured(found.addresses)
        message = f"Service {ref.namespace}/{ref.name} has no address yet"
        return Ensured(message=found.problem if found is not None and found.problem else message)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Delete the Service, and the group's proxies when this was its last load balancer.

        Of a load balancer that this process has never seen only the Service is known; ``sweep`` sees to the group.
        """
        spec = self._specs.get(key)
        await self._delete_service(self._service(key, spec.group if spec is not None else key.namespace))
        if spec is not None:
            await self._delete_unused(spec.group, leaving=key)
            # Only now: whoever repeats a delete that has failed half-way gets to the group again.
            del self._specs[key]

    async def sweep(self) -> None:
        """Delete our objects whose load balancer or group is gone: deleted while no hub was running."""
        found = await self._kube.owned()
        wanted = self._wanted()
        for ref in [ref for ref in found if ref not in wanted]:
            # Asked again each time: it may have been wanted while the one before was being deleted.
            if ref not in self._wanted():
                _log.info("deleting what nobody wants any more", kind=ref.kind, name=ref.name)
                await self._kube.delete(ref)

    async def close(self) -> None:
        """Let go: everything goes on serving."""
        self._notify.clear()

    async def stop(self) -> None:
        """Delete everything of ours."""
        for key in list(self._specs):
            await self.delete(key)

    async def _delete_service(self, ref: ObjectRef) -> None:
        await self._kube.delete(ref)
        self._keys.pop(ref, None)
        self._statuses.pop(ref, None)

    def _service(self, key: LoadBalancerKey, group: str) -> ObjectRef:
        return ObjectRef("v1", "Service", self._settings.namespace_of(group), service_name(key))

    def _secret(self, group: str) -> ObjectRef:
        return ObjectRef("v1", "Secret", self._settings.namespace_of(group), group_name(group))

    def _wanted(self) -> set[ObjectRef]:
        groups = {spec.group for spec in self._specs.values()}
        wanted = {ref_of(each) for group in groups for each in group_manifests(group, self._settings)}
        wanted |= {self._secret(group) for group in groups}
        return wanted | {ref_of(service_manifest(spec, self._settings)) for spec in self._specs.values()}

    async def _delete_unused(self, group: str, *, leaving: LoadBalancerKey | None = None) -> None:
        async with self._locks[group]:
            if any(spec.group == group for key, spec in self._specs.items() if key != leaving):
                return
            # The Secret first: nothing but its group leads to it.
            await self._kube.delete(self._secret(group))
            for manifest in reversed(group_manifests(group, self._settings)):
                await self._kube.delete(ref_of(manifest))

    def _on_status(self, status: ServiceStatus) -> None:
        ref = ObjectRef("v1", "Service", status.namespace, status.name)
        empty = ServiceStatus(status.namespace, status.name, ())
        if self._statuses.get(ref, empty) == status:
            return
        self._statuses[ref] = status
        if status == empty:
            del self._statuses[ref]
        key = self._keys.get(ref)
        if key is not None:
            for notify in self._notify:
                notify(key)


def ref_of(manifest: Manifest) -> ObjectRef:
    """Return the identity of a manifest."""
    metadata = cast("dict[str, str]", manifest["metadata"])
    return ObjectRef(str(manifest["apiVersion"]), str(manifest["kind"]), metadata["namespace"], metadata["name"])
