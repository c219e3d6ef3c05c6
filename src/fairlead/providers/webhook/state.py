"""What does this process know of load balancers and backends at drivers?

In: what drivers answered, and what the ledger gives back. Out: what the next call must say. The ledger is the durable
memory; this one serves only until the ledger has stored what an ``Outcome`` told it.
Never: decides anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from fairlead.model.change import BackendFacts, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.providers.webhook.settings import DriverSettings

Place = tuple[LoadBalancerKey, ListenerKey, TargetKey]
_NOTHING: Mapping[str, str] = {}
#: Names of our recordIDs for backends that no ledger has given one to.
_NAMESPACE = uuid.UUID("6c7b1d3a-1f43-5a5e-9a53-6f2a55f6a3f1")


class KnownLoadBalancer(msgspec.Struct, frozen=True):
    """One load balancer that a driver has made, or may have made.

    ``created``: the driver said so. ``whole``: to this process, which so has seen all of its backends.
    """

    spec: FrontendSpec
    settings: DriverSettings
    info: Mapping[str, str]
    created: bool = False
    whole: bool = False


class Backend(msgspec.Struct, frozen=True):
    """One backend as the next call speaks of it; ``address`` is empty until the driver has generated it."""

    record_id: str
    address: str
    injected_info: Mapping[str, str]
    parameters: Mapping[str, str]
    origin: Mapping[str, object]


class _Remembered(msgspec.Struct):
    address: str = ""
    injected_info: Mapping[str, str] = _NOTHING
    target: Target | None = None


class Memory:
    """What drivers said of backends, until it is in the ledger."""

    def __init__(self) -> None:
        self._remembered: dict[Place, _Remembered] = {}

    def backend(self, change: TargetChange) -> Backend:
        """Put together what the ledger and this process know; the ledger's word comes first."""
        place = place_of(change)
        facts = change.facts or BackendFacts()
        remembered = self._remembered.get(place, _Remembered())
        given = "" if facts.origin else str(change.key)
        parameters = dict(change.target.parameters) | dict(facts.parameters)
        if change.target.weight != 1:
            parameters.setdefault("weight", str(change.target.weight))
        return Backend(
            record_id=facts.record_id or str(uuid.uuid5(_NAMESPACE, repr(place))),
            address=facts.generated_address or remembered.address or given,
            injected_info=facts.injected_info or remembered.injected_info,
            parameters=parameters,
            origin=facts.origin,
        )

    def remember(self, change: TargetChange, *, address: str, injected_info: Mapping[str, str] | None = None) -> None:
        """Keep what a driver said."""
        remembered = self._remembered.setdefault(place_of(change), _Remembered())
        remembered.address = address
        if injected_info:
            remembered.injected_info = injected_info

    def done(self, change: TargetChange, *, address: str, draining: bool) -> None:
        """Keep what was done: registered, or drained, and then it comes back or is forgotten."""
        self.remember(change, address=address)
        self._remembered[place_of(change)].target = msgspec.structs.replace(change.target, draining=draining)

    def forget(self, change: TargetChange) -> None:
        """Drop a backend that is gone."""
        self._remembered.pop(place_of(change), None)

    def forget_all(self, key: LoadBalancerKey) -> None:
        """Drop the backends of a load balancer that is gone."""
        for place in [place for place in self._remembered if place[0] == key]:
            del self._remembered[place]

    def targets(self, key: LoadBalancerKey) -> dict[str, tuple[ListenerKey, Target]]:
        """Return what this process has done on one load balancer, by the driver's address."""
        return {
            remembered.address: (listener, remembered.target)
            for (load_balancer, listener, _), remembered in self._remembered.items()
            if load_balancer == key and remembered.target is not None
        }


def place_of(change: TargetChange) -> Place:
    """Return the identity of the backend that a row is about."""
    return (change.load_balancer, change.listener, change.key)
