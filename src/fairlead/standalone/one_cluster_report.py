"""The lines that ``fairlead run`` prints when it serves: what it does, where, and what is missing.

In: facts, as they were read. Out: lines for a person. Pure: reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from fairlead.translate.address_ranges import AddressRanges

#: The name of the classes of Ingresses and Gateways that this cluster has by default.
CLASS_NAME = "fairlead"


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a cluster and its machine; ``missing`` are sentences, most urgent first."""

    server: str
    pool: AddressRanges
    data_dir: Path
    ingresses: bool
    gateways: bool
    stop_proxy: bool = False
    missing: Sequence[str] = ()


def report(facts: RunFacts) -> list[str]:
    """Return the lines."""
    kinds = ["Services of type LoadBalancer"]
    if facts.ingresses:
        kinds.append(f"Ingresses of class {CLASS_NAME}")
    if facts.gateways:
        kinds.append(f"Gateways of class {CLASS_NAME}")
    lines = [f"Serving on this machine, for {facts.server}: {_listed(kinds)}.", _addresses(facts.pool)]
    end = (
        "Envoy ends with this command (--stop-proxy); to end it should this command be killed"
        if facts.stop_proxy
        else "Envoy goes on serving when this command ends; to end it too"
    )
    lines.append(f"State is kept in {facts.data_dir}. {end}:  fairlead standalone --stop --data-dir {facts.data_dir}")
    missing = list(facts.missing)
    if not facts.gateways:
        missing.append(
            "Gateways are not served: this cluster does not have the kinds of Gateway API. They are served as soon as "
            "it has them"
        )
    lines += [f"Missing: {sentence}" for sentence in missing]
    return lines


def _addresses(pool: AddressRanges) -> str:
    text = f"Each gets an address from {pool} ({pool.size} addresses)"
    if pool.loopback:
        return f"{text}, which only this machine reaches; for others give it addresses of its own with --address-pool."
    return f"{text}; your network has to route them to this machine."


def _listed(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} and {kinds[-1]}"
