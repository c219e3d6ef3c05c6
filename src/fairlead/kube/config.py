"""The address of a cluster, and the identity that is used there.

In: what kubeconfig.py (or a caller with a plain URL) found out. Out: ``ClusterConfig``, which Transport connects with.
Never: prints a credential; ``Access`` has no readable repr for that reason.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, eq=False)
class Access:
    """The credentials of a request: headers, and the TLS context that holds authorities and client certificate."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    ssl: ssl.SSLContext | None = field(default=None, repr=False)


SignIn = Callable[[Access | None], Awaitable[Access]]
"""Return the current access. The argument is the one that the server has just refused (401), or None.

Returning another Access object replaces the credentials for new requests; running streams keep their connection.
"""


class InlineToken(Protocol):
    """The inline token of a kubeconfig, which the process may replace by a renewed one."""

    async def token(self) -> str:
        """Return the token in use, the kubeconfig looked at now; empty when another way to sign in is."""
        ...

    def written(self) -> str:
        """Return the token that the kubeconfig had when it was read last."""
        ...

    def replace(self, old: str, new: str) -> None:
        """Sign in with ``new``, if ``old`` is in use, until the kubeconfig has another token or ``new`` is refused."""
        ...

    def files(self) -> Sequence[Path]:
        """Return the files that the kubeconfig was read from."""
        ...


_ANONYMOUS = Access()


async def anonymous(_refused: Access | None) -> Access:
    """Sign in without credentials, over whatever TLS the system trusts."""
    return _ANONYMOUS


def bearer(token: str, *, tls: ssl.SSLContext | None = None) -> SignIn:
    """Sign in with a token that never changes."""
    access = Access(headers={"Authorization": f"Bearer {token}"}, ssl=tls)

    async def sign_in(_refused: Access | None) -> Access:
        return access

    return sign_in


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """One cluster as one user sees it.

    ``source`` says where this was configured (a file and a context), for error messages, and ``flags`` the same as
    kubectl and the verbs take it. ``inline_token`` is there
    where the credentials may be a token in the kubeconfig. ``trusted`` returns a TLS context that trusts the server as
    ours does, and has no credential in it; None: whatever the system trusts.
    """

    server: str
    sign_in: SignIn = anonymous
    namespace: str = "default"
    user: str = ""
    source: str = ""
    flags: str = ""
    tls_server_name: str = ""
    proxy: str = ""
    inline_token: InlineToken | None = None
    trusted: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)
