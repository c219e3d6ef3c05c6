"""How does the hub hold its Envoys? So that they go on serving when it ends.

``EnvoyProvider.stop`` ends the proxies, which is for demos and explicit wishes; what a hub calls when it ends is
``close``. Everything else is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.model.change import Outcome, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import LoadBalancerSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.envoy.provider import EnvoyProvider


class KeptEnvoy:
    """An ``EnvoyProvider`` that lets go of its proxies instead of ending them."""

    def __init__(self, provider: EnvoyProvider) -> None:
        self._provider = provider

    @property
    def capabilities(self) -> Capabilities:
        """Say what Envoy can do."""
        return self._provider.capabilities

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Pass on."""
        self._provider.on_change(notify)

    async def ensure(self, spec: LoadBalancerSpec) -> Ensured:
        """Pass on."""
        return await self._provider.ensure(spec)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Pass on."""
        return await self._provider.apply(changes)

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Pass on."""
        return await self._provider.observe(key)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Pass on."""
        await self._provider.delete(key)

    async def start(self) -> None:
        """Pass on."""
        await self._provider.start()

    def publish(self) -> None:
        """Pass on."""
        self._provider.publish()

    async def stop(self) -> None:
        """Stop talking to the proxies, which go on serving."""
        await self._provider.close()
