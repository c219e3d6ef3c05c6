"""The state of load balancers and backends at drivers, as far as this process knows it.

In: what drivers answered, and what the ledger gives back. Out: what the next call must contain. The ledger is the
durable memory; this one only bridges the time until the ledger has stored an ``Outcome``.
Never: decides anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from fairlead.model.change import BackendFacts, TargetChange
from fairlead.model.contract import RestoredBackend
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import BackendKey, ListenerKey, LoadBalancerKey
from fairlead.providers.webhook.settings import DriverSettings

_NOTHING: Mapping[str, str] = {}
#: The namespace of the recordIDs that we generate for backends to which no ledger has given one.
_NAMESPACE = uuid.UUID("6c7b1d3a-1f43-5a5e-9a53-6f2a55f6a3f1")


class DriverLoadBalancer(msgspec.Struct, frozen=True):
    """One load balancer that a driver has created, or may have created.

    ``info`` is its lbInfo. ``created``: the driver answered Succ. ``complete``: this process knows all of its
    backends, since it has created it, or was given what is on record.
    """

    spec: FrontendSpec
    settings: DriverSettings
    info: Mapping[str, str]
    created: bool = False
    complete: bool = False


class BackendFields(msgspec.Struct, frozen=True):
    """The fields of one backend in a request; ``address`` is empty until the driver has generated it."""

    record_id: str
    address: str
    injected_info: Mapping[str, str]
    parameters: Mapping[str, str]
    origin: Mapping[str, object]


class RegisteredBackend(NamedTuple):
    """One backend that this process has registered or drained, or an earlier one had; ``address`` is the driver's."""

    address: str
    listener: ListenerKey
    target: Target


class _CachedBackend(msgspec.Struct):
    address: str = ""
    injected_info: Mapping[str, str] = _NOTHING
    target: Target | None = None


class BackendCache:
    """The answers of drivers about backends, until they are in the ledger."""

    def __init__(self) -> None:
        self._backends: dict[LoadBalancerKey, dict[BackendKey, _CachedBackend]] = {}

    def fields(self, change: TargetChange) -> BackendFields:
        """Merge what the ledger and this process know of a backend; the ledger's facts come first."""
        key = change.backend_key
        facts = change.facts or BackendFacts()
        cached = self._backends.get(key.load_balancer, {}).get(key) or _CachedBackend()
        target_address = "" if facts.origin else str(change.key)
        parameters = dict(change.target.parameters) | dict(facts.parameters)
        if change.target.weight != 1:
            parameters.setdefault("weight", str(change.target.weight))
        return BackendFields(
            record_id=facts.record_id or str(uuid.uuid5(_NAMESPACE, repr(tuple(key)))),
            address=facts.generated_address or cached.address or target_address,
            injected_info=facts.injected_info or cached.injected_info,
            parameters=parameters,
            origin=facts.origin,
        )

    def store_address(self, change: TargetChange, address: str) -> None:
        """Store the address that the driver generated."""
        self._entry(change.backend_key).address = address

    def store_target(
        self, change: TargetChange, *, address: str, draining: bool, injected_info: Mapping[str, str] | None = None
    ) -> None:
        """Store that the backend is registered, or drained."""
        entry = self._entry(change.backend_key)
        entry.address = address
        entry.injected_info = injected_info or entry.injected_info
        entry.target = msgspec.structs.replace(change.target, draining=draining)

    def forget(self, change: TargetChange) -> None:
        """Drop a backend that is deregistered."""
        self._backends.get(change.load_balancer, {}).pop(change.backend_key, None)

    def forget_all(self, load_balancer: LoadBalancerKey) -> None:
        """Drop the backends of a load balancer that is deleted."""
        self._backends.pop(load_balancer, None)

    def restore(self, load_balancer: LoadBalancerKey, backends: Iterable[RestoredBackend]) -> None:
        """Take over what is on record as registered or drained."""
        for listener, target, facts in backends:
            entry = self._entry(BackendKey(load_balancer, listener, target.key))
            entry.address = facts.generated_address or ("" if facts.origin else str(target.key))
            entry.injected_info = facts.injected_info or entry.injected_info
            entry.target = target

    def backends(self, load_balancer: LoadBalancerKey) -> list[RegisteredBackend]:
        """Return what is registered or drained on one load balancer.

        Two of a listener with one address are one backend there: the last one counts.
        """
        entries = {
            (entry.address, key.listener): entry.target
            for key, entry in self._backends.get(load_balancer, {}).items()
            if entry.target is not None
        }
        return [RegisteredBackend(address, listener, target) for (address, listener), target in entries.items()]

    def _entry(self, key: BackendKey) -> _CachedBackend:
        return self._backends.setdefault(key.load_balancer, {}).setdefault(key, _CachedBackend())
