"""The protocol of fleets, which run the Envoys of a hub, and the node group that a proxy may read.

``fleet_local`` (one Envoy process on this machine) and ``kubernetes.fleet`` (a Deployment for each group) implement it.
A fleet never knows what the listeners look like, and the control plane never knows how a proxy is run.
The node group is in the SPIFFE URI of a proxy's certificate, ``spiffe://<trust domain>/…/group/<group>``. A claim in
``node.cluster`` counts only on a unix socket or a loopback address, where no certificate exists.
Source: https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import unquote, urlsplit

import grpc
import msgspec

from fairlead.errors import BadConfiguration
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured

#: Begins why connections are kept.
NOT_CLOSED = "connections of draining targets are not closed after the drain time"
NOT_RESET = (
    "connections of draining targets are closed after the drain time without a reset for clients: "
    "the kernel lets the hub trace no Envoy"
)


class Fleet(Protocol):
    """The proxies of all groups, and the way by which traffic reaches them."""

    @property
    def allocation(self) -> AllocationKind:
        """Return what the hub allocates for each load balancer."""
        ...

    @property
    def on_hub_machine(self) -> bool:
        """Return whether the proxies run on the machine of the hub, and reach its loopback addresses."""
        ...

    @property
    def reuse_port(self) -> bool:
        """Return whether TCP listeners may use SO_REUSEPORT: only where no other program can bind their ports."""
        ...

    @property
    def connections_per_cluster(self) -> int:
        """Return how many connections a port, or an HTTP backend, may have at its targets in each proxy."""
        ...

    def groups_of(self, spec: FrontendSpec) -> tuple[str, ...]:
        """Name the node groups whose proxies serve this load balancer; none when no proxy can."""
        ...

    def bind_addresses(self, spec: FrontendSpec) -> tuple[str, ...]:
        """Return the addresses that the proxy binds, one of each family at the most; none while they are unknown."""
        ...

    def sees_clients(self, spec: FrontendSpec) -> bool:
        """Return whether the proxy sees the client's own address, and so can check source ranges."""
        ...

    def http3_problem(self, spec: FrontendSpec) -> str:
        """Return why a load balancer with HTTP/3 does not announce it; empty when it does, or has none."""
        ...

    def refuse(self, *, group: str, listeners: int) -> str:
        """Return an error if a group would exceed its listener limit; otherwise an empty string."""
        ...

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` when the result of ``addresses`` changes for a load balancer."""
        ...

    def why_not_closed(self, groups: Sequence[str], *, resets: bool) -> str:
        """Return why connections of these groups to one target cannot be closed, or reset; empty when they can."""
        ...

    def pids(self, groups: Sequence[str]) -> list[int]:
        """Return the processes here that are the proxies of these groups."""
        ...

    async def start(self) -> None:
        """Start the required processes; running proxies are adopted."""
        ...

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Make traffic for this load balancer reach a proxy; returns ``addresses``."""
        ...

    def addresses(self, key: LoadBalancerKey) -> Ensured:
        """Return where users reach this load balancer, as known now."""
        ...

    async def delete(self, key: LoadBalancerKey) -> None:
        """Undo ``ensure``; not found is success."""
        ...

    async def sweep(self) -> None:
        """Delete leftovers of deleted load balancers; call this only when all desired load balancers are known."""
        ...

    async def close(self) -> None:
        """Release the proxies; they keep serving."""
        ...

    async def stop(self) -> None:
        """End the proxies: for tests, demos and explicit requests only."""
        ...


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
    """Read ``spiffe://<trust domain>/…/group/<group>``; empty for any other URI."""
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
