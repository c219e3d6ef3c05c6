"""The files of the xDS server's certificate, replaced without a gap.

    xds-tls/<digest of the content>/{tls.crt,tls.key,ca.crt}
    xds-tls/current ─► <digest>        replaced in one step: a handshake reads the old three files or the new three

In: the data of the server's Secret. Out: files that only we can read. Never: logs a key.
"""

from __future__ import annotations

import shutil
from hashlib import blake2b
from pathlib import Path

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.identity import ServerCertificate
from fairlead.providers.envoy.kubernetes.secrets import Data


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
