"""Another controller of the hub's cluster serves the requests, from Ingresses or from a Gateway with routes.

    ensure    applies a Service without selector for each backend, then Ingresses (or Gateway and routes), and deletes
              objects of an older version; rules that the cluster refuses are closed, the others serve
    apply     EndpointSlices of these Services
    observe   what is in the cluster; addresses are those that the controller writes into its status

In: the ``Provider`` protocol. Out: objects in the namespace of the load balancer, with its name on them. Nothing is
kept in memory that the next process could not read there. Never: an object without our marks is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES, EndpointSlice
from fairlead.api.meta import AnyResource, KubeObject
from fairlead.api.names import (
    ANNOTATION_APPLIED,
    ANNOTATION_BACKEND,
    LABEL_MADE_FOR,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    MANAGER_HUB,
)
from fairlead.errors import BadConfiguration, Conflict, Invalid, NotServed, Retry, Terminal
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import served_kinds
from fairlead.model.change import DONE, Outcome, OutcomeStatus, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import Backend
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured, Observed, RefusedPart
from fairlead.providers.controller.objects import (
    ANNOTATION,
    CONTROLLER_CLASS,
    AppliedObject,
    ControllerForm,
    Rendered,
    changed_slices,
    class_problem,
    made_for,
    observed_targets,
    selector,
    service,
    service_name,
    settings_from_spec,
)
from fairlead.providers.readback_watch import LoadBalancerStates, outcome_from_error
from fairlead.runtime.background import end, keep_running
from fairlead.runtime.queue import KeyedLock

log = structlog.get_logger(__name__)

#: The key in ``info`` of what the cluster refused, and how much of each reason is kept.
_REFUSED, _LONGEST = "refused", 500


class ControllerProvider:
    """Load balancers that are served by another controller; ``form`` converts them to its objects."""

    def __init__(self, cluster: Cluster, form: ControllerForm) -> None:
        self._cluster = cluster
        self._form = form
        self._specs: LoadBalancerStates[FrontendSpec] = LoadBalancerStates()
        #: The objects that the cluster last refused, by load balancer, with reasons; stored in ``info``. The key is the
        #: name of a route, or OBJECT/NUMBER for a rule of one.
        self._refused: dict[LoadBalancerKey, dict[str, str]] = {}
        self._locks = KeyedLock()
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        self._watches: list[asyncio.Task[None]] = []

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Watch the objects that we created."""
        ours = f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_MADE_FOR}"
        for resource in (self._form.answering, ENDPOINT_SLICES):
            cache: AnyCache = WatchCache(self._cluster, resource, label_selector=ours)
            cache.on_object(self._changed)
            self._watches.append(keep_running(f"watch-{resource.plural}", cache.run))

    async def close(self) -> None:
        """Stop watching; all objects are kept."""
        await end(*self._watches)
        self._watches.clear()

    def restore(self, spec: FrontendSpec, info: Mapping[str, str]) -> None:
        """Restore a load balancer of an earlier process; its objects are found by their marks."""
        self._specs.put(spec.key, spec)
        self._refused[spec.key] = read_json(info.get(_REFUSED, "{}"), dict[str, str]) or {}

    def release(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer."""
        self._specs.release(key)
        self._refused.pop(key, None)

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Return what another controller can serve."""
        return Capabilities(
            protocols=self._form.protocols,
            ipv6=True,
            l7=True,
            class_parameters=frozenset({CONTROLLER_CLASS, ANNOTATION}),
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` when an object of ours changes, or its controller reports a status."""
        self._notify.append(notify)

    def class_problem(self, parameters: Mapping[str, str]) -> str:
        """Return the error in the parameters of a class; empty if they are valid."""
        return class_problem(parameters, provider=self._form.name)

    async def validate(self, spec: FrontendSpec, *, old: FrontendSpec | None = None) -> None:
        """Raise ``BadConfiguration`` for parameters that are wrong; the cluster is not asked."""
        del old
        settings_from_spec(spec, provider=self._form.name)

    async def validate_backends(
        self,
        spec: FrontendSpec,
        *,
        backend_type: str,
        parameters: Mapping[str, str],
        old_parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Raise ``BadConfiguration`` for parameters of backends, which have no effect here."""
        del backend_type, old_parameters
        if parameters:
            raise BadConfiguration(f"{spec.key}: provider {self._form.name} takes no parameters of backends")

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Apply the objects of ``spec``; EndpointSlices are kept."""
        rendered = self._rendered(spec)
        async with self._locks.hold(spec.key):
            services = [service(spec.key, backend) for backend in (spec.l7.backends if spec.l7 else ())]
            refused: dict[str, str] = {}
            by_resource: dict[AnyResource, list[AppliedObject]] = {}
            for obj in (*services, *rendered.objects):
                by_resource.setdefault(obj.resource, []).append(obj)
            for resource, wanted in by_resource.items():
                present = {obj.metadata.name: obj for obj in await self._ours(spec.key, resource)}
                for obj in wanted:
                    refused |= await self._apply_accepted(obj, present.get(obj.name))
            rendered = self._accepted(rendered, refused)
            await self._collect(spec.key, rendered, {wanted_service.name for wanted_service in services})
            self._specs.put(spec.key, spec)
            self._refused[spec.key] = refused
            answers = [self._form.answer(obj) for obj in await self._ours(spec.key, self._form.answering)]
        addresses = dict.fromkeys(address for answer in answers for address in answer.addresses)
        info = {_REFUSED: msgspec.json.encode(refused).decode()} if refused else {}
        return Ensured(tuple(addresses), info=info)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Change the slices of one backend at a time."""
        outcomes: dict[int, Outcome] = {}
        batches: dict[tuple[LoadBalancerKey, str], list[int]] = {}
        for index, change in enumerate(changes):
            if change.load_balancer not in self._specs:
                outcomes[index] = self._specs.outcome_without(change, "has not been ensured yet")
            else:
                batches.setdefault((change.load_balancer, change.listener.backend), []).append(index)
        for (key, backend), indexes in batches.items():
            outcome = await self._change(key, backend, [changes[index] for index in indexes])
            outcomes |= dict.fromkeys(indexes, outcome)
        return [outcomes[index] for index in range(len(changes))]

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Read back the objects of one load balancer."""
        spec = self._specs.get(key)
        if spec is None:
            return None
        slices = await self._ours(key, ENDPOINT_SLICES)
        objects = {
            (resource.kind, obj.metadata.name): obj
            for resource in (SERVICES, *self._form.others, self._form.answering)
            for obj in await self._ours(key, resource)
        }
        targets = observed_targets(slices)
        try:
            rendered = self._accepted(self._rendered(spec), self._refused.get(key, {}))
        except Terminal as error:
            return Observed(message=error.sentence, targets=targets) if objects or slices else None
        if rendered.objects and not objects and not slices:
            return None
        waiting = self._waiting(spec, rendered, objects)
        answers = [self._form.answer(obj) for (kind, _), obj in objects.items() if kind == self._form.answering.kind]
        addresses = dict.fromkeys(address for answer in answers for address in answer.addresses)
        return Observed(
            addresses=tuple(addresses),
            programmed=bool(rendered.objects) and not waiting,
            proxies=1,
            acknowledged=0 if waiting else 1,
            refused=tuple(sorted(rendered.refused)),
            message=waiting,
            targets=targets,
        )

    async def delete(self, key: LoadBalancerKey) -> None:
        """Delete all objects of a load balancer, routes before the Services that they name."""
        async with self._locks.hold(key):
            for resource in (*self._form.others, self._form.answering, ENDPOINT_SLICES, SERVICES):
                for obj in await self._ours(key, resource):
                    await self._delete(resource, obj)
            self.release(key)

    # --- inside -----------------------------------------------------------------------------------------------

    def _changed(self, obj: KubeObject) -> None:
        if (key := made_for(obj)) is not None:
            for notify in self._notify:
                notify(key)

    def _rendered(self, spec: FrontendSpec) -> Rendered:
        return self._form.render(spec, settings_from_spec(spec, provider=self._form.name))

    def _waiting(self, spec: FrontendSpec, rendered: Rendered, objects: Mapping[tuple[str, str], KubeObject]) -> str:
        """Return why the load balancer is not served yet, in one sentence; empty if it is served."""
        for wanted in rendered.objects:
            there = objects.get((wanted.resource.kind, wanted.name))
            name = f"{wanted.resource.kind} {wanted.body['metadata']['namespace']}/{wanted.name}"
            if there is None:
                return f"{name} is no longer in the hub's cluster"
            if there.annotation(ANNOTATION_APPLIED) != wanted.digest:
                return f"{name} differs from what was applied last"
            if wanted.resource in self._form.reporting and (waiting := self._form.answer(there).waiting):
                controller = spec.parameters.get(CONTROLLER_CLASS, "")
                return f"{name}: {waiting}; is the controller of class {controller} running?"
        return ""

    async def _change(self, key: LoadBalancerKey, backend: str, changes: Sequence[TargetChange]) -> Outcome:
        spec = self._specs[key]
        wanted = {wanted_backend.name: wanted_backend for wanted_backend in (spec.l7.backends if spec.l7 else ())}
        try:
            async with self._locks.hold(key):
                present = [
                    slice_
                    for slice_ in await self._ours(key, ENDPOINT_SLICES)
                    if slice_.annotation(ANNOTATION_BACKEND) == backend
                ]
                changed = changed_slices(key, wanted.get(backend, Backend(backend)), present, changes)
                for slice_ in changed.write:
                    await self._cluster.apply(slice_.resource, slice_.body, manager=MANAGER_HUB)
                for gone in changed.delete:
                    await self._delete(ENDPOINT_SLICES, gone)
                if changed.delete and backend not in wanted:
                    await self._collect_services(key, {service_name(key, name) for name in wanted})
        except Retry as error:
            return outcome_from_error(error)
        except Terminal as error:
            # A rejected slice does not undo what may already be registered.
            status = OutcomeStatus.RETRY if any(change.is_removal for change in changes) else OutcomeStatus.REJECTED
            return Outcome(status, error.sentence)
        return DONE

    async def _ours(self, key: LoadBalancerKey, resource: AnyResource) -> list[Any]:
        """Return the objects of one kind that were made for ``key``; none if the kind does not exist."""
        try:
            present: list[Any] = await self._cluster.list(resource, key.namespace, label_selector=selector(key))
        except NotServed:
            if not resource.group or resource.plural in {
                kind.name for kind in await served_kinds(self._cluster, resource.group, resource.version)
            }:
                raise
            return []
        return [obj for obj in present if made_for(obj) == key]

    def _accepted(self, rendered: Rendered, refused: Mapping[str, str]) -> Rendered:
        """Return all but the routes that the cluster refuses, with refused rules closed."""
        parts = [RefusedPart("route", name, reason) for name, reason in sorted(refused.items()) if "/" not in name]
        objects: list[AppliedObject] = []
        for obj in rendered.objects:
            if obj.route in refused:
                continue
            rules = {
                number: refused[rule]
                for number in range(self._rules_of(obj))
                if (rule := _rule(obj, number)) in refused
            }
            parts += [RefusedPart("rule", obj.route, reason) for reason in rules.values()]
            objects.append(self._form.close(obj, rules) if rules else obj)
        return Rendered(tuple(objects), (*rendered.refused, *parts))

    def _rules_of(self, obj: AppliedObject) -> int:
        return self._form.rules_of(obj) if obj.route else 0

    async def _apply_accepted(self, wanted: AppliedObject, present: KubeObject | None) -> dict[str, str]:
        """Apply an object, a route without the rules that the cluster refuses; return what is refused, with reasons."""
        try:
            await self._apply(wanted, present)
        except Invalid as error:
            if not wanted.route:
                raise
            title = f"{wanted.resource.kind} {wanted.name}: "
            rules = await self._refused_rules(wanted)
            if rules:
                try:
                    await self._apply(self._form.close(wanted, rules), present)
                except Invalid:
                    rules = {}
            if rules:
                return {_rule(wanted, number): f"{title}{reason}"[:_LONGEST] for number, reason in rules.items()}
            return {wanted.route: f"{title}{error.sentence}"[:_LONGEST]}
        return {}

    async def _refused_rules(self, wanted: AppliedObject) -> dict[int, str]:
        """Return why the cluster refuses rules of a route, by dry runs that leave some open; none if it refuses all."""
        count = self._rules_of(wanted)
        groups = [range(count // 2), range(count // 2, count)] if count > 1 else []
        refused: dict[int, str] = {}
        while groups:
            group = groups.pop()
            others = set(range(count)).difference(group)
            try:
                await self._cluster.apply(
                    wanted.resource, self._form.close(wanted, others).body, manager=MANAGER_HUB, dry_run=True
                )
            except Invalid as error:
                if len(group) == 1:
                    refused[group[0]] = error.sentence
                else:
                    middle = len(group) // 2
                    groups += [group[:middle], group[middle:]]
        return refused if len(refused) < count else {}

    async def _apply(self, wanted: AppliedObject, present: KubeObject | None) -> None:
        if present is not None and present.annotation(ANNOTATION_APPLIED) == wanted.digest:
            return
        try:
            await self._cluster.apply(wanted.resource, wanted.body, manager=MANAGER_HUB)
        except NotServed as error:
            raise Retry(
                f"the hub's cluster has no kind {wanted.resource.kind} of {wanted.resource.api_version}: install it, "
                f"or use another LoadBalancerClass (provider {self._form.name})",
                detail=error.detail,
            ) from error

    async def _collect(self, key: LoadBalancerKey, rendered: Rendered, services: set[str]) -> None:
        """Delete the remaining objects of an older version; a Service goes only once it has no slice."""
        wanted = {(obj.resource.kind, obj.name) for obj in rendered.objects}
        for resource in (*self._form.others, self._form.answering):
            for obj in await self._ours(key, resource):
                if (resource.kind, obj.metadata.name) not in wanted:
                    await self._delete(resource, obj)
        await self._collect_services(key, services)

    async def _collect_services(self, key: LoadBalancerKey, wanted: set[str]) -> None:
        slices: list[EndpointSlice] = await self._ours(key, ENDPOINT_SLICES)
        used = {slice_.annotation(ANNOTATION_BACKEND) for slice_ in slices}
        for obj in await self._ours(key, SERVICES):
            if obj.metadata.name not in wanted and obj.annotation(ANNOTATION_BACKEND) not in used:
                await self._delete(SERVICES, obj)

    async def _delete(self, resource: AnyResource, obj: KubeObject) -> None:
        try:
            await self._cluster.delete(resource, *obj.key, uid=obj.metadata.uid)
        except Conflict:
            log.info("recreated by another client; left unchanged", kind=resource.kind, key=str(obj.key))


def _rule(obj: AppliedObject, number: int) -> str:
    """Return the key of a refused rule."""
    return f"{obj.name}/{number}"
