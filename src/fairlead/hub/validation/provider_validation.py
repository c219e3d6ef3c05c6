"""What does a load balancer's provider have to be asked before its view is complete?

    a spec that was not accepted before       validate            Create, or Update with what was
    a group's parameters, likewise            validate_backends   Create, or Update with what was
    pods that are not ready, policy Webhook   judge_pods          of the class that the group names

In: a view. Out: the view with what was answered, and whether an answer is still on its way. Who cannot be asked has
not accepted: what was accepted before lives on. Never: a question to a provider that has no opinion, or about what is
refused anyway.
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
from fairlead.hub.validation.validation_cache import ValidationCache
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import PodRetention, Provider, Validates
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.backendgroup import GroupView
from fairlead.translate.loadbalancer import LoadBalancerView, frontend_of
from fairlead.translate.validate_loadbalancer import is_of_the_class, refuse, refuse_group

#: Which pods stay may change with time alone, so that is asked again while some are not ready.
_JUDGED_AGAIN_S = 60.0
_VERDICTS = frozenset({ConditionReason.REFUSED_BY_PROVIDER, ConditionReason.PROVIDER_FAILED})


class ProviderValidation:
    """Asks what a view raises."""

    def __init__(self, *, inventory: Inventory, engines: ProviderRegistry, opinions: ValidationCache) -> None:
        self._inventory = inventory
        self._engines = engines
        self._opinions = opinions

    def forget(self, key: LoadBalancerKey) -> None:
        """Ask nothing more for a load balancer that is gone."""
        self._opinions.forget(key)

    def group_changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        """Ask nothing more about the pods of a group that is gone, or has another policy."""
        gone = new or old
        if gone is not None and (new is None or new.spec.deregister_policy != "Webhook"):
            self._opinions.drop(("Pods", None, gone.key))

    def answered(self, view: LoadBalancerView) -> tuple[LoadBalancerView, bool]:
        """Return ``view`` with what its provider says, and whether something was not answered yet."""
        self._opinions.drop_others(view.key, (one.group.key for one in view.groups))
        engine = self._engines.get(view.class_spec.provider)
        provider = engine.provider if engine is not None else None
        asking = False
        if refuse(view) is None and isinstance(provider, Validates):
            verdict, asking = self._load_balancer(view, provider)
            view = msgspec.structs.replace(view, verdict=verdict)
        groups: list[GroupView] = []
        for one in view.groups:
            found, pending = self._group(view, one, provider)
            groups.append(found)
            asking = asking or pending
        return msgspec.structs.replace(view, groups=tuple(groups)), asking

    def _load_balancer(self, view: LoadBalancerView, provider: Validates) -> tuple[Condition | None, bool]:
        spec = frontend_of(view)
        about = ("LoadBalancer", view.key, None)
        if view.accepted is not None and _of_the_user(view, spec) == _of_the_user(view, view.accepted):
            self._opinions.drop(about)
            return None, False
        opinion = self._opinions.of(
            about, _wording(spec), partial(provider.validate, spec, old=view.accepted), concerns=view.key
        )
        if opinion is None:
            return _pending("the provider is asked whether this may be"), True
        return _verdict(opinion.error), False

    def _group(self, view: LoadBalancerView, one: GroupView, provider: Provider | None) -> tuple[GroupView, bool]:
        asking = False
        exists = refuse(view) is None and (view.verdict is None or view.accepted is not None)
        ok = exists and not one.out_of_scope and refuse_group(view, one) is None
        if ok and isinstance(provider, Validates):
            verdict, asking = self._backends(view, one, provider)
            one = msgspec.structs.replace(one, verdict=verdict)
        if one.group.spec.deregister_policy == "Webhook":
            one, pending = self._pods(view, one)
            asking = asking or pending
        return one, asking

    def _backends(self, view: LoadBalancerView, one: GroupView, provider: Validates) -> tuple[Condition | None, bool]:
        group = one.group
        about = ("BackendGroup", view.key, group.key)
        parameters: Mapping[str, str] = group.spec.parameters or {}
        if one.accepted == parameters:
            self._opinions.drop(about)
            return None, False
        kind = "Pod" if group.spec.pods is not None else "Service" if group.spec.service is not None else "Static"
        spec = frontend_of(view)
        ask = partial(
            provider.validate_backends, spec, backend_type=kind, parameters=parameters, old_parameters=one.accepted
        )
        wording = (group.metadata.uid, kind, dict(parameters), dict(spec.parameters))
        opinion = self._opinions.of(about, wording, ask, concerns=view.key)
        if opinion is None:
            return _pending("the provider is asked whether these backends may be"), True
        return _verdict(opinion.error), False

    def _pods(self, view: LoadBalancerView, one: GroupView) -> tuple[GroupView, bool]:
        """Have the driver that the group names say which of its pods that are not ready keep their place."""
        group, webhook = one.group, one.group.spec.deregister_webhook
        about = ("Pods", None, group.key)
        doubtful = [pod for pod in one.pods if not pod.ready and not pod.deleting]
        if webhook is None or not doubtful:
            self._opinions.drop(about)
            return msgspec.structs.replace(one, kept=frozenset()), False
        found = self._inventory.classes.get("", webhook.class_name)
        engine = self._engines.get(found.spec.provider) if found is not None else None
        name = f"LoadBalancerClass {webhook.class_name!r}"
        if found is None:
            problem = f"spec.deregisterWebhook.className: there is no {name}"
        elif engine is None or not isinstance(engine.provider, PodRetention):
            problem = f"spec.deregisterWebhook.className: the provider of {name} cannot say which pods stay"
        else:
            parameters = found.spec.parameters or {}
            bodies = [msgspec.to_builtins(pod) for pod in doubtful]
            wording = (found.metadata.uid, dict(parameters), [(pod.metadata.uid, pod.status.phase) for pod in doubtful])
            opinion = self._opinions.of(
                about,
                wording,
                partial(engine.provider.judge_pods, parameters, bodies),
                concerns=view.key,
                again_s=_JUDGED_AGAIN_S,
            )
            if opinion is None:
                return one, True
            if opinion.error is None:
                return msgspec.structs.replace(one, kept=opinion.answer), False
            problem = opinion.error.sentence
        kept = frozenset(
            pod.key
            for pod in doubtful
            if webhook.failure_policy == "DoNothing"
            or (webhook.failure_policy == "IfNotRunning" and pod.status.phase == "Running")
        )
        return msgspec.structs.replace(one, kept=kept, judge=problem), False


def _wording(spec: FrontendSpec) -> FrontendSpec:
    """Return what is the provider's to judge: how targets are checked is not."""
    return msgspec.structs.replace(spec, health_check=None)


def _of_the_user(view: LoadBalancerView, spec: FrontendSpec) -> FrontendSpec:
    """Return what is the user's to have accepted: as whom the class comes to its provider is not."""
    of_class = view.class_spec.parameters or {}
    capabilities = view.providers[view.class_spec.provider]
    parameters = {
        key: value
        for key, value in spec.parameters.items()
        if key not in of_class and not is_of_the_class(key, capabilities)
    }
    return msgspec.structs.replace(_wording(spec), parameters=parameters)


def _pending(text: str) -> Condition:
    return Condition(ConditionType.ACCEPTED, False, ConditionReason.PENDING, text)


def _verdict(error: FairleadError | None) -> Condition | None:
    if error is None:
        return None
    if isinstance(error, Retry):
        text = f"not accepted yet, its provider cannot be asked: {error.sentence}"
        return Condition(ConditionType.ACCEPTED, False, ConditionReason.PROVIDER_FAILED, text)
    return Condition(ConditionType.ACCEPTED, False, ConditionReason.REFUSED_BY_PROVIDER, error.sentence)


def as_told(view: LoadBalancerView) -> LoadBalancerView:
    """Return ``view`` with what its provider has answered the hub, as the objects say it: here nobody is asked."""
    status = view.load_balancer.status
    told = _told(status.conditions, view.load_balancer.metadata.generation)
    groups = [
        one
        if one.accepted == (one.group.spec.parameters or {})
        else msgspec.structs.replace(one, verdict=_told(one.group.status.conditions, one.group.metadata.generation))
        for one in view.groups
    ]
    return msgspec.structs.replace(view, verdict=told, groups=tuple(groups))


def _told(conditions: Sequence[WireCondition] | None, generation: int) -> Condition | None:
    for one in conditions or ():
        current = one.type == ConditionType.ACCEPTED and one.observed_generation == generation
        if current and one.status == "False" and one.reason in _VERDICTS:
            return Condition(ConditionType.ACCEPTED, False, ConditionReason(one.reason), one.message)
    return None
