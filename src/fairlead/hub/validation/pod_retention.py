"""The pods of a BackendGroup that stay although not ready, as the driver of a class decides (policy Webhook).

In: a group with its pods. Out: the group with the pods that are kept. A driver that does not answer is replaced by the
group's ``failurePolicy``. Never: a call about pods that are ready, or being deleted.
"""

from __future__ import annotations

from functools import partial

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.validation.validation_cache import Subject, ValidationCache
from fairlead.model.contract import PodRetention
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.view import GroupView

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
        return msgspec.structs.replace(view, kept=kept, judge=problem), False


def _subject(group: BackendGroup) -> Subject:
    return ("Pods", None, group.key)
