"""Compare each Hostname with what the authoritative server of its zone answers.

In: Hostnames and DNSZones, and the servers that zones name. Out: the rows that ``-o json`` prints, and the same as
cells. Never: an answer of a resolver, which may be old, and no key: questions are not signed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from fairlead.api.hostname import DNSZone, Hostname
from fairlead.errors import FairleadError
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.zones.answers import OUTSIDE_ZONE, ask_records
from fairlead.providers.zones.connection import DNSConnection
from fairlead.providers.zones.plan import RRKey, canonical_value
from fairlead.providers.zones.settings import ServerSettings, server_address
from fairlead.translate.hostname import is_unasked, longest_suffix, records

HEADER = ("HOST", "MEMBER", "OWNER", "POINTS TO", "RESOLVES", "CERTIFICATE ENDS", "STATE")
#: The state of a name that is only the host of a route, at a hub without any DNSZone.
NOT_ASKED = "NotAsked"
_NO_ZONE = "no DNSZone holds it"
_PATIENCE_S = 5.0

#: What the server answers for each name as (type, value); text says why it was not asked or has not answered.
Answers = Mapping[LoadBalancerKey, frozenset[tuple[str, str]] | str]


class NameRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One name. ``resolves`` is Yes, No, or Unknown when the server of its zone could not be asked."""

    host: str
    namespace: str
    name: str
    member: str
    owner: str
    zone: str
    points_to: list[str]
    answered: list[str]
    resolves: str
    certificate_ends: str
    state: str
    message: str

    @property
    def good(self) -> bool:
        """Return whether it is published, and resolves to what it should."""
        return self.state == NOT_ASKED or (self.state == "Published" and self.resolves == "Yes")

    @property
    def known_bad(self) -> bool:
        """Return whether it is not good, and not only because the server of its zone could not be asked."""
        return self.state != "Published" or self.resolves == "No"


async def ask_zones(hostnames: Sequence[Hostname], zones: Sequence[DNSZone]) -> Answers:
    """Return what the zones' own servers answer, all zones at once."""
    by_zone: dict[str, list[Hostname]] = {}
    by_name = {zone.metadata.name: zone for zone in zones}
    for obj in hostnames:
        zone = by_name.get(obj.status.zone) or longest_suffix(obj.spec.host, zones)
        by_zone.setdefault(zone.metadata.name if zone is not None else "", []).append(obj)
    parts = await asyncio.gather(*(_ask(by_name.get(name), names) for name, names in by_zone.items()))
    return {key: answer for part in parts for key, answer in part.items()}


async def _ask(zone: DNSZone | None, names: Sequence[Hostname]) -> Answers:
    if zone is None:
        return dict.fromkeys(map(_key, names), _NO_ZONE)
    server = (zone.spec.parameters or {}).get("server", "")
    if not server:
        return dict.fromkeys(map(_key, names), f"DNSZone {zone.metadata.name} names no server to ask")
    try:
        settings = ServerSettings(zone.spec.zone, *server_address(server), timeout_s=_PATIENCE_S)
        connection = DNSConnection(settings)
        try:
            keys = {RRKey(obj.spec.host, type_) for obj in names for type_ in expected(obj)}
            there = await ask_records(connection, settings, keys)
        finally:
            await connection.close()
    except FairleadError as error:
        if error.reason in OUTSIDE_ZONE and len(names) > 1:  # the error is about one of them
            half = len(names) // 2
            return {**await _ask(zone, names[:half]), **await _ask(zone, names[half:])}
        return dict.fromkeys(map(_key, names), error.sentence)
    return {
        _key(obj): frozenset(
            (type_, value)
            for type_ in expected(obj)
            if (rrset := there.get(RRKey(obj.spec.host, type_))) is not None
            for value in rrset.values
        )
        for obj in names
    }


def expected(obj: Hostname) -> dict[str, set[str]]:
    """Return the records that a name should have, by type; of a spec that is refused those accepted before."""
    spec = obj.status.accepted or obj.spec
    try:
        wanted = records(spec, 1)
    except ValueError:
        return {}
    return {
        listener.backend: {canonical_value(listener.backend, key.address) for key in targets}
        for listener, targets in wanted.items()
        if targets
    }


def name_rows(hostnames: Sequence[Hostname], answers: Answers) -> list[NameRow]:
    """Return a row for each name, ordered by host."""
    return sorted((_row(obj, answers[_key(obj)]) for obj in hostnames), key=lambda row: (row.host, row.name))


def cells(row: NameRow) -> tuple[str, ...]:
    """Return the cells of a row."""
    points = ", ".join(row.points_to) or "-"
    ends = row.certificate_ends[:10] or "-"
    return row.host, row.member or "-", row.owner or "-", points, row.resolves, ends, row.state


def _row(obj: Hostname, answer: frozenset[tuple[str, str]] | str) -> NameRow:
    spec, status = obj.spec, obj.status
    wanted = {(type_, value) for type_, values in expected(obj).items() for value in values}
    by_type = {condition.type: condition for condition in status.conditions or ()}
    programmed, accepted = by_type.get("Programmed"), by_type.get("Accepted")
    bad = next((each for each in (accepted, programmed) if each is None or each.status != "True"), None)
    unasked = bad is not None and (bad.status, bad.reason) == ("Unknown", ConditionReason.NO_SUCH_ZONE)
    # The hub writes no status about the host of a route while there is no zone.
    unasked = unasked or (not by_type and answer == _NO_ZONE and is_unasked(spec, ()))
    published = bad is None and accepted is not None and programmed is not None
    resolves = "Unknown" if isinstance(answer, str) else "Yes" if wanted <= answer and wanted else "No"
    if not wanted and published:
        resolves = "Yes" if not answer else resolves
    why = answer if isinstance(answer, str) else f"the server answers {_said(answer)} instead of {_said(wanted)}"
    return NameRow(
        host=spec.host,
        namespace=obj.metadata.namespace,
        name=obj.metadata.name,
        member=spec.owner.member,
        owner="/".join(filter(None, (spec.owner.kind, spec.owner.namespace, spec.owner.name))),
        zone=status.zone,
        points_to=[value for _, value in sorted(wanted)],
        answered=[] if isinstance(answer, str) else [value for _, value in sorted(answer)],
        resolves=resolves,
        certificate_ends=status.certificate.not_after if status.certificate is not None else "",
        state=NOT_ASKED if unasked else "Published" if published else bad.reason if bad is not None else "Pending",
        message=(bad.message or bad.reason) if bad is not None else "" if resolves == "Yes" else why,
    )


def _said(values: frozenset[tuple[str, str]] | set[tuple[str, str]]) -> str:
    return ", ".join(f"{type_} {value}" for type_, value in sorted(values)) or "nothing"


def _key(obj: Hostname) -> LoadBalancerKey:
    return LoadBalancerKey("Hostname", obj.metadata.namespace, obj.metadata.name)
