"""The differences of one load balancer, as it was read back, from what is on record. Pure.

In: the tracker's two sides, and what was observed. Out: ``Drift``, with the sentences that describe it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from fairlead.model.desired import Targets
from fairlead.model.keys import ListenerKey, TargetKey
from fairlead.model.observed import Observed
from fairlead.sync.tracker import LoadBalancerState, Registered


class Drift(msgspec.Struct, frozen=True):
    """How one load balancer differs from the ledger; each ordered.

    ``gone``: it is not there at all; ``kept_by_others`` when it is not ours to make again.
    """

    missing: tuple[tuple[ListenerKey, TargetKey], ...] = ()
    changed: tuple[tuple[ListenerKey, TargetKey], ...] = ()
    foreign: tuple[str, ...] = ()
    gone: bool = False
    kept_by_others: bool = False
    #: Entries of ours by their names, on no record, and not wanted.
    unrecorded: tuple[tuple[ListenerKey, TargetKey], ...] = ()

    @property
    def ours(self) -> int:
        """Return how many entries of ours are not as recorded."""
        return len(self.missing) + len(self.changed) + self.gone

    @property
    def sentence(self) -> str:
        """Say it in one sentence; empty when nothing of ours differs."""
        if self.gone:
            return "the load balancer is gone: it was deleted outside Fairlead"
        parts = [f"{len(self.missing)} of our backends were removed"] if self.missing else []
        parts += [f"{len(self.changed)} were changed"] if self.changed else []
        return f"{' and '.join(parts)} outside Fairlead" if parts else ""

    @property
    def outlook(self) -> str:
        """Say what becomes of it, and who can do something about it; empty when nothing of ours differs."""
        if not self.ours:
            return ""
        if not self.gone:
            return "that stands until fairlead repair, unless the class's ensurePolicy is Always"
        if self.kept_by_others:
            return "it was there before us, so its owner must make it again; or delete this object"
        return "it is made again once that is certain; to be rid of it, delete this object"


def drift_of(state: LoadBalancerState, observed: Observed | None) -> Drift:
    """Compare what is on record with what is there; what is under way is not compared."""
    if observed is None:
        spec = state.made
        return Drift(gone=spec is not None, kept_by_others=spec is not None and spec.existing)
    if observed.targets is None:
        return Drift(foreign=observed.foreign)
    there = {(target.listener, target.key): target for target in observed.targets}
    missing: list[tuple[ListenerKey, TargetKey]] = []
    changed: list[tuple[ListenerKey, TargetKey]] = []
    for listener, targets in state.recorded.items():
        for key, registered in targets.items():
            if registered.unknown or registered.deregistering or registered.draining_since is not None:
                continue
            entry = there.get((listener, key))
            if entry is None:
                missing.append((listener, key))
            elif entry.weight != registered.target.weight or entry.draining != registered.target.draining:
                changed.append((listener, key))
    known = {place for targets in (state.recorded, _wanted(state)) for place in _places(targets)}
    unrecorded = tuple(sorted(there.keys() - known))
    return Drift(tuple(sorted(missing)), tuple(sorted(changed)), observed.foreign, unrecorded=unrecorded)


def _wanted(state: LoadBalancerState) -> Mapping[ListenerKey, Targets]:
    return state.desired.targets if state.desired is not None else {}


def _places(targets: Mapping[ListenerKey, Iterable[TargetKey]]) -> Iterator[tuple[ListenerKey, TargetKey]]:
    return ((listener, key) for listener, keys in targets.items() for key in keys)


def without_changed(
    drift: Drift, before: Mapping[ListenerKey, Mapping[TargetKey, Registered]], state: LoadBalancerState
) -> Drift:
    """Leave out what we changed ourselves while it was read: what was read of that is older."""

    def same(place: tuple[ListenerKey, TargetKey]) -> bool:
        listener, key = place
        return before.get(listener, {}).get(key) is state.recorded.get(listener, {}).get(key)

    return msgspec.structs.replace(
        drift,
        missing=tuple(filter(same, drift.missing)),
        changed=tuple(filter(same, drift.changed)),
        unrecorded=tuple(filter(same, drift.unrecorded)),
    )
