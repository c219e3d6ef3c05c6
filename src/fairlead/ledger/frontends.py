"""What is on record of a load balancer itself: that its provider was asked for it, and what it answered.

It stands in the status of the object that wants it, under a field manager of its own: in ``frontend``, and while it
moves from one provider to another, what the other one has stands beside it, in ``frontends``. In: specs and answers.
Out: the same after a restart. Never: one write for what is on record already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from fairlead.api.intent import Frontend
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import AnyResource, JSONObject
from fairlead.api.names import MANAGER_LEDGER
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import NotFound, Wait
from fairlead.ledger.store import Store
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured

_RESOURCES: Mapping[str, AnyResource] = {one.kind: one for one in (TCP_LOAD_BALANCERS, LOAD_BALANCERS)}
_DECODER = msgspec.json.Decoder(FrontendSpec)


class Frontends:
    """The frontends of one provider's load balancers, by key."""

    def __init__(self, *, store: Store, provider: str) -> None:
        self._store = store
        self._provider = provider
        self._known: dict[LoadBalancerKey, Frontend] = {}
        self._beside: set[LoadBalancerKey] = set()
        #: One write at a time for each, or an older word would land on a newer one.
        self._turns: dict[LoadBalancerKey, asyncio.Lock] = {}

    def stand_beside(self, key: LoadBalancerKey) -> None:
        """Leave ``frontend`` to the provider that has it: ours stands beside it from now on."""
        self._beside.add(key)

    def load(self, key: LoadBalancerKey, frontend: Frontend) -> None:
        """Take over what is on record."""
        self._known[key] = frontend

    def get(self, key: LoadBalancerKey) -> Frontend:
        """Return what is on record; an empty one when nothing is."""
        return self._known.get(key, _NOTHING)

    def info(self, key: LoadBalancerKey) -> Mapping[str, str]:
        """Return the provider's own identity of a load balancer."""
        return self.get(key).info or {}

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop one that is gone."""
        self._known.pop(key, None)
        self._beside.discard(key)
        self._turns.pop(key, None)

    async def ensuring(self, spec: FrontendSpec) -> None:
        """Record that the provider is about to be asked."""
        async with self._turn(spec.key):
            known = self.get(spec.key)
            wanted = msgspec.structs.replace(known, provider=self._provider, state="Ensuring", ensured=spec_text(spec))
            if msgspec.structs.replace(known, state="Ensuring") != wanted:
                # When only the state would change, the record of the last answer is as good as an intent.
                await self._write(spec.key, wanted)

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Record what it answered."""
        async with self._turn(spec.key):
            known = self.get(spec.key)
            info = known.info if answer.info is None else dict(answer.info)
            epoch = known.epoch or answer.epoch
            wanted = Frontend(
                self._provider, "Ensured", spec_text(spec), info or {}, list(answer.addresses), epoch=epoch
            )
            if wanted != known:
                await self._write(spec.key, wanted)

    async def lives(self, key: LoadBalancerKey, epoch: str) -> None:
        """Record in which life of the provider its backends are registered."""
        async with self._turn(key):
            known = self.get(key)
            if known.epoch != epoch and known.state:
                await self._write(key, msgspec.structs.replace(known, epoch=epoch))

    def _turn(self, key: LoadBalancerKey) -> asyncio.Lock:
        return self._turns.setdefault(key, asyncio.Lock())

    async def _write(self, key: LoadBalancerKey, frontend: Frontend) -> None:
        value: JSONObject = {
            "provider": frontend.provider,
            "state": frontend.state,
            "ensured": frontend.ensured,
            # A merge patch adds to maps; what is not there any more must be named.
            "info": {**dict.fromkeys(self.info(key)), **(frontend.info or {})},
            "addresses": frontend.addresses,
            "epoch": frontend.epoch,
        }
        resource = _RESOURCES[key.kind]
        place: JSONObject = {"frontends": {self._provider: value}} if key in self._beside else {"frontend": value}
        try:
            await self._store.merge_patch(
                resource,
                key.namespace,
                key.name,
                {"status": place},
                subresource="status",
                manager=MANAGER_LEDGER,
            )
        except NotFound as error:
            raise Wait(f"{key} is gone; nothing is made for it", reason="Gone") from error
        self._known[key] = frontend


def spec_text(spec: FrontendSpec) -> str:
    """Write a spec so that equal ones are the same text."""
    return msgspec.json.encode(spec, order="sorted").decode()


def spec_of_text(text: str) -> FrontendSpec | None:
    """Read it; None when there is none, or an incompatible release wrote it."""
    try:
        return _DECODER.decode(text) if text else None
    except msgspec.DecodeError:
        return None


_NOTHING = Frontend()
