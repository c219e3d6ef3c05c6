"""A wait until Envoy has taken what a provider put in, for tests, which have no hub that follows changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.providers.envoy.provider import EnvoyProvider

_LOOK_S = 0.01


async def wait_programmed(provider: EnvoyProvider, key: LoadBalancerKey, *, timeout_s: float = 120.0) -> Observed:
    """Return once every connected proxy has acknowledged this load balancer; ``Retry`` when one refuses it."""

    def judged() -> Observed | None:
        # Not observe(): who has observed is notified of what differs from then on.
        status = provider._observe(key)
        return status if status is not None and (status.programmed or status.rejected) else None

    await wait_proxies(judged, timeout_s=timeout_s)
    status = judged()
    assert status is not None
    if status.rejected:
        raise Retry(f"{key}: refused by the proxy: {status.rejected}")
    return status


async def wait_proxies(check: Callable[[], object], *, timeout_s: float = 120.0) -> None:
    """Return once ``check()``, about connected proxies, is true; ``AssertionError`` when that takes longer."""
    end_s = asyncio.get_running_loop().time() + timeout_s
    while not check():
        assert asyncio.get_running_loop().time() < end_s, f"not so within {timeout_s:g} s"
        await asyncio.sleep(_LOOK_S)
