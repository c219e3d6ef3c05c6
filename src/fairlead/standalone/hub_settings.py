"""The settings of ``fairlead hub``, checked before anything is started."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import msgspec

from fairlead.api.naming import region_problem
from fairlead.errors import BadConfiguration
from fairlead.model.families import IPV4, IPV6
from fairlead.translate.address_ranges import AddressRanges
from fairlead.translate.generated import domain_problem

_LOOPBACK = {IPV4: "127.200.0.0/16", IPV6: "::1/128"}
#: A quarter of what a proxy of an ordinary machine can open.
DEFAULT_TENANT_PORTS = 2000


class HubSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``fairlead hub``. A kubeconfig of None is the default one; ``metrics`` None: no pages.

    ``context`` empty: the current one of the kubeconfig.

    The last four count with ``deployment`` only; an empty image is the default one.
    """

    data_dir: Path
    kubeconfig: Path | None = None
    context: str = ""
    #: Become a hub where an agent of another hub works.
    new_hub: bool = False
    #: The hub's own cluster is its member, too.
    own_member: bool = False
    deployment: bool = False
    address_pool: str = ""
    region: str = ""
    #: Where members' names are made; empty: nowhere.
    domain: str = ""
    metrics: tuple[str, int] | None = None
    stop_proxy: bool = False
    #: How many ports a Tenant may have on the proxies that does not say; 0: any number.
    tenant_ports: int = DEFAULT_TENANT_PORTS
    #: Worker threads of each local Envoy; 0 means one for each core, two at the most.
    envoy_concurrency: int = 0
    #: How many Envoys share the load balancers of this machine, by address.
    envoys: int = 1
    xds_listen: tuple[str, int] = ("0.0.0.0", 18_000)
    xds_address: tuple[str, int] = ("fairlead-hub.fairlead-system.svc", 18_000)
    proxy_image: str = ""
    proxy_replicas: int = 2

    def check(self) -> None:
        """Raise ``BadConfiguration`` for what cannot work, before anything is started."""
        self.pool()
        if self.region and (problem := region_problem(self.region)):
            raise BadConfiguration(problem)
        if self.domain and (problem := domain_problem(self.domain)):
            raise BadConfiguration(f"--domain: {self.domain!r} is no domain that names can be made in: {problem}")
        if self.domain and self.region:
            raise BadConfiguration(
                "--domain: a hub of one region makes no names; give it to the hub without --region, which serves all"
            )

    def pool(self) -> AddressRanges | None:
        """Return the address pool, None without one.

        Raises:
            BadConfiguration: the sentence says what is wrong with it.
        """
        if not self.address_pool:
            return None
        pool = AddressRanges.parse(self.address_pool)
        if not self.deployment:
            check_bindable(pool)
        return pool

    def loopback_targets(self) -> bool:
        """Say whether backends may be on loopback: only where load balancers are, too, so that no outsider comes in."""
        pool = None if self.deployment else self.pool()
        return pool is not None and pool.loopback


def check_bindable(pool: AddressRanges) -> None:
    """Refuse a pool whose first addresses this machine does not have: its local Envoy could not listen there."""
    for family in pool.families:
        ranges = pool.of(family)
        if not _may_bind(ranges[0], socket.AF_INET if family == IPV4 else socket.AF_INET6):
            bits = 32 if family == IPV4 else 128
            raise BadConfiguration(
                f"--address-pool: {ranges} is not on this machine, so its Envoy cannot listen there; use a loopback "
                f"range such as {_LOOPBACK[family]}, or add the addresses first (ip address add {ranges[0]}/{bits} dev "
                "...)"
            )


def _may_bind(address: str, kind: socket.AddressFamily) -> bool:
    """Return whether the machine has an address; one without the family has none of it."""
    try:
        with socket.socket(kind, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
    return True
