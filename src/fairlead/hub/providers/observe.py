"""What a provider is known to hold of a load balancer; no caller waits for a remote provider.

In: a runner and what is on record. Out: ``Observed``; of a provider whose state we do not serve, what was read back
last. Never: a call of such a provider.
"""

from __future__ import annotations

import msgspec

from fairlead.api.provisioned import Provisioned
from fairlead.errors import FairleadError
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed


async def observed_of(runner: ProviderRunner, key: LoadBalancerKey, frontend: Provisioned | None) -> Observed | None:
    """Return what the provider of ``runner`` holds of ``key``; an error is returned as its message."""
    if not isinstance(runner, DurableRunner):
        try:
            return await runner.provider.observe(key)
        except FairleadError as error:
            return Observed(message=error.sentence)
    seen = runner.readback.seen.get(key)
    if isinstance(seen, str):
        return Observed(message=seen)
    if seen is not None and not seen.addresses and frontend is not None and frontend.addresses:
        # A provider that was restored may not know which address an earlier process was answered.
        seen = msgspec.structs.replace(seen, addresses=tuple(frontend.addresses))
    return as_recorded(seen, frontend)


def as_recorded(observed: Observed | None, frontend: Provisioned | None) -> Observed | None:
    """Return ``observed`` of a load balancer without proxies of ours: what is on record as ensured is programmed.

    Entries of ours that are missing there are drift, which has a condition of its own.
    """
    if frontend is None or frontend.state != "Ensured":
        return None
    seen = observed or Observed(addresses=tuple(frontend.addresses or ()))
    return msgspec.structs.replace(seen, programmed=True, proxies=1, acknowledged=1)
