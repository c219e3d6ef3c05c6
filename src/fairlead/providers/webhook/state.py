"""What does this process know of load balancers and backends at drivers?

In: what drivers answered, and what the ledger gives back. Out: what the next call must contain. The ledger is the
durable memory; this one only bridges the time until the ledger has stored an ``Outcome``.
Never: decides anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from fairlead.model.change import BackendFacts, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import BackendKey, ListenerKey, LoadBalancerKey
from fairlead.providers.webhook.settings import DriverSettings

_NOTHING: Mapping[str, str] = {}
#: The namespace of the recordIDs that we generate for backends to which no ledger has given one.
_NAMESPACE = uuid.UUID("6c7b1d3a-1f43-5a5e-9a53-6f2a55f6a3f1")


class DriverLoadBalancer(msgspec.Struct, frozen=True):
    """One load balancer that a driver has created, or may have created.

    ``info`` is its lbInfo. ``created``: the driver answered Succ. ``complete``: this process created it, and so
    has seen all of its backends.
    """

    spec: FrontendSpec
    settings: DriverSettings
    info: Mapping[str, str]
    created: bool = False
    complete: bool = False


class BackendFields(msgspec.Struct, frozen=True):
    """What a request says of one backend; ``address`` is empty until the driver has generated it."""

    record_id: str
    address: str
    injected_info: Mapping[str, str]
    parameters: Mapping[str, str]
    origin: Mapping[str, object]


class _CachedBackend(msgspec.Struct):
    address: str = ""
    injected_info: Mapping[str, str] = _NOTHING
    target: Target | None = None


class BackendCache:
    """What drivers answered about backends, until it is in the ledger."""

    def __init__(self) -> None:
        self._backends: dict[BackendKey, _CachedBackend] = {}

    def fields(self, change: TargetChange) -> BackendFields:
        """Merge what the ledger and this process know of a backend; the ledger's facts come first."""
        key = change.backend_key
        facts = change.facts or BackendFacts()
        cached = self._backends.get(key, _CachedBackend())
        given = "" if facts.origin else str(change.key)
        parameters = dict(change.target.parameters) | dict(facts.parameters)
        if change.target.weight != 1:
            parameters.setdefault("weight", str(change.target.weight))
        return BackendFields(
            record_id=facts.record_id or str(uuid.uuid5(_NAMESPACE, repr(tuple(key)))),
            address=facts.generated_address or cached.address or given,
            injected_info=facts.injected_info or cached.injected_info,
            parameters=parameters,
            origin=facts.origin,
        )

    def store_address(self, change: TargetChange, address: str) -> None:
        """Store the address that the driver generated."""
        self._entry(change).address = address

    def store_target(
        self, change: TargetChange, *, address: str, draining: bool, injected_info: Mapping[str, str] | None = None
    ) -> None:
        """Store that the backend is registered, or drained."""
        entry = self._entry(change)
        entry.address = address
        entry.injected_info = injected_info or entry.injected_info
        entry.target = msgspec.structs.replace(change.target, draining=draining)

    def forget(self, change: TargetChange) -> None:
        """Drop a backend that is deregistered."""
        self._backends.pop(change.backend_key, None)

    def forget_all(self, load_balancer: LoadBalancerKey) -> None:
        """Drop the backends of a load balancer that is deleted."""
        for key in [key for key in self._backends if key.load_balancer == load_balancer]:
            del self._backends[key]

    def targets(self, load_balancer: LoadBalancerKey) -> dict[str, tuple[ListenerKey, Target]]:
        """Return what this process has registered or drained on one load balancer, by the driver's address."""
        return {
            entry.address: (key.listener, entry.target)
            for key, entry in self._backends.items()
            if key.load_balancer == load_balancer and entry.target is not None
        }

    def _entry(self, change: TargetChange) -> _CachedBackend:
        return self._backends.setdefault(change.backend_key, _CachedBackend())
