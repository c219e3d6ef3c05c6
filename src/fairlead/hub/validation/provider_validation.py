"""The validation of a load balancer by its provider, before the view is complete.

    a spec that was not accepted before       validate            Create, or Update with what was accepted
    a group's parameters, likewise            validate_backends   Create, or Update with what was accepted
    pods that are not ready, policy Webhook   ``pod_retention``   of the class that the group names

In: a view. Out: the view with the verdicts. A provider that does not answer has not accepted: what was accepted before
is served on. Never: a call of a provider without ``Validates``, nor about what is refused anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.meta import WireCondition
from fairlead.errors import FairleadError, Retry
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.validation.validation_cache import Subject, ValidationCache
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import PodRetention, Validates
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.loadbalancer import frontend_of, is_of_the_class, refuse_group
from fairlead.translate.view import GroupView, LoadBalancerView

_VERDICTS = frozenset({ConditionReason.REFUSED_BY_PROVIDER, ConditionReason.PROVIDER_FAILED})


class ProviderValidation:
    """Completes views with the verdicts of providers."""

    def __init__(self, *, inventory: Inventory, providers: ProviderRegistry, cache: ValidationCache) -> None:
        self._providers = providers
        self._cache = cache
        self._pods = PodRetentionPolicy(inventory=inventory, providers=providers, cache=cache)

    def forget(self, key: LoadBalancerKey) -> None:
        """Ask nothing more for a load balancer that is gone."""
        self._cache.forget(key)

    def group_changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        """Ask nothing more about the pods of a group that is gone, or has another policy."""
        self._pods.group_changed(old, new)

    def validated(self, view: LoadBalancerView, refusal: Condition | None = None) -> LoadBalancerView:
        """Return ``view`` with what its provider answered; ``pending`` while something was not answered yet.

        ``refusal``: why its spec is refused anyway, so that its provider is not asked.
        """
        self._cache.drop_others(view.key, (group.group.key for group in view.groups))
        runner = self._providers.get(view.class_spec.provider)
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
            group, pods_pending = self._pods.kept(view.key, group)
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


def as_recorded_verdicts(view: LoadBalancerView) -> LoadBalancerView:
    """Return ``view`` with the verdicts that the objects' conditions hold; no provider is asked."""
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
    """Return what is the provider's to judge: how targets are checked is not."""
    return msgspec.structs.replace(spec, health_check=None)


def _of_the_user(view: LoadBalancerView, spec: FrontendSpec) -> FrontendSpec:
    """Return what a user is to have accepted: the credentials and parameters of the class are not part of it."""
    of_class = view.class_spec.parameters or {}
    capabilities = view.providers[view.class_spec.provider]
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
        text = f"not accepted yet, its provider cannot be asked: {error.sentence}"
        return Condition(ConditionType.ACCEPTED, False, ConditionReason.PROVIDER_FAILED, text)
    return Condition(ConditionType.ACCEPTED, False, ConditionReason.REFUSED_BY_PROVIDER, error.sentence)


def _recorded(conditions: Sequence[WireCondition] | None, generation: int) -> Condition | None:
    for condition in conditions or ():
        current = condition.type == ConditionType.ACCEPTED and condition.observed_generation == generation
        if current and condition.status == "False" and condition.reason in _VERDICTS:
            return Condition(ConditionType.ACCEPTED, False, ConditionReason(condition.reason), condition.message)
    return None


#: The answer may change with time alone, so the driver is asked again while some pods are not ready.
_AGAIN_S = 60.0


class PodRetentionPolicy:
    """Asks drivers which pods stay."""

    def __init__(self, *, inventory: Inventory, providers: ProviderRegistry, cache: ValidationCache) -> None:
        self._inventory = inventory
        self._providers = providers
        self._cache = cache

    def group_changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        """Ask nothing more about the pods of a group that is gone, or has another policy."""
        group = new or old
        if group is not None and (new is None or new.spec.deregister_policy != "Webhook"):
            self._cache.drop(_subject(group))

    def kept(self, key: LoadBalancerKey, view: GroupView) -> tuple[GroupView, bool]:
        """Return ``view`` with the pods that are kept, and whether the driver has not answered yet."""
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
            problem = f"spec.deregisterWebhook.className: the provider of {name} cannot say which pods stay"
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


def _subject(group: BackendGroup) -> Subject:
    return ("Pods", None, group.key)
