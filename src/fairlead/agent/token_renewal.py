"""Renews the agent's token for the hub at half of its life.

In: the token in the hub's kubeconfig, and the time at the hub. Out: a new token, used from the next request on, and
written to the kubeconfig where that can be written; every copy of the agent renews, leading or not.
Never: checks a signature, renews what another renews (token files, plugins, OIDC), or logs a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import InlineToken, TokenTimes, request_token, token_times
from fairlead.runtime.private_file import write_private
from fairlead.runtime.queue import backoff_s

#: The kubeconfig may get another token, and the hub's clock may turn out to be another: both are read this often.
_LOOK_S = 60.0
#: A token that cannot be renewed is a problem from this part of its life before its end on, and this long at most.
_PROBLEM_PART, _PROBLEM_S = 1 / 3, 3 * 86_400.0
_RETRY_LIMIT_S = 60.0


class TokenRenewal:
    """Keeps the token of one connection alive; ``run`` it. ``problem`` is a sentence when it soon ends."""

    def __init__(self, hub: Cluster, *, tenant: str) -> None:
        self._hub = hub
        self._tenant = tenant
        self._failures = 0
        self._failure = ""
        self._times: TokenTimes | None = None
        self._in_memory = False
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.token").bind(tenant=tenant)

    @property
    def problem(self) -> str:
        """Return a sentence when the token ends soon and renewing it fails; else nothing."""
        if not self._failure or self._times is None:
            return ""
        left_s = self._left_s(self._times)
        return self._sentence(self._times) if left_s <= min(self._times.life_s * _PROBLEM_PART, _PROBLEM_S) else ""

    async def run(self) -> None:
        """Renew until cancelled; where the token is not ours to renew, return at once."""
        inline = self._hub.config.inline_token
        while inline is not None:
            await self._hub.clock.sleep(await self._look(inline))

    async def _look(self, inline: InlineToken) -> float:
        """Renew the token when it is due; return after how many seconds it may be due next."""
        try:
            token = await inline.token()
        except FairleadError:
            return _LOOK_S  # every request says it
        written, times = inline.written(), token_times(token)
        if times != self._times:
            self._times, self._failures, self._failure = times, 0, ""
        if times is None:
            return _LOOK_S
        due_s = self._left_s(times) - times.life_s / 2
        if due_s > 0:
            return min(due_s, _LOOK_S)
        try:
            issued = await request_token(self._hub, times.namespace, times.account, valid_s=round(times.life_s))
        except FairleadError as error:
            self._failures += 1
            if error.sentence != self._failure:
                self._failure = error.sentence
                self._log.warning("token not renewed", sentence=self._sentence(times), detail=error.detail)
            limit_s = min(_RETRY_LIMIT_S, max(1.0, times.life_s / 20))
            return backoff_s(self._failures, base_s=1.0, limit_s=limit_s)
        new = issued.token
        files = inline.files()
        inline.replace(token, new)
        self._times, self._failures, self._failure = token_times(new), 0, ""
        unwritten = await asyncio.to_thread(replace_token, files, written, new)
        until = self._times.expires.isoformat() if self._times else ""
        self._log.info("token renewed", until=until, written=not unwritten)
        warned, self._in_memory = self._in_memory, bool(unwritten)
        if unwritten and not warned:
            self._log.warning(
                "token is kept in memory",
                sentence=f"{unwritten}, so the renewed token is kept in memory only. This agent continues; one that is "
                "started after the token in the file has expired needs a new key: "
                f"fairlead tenant rotate {self._tenant}.",
            )
        # However short its life is, and whatever the clocks say: the server is not asked without a pause.
        return min(_LOOK_S, max(1.0, times.life_s / 4))

    def _left_s(self, times: TokenTimes) -> float:
        return (times.expires - self._hub.server_clock.now()) / timedelta(seconds=1)

    def _sentence(self, times: TokenTimes) -> str:
        ended = "has expired" if self._left_s(times) <= 0 else "expires"
        return (
            f"The agent's token for the hub {ended} at {times.expires:%Y-%m-%dT%H:%M:%SZ} and cannot be renewed: "
            f"{self._failure} If this continues, run: fairlead tenant rotate {self._tenant}"
        )


def replace_token(files: Sequence[Path], old: str, new: str) -> str:
    """Replace ``old`` in the first file that has it; return why that cannot be done, empty when it was.

    Between reading and replacing the file nothing waits, so that a key that is put there at the same time is not
    overwritten by the renewal of an older one.
    """
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
            if old not in text:
                continue
            write_private(path, text.replace(old, new))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            return f"The kubeconfig {path} cannot be written ({reason})"
        return ""
    names = ", ".join(map(str, files)) or "none"
    return f"The token that was renewed is no longer in the kubeconfig ({names})"
