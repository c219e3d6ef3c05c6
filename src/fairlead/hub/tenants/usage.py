"""Usage by load balancer and hour, from the counters of proxies; a restart neither loses nor repeats usage.

    every few seconds      read the counters; what was added belongs to the present hour
    with traffic           ConfigMap fairlead-usage-NAME of the hub: the open hours, and the counts of each proxy so far
    at the end of an hour  ConfigMap fairlead-usage-MONTH in the tenant's namespace: the rows of the hour
    a changed address      ConfigMap fairlead-usage-held there: addresses and certificates, from when to when

A proxy continues to count while no hub runs: the next hub adds the difference to the stored counts. A proxy that was
restarted has counted from zero. Each hub of a machine stores what its own proxies count; of several replicas in a
cluster the leader does. In: readings of proxies, objects of load balancers. Out: these ConfigMaps; an idle hub writes
none. The hub's namespace has the ConfigMaps of removed tenants, and those without a tenant. A text that cannot be read
is moved to another key, and a namespace that refuses a write does not delay others. Never: more than ``MOST_BYTES`` for
a month; a write that adds to what is stored, or that replaces an unreadable text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import CONFIG_MAPS, CONFIG_MAPS_WITH_DATA, ConfigMap
from fairlead.api.meta import JSONObject, KubeObject
from fairlead.api.names import (
    ANNOTATION_ORIGIN,
    LABEL_MANAGED_BY,
    LABEL_TENANT,
    LABEL_USAGE,
    MANAGED_BY,
    MANAGER_HUB,
    SYSTEM_NAMESPACE,
    short_hash,
)
from fairlead.api.tenant import Tenant, subtenant_of
from fairlead.api.usage import (
    NO_COUNTS,
    Counts,
    HeldPeriod,
    OpenHours,
    ProxyCounts,
    UsageRow,
    by_day,
    fitted,
    hour_of,
    load_balancer_of,
    month_of,
    months_before,
    next_held,
    packed,
    start_of,
    summed_rows,
    unpacked,
)
from fairlead.errors import AlreadyExists, Conflict, FairleadError, NamespaceNotFound, NotFound, Terminal
from fairlead.hub.inventory import Inventory
from fairlead.kube.cluster import Cluster
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Reading, Totals
from fairlead.runtime.clock import Clock

log = structlog.get_logger(__name__)

#: How often counters are read; a proxy that dies loses its counts since the last reading.
READ_S = 8.0
#: The divisor of the maximum share of time that is spent on reading.
_SHARE = 20
#: The least time between two writes of the open hours, for each ``_SMALL`` bytes.
SAVE_S = 10.0
_SMALL = 64 * 1024
#: A month is stored in so many bytes, for as many months; hours are kept in this one and the one before.
MOST_BYTES = 400_000
#: The hubs that store usage of one namespace share a ConfigMap, which may have 1 MiB.
_MOST_BYTES_OF_ALL = 900_000
KEEP_MONTHS = 13
_HOURS_MONTHS = 1
#: The maximum number of ended address periods per namespace.
_MOST_HELD = 2000
_TIDY_S = 86_400.0
_HELD_NAME = "fairlead-usage-held"
#: How long a proxy may be silent before it is forgotten.
_FORGET_S = 7 * 86_400
#: The counters of a proxy that is not much older than this hub are all of this hub's time.
_YOUNG_S = 60.0
_LAST_SAVE_S = 3.0
_STATE, _OPEN, _HOURS, _DAYS, _HELD = "state", "open", "hours", "days", "held"
#: The first part of the key of a text that cannot be read.
_UNREADABLE = "unreadable"
LOAD_BALANCER_KINDS = ("TCPLoadBalancer", "HTTPLoadBalancer", "LoadBalancer", "GlobalService")


class Usage:
    """Counts usage while ``metering``, and stores it. ``name`` identifies this hub across restarts.

    ``leading``: this replica records addresses and certificates.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        clock: Clock,
        name: str,
        metering: Callable[[], bool],
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._clock = clock
        self._name = name
        self._metering = metering
        self._leading = leading
        self._began_s = clock.monotonic()
        self._proxies: dict[str, ProxyCounts] = {}
        #: The load balancers that the present reader of each proxy has read.
        self._read: dict[str, set[str]] = {}
        self._rows: dict[tuple[str, str], UsageRow] = {}
        self._loaded = self._was_stored = self._changed = False
        self._version = ""
        self._due_s = self._tidy_due_s = 0.0
        self._problem = ""
        #: The periods in each namespace, None where they cannot be read; None: not read yet in this term.
        self._held: dict[str, list[HeldPeriod] | None] | None = None
        self._objects_changed = True
        for kind in LOAD_BALANCER_KINDS:
            if (objects := inventory.intents.get(kind)) is not None:
                objects.cache.on_object(self._object_changed, part=_has)

    async def run(self, read: Callable[[], Awaitable[None]]) -> None:
        """Read and store until cancelled."""
        pause_s = SAVE_S / 4
        try:
            while True:
                await self._clock.sleep(pause_s)
                began_s = self._clock.monotonic()
                if self._metering():
                    await read()
                pause_s = max(READ_S, _SHARE * (self._clock.monotonic() - began_s))
                try:
                    await self.store()
                    self._problem = ""
                except FairleadError as error:
                    if error.sentence != self._problem:
                        log.warning("usage is not stored now; the hub retries automatically", sentence=error.sentence)
                    self._problem = error.sentence
        finally:
            if self._metering() and self._loaded and self._changed:
                with suppress(TimeoutError, FairleadError):
                    async with asyncio.timeout(_LAST_SAVE_S):
                        await self._save()

    # --- counting -----------------------------------------------------------------------------------------------

    def take(self, readings: Iterable[Reading]) -> None:
        """Add new readings to the counts."""
        for reading in readings:
            if not reading.problem:
                self._take(reading)
            elif self._read.pop(reading.source, None) is not None:
                # A proxy that may be gone is stored at once: its counters are the only other copy.
                self._due_s = 0.0

    def _take(self, reading: Reading) -> None:
        proxy, read = self._proxies.get(reading.source), self._read.setdefault(reading.source, set())
        if reading.grown is None:
            read.clear()
        all_is_new = proxy is not None or self._is_young(reading)
        if proxy is None:
            proxy = self._proxies[reading.source] = ProxyCounts()
            self._changed = True
        now_s = int(self._clock.now().timestamp())
        restarted = _is_another(proxy, reading, now_s)
        if restarted:
            proxy.counts.clear()
            self._changed, self._due_s = True, 0.0
        same = bool(reading.uptime_s) and not restarted
        if not proxy.uptime_s and reading.uptime_s:
            self._changed = True  # its age, by which a restart is seen, was not known yet
        proxy.uptime_s, proxy.read_at = -1 if reading.uptime_s is None else reading.uptime_s, now_s
        for counted in reading.gone:
            if counted.whole:
                proxy.counts.pop(str(counted), None)
        for counted, totals in reading.totals.items():
            if not counted.whole:
                continue
            key, now = str(counted), _counts(totals)
            if reading.grown is not None and key in read:
                more = _counts(reading.grown.get(counted, Totals()))
            elif (before := proxy.counts.get(key)) is None:
                more = now if all_is_new else NO_COUNTS
            else:
                connections, requests, bytes_in, bytes_out = (
                    new - old if new >= old else 0 if same else new for old, new in zip(before, now, strict=True)
                )
                more = connections, requests, bytes_in, bytes_out
            proxy.counts[key] = now
            read.add(key)
            self._add(counted.load_balancer, more)

    def _is_young(self, reading: Reading) -> bool:
        """Return whether a proxy without stored counts has counted in the time of this hub, or of an earlier one."""
        if self._was_stored or reading.uptime_s is None:
            return self._was_stored
        return reading.uptime_s < self._clock.monotonic() - self._began_s + _YOUNG_S

    def _add(self, load_balancer: LoadBalancerKey, more: Counts) -> None:
        if not any(more) or not self._loaded:
            return
        key = (hour_of(self._clock.now()), str(load_balancer))
        row = self._rows.get(key)
        if row is None:
            objects = self._inventory.intents.get(load_balancer.kind)
            obj = objects.cache.get(load_balancer.namespace, load_balancer.name) if objects is not None else None
            origin, subtenant = (obj.annotation(ANNOTATION_ORIGIN), subtenant_of(obj)) if obj is not None else ("", "")
            row = UsageRow(*key, origin, subtenant=subtenant)
        counts = (old + new for old, new in zip(_counts_of_row(row), more, strict=True))
        self._rows[key] = UsageRow(*key, row.origin, *counts, subtenant=row.subtenant)
        self._changed = True

    # --- storing ------------------------------------------------------------------------------------------------

    async def store(self) -> None:
        """Store what is due.

        Raises:
            FairleadError: the hub's API is unreachable or refuses. The next call stores the rest.
        """
        if not self._metering():
            self._loaded = False
        if not self._leading():
            self._held = None
        await _all(step() for step in (self._store_counts, self._store_held, self._tidy))

    async def _store_counts(self) -> None:
        if not self._metering():
            return
        if not self._loaded:
            await self._load()
        await _all(step() for step in (self._close_hours, self._save_when_due))

    async def _save_when_due(self) -> None:
        if self._changed and self._clock.monotonic() >= self._due_s:
            await self._save()

    async def _load(self) -> None:
        """Read the stored counts, and add what proxies have counted since."""
        try:
            stored = await self._cluster.get(CONFIG_MAPS_WITH_DATA, SYSTEM_NAMESPACE, self._state_name)
        except NotFound:
            stored = None
        if stored is not None:
            stored = await self._set_aside(stored, [_STATE], OpenHours)
        state = unpacked(_text(stored, _STATE), OpenHours) if stored is not None else None
        is_lost = state is None and self._version != ""
        self._version = stored.metadata.resource_version if stored is not None else ""
        self._loaded, self._was_stored = True, self._was_stored or state is not None
        self._changed = state is None
        self._rows = {row.key: row for row in (state or OpenHours()).rows}
        read, self._read = self._proxies, {}
        if is_lost:
            # The counts may already be in the months, so counting continues from the last readings.
            return
        self._proxies = (state or OpenHours()).proxies
        for source, proxy in read.items():
            stored_proxy = self._proxies.get(source)
            if stored_proxy is not None and stored_proxy.read_at >= proxy.read_at:
                continue  # another replica has read it later
            totals = {
                Counted(key): Totals(counts[0], 0, counts[2], counts[3], (0, counts[1], 0, 0, 0))
                for text, counts in proxy.counts.items()
                if (key := load_balancer_of(text)) is not None
            }
            self._take(Reading(source, totals, uptime_s=proxy.uptime_s if proxy.uptime_s >= 0 else None))
        self._read = {}

    async def _save(self) -> None:
        now = int(self._clock.now().timestamp())
        for source in [name for name, proxy in self._proxies.items() if proxy.read_at < now - _FORGET_S]:
            del self._proxies[source]
        text = packed(OpenHours(self._proxies, list(self._rows.values())))
        if len(text) > MOST_BYTES:
            # If a namespace refuses its hours, they are kept as days.
            present = hour_of(self._clock.now())
            days = by_day(row for row in self._rows.values() if row.time < present)
            open_rows = [row for row in self._rows.values() if row.time >= present]
            self._rows = {row.key: row for row in (*days, *open_rows)}
            text = packed(OpenHours(self._proxies, list(self._rows.values())))
        self._changed = False
        body = _body(SYSTEM_NAMESPACE, self._state_name, _OPEN, {_STATE: text})
        try:
            if self._version:
                body["metadata"]["resourceVersion"] = self._version
                stored = await self._cluster.merge_patch(
                    CONFIG_MAPS, SYSTEM_NAMESPACE, self._state_name, body, manager=MANAGER_HUB
                )
            else:
                stored = await self._cluster.create(CONFIG_MAPS, body)
        except NotFound:
            # The ConfigMap was deleted: the next attempt stores the same in a new one.
            self._version, self._changed = "", True
            raise
        except (AlreadyExists, Conflict):
            # Another replica led meanwhile.
            self._loaded, self._changed = False, True
            raise
        except FairleadError:
            self._changed = True
            raise
        self._version = stored.metadata.resource_version
        self._due_s = self._clock.monotonic() + SAVE_S * max(1.0, len(text) / _SMALL)

    @property
    def _state_name(self) -> str:
        return f"fairlead-usage-{self._name}"

    async def _close_hours(self) -> None:
        """Store the rows of finished hours in their months; idempotent."""
        present = hour_of(self._clock.now())
        ended = [row for row in self._rows.values() if row.time < present]
        months: dict[tuple[str, str], list[UsageRow]] = {}
        for row in ended:
            months.setdefault((self._place(row.load_balancer), month_of(row.time)), []).append(row)
        await _all(self._close(*place, rows) for place, rows in months.items())

    async def _close(self, namespace: str, month: str, rows: Sequence[UsageRow]) -> None:
        await self._store_month(namespace, month, rows)
        for row in rows:
            self._rows.pop(row.key)
        self._changed, self._due_s = True, 0.0

    async def _store_month(self, namespace: str, month: str, rows: Iterable[UsageRow]) -> None:
        name = f"fairlead-usage-{month}"
        stored = await self._stored(namespace, name)
        days: dict[str, list[UsageRow]] = {}
        for row in rows:
            days.setdefault(row.time[:10], []).append(row)
        data = (stored.data or {}) if stored is not None else {}
        own = [key for key in data if key.startswith(self._day(""))]
        if stored is not None:
            stored = await self._set_aside(stored, own, list[UsageRow])
            data = stored.data or {}
        texts = {key.removeprefix(self._day("")): data[key] for key in own if key in data}
        for day, of_day in days.items():
            keys = {row.key for row in of_day}
            kept = [row for row in _rows(texts.get(day, "")) if row.key not in keys]
            texts[day] = packed(summed_rows([*kept, *of_day]))
        changed = {day: texts[day] for day in days}
        others = {key.rpartition(".")[0] for key in data} - {self._name}
        most_bytes = min(MOST_BYTES, _MOST_BYTES_OF_ALL // (1 + len(others)))
        if sum(map(len, texts.values())) > most_bytes:
            changed = fitted({day: _rows(text) for day, text in texts.items()}, most_bytes)
        data = {self._day(day): text for day, text in changed.items()}
        await self._write(namespace, name, _HOURS, data, present=stored is not None)

    def _day(self, day: str) -> str:
        """Return the key of the data of a day: each hub has its own."""
        return f"{self._name}.{day}"

    async def _stored(self, namespace: str, name: str) -> ConfigMap | None:
        # In tenants' namespaces, the hub may list.
        stored = await self._cluster.list(CONFIG_MAPS_WITH_DATA, namespace, field_selector=f"metadata.name={name}")
        return stored[0] if stored else None

    async def _set_aside(self, stored: ConfigMap, keys: Iterable[str], as_type: type[T]) -> ConfigMap:
        """Move the unreadable texts of ``keys`` to other keys: a later release may have written them."""
        moved = {key: text for key in keys if (text := _text(stored, key)) and unpacked(text, as_type) is None}
        if not moved:
            return stored
        namespace, name = stored.key
        log.error("stored usage cannot be read and is not counted", namespace=namespace, name=name, keys=sorted(moved))
        kept = {f"{_UNREADABLE}.{short_hash(text)}.{key}": text for key, text in moved.items()}
        version = {"resourceVersion": stored.metadata.resource_version}
        body: JSONObject = {"metadata": version, "data": {**kept, **dict.fromkeys(moved)}}
        return await self._cluster.merge_patch(CONFIG_MAPS_WITH_DATA, namespace, name, body, manager=MANAGER_HUB)

    async def _write(self, namespace: str, name: str, content: str, data: JSONObject, *, present: bool) -> None:
        tenant = self._inventory.tenant_of(namespace)
        body = _body(namespace, name, content, data, tenant=tenant.metadata.name if tenant is not None else "")
        if present:
            with suppress(NotFound):  # a person deleted it
                await self._cluster.merge_patch(CONFIG_MAPS, namespace, name, body, manager=MANAGER_HUB)
                return
        try:
            await self._cluster.create(CONFIG_MAPS, body)
        except AlreadyExists:
            await self._cluster.merge_patch(CONFIG_MAPS, namespace, name, body, manager=MANAGER_HUB)

    def _place(self, load_balancer: str) -> str:
        """Return the only namespace in which the hub stores the usage of a load balancer."""
        key = load_balancer_of(load_balancer)
        tenant = self._inventory.tenant_of(key.namespace) if key is not None else None
        return tenant.namespace if tenant is not None else SYSTEM_NAMESPACE

    async def _tidy(self) -> None:
        """Once a day: delete old months, and store the days of months whose hours are old enough."""
        if not self._leading() or self._clock.monotonic() < self._tidy_due_s:
            return
        contents = (_HOURS, _DAYS, _HELD)
        stored = [await self._cluster.list(CONFIG_MAPS, label_selector=f"{LABEL_USAGE}={name}") for name in contents]
        self._tidy_due_s = self._clock.monotonic() + _TIDY_S
        await _all(self._tidy_one(month) for of_content in stored for month in of_content)

    async def _tidy_one(self, stored: KubeObject) -> None:
        this_month = month_of(hour_of(self._clock.now()))
        oldest, oldest_hours = (months_before(this_month, count) for count in (KEEP_MONTHS, _HOURS_MONTHS))
        namespace, name = stored.key
        if stored.label(LABEL_USAGE) == _HELD:
            # Those of a former tenant have another name.
            is_old = name != _HELD_NAME and (stored.metadata.creation_timestamp or "") < oldest
        else:
            is_old = name < f"fairlead-usage-{oldest}"
        if is_old:
            await self._cluster.delete(CONFIG_MAPS, namespace, name)
        elif stored.label(LABEL_USAGE) == _HOURS and name < f"fairlead-usage-{oldest_hours}":
            await self._store_days(namespace, name)

    async def _store_days(self, namespace: str, name: str) -> None:
        if (stored := await self._stored(namespace, name)) is None:
            return
        read = {key: unpacked(text, list[UsageRow]) for key, text in (stored.data or {}).items()}
        data = {key: packed(by_day(rows)) for key, rows in read.items() if rows is not None}
        await self._write(namespace, name, _DAYS, data, present=True)

    # --- addresses and certificates -----------------------------------------------------------------------------

    def _object_changed(self, _obj: IntentObject) -> None:
        self._objects_changed = True

    async def _store_held(self) -> None:
        """Store the present addresses and certificates of load balancers, if they changed."""
        if not self._leading():
            return
        if self._held is None:
            stored = await self._cluster.list(CONFIG_MAPS_WITH_DATA, label_selector=f"{LABEL_USAGE}={_HELD}")
            own = (held for held in stored if held.key.name == _HELD_NAME)
            texts = {held.metadata.namespace: _text(held, self._term) for held in own}
            self._held = {place: unpacked(text, list[HeldPeriod]) if text else [] for place, text in texts.items()}
            self._objects_changed = True
        if not self._objects_changed:
            return
        self._objects_changed = False
        present = self._present(int(self._clock.now().timestamp()))
        try:
            await _all(
                self._store_held_in(namespace, self._held, present.get(namespace, {}))
                for namespace in sorted({*self._held, *present})
            )
        except FairleadError:
            self._objects_changed = True
            raise

    async def _store_held_in(
        self, namespace: str, held: dict[str, list[HeldPeriod] | None], present: Mapping[str, HeldPeriod]
    ) -> None:
        before = held.get(namespace, [])
        if before is None:
            if (stored := await self._stored(namespace, _HELD_NAME)) is not None:
                await self._set_aside(stored, [self._term], list[HeldPeriod])
            before = held[namespace] = []
        now = self._clock.now()
        oldest = start_of(months_before(month_of(hour_of(now)), KEEP_MONTHS)).timestamp()
        periods = next_held(before, present, int(now.timestamp()), oldest=int(oldest), most=_MOST_HELD)
        if periods == before:
            return
        data = {self._term: packed(periods)}
        try:
            await self._write(namespace, _HELD_NAME, _HELD, data, present=namespace in held)
        except NamespaceNotFound:
            # The namespace was deleted with its Tenant.
            held.pop(namespace, None)
            return
        held[namespace] = periods

    @property
    def _term(self) -> str:
        """Return the key of the data of the hub that leads this region."""
        return self._inventory.region or "hub"

    def _present(self, now: int) -> dict[str, dict[str, HeldPeriod]]:
        """Return the addresses and certificates in use, by storing namespace; a shared address counts once."""
        present: dict[str, dict[str, HeldPeriod]] = {}
        counted: set[tuple[str, str]] = set()
        for kind in LOAD_BALANCER_KINDS:
            objects = self._inventory.intents.get(kind)
            for obj in sorted(objects.served(), key=_by_key) if objects is not None else ():
                key = objects.key(obj) if objects is not None else None
                if key is None or not self._inventory.decides(key):
                    continue
                place = self._place(str(key))
                own = {(place, address) for address in obj.status.addresses} - counted
                counted |= own
                _, certificates = _has(obj)
                origin = obj.annotation(ANNOTATION_ORIGIN)
                held = HeldPeriod(str(key), origin, now, 0, len(own), certificates, subtenant_of(obj))
                present.setdefault(place, {})[str(key)] = held
        return present


async def keep_usage(cluster: Cluster, tenant: Tenant, now: datetime) -> None:
    """Copy the usage of a tenant that is being removed to the hub's namespace, and end its address periods.

    Raises:
        FairleadError: the hub's API is unreachable or refuses. A second call copies the same again.
    """
    for stored in await cluster.list(CONFIG_MAPS_WITH_DATA, tenant.namespace, label_selector=LABEL_USAGE):
        data = dict(stored.data or {})
        if stored.label(LABEL_USAGE) == _HELD:
            data = {key: _ended(text, int(now.timestamp())) for key, text in data.items()}
        # Another Tenant of its name has other usage.
        name = f"{stored.metadata.name}.{tenant.metadata.name}.{short_hash(tenant.metadata.uid)}"
        content = stored.label(LABEL_USAGE)
        body = _body(SYSTEM_NAMESPACE, name, content, data, tenant=tenant.metadata.name)
        try:
            await cluster.create(CONFIG_MAPS, body)
        except AlreadyExists:
            await cluster.merge_patch(CONFIG_MAPS, SYSTEM_NAMESPACE, name, body, manager=MANAGER_HUB)


T = TypeVar("T")


async def _all(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Take all steps even if one is refused; raise the first refusal after the last step."""
    refusal: FairleadError | None = None
    for step in steps:
        try:
            await step
        except (Terminal, Conflict) as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal


def _ended(text: str, now: int) -> str:
    """Return the packed periods with an end; a text that cannot be read stays as it is."""
    periods = unpacked(text, list[HeldPeriod])
    if periods is None:
        return text
    return packed([msgspec.structs.replace(period, until=period.until or now) for period in periods])


def _has(obj: IntentObject) -> tuple[tuple[str, ...], int]:
    """Return the addresses of a load balancer, and the number of its certificates."""
    return obj.status.addresses, len(obj.spec.certificates) if isinstance(obj, HTTPLoadBalancer) else 0


def _by_key(obj: IntentObject) -> Any:
    return obj.key


def _counts(totals: Totals) -> Counts:
    return totals.connections, sum(totals.requests), totals.bytes_in, totals.bytes_out


def _counts_of_row(row: UsageRow) -> Counts:
    return row.connections, row.requests, row.bytes_in, row.bytes_out


def _is_another(proxy: ProxyCounts, reading: Reading, now_s: int) -> bool:
    """Return whether the proxy was restarted since the last reading, by its age and counts.

    The time between the readings is that of the hub's clock, which alone proves nothing.
    """
    if reading.uptime_s is None or reading.uptime_s < proxy.uptime_s:
        return reading.uptime_s is not None
    if reading.uptime_s + _YOUNG_S >= proxy.uptime_s + now_s - proxy.read_at:
        return False
    now = {str(counted): _counts(totals) for counted, totals in reading.totals.items()}
    return any(
        new < old
        for key, counts in now.items()
        for new, old in zip(counts, proxy.counts.get(key, NO_COUNTS), strict=True)
    )


def _text(stored: ConfigMap, key: str) -> str:
    return (stored.data or {}).get(key, "")


def _rows(text: str) -> list[UsageRow]:
    return unpacked(text, list[UsageRow]) or []


def _body(namespace: str, name: str, content: str, data: JSONObject, *, tenant: str = "") -> JSONObject:
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_USAGE: content, **({LABEL_TENANT: tenant} if tenant else {})}
    return {"metadata": {"namespace": namespace, "name": name, "labels": labels}, "data": data}
