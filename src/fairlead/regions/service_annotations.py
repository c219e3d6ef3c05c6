"""The labels and annotations that a Service carries because of its regions.

    aggregated.<key>              what layer 2 asks to have shown; a label only where that is a legal label
    fairlead.dev/access-points    which region has which address: also the record of which status entries are ours

In: the regions that are shown. Out: one merge patch, or none. Never: a key that is not ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from fairlead.api.json_text import read_json
from fairlead.api.meta import JSONObject
from fairlead.api.names import AGGREGATED_PREFIX, ANNOTATION_ACCESS_POINTS
from fairlead.api.poolservice import PoolService
from fairlead.regions.source import SourceService

#: Pool name to its addresses, sorted.
Points = Mapping[str, tuple[str, ...]]

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ENCODER = msgspec.json.Encoder(order="deterministic")


class Step(msgspec.Struct, frozen=True):
    """One merge patch of the Service or of its status."""

    part: Literal["metadata", "status"]
    patch: JSONObject


def recorded_points(service: SourceService) -> dict[str, tuple[str, ...]]:
    """Return by pool the addresses that were written, or about to be written, to the Service."""
    text = service.annotation(ANNOTATION_ACCESS_POINTS)
    return (read_json(text, dict[str, tuple[str, ...]]) or {}) if text else {}


def aggregated(shown: Iterable[PoolService]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the aggregated labels and annotations of regions: values sorted, unique, joined by commas.

    A label whose joined value is no legal label value becomes an annotation. Keys that are none are left out.
    """
    for_labels: dict[str, set[str]] = {}
    for_annotations: dict[str, set[str]] = {}
    for pool_service in shown:
        for source, target in (
            (pool_service.status.aggregate_to_labels, for_labels),
            (pool_service.status.aggregate_to_annotations, for_annotations),
        ):
            for key, value in source.items():
                if _is_key(AGGREGATED_PREFIX + key):
                    target.setdefault(AGGREGATED_PREFIX + key, set()).add(value)
    labels: dict[str, str] = {}
    for key, values in for_labels.items():
        joined = ",".join(sorted(values))
        if _LABEL_VALUE.fullmatch(joined):
            labels[key] = joined
        else:
            for_annotations.setdefault(key, set()).update(values)
    return labels, {key: ",".join(sorted(values)) for key, values in for_annotations.items()}


def _is_key(key: str) -> bool:
    prefix, _, name = key.rpartition("/")
    return bool(_KEY_NAME.fullmatch(name)) and len(prefix) <= 253


def annotations_step(
    service: SourceService,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    points: Points,
    *,
    before: Points | None = None,
) -> Step | None:
    """Plan one write of labels and annotations; ``before`` is the record that an earlier step leaves behind."""
    meta = service.metadata
    desired = dict(annotations)
    if points:
        desired[ANNOTATION_ACCESS_POINTS] = _ENCODER.encode(points).decode()
    if before is not None:
        if before == points:
            return None
        return Step(
            "metadata", {"metadata": {"annotations": {ANNOTATION_ACCESS_POINTS: desired.get(ANNOTATION_ACCESS_POINTS)}}}
        )
    metadata: JSONObject = {}
    if changes := _changes(labels, meta.labels or {}):
        metadata["labels"] = changes
    if changes := _changes(desired, meta.annotations or {}):
        metadata["annotations"] = changes
    return Step("metadata", {"metadata": metadata}) if metadata else None


def _changes(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str | None]:
    """Return what to set, and with None what to take away; keys that are not ours are not in it."""
    changes: dict[str, str | None] = {key: value for key, value in wanted.items() if present.get(key) != value}
    for key in present:
        if (key.startswith(AGGREGATED_PREFIX) or key == ANNOTATION_ACCESS_POINTS) and key not in wanted:
            changes[key] = None
    return changes
