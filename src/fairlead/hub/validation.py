"""Validation of load balancers by their providers, and of LoadBalancerClasses, which are protected while in use.

    a spec that was not accepted before       validate            Create, or Update with the accepted one
    a group's parameters, likewise            validate_backends   Create, or Update with the accepted ones
    pods that are not ready, policy Webhook   ``judge_pods``      of the class that the group names

No reconcile waits for a provider: its key is woken when the answer arrives. Without an answer, the last accepted
version is served. A class in use has a finalizer; when it is deleted, it accepts no new users, and its condition names
the present ones. The default class is deleted at once and created again as it was, since every Service without a class
needs it.

In: views; classes, intents of all regions, records without an object. Out: views with verdicts; finalizers, counts and
conditions of classes. Never: a call while another replica leads, the same call twice, or a call about a refused spec.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from fairlead.api.backendgroup import BackendGroup, BackendRecord
from fairlead.api.intent import IntentObject
from fairlead.api.loadbalancerclass import (
    CHANGEABLE_PARAMETERS,
    LOAD_BALANCER_CLASSES,
    LoadBalancerClass,
    LoadBalancerClassStatus,
)
from fairlead.api.meta import JSONObject, KubeObject, WireCondition, wire_conditions
from fairlead.api.names import DEFAULT_CLASS, FINALIZER_IN_USE, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, FairleadError, NotFound, Retry, Terminal
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import CALL_LIMIT_S
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import CoalescingWriter, Overlay, hold, release
from fairlead.ledger.records import load_balancer_of
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import PodRetention, Validates
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.loadbalancer import frontend_of, is_of_the_class, refuse_group
from fairlead.translate.member import class_place_problem
from fairlead.translate.view import GroupView, LoadBalancerView

#: The kind of a request's subject, a load balancer, and the namespace and name of a BackendGroup, if it concerns one.
Subject = tuple[str, LoadBalancerKey | None, tuple[str, str] | None]

_VERDICTS = frozenset({ConditionReason.REFUSED_BY_PROVIDER, ConditionReason.PROVIDER_FAILED})
#: A driver's answer may change with time alone: it is asked again while some pods are not ready.
_AGAIN_S = 60.0
#: Seconds between two attempts to ask a provider that does not answer.
PAUSE_S = 15.0
#: Many load balancers may come and go at once; one write counts all of them, and every agent reads it.
_GATHER_S = 5.0
#: How long a status is held back when only the number of its users has changed.
_COUNT_S = 30.0
#: Providers that serve nothing, and are not listed.
_NOT_OFFERED = frozenset({"memory"})


class ProviderValidation:
    """Completes views with the verdicts of providers."""

    def __init__(self, *, inventory: Inventory, providers: ProviderRegistry, cache: ValidationCache) -> None:
        self._inventory = inventory
        self._providers = providers
        self._cache = cache

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the requests for a load balancer that was deleted."""
        self._cache.forget(key)

    def group_changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        """Drop the requests about the pods of a group that was deleted, or has another policy."""
        group = new or old
        if group is not None and (new is None or new.spec.deregister_policy != "Webhook"):
            self._cache.drop(_subject(group))

    def validated(self, view: LoadBalancerView, refusal: Condition | None = None) -> LoadBalancerView:
        """Return ``view`` with the answers of its provider; ``pending`` while one is missing.

        ``refusal``: why the spec is refused anyway, so that its provider is not asked.
        """
        self._cache.drop_others(view.key, (group.group.key for group in view.groups))
        runner = self._providers.get(view.class_provider)
        provider = runner.provider if runner is not None and isinstance(runner.provider, Validates) else None
        pending = False
        if provider is not None and refusal is None:
            verdict, pending = self._load_balancer(view, provider)
            view = msgspec.structs.replace(view, verdict=verdict)
        groups: list[GroupView] = []
        for group in view.groups:
            validated, group_pending = self._group(view, group, provider if refusal is None else None)
            groups.append(validated)
            pending = pending or group_pending
        return msgspec.structs.replace(view, groups=tuple(groups), pending=pending)

    def _load_balancer(self, view: LoadBalancerView, provider: Validates) -> tuple[Condition | None, bool]:
        spec = frontend_of(view)
        subject = ("LoadBalancer", view.key, None)
        if view.accepted is not None and _of_the_user(view, spec) == _of_the_user(view, view.accepted):
            self._cache.drop(subject)
            return None, False
        verdict = self._cache.verdict(
            subject, _judged(spec), partial(provider.validate, spec, old=view.accepted), concerns=view.key
        )
        if verdict is None:
            return _pending("the provider is validating it"), True
        return _condition(verdict.error), False

    def _group(self, view: LoadBalancerView, group: GroupView, provider: Validates | None) -> tuple[GroupView, bool]:
        pending = pods_pending = False
        exists = view.verdict is None or view.accepted is not None
        if provider is not None and exists and not group.out_of_scope and refuse_group(view, group) is None:
            verdict, pending = self._backends(view, group, provider)
            group = msgspec.structs.replace(group, verdict=verdict)
        if group.group.spec.deregister_policy == "Webhook":
            group, pods_pending = self._kept_pods(view.key, group)
        return group, pending or pods_pending

    def _backends(self, view: LoadBalancerView, group: GroupView, provider: Validates) -> tuple[Condition | None, bool]:
        backend_group = group.group
        subject = ("BackendGroup", view.key, backend_group.key)
        parameters: Mapping[str, str] = backend_group.spec.parameters or {}
        if group.accepted == parameters:
            self._cache.drop(subject)
            return None, False
        selects = backend_group.spec
        kind = "Pod" if selects.pods is not None else "Service" if selects.service is not None else "Static"
        spec = frontend_of(view)
        request = partial(
            provider.validate_backends, spec, backend_type=kind, parameters=parameters, old_parameters=group.accepted
        )
        content = (backend_group.metadata.uid, kind, dict(parameters), dict(spec.parameters))
        verdict = self._cache.verdict(subject, content, request, concerns=view.key)
        if verdict is None:
            return _pending("the provider is validating these backends"), True
        return _condition(verdict.error), False

    def _kept_pods(self, key: LoadBalancerKey, view: GroupView) -> tuple[GroupView, bool]:
        """Return ``view`` with the pods that are kept, and whether the driver's answer is pending."""
        group, webhook = view.group, view.group.spec.deregister_webhook
        doubtful = [pod for pod in view.pods if not pod.ready and not pod.deleting]
        if webhook is None or not doubtful:
            self._cache.drop(_subject(group))
            return msgspec.structs.replace(view, kept=frozenset()), False
        driver_class = self._inventory.classes.get("", webhook.class_name)
        runner = self._providers.get(driver_class.spec.provider) if driver_class is not None else None
        name = f"LoadBalancerClass {webhook.class_name!r}"
        if driver_class is None:
            problem = f"spec.deregisterWebhook.className: there is no {name}"
        elif runner is None or not isinstance(runner.provider, PodRetention):
            problem = f"spec.deregisterWebhook.className: the provider of {name} does not decide which pods are kept"
        else:
            parameters = driver_class.spec.parameters or {}
            states = [(pod.metadata.uid, pod.status.phase) for pod in doubtful]
            verdict = self._cache.verdict(
                _subject(group),
                (driver_class.metadata.uid, dict(parameters), states),
                partial(runner.provider.judge_pods, parameters, [msgspec.to_builtins(pod) for pod in doubtful]),
                concerns=key,
                again_s=_AGAIN_S,
            )
            if verdict is None:
                return view, True
            if verdict.error is None:
                return msgspec.structs.replace(view, kept=verdict.answer), False
            problem = verdict.error.sentence
        kept = frozenset(
            pod.key
            for pod in doubtful
            if webhook.failure_policy == "DoNothing"
            or (webhook.failure_policy == "IfNotRunning" and pod.status.phase == "Running")
        )
        return msgspec.structs.replace(view, kept=kept, retention_error=problem), False


def as_recorded_verdicts(view: LoadBalancerView) -> LoadBalancerView:
    """Return ``view`` with the verdicts in the objects' conditions; no provider is asked."""
    status = view.load_balancer.status
    verdict = _recorded(status.conditions, view.load_balancer.metadata.generation)
    groups = [
        group
        if group.accepted == (group.group.spec.parameters or {})
        else msgspec.structs.replace(
            group, verdict=_recorded(group.group.status.conditions, group.group.metadata.generation)
        )
        for group in view.groups
    ]
    return msgspec.structs.replace(view, verdict=verdict, groups=tuple(groups))


def _judged(spec: FrontendSpec) -> FrontendSpec:
    """Return the part of a spec that its provider validates: without the health check."""
    return msgspec.structs.replace(spec, health_check=None)


def _of_the_user(view: LoadBalancerView, spec: FrontendSpec) -> FrontendSpec:
    """Return the part of a spec that comes from the user: without credentials and parameters of the class."""
    of_class = view.behaviour.parameters
    capabilities = view.providers[view.class_provider]
    parameters = {
        key: value
        for key, value in spec.parameters.items()
        if key not in of_class and not is_of_the_class(key, capabilities)
    }
    return msgspec.structs.replace(_judged(spec), parameters=parameters)


def _pending(text: str) -> Condition:
    return Condition(ConditionType.ACCEPTED, False, ConditionReason.PENDING, text)


def _condition(error: FairleadError | None) -> Condition | None:
    if error is None:
        return None
    if isinstance(error, Retry):
        text = f"not accepted yet, the provider cannot be asked: {error.sentence}"
        return Condition(ConditionType.ACCEPTED, False, ConditionReason.PROVIDER_FAILED, text)
    return Condition(ConditionType.ACCEPTED, False, ConditionReason.REFUSED_BY_PROVIDER, error.sentence)


def _recorded(conditions: Sequence[WireCondition] | None, generation: int) -> Condition | None:
    for condition in conditions or ():
        current = condition.type == ConditionType.ACCEPTED and condition.observed_generation == generation
        if current and condition.status == "False" and condition.reason in _VERDICTS:
            return Condition(ConditionType.ACCEPTED, False, ConditionReason(condition.reason), condition.message)
    return None


def _subject(group: BackendGroup) -> Subject:
    return ("Pods", None, group.key)


def _namespace_of(subject: Subject) -> str:
    _, key, group = subject
    return group[0] if group is not None else key.namespace if key is not None else ""


class ValidationVerdict(msgspec.Struct, frozen=True):
    """A provider's answer. ``error`` Terminal: refused, with the provider's message; Retry: no answer at present."""

    answer: Any = None
    error: FairleadError | None = None


class _ValidationRequest(msgspec.Struct):
    content: object
    ask: Callable[[], Awaitable[Any]]
    again_s: float | None
    concerns: set[LoadBalancerKey]
    verdict: ValidationVerdict | None = None


class ValidationCache:
    """Asks providers, and caches their verdicts."""

    def __init__(
        self, *, clock: Clock, leading: Callable[[], bool], wake: Callable[[Iterable[LoadBalancerKey]], None]
    ) -> None:
        self._leading = leading
        self._wake = wake
        self._requests: dict[Subject, _ValidationRequest] = {}
        self.queue: KeyedQueue[Subject] = KeyedQueue(clock=clock, group_of=_namespace_of)

    def verdict(
        self,
        subject: Subject,
        content: object,
        ask: Callable[[], Awaitable[Any]],
        *,
        concerns: LoadBalancerKey,
        again_s: float | None = None,
    ) -> ValidationVerdict | None:
        """Return the verdict on ``content``, None while there is none; ``concerns`` is woken when it changes.

        ``again_s``: the verdict may change with time, so the provider is asked again after so many seconds.
        """
        known = self._requests.get(subject)
        if known is None or known.content != content:
            concerned = {concerns, *(known.concerns if known is not None else ())}
            self._requests[subject] = _ValidationRequest(content, ask, again_s, concerned)
            self.queue.add(subject)
            return None
        known.concerns.add(concerns)
        return known.verdict

    def drop(self, subject: Subject) -> None:
        """Drop one request."""
        self._requests.pop(subject, None)

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the requests for the deleted ``key`` only."""
        for subject, request in list(self._requests.items()):
            request.concerns.discard(key)
            if subject[1] == key or not request.concerns:
                self.drop(subject)

    def drop_others(self, key: LoadBalancerKey, groups: Iterable[tuple[str, str]]) -> None:
        """Drop the requests about ``key`` and a group outside ``groups``."""
        kept = {None, *groups}
        for subject in [subject for subject in self._requests if subject[1] == key and subject[2] not in kept]:
            self.drop(subject)

    def again(self) -> None:
        """Repeat the requests without an answer: this replica has just begun to lead."""
        for subject, request in self._requests.items():
            if request.verdict is None or isinstance(request.verdict.error, Retry):
                self.queue.add(subject)

    async def ask(self, subject: Subject) -> float | None:
        """Send one request now; return the seconds after which it is repeated."""
        request = self._requests.get(subject)
        if request is None or not self._leading():
            return None
        wait_s = request.again_s
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                verdict = ValidationVerdict(answer=await request.ask())
        except TimeoutError:
            verdict, wait_s = ValidationVerdict(error=Retry(f"no answer within {CALL_LIMIT_S:g} s")), PAUSE_S
        except Terminal as error:
            verdict = ValidationVerdict(error=error)
        except FairleadError as error:
            verdict, wait_s = ValidationVerdict(error=error), max(PAUSE_S, error.after_s or 0.0)
        if self._requests.get(subject) is not request:
            return None  # replaced by a request with another content, or dropped
        before, request.verdict = request.verdict, verdict
        if before is None or _comparable(before) != _comparable(verdict):
            self._wake(request.concerns)
        return wait_s


def _comparable(verdict: ValidationVerdict) -> tuple[object, str, str]:
    error = verdict.error
    return (verdict.answer, type(error).__name__, error.sentence if error is not None else "")


class ClassProtection:
    """Protects classes that are in use, and counts their users."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        providers: ProviderRegistry,
        events: EventRecorder,
        clock: Clock,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._providers = providers
        self._events = events
        self._clock = clock
        self._leading = leading
        self.queue: KeyedQueue[str] = KeyedQueue(clock=clock)
        self._writer: CoalescingWriter[LoadBalancerClass] = CoalescingWriter(
            cluster,
            LOAD_BALANCER_CLASSES,
            objects=Overlay(inventory.classes),
            clock=clock,
            manager=MANAGER_HUB,
            # An absent count would mean that the count is unknown.
            always=("loadBalancers",),
            settle_s=_COUNT_S,
        )

    def watch(self) -> None:
        """Subscribe to everything that may change which class is used."""
        self._inventory.classes.on_change(self._class_changed)
        for objects in self._inventory.intents.values():
            objects.cache.on_change(self._user_changed)
        self._inventory.records.on_change(self._record_changed)

    def lead(self) -> None:
        """Reconcile every class: this replica has begun to lead."""
        for load_balancer_class in self._inventory.classes.values():
            self.queue.add(load_balancer_class.metadata.name)
        self.queue.add(DEFAULT_CLASS)

    async def reconcile(self, name: str) -> float | None:
        """Hold or release class ``name``, and write its status; return the seconds until it is due again."""
        load_balancer_class = self._inventory.classes.get("", name)
        if not self._leading():
            return None
        if load_balancer_class is None:
            self._writer.forget("", name)
            if name == DEFAULT_CLASS:
                with suppress(AlreadyExists):
                    await self._cluster.create(LOAD_BALANCER_CLASSES, default_class(self._inventory.last_default_class))
            return None
        users = list(self._users(load_balancer_class))
        too_late = bool(users) and load_balancer_class.deleting  # the API server accepts no new finalizer
        if name == DEFAULT_CLASS and load_balancer_class.deleting:
            await self._replace_default(load_balancer_class)
            return None
        if bool(users) != load_balancer_class.held_by(FINALIZER_IN_USE) and not too_late:
            await self._hold(load_balancer_class, bool(users))
            return None  # the watch queues the object again
        old, generation = load_balancer_class.status, load_balancer_class.metadata.generation
        conditions = [self._accepted(load_balancer_class, users), build_in_use(load_balancer_class, users, short="lbc")]
        now = wire_time(self._clock.now())
        new = LoadBalancerClassStatus(
            load_balancers=sum(not user.startswith("BackendRecord ") for user in users),
            observed_generation=generation,
            conditions=wire_conditions(conditions, old.conditions, generation=generation, now=now),
        )
        written, wait_s = await self._writer.write(load_balancer_class, old, new)
        if written is None:
            return wait_s or None
        if load_balancer_class.deleting and users:
            self._warn(load_balancer_class, ConditionReason.IN_USE, conditions[1].message)
        return None

    def _users(self, load_balancer_class: LoadBalancerClass) -> Iterator[str]:
        for key in self._inventory.users_of_class(load_balancer_class.metadata.name):
            yield f"{key.kind} {key.namespace}/{key.name}"
        for record in self._inventory.records.values():
            if self._is_orphan(record) and _may_be_of(record, load_balancer_class):
                yield f"BackendRecord {record.key}"

    def _is_orphan(self, record: BackendRecord) -> bool:
        return not self._inventory.exists(load_balancer_of(record))

    async def _hold(self, load_balancer_class: LoadBalancerClass, in_use: bool) -> None:
        change = hold if in_use else release
        with suppress(NotFound):  # deleted while it had no finalizer
            await change(
                self._cluster, LOAD_BALANCER_CLASSES, load_balancer_class, FINALIZER_IN_USE, manager=MANAGER_HUB
            )

    async def _replace_default(self, deleted: LoadBalancerClass) -> None:
        """Release the deleted default class, which is created again with its spec, labels and annotations.

        Its load balancers are served as before: the inventory keeps the last version.
        """
        await self._hold(deleted, False)
        self._warn(
            deleted,
            ConditionReason.DELETING,
            "the default class was deleted, and the hub creates it again: Services without a class need it. To have "
            "nothing new use it, set spec.draining",
        )

    def _warn(self, load_balancer_class: LoadBalancerClass, reason: ConditionReason, message: str) -> None:
        self._events.emit_about(
            LOAD_BALANCER_CLASSES, load_balancer_class, warning=True, reason=reason.value, message=message
        )

    def _accepted(self, load_balancer_class: LoadBalancerClass, users: list[str]) -> Condition:
        provider = load_balancer_class.spec.provider
        if provider in self._providers.capabilities:
            reason, text = self._problem(load_balancer_class, users)
            return Condition(ConditionType.ACCEPTED, not text, reason, text)
        runs = ", ".join(sorted(set(self._providers.known) - _NOT_OFFERED)) or "none"
        text = (
            f"spec.provider: this hub does not run {provider!r} (it runs: {runs}); install it, or create another class"
        )
        return Condition(ConditionType.ACCEPTED, False, ConditionReason.NO_SUCH_PROVIDER, text)

    def _problem(self, load_balancer_class: LoadBalancerClass, users: list[str]) -> tuple[ConditionReason, str]:
        """Return why the class cannot be used; the text is empty if it can."""
        spec = load_balancer_class.spec
        if problem := self._providers.class_problem(spec.provider, spec.parameters):
            name = problem.removeprefix("parameters.").split(" ")[0].rstrip(":")
            step = "correct it" if _may_change(name) else "the field is immutable: create another class instead"
            return ConditionReason.INVALID, f"spec.{problem}; {step}"
        if not any(user.startswith("LoadBalancer ") for user in users):
            # LoadBalancers are the hub's own: they may share a place.
            places = self._providers.capabilities[spec.provider].place_parameters
            if problem := class_place_problem(load_balancer_class, places):
                return ConditionReason.CLASS_NOT_USABLE, problem
        return ConditionReason.ACCEPTED, ""

    def _class_changed(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        changed = new or old
        if changed is None or (new is None and changed.metadata.name != DEFAULT_CLASS):
            return
        self.queue.add(changed.metadata.name)

    def _user_changed(self, old: IntentObject | None, new: IntentObject | None) -> None:
        names = {obj.class_name or DEFAULT_CLASS for obj in (old, new) if obj is not None}
        if old is None or new is None or len(names) > 1:
            for name in names:
                load_balancer_class = self._inventory.classes.get("", name)
                held = load_balancer_class is not None and load_balancer_class.held_by(FINALIZER_IN_USE)
                self.queue.add_after(name, _GATHER_S if held else 0.0)

    def _record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        if new is None and old is not None and self._is_orphan(old):
            for load_balancer_class in self._inventory.classes.values():
                if load_balancer_class.spec.provider == old.spec.load_balancer.provider:
                    self.queue.add_after(load_balancer_class.metadata.name, _GATHER_S)


def default_class(deleted: LoadBalancerClass | None = None) -> JSONObject:
    """Return the class of load balancers that name none: as it was when ``deleted``, else the initial one."""
    if deleted is None:
        return {"metadata": {"name": DEFAULT_CLASS}, "spec": {"provider": DEFAULT_CLASS}}
    kept = {"labels": deleted.metadata.labels, "annotations": deleted.metadata.annotations}
    metadata = {"name": DEFAULT_CLASS, **{name: values for name, values in kept.items() if values}}
    return {"metadata": metadata, "spec": msgspec.to_builtins(deleted.spec)}


def _may_change(parameter: str) -> bool:
    return parameter in CHANGEABLE_PARAMETERS or parameter.startswith("timeout.")


def _may_be_of(record: BackendRecord, load_balancer_class: LoadBalancerClass) -> bool:
    """Return whether a record may belong to this class: same provider, same immutable parameters."""
    at = record.spec.load_balancer
    kept = at.parameters or {}
    fixed = {key: value for key, value in (load_balancer_class.spec.parameters or {}).items() if not _may_change(key)}
    return at.provider == load_balancer_class.spec.provider and all(
        kept.get(key) == value for key, value in fixed.items()
    )


def build_in_use(obj: KubeObject, users: Sequence[str], *, short: str) -> Condition:
    """Return condition InUse of ``obj``; ``short`` is the name of its kind for kubectl."""
    if not users:
        return Condition(ConditionType.IN_USE, False, ConditionReason.UNUSED, "nothing uses it")
    count, first, name = len(users), min(users), obj.metadata.name
    text = f"used by {count}, first {first}" if count > 1 else f"used by {first}"
    if obj.deleting:
        text = (
            f"deleted, and kept until nothing uses it: {text}. Delete its users, or move them elsewhere. To undo the "
            f"deletion, save kubectl get {short} {name} -o yaml, remove the finalizers, and apply the saved object; "
            "its users are served meanwhile"
        )
    return Condition(ConditionType.IN_USE, True, ConditionReason.IN_USE, text)
