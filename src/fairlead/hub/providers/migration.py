"""Who serves a load balancer whose class names another provider now?

    asked of the new one ──► has all of it ──► on record ──► told to users ──► their time to follow ──► the old one goes
    └────────────── the old one serves, and follows its targets ───────────────────────────────────┘

In: a view, what was built of it, the engines. Out: wishes in their trackers, and what is still missing. A new one that
is refused or fails keeps the old one serving for ever. After a crash the same questions have the same answers: who
serves is on record, and so is whatever a provider that keeps nothing for us was asked for. Never: a load balancer that
nobody has whole.
"""

from __future__ import annotations

import msgspec

from fairlead.api.tcploadbalancer import Allocation
from fairlead.errors import FairleadError
from fairlead.hub.intents.tcp.status import as_recorded
from fairlead.hub.intents.tcp.views import with_accepted_spec
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.hub.tenants.address_allocator import AddressAllocator
from fairlead.model.condition import ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.translate.tcp import translate_tcp
from fairlead.translate.view import TCPView, Translation

_NO_ALLOCATION = Allocation()
#: How soon to look again while somebody is on their way in or out.
LOOK_AGAIN_S = 0.5


class ProviderMigration:
    """Puts wishes into trackers, and takes them out again once they are not needed any more."""

    def __init__(self, *, engines: ProviderRegistry, book: AddressAllocator, clock: Clock) -> None:
        self._engines = engines
        self._book = book
        self._clock = clock
        #: Since when (monotonic seconds) users have been told of the new one.
        self._told_since_s: dict[LoadBalancerKey, float] = {}

    def before(self, view: TCPView, built: Translation) -> Translation | None:
        """Return what serves until the new provider does; None when nothing moves, or nobody is served yet."""
        status = view.load_balancer.status
        if built.desired is None or status.provider in ("", built.provider) or status.provider not in self._engines:
            return None
        accepted = with_accepted_spec(view)
        return translate_tcp(accepted) if accepted is not None and _addresses(view) else None

    async def bring(self, view: TCPView, built: Translation, before: Translation) -> str:
        """Wish for both; returns what the new one still lacks, empty when it has all of it."""
        self._put(view, before)
        if built.desired is None or built.desired.paused:
            return "it is paused"
        self._put(view, built)
        return await self._lacks(view.key, self._engines[built.provider], built.desired)

    def settle(self, view: TCPView, built: Translation) -> bool:
        """Wish for it where it is, and for nothing elsewhere; True while somebody is on their way out."""
        if built.desired is None:
            return False
        self._put(view, built)
        others = (name for name in self._engines if name != built.provider)
        leaving = [name for name in others if view.key in self._engines[name].tracker]
        if not leaving:
            self._told_since_s.pop(view.key, None)
            return False
        told = _is_told(view)
        now_s = self._clock.monotonic()
        since_s = self._told_since_s.setdefault(view.key, now_s) if told else now_s
        for name in leaving:
            engine = self._engines[name]
            side = engine.tracker.side(view.key)
            last = side.desired if side is not None else None
            if told and (last is None or not _addresses(view) or now_s - since_s >= last.drain_s):
                changed = engine.tracker.remove(view.key)
            else:
                changed = last is not None and engine.tracker.put(_with_targets(last, built.desired))
            if changed:
                engine.worker.trigger()
        return True

    def prepare(self, view: TCPView, built: Translation) -> None:
        """Wish for what comes next where we only serve and do not decide, as soon as it is on record what it gets."""
        engine = self._engines.get(built.provider)
        if built.desired is None or engine is None or engine.durable:
            return
        given = {(port.protocol, port.port) for port in view.allocation.ports}
        asked = {(port.protocol, port.port) for port in view.load_balancer.spec.ports}
        match engine.provider.capabilities.allocation:
            case AllocationKind.ADDRESS if not view.allocation.address:
                return
            case AllocationKind.PROXY_PORT if not asked <= given:
                return
            case _:
                self._put(view, built)

    def keep(self, view: TCPView, built: Translation) -> None:
        """Wish for it where it is, and for nothing else anywhere."""
        self._put(view, built)

    def allocation(self, view: TCPView) -> Allocation:
        """Return what is to be on record as its own: nothing that is in use is given up."""
        had = view.load_balancer.status.allocation
        if view.allocation != _NO_ALLOCATION:
            return view.allocation
        if had == _NO_ALLOCATION:
            self._book.release(view.key)
        in_use = any(_allocates(engine) and view.key in engine.tracker for engine in self._engines.values())
        return had if in_use else _NO_ALLOCATION

    def done_with(self, view: TCPView, built: Translation) -> list[str]:
        """Return the providers that are on record and have let go."""
        found: list[str] = []
        for name in sorted(view.load_balancer.status.recorded_providers - {built.provider}):
            engine = self._engines.get(name)
            if engine is not None and engine.loaded and view.key not in engine.tracker:
                found.append(name)
        return found

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop what is known of one that is gone."""
        self._told_since_s.pop(key, None)

    # --- inside -----------------------------------------------------------------------------------------------

    def _put(self, view: TCPView, built: Translation) -> None:
        engine = self._engines.get(built.provider)
        if built.desired is None or engine is None:
            return
        status = view.load_balancer.status
        if isinstance(engine, DurableRunner) and (
            built.provider in status.frontends or status.provider not in ("", built.provider)
        ):
            engine.ledger.frontends.stand_beside(view.key)
        if engine.tracker.put(built.desired):
            engine.worker.trigger()

    async def _lacks(self, key: LoadBalancerKey, engine: ProviderRunner, desired: DesiredLoadBalancer) -> str:
        side = engine.tracker.side(key)
        if not engine.loaded or side is None or side.done_spec != desired.spec or side.ensure_again:
            return "it is not made yet"
        wanted = [
            side.done.get(listener, {}).get(at)
            for listener, targets in desired.targets.items()
            for at, target in targets.items()
            if not target.draining
        ]
        missing = sum(one is None or one.unsure or one.deregistering for one in wanted)
        if missing:
            return f"{missing} of {len(wanted)} targets are not registered yet"
        if desired.stale:
            return desired.stale
        try:
            observed = await engine.provider.observe(key)
        except FairleadError as error:
            return error.sentence
        addresses = observed.addresses if observed is not None else ()
        if isinstance(engine, DurableRunner):
            frontend = engine.ledger.frontends.get(key)
            observed = as_recorded(observed, frontend)
            addresses = addresses or tuple(frontend.addresses or ())
        if observed is None or not observed.programmed:
            return observed.message or "not every proxy has it yet" if observed is not None else "it is not made yet"
        return "" if addresses else observed.message or "it has no address yet"


def _addresses(view: TCPView) -> list[str]:
    """Return the addresses that users have been told."""
    return [one.address for one in view.load_balancer.status.load_balancer.ingress or ()]


def _is_told(view: TCPView) -> bool:
    """Say whether users know where it is now: that is written together with its being programmed, not before."""
    load_balancer = view.load_balancer
    return not _addresses(view) or any(
        one.type == ConditionType.PROGRAMMED
        and one.status == "True"
        and one.observed_generation == load_balancer.metadata.generation
        for one in load_balancer.status.conditions or ()
    )


def _with_targets(last: DesiredLoadBalancer, now: DesiredLoadBalancer) -> DesiredLoadBalancer:
    """Let one that is leaving follow its targets: clients that know only its address are served until it goes."""
    targets = {listener: now.targets.get(listener, found) for listener, found in last.targets.items()}
    return msgspec.structs.replace(last, targets=targets, stale=now.stale)


def _allocates(engine: ProviderRunner) -> bool:
    return engine.provider.capabilities.allocation is not AllocationKind.NONE
