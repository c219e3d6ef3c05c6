"""The fleet of Envoys on one machine, which its load balancers share.

Each load balancer has its own address, and keeps its own port numbers. One process serves all of them, or several share
them by address: Envoy compares each new listener with all that it has, so many of them start faster in parts.
In: load balancers. Out: the fleet of these proxies, which ``local_envoy`` keeps running and which outlive the hub.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import msgspec
import structlog

from fairlead.errors import BadConfiguration
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey, machine_of, node_group
from fairlead.model.observed import Ensured
from fairlead.providers.envoy.bootstrap import ENVOY_FLAGS, Bootstrap, bootstrap_json
from fairlead.providers.envoy.connections import may_borrow_sockets, may_destroy_sockets
from fairlead.providers.envoy.envoy_process import (
    LOCK,
    LocalEnvoy,
    check_socket_path,
    envoys_of,
    file_limit,
    has_address,
    wanted_directories,
)
from fairlead.providers.envoy.fleet import NOT_CLOSED, NOT_RESET
from fairlead.runtime.private_file import DirectoryLock

#: Of one Envoy; where several share the load balancers, each has its number behind that.
GROUP = "local"

#: Files that Envoy opens in addition to listeners and connections.
_OTHER_FILES = 256
#: Which part of a proxy's connections one port, or one HTTP backend, may have: two that lead to each other leave half.
_PER_CLUSTER = 4
#: The part of the limit from which the log has a warning.
_NEAR = 0.8
_ELSEWHERE = (
    "is not an address of the hub's machine, and no proxy machine has joined to serve it. Add one with: fairlead proxy "
    "token. Or start the hub with --announce"
)
_STEPS = "raise the limit (ulimit -Hn), lower --envoy-threads or raise --envoys"

log = structlog.get_logger(__name__)


class LocalFleet:
    """The Envoy processes of this machine, ``envoys`` of them, and the proxy machines that joined.

    Load balancers with recorded machines are on these; the others on the Envoys here.

    ``data_dir`` is made if it is missing. ``concurrency`` is the number of worker threads of each. Half of the files
    that a process may open are for listeners (each costs one for each worker), the rest for connections (two each), of
    which one port has a quarter at the most: the load balancers of all members share the process.
    """

    allocation = AllocationKind.ADDRESS
    on_hub_machine = True
    #: Another program on this machine may have the port: the kernel must refuse it.
    reuse_port = False

    def __init__(
        self, *, data_dir: Path, concurrency: int = 0, envoys: int = 1, binary: Path | None = None, max_files: int = 0
    ) -> None:
        self._data_dir = data_dir.absolute()
        concurrency = concurrency or min(2, os.cpu_count() or 1)
        self.xds_socket = check_socket_path(self._data_dir / "xds.sock")
        files = max_files or file_limit()
        self.max_listeners = files // 2 // concurrency
        connections = max(16, (files - files // 2 - _OTHER_FILES) // 2)
        self.connections_per_cluster = max(16, connections // _PER_CLUSTER)
        self._near: set[str] = set()
        self._addresses: dict[LoadBalancerKey, Ensured] = {}
        #: The load balancers that the Envoys here serve.
        self._here: set[LoadBalancerKey] = set()
        #: Whether a load balancer without recorded machines is to get some, so that it is not served here first.
        self.awaits_machines: Callable[[LoadBalancerKey], bool] = lambda _key: False
        #: The name of this machine as a proxy machine; empty while it announces nothing.
        self.machine = ""
        #: Proxy machines may join, and listen at addresses that this machine does not have.
        self.has_machines = False
        #: By group.
        self.envoys: dict[str, LocalEnvoy] = {}
        self._lock = DirectoryLock(
            self._data_dir,
            option="--data-dir",
            name=LOCK,
            unusable="make it writable or choose another",
            taken=f"another hub uses the data directory {self._data_dir} and the Envoy in it: stop that hub first. A "
            "hub for another API needs a --data-dir and an --address-pool of its own",
        )
        directories = wanted_directories(self._data_dir, envoys)
        for number, directory in enumerate(directories, start=1):
            group = GROUP if len(directories) == 1 else f"{GROUP}-{number}"
            bootstrap = bootstrap_json(
                Bootstrap(
                    node_id=f"{group}/{os.uname().nodename}",
                    group=group,
                    xds_address=str(self.xds_socket),
                    admin_socket=str(directory / "admin.sock"),
                    max_connections=connections,
                )
            )
            self.envoys[group] = LocalEnvoy(
                directory=directory,
                bootstrap=msgspec.json.format(msgspec.json.encode(bootstrap), indent=1),
                options=("--concurrency", str(concurrency), *ENVOY_FLAGS),
                binary=binary,
            )

    # --- the traffic side -------------------------------------------------------------------------------------

    def groups_of(self, spec: FrontendSpec) -> tuple[str, ...]:
        """Return its machines, or the Envoy of its first address: all ports of an address are of one Envoy."""
        new = not spec.machines and spec.key not in self._here
        if new and (self.awaits_machines(spec.key) or self._is_elsewhere(spec)):
            return ()
        envoys = list(self.envoys)
        here = envoys[crc32(next(iter(spec.addresses), "").encode()) % len(envoys)]
        groups = (here if machine in ("", self.machine) else node_group(machine) for machine in spec.machines or ("",))
        return tuple(dict.fromkeys(groups))

    def bind_addresses(self, spec: FrontendSpec) -> tuple[str, ...]:
        """Return the load balancer's own addresses."""
        return spec.addresses

    def sees_clients(self, spec: FrontendSpec) -> bool:  # noqa: ARG002 - always
        """Return True: connections arrive from the client itself."""
        return True

    def http3_problem(self, spec: FrontendSpec) -> str:  # noqa: ARG002 - the proxy has the address itself
        """Return no problem: clients can use HTTP/3."""
        return ""

    def refuse(self, *, group: str, listeners: int) -> str:
        """Reject listeners that would take Envoy to its limit of open files, where it aborts."""
        if machine_of(group):
            return ""  # a full machine gets no more by placement
        if listeners <= self.max_listeners:
            near = listeners > _NEAR * self.max_listeners
            if near and group not in self._near:
                sentence = f"{_STEPS} before it is reached"
                log.warning(
                    "envoy is close to its limit of ports", ports=listeners, limit=self.max_listeners, sentence=sentence
                )
            (self._near.add if near else self._near.discard)(group)
            return ""
        return f"this machine's proxy can open {self.max_listeners} ports with its limit of open files; {_STEPS}"

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Do nothing: addresses change only by ``ensure``."""

    def why_not_closed(self, groups: Sequence[str], *, resets: bool) -> str:
        """Return an error if this process lacks the right. Proxy machines close those of their own Envoys."""
        if all(map(may_borrow_sockets, self.pids(groups))):
            return ""
        if may_destroy_sockets():
            return NOT_RESET if resets else ""
        return f"{NOT_CLOSED}: the hub lacks CAP_NET_ADMIN, and the kernel lets it trace no Envoy"

    def pids(self, groups: Sequence[str]) -> list[int]:
        """Return the Envoys here that are of these groups."""
        envoys = (self.envoys.get(group) for group in groups)
        return [envoy.running.pid for envoy in envoys if envoy is not None and envoy.running is not None]

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Return the load balancer's own addresses."""
        groups = self.groups_of(spec)
        here = any(not machine_of(group) for group in groups)
        (self._here.add if here else self._here.discard)(spec.key)
        elsewhere = not groups and not self.awaits_machines(spec.key)
        message = f"{spec.addresses[0]} {_ELSEWHERE}" if elsewhere and spec.addresses else ""
        self._addresses[spec.key] = Ensured(spec.addresses, message)
        return self._addresses[spec.key]

    def addresses(self, key: LoadBalancerKey) -> Ensured:
        """Return the load balancer's own addresses."""
        return self._addresses.get(key, Ensured())

    async def delete(self, key: LoadBalancerKey) -> None:
        """Forget the address."""
        self._here.discard(key)
        self._addresses.pop(key, None)

    def _is_elsewhere(self, spec: FrontendSpec) -> bool:
        """Return whether only a proxy machine can serve a load balancer, and none has joined."""
        return self.has_machines and not self.machine and not all(map(has_address, spec.addresses))

    # --- the process side -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Lock the data directory, for the life of this process: one hub, and its Envoys.

        Raises:
            BadConfiguration: another hub has it, its Envoys are not as many as wanted here, or it cannot be used.
        """
        for envoy in self.envoys.values():
            envoy.prepare()
        self._lock.take()
        ours = {envoy.directory for envoy in self.envoys.values()}
        if envoys_of(self._data_dir).keys() - ours:
            self._lock.release()
            raise BadConfiguration(
                f"--envoys: another number of Envoys serves in {self._data_dir}, and load balancers would move between "
                f"them; end them first with  fairlead standalone --stop --data-dir {self._data_dir}"
            )

    async def start(self) -> None:
        """Adopt the Envoys of the data directory, start those that do not run, and keep them running."""
        self.prepare()
        for envoy in self.envoys.values():
            await envoy.start()

    async def sweep(self) -> None:
        """Do nothing: deleted load balancers are not served."""

    async def close(self) -> None:
        """Release the data directory for the next hub; its Envoys keep serving."""
        for envoy in self.envoys.values():
            await envoy.close()
        self._lock.release()

    async def stop(self) -> None:
        """End the Envoys, then release the data directory."""
        for envoy in self.envoys.values():
            await envoy.stop()
        self._lock.release()
