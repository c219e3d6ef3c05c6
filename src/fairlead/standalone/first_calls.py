"""The first calls of a process that has just been started: a wrong address or key is one sentence, within seconds.

An API that does not answer is waited for, because it may be down while we are started, and what starts processes may
have given up by the time it is back. Anything else that is wrong ends the process.

In: the calls. Out: ``wait_for_api``: whether they have been answered. Never: a write, or silence while it waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from prometheus_client import CollectorRegistry

from fairlead.errors import Retry
from fairlead.kube.transport import RetryPolicy
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.queue import backoff_s
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import StatusServer

#: Later calls are patient; these show at once that an API is not there.
FIRST_CALLS = RetryPolicy(attempts=4, base_s=0.3, limit_s=2.0, deadline_s=20.0, connect_s=4.0, read_s=15.0)
_BASE_S, _LIMIT_S = 1.0, 15.0

log = structlog.get_logger(__name__)


async def wait_for_api(
    check: Callable[[], Awaitable[object]], *, pages: tuple[str, int] | None = None, clock: Clock | None = None
) -> bool:
    """Call ``check`` until the API answers; return False when the process is stopped before that.

    ``pages``: where /livez and /readyz are served meanwhile, host and port; the latter says what is waited for.

    Raises:
        FairleadError: what a retry does not fix, such as Unauthorized or BadConfiguration.
    """
    clock = clock or SystemClock()
    waiting_for = ["the API has not been asked yet"]
    answered = False
    supervisor = Supervisor(clock=clock)

    async def until_answered() -> None:
        nonlocal answered
        failures = 0
        while not answered:
            try:
                await check()
                answered = True
            except Retry as error:
                failures += 1
                pause_s = max(backoff_s(failures, base_s=_BASE_S, limit_s=_LIMIT_S), error.after_s or 0.0)
                waiting_for[:] = [error.sentence]
                log.warning("waiting for the API", sentence=error.sentence, in_s=round(pause_s, 1))
                await clock.sleep(pause_s)
        supervisor.stop()

    if pages is not None:
        supervisor.spawn("pages", StatusServer(*pages, CollectorRegistry(), lambda: waiting_for).run)
    supervisor.spawn("first calls", until_answered)
    await supervisor.run_until_stopped()
    return answered
