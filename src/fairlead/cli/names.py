"""``fairlead names``: every name, who has it, where it points, and whether it resolves to that.

The authoritative server of each zone is asked. Never: an answer of a resolver, which may be old, and no key: questions
are not signed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, DNSZone, Hostname
from fairlead.cli.hub_reader import check_kinds, connect_hub
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import VerbAnswer, show
from fairlead.cli.run import ATTENTION, FAILED, OK
from fairlead.cli.selection import matcher
from fairlead.errors import FairleadError, NotFound
from fairlead.model.condition import ConditionReason
from fairlead.model.in_words import listed
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.zones.answers import OUTSIDE_ZONE, ask_records
from fairlead.providers.zones.connection import DNSConnection
from fairlead.providers.zones.plan import RRKey, canonical_value
from fairlead.providers.zones.settings import ServerSettings, server_address
from fairlead.status.formatting import columns
from fairlead.status.object_ref import ObjectRef
from fairlead.translate.hostname import is_unasked, longest_suffix, records


async def show_names(name: str, namespace: str, selector: str, api: HubApi, output: Output, *, watch: bool) -> int:
    """Print the Hostnames with their records; return the exit code."""

    async def ask() -> VerbAnswer:
        async with connect_hub(api) as cluster:
            await check_kinds(cluster)
            there, zones = await cluster.list(HOSTNAMES), await cluster.list(DNS_ZONES)
        hostnames = [hostname for hostname in there if _is_meant(hostname, name, namespace, selector)]
        if not hostnames and (name or namespace or selector):
            raise NotFound(f"No matching name; there {_listed(there)}")
        rows = name_rows(hostnames, await ask_zones(hostnames, zones))
        bad = [row for row in rows if not row.good]
        code = OK if not bad else ATTENTION if any(row.known_bad for row in bad) else FAILED
        paths = [ObjectRef(HOSTNAMES.kind, row.namespace, row.name).path for row in rows]
        return VerbAnswer({"healthy": not bad, "names": rows}, lambda: _lines(rows), lambda: paths, code)

    return await show(ask, output, watch=watch)


def _is_meant(obj: Hostname, name: str, namespace: str, selector: str) -> bool:
    """Say whether NAME, -n and -l mean a Hostname; -n is its own namespace, or that of its owner."""
    kind, slash, rest = name.partition("/")
    wanted = rest if slash and kind.lower() in ("hostname", "hostnames", "hn") else name
    called = (obj.spec.host, obj.metadata.name, str(obj.key))
    return (
        (not wanted or wanted.lower().rstrip(".") in called)
        and namespace in ("", obj.metadata.namespace, obj.spec.owner.namespace)
        and matcher(selector)(obj.metadata.labels)
    )


def _listed(there: Sequence[Hostname]) -> str:
    hosts = sorted(hostname.spec.host for hostname in there)
    return f"are: {listed(hosts, 10)}" if hosts else "are none yet"


def _lines(rows: Sequence[NameRow]) -> list[str]:
    if not rows:
        return [
            "No names yet; they come from Ingresses, Gateways and Services of members, or kubectl apply a Hostname."
        ]
    bad = [f"✗ {row.host}: {row.message}" for row in rows if not row.good]
    return [*columns([HEADER, *map(cells, rows)], indent=""), *bad]


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
    bad = next(
        (condition for condition in (accepted, programmed) if condition is None or condition.status != "True"), None
    )
    unasked = bad is not None and (bad.status, bad.reason) == ("Unknown", ConditionReason.NO_SUCH_ZONE)
    # Without a zone, the hub writes no status for the host of a route.
    unasked = unasked or (not by_type and answer == _NO_ZONE and is_unasked(spec, ()))
    published = bad is None and accepted is not None and programmed is not None
    if isinstance(answer, str):
        answered, resolves, why = frozenset[tuple[str, str]](), "Unknown", answer
    else:
        answered, resolves = answer, "Yes" if wanted <= answer and wanted else "No"
        why = f"the server answers {_said(answer)} instead of {_said(wanted)}"
    if not wanted and published and not answer:
        resolves = "Yes"
    return NameRow(
        host=spec.host,
        namespace=obj.metadata.namespace,
        name=obj.metadata.name,
        member=spec.owner.member,
        owner="/".join(filter(None, (spec.owner.kind, spec.owner.namespace, spec.owner.name))),
        zone=status.zone,
        points_to=[value for _, value in sorted(wanted)],
        answered=[value for _, value in sorted(answered)],
        resolves=resolves,
        certificate_ends=status.certificate.not_after if status.certificate is not None else "",
        state=NOT_ASKED if unasked else "Published" if published else bad.reason if bad is not None else "Pending",
        message=(bad.message or bad.reason) if bad is not None else "" if resolves == "Yes" else why,
    )


def _said(values: frozenset[tuple[str, str]] | set[tuple[str, str]]) -> str:
    return ", ".join(f"{type_} {value}" for type_, value in sorted(values)) or "nothing"


def _key(obj: Hostname) -> LoadBalancerKey:
    return LoadBalancerKey("Hostname", obj.metadata.namespace, obj.metadata.name)
