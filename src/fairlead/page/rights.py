"""The rights of a viewer of the page.

    loopback, no token needed    everything: all who may connect are on this machine, as for /metrics and /debug
    a token                      what that token may list at the hub's API, asked of the API with the token itself

In: the headers of a request. Out: ``Rights``, or the reason for none. Never: keeps or logs a token, asks with the hub's
own rights, or opens more than RBAC does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from typing import Protocol

from fairlead.api.names import GROUP
from fairlead.errors import Unauthorized
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.signed_in import user_name
from fairlead.runtime.clock import Clock
from fairlead.runtime.limiter import TokenBucket

#: So long an answer of the API counts: a right that is taken away is taken away here that much later.
REMEMBERED_S = 60.0
_AT_ONCE = 8
#: Tokens that are tried in a second, after a first burst: each is a handshake with the API, in the hub's own process.
_SIGN_INS_PER_S, _SIGN_INS_AT_FIRST = 50.0, 256
_SIGN_IN = "sign in with a token of this hub's API: kubectl create token NAME -n NAMESPACE prints one"

Right = tuple[str, str]


class Rights(Protocol):
    """The rights of one viewer."""

    @property
    def viewer(self) -> str:
        """Return the name of the user at the hub's API, empty where no token is asked for."""
        ...

    async def of(self, wanted: Iterable[Right]) -> Mapping[Right, bool]:
        """Return for each (resource, namespace) whether it may be listed; an empty namespace means all of them."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class Gate(Protocol):
    """The check whether a request may see the page at all."""

    async def rights(self, headers: Mapping[str, str]) -> Rights:
        """Return what the sender of these headers may see; ``Unauthorized`` says how to get in."""
        ...


class AllRights:
    """Unrestricted rights, and the gate that grants them to every viewer."""

    viewer = ""

    async def rights(self, headers: Mapping[str, str]) -> Rights:  # noqa: ARG002 - everyone
        """Return itself."""
        return self

    async def of(self, wanted: Iterable[Right]) -> Mapping[Right, bool]:
        """Return True for all."""
        return dict.fromkeys(wanted, True)

    async def aclose(self) -> None:
        """Do nothing."""


class TokenGate:
    """Authenticates viewers by a token of the hub's API, to which ``config`` connects.

    Nothing of the hub's own credentials goes with it: the API would take a client certificate for the sender. Tokens
    are tried at a bounded rate: anyone may send some, and the hub has other work.
    """

    def __init__(self, config: ClusterConfig, *, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._sign_ins = TokenBucket(_SIGN_INS_PER_S, _SIGN_INS_AT_FIRST, clock)

    async def rights(self, headers: Mapping[str, str]) -> Rights:
        """Return what the token of these headers may list."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized(_SIGN_IN)
        await self._sign_ins.acquire()
        trusted = self._config.trusted
        tls = await asyncio.to_thread(trusted) if trusted is not None else None
        cluster = Cluster(_as_viewer(self._config, token.strip(), tls), name="viewer", clock=self._clock)
        try:
            viewer = await user_name(cluster)
        except Unauthorized as error:
            await cluster.aclose()
            raise Unauthorized(f"this token is unknown, or has expired: {_SIGN_IN}", detail=error.detail) from error
        except BaseException:
            await cluster.aclose()
            raise
        return TokenRights(cluster, self._clock, viewer=viewer)


class TokenRights:
    """The rights of one token, from SelfSubjectAccessReviews that are cached for ``REMEMBERED_S``."""

    def __init__(self, cluster: Cluster, clock: Clock, *, viewer: str) -> None:
        self.viewer = viewer
        self._cluster = cluster
        self._clock = clock
        self._answers: dict[Right, tuple[float, bool]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def of(self, wanted: Iterable[Right]) -> Mapping[Right, bool]:
        """Return for each right whether it is granted; items without a resource are for every viewer."""
        rights = set(wanted)
        await asyncio.gather(*(self._ask(right) for right in {(resource, "") for resource, _ in rights if resource}))
        await asyncio.gather(*(self._ask(right) for right in rights if right[0] and not self._known((right[0], ""))))
        return {right: not right[0] or self._known((right[0], "")) or self._known(right) for right in rights}

    async def aclose(self) -> None:
        """Close the connections to the API."""
        await self._cluster.aclose()

    def _known(self, right: Right) -> bool:
        return self._answers.get(right, (0.0, False))[1]

    async def _ask(self, right: Right) -> None:
        now_s = self._clock.monotonic()
        if right in self._answers and now_s - self._answers[right][0] < REMEMBERED_S:
            return
        async with self._slots:
            allowed = await self._cluster.can_i("list", GROUP, right[0], right[1])
        self._answers[right] = now_s, allowed


def _as_viewer(config: ClusterConfig, token: str, tls: ssl.SSLContext | None) -> ClusterConfig:
    """Return how the API is reached with the viewer's token, and with nothing of the hub's own."""
    return ClusterConfig(
        server=config.server,
        sign_in=bearer(token, tls=tls),
        source="the token of a viewer",
        tls_server_name=config.tls_server_name,
        proxy=config.proxy,
    )
