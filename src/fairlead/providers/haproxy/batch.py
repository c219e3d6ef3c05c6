"""Makes many changes in few conversations, and verifies them.

    read       what is there (1)
    change     all commands of all changes, and read back in the same line (2)
    delete     the drained ones without sessions, and read back (3, only when something is removed)
    repeat     only changes without effect, one by one, to learn what HAProxy says about each

In: changes in one backend. Out: outcomes in their order. Never: a success that was not read back, and never a
success in a process that is stopping.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.errors import Retry
from fairlead.model.change import DONE, Outcome, OutcomeStatus
from fairlead.providers.haproxy.authorities import load_authority
from fairlead.providers.haproxy.commands import ServerChange, commands_for, is_done, takes_over, waits_for_sessions
from fairlead.providers.haproxy.names import untagged
from fairlead.providers.haproxy.readback import no_backend, run_and_read
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.snapshot import BackendSnapshot, Server

_RETRY_S = 0.5
_RETRY_CUT_S = 0.1
#: After so many changes in a row with the same refusal the rest of the batch is not repeated one by one.
_MAX_SAME_REFUSALS = 3
#: What HAProxy prints when a command did what it should.
_SUCCESS_MESSAGES = ("New server registered.", "Server deleted.", "No such server.")


async def run_batch(api: RuntimeApi, backend: str, changes: Sequence[ServerChange]) -> list[Outcome]:
    """Make all changes in one backend, in one conversation; returns their outcomes.

    Raises:
        Retry: HAProxy does not answer, or was reloaded during the batch.
    """
    async with api.lock:
        removing = any(change.removes for change in changes)
        first = now = await run_and_read(api, backend, sessions=removing)
        if first.servers is None:
            return [_without_backend(change, api, backend) for change in changes]
        if not removing and any(_outdated(first, change) for change in changes):
            removing, first = True, await run_and_read(api, backend, sessions=True)
            now = first
        for name, bundle in _authorities(changes).items():
            await load_authority(api, name, bundle, epoch=first.epoch)
        # A removal may take two turns: stop new sessions, see whether any are left, delete.
        for _ in range(2 if removing else 1):
            commands = [text for change in changes for text in _commands(now, change)]
            if not commands:
                break
            now = await run_and_read(api, backend, commands, sessions=removing)
            if now.epoch != first.epoch or now.stopping or now.servers is None:
                raise _reloaded(api)
        if now.stopping:
            raise _reloaded(api)
        return await _outcomes(api, changes, now)


def _authorities(changes: Sequence[ServerChange]) -> dict[str, str]:
    """Return the bundle of each authority that servers to be added are checked with, by its name."""
    added = [change for change in changes if not change.removes and not change.drains]
    return {change.authority: bundle for change in added if (bundle := change.settings.authority)}


async def _outcomes(api: RuntimeApi, changes: Sequence[ServerChange], now: BackendSnapshot) -> list[Outcome]:
    outcomes: list[Outcome] = []
    same_refusals, last_refusal = 0, ""
    for change in changes:
        outcome = _outcome_of(change, now)
        if outcome is None and same_refusals < _MAX_SAME_REFUSALS:
            outcome, refusal = await _repeat(api, change)
            same_refusals = same_refusals + 1 if refusal and refusal == last_refusal else int(bool(refusal))
            last_refusal = refusal
        # Else the whole backend is refused for one reason: to repeat another hundred commands would only load HAProxy.
        outcomes.append(outcome or _no_effect(change, last_refusal))
    return outcomes


async def _repeat(api: RuntimeApi, change: ServerChange) -> tuple[Outcome, str]:
    """Repeat one change alone, so that HAProxy's messages (also returned) are known to be about it."""
    snapshot = await run_and_read(api, change.backend, sessions=True)
    snapshot = await run_and_read(api, change.backend, _commands(snapshot, change), sessions=True)
    outcome = _outcome_of(change, snapshot)
    if outcome is not None:
        return outcome, ""
    refusal = "; ".join(message for message in snapshot.messages if message not in _SUCCESS_MESSAGES)[:300]
    return _no_effect(change, refusal), refusal


def _outcome_of(change: ServerChange, now: BackendSnapshot) -> Outcome | None:
    """Return what the servers that were read back mean for their change; None when the change had no effect."""
    server, outdated = _server(now, change), _outdated(now, change)
    if is_done(change, server, outdated):
        return DONE
    return _waiting(change, server, outdated) if waits_for_sessions(change, server, outdated) else None


def _no_effect(change: ServerChange, refusal: str) -> Outcome:
    because = f": {refusal}" if refusal else ", and HAProxy does not say why"
    return Outcome(
        OutcomeStatus.RETRY,
        f"{change.change.key} on {change.change.load_balancer}: {change.change.action} had no effect on HAProxy server "
        f"{change.path}{because}",
    )


def _waiting(change: ServerChange, server: Server | None, outdated: Sequence[Server]) -> Outcome:
    target = change.change.key
    if not change.removes and not takes_over(change, server):
        return Outcome(
            OutcomeStatus.RUNNING,
            f"{target}: its health check or PROXY protocol has changed; HAProxy server {change.path} takes over when "
            f"its check passes, or after {change.settings.drain_timeout_s:g} s",
            _RETRY_S,
        )
    leaving = [*([server] if server is not None and change.removes else []), *outdated]
    sessions = sum(max(0, each.sessions) for each in leaving)
    if change.cuts_sessions:
        return Outcome(
            OutcomeStatus.RUNNING, f"{target}: its drain time is over, {sessions} sessions are cut", _RETRY_CUT_S
        )
    text = (
        f"{target} gets no new sessions; {sessions} are still open, it is removed when they end"
        if change.removes
        else f"{target} is served by HAProxy server {change.path}; {sessions} sessions of the earlier one are still "
        "open, which is removed when they end"
    )
    return Outcome(OutcomeStatus.RUNNING, f"{text} or after {change.settings.drain_timeout_s:g} s", _RETRY_S)


def _without_backend(change: ServerChange, api: RuntimeApi, backend: str) -> Outcome:
    if change.removes or change.drains:
        return DONE
    return Outcome(OutcomeStatus.RETRY, no_backend(api.path, backend))


def _reloaded(api: RuntimeApi) -> Retry:
    return Retry(
        f"HAProxy at {api.path} was reloaded meanwhile; everything is registered again", reason="HAProxyReloaded"
    )


def _commands(snapshot: BackendSnapshot, change: ServerChange) -> list[str]:
    return commands_for(change, _server(snapshot, change), _outdated(snapshot, change))


def _server(snapshot: BackendSnapshot, change: ServerChange) -> Server | None:
    return (snapshot.servers or {}).get(change.name)


def _outdated(snapshot: BackendSnapshot, change: ServerChange) -> list[Server]:
    """Return the servers of the same target whose names stand for an earlier check or protocol."""
    return [server for server in snapshot.by_target.get(untagged(change.name), ()) if server.name != change.name]
