"""The load balancer that has each backend of each HAProxy. Two in one would get each other's traffic.

In: load balancers with their settings. Out: ``Retry`` (Conflicted) for a backend that another load balancer has.
"""

from __future__ import annotations

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.haproxy.settings import HAProxySettings


class BackendOwners:
    """The load balancer of each (socket, backend)."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], LoadBalancerKey] = {}

    def claim(self, key: LoadBalancerKey, settings: HAProxySettings) -> None:
        """Give ``key`` the backends of ``settings``, and no others."""
        self.release(key)
        self._owners.update(dict.fromkeys(settings.places, key))

    def release(self, key: LoadBalancerKey) -> None:
        """Free the backends of ``key``."""
        for place in [place for place, owner in self._owners.items() if owner == key]:
            del self._owners[place]

    def require_free(self, key: LoadBalancerKey, settings: HAProxySettings) -> None:
        """Raise ``Retry`` when another load balancer has a backend of ``settings``."""
        for socket, backend in sorted(settings.places):
            owner = self._owners.get((socket, backend), key)
            if owner != key:
                # Whose another member's are is not for this one to know.
                who = owner if owner.namespace == key.namespace else "another load balancer"
                raise Retry(
                    f"{key}: backend {backend} of HAProxy at {socket} serves {who} already; give each its own "
                    "(parameters.backend of the class may hold {member}, {namespace} and {name})",
                    reason="Conflicted",
                )
