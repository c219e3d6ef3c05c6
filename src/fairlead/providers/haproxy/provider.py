"""The HAProxy provider: implements ``Provider`` with the Runtime API.

In: the ``Provider`` protocol. Out: servers in backends that HAProxy's own configuration has, added and removed through
its Runtime API and read back each time. Ours are known by their names (``names``); everything else in the same backend
is left alone. After a reload ``observe`` answers another ``epoch`` and ``on_change`` is called, so that the core
registers again what its ledger holds; nothing is repaired here, since only the ledger knows what is still wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from fairlead.errors import BadConfiguration, Retry, Terminal
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.haproxy.authorities import authority_name, drop_authorities, load_authority
from fairlead.providers.haproxy.backend_owners import BackendOwners
from fairlead.providers.haproxy.batch import run_batch
from fairlead.providers.haproxy.commands import ServerChange, refusal
from fairlead.providers.haproxy.moves import require_no_move
from fairlead.providers.haproxy.names import prefix, server_name, targets_of
from fairlead.providers.haproxy.readback import no_backend, observe_load_balancer, read
from fairlead.providers.haproxy.registered import RegisteredServers
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import (
    BACKEND_PARAMETERS,
    HAProxySettings,
    class_problem,
    settings_from_spec,
    settings_on_record,
)
from fairlead.providers.haproxy.traffic import HAProxyTraffic
from fairlead.providers.load_balancer_states import LoadBalancerStates
from fairlead.providers.outcomes import outcome_from_error
from fairlead.providers.readback_watch import ReadbackWatch
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
            observe=self.observe, keys=self._keys_by_socket, clock=clock, interval_s=look_every_s
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
            # It was asked for and never answered for, and only after that are servers added: nothing of ours is there.
            self.release(spec.key)
            return
        try:
            settings = self._read_settings(spec).with_places(info)
        except Terminal as error:
            # Its class has changed for the worse: what was made before is found where it was put, and can be removed.
            log.warning("its parameters cannot be read", load_balancer=str(spec.key), why=error.sentence)
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
                f"{spec.key}: parameters.{unknown[0][:60]} of backends is unknown to provider haproxy; there is "
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
            # Now, so that a bundle that is none is said of the load balancer and not of each of its members.
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

    def _keys_by_socket(self) -> Mapping[str, Sequence[LoadBalancerKey]]:
        by_socket: dict[str, list[LoadBalancerKey]] = {}
        for key, settings in self._settings.items():
            by_socket.setdefault(settings.socket, []).append(key)
        return by_socket

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
        """Return the change of the server that stands for the target, or an outcome that needs no call."""
        settings = self._settings.get(change.load_balancer)
        if settings is None:
            return self._settings.outcome_without(change, "has not been ensured yet")
        removal = change.is_removal
        if reason := refusal(change):
            # What can never have been added needs no removal.
            return DONE if removal else Outcome(OutcomeStatus.REJECTED, f"{change.load_balancer}: {reason}")
        backend = settings.backend_of(change.listener, removal=removal)
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
