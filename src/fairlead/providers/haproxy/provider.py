"""How is a HAProxy a provider?

In: the ``Provider`` protocol. Out: servers in backends that HAProxy's own configuration has, added and removed through
its Runtime API and read back each time. Ours are known by their names (``names``); everything else in the same backend
is left alone. After a reload ``observe`` answers another ``epoch`` and ``on_change`` is called, so that the core
registers again what its ledger holds; nothing is repaired here, since only the ledger knows what is still wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from fairlead.errors import BadConfiguration, Retry, Terminal
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.haproxy.batch import no_backend, read, run_rows
from fairlead.providers.haproxy.names import prefix, server_name, target_of
from fairlead.providers.haproxy.readback import read_back
from fairlead.providers.haproxy.rows import Row, refusal
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import BACKEND_PARAMETERS, Settings, settings_from_spec
from fairlead.providers.haproxy.state import Snapshot
from fairlead.providers.haproxy.watch import Watch
from fairlead.runtime.clock import Clock, SystemClock

OLDEST = (2, 6)
_MOST_GONE = 4096

log = structlog.get_logger(__name__)

Place = tuple[LoadBalancerKey, ListenerKey, TargetKey]


class HAProxyProvider:
    """Load balancers that are backends of HAProxies; ``installation`` tells two of us on one HAProxy apart."""

    def __init__(self, *, installation: str = "", clock: Clock | None = None, look_every_s: float = 0.5) -> None:
        self._installation = installation
        self._clock: Clock = clock or SystemClock()
        self._settings: dict[LoadBalancerKey, Settings] = {}
        self._gone: dict[LoadBalancerKey, None] = {}
        self._wishes: dict[LoadBalancerKey, dict[tuple[ListenerKey, TargetKey], Target]] = {}
        self._removing_since_s: dict[Place, float] = {}
        #: Whose each backend is: two load balancers in one would get each other's traffic.
        self._holders: dict[tuple[str, str], LoadBalancerKey] = {}
        self._apis: dict[str, RuntimeApi] = {}
        self._watch = Watch(
            observe=self.observe, keys=lambda: list(self._settings), clock=self._clock, interval_s=look_every_s
        )

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to watch for reloads and drift."""
        self._watch.start()

    async def close(self) -> None:
        """Stop watching; servers stay as they are."""
        await self._watch.close()

    def recall(self, spec: FrontendSpec, info: Mapping[str, str]) -> None:
        """Take back a load balancer of an earlier process; its servers are found by their names, where they were."""
        try:
            settings = settings_from_spec(spec).where_it_was(info)
        except Terminal as error:
            # One bad object must not keep the others from being taken back; this one waits for a good ensure.
            log.warning("not taken back", load_balancer=str(spec.key), why=error.sentence)
            return
        self._settings[spec.key] = settings
        if info:
            self._hold(spec.key, settings)

    def account(self, spec: FrontendSpec) -> str:
        """Return its HAProxy: each answers, or hangs, on its own."""
        return spec.parameters.get("socket", "")

    # --- the Provider protocol --------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """Say what HAProxy can do at run time."""
        return Capabilities(
            ipv6=True,
            proxy_protocol=True,
            weights=True,
            class_parameters=frozenset({"socket", "installation"}),
            max_batch=500,
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Tell ``notify`` of reloads, drift, health and sessions that ended."""
        self._watch.subscribe(notify)

    async def validate(self, spec: FrontendSpec, *, old: FrontendSpec | None = None) -> None:
        """Refuse parameters that cannot be meant; HAProxy itself is not asked."""
        del old
        settings_from_spec(spec)

    async def validate_backends(
        self,
        spec: FrontendSpec,
        *,
        backend_type: str,
        parameters: Mapping[str, str],
        old_parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse parameters of backends that nobody would read."""
        del backend_type, old_parameters
        if unknown := sorted(parameters.keys() - BACKEND_PARAMETERS):
            raise BadConfiguration(
                f"{spec.key}: parameters.{unknown[0][:60]} of backends is unknown to provider haproxy; there is "
                f"{', '.join(sorted(BACKEND_PARAMETERS))}"
            )

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Check that HAProxy is there, new enough, and has the backends; it is not changed."""
        settings = settings_from_spec(spec)
        self._must_be_free(spec.key, settings)
        await self._must_not_move(spec.key, settings)
        api = self._api(settings)
        epoch = ""
        for backend in sorted(set(settings.backends.values())):
            async with api.turn:
                found = await read(api, backend)
            if _version(found) < OLDEST:
                raise Retry(f"HAProxy at {settings.socket} is {found.version}; 2.6 or newer is needed")
            if found.servers is None:
                raise Retry(f"{spec.key}: {no_backend(settings.socket, backend)}", reason="BackendNotFound")
            epoch = epoch or found.epoch
        # Meanwhile another one may have come to hold it.
        self._must_be_free(spec.key, settings)
        self._settings[spec.key] = self._with_retired(settings, spec.key)
        self._hold(spec.key, settings)
        self._gone.pop(spec.key, None)
        return Ensured(settings.addresses, info=settings.info, epoch=epoch)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Change servers, few conversations for many rows; each outcome is what was read back."""
        outcomes: list[Outcome | None] = [None] * len(changes)
        groups: dict[tuple[str, str], list[tuple[int, Row]]] = {}
        for index, change in enumerate(changes):
            found = self._row(change)
            if isinstance(found, Outcome):
                outcomes[index] = found
            else:
                groups.setdefault((found.settings.socket, found.backend), []).append((index, found))

        async def run(socket: str, backend: str, rows: Sequence[tuple[int, Row]]) -> None:
            for (index, _), outcome in zip(rows, await self._run(socket, backend, rows), strict=True):
                outcomes[index] = outcome

        # Side by side, so that a HAProxy that does not answer holds up nobody else's.
        async with asyncio.TaskGroup() as tasks:
            for (socket, backend), rows in groups.items():
                tasks.create_task(run(socket, backend, rows))
        return [outcome for outcome in outcomes if outcome is not None]

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Read back one load balancer."""
        settings = self._settings.get(key)
        if settings is None:
            return None
        return await read_back(
            self._api(settings),
            key,
            settings,
            installation=self._installed_as(settings),
            wishes=frozenset(self._wishes.get(key, ())),
        )

    async def delete(self, key: LoadBalancerKey) -> None:
        """Remove all servers whose names say that they are this load balancer's; the backend itself stays."""
        settings = self._settings.get(key)
        if settings is None:
            return
        api = self._api(settings)
        for listener, backend in settings.backends.items():
            async with api.turn:
                found = await read(api, backend)
            begins = prefix(self._installed_as(settings), key, listener)
            named = {name: target_of(name, begins) for name in found.servers or ()}
            changes = [
                TargetChange(key, listener, Target(target), Action.DEREGISTER, Reason.OWNER_DELETED)
                for target in named.values()
                if target is not None
            ]
            left = [outcome for outcome in await self.apply(changes) if outcome.status is not OutcomeStatus.DONE]
            if left:
                raise Retry(f"{key}: {left[0].message}", after_s=left[0].retry_after_s)
        self.let_go(key)

    def let_go(self, key: LoadBalancerKey) -> None:
        """Know nothing of it any more, so that its backends may be another one's."""
        self._settings.pop(key, None)
        self._leave_places(key)
        self._wishes.pop(key, None)
        for place in [one for one in self._removing_since_s if one[0] == key]:
            del self._removing_since_s[place]
        self._gone[key] = None
        while len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]

    # --- inside -----------------------------------------------------------------------------------------------

    def _api(self, settings: Settings) -> RuntimeApi:
        return self._apis.setdefault(settings.socket, RuntimeApi(settings.socket))

    def _with_retired(self, settings: Settings, key: LoadBalancerKey) -> Settings:
        """Keep knowing where the listeners were that are no longer wanted: their servers have yet to be removed."""
        before = self._settings.get(key)
        if before is None or before.socket != settings.socket:
            return settings
        return msgspec.structs.replace(settings, backends={**before.backends, **settings.backends})

    def _installed_as(self, settings: Settings) -> str:
        return settings.installation or self._installation

    def _hold(self, key: LoadBalancerKey, settings: Settings) -> None:
        self._leave_places(key)
        self._holders.update(dict.fromkeys(settings.places, key))

    def _leave_places(self, key: LoadBalancerKey) -> None:
        for place in [place for place, holder in self._holders.items() if holder == key]:
            del self._holders[place]

    def _must_be_free(self, key: LoadBalancerKey, settings: Settings) -> None:
        for socket, backend in sorted(settings.places):
            holder = self._holders.get((socket, backend), key)
            if holder != key:
                raise Retry(
                    f"{key}: backend {backend} of HAProxy at {socket} serves {holder} already; give each its own "
                    "(parameters.backend of the class may hold {namespace} and {name})",
                    reason="Conflicted",
                )

    async def _must_not_move(self, key: LoadBalancerKey, settings: Settings) -> None:
        """Refuse another backend while servers of ours are in the one before: nobody would ever remove them."""
        before = self._settings.get(key)
        if before is None:
            return
        for listener, backend in before.backends.items():
            now = settings.backends.get(listener)
            if now is None or (before.socket, backend) == (settings.socket, now):
                continue
            api = self._api(before)
            try:
                async with api.turn:
                    found = await read(api, backend)
            except Retry as error:
                if error.reason != "HAProxyUnreachable":
                    raise
                # What was added at run time has gone with that process.
                continue
            begins = prefix(self._installed_as(before), key, listener)
            count = sum(target_of(name, begins) is not None for name in found.servers or ())
            if count:
                raise BadConfiguration(
                    f"{key}: its {count} servers are in backend {backend} of HAProxy at {before.socket} and serve on; "
                    f"they do not move to backend {now} at {settings.socket}. Take the change of the class's "
                    "parameters back, or delete the load balancer and make it again"
                )

    def _row(self, change: TargetChange) -> Row | Outcome:
        """Find the server of one change, or say at once what becomes of it."""
        settings = self._settings.get(change.load_balancer)
        if settings is None:
            if change.load_balancer in self._gone and change.action in (Action.DEREGISTER, Action.DRAIN):
                return DONE
            # Without its parameters nobody knows where it is; calling it removed would leak it.
            return Outcome(
                OutcomeStatus.RETRY, f"{change.key}: {change.load_balancer} has not been ensured yet; it is tried again"
            )
        removal = change.action in (Action.DEREGISTER, Action.DRAIN)
        if reason := refusal(change):
            # What can never have been added needs no removal.
            return DONE if removal else Outcome(OutcomeStatus.REJECTED, f"{change.load_balancer}: {reason}")
        backend = settings.backend_of(change.listener, removal=removal)
        if not backend:
            return Outcome(
                OutcomeStatus.RETRY, f"{change.key}: {change.load_balancer} has no listener {change.listener} yet"
            )
        name = server_name(self._installed_as(settings), change.load_balancer, change.listener, change.key)
        return Row(change, settings, backend, name, cut=self._over(change, settings))

    def _over(self, change: TargetChange, settings: Settings) -> bool:
        """Say whether the sessions of a removed target have had their time."""
        place = (change.load_balancer, change.listener, change.key)
        if change.action is not Action.DEREGISTER:
            self._removing_since_s.pop(place, None)
            return False
        since_s = self._removing_since_s.setdefault(place, self._clock.monotonic())
        return self._clock.monotonic() - since_s >= settings.drain_timeout_s

    async def _run(self, socket: str, backend: str, rows: Sequence[tuple[int, Row]]) -> list[Outcome]:
        api = self._apis.setdefault(socket, RuntimeApi(socket))
        try:
            async with api.turn:
                outcomes, _ = await run_rows(api, backend, [row for _, row in rows])
        except Retry as error:
            # Another HAProxy in the same batch has nothing to do with this one.
            return [Outcome(OutcomeStatus.RETRY, error.sentence, error.after_s or 0.0) for _ in rows]
        for (_, row), outcome in zip(rows, outcomes, strict=True):
            if outcome.status is OutcomeStatus.DONE:
                self._remember(row.change)
        return outcomes

    def _remember(self, change: TargetChange) -> None:
        wishes = self._wishes.setdefault(change.load_balancer, {})
        place = (change.listener, change.key)
        if change.action is Action.DEREGISTER:
            wishes.pop(place, None)
            self._removing_since_s.pop((change.load_balancer, *place), None)
        elif change.action is not Action.DRAIN and not change.target.draining:
            wishes[place] = change.target


def _version(snapshot: Snapshot) -> tuple[int, ...]:
    major, _, rest = snapshot.version.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else OLDEST


def create(*, installation: str = "", clock: Clock | None = None) -> HAProxyProvider:
    """Make the provider (entry point ``haproxy``)."""
    return HAProxyProvider(installation=installation, clock=clock)
