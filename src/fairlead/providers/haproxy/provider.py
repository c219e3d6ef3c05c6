"""The HAProxy provider: implements ``Provider`` with the Runtime API.

In: the ``Provider`` protocol. Out: servers in backends that HAProxy's own configuration has, added and removed through
its Runtime API and read back each time. Ours are known by their names (``names``); everything else in the same backend
is left alone. After a reload ``observe`` answers another ``epoch`` and ``on_change`` is called, so that the core
registers again what its ledger holds; nothing is repaired here, since only the ledger knows what is still wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import structlog

from fairlead.errors import BadConfiguration, Retry, Terminal
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.in_words import whole_number
from fairlead.model.keys import BackendKey, ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Classes, Counted, Ensured, Observed, Reading, Totals, added, summed
from fairlead.providers.haproxy.commands import (
    ServerChange,
    authority_name,
    drop_authorities,
    load_authority,
    refusal,
    run_batch,
)
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import (
    BACKEND_PARAMETERS,
    HAProxySettings,
    class_problem,
    settings_from_spec,
    settings_on_record,
)
from fairlead.providers.haproxy.snapshot import no_backend, observe_load_balancer, prefix, read, server_name, targets_of
from fairlead.providers.readback_watch import LoadBalancerStates, ReadbackWatch, outcome_from_error
from fairlead.runtime.clock import Clock, SystemClock

MIN_VERSION = (2, 6)

log = structlog.get_logger(__name__)


class HAProxyProvider:
    """Load balancers that are backends of HAProxies; ``installation`` names us where several hubs use one HAProxy."""

    def __init__(self, *, installation: str = "", clock: Clock | None = None, look_every_s: float = 0.5) -> None:
        self._installation = installation
        clock = clock or SystemClock()
        self._settings: LoadBalancerStates[HAProxySettings] = LoadBalancerStates()
        self._registered = RegisteredServers(clock=clock)
        self._owners = BackendOwners()
        self._apis: dict[str, RuntimeApi] = {}
        self.traffic = HAProxyTraffic(owned=self._backends_by_socket, api=self._api)
        self._watch = ReadbackWatch(
            observe=self.observe,
            keys=lambda: {socket: list(owned) for socket, owned in self._backends_by_socket().items()},
            clock=clock,
            interval_s=look_every_s,
        )

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to watch for reloads and drift."""
        self._watch.start()

    async def close(self) -> None:
        """Stop watching; servers stay as they are."""
        await self._watch.close()

    def restore(self, spec: FrontendSpec, info: Mapping[str, str]) -> None:
        """Restore a load balancer of an earlier process; its servers are found by their names, where they were."""
        if not info:
            # ``ensure`` has never succeeded, and servers are added only after that: nothing of ours is there.
            self.release(spec.key)
            return
        try:
            settings = self._read_settings(spec).with_places(info)
        except Terminal as error:
            # The parameters of its class became invalid: servers are still found where they were added, and removed.
            log.warning("parameters cannot be read", load_balancer=str(spec.key), why=error.sentence)
            settings = settings_on_record(spec, info, installation=self._installation)
        self._settings.put(spec.key, settings)
        self._owners.claim(spec.key, settings)

    def failure_domain(self, spec: FrontendSpec) -> str:
        """Return the socket of its HAProxy: each HAProxy answers, or hangs, on its own."""
        return spec.parameters.get("socket", "")

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Return what HAProxy can do at run time."""
        return Capabilities(
            ipv6=True,
            proxy_protocol=True,
            weights=True,
            health_checks=frozenset({"tcp"}),
            outlier_detection=True,
            class_parameters=frozenset({"socket", "installation", "allowedBackends"}),
            place_parameters=frozenset({"backend", "backend."}),
            max_batch=500,
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` on reloads, drift, changes of health and sessions that ended."""
        self._watch.subscribe(notify)

    def class_problem(self, parameters: Mapping[str, str]) -> str:
        """Return what is wrong with the parameters of a class, empty when nothing is."""
        return class_problem(parameters)

    async def validate(self, spec: FrontendSpec, *, old: FrontendSpec | None = None) -> None:
        """Raise ``BadConfiguration`` for wrong parameters; HAProxy itself is not called."""
        del old
        self._read_settings(spec)

    async def validate_backends(
        self,
        spec: FrontendSpec,
        *,
        backend_type: str,
        parameters: Mapping[str, str],
        old_parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Raise ``BadConfiguration`` for parameters of backends that have no effect here."""
        del backend_type, old_parameters
        if unknown := sorted(parameters.keys() - BACKEND_PARAMETERS):
            raise BadConfiguration(
                f"{spec.key}: parameters.{unknown[0][:60]} of backends is unknown to provider haproxy; valid is "
                f"{', '.join(sorted(BACKEND_PARAMETERS))}"
            )

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Check that HAProxy is there, new enough, and has the backends; it is not changed."""
        key, settings = spec.key, self._read_settings(spec)
        self._owners.require_free(key, settings)
        before = self._settings.get(key)
        if before is not None:
            await require_no_move(key, before, settings, api=self._api(before.socket))
        epoch = ""
        absent: list[str] = []
        for backend in (backends := sorted(set(settings.backends.values()))):
            snapshot = await read(self._api(settings.socket), backend)
            if (snapshot.version_number or MIN_VERSION) < MIN_VERSION:
                raise Retry(f"HAProxy at {settings.socket} is {snapshot.version}; 2.6 or newer is needed")
            if snapshot.servers is None:
                absent.append(backend)
            epoch = epoch or snapshot.epoch
        if absent == backends:
            raise Retry(f"{key}: {no_backend(settings.socket, absent[0])}", reason="BackendNotFound")
        if settings.authority:
            # Now, so that an invalid bundle is reported once for the load balancer, not for each member.
            api, name = self._api(settings.socket), authority_name(settings.installation, key, settings.authority)
            async with api.lock:
                await load_authority(api, name, settings.authority, epoch=epoch)
        # Another load balancer may have claimed it during the calls.
        self._owners.require_free(key, settings)
        kept = settings.following(self._settings.get(key))
        self._settings.put(key, kept)
        self._owners.claim(key, settings)
        # The listeners whose backend is there are served; observe says which one is missing, and so does each change.
        message = no_backend(settings.socket, absent[0]) if absent else ""
        return Ensured(settings.addresses, message, info=kept.info, epoch=kept.epoch(epoch))

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Change servers, few conversations for many changes; each outcome is what was read back."""
        outcomes: dict[int, Outcome] = {}
        batches: dict[tuple[str, str], list[tuple[int, ServerChange]]] = {}
        for index, change in enumerate(changes):
            planned = self._plan(change)
            if isinstance(planned, Outcome):
                outcomes[index] = planned
            else:
                batches.setdefault((planned.settings.socket, planned.backend), []).append((index, planned))

        async def run(socket: str, backend: str, batch: Sequence[tuple[int, ServerChange]]) -> None:
            results = await self._run(socket, backend, [change for _, change in batch])
            for (index, _), outcome in zip(batch, results, strict=True):
                outcomes[index] = outcome

        # In parallel, so that a HAProxy that does not answer delays no other.
        async with asyncio.TaskGroup() as tasks:
            for (socket, backend), batch in batches.items():
                tasks.create_task(run(socket, backend, batch))
        return [outcomes[index] for index in range(len(changes))]

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Read back one load balancer."""
        settings = self._settings.get(key)
        if settings is None:
            return None
        registered = self._registered.of(key)
        observed = await observe_load_balancer(self._api(settings.socket), key, settings, registered=registered)
        present = {target.listener for target in observed.targets or ()}
        present |= {listener for listener, _ in self._registered.of(key)}
        if self._settings.get(key) is settings:
            self._settings.put(key, settings.without_retired(settings.retired - present))
        return observed

    async def delete(self, key: LoadBalancerKey) -> None:
        """Remove all servers whose names say that they are this load balancer's; the backend itself stays."""
        settings = self._settings.get(key)
        if settings is None:
            return
        changes: list[TargetChange] = []
        for listener, backend in settings.backends.items():
            snapshot = await read(self._api(settings.socket), backend)
            changes += [
                TargetChange(key, listener, Target(target), Action.DEREGISTER, Reason.OWNER_DELETED)
                for target in targets_of(snapshot.servers or (), prefix(settings.installation, key, listener))
            ]
        left = [outcome for outcome in await self.apply(changes) if outcome.status is not OutcomeStatus.DONE]
        if left:
            raise Retry(f"{key}: {left[0].message}", after_s=left[0].retry_after_s)
        api = self._api(settings.socket)
        async with api.lock:
            await drop_authorities(api, settings.installation, key)
        self.release(key)

    def release(self, key: LoadBalancerKey) -> None:
        """Drop all that is known of it, so that another load balancer may have its backends."""
        self._settings.release(key)
        self._owners.release(key)
        self._registered.forget(key)

    # --- inside -----------------------------------------------------------------------------------------------

    def _backends_by_socket(self) -> Mapping[str, Mapping[LoadBalancerKey, frozenset[str]]]:
        by_socket: dict[str, dict[LoadBalancerKey, frozenset[str]]] = {}
        for key, settings in self._settings.items():
            by_socket.setdefault(settings.socket, {})[key] = frozenset(settings.backends.values())
        return by_socket

    def _api(self, socket: str) -> RuntimeApi:
        return self._apis.setdefault(socket, RuntimeApi(socket))

    def _read_settings(self, spec: FrontendSpec) -> HAProxySettings:
        return settings_from_spec(spec, installation=self._installation)

    def _plan(self, change: TargetChange) -> ServerChange | Outcome:
        """Return the change of the target's server, or an outcome that needs no call."""
        settings = self._settings.get(change.load_balancer)
        if settings is None:
            return self._settings.outcome_without(change, "has not been ensured yet")
        if reason := refusal(change):
            # What can never have been added needs no removal.
            return DONE if change.is_removal else Outcome(OutcomeStatus.REJECTED, f"{change.load_balancer}: {reason}")
        backend = settings.backend_of(change.listener, removal=change.is_removal)
        if not backend:
            return Outcome(
                OutcomeStatus.RETRY, f"{change.key}: {change.load_balancer} has no listener {change.listener} yet"
            )
        name = server_name(settings.installation, *change.backend_key, settings.tag)
        drain_over = self._registered.drain_is_over(change, timeout_s=settings.drain_timeout_s)
        return ServerChange(change, settings, backend, name, drain_over)

    async def _run(self, socket: str, backend: str, changes: Sequence[ServerChange]) -> list[Outcome]:
        try:
            outcomes = await run_batch(self._api(socket), backend, changes)
        except Retry as error:
            # Another HAProxy in the same batch is not concerned.
            return [outcome_from_error(error)] * len(changes)
        for change, outcome in zip(changes, outcomes, strict=True):
            if outcome.status is OutcomeStatus.DONE:
                self._registered.applied(change.change)
            elif outcome.status is OutcomeStatus.RUNNING:
                self._registered.drains(change.change)
        return outcomes


def create(*, installation: str = "", clock: Clock | None = None) -> HAProxyProvider:
    """Make the provider (entry point ``haproxy``)."""
    return HAProxyProvider(installation=installation, clock=clock)


async def require_no_move(
    key: LoadBalancerKey, before: HAProxySettings, after: HAProxySettings, *, api: RuntimeApi
) -> None:
    """Raise ``BadConfiguration`` when servers of ``key`` would stay behind; ``api`` is the one of ``before``."""
    for listener, backend in before.backends.items():
        moved_to = after.backends.get(listener)
        if moved_to is None or (before.socket, backend) == (after.socket, moved_to):
            continue
        try:
            snapshot = await read(api, backend)
        except Retry as error:
            if error.reason != "HAProxyUnreachable":
                raise
            # What was added at run time has gone with that process.
            continue
        count = len(targets_of(snapshot.servers or (), prefix(before.installation, key, listener)))
        if count:
            raise BadConfiguration(
                f"{key}: its {count} servers are in backend {backend} of HAProxy at {before.socket} and still serve; "
                f"they are not moved to backend {moved_to} at {after.socket}. Revert the change of the class's "
                "parameters, or delete the load balancer and create it again"
            )


class BackendOwners:
    """The load balancer of each (socket, backend)."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], LoadBalancerKey] = {}

    def claim(self, key: LoadBalancerKey, settings: HAProxySettings) -> None:
        """Give ``key`` the backends of ``settings``, and no others."""
        self.release(key)
        self._owners.update(dict.fromkeys(settings.places, key))

    def release(self, key: LoadBalancerKey) -> None:
        """Free the backends of ``key``."""
        for place in [place for place, owner in self._owners.items() if owner == key]:
            del self._owners[place]

    def require_free(self, key: LoadBalancerKey, settings: HAProxySettings) -> None:
        """Raise ``Retry`` when another load balancer has a backend of ``settings``."""
        for socket, backend in sorted(settings.places):
            owner = self._owners.get((socket, backend), key)
            if owner != key:
                # Whose another member's are is not for this one to know.
                who = owner if owner.namespace == key.namespace else "another load balancer"
                raise Retry(
                    f"{key}: backend {backend} of HAProxy at {socket} serves {who} already; use one for each "
                    "(parameters.backend of the class may hold {member}, {namespace} and {name})",
                    reason="Conflicted",
                )


class RegisteredServers:
    """The servers of all load balancers of this process."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._registered: dict[LoadBalancerKey, set[tuple[ListenerKey, TargetKey]]] = {}
        #: By target, and whether it is removed or only one of its servers is replaced.
        self._draining_since_s: dict[tuple[BackendKey, bool], float] = {}

    def of(self, key: LoadBalancerKey) -> frozenset[tuple[ListenerKey, TargetKey]]:
        """Return the targets of ``key`` that this process has registered and not drained or removed since."""
        return frozenset(self._registered.get(key, ()))

    def drain_is_over(self, change: TargetChange, *, timeout_s: float) -> bool:
        """Return whether the open sessions of a server that is removed or replaced have had ``timeout_s``.

        A removal starts the time, and so does ``drains``.
        """
        removes = change.action is Action.DEREGISTER
        self._draining_since_s.pop((change.backend_key, not removes), None)
        if removes:
            self.drains(change)
        since_s = self._draining_since_s.get((change.backend_key, removes))
        return since_s is not None and self._clock.monotonic() - since_s >= timeout_s

    def drains(self, change: TargetChange) -> None:
        """Store that a server of the target is drained to be removed: its drain time begins, unless it already has."""
        place = (change.backend_key, change.action is Action.DEREGISTER)
        self._draining_since_s.setdefault(place, self._clock.monotonic())

    def applied(self, change: TargetChange) -> None:
        """Store that a change has had its effect."""
        targets = self._registered.setdefault(change.load_balancer, set())
        self._draining_since_s.pop((change.backend_key, change.action is Action.DEREGISTER), None)
        # After a reload a draining server is not added again.
        is_gone = change.is_removal or change.target.draining
        (targets.discard if is_gone else targets.add)((change.listener, change.key))

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop all servers of a load balancer."""
        self._registered.pop(key, None)
        for place in [place for place in self._draining_since_s if place[0].load_balancer == key]:
            del self._draining_since_s[place]


#: Of every proxy, only backends, every line.
_COMMAND = "show stat -1 2 -1"
#: A HAProxy that hangs holds up the figures of no other.
_ANSWER_S = 2.0
#: The columns up to ``bout``: name, queue, sessions and bytes. Those behind have times, which differ each second.
_COUNTS = 10
_NO_OWNER = LoadBalancerKey("", "", "")
_CLASSES = tuple(f"hrsp_{number}xx" for number in range(1, 6))


class BackendCounts:
    """The counts of the backends of one HAProxy, text by text."""

    def __init__(self) -> None:
        self._counts: dict[str, list[str]] = {}
        self._rows: dict[str, Totals] = {}
        #: By backend: whose it is, and what it had counted before.
        self._before: dict[str, tuple[LoadBalancerKey, Totals]] = {}
        #: Counts before the last reset.
        self.gone: frozenset[Counted] = frozenset()

    def take(self, text: str, owned: Mapping[LoadBalancerKey, frozenset[str]]) -> Mapping[Counted, Totals]:
        """Read what ``show stat`` printed; returns those of ``owned``, their backends, that have changed.

        Raises:
            ValueError: it is not what HAProxy prints.
        """
        header, *lines = text.strip().splitlines() or [""]
        if not header.startswith("# pxname,svname,"):
            raise ValueError(header[:80])
        columns = header.removeprefix("# ").split(",")
        changed: set[str] = set()
        counts: dict[str, list[str]] = {}
        for line in lines:
            front = line.split(",", _COUNTS)[:_COUNTS]
            counts[front[0]] = front
            if self._counts.get(front[0]) != front:
                self._take(front[0], _totals(dict(zip(columns, line.split(","), strict=False))))
                changed.add(front[0])
        self._counts = counts
        for gone in self._rows.keys() - counts.keys():
            del self._rows[gone]
        there = {key: backends & self._rows.keys() for key, backends in owned.items()}
        before = {key for key, _ in self._before.values()}
        self._before = {name: self._since(key, name) for key, backends in there.items() for name in backends}
        self.gone = frozenset(map(Counted, before - {key for key, _ in self._before.values()} - {_NO_OWNER}))
        return {Counted(key): self._sum(backends) for key, backends in there.items() if backends & changed}

    def _take(self, backend: str, row: Totals) -> None:
        old = self._rows.get(backend, row)
        if row.connections < old.connections or row.bytes_in < old.bytes_in or row.bytes_out < old.bytes_out:
            # HAProxy was reloaded, or its counters were cleared: they start again.
            self._before[backend] = self._before.get(backend, (_NO_OWNER, row))[0], Totals()
        self._rows[backend] = row

    def _since(self, key: LoadBalancerKey, backend: str) -> tuple[LoadBalancerKey, Totals]:
        owner, before = self._before.get(backend, (_NO_OWNER, Totals()))
        return (owner, before) if owner == key else (key, self._rows[backend])

    def _sum(self, backends: Iterable[str]) -> Totals:
        return summed(added(self._before[backend][1], self._rows[backend]) for backend in backends)


class HAProxyTraffic:
    """Reads the counts of all HAProxies that have load balancers.

    ``owned`` returns the backends of each load balancer by socket, ``api`` what talks to a socket.
    """

    def __init__(
        self,
        *,
        owned: Callable[[], Mapping[str, Mapping[LoadBalancerKey, frozenset[str]]]],
        api: Callable[[str], RuntimeApi],
    ) -> None:
        self._owned = owned
        self._api = api
        self._counts: dict[str, BackendCounts] = {}

    async def read(self) -> Sequence[Reading]:
        """Return the load balancers whose counts have changed, by HAProxy."""
        owned = self._owned()
        for gone in self._counts.keys() - owned.keys():
            del self._counts[gone]
        return await asyncio.gather(*(self._read(socket, backends) for socket, backends in owned.items()))

    async def _read(self, socket: str, owned: Mapping[LoadBalancerKey, frozenset[str]]) -> Reading:
        source, api = f"HAProxy at {socket}", self._api(socket)
        # What was before a gap is dropped by its reader: after one everything is read, as the first time.
        counts = self._counts.pop(socket, BackendCounts())
        try:
            async with asyncio.timeout(_ANSWER_S), api.lock:
                text = await api.run([_COMMAND])
            totals = counts.take(text, owned)
            self._counts[socket] = counts
            return Reading(source, totals, gone=counts.gone)
        except TimeoutError:
            return Reading(source, problem=f"{source} returned no statistics within {_ANSWER_S:g} s")
        except ValueError:
            return Reading(source, problem=f"{source} returned statistics that cannot be read; check its version")
        except Retry as error:
            return Reading(source, problem=error.sentence)


def _totals(row: Mapping[str, str]) -> Totals:
    def count(field: str) -> int:
        return whole_number(row.get(field, "")) or 0

    classes = cast("Classes", tuple(map(count, _CLASSES)))
    return Totals(count("stot"), count("scur"), count("bin"), count("bout"), classes)
