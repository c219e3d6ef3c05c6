"""The record of a load balancer itself: that its provider was asked for it, and what it answered.

It is an entry of ``status.provisioned`` in the object that wants it; each provider has an entry and a field manager of
its own, so that none can change the entry of another. In: specs and answers. Out: the same after a restart. Never: a
write for what is on record already, nor one of a replica that does not lead: each is made onto the version that was
read before the question who leads, so that one that a suspended process sends late is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import structlog

from fairlead.api.intent import Provisioned, asked_of
from fairlead.api.json_text import read_json
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.api.names import MANAGER_LEDGER
from fairlead.errors import Conflict, FairleadError, NotFound, Retry, Wait
from fairlead.ledger.store import RecordStore
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import UNFINISHED, Ensured
from fairlead.runtime.queue import KeyedLock

log = structlog.get_logger(__name__)

#: How often one write is made when others write the same object at the same time.
_ATTEMPTS = 4

ResourceOf = Callable[[str], AnyResource]
KnownObject = Callable[[LoadBalancerKey], KubeObject | None]


def unknown_object(key: LoadBalancerKey) -> None:
    """Return that no cache has the object."""
    del key


class FrontendRecords:
    """The entries of one provider, by load balancer.

    ``resource_of``: the resource of a kind of intent. ``leads``: whether this replica leads at this very moment.
    ``known``: the object as a cache has it; the first write is made onto that version, and is refused when it is old.
    """

    def __init__(
        self,
        *,
        store: RecordStore,
        provider: str,
        resource_of: ResourceOf,
        leads: Callable[[], bool] = lambda: True,
        known: KnownObject = unknown_object,
    ) -> None:
        self._resource_of = resource_of
        self._known_object = known
        self._leads = leads
        self._store = store
        self._provider = provider
        self._nothing = Provisioned(provider)
        self._known: dict[LoadBalancerKey, Provisioned] = {}
        #: What release 0.1 wrote, as the merge patch of the status that removes it.
        self._old: dict[LoadBalancerKey, JSONObject] = {}
        #: One write at a time for each, or an older answer would replace a newer one.
        self._turns = KeyedLock()

    def load(self, key: LoadBalancerKey, entry: Provisioned) -> None:
        """Take over what is on record."""
        self._known[key] = msgspec.structs.replace(entry, serving=False)

    def load_old(self, key: LoadBalancerKey, old: JSONObject) -> None:
        """Have ``rewrite_old`` replace what release 0.1 wrote: ``old`` is the patch of the status that removes it."""
        if old:
            self._old[key] = old

    def get(self, key: LoadBalancerKey) -> Provisioned:
        """Return what is on record; an entry without a state when nothing is."""
        return self._known.get(key, self._nothing)

    def info(self, key: LoadBalancerKey) -> Mapping[str, str]:
        """Return the provider's own identity of a load balancer."""
        return self.get(key).info or {}

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop one that is gone."""
        self._known.pop(key, None)
        self._old.pop(key, None)

    async def ensuring(self, spec: FrontendSpec, *, keeps_unfinished: bool = False) -> None:
        """Record that the provider is about to be asked; what it was asked and has not answered may be kept."""
        async with self._turns.hold(spec.key):
            known = self.get(spec.key)
            wanted = msgspec.structs.replace(known, state="Ensuring", asked=asked_of(spec))
            if keeps_unfinished and known.state == "Ensuring" and known.asked != wanted.asked:
                wanted = msgspec.structs.replace(wanted, info=_with_unfinished(known))
            if msgspec.structs.replace(known, state="Ensuring") != wanted:
                # When only the state would change, the record of the last answer is as good as an intent.
                await self._write(spec.key, wanted)

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Record what it answered."""
        async with self._turns.hold(spec.key):
            known = self.get(spec.key)
            wanted = Provisioned(
                self._provider,
                "Ensured",
                asked=asked_of(spec),
                addresses=list(answer.addresses) or None,
                info=(known.info if answer.info is None else dict(answer.info)) or None,
                epoch=known.epoch or answer.epoch,
            )
            if wanted != known:
                await self._write(spec.key, wanted)

    async def set_epoch(self, key: LoadBalancerKey, epoch: str) -> None:
        """Record in which life of the provider its backends are registered."""
        async with self._turns.hold(key):
            known = self.get(key)
            if known.epoch != epoch and known.state:
                await self._write(key, msgspec.structs.replace(known, epoch=epoch))

    async def rewrite_old(self) -> None:
        """Write what release 0.1 wrote in the form of today; what cannot be written now is left for the next term."""
        for key in list(self._old):
            async with self._turns.hold(key):
                try:
                    if key in self._old:
                        await self._write(key, self.get(key))
                except FairleadError as error:
                    log.info("a record of release 0.1 stays as it is", load_balancer=str(key), error=error.sentence)

    async def _write(self, key: LoadBalancerKey, entry: Provisioned) -> None:
        resource = self._resource_of(key.kind)
        # A LoadBalancer stays with its provider for life; of a TCPLoadBalancer the hub records who serves it.
        written = msgspec.structs.replace(entry, serving=resource is LOAD_BALANCERS)
        status: JSONObject = {"provisioned": [msgspec.to_builtins(written)]}
        try:
            await self._apply(resource, key, status)
            self._known[key] = entry
            if (old := self._old.get(key)) is not None:
                # Only now: after a crash in between, both are there and say the same.
                await self._store.merge_patch(
                    resource, key.namespace, key.name, {"status": old}, subresource="status", manager=MANAGER_LEDGER
                )
                self._old.pop(key, None)
        except NotFound as error:
            raise Wait(f"{key} is gone; nothing is made for it", reason="Gone") from error

    async def _apply(self, resource: AnyResource, key: LoadBalancerKey, status: JSONObject) -> None:
        """Own ``status`` of the object as it is now; other parts of it may be written by others at any moment."""
        for attempt in range(1, _ATTEMPTS + 1):
            current = self._known_object(key) if attempt == 1 else None
            if current is None:
                current = await self._store.get(resource, key.namespace, key.name)
            if not self._leads():
                raise Retry(f"this replica does not lead; nothing is recorded of {key}", reason="NotLeading")
            version = current.metadata.resource_version
            meta = {"namespace": key.namespace, "name": key.name, "resourceVersion": version}
            body: JSONObject = {"metadata": meta, "status": status}
            try:
                await self._store.apply(resource, body, manager=ledger_manager(self._provider), subresource="status")
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
