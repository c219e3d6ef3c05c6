"""The credentials by which a driver and Fairlead authenticate each other.

In: a folder, as a Kubernetes Secret is mounted. Out: an SSL context (its own CA, a client certificate) and a bearer
token. Files are read again when they change, so that they can be rotated without a restart.
Never: sends a token in the clear to another machine, and never shows the content of a file.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

from fairlead.errors import BadConfiguration
from fairlead.providers.webhook.settings import DriverSettings
from fairlead.runtime.tls import client_context, is_loopback

#: Where Secrets are mounted in a Deployment, one folder for each.
DEFAULT_DIRECTORY = Path("/etc/fairlead/credentials")
_FILES = ("ca.crt", "tls.crt", "tls.key", "token")

Stamp = tuple[int, ...]


class Credentials:
    """What is in one folder; without a folder the machine's own CAs, and nothing of ours."""

    def __init__(self, *, settings: DriverSettings, directory: Path) -> None:
        self._settings = settings
        self._folder = directory / settings.credentials if settings.credentials else None
        if self._folder is not None and not self._folder.is_dir():
            raise BadConfiguration(
                f"parameters.credentials: there is no folder {settings.credentials} in the credentials directory; "
                "mount the Secret there"
            )
        url = urlsplit(settings.url)
        if self._has("token") and url.scheme == "http" and not is_loopback(url.hostname or ""):
            raise BadConfiguration(f"{settings.name}: a token would be sent in the clear; use https in parameters.url")

    def stamp(self) -> Stamp:
        """Return a value that changes with the files."""
        return tuple(self._mtime(name) for name in _FILES)

    def ssl_context(self) -> ssl.SSLContext:
        """Build the context for TLS; ``BadConfiguration`` names the file that is wrong."""
        ca = self._path("ca.crt")
        try:
            context = client_context(ca.read_bytes() if ca else None)
        except OSError as error:
            raise self._wrong("ca.crt") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._path("tls.crt"), self._path("tls.key")
        if certificate and key:
            try:
                context.load_cert_chain(str(certificate), str(key))
            except (OSError, ssl.SSLError) as error:
                raise self._wrong("tls.crt and tls.key") from error
        return context

    def headers(self) -> dict[str, str]:
        """Return the header with the token, if there is one."""
        path = self._path("token")
        if path is None:
            return {}
        try:
            token = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self._wrong("token") from error
        if not token or not token.isprintable():
            raise self._wrong("token")
        return {"Authorization": f"Bearer {token}"}

    def _has(self, name: str) -> bool:
        return self._path(name) is not None

    def _path(self, name: str) -> Path | None:
        if self._folder is None or not (self._folder / name).is_file():
            return None
        return self._folder / name

    def _mtime(self, name: str) -> int:
        path = self._path(name)
        try:
            return path.stat().st_mtime_ns if path else 0
        except OSError:
            return 0

    def _wrong(self, name: str) -> BadConfiguration:
        return BadConfiguration(
            f"{self._settings.name}: {name} in credentials folder {self._settings.credentials} is invalid; replace it"
        )
