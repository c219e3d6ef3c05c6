"""The node group that a proxy may read.

In: a gRPC peer's certificate. Out: the node group in its SPIFFE URI, ``spiffe://<trust domain>/…/group/<group>``.
What a proxy claims in ``node.cluster`` counts only on a unix socket or a loopback address, where there is no
certificate.
Source: https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import grpc
import msgspec

from fairlead.errors import BadConfiguration

_NAMES = ("peer_spiffe_id", "x509_subject_alternative_name")


class ServerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """Files in PEM; read again for each handshake, so that they can be rotated without a restart."""

    certificate: Path
    key: Path
    client_ca: Path

    def credentials(self) -> grpc.ServerCredentials:
        """Build credentials that demand a client certificate; unreadable files are ``BadConfiguration``."""
        return grpc.dynamic_ssl_server_credentials(self._read(), self._read_again, require_client_authentication=True)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        try:
            chain = [(self.key.read_bytes(), self.certificate.read_bytes())]
            return grpc.ssl_server_certificate_configuration(chain, root_certificates=self.client_ca.read_bytes())
        except OSError as error:
            raise BadConfiguration(f"cannot read the xDS certificate: {error}") from error

    def _read_again(self) -> grpc.ServerCertificateConfiguration:
        try:
            return self._read()
        except BadConfiguration:
            # Half-way through a rotation: None means that the previous one still counts, which the stubs do not know.
            return cast("grpc.ServerCertificateConfiguration", None)


def group_from_certificate(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """Return the node group of a verified client; empty when its certificate names none."""
    for name in _NAMES:
        for value in auth_context.get(name, ()):
            group = group_from_spiffe(value.decode(errors="replace"))
            if group:
                return group
    return ""


def group_from_spiffe(uri: str) -> str:
    """Read ``spiffe://<trust domain>/…/group/<group>``; empty when it is anything else."""
    parts = urlsplit(uri)
    path = parts.path.split("/")
    if parts.scheme != "spiffe" or not parts.netloc or len(path) < 3 or path[-2] != "group":
        return ""
    return unquote(path[-1])


def peer_place(peer: str, port: int) -> str:
    """Return ``address:port`` on the machine of a gRPC peer (``ipv4:…``, ``ipv6:…``); empty when it has none."""
    kind, _, rest = unquote(peer).partition(":")
    address = rest.rpartition(":")[0]
    return f"{address}:{port}" if kind in ("ipv4", "ipv6") and address else ""


def is_local(address: str) -> bool:
    """Return whether only this machine can reach an address."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
