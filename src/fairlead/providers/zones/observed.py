"""The observation of one name: which of its records the authoritative server answers.

In: records as (type, value). Out: ``Observed``. Pure.
"""

from __future__ import annotations

from fairlead.model.condition import ConditionReason
from fairlead.model.keys import RECORD_PORT, TargetKey, backend_key
from fairlead.model.observed import Health, Observed, ObservedTarget
from fairlead.providers.zones.moves import Value
from fairlead.providers.zones.settings import NameSettings


def observed_of(
    held: frozenset[Value], kept: set[Value], answered: set[Value], settings: NameSettings, shared: str
) -> Observed:
    """Return the health of one name's records.

    ``held``: those on record; ``kept``: those at the server that takes updates; ``answered``: those that the servers
    answer; ``shared``: why marks of the name are not all on record, else empty.
    """
    missing = sorted(held - answered)
    targets = sorted(
        (
            ObservedTarget(backend_key(type_), TargetKey(value, RECORD_PORT), healthy=True)
            for type_, value in held & kept
        ),
        key=lambda target: (target.listener, target.key),
    )
    text = f"{settings.server.name} answers {len(held) - len(missing)} of {len(held)} records"
    serving = not missing and bool(held)
    return Observed(
        programmed=not missing,
        proxies=1,
        acknowledged=int(not missing),
        message="" if not missing else text,
        targets=tuple(targets),
        foreign=tuple(f"{type_} {value}" for type_, value in sorted(answered - held)),
        health=Health(
            serving if held else None,
            ConditionReason.SERVING if serving else ConditionReason.NO_TARGETS,
            "; ".join(filter(None, (text if held else "it has no records", shared))),
            total=len(held),
            healthy=len(held) - len(missing),
        ),
    )
