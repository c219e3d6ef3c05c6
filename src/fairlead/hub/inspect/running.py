"""The plan and the held changes of one load balancer in a running hub, from its own memory.

In: the trackers of its providers, and its caches. Out: the same ``Previewed`` as a preview has, without what only a
question to the provider would say. Never: a question to anything, or a change.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.hub.inspect.preview import Previewed, paused_by, planned, served_plan
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.model.keys import LoadBalancerKey
from fairlead.sync.plan import Plan


def running_plans(
    key: LoadBalancerKey, *, inventory: Inventory, providers: ProviderRegistry, now_s: float
) -> list[Previewed]:
    """Return what each provider that has ``key`` is about to do; of one that moves, that is two of them.

    A replica that does not lead knows nothing of what providers with a ledger of their own have: what it returns is
    what the leader says that it holds.
    """
    obj = inventory.intent(key)
    base = Previewed(key=key, provider="", gone=obj is None, paused=paused_by(inventory, key, obj), plan=Plan(key))
    plans = [
        planned(msgspec.structs.replace(base, provider=name), side, now_s=now_s)
        for name, runner in providers.items()
        if runner.loaded and (side := runner.tracker.state(key)) is not None
    ]
    if not plans and obj is not None:
        load_balancer_class = inventory.load_balancer_class(obj.class_name)
        provider = load_balancer_class.spec.provider if load_balancer_class is not None else ""
        return [served_plan(msgspec.structs.replace(base, provider=provider), obj)]
    return plans


def pending_keys(providers: ProviderRegistry) -> Iterator[LoadBalancerKey]:
    """Yield the load balancers that have changed and are not done yet."""
    for runner in providers.values():
        if runner.loaded:
            yield from runner.worker.pending_keys()
