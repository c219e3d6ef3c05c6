"""Look up which member owns a host name, by the Hostnames of the hub; a name without a Hostname has no owner.

In: the Hostnames, where the hub serves names, and the domains of Tenants. Out: the member of a name: that of the name
itself, else that of the star above it. The star of a domain that is a member's alone is its. Never: decides who has a
name.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.hostname import Hostname
from fairlead.api.hostnames import WILDCARD, wildcards_over
from fairlead.api.names import LABEL_CHALLENGE
from fairlead.api.tenant import Tenant
from fairlead.hub.inventory import Inventory
from fairlead.hub.names.ownership import Domains
from fairlead.translate.tenant_domains import domain_holders, held_domains


class Owners:
    """The owners of names."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._members: dict[str, dict[str, str]] = {}
        #: Made of all Tenants when it is asked for: a member may have thousands of wildcards.
        self._domains: Domains | None = None

    def watch(self, changed: Callable[[str], None]) -> None:
        """Follow the Hostnames; ``changed`` is called with a name that got another owner, empty: any name may have."""

        def follow(old: Hostname | None, new: Hostname | None) -> None:
            before = _owned(old)
            after = _owned(new)
            if before == after:
                return
            if old is not None and before is not None:
                self._members.get(before[0], {}).pop(old.metadata.name, None)
            if new is not None and after is not None:
                self._members.setdefault(after[0], {})[new.metadata.name] = after[1]
            for name in {each[0] for each in (before, after) if each is not None}:
                changed(name)

        def follow_domains(old: Tenant | None, new: Tenant | None) -> None:
            self._domains = None
            if (old is None) != (new is None) or held_domains(old) != held_domains(new):
                changed("")

        self._inventory.hostnames.on_change(follow)
        self._inventory.tenants.on_change(follow_domains)

    def of(self, host: str) -> str | None:
        """Return the member that has ``host``, None when none is known to have it."""
        for name in (host.lower(), *wildcards_over(host.lower())):
            members = self._members.get(name)
            if members:
                return members[min(members)]
        if not host.startswith(WILDCARD):
            return None
        holder = domain_holders(self._inventory.all_tenants()).get(host.removeprefix(WILDCARD).lower())
        return holder.metadata.name if holder is not None else None

    def granted_to(self, space: str) -> Callable[[str], bool]:
        """Return what says whether a name is in a domain of the member with namespace ``space``."""

        def granted(host: str) -> bool:
            if self._domains is None:
                self._domains = Domains(self._inventory.all_tenants())
            return self._domains.gives(host.lower(), space)

        return granted


def _owned(hostname: Hostname | None) -> tuple[str, str] | None:
    """Return the name and the member of a Hostname that is owned; challenges are no names of users."""
    if hostname is None or hostname.deleting or hostname.label(LABEL_CHALLENGE) or not hostname.spec.owner.member:
        return None
    return hostname.spec.host.lower(), hostname.spec.owner.member
