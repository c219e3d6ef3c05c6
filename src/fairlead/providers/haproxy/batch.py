"""How are many rows done in few conversations, and verified?

    read       what is there (1)
    change     all commands of all rows, and read back in the same line (2)
    delete     the drained ones without sessions, and read back (3, only when something is removed)
    ask again  only rows without effect, one by one, to learn HAProxy's own words about each

In: rows of one backend. Out: outcomes in their order. Never: a success that was not read back, and never a
success in a process that has been told to stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.errors import Retry
from fairlead.model.change import DONE, Outcome, OutcomeStatus
from fairlead.providers.haproxy.rows import Row, commands, done, waits
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.state import Server, Snapshot, show, snapshot_from_text

_LOOK_AGAIN_S = 0.5
_SOON_S = 0.1
#: So many rows in a row refused in the same words speak for the rest.
_SAME_ENOUGH = 3
#: What HAProxy says when a command did what it should.
_CONTENT = ("New server registered.", "Server deleted.", "No such server.")


async def read(api: RuntimeApi, backend: str, before: Sequence[str] = (), *, sessions: bool = False) -> Snapshot:
    """Say ``before``, then read one backend."""
    sessions_of = api.numbers.get(backend, backend) if sessions else ""
    text = await api.run([*before, *show(backend, sessions_of=sessions_of)])
    found = snapshot_from_text(text, backend, socket=api.path)
    uncounted = any(server.sessions < 0 for server in (found.servers or {}).values())
    if not sessions or not uncounted or found.number == sessions_of:
        return found
    # A frontend has the same name, and that is the one that was counted; numbers are given anew by each reload.
    api.numbers[backend] = found.number
    text = await api.run(show(backend, sessions_of=found.number))
    return msgspec.structs.replace(snapshot_from_text(text, backend, socket=api.path), words=found.words)


async def run_rows(api: RuntimeApi, backend: str, rows: Sequence[Row]) -> tuple[list[Outcome], str]:
    """Do all rows of one backend; returns their outcomes and the epoch of the process that answered."""
    removing = any(row.removes for row in rows)
    first = now = await read(api, backend, sessions=removing)
    if first.servers is None:
        return [_without_backend(row, api, backend) for row in rows], first.epoch
    # A removal may take two turns: stop new sessions, look whether any are left, delete.
    for _ in range(2 if removing else 1):
        wanted = [word for row in rows for word in commands(row, _server(now, row))]
        if not wanted:
            break
        now = await read(api, backend, wanted, sessions=removing)
        if now.epoch != first.epoch or now.stopping or now.servers is None:
            raise _reloaded(api)
    if now.stopping:
        raise _reloaded(api)
    outcomes: list[Outcome] = []
    same, said = 0, ""
    for row in rows:
        server = _server(now, row)
        if done(row, server):
            outcomes.append(DONE)
        elif waits(row, server):
            outcomes.append(_waiting(row, server))
        elif same < _SAME_ENOUGH:
            outcome, words = await _ask_again(api, row)
            same = same + 1 if words and words == said else int(bool(words))
            said = words
            outcomes.append(outcome)
        else:
            # The whole backend is refused for one reason: asking another hundred times would only load HAProxy.
            outcomes.append(_no_effect(row, said))
    return outcomes, now.epoch


async def _ask_again(api: RuntimeApi, row: Row) -> tuple[Outcome, str]:
    """Repeat one row alone, so that HAProxy's words (also returned) are known to be about it."""
    found = await read(api, row.backend, sessions=row.removes)
    found = await read(api, row.backend, commands(row, _server(found, row)), sessions=row.removes)
    server = _server(found, row)
    if done(row, server):
        return DONE, ""
    if waits(row, server):
        return _waiting(row, server), ""
    words = "; ".join(word for word in found.words if word not in _CONTENT)[:300]
    return _no_effect(row, words), words


def _no_effect(row: Row, words: str) -> Outcome:
    because = f": {words}" if words else ", and HAProxy does not say why"
    return Outcome(
        OutcomeStatus.RETRY,
        f"{row.change.key} on {row.change.load_balancer}: {row.change.action} had no effect on HAProxy server "
        f"{row.path}{because}",
    )


def _waiting(row: Row, server: Server | None) -> Outcome:
    sessions = server.sessions if server is not None else 0
    if row.cuts:
        return Outcome(
            OutcomeStatus.RUNNING, f"{row.change.key}: its drain time is over, {sessions} sessions are cut", _SOON_S
        )
    return Outcome(
        OutcomeStatus.RUNNING,
        f"{row.change.key} gets no new sessions; {sessions} are still open, it is removed when they end or after "
        f"{row.settings.drain_timeout_s:g} s",
        _LOOK_AGAIN_S,
    )


def _without_backend(row: Row, api: RuntimeApi, backend: str) -> Outcome:
    if row.removes or row.drains:
        return DONE
    return Outcome(OutcomeStatus.RETRY, no_backend(api.path, backend))


def no_backend(socket: str, backend: str) -> str:
    """Say what to do about a backend that is not there."""
    return f"HAProxy at {socket} has no backend {backend}; add it to its configuration and reload, or correct the name"


def _reloaded(api: RuntimeApi) -> Retry:
    return Retry(
        f"HAProxy at {api.path} was reloaded meanwhile; everything is registered again", reason="HAProxyReloaded"
    )


def _server(snapshot: Snapshot, row: Row) -> Server | None:
    servers: Mapping[str, Server] = snapshot.servers or {}
    return servers.get(row.name)
