"""One LoadBalancer with its BackendGroups, from what users wrote to a wish: the same path as reconcile, other kinds.

    view      the object, its class, the groups that name it, what they select, what is on record
    build     what should be                                        (pure)
    finalizer before anything is asked of a provider
    put       the wish into the tracker of its class's provider

In: keys. Out: wishes, and ``Built`` for the status. Never: a backend that a policy of its group has not admitted.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB
from fairlead.api.pods import Pod
from fairlead.build.shared import GroupView, SharedView, build_shared
from fairlead.build.view import Built
from fairlead.errors import FairleadError
from fairlead.hub.engines import Engines
from fairlead.hub.inventory import Inventory
from fairlead.hub.selected import Selected
from fairlead.kube.cluster import Cluster
from fairlead.ledger.wire import listener_of, target_of
from fairlead.model.contract import JudgesPods
from fairlead.model.keys import LoadBalancerKey


class SharedLoadBalancers:
    """Turns keys of LoadBalancers into wishes."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        selected: Selected,
        engines: Engines,
        loopback_targets: bool,
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._selected = selected
        self._engines = engines
        self._loopback_targets = loopback_targets

    async def wish(self, key: LoadBalancerKey, *, leading: bool) -> Built | None:
        """Wish for ``key`` as its view says; None when it is not to exist (any more)."""
        load_balancer = self._inventory.shared.get(key.namespace, key.name)
        if load_balancer is None or load_balancer.deleting:
            return None
        built = build_shared(await self._view(key, load_balancer, ask=leading))
        if built.desired is None or not leading:
            return built
        await self._hold(load_balancer)
        for name, engine in self._engines.items():
            changed = engine.tracker.put(built.desired) if name == built.provider else engine.tracker.remove(key)
            if changed:
                engine.worker.trigger()
        return built

    async def _view(self, key: LoadBalancerKey, load_balancer: LoadBalancer, *, ask: bool) -> SharedView:
        inventory = self._inventory
        groups = [group for group in inventory.groups_of(key) if not group.deleting]
        problems = [inventory.problem, *(self._selected.need(group) for group in groups)]
        records = inventory.records.by_index("lb", key)
        return SharedView(
            key=key,
            load_balancer=load_balancer,
            load_balancer_class=inventory.classes.get("", load_balancer.spec.class_name),
            providers=self._engines.capabilities,
            groups=tuple([await self._group(group, load_balancer, ask=ask) for group in groups]),
            recorded=frozenset((listener_of(one), target_of(one).key) for one in records if not one.deleting),
            conflict=self._conflict(load_balancer),
            stale="; ".join(dict.fromkeys(filter(None, problems))),
            loopback_targets=self._loopback_targets,
        )

    async def _group(self, group: BackendGroup, load_balancer: LoadBalancer, *, ask: bool) -> GroupView:
        namespace = group.metadata.namespace
        scope = load_balancer.spec.scope or ()
        pods = self._selected.pods_of(group)
        return GroupView(
            group,
            pods=pods,
            service=self._selected.service_of(group),
            nodes=self._selected.nodes_of(group),
            kept=await self._kept(group, pods) if ask else frozenset(pod.key for pod in pods),
            out_of_scope=namespace != load_balancer.metadata.namespace and not {"*", namespace} & set(scope),
        )

    async def _kept(self, group: BackendGroup, pods: tuple[Pod, ...]) -> frozenset[tuple[str, str]]:
        """Ask the driver that the group names which of its pods that are not ready keep their place."""
        webhook = group.spec.deregister_webhook
        doubtful = [pod for pod in pods if not pod.ready and not pod.deleting]
        if group.spec.deregister_policy != "Webhook" or webhook is None or not doubtful:
            return frozenset()
        found = self._inventory.classes.get("", webhook.class_name)
        engine = self._engines.get(found.spec.provider) if found is not None else None
        if found is not None and engine is not None and isinstance(engine.provider, JudgesPods):
            bodies: list[Mapping[str, object]] = [msgspec.to_builtins(pod) for pod in doubtful]
            try:
                return await engine.provider.judge_pods(found.spec.parameters or {}, bodies)
            except FairleadError:
                pass  # what holds then is the user's word, failurePolicy
        if webhook.failure_policy == "IfNotReady":
            return frozenset()
        return frozenset(
            pod.key for pod in doubtful if webhook.failure_policy == "DoNothing" or pod.status.phase == "Running"
        )

    def _conflict(self, load_balancer: LoadBalancer) -> str:
        """Return who had the same existing load balancer first, empty when nobody did."""
        mine = self._identity(load_balancer)
        if not load_balancer.spec.existing:
            return ""
        first = min(
            (one for one in self._inventory.shared.values() if one.spec.existing and self._identity(one) == mine),
            key=lambda one: (one.metadata.creation_timestamp or "", one.key),
        )
        return "" if first.key == load_balancer.key else "/".join(first.key)

    def _identity(self, one: LoadBalancer) -> tuple[object, ...]:
        found = self._inventory.classes.get("", one.spec.class_name)
        provider = found.spec.provider if found is not None else ""
        parameters = {**(found.spec.parameters or {} if found is not None else {}), **(one.spec.existing or {})}
        return (provider, tuple(sorted(parameters.items())))

    async def _hold(self, load_balancer: LoadBalancer) -> None:
        meta = load_balancer.metadata
        if FINALIZER_CLEANUP in (meta.finalizers or ()):
            return
        patch = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "finalizers": [*(meta.finalizers or ()), FINALIZER_CLEANUP],
            }
        }
        await self._cluster.merge_patch(LOAD_BALANCERS, meta.namespace, meta.name, patch, manager=MANAGER_HUB)
