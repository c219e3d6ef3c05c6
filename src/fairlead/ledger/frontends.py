"""Records in the status of a load balancer: the requests to its providers with their answers, and held changes.

``status.provisioned`` has an entry for each provider, with a field manager of its own, so that no provider can change
the entry of another. ``status.held`` lists held changes, for ``plan`` and ``explain``: only the hub's memory has them
all. In: specs, answers, held rows. Out: the same after a restart. Never: a write of what is already recorded, or of a
replica that does not lead: each write is made onto the version that was read before leadership was checked, so that
the API server refuses a late write of a suspended process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from fairlead.api.intent import HELD_LISTED, HeldChange, IntentStatus, Provisioned, asked_of
from fairlead.api.json_text import read_json
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.api.names import MANAGER_LEDGER
from fairlead.errors import Conflict, FairleadError, NotFound, Retry, Wait
from fairlead.kube.cluster import Cluster
from fairlead.model.change import Action, Held, Outcome, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.model.observed import UNFINISHED, Ensured
from fairlead.runtime.queue import KeyedLock

log = structlog.get_logger(__name__)

#: How often a write is attempted while others write the same object.
_ATTEMPTS = 4

ResourceOf = Callable[[str], AnyResource]
KnownObject = Callable[[LoadBalancerKey], KubeObject | None]


def unknown_object(key: LoadBalancerKey) -> None:
    """Return None: no cache has the object."""
    del key


class FrontendRecords:
    """The entries of one provider, by load balancer.

    ``resource_of``: the resource of a kind of intent. ``leads``: whether this replica leads now. ``known``: the cached
    object; the first write is made onto that version, and is refused when it is old.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        provider: str,
        resource_of: ResourceOf,
        leads: Callable[[], bool] = lambda: True,
        known: KnownObject = unknown_object,
    ) -> None:
        self._resource_of = resource_of
        self._known_object = known
        self._leads = leads
        self._cluster = cluster
        self._provider = provider
        self._nothing = Provisioned(provider)
        self._known: dict[LoadBalancerKey, Provisioned] = {}
        #: Entries of release 0.1, as the merge patch of the status that removes them.
        self._old: dict[LoadBalancerKey, JSONObject] = {}
        #: One write at a time for each load balancer, so that an older answer never replaces a newer one.
        self._turns = KeyedLock()

    def load(self, key: LoadBalancerKey, entry: Provisioned) -> None:
        """Load a recorded entry."""
        self._known[key] = msgspec.structs.replace(entry, serving=False)

    def load_old(self, key: LoadBalancerKey, old: JSONObject) -> None:
        """Have ``rewrite_old`` replace an entry of release 0.1; ``old`` is the patch of the status that removes it."""
        if old:
            self._old[key] = old

    def get(self, key: LoadBalancerKey) -> Provisioned:
        """Return the recorded entry; one without a state when there is none."""
        return self._known.get(key, self._nothing)

    def info(self, key: LoadBalancerKey) -> Mapping[str, str]:
        """Return the provider's own identity of a load balancer."""
        return self.get(key).info or {}

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget a load balancer that was deleted."""
        self._known.pop(key, None)
        self._old.pop(key, None)

    async def ensuring(self, spec: FrontendSpec, *, keeps_unfinished: bool = False) -> None:
        """Record the request to the provider before it is sent; earlier unanswered requests may be kept."""
        async with self._turns.hold(spec.key):
            known = self.get(spec.key)
            entry = msgspec.structs.replace(known, state="Ensuring", asked=asked_of(spec))
            if keeps_unfinished and known.state == "Ensuring" and known.asked != entry.asked:
                entry = msgspec.structs.replace(entry, info=_with_unfinished(known))
            if msgspec.structs.replace(known, state="Ensuring") != entry:
                # When only the state would change, the record of the last answer is as good as an intent.
                await self._write(spec.key, entry)

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Record the answer of the provider."""
        async with self._turns.hold(spec.key):
            known = self.get(spec.key)
            entry = Provisioned(
                self._provider,
                "Ensured",
                asked=asked_of(spec),
                addresses=list(answer.addresses) or None,
                info=(known.info if answer.info is None else dict(answer.info)) or None,
                epoch=known.epoch or answer.epoch,
            )
            if entry != known:
                await self._write(spec.key, entry)

    async def set_epoch(self, key: LoadBalancerKey, epoch: str) -> None:
        """Record the epoch of the provider in which its backends are registered."""
        async with self._turns.hold(key):
            known = self.get(key)
            if known.epoch != epoch and known.state:
                await self._write(key, msgspec.structs.replace(known, epoch=epoch))

    async def rewrite_old(self) -> None:
        """Rewrite entries of release 0.1 in today's form; those that cannot be written now wait for the next term."""
        for key in list(self._old):
            async with self._turns.hold(key):
                try:
                    if key in self._old:
                        await self._write(key, self.get(key))
                except FairleadError as error:
                    log.info("a record of release 0.1 is kept as it is", load_balancer=str(key), error=error.sentence)

    async def _write(self, key: LoadBalancerKey, entry: Provisioned) -> None:
        resource = self._resource_of(key.kind)
        # A LoadBalancer never changes its provider; for a TCPLoadBalancer the hub records which one serves it.
        written = msgspec.structs.replace(entry, serving=resource is LOAD_BALANCERS)
        status: JSONObject = {"provisioned": [msgspec.to_builtins(written)]}
        try:
            await self._apply(resource, key, status)
            self._known[key] = entry
            if (old := self._old.get(key)) is not None:
                # Only now: after a crash in between, both entries exist and are equal.
                await self._cluster.merge_patch(
                    resource, key.namespace, key.name, {"status": old}, subresource="status", manager=MANAGER_LEDGER
                )
                self._old.pop(key, None)
        except NotFound as error:
            raise Wait(f"{key} was deleted; its provider is not called", reason="Gone") from error

    async def _apply(self, resource: AnyResource, key: LoadBalancerKey, status: JSONObject) -> None:
        """Apply ``status`` onto the current version of the object; others may write other parts at any moment."""
        for attempt in range(1, _ATTEMPTS + 1):
            current = self._known_object(key) if attempt == 1 else None
            if current is None:
                current = await self._cluster.get(resource, key.namespace, key.name)
            if not self._leads():
                raise Retry(f"this replica does not lead; nothing is recorded for {key}", reason="NotLeading")
            version = current.metadata.resource_version
            meta = {"namespace": key.namespace, "name": key.name, "resourceVersion": version}
            body: JSONObject = {"metadata": meta, "status": status}
            try:
                await self._cluster.apply(resource, body, manager=ledger_manager(self._provider), subresource="status")
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return


def _with_unfinished(known: Provisioned) -> dict[str, str]:
    info = dict(known.info or {})
    before = read_json(info.get(UNFINISHED, "[]"), list[dict[str, str]]) or []
    asked = dict(known.asked.parameters or {}) if known.asked is not None else {}
    if asked not in before:
        before.append(asked)
    return {**info, UNFINISHED: msgspec.json.encode(before, order="sorted").decode()}


def ledger_manager(provider: str) -> str:
    """Return the field manager of a provider's entry in ``status.provisioned``."""
    return f"{MANAGER_LEDGER}-{provider}"


class MemoryLedger:
    """Remembers nothing beyond the tracker."""

    async def ensuring(self, spec: FrontendSpec) -> None:
        """Store nothing."""

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Store nothing."""

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget nothing: nothing was remembered."""

    async def record(self, spec: FrontendSpec, changes: Sequence[TargetChange]) -> Sequence[TargetChange]:
        """Store nothing."""
        del spec
        return changes

    async def settle(
        self, spec: FrontendSpec, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Store nothing."""
        del spec, changes
        return outcomes


class HeldRows(msgspec.Struct, frozen=True):
    """The held changes of one load balancer: their number, and the first or all of them."""

    rows: Sequence[Held] = ()
    total: int = 0


NO_ROWS = HeldRows()


def held_before(key: LoadBalancerKey, status: IntentStatus) -> HeldRows:
    """Return the held changes in the status of ``key``, as the process that wrote it held them."""
    rows = held_changes(key, status.held or ())
    return HeldRows(rows, max(status.held_total, len(rows))) if rows else NO_ROWS


def held_wire(held: Sequence[Held]) -> list[HeldChange] | None:
    """Return the first of ``held`` as a status lists them; None when nothing is held."""
    rows = [
        HeldChange(
            action=row.change.action.value,
            reason=row.change.reason.value,
            held_by=row.reason,
            message=row.message,
            protocol=row.change.listener.protocol.value,
            port=row.change.listener.port,
            address=row.change.key.address,
            backend_port=row.change.key.port,
            source=row.change.target.source,
            backend=row.change.listener.backend,
            owners=list(row.change.target.owners) or None,
        )
        for row in held[:HELD_LISTED]
    ]
    return rows or None


def held_changes(key: LoadBalancerKey, rows: Iterable[HeldChange]) -> tuple[Held, ...]:
    """Return the rows of load balancer ``key`` as its worker held them; rows of a newer release are left out."""
    return tuple(
        Held(
            TargetChange(
                key,
                ListenerKey(Protocol(row.protocol), row.port, row.backend),
                Target(TargetKey(row.address, row.backend_port), owners=tuple(row.owners or ()), source=row.source),
                Action(row.action),
                Reason(row.reason),
            ),
            row.held_by,
            row.message,
        )
        for row in rows
        if row.action in tuple(Action) and row.reason in tuple(Reason)
    )
