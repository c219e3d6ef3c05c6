"""Load balancers of other providers: a kind is watched once a LoadBalancer references it.

    spec.endpoint           copied down when it is set above; pulled up when the provider has set it
    ownerReferences         the LoadBalancer, from which the provider takes Cluster, selector and kind of members
    status                  the provider's own

In: the hub's cluster. Out: objects by reference, and a call for each change. Never: hooks, finalizers or markers of
members: their provider puts them there and takes them off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from fairlead.api.capiside import Endpoint, InfrastructureReference, TargetKind
from fairlead.api.infraloadbalancer import InfraLoadBalancer
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import JSONObject, ObjectKey, Resource
from fairlead.api.names import MANAGER_CAPI
from fairlead.capi.kinds import NamedKinds
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.served import OptionalCache

Changed = Callable[[TargetKind, InfraLoadBalancer], None]


class Infrastructures:
    """The load balancers of other providers; ``changed`` is called with the kind and the object."""

    def __init__(self, hub: ApiCluster, *, changed: Changed, looked: Callable[[], None], look_s: float) -> None:
        self._hub = hub
        self._changed = changed
        self._kinds = NamedKinds(
            hub, InfraLoadBalancer, field="spec.infrastructureRef", make=self._cache, looked=looked, look_s=look_s
        )
        self._caches = self._kinds.caches

    @property
    def caches(self) -> Mapping[str, OptionalCache[InfraLoadBalancer]]:
        """Return every cache by the full name of its kind."""
        return {str(kind): cache for kind, cache in self._caches.items()}

    def get(self, namespace: str, ref: InfrastructureReference) -> InfraLoadBalancer | None:
        """Return the object that ``ref`` names, None when it does not exist or its kind is not watched yet."""
        cache = self._caches.get(_kind(ref))
        return cache.get(namespace, ref.name) if cache is not None else None

    def problem(self, namespace: str, ref: InfrastructureReference) -> str:
        """Return why the object that ``ref`` names cannot be read, empty when it can; starts to watch its kind."""
        kind = _kind(ref)
        if missing := self._kinds.incomplete(kind):
            return missing
        if (why := self._caches[kind].broken.get(ObjectKey(namespace, ref.name))) is not None:
            return f"{kind} {namespace}/{ref.name} cannot be read: {why}"
        return ""

    def is_absent(self, namespace: str, ref: InfrastructureReference) -> bool:
        """Return whether the object is known not to exist."""
        return not self.problem(namespace, ref) and self.get(namespace, ref) is None

    async def run(self) -> None:
        """Watch the referenced kinds until cancelled."""
        await self._kinds.run()

    async def set_owner(self, obj: InfraLoadBalancer, load_balancer: LoadBalancer, endpoint: Endpoint | None) -> None:
        """Set the owner reference of ``obj`` to its LoadBalancer, and copy the endpoint that is set there; once."""
        patch: JSONObject = {}
        owners = obj.metadata.owner_references or []
        if not any(each.uid == load_balancer.metadata.uid for each in owners):
            owner = LOAD_BALANCERS.owner(load_balancer.metadata, controller=True)
            patch["metadata"] = {"ownerReferences": [*map(msgspec.to_builtins, owners), msgspec.to_builtins(owner)]}
        if endpoint is not None and not obj.spec.endpoint.given:
            patch["spec"] = {"endpoint": {"host": endpoint.host, "port": endpoint.port}}
        if patch:
            patch.setdefault("metadata", {})["resourceVersion"] = obj.metadata.resource_version
            resource = self._resource(load_balancer)
            await self._hub.merge_patch(resource, *obj.key, patch, manager=MANAGER_CAPI)

    async def remove(self, obj: InfraLoadBalancer, load_balancer: LoadBalancer) -> None:
        """Delete ``obj``; its provider's finalizer holds it until its members are released."""
        if not obj.deleting:
            await self._hub.delete(self._resource(load_balancer), *obj.key)

    def _resource(self, load_balancer: LoadBalancer) -> Resource[InfraLoadBalancer]:
        ref = load_balancer.spec.infrastructure_ref
        cache = self._caches.get(_kind(ref)) if ref is not None else None
        if cache is None:
            raise NotFound(f"LoadBalancer {load_balancer.key}: the kind in spec.infrastructureRef is not followed yet")
        return cache.resource

    def _cache(self, kind: TargetKind, resource: Resource[InfraLoadBalancer]) -> OptionalCache[InfraLoadBalancer]:
        cache: OptionalCache[InfraLoadBalancer] = OptionalCache(self._hub, resource)
        cache.on_change(lambda old, new: self._seen(kind, old, new))
        return cache

    def _seen(self, kind: TargetKind, old: InfraLoadBalancer | None, new: InfraLoadBalancer | None) -> None:
        obj = new or old
        if obj is not None:
            self._changed(kind, obj)


def _kind(ref: InfrastructureReference) -> TargetKind:
    return TargetKind(ref.api_group, ref.kind)
