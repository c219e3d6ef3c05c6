"""The input of checks: everything that was read of a hub, of a member and of this machine, as plain values.

In: nothing; gatherers fill it. Out: ``Facts``. Objects are as the API server sent them, by ``plural.group``.
Never: a key or a token; of a certificate or token only its end is kept.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from fairlead.api.meta import AnyResource, JSONObject

#: What ``JSONObject`` lists are kept by: ``plural.group``.
Objects = dict[str, list[JSONObject]]


class Expiry(msgspec.Struct, frozen=True):
    """The expiry of a certificate or token: its name and place, when it expires, and the command that renews it.

    ``names`` are those that a certificate is valid for.
    """

    what: str
    where: str
    ends: datetime
    renew: str
    names: tuple[str, ...] = ()


class Denied(msgspec.Struct, frozen=True):
    """A right that an account lacks; ``resource`` is plural.group with a subresource after a slash."""

    account: str
    verb: str
    resource: str
    namespace: str = ""


class ApiFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster. ``error`` is why nothing of it could be read; ``unread`` why one kind could not.

    ``flags`` are those of kubectl and of the verbs that name its kubeconfig and context; empty in a pod.
    ``ahead_s`` is by how many seconds its clock is ahead of this machine's, ``uid`` that of its namespace kube-system,
    ``key_of`` the tenant whose key the kubeconfig is. ``denied`` is about the account that works there, where there
    is one, else about the kubeconfig's own user.
    """

    name: str
    server: str = ""
    flags: str = ""
    error: str = ""
    version: str = ""
    uid: str = ""
    key_of: str = ""
    ahead_s: float | None = None
    now: datetime = datetime.fromtimestamp(0, UTC)
    served: frozenset[str] = frozenset()
    objects: Objects = msgspec.field(default_factory=Objects)
    unread: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    denied: tuple[Denied, ...] = ()
    endings: tuple[Expiry, ...] = ()

    def list(self, resource: AnyResource) -> list[JSONObject]:
        """Return the objects of a kind; none where they were not read."""
        return self.objects.get(resource.full_name, [])

    def knows(self, resource: AnyResource) -> bool:
        """Return whether the objects of a kind were read, so that a missing one is really missing."""
        return resource.full_name in self.objects


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """This machine, as far as a hub with a local Envoy depends on it. Paths are empty where there are none."""

    data_dir: str = ""
    data_dir_problem: str = ""
    envoy: str = ""
    envoy_problem: str = ""
    low_ports_problem: str = ""
    file_limit: int = 1_048_576
    free_bytes: int = 1 << 40
    ephemeral_ports: tuple[int, int] = (32_768, 60_999)
    open_kubeconfigs: tuple[str, ...] = ()
    lost_envoys: tuple[str, ...] = ()


class ConnectionResult(msgspec.Struct, frozen=True):
    """The result of a connection from this machine to a target; ``problem`` is empty when it succeeded."""

    load_balancer: str
    target: str
    problem: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that was read; what was not asked for is None."""

    version: str
    hub: ApiFacts | None = None
    member: ApiFacts | None = None
    machine: Machine | None = None
    reach: tuple[ConnectionResult, ...] = ()

    @property
    def sides(self) -> tuple[ApiFacts, ...]:
        """Return the clusters that answered."""
        return tuple(side for side in (self.hub_read, self.member_read) if side is not None)

    @property
    def hub_read(self) -> ApiFacts | None:
        """Return the hub if it answered: only then is what is missing there really missing."""
        return self.hub if self.hub is not None and not self.hub.error else None

    @property
    def member_read(self) -> ApiFacts | None:
        """Return the member if it answered."""
        return self.member if self.member is not None and not self.member.error else None
