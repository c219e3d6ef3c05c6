"""How do all hub replicas come to the same authority and the same server certificate?

    Secret fairlead-xds-ca      tls.crt, tls.key   who signs       ca.crt  everybody who is trusted
                                next.crt, next.key who will sign next
    Secret fairlead-xds-server  tls.crt, tls.key, ca.crt

Who comes first *creates* them: of two replicas the API server lets one succeed, and the other reads. From then on only
the leader changes them, in time before they expire, and all replicas read them again every minute.
In: a Cluster. Out: ``authority`` in memory, and files that the xDS server reads at each handshake, replaced at once as
a directory. Never: logs a key, overwrites an authority that cannot be read, or lists Secrets.
"""

from __future__ import annotations

import base64
import binascii
import shutil
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path

import structlog

from fairlead.api.kubernetes import SECRETS, Secret
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.identity import ServerCertificate
from fairlead.providers.envoy.kubernetes.certificates import (
    Authority,
    Pair,
    is_authority,
    new_authority,
    renewed_authority,
    server_certificate,
    server_is_good,
)
from fairlead.runtime.clock import Clock

AUTHORITY_SECRET = "fairlead-xds-ca"  # noqa: S105 - a name
SERVER_SECRET = "fairlead-xds-server"  # noqa: S105 - a name
_LOOK_S = 60.0

Data = Mapping[str, bytes]

log = structlog.get_logger(__name__)


class SharedAuthority:
    """The certificates that all replicas share. ``server_name`` is the host by which proxies reach the hub."""

    def __init__(
        self, *, cluster: Cluster, data_dir: Path, server_name: str, clock: Clock, leading: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._dir = data_dir / "xds-tls"
        self._server_name = server_name
        self._clock = clock
        self._leading = leading
        self._authority: Authority | None = None
        self._written: Data = {}
        self._changed: list[Callable[[], None]] = []

    @property
    def authority(self) -> Authority:
        """Return the authority, once started."""
        if self._authority is None:
            raise BadConfiguration("the hub's authority has not been read yet")
        return self._authority

    @property
    def files(self) -> ServerCertificate:
        """Return where the xDS server finds its certificate, now and after each renewal."""
        here = self._dir / "current"
        return ServerCertificate(certificate=here / "tls.crt", key=here / "tls.key", client_ca=here / "ca.crt")

    def on_change(self, call: Callable[[], None]) -> None:
        """Call when clients need other certificates than before."""
        self._changed.append(call)

    async def start(self) -> None:
        """Read the certificates, made when there are none.

        Raises:
            BadConfiguration: the authority's Secret holds something else, or the files cannot be written.
            FairleadError: the hub's API refuses.
        """
        now = self._clock.now()
        found = await self._read_or_create(AUTHORITY_SECRET, lambda: authority_data(new_authority(now)))
        self._take(authority_of(found))
        server = await self._read_or_create(SERVER_SECRET, lambda: self._server_data(self.authority))
        self._write(server)

    async def run(self) -> None:
        """Keep them fresh until cancelled; what fails is tried again at the next look."""
        while True:
            await self._clock.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Read both Secrets once and, as the leader, renew what is due; problems are logged."""
        try:
            self._take(await self._look_at_authority())
            self._write(await self._look_at_server())
        except FairleadError as error:
            log.warning("certificates not looked at", sentence=error.sentence)

    async def _look_at_authority(self) -> Authority:
        try:
            authority = authority_of(await self._read(AUTHORITY_SECRET))
        except NotFound:
            if not self._leading():
                raise
            # Somebody deleted it; what we have in memory is still what everybody trusts.
            authority = self.authority
            await self._apply(AUTHORITY_SECRET, authority_data(authority))
        due = renewed_authority(authority, self._clock.now())
        if due is authority or not self._leading():
            return authority
        log.info("xDS authority renewed")
        await self._apply(AUTHORITY_SECRET, authority_data(due))
        return due

    async def _look_at_server(self) -> Data:
        try:
            found = await self._read(SERVER_SECRET)
        except NotFound:
            found = {}
        pair = Pair(found.get("tls.crt", b""), found.get("tls.key", b""))
        fresh = server_is_good(pair, self.authority, self._server_name, self._clock.now())
        if (fresh and found.get("ca.crt") == self.authority.trusted) or not self._leading():
            return found
        log.info("xDS server certificate renewed")
        data = self._server_data(self.authority)
        await self._apply(SERVER_SECRET, data)
        return data

    def _server_data(self, authority: Authority) -> Data:
        pair = server_certificate(authority, self._server_name, self._clock.now())
        return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.trusted}

    def _take(self, authority: Authority) -> None:
        if authority == self._authority:
            return
        self._authority = authority
        for call in self._changed:
            call()

    # --- Secrets ----------------------------------------------------------------------------------------------

    async def _read(self, name: str) -> Data:
        secret: Secret = await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, name)
        return data_of(secret)

    async def _read_or_create(self, name: str, make: Callable[[], Data]) -> Data:
        try:
            return await self._read(name)
        except NotFound:
            pass
        data = make()
        try:
            await self._cluster.create(SECRETS, secret_manifest(SYSTEM_NAMESPACE, name, data))
        except AlreadyExists:
            return await self._read(name)
        return data

    async def _apply(self, name: str, data: Data) -> None:
        await self._cluster.apply(SECRETS, secret_manifest(SYSTEM_NAMESPACE, name, data), manager=MANAGER_HUB)

    # --- files ------------------------------------------------------------------------------------------------

    def _write(self, data: Data) -> None:
        """Put the files in place, all at once: a handshake sees the old three or the new three."""
        if data == self._written or not data:
            return
        digest = blake2b(b"\0".join(data[name] for name in sorted(data)), digest_size=8).hexdigest()
        there = self._dir / digest
        try:
            there.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in data.items():
                file = there / name
                file.touch(mode=0o600)
                file.write_bytes(content)
            link = self._dir / "next"
            link.unlink(missing_ok=True)
            link.symlink_to(digest)
            link.replace(self._dir / "current")
            for old in self._dir.iterdir():
                if old.is_dir() and not old.is_symlink() and old != there:
                    shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            raise BadConfiguration(
                f"--data-dir: the xDS certificate cannot be kept in {self._dir} ({error.strerror}); "
                "make the directory writable or choose another"
            ) from error
        self._written = dict(data)


def secret_manifest(namespace: str, name: str, data: Data, labels: Mapping[str, str] | None = None) -> JSONObject:
    """Build a Secret of ours."""
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {LABEL_MANAGED_BY: MANAGED_BY, **(labels or {})}},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def data_of(secret: Secret) -> dict[str, bytes]:
    """Decode a Secret; what is no base64 counts as empty."""
    found: dict[str, bytes] = {}
    for key, value in (secret.data or {}).items():
        try:
            found[key] = base64.b64decode(value, validate=True)
        except binascii.Error:
            found[key] = b""
    return found


def authority_data(authority: Authority) -> dict[str, bytes]:
    """Write an authority as a Secret's data."""
    data = {
        "tls.crt": authority.current.certificate,
        "tls.key": authority.current.key,
        "ca.crt": authority.trusted,
    }
    if authority.next is not None:
        data |= {"next.crt": authority.next.certificate, "next.key": authority.next.key}
    return data


def authority_of(data: Data) -> Authority:
    """Read an authority from a Secret's data; ``BadConfiguration`` when that is something else."""
    following = Pair(data["next.crt"], data["next.key"]) if data.get("next.crt") and data.get("next.key") else None
    current = Pair(data.get("tls.crt", b""), data.get("tls.key", b""))
    authority = Authority(current=current, trusted=data.get("ca.crt") or current.certificate, next=following)
    if not is_authority(authority):
        raise BadConfiguration(
            f"Secret {SYSTEM_NAMESPACE}/{AUTHORITY_SECRET} holds no certificate with its key (tls.crt, tls.key in "
            "PEM); put back what was there, or delete it: then all proxies get new certificates"
        )
    return authority
