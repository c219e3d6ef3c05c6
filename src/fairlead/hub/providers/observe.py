"""The last known observation of a load balancer at its provider; no caller waits for a remote provider.

In: a runner and what is on record. Out: ``Observed``; of a provider whose state we do not serve, what was read back
last: that it was asked for something, and agreed, is no proof that it is there. Never: a call of such a provider.
"""

from __future__ import annotations

import msgspec

from fairlead.api.intent import Provisioned
from fairlead.errors import FairleadError
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Health, Observed, with_health


async def observed_of(runner: ProviderRunner, key: LoadBalancerKey, frontend: Provisioned | None) -> Observed | None:
    """Return what the provider of ``runner`` holds of ``key``, None when that is not known yet.

    An error is returned as its message. What was never read back is read back soon.
    """
    if not isinstance(runner, DurableRunner):
        try:
            observed = await runner.provider.observe(key)
        except FairleadError as error:
            return _unread(error.sentence)
        return with_health(observed) if observed is not None else None
    readback = runner.readback
    if key not in readback.seen:
        if _is_ensured(frontend):
            readback.notice(key)
        return None
    seen = readback.seen[key]
    return _unread(seen) if isinstance(seen, str) else as_read_back(seen, frontend)


def _unread(why: str) -> Observed:
    return Observed(message=why, health=Health(reason=ConditionReason.PROVIDER_FAILED, message=why))


def as_read_back(seen: Observed | None, frontend: Provisioned | None) -> Observed | None:
    """Return ``seen`` of a load balancer without proxies of ours; None while it is not on record as ensured.

    ``seen`` None: it is not there any more.
    """
    if frontend is None or not _is_ensured(frontend):
        return None
    seen = seen or Observed(message="its provider does not have it (any more)")
    # A provider that was restored may not know which address an earlier process was answered.
    addresses = seen.addresses or tuple(frontend.addresses or ())
    proxies = seen.proxies or 1
    acknowledged = proxies if seen.programmed else seen.acknowledged
    return msgspec.structs.replace(seen, addresses=addresses, proxies=proxies, acknowledged=acknowledged)


def _is_ensured(frontend: Provisioned | None) -> bool:
    return frontend is not None and frontend.state == "Ensured"
