"""The desired state of a load balancer: the output of ``translate/`` and the left side of every plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from fairlead.model.health import HealthCheck, OutlierDetection
from fairlead.model.http import BackendTls, Certificate, L7Config
from fairlead.model.keys import ANY_FAMILY, ListenerKey, LoadBalancerKey, Protocol, TargetKey, WantedFamilies

#: The longest time that targets may drain.
MAX_DRAIN_S = 3600.0


class Affinity(StrEnum):
    """Whether connections of one client go to one target."""

    NONE = "None"
    CLIENT_IP = "ClientIP"


class ProxyProtocol(StrEnum):
    """The PROXY protocol header sent to targets ahead of each connection, if any."""

    NONE = ""
    V1 = "v1"
    V2 = "v2"


class Target(msgspec.Struct, frozen=True, gc=False):
    """One backend of one listener.

    ``draining`` is positive knowledge that it is going away (terminating, or reported not ready): it gets no new
    connections and keeps the ones it has.
    """

    key: TargetKey
    weight: int = 1
    draining: bool = False
    #: The owners, ordered: the target is removed with the last of them. Empty where a load balancer has only one owner.
    owners: tuple[str, ...] = ()
    #: The parameters for the provider, ordered by key.
    parameters: tuple[tuple[str, str], ...] = ()
    #: The object behind it as kind/namespace/name/uid; a successor with the same address is another backend.
    source: str = ""
    #: In service although reported as terminating: a later disappearance is expected.
    terminating: bool = False
    #: The ``Locality`` that it belongs to; empty for a load balancer of one member.
    locality: str = ""


class Listener(msgspec.Struct, frozen=True, gc=False):
    """One port on which the load balancer answers.

    ``proxy_port`` is the port on which the proxy listens when that is not ``port`` itself: several load
    balancers behind one proxy address are distinguished by it. 0 means "the same as ``port``".
    """

    port: int
    protocol: Protocol = Protocol.TCP
    name: str = ""
    proxy_port: int = 0

    @property
    def key(self) -> ListenerKey:
        """Return the identity of this listener within its load balancer."""
        return ListenerKey(self.protocol, self.port)

    @property
    def bind_port(self) -> int:
        """Return the port that the proxy opens."""
        return self.proxy_port or self.port


class GuardPolicy(msgspec.Struct, frozen=True, gc=False):
    """The limits of removals in one run without positive knowledge that the targets are gone."""

    max_removal_percent: int = 50
    min_targets: int = 1


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The user's object that all of this is for, so that everything external can be traced back to it."""

    member: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


Targets = Mapping[TargetKey, Target]


class Spillover(StrEnum):
    """When a later tier gets new connections: once no target of a tier is healthy, or as its healthy ones decline."""

    STRICT = "strict"
    PROPORTIONAL = "proportional"


class Locality(msgspec.Struct, frozen=True, gc=False):
    """The targets of one member: their common share of new connections, whatever their number, and their tier.

    ``weight`` 0: no new connections, while the targets are still checked. ``tier``: from 0, without a gap. ``dark``:
    its targets count as unhealthy, whatever checks say.
    """

    name: str
    weight: int = 1
    tier: int = 0
    dark: bool = False


class Shares(msgspec.Struct, frozen=True, gc=False):
    """How the members of one set of targets share new connections; ``localities`` are ordered by name.

    ``drain_s`` and ``drain_reset`` as in ``FrontendSpec``, for backends of routes.
    """

    localities: tuple[Locality, ...]
    spillover: Spillover = Spillover.STRICT
    drain_s: float | None = None
    drain_reset: bool = False


class FrontendSpec(msgspec.Struct, frozen=True):
    """The frontend of a load balancer: everything but its targets, which change far more often.

    ``group`` is the set of load balancers that may share a proxy (a tenant). ``address`` is what was
    allocated or asked for; empty when the provider finds one itself. ``listeners`` are ordered by (port, protocol).
    ``source_ranges`` are canonical CIDRs, ordered; empty means everybody.
    """

    key: LoadBalancerKey
    group: str
    listeners: tuple[Listener, ...]
    address: str = ""
    #: That of the other family, for a load balancer that has both.
    second_address: str = ""
    #: Families of the addresses, for providers that find them; empty: the provider chooses.
    families: WantedFamilies = ANY_FAMILY
    source_ranges: tuple[str, ...] = ()
    affinity: Affinity = Affinity.NONE
    proxy_protocol: ProxyProtocol = ProxyProtocol.NONE
    health_check: HealthCheck | None = HealthCheck()
    #: How many times less often targets are checked than users ask for; ``health_check`` is slowed already.
    check_slowdown: int = 1
    #: In place of the built-in detection of targets whose connections fail; None where no user has set one.
    outlier_detection: OutlierDetection | None = None
    #: Connection and identity; fixed for the life of the load balancer.
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    #: The parameters that may change during its life.
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    owner: Owner = Owner()
    #: The load balancer existed before and is not ours: it is used, and never deleted.
    existing: bool = False
    #: Reaches the proxies' own frontend only, never the targets (externalTrafficPolicy of a generated Service).
    local_traffic_only: bool = False
    #: Its proxies, which others share, limit its connections.
    limits_connections: bool = False
    #: The proxy machines that serve it; "" are the hub's own proxies. None are known when empty.
    machines: tuple[str, ...] = ()
    #: How long a target that terminates keeps its connections, which are closed then; None: as long as they last.
    drain_s: float | None = None
    #: They are aborted then, so that neither end takes what it has for the whole.
    drain_reset: bool = False
    #: How several members share its connections; None for a load balancer of one member.
    shares: Shares | None = None
    #: How targets are reached over TLS, in place of plain TCP, with the client certificate of that name.
    backend_tls: BackendTls | None = None
    certificates: Mapping[str, Certificate] = msgspec.field(default_factory=dict[str, Certificate])
    #: The handling of requests; None for a load balancer of connections. ``listeners`` are then its distinct ports.
    l7: L7Config | None = None
    #: How several members share the requests of backends of ``l7``, by name; other backends are of one member.
    backend_shares: Mapping[str, Shares] = msgspec.field(default_factory=dict[str, Shares])

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the allocated or requested addresses: none, one, or one of each family."""
        return tuple(filter(None, (self.address, self.second_address)))

    def shares_of(self, listener: ListenerKey) -> Shares | None:
        """Return how several members share the targets of a listener or backend; None when they are of one."""
        return self.shares if self.l7 is None else self.backend_shares.get(listener.backend)


class DesiredLoadBalancer(msgspec.Struct, frozen=True):
    """The desired state of one load balancer.

    ``targets`` has exactly one entry for each of ``spec.listeners``, or with ``spec.l7`` for each backend
    (``backend_key``). ``drain_s`` is how long a removed target keeps
    its established connections. ``stale`` is non-empty when the view it was built from is known to be incomplete:
    then nothing may be removed, and the text says why.
    """

    spec: FrontendSpec
    targets: Mapping[ListenerKey, Targets]
    drain_s: float = 0.0
    guard: GuardPolicy = GuardPolicy()
    stale: str = ""
    #: All that may own a target of a listener now; a target that only others own has lost its owners. A listener
    #: without an entry has no owners, or they are unknown.
    owners: Mapping[ListenerKey, frozenset[str]] = {}
    paused: bool = False
    #: Why nothing at all is written, not even what was never programmed; empty when it may be.
    dry_run: str = ""
    #: Our own entries are registered again this often (ensurePolicy Always); 0: manual changes are kept.
    repair_s: float = 0.0
    #: Where load balancers answer: what is on record there and not wanted goes at once, and no guard holds it.
    excluded_targets: Collection[TargetKey] = {}
    #: A request to put back once what others changed, that has no answer yet; each value is another request.
    repair: str = ""

    @property
    def key(self) -> LoadBalancerKey:
        """Return the identity of the load balancer."""
        return self.spec.key


K = TypeVar("K", bound=Hashable)


class FairOrder(Generic[K]):
    """Keys, each in the group that ``group_of`` returns when it is added."""

    def __init__(self, group_of: Callable[[K], Hashable]) -> None:
        self._group_of = group_of
        self._groups: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, key: K) -> None:
        """Add a key; a key that is already in the same group keeps its place."""
        keys = self._groups.setdefault(self._group_of(key), OrderedDict())
        self._size += key not in keys
        keys[key] = None

    def pop(self) -> K:
        """Remove and return the next key; there must be one."""
        group, keys = self._groups.popitem(last=False)
        key, _ = keys.popitem(last=False)
        if keys:
            self._groups[group] = keys
        self._size -= 1
        return key
