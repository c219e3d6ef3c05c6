"""The commands for changes of servers: one change, a batch of changes, and the CA bundles that HTTPS checks need.

    wanted, missing                 add server, enable health (when checked), enable server
    wanted, present                 set address, weight, state ready: only what differs
    draining                        set state drain; a missing server is not added
    DEREGISTER, sessions open       set state drain, and wait; after the drain time: shutdown sessions
    DEREGISTER, no sessions         set state maint, del server
    wanted, present with another    add the server under its new name; once that one is up, or the drain time is over,
    check or protocol               remove the earlier one as for DEREGISTER

A batch needs few conversations, however many changes it has:

    read       what is there (1)
    change     all commands of all changes, and read back in the same line (2)
    delete     the drained servers without sessions, and read back (3, only when something is removed)
    repeat     only changes without effect, one by one, to learn what HAProxy says about each

A check over HTTPS is in the configuration of the backend (option httpchk), because no server that is added at run time
can have it. Its CA bundle is loaded into HAProxy's memory before the first server that is checked with it, and again
after each reload. Each bundle has a name of its own: HAProxy cannot change the bundle of an existing server.
In: changes of one backend. Out: outcomes in their order. Never: a success that was not read back, or a command about a
server that is not ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from ipaddress import ip_address

import msgspec

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import HAProxySettings
from fairlead.providers.haproxy.snapshot import BackendSnapshot, Server, no_backend, run_and_read, untagged

_MAX_WEIGHT = 256


class ServerChange(msgspec.Struct, frozen=True):
    """One change, and the HAProxy server of its target."""

    change: TargetChange
    settings: HAProxySettings
    backend: str
    name: str
    #: The drain time of its sessions is over.
    drain_over: bool = False

    @property
    def path(self) -> str:
        """Return how commands name the server."""
        return self.path_of(self.name)

    def path_of(self, name: str) -> str:
        """Return how commands name one of the servers of its target."""
        return f"{self.backend}/{name}"

    @property
    def authority(self) -> str:
        """Return the name of the authority that HTTPS checks of its load balancer trust."""
        return authority_name(self.settings.installation, self.change.load_balancer, self.settings.authority)

    @property
    def removes(self) -> bool:
        """Return whether the server is to be gone in the end."""
        return self.change.action is Action.DEREGISTER

    @property
    def drains(self) -> bool:
        """Return whether the server is to stay, without new connections."""
        return self.change.action is Action.DRAIN or (not self.removes and self.change.target.draining)

    @property
    def cuts_sessions(self) -> bool:
        """Return whether open sessions are ended now."""
        return self.drain_over or self.change.reason is Reason.DRAINED


def refusal(change: TargetChange) -> str:
    """Return why HAProxy can never serve this target; empty when it can."""
    try:
        address = ip_address(change.key.address)
    except ValueError:
        return f"{change.key.address[:60]!r} is not an IP address; HAProxy servers are added by address only"
    if str(address) != change.key.address or getattr(address, "scope_id", None):
        return f"the address {change.key.address[:60]} is not in its canonical form {address}"
    if not 1 <= change.key.port <= 65535:
        return f"{change.key.port} is not a port"
    if not 0 <= change.target.weight <= _MAX_WEIGHT:
        return f"weight {change.target.weight} is not from 0 to {_MAX_WEIGHT}, the range of HAProxy"
    return ""


def commands_for(change: ServerChange, server: Server | None, outdated: Sequence[Server] = ()) -> list[str]:
    """Return the commands for one change, none when all is as it should be.

    ``server`` is the one of its name, ``outdated`` are those of the same target with an earlier check or protocol.
    """
    if change.removes:
        return [text for entry in _all(server, outdated) for text in _removal(change, entry)]
    if change.drains:
        return [
            f"set server {change.path_of(entry.name)} state drain" for entry in _all(server, outdated) if entry.ready
        ]
    if server is None:
        target, settings = change.change.target, change.settings
        options = settings.server_options(change.authority)
        added = f"add server {change.path} {target.key} weight {target.weight} {options}".rstrip()
        health = [f"enable health {change.path}"] if settings.health_check is not None else []
        return [added, *health, f"enable server {change.path}"]
    replaced = outdated if takes_over(change, server) else ()
    return [*_correction(change, server), *(text for entry in replaced for text in _removal(change, entry))]


def takes_over(change: ServerChange, server: Server | None) -> bool:
    """Return whether outdated servers of the target may go: traffic would reach it through this one."""
    return server is not None and server.ready and (server.running or not server.checked or change.drain_over)


def is_done(change: ServerChange, server: Server | None, outdated: Sequence[Server] = ()) -> bool:
    """Return whether what was read back is what the change wanted."""
    if change.removes:
        return server is None and not outdated
    if change.drains:
        return not any(entry.ready for entry in _all(server, outdated))
    return server is not None and not _correction(change, server) and not outdated


def waits_for_sessions(change: ServerChange, server: Server | None, outdated: Sequence[Server] = ()) -> bool:
    """Return whether a removal or replacement has begun and only waits: for sessions to end, or for a check."""
    if change.removes:
        left = _all(server, outdated)
        return bool(left) and all(not entry.ready and entry.sessions != 0 for entry in left)
    if change.drains or not outdated or server is None or _correction(change, server):
        return False
    return not takes_over(change, server) or all(not entry.ready and entry.sessions != 0 for entry in outdated)


def _all(server: Server | None, outdated: Sequence[Server]) -> list[Server]:
    return [*([server] if server is not None else []), *outdated]


def _correction(change: ServerChange, server: Server) -> list[str]:
    """Return what brings a server that is there to what is wanted; also one that was added by half."""
    target = change.change.target
    commands: list[str] = []
    if (server.address, server.port) != (target.key.address, target.key.port):
        commands.append(f"set server {change.path} addr {target.key.address} port {target.key.port}")
    if server.weight != target.weight:
        commands.append(f"set server {change.path} weight {target.weight}")
    if server.check_idle and change.settings.health_check is not None:
        commands.append(f"enable health {change.path}")
    if not server.ready:
        commands.append(f"set server {change.path} state ready")
    return commands


def _removal(change: ServerChange, server: Server) -> list[str]:
    path = change.path_of(server.name)
    if server.sessions == 0 and not server.ready:
        return [f"set server {path} state maint", f"del server {path}"]
    drain = [f"set server {path} state drain"] if server.ready else []
    if server.sessions != 0 and change.cuts_sessions:
        return [*drain, f"shutdown sessions server {path}"]
    return drain


_DIGITS = 10


def authority_name(installation: str, key: LoadBalancerKey, bundle: str) -> str:
    """Return the name of one authority of a load balancer; only we would give it."""
    return _prefix(installation, key) + _digest(bundle)


async def load_authority(api: RuntimeApi, name: str, bundle: str, *, epoch: str) -> None:
    """Have HAProxy know ``bundle`` as ``name``; ``epoch`` is that of its process. Holds no lock.

    Raises:
        Retry: HAProxy does not take it; the sentence has its words.
    """
    if api.authorities.get(name) == epoch:
        return
    # "already exists" is as good: an earlier process of ours has made it.
    await api.run([f"new ssl ca-file {name}"])
    lines = "\n".join(line for line in bundle.splitlines() if line.strip())
    answer = await api.run_with_payload(f"set ssl ca-file {name}", lines)
    answer += await api.run([f"commit ssl ca-file {name}"])
    if "Success!" not in answer:
        await api.run([f"abort ssl ca-file {name}"])
        reason = "; ".join(line.strip() for line in answer.splitlines() if line.strip())[:300]
        raise Retry(
            f"HAProxy at {api.path} rejects the CA bundle of the health checks (spec.healthCheck.caBundle): "
            f"{reason or 'no reason given'}"
        )
    api.authorities[name] = epoch


async def drop_authorities(api: RuntimeApi, installation: str, key: LoadBalancerKey) -> None:
    """Remove all authorities of a load balancer without servers from HAProxy. Holds no lock."""
    ours = _prefix(installation, key)
    authorities = [line.split(" ")[0] for line in (await api.run(["show ssl ca-file"])).splitlines()]
    if names := [name for name in authorities if name.startswith(ours)]:
        await api.run([f"del ssl ca-file {name}" for name in names])
    for name in names:
        api.authorities.pop(name, None)


def _prefix(installation: str, key: LoadBalancerKey) -> str:
    text = "".join(f"{len(part)}:{part}" for part in (installation, *key))
    return f"fl-{_digest(text)}-ca-"


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode()).hexdigest()[:_DIGITS]


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
            missing = Outcome(OutcomeStatus.RETRY, no_backend(api.path, backend))
            return [DONE if change.removes or change.drains else missing for change in changes]
        if not removing and any(_outdated(first, change) for change in changes):
            removing, first = True, await run_and_read(api, backend, sessions=True)
            now = first
        added = (change for change in changes if not change.removes and not change.drains)
        bundles = {change.authority: bundle for change in added if (bundle := change.settings.authority)}
        for name, bundle in bundles.items():
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
    because = f": {refusal}" if refusal else ", and HAProxy gave no reason"
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
    sessions = sum(max(0, entry.sessions) for entry in leaving)
    if change.cuts_sessions:
        return Outcome(
            OutcomeStatus.RUNNING, f"{target}: its drain time is over; {sessions} sessions are closed", _RETRY_CUT_S
        )
    text = (
        f"{target} gets no new sessions and is removed when the {sessions} open ones end"
        if change.removes
        else f"{target} is served by HAProxy server {change.path}; {sessions} sessions of the earlier one are still "
        "open, which is removed when they end"
    )
    return Outcome(OutcomeStatus.RUNNING, f"{text} or after {change.settings.drain_timeout_s:g} s", _RETRY_S)


def _reloaded(api: RuntimeApi) -> Retry:
    return Retry(
        f"HAProxy at {api.path} was reloaded during the change; all servers are registered again",
        reason="HAProxyReloaded",
    )


def _commands(snapshot: BackendSnapshot, change: ServerChange) -> list[str]:
    return commands_for(change, _server(snapshot, change), _outdated(snapshot, change))


def _server(snapshot: BackendSnapshot, change: ServerChange) -> Server | None:
    return (snapshot.servers or {}).get(change.name)


def _outdated(snapshot: BackendSnapshot, change: ServerChange) -> list[Server]:
    """Return the servers of the same target whose names stand for an earlier check or protocol."""
    return [server for server in snapshot.by_target.get(untagged(change.name), ()) if server.name != change.name]
