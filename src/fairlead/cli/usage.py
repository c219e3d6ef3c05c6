"""``fairlead usage``: what each tenant, namespace and load balancer used, from what hubs have stored.

In: the ConfigMaps of ``hub/tenants/usage.py``, a span of time, prices from a file. Out: a table, CSV, or a document.
The key of a tenant's agent sees that tenant, up to the end of the last hour.
Never: an hour that is counted twice: an hour that is still open takes the place of the same hour in a month.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from fairlead.api.kubernetes import CONFIG_MAPS_WITH_DATA, ConfigMap
from fairlead.api.names import LABEL_TENANT, LABEL_USAGE
from fairlead.api.tenant import TENANTS
from fairlead.api.times import seconds_from_duration, wire_time
from fairlead.api.usage import (
    HeldPeriod,
    OpenHours,
    UsageRow,
    hours_held,
    load_balancer_of,
    months_before,
    spans,
    start_of,
    unpacked,
)
from fairlead.cli.hub_reader import connect_hub
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import csv_text, emit, say
from fairlead.cli.selection import EVERYTHING, Selection
from fairlead.cli.top import size
from fairlead.cli.verbs import UsageBy, UsageOutput, UsagePer
from fairlead.errors import BadConfiguration, Forbidden
from fairlead.kube.cluster import Cluster
from fairlead.status.formatting import columns
from fairlead.status.object_ref import ANY, IN_MEMBERS

_GIB = 1024**3
_MILLION = 1_000_000
_DAYS = re.compile(r"([0-9]{1,4})d")
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_IN_MEMBER = re.compile(r"[-.a-z0-9]+(/[-.a-z0-9]+)?")
_PREFIX = "fairlead-usage-"


class UsageSpan(NamedTuple):
    """A span of time; the start is that of an hour."""

    start: datetime
    end: datetime


class Prices(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The price of each unit, in ``currency``: of a GiB, a million connections or requests, or an hour."""

    currency: str = ""
    gib_in: float = 0.0
    gib_out: float = 0.0
    million_connections: float = 0.0
    million_requests: float = 0.0
    address_hour: float = 0.0
    certificate_hour: float = 0.0


class Used(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One row of the answer; what it is not split by is empty. ``time`` is an hour, a day or a month, in UTC."""

    time: str = ""
    tenant: str = ""
    subtenant: str = ""
    namespace: str = ""
    load_balancer: str = ""
    connections: int = 0
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    address_hours: float = 0.0
    certificate_hours: float = 0.0
    cost: float | None = None


class StoredUsage(NamedTuple):
    """The stored usage: each row once, periods of addresses, and the tenant of each namespace at the hub."""

    rows: Sequence[UsageRow]
    held: Sequence[HeldPeriod]
    tenants: Mapping[str, str]
    notes: Sequence[str] = ()


def span_of(since: str, month: str, now: datetime) -> UsageSpan:
    """Return the span that was asked for: by default this month.

    Raises:
        BadConfiguration: it is not a duration, or not a month.
    """
    if since and month:
        raise BadConfiguration("--since and --month: give one of them")
    if month:
        if not _MONTH.fullmatch(month):
            raise BadConfiguration(f"--month: {month!r} is not a month such as {now:%Y-%m}")
        return UsageSpan(start_of(month), min(now, start_of(months_before(month, -1))))
    if not since:
        return UsageSpan(start_of(f"{now:%Y-%m}"), now)
    return UsageSpan(since_of(since, now).replace(minute=0, second=0, microsecond=0), now)


def since_of(since: str, now: datetime) -> datetime:
    """Return the time of a duration ago, such as 24h or 7d.

    Raises:
        BadConfiguration: it is not a duration.
    """
    try:
        days = _DAYS.fullmatch(since)
        return now - timedelta(seconds=int(days[1]) * 86_400.0 if days else seconds_from_duration(since))
    except (ValueError, OverflowError) as error:
        raise BadConfiguration(f"--since: {since!r} is not a duration such as 24h or 7d") from error


def read_prices(path: Path | None) -> Prices | None:
    """Return the prices of a file, None without one.

    Raises:
        BadConfiguration: it cannot be read, or a field is wrong.
    """
    if path is None:
        return None
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), Prices)
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"--prices: {path} cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError, msgspec.ValidationError) as error:
        fields = ", ".join(field.encode_name for field in msgspec.structs.fields(Prices))
        raise BadConfiguration(
            f"--prices: {path} is not a file of prices, which may have {fields}", detail=str(error)
        ) from error


async def show_usage(
    api: HubApi,
    selection: Selection,
    output: UsageOutput,
    *,
    tenant: str,
    since: str,
    month: str,
    by: UsageBy,
    per: UsagePer,
    prices: Prices | None,
) -> None:
    """Print what was used."""
    async with connect_hub(api) as cluster:
        span = span_of(since, month, cluster.server_clock.now().astimezone(UTC))
        stored = await read_usage(cluster)
    rows = used(stored, span, by=by, per=per, prices=prices, selection=selection, tenant=tenant)
    if output is UsageOutput.CSV:
        say(csv_lines(rows, prices))
        return
    value = {
        "from": wire_time(span.start),
        "to": wire_time(span.end),
        "currency": prices.currency if prices is not None else "",
        "usage": rows,
    }
    names = dict.fromkeys(row.load_balancer for row in rows if row.load_balancer)
    notes = [f"! {note}" for note in stored.notes]
    emit(Output(output.value), value, lines=lambda: [*notes, *lines_of(rows, span, prices)], names=lambda: names)


async def read_usage(cluster: Cluster) -> StoredUsage:
    """Read what hubs have stored: of all tenants, or of the one whose key this is."""
    try:
        config_maps = await cluster.list(CONFIG_MAPS_WITH_DATA, label_selector=LABEL_USAGE)
        tenants = {tenant.namespace: tenant.metadata.name for tenant in await cluster.list(TENANTS)}
        return stored_usage(config_maps, tenants)
    except Forbidden:
        namespace = cluster.namespace
        config_maps = await cluster.list(CONFIG_MAPS_WITH_DATA, namespace, label_selector=LABEL_USAGE)
        own = next((each.label(LABEL_TENANT) for each in config_maps), "") or ""
        note = f"Only namespace {namespace}, up to the end of the last hour: more needs an administrator's kubeconfig."
        stored = stored_usage(config_maps, {namespace: own})
        return stored._replace(notes=(note, *stored.notes))


def stored_usage(config_maps: Iterable[ConfigMap], tenants: Mapping[str, str]) -> StoredUsage:
    """Return what is in ConfigMaps; a note names those with a text that cannot be read, as of a later release."""
    rows: dict[tuple[str, str, str], UsageRow] = {}
    open_rows: dict[tuple[str, str, str], UsageRow] = {}
    held: list[HeldPeriod] = []
    unreadable: set[str] = set()
    #: The tenants of namespaces that may be gone.
    former: dict[str, str] = {}
    for each in config_maps:
        content, name = each.label(LABEL_USAGE), each.metadata.name.removeprefix(_PREFIX)
        for key, text in (each.data or {}).items():
            names: list[str] = []
            if content == "held" and (periods := unpacked(text, list[HeldPeriod])) is not None:
                held += periods
                names = [period.load_balancer for period in periods]
            elif content == "open" and (state := unpacked(text, OpenHours)) is not None:
                open_rows |= {(name, *row.key): row for row in state.rows}
            elif content not in ("held", "open") and (of_day := unpacked(text, list[UsageRow])) is not None:
                rows |= {(key.rpartition(".")[0], *row.key): row for row in of_day}
                names = [row.load_balancer for row in of_day]
            else:
                unreadable.add("/".join(each.key))
            if tenant := each.label(LABEL_TENANT):
                keys = filter(None, map(load_balancer_of, names))
                former |= {key.namespace: tenant for key in keys}
    notes = [f"Not counted: a text in ConfigMap {name} cannot be read." for name in sorted(unreadable)]
    return StoredUsage(list((rows | open_rows).values()), held, {**former, **tenants}, notes)


class _Sum:
    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0]
        self.address_hours = self.certificate_hours = 0.0


def used(
    stored: StoredUsage,
    span: UsageSpan,
    *,
    by: UsageBy = UsageBy.LB,
    per: UsagePer = UsagePer.ALL,
    prices: Prices | None = None,
    selection: Selection = EVERYTHING,
    tenant: str = "",
) -> list[Used]:
    """Return the sums over ``span``, ordered by tenant, sub-tenant, namespace, load balancer and time."""
    sums: dict[tuple[str, str, str, str, str], _Sum] = {}

    def sum_of(subject: UsageSubject, subtenant: str, time: str) -> _Sum:
        part = (subtenant or subject.namespace) if by is UsageBy.SUBTENANT else ""
        namespace = subject.namespace if by in (UsageBy.NAMESPACE, UsageBy.LB) else ""
        load_balancer = subject.load_balancer if by is UsageBy.LB else ""
        return sums.setdefault((subject.tenant, part, namespace, load_balancer, time), _Sum())

    for row in stored.rows:
        subject = subject_of(row.load_balancer, row.origin, stored.tenants)
        if not (_first(row, span) <= start_of(row.time) < span.end) or not subject.is_in(selection, tenant):
            continue
        counts = sum_of(subject, row.subtenant, row.time[: per.length]).counts
        for at, count in enumerate((row.connections, row.requests, row.bytes_in, row.bytes_out)):
            counts[at] += count
    for period in stored.held:
        subject = subject_of(period.load_balancer, period.origin, stored.tenants)
        if not subject.is_in(selection, tenant):
            continue
        for time, start, end in _parts(span, per):
            addresses, certificates = hours_held(period, start, end)
            if addresses or certificates:
                total = sum_of(subject, period.subtenant, time)
                total.address_hours += addresses
                total.certificate_hours += certificates
    return [_used(key, sums[key], prices) for key in sorted(sums)]


def _first(row: UsageRow, span: UsageSpan) -> datetime:
    """Return when the first row that is in ``span`` begins: of days, the one in which it starts."""
    return span.start if "T" in row.time else span.start.replace(hour=0)


def _parts(span: UsageSpan, per: UsagePer) -> Iterator[tuple[str, datetime, datetime]]:
    if per is UsagePer.ALL:
        yield "", span.start, span.end
    elif per is not UsagePer.MONTH:
        yield from spans(*span, hours=per is UsagePer.HOUR)
    else:
        start = span.start
        while start < span.end:
            end = min(span.end, start_of(months_before(f"{start:%Y-%m}", -1)))
            yield f"{start:%Y-%m}", start, end
            start = end


class UsageSubject(NamedTuple):
    """What usage is of; the namespace is that in the member, where the load balancer is of one."""

    tenant: str
    namespace: str
    load_balancer: str
    kind: str = ""
    #: What it may be called, without its kind: at the hub, and in the member.
    places: tuple[str, ...] = ()

    def is_in(self, selection: Selection, tenant: str) -> bool:
        """Return whether the usage is selected."""
        ref, namespace = selection.ref, selection.namespace
        if tenant and tenant != self.tenant:
            return False
        if ref is None:
            return not namespace or any(namespace in place.split("/")[:-1] for place in self.places)
        if ref.kind == ANY:
            return ref.name in self.places
        return ref.kind in (self.kind, *IN_MEMBERS) and ref.path.partition("/")[2] in self.places


def subject_of(load_balancer: str, origin: str, tenants: Mapping[str, str]) -> UsageSubject:
    """Return what a row is of."""
    key = load_balancer_of(load_balancer)
    if key is None:
        return UsageSubject("", "", load_balancer)
    at_hub = f"{key.namespace}/{key.name}"
    tenant = tenants.get(key.namespace, "")
    # Agents write the origin: the tenant is known from the namespace, and invalid names are left out.
    _, _, in_member = origin.partition("/")
    if not tenant or not _IN_MEMBER.fullmatch(in_member):
        return UsageSubject(tenant, "" if tenant else key.namespace, load_balancer, key.kind, (at_hub,))
    namespace = in_member.partition("/")[0] if "/" in in_member else ""
    return UsageSubject(tenant, namespace, load_balancer, key.kind, (at_hub, in_member, f"{tenant}/{in_member}"))


def _used(key: tuple[str, str, str, str, str], total: _Sum, prices: Prices | None) -> Used:
    tenant, subtenant, namespace, load_balancer, time = key
    connections, requests, bytes_in, bytes_out = total.counts
    cost = None
    if prices is not None:
        cost = (
            bytes_in / _GIB * prices.gib_in
            + bytes_out / _GIB * prices.gib_out
            + connections / _MILLION * prices.million_connections
            + requests / _MILLION * prices.million_requests
            + total.address_hours * prices.address_hour
            + total.certificate_hours * prices.certificate_hour
        )
    return Used(
        time=time,
        tenant=tenant,
        subtenant=subtenant,
        namespace=namespace,
        load_balancer=load_balancer,
        connections=connections,
        requests=requests,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        address_hours=round(total.address_hours, 3),
        certificate_hours=round(total.certificate_hours, 3),
        cost=round(cost, 4) if cost is not None else None,
    )


def lines_of(rows: Sequence[Used], span: UsageSpan, prices: Prices | None) -> list[str]:
    """Return the table, without the columns that are empty in each row."""
    head = f"From {wire_time(span.start)} to {wire_time(span.end)}"
    if not rows:
        return [f"{head}: no usage is stored."]
    table = {
        "TIME": [row.time for row in rows],
        "TENANT": [row.tenant or "-" for row in rows],
        "SUB-TENANT": [row.subtenant for row in rows],
        "NAMESPACE": [row.namespace for row in rows],
        "LOAD BALANCER": [row.load_balancer for row in rows],
        "CONNECTIONS": [str(row.connections) for row in rows],
        "REQUESTS": [str(row.requests) for row in rows],
        "IN": [size(row.bytes_in) for row in rows],
        "OUT": [size(row.bytes_out) for row in rows],
        "ADDRESS HOURS": [f"{row.address_hours:.2f}" for row in rows],
        "CERTIFICATE HOURS": [f"{row.certificate_hours:.2f}" for row in rows],
    }
    if prices is not None:
        table[f"COST {prices.currency}".rstrip()] = [f"{row.cost or 0:.2f}" for row in rows]
    shown = {title: cells for title, cells in table.items() if any(cells)}
    return [head, *columns([tuple(shown), *zip(*shown.values(), strict=True)], indent="")]


def csv_lines(rows: Sequence[Used], prices: Prices | None) -> list[str]:
    """Return a line with the names of the fields, and one for each row."""
    names = [field.name for field in msgspec.structs.fields(Used)]
    names = names if prices is not None else names[:-1]
    head = [*names, *(["currency"] if prices is not None else [])]
    cells = [[getattr(row, name) for name in names] for row in rows]
    return csv_text([head, *(row + ([prices.currency] if prices is not None else []) for row in cells)])
