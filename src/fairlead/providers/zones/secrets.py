"""The keys of DNS servers: Secrets in the hub's own namespace, read by their names.

In: the name of a Secret and an entry of it. Out: its text, read again when it is half a minute old, so that it can be
exchanged without a restart. Never: a key in a message, a log or a status.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Protocol

from fairlead.api.kubernetes import SECRETS, Secret
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import Forbidden, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import Clock

_FRESH_S = 30.0


class Secrets(Protocol):
    """The source of keys."""

    async def entry(self, name: str, entry: str) -> str:
        """Return one entry of a Secret as text; ``Retry`` says what is missing."""
        ...


class HubSecrets:
    """The Secrets of the hub's namespace."""

    def __init__(self, cluster: Cluster | None, *, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._read: dict[str, tuple[float, Mapping[str, str]]] = {}

    async def entry(self, name: str, entry: str) -> str:
        """Return one entry of a Secret as text."""
        data = await self._data(name)
        where = f"Secret {SYSTEM_NAMESPACE}/{name}, which the DNSZone's parameters.credentials names,"
        if entry not in data:
            raise Retry(f"{where} has no entry {entry}; add it", reason="CredentialsMissing")
        try:
            text = base64.b64decode(data[entry], validate=True).decode("ascii").strip()
        except (binascii.Error, UnicodeDecodeError):
            raise Retry(
                f"{where} has an entry {entry} that is no text; replace it", reason="CredentialsWrong"
            ) from None
        if not text:
            raise Retry(f"{where} has an empty entry {entry}; fill it", reason="CredentialsMissing")
        return text

    async def _data(self, name: str) -> Mapping[str, str]:
        at_s, data = self._read.get(name, (0.0, {}))
        now_s = self._clock.monotonic()
        if data and now_s - at_s < _FRESH_S:
            return data
        if self._cluster is None:
            raise Retry("this process has no cluster to read Secrets from", reason="CredentialsMissing")
        try:
            secret: Secret = await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, name)
        except (NotFound, Forbidden) as error:
            raise Retry(
                f"there is no Secret {SYSTEM_NAMESPACE}/{name} that the hub may read; create it, or correct "
                "parameters.credentials of the DNSZone",
                detail=error.sentence,
                reason="CredentialsMissing",
            ) from error
        data = secret.data or {}
        self._read[name] = (now_s, data)
        return data
