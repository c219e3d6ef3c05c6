"""Faults that Fairlead has had, put back one at a time: proof that the simulator finds them.

In: the name of a fault. Out: the code of this process with that fault. Each fault is the absence of one rule, so that
it is put back where the rule is: by a change of the source of one function, or by another function in its place.
A change whose place is gone raises ``LookupError``.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from fairlead.api import json_text, tenant
from fairlead.errors import NotFound
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.kube import lease, transport
from fairlead.kube.cache import WatchCache
from fairlead.providers.zones.peers import PeerLeases
from fairlead.providers.zones.plan import _Zone
from fairlead.providers.zones.provider import DNSProvider
from fairlead.runtime import background, queue
from fairlead.runtime import loop as worker_loop
from fairlead.sync import plan as guard
from fairlead.translate import endpoints

Fault = Callable[[], None]
#: The source of each function that was changed here.
_SOURCES: dict[Any, str] = {}


def edit(function: Any, old: str, new: str) -> None:
    """Replace ``old`` by ``new`` in the source of ``function``, for all who have imported it.

    Raises:
        LookupError: ``old`` does not occur exactly once.
    """
    source = _SOURCES.get(function) or textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise LookupError(f"{function.__qualname__} has changed: {old!r} occurs {source.count(old)} times")
    scope: dict[str, Any] = {}
    source = _SOURCES[function] = source.replace(old, new)
    text = f"from __future__ import annotations\n{source}"
    exec(compile(text, inspect.getsourcefile(function) or "", "exec"), function.__globals__, scope)
    function.__code__ = scope[function.__name__].__code__


def _unsupervised() -> None:
    edit(background.keep, "if isinstance(error, passes):", "if isinstance(error, Exception):")


def any_404_is_gone() -> None:
    """A 404 counts as "the object does not exist", whichever server answers."""
    real = transport.error_from_answer

    def translate(call: Any, code: int, body: bytes, **options: Any) -> Any:
        if code == 404:
            return NotFound(f"Cannot {call.action}: there is no such object.")
        return real(call, code, body, **options)

    transport.error_from_answer = translate


def unreadable_bytes_end_tasks() -> None:
    """JSON that is nested too deeply, or not UTF-8, raises what the decoder raises, and tasks are not restarted."""
    edit(json_text.decode, "except RecursionError as error:", "except () as error:")
    edit(json_text.decode, "except (ValueError, OverflowError) as error:", "except () as error:")
    _unsupervised()


def unreadable_does_not_exist() -> None:
    """What cannot be read at the start of a hub does not exist."""
    WatchCache.remains = lambda _self: {}  # type: ignore[method-assign]


def new_lease_begins_at_one() -> None:
    """The epoch of a new lease is lower than those on record, and a candidate does not wait for the former leader."""

    async def load(self: Any) -> None:
        await self._inventory.refresh()
        self._term = await self._raise_epoch(0)
        self._begin(self.durable.values())

    ProviderRegistry.load = load  # type: ignore[method-assign]
    ProviderRegistry._note_epoch = lambda _self, _epoch: None  # type: ignore[method-assign]
    edit(lease.LeaderElector._other_may_lead, "< self._renew_s", "< self._retry_s * 1.5")


def term_begins_with_a_late_watch() -> None:
    """A new leader decides on what its watches have shown so far."""

    async def refresh(_self: Any) -> None:
        return None

    Inventory.refresh = refresh  # type: ignore[method-assign]


def pauses_overflow() -> None:
    """A pause is a power of the count of failures, without a bound."""
    edit(queue.doubled_s, "min(max(failures - 1, 0), _MOST_DOUBLINGS)", "max(failures - 1, 0)")
    _unsupervised()


def refused_tenant_owns() -> None:
    """A Tenant that is refused owns the namespace all the same."""
    tenant.Tenant.refused = property(lambda _self: False)  # type: ignore[assignment,method-assign]
    edit(Inventory.tenant_of, '(tenant.accepted != "True", tenant.age_order)', "tenant.metadata.name")


def refused_once_is_forgotten() -> None:
    """What an API refuses is never tried again."""
    place = "self._queue.retry(key, limit_s=BACKOFF_LIMIT_S if is_right else REFUSED_RETRY_S)"
    edit(worker_loop._Loop._run, place, "self._queue.retry(key) if is_right else self._queue.forget(key)")


def regions_have_two_hubs() -> None:
    """A hub without a region decides about load balancers of a region that has a hub of its own."""
    Inventory.decides = lambda _self, _key: True  # type: ignore[method-assign]


def late_renewal_goes_on() -> None:
    """A renewal that succeeds after the term had lapsed prolongs it."""
    edit(lease.LeaderElector._keep, "if not self.is_leader:", "if False:")


def terminating_pods_get_nothing() -> None:
    """Without a ready pod, those that terminate and still serve get no connections."""
    edit(endpoints.in_service, "return ready or frozenset(", "return ready or frozenset() and frozenset(")


def reported_departures_are_doubted() -> None:
    """The guard keeps the last target, also when it was reported as terminating."""
    edit(guard._last_targets, "kept = [row for row in rows if row.reason is Reason.TERMINATING]", "kept = []")
    edit(guard._last_targets, " for row in rows if row.reason is not Reason.TERMINATING]", " for row in rows]")


def changes_wake_no_waiters() -> None:
    """What a load balancer gives back by a change wakes none of those that wait."""
    place = "if keys := self._waiting - {but}:"
    edit(AddressAllocator._wake_waiting, place, 'if "released" not in cause and (keys := self._waiting - {but}):')


def unread_time_counts_for_leases() -> None:
    """A lease expires also in the time in which the zone could not be read."""
    edit(PeerLeases._has_expired, " and now_s - before.read_s <= duration_s / 2", "")


def no_lease_has_expired() -> None:
    """A hub without a lease counts as one whose lease has expired."""
    edit(PeerLeases._has_expired, "return False", "return True")


def withdrawals_overtake_others() -> None:
    """An address is withdrawn although the set has changed since it was read."""
    edit(_Zone._withdraw, "{change.key, *leases}", "leases")
    edit(_Zone._withdraw, "{key, *leases}", "leases")


def shared_values_have_one_owner() -> None:
    """A removed address takes the mark and value of another hub with it."""
    edit(_Zone.remove, "any(mark.value == mine.value and mark != mine for mark in marks)", "False")


def the_preferred_address_is_removed_first() -> None:
    """The last address that serves is removed before those that do not serve return."""
    DNSProvider._perhaps_last = lambda _self, _keys: []  # type: ignore[method-assign]


#: The faults by name.
FORMER: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        any_404_is_gone,
        unreadable_bytes_end_tasks,
        unreadable_does_not_exist,
        new_lease_begins_at_one,
        term_begins_with_a_late_watch,
        pauses_overflow,
        refused_tenant_owns,
        refused_once_is_forgotten,
        regions_have_two_hubs,
        late_renewal_goes_on,
        terminating_pods_get_nothing,
        reported_departures_are_doubted,
        changes_wake_no_waiters,
        unread_time_counts_for_leases,
        no_lease_has_expired,
        withdrawals_overtake_others,
        shared_values_have_one_owner,
        the_preferred_address_is_removed_first,
    )
}
