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
    """The differences of one load balancer from the ledger; each field is sorted.

    ``gone``: it does not exist; ``kept_by_others``: it existed before Fairlead, whose owner has to create it again.
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
        """Return the number of own entries that are not as recorded."""
        return len(self.missing) + len(self.changed) + self.gone

    @property
    def sentence(self) -> str:
        """Return the differences in one sentence; empty when no own entry differs."""
        if self.gone:
            return "the load balancer is gone: it was deleted outside Fairlead"
        parts = [f"{len(self.missing)} of our backends were removed"] if self.missing else []
        parts += [f"{len(self.changed)} were changed"] if self.changed else []
        return f"{' and '.join(parts)} outside Fairlead" if parts else ""

    @property
    def outlook(self) -> str:
        """Return what Fairlead will do, or what an operator can do; empty when no own entry differs."""
        if not self.ours:
            return ""
        if not self.gone:
            return "kept until fairlead repair, unless the class's ensurePolicy is Always"
        if self.kept_by_others:
            return "Fairlead did not create the load balancer. Have its owner recreate it, or delete this object"
        return "the hub recreates the load balancer once its absence is certain; delete this object to remove it"


def drift_of(state: LoadBalancerState, observed: Observed | None) -> Drift:
    """Compare the recorded with the observed state, except for changes in progress."""
    if observed is None:
        spec = state.made
        return Drift(gone=spec is not None, kept_by_others=spec is not None and spec.existing)
    if observed.targets is None:
        return Drift(foreign=observed.foreign)
    observed_targets = {(target.listener, target.key): target for target in observed.targets}
    missing: list[tuple[ListenerKey, TargetKey]] = []
    changed: list[tuple[ListenerKey, TargetKey]] = []
    for listener, targets in state.recorded.items():
        for key, registered in targets.items():
            if registered.unknown or registered.deregistering or registered.draining_since is not None:
                continue
            entry = observed_targets.get((listener, key))
            if entry is None:
                missing.append((listener, key))
            elif entry.weight != registered.target.weight or entry.draining != registered.target.draining:
                changed.append((listener, key))
    known = {place for targets in (state.recorded, _wanted(state)) for place in _places(targets)}
    unrecorded = tuple(sorted(observed_targets.keys() - known))
    return Drift(tuple(sorted(missing)), tuple(sorted(changed)), observed.foreign, unrecorded=unrecorded)


def _wanted(state: LoadBalancerState) -> Mapping[ListenerKey, Targets]:
    return state.desired.targets if state.desired is not None else {}


def _places(targets: Mapping[ListenerKey, Iterable[TargetKey]]) -> Iterator[tuple[ListenerKey, TargetKey]]:
    return ((listener, key) for listener, keys in targets.items() for key in keys)


def without_changed(
    drift: Drift, before: Mapping[ListenerKey, Mapping[TargetKey, Registered]], state: LoadBalancerState
) -> Drift:
    """Return ``drift`` without the entries that the worker changed during the read, since the read has older data."""

    def unchanged(place: tuple[ListenerKey, TargetKey]) -> bool:
        listener, key = place
        return before.get(listener, {}).get(key) is state.recorded.get(listener, {}).get(key)

    return msgspec.structs.replace(
        drift,
        missing=tuple(filter(unchanged, drift.missing)),
        changed=tuple(filter(unchanged, drift.changed)),
        unrecorded=tuple(filter(unchanged, drift.unrecorded)),
    )
