"""The certificate authority and server certificate that all hub replicas share.

    Secret fairlead-xds-ca      tls.crt, tls.key    the authority that signs    ca.crt  all that are trusted
                                next.crt, next.key  the one that will sign next
    Secret fairlead-xds-server  tls.crt, tls.key, ca.crt

The first replica *creates* them: of two the API server lets one succeed, and the other reads. From then on only the
leader changes them, in time before they expire, and all replicas read them again every minute.
In: a Cluster. Out: ``authority`` in memory, and the files that the xDS server reads at each handshake.
Never: logs a key, overwrites an authority that cannot be read, or lists Secrets.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import structlog

from fairlead.api.kubernetes import SECRETS
from fairlead.api.names import MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.identity import ServerCertificate
from fairlead.providers.envoy.kubernetes.certificates import (
    Authority,
    new_authority,
    renewed_authority,
    server_certificate,
    server_is_good,
)
from fairlead.providers.envoy.kubernetes.secrets import (
    AUTHORITY_SECRET,
    SERVER_SECRET,
    Data,
    authority_data,
    authority_of,
    data_of,
    pair_data,
    pair_of,
    secret_manifest,
)
from fairlead.runtime.clock import Clock

_REFRESH_S = 60.0

log = structlog.get_logger(__name__)


class SharedAuthority:
    """The certificates that all replicas share. ``server_name`` is the host by which proxies reach the hub."""

    def __init__(
        self, *, cluster: Cluster, data_dir: Path, server_name: str, clock: Clock, leading: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._directory = TlsDirectory(data_dir=data_dir)
        self._server_name = server_name
        self._clock = clock
        self._leading = leading
        self._authority: Authority | None = None
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
        return self._directory.files

    def on_change(self, call: Callable[[], None]) -> None:
        """Call when clients need other certificates than before."""
        self._changed.append(call)

    async def start(self) -> None:
        """Read the certificates, or make them when there are none.

        Raises:
            BadConfiguration: the authority's Secret holds something else, or the files cannot be written.
            FairleadError: the hub's API refuses.
        """
        now = self._clock.now()
        authority = await self._read_or_create(AUTHORITY_SECRET, lambda: authority_data(new_authority(now)))
        self._take(authority_of(authority))
        server = await self._read_or_create(SERVER_SECRET, lambda: self._server_data(self.authority))
        self._directory.write(server)

    async def run(self) -> None:
        """Keep them fresh until cancelled; what fails is tried again a minute later."""
        while True:
            await self._clock.sleep(_REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Read both Secrets once and, as the leader, renew what is due; problems are logged."""
        try:
            self._take(await self._refresh_authority())
            self._directory.write(await self._refresh_server())
        except FairleadError as error:
            log.warning("certificates not refreshed", sentence=error.sentence)

    async def _refresh_authority(self) -> Authority:
        try:
            authority = authority_of(await self._read(AUTHORITY_SECRET))
        except NotFound:
            if not self._leading():
                raise
            # It was deleted; what we have in memory is still what all proxies trust.
            authority = self.authority
            await self._apply(AUTHORITY_SECRET, authority_data(authority))
        due = renewed_authority(authority, self._clock.now())
        if due is authority or not self._leading():
            return authority
        log.info("xDS authority renewed")
        await self._apply(AUTHORITY_SECRET, authority_data(due))
        return due

    async def _refresh_server(self) -> Data:
        try:
            data = await self._read(SERVER_SECRET)
        except NotFound:
            data = {}
        fresh = server_is_good(pair_of(data), self.authority, self._server_name, self._clock.now())
        if (fresh and data.get("ca.crt") == self.authority.trusted) or not self._leading():
            return data
        log.info("xDS server certificate renewed")
        data = self._server_data(self.authority)
        await self._apply(SERVER_SECRET, data)
        return data

    def _server_data(self, authority: Authority) -> Data:
        pair = server_certificate(authority, self._server_name, self._clock.now())
        return pair_data(pair, authority.trusted)

    def _take(self, authority: Authority) -> None:
        if authority == self._authority:
            return
        self._authority = authority
        for call in self._changed:
            call()

    # --- Secrets ----------------------------------------------------------------------------------------------

    async def _read(self, name: str) -> Data:
        return data_of(await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, name))

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


class TlsDirectory:
    """The certificate files below ``data_dir``."""

    def __init__(self, *, data_dir: Path) -> None:
        self._dir = data_dir / "xds-tls"
        self._written: Data = {}

    @property
    def files(self) -> ServerCertificate:
        """Return where the xDS server finds its certificate, now and after each renewal."""
        here = self._dir / "current"
        return ServerCertificate(certificate=here / "tls.crt", key=here / "tls.key", client_ca=here / "ca.crt")

    def write(self, data: Data) -> None:
        """Replace the files, all at once; ``BadConfiguration`` when the directory cannot be written."""
        if data == self._written or not data:
            return
        digest = blake2b(b"\0".join(data[name] for name in sorted(data)), digest_size=8).hexdigest()
        try:
            self._replace(digest, data)
        except OSError as error:
            raise BadConfiguration(
                f"--data-dir: the xDS certificate cannot be kept in {self._dir} ({error.strerror}); "
                "make the directory writable or choose another"
            ) from error
        self._written = dict(data)

    def _replace(self, digest: str, data: Data) -> None:
        directory = self._dir / digest
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in data.items():
            file = directory / name
            file.touch(mode=0o600)
            file.write_bytes(content)
        link = self._dir / "next"
        link.unlink(missing_ok=True)
        link.symlink_to(digest)
        link.replace(self._dir / "current")
        for old in self._dir.iterdir():
            if old.is_dir() and not old.is_symlink() and old != directory:
                shutil.rmtree(old, ignore_errors=True)
