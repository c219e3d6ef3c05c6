"""How do the load balancers of one machine share its Envoy?

One process serves the groups of all load balancers; each of these has its own address, and keeps its own port numbers.
In: load balancers. Out: the fleet of one proxy, which ``local_envoy`` keeps running and which outlives the hub.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.providers.envoy.bootstrap import ENVOY_FLAGS, Bootstrap, bootstrap_json
from fairlead.providers.envoy.envoy_process import Running, admin_get, check_socket_path, file_limit
from fairlead.providers.envoy.local_envoy import LocalEnvoy

GROUP = "local"

#: Files that Envoy opens beside its listeners and connections.
_OTHER_FILES = 256
#: How long a page of the admin interface may take.
_ADMIN_S = 10.0
#: From this part of the limit on the log says so.
_NEAR = 0.8

log = structlog.get_logger(__name__)


class LocalFleet:
    """One Envoy process on this machine.

    ``data_dir`` is made if it is missing. ``concurrency`` is Envoy's number of worker threads. Half of the files that a
    process may open are for listeners (each costs one for each worker), the rest for connections (two each).
    """

    allocation = AllocationKind.ADDRESS
    #: Another program on this machine may have the port: the kernel must refuse it.
    reuse_port = False

    def __init__(
        self,
        *,
        data_dir: Path,
        concurrency: int = 0,
        binary: Path | None = None,
        max_files: int = 0,
    ) -> None:
        data_dir = data_dir.absolute()
        concurrency = concurrency or min(2, os.cpu_count() or 1)
        self.admin_socket = check_socket_path(data_dir / "admin.sock")
        self.xds_socket = check_socket_path(data_dir / "xds.sock")
        files = max_files or file_limit()
        self.max_listeners = files // 2 // concurrency
        bootstrap = bootstrap_json(
            Bootstrap(
                node_id=f"{GROUP}/{os.uname().nodename}",
                group=GROUP,
                xds_address=str(self.xds_socket),
                admin_socket=str(self.admin_socket),
                max_connections=max(16, (files - files // 2 - _OTHER_FILES) // 2),
            )
        )
        self._near = False
        self._addresses: dict[LoadBalancerKey, Ensured] = {}
        self._envoy = LocalEnvoy(
            data_dir=data_dir,
            admin_socket=self.admin_socket,
            bootstrap=msgspec.json.format(msgspec.json.encode(bootstrap), indent=1),
            options=("--concurrency", str(concurrency), *ENVOY_FLAGS),
            binary=binary,
        )

    # --- the traffic side -------------------------------------------------------------------------------------

    def group_of(self, spec: FrontendSpec) -> str:  # noqa: ARG002 - there is but one
        """Return the one group that there is."""
        return GROUP

    def bind_addresses(self, spec: FrontendSpec) -> tuple[str, ...]:
        """Return the load balancer's own addresses."""
        return spec.addresses

    def sees_clients(self, spec: FrontendSpec) -> bool:  # noqa: ARG002 - always
        """Return True: connections arrive from the client itself."""
        return True

    def refuse(self, *, group: str, listeners: int) -> str:  # noqa: ARG002 - there is but one
        """Refuse what would take Envoy to its limit of open files, where it aborts."""
        if listeners <= self.max_listeners:
            self._warn_when_near(listeners)
            return ""
        return (
            f"this machine's proxy can open {self.max_listeners} ports with its limit of open files; "
            "raise the limit (ulimit -Hn) or lower --envoy-threads"
        )

    def _warn_when_near(self, listeners: int) -> None:
        near = listeners > _NEAR * self.max_listeners
        if near and not self._near:
            log.warning(
                "envoy comes near its limit of ports",
                ports=listeners,
                limit=self.max_listeners,
                sentence="raise the limit of open files (ulimit -Hn) or lower --envoy-threads before it is reached",
            )
        self._near = near

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Do nothing: addresses change only by ``ensure``."""

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Return the load balancer's own addresses."""
        self._addresses[spec.key] = Ensured(spec.addresses)
        return self._addresses[spec.key]

    def addresses(self, key: LoadBalancerKey) -> Ensured:
        """Return the load balancer's own addresses."""
        return self._addresses.get(key, Ensured())

    async def delete(self, key: LoadBalancerKey) -> None:
        """Forget the address."""
        self._addresses.pop(key, None)

    # --- the process side -------------------------------------------------------------------------------------

    @property
    def running(self) -> Running | None:
        """Return the Envoy process, if there is one."""
        return self._envoy.running

    @property
    def adopted(self) -> bool:
        """Return whether the process was started by an earlier hub."""
        return self._envoy.adopted

    @property
    def restarts(self) -> int:
        """Return how often Envoy has ended by itself and was started again."""
        return self._envoy.restarts

    async def admin(self, path: str) -> tuple[int, str]:
        """Ask the admin interface for a page: HTTP status (0: no answer), text."""
        return await admin_get(self.admin_socket, path, timeout_s=_ADMIN_S)

    def prepare(self) -> None:
        """Lock the data directory, for the life of this process: one hub, one Envoy."""
        self._envoy.lock()

    async def start(self) -> None:
        """Adopt the Envoy of the data directory, or start one, and keep one running."""
        await self._envoy.start()

    async def sweep(self) -> None:
        """Do nothing: what is gone is not served."""

    async def close(self) -> None:
        """Release the data directory for the next hub; Envoy goes on serving."""
        await self._envoy.close()

    async def stop(self) -> None:
        """End Envoy, then release the data directory."""
        await self._envoy.stop()
