"""The virtual hosts of a set of listeners of one port.

In: the listeners, and for each of them the routes by hostname. Out: for each domain the groups of entries that a
request meets, one after the other. Envoy looks into one virtual host only, the most specific one; so the rules of less
specific hostnames of the same listener come behind, up to an entry that no request passes.

A listener with a more specific hostname keeps its requests for itself, even without a fitting route; over TLS the
requests of another listener of the port are misdirected (421). Requirements: G-26..G-28, G-63, G-64, G-114, G-115.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fairlead.model.http import L7Listener
from fairlead.providers.envoy.http.hostnames import has_one_label_more, most_specific, normal, patterns_for
from fairlead.providers.envoy.http.route_entries import RouteEntry, Variant
from fairlead.providers.envoy.http.route_table import AtListener, HostRoute
from fairlead.providers.envoy.schema import Schema
from fairlead.providers.envoy.wire import delimited, text

_MISDIRECTED = {"match": {"prefix": "/"}, "direct_response": {"status": 421}}


class Group:
    """The entries of one hostname of one listener, in order of precedence."""

    __slots__ = ("content", "routes", "whole")

    def __init__(self, routes: tuple[HostRoute, ...], hostname: str, *, port: int, secure: bool) -> None:
        self.routes = routes
        chosen: list[RouteEntry] = []
        for host_route in routes:
            variant = Variant(port, secure, hostname if host_route.one_label else "")
            chosen += host_route.route.entries(variant)
        chosen.sort(key=lambda entry: entry.rank)
        whole = next((number for number, entry in enumerate(chosen) if entry.whole), None)
        self.whole = whole is not None
        self.content = b"".join(entry.content for entry in (chosen if whole is None else chosen[: whole + 1]))


class VirtualHosts:
    """The virtual hosts of one route configuration; only what a change has touched is encoded again."""

    def __init__(self, schema: Schema, *, port: int, secure: bool) -> None:
        self._port, self._secure = port, secure
        #: For each listener its groups by hostname.
        self._groups: dict[str, dict[str, Group]] = {}
        #: For each domain its listener, the groups that a request meets, and the encoded virtual host.
        self._hosts: dict[str, tuple[str, tuple[Group, ...], bytes]] = {}
        self._misdirected = delimited(3, schema.encode("envoy.config.route.v3.Route", _MISDIRECTED))

    def encode(
        self,
        served: Sequence[L7Listener],
        owners: Mapping[str, L7Listener],
        routes: Mapping[str, AtListener],
        touched: Iterable[tuple[str, str]] | None,
    ) -> list[bytes]:
        """Encode the virtual hosts of ``served``, as fields of a route configuration, ordered by domain.

        ``owners`` are all listeners of the port by hostname, ``routes`` those of each listener by hostname, of which
        ``touched`` may differ from the last call; None: all of them, and the listeners too.
        """
        if touched is None:
            self._groups, self._hosts = {listener.name: {} for listener in served}, {}
            for listener in served:
                for hostname in routes.get(listener.name, {}):
                    self._regroup(listener.name, hostname, routes)
                for domain in {normal(listener.hostname), *self._groups[listener.name]}:
                    self._host(domain, listener, owners)
            for domain in self._others(served, owners):
                host = virtual_host(domain, self._misdirected)
                self._hosts.setdefault(domain, ("", (), host))
            self._hosts = dict(sorted(self._hosts.items()))
        else:
            by_name = {listener.name: listener for listener in served}
            for name, hostname in touched:
                if name in by_name:
                    self._touch(by_name[name], hostname, owners, routes)
        return [host for _, _, host in self._hosts.values()]

    def _touch(
        self, listener: L7Listener, hostname: str, owners: Mapping[str, L7Listener], routes: Mapping[str, AtListener]
    ) -> None:
        self._regroup(listener.name, hostname, routes)
        groups = self._groups[listener.name]
        new = hostname not in self._hosts
        if hostname in groups or hostname == normal(listener.hostname):
            self._host(hostname, listener, owners)
        elif self._hosts.get(hostname, ("",))[0] == listener.name:
            del self._hosts[hostname]
        if not hostname or hostname.startswith("*."):
            # More specific domains have its entries behind theirs.
            for domain, (owner, _, _) in list(self._hosts.items()):
                if owner == listener.name and domain != hostname and hostname in patterns_for(domain):
                    self._host(domain, listener, owners)
        if new and hostname in self._hosts:
            self._hosts = dict(sorted(self._hosts.items()))

    def _regroup(self, listener: str, hostname: str, routes: Mapping[str, AtListener]) -> None:
        members = tuple(routes.get(listener, {}).get(hostname, ()))
        if members:
            self._groups[listener][hostname] = Group(members, hostname, port=self._port, secure=self._secure)
        else:
            self._groups[listener].pop(hostname, None)

    def _host(self, domain: str, listener: L7Listener, owners: Mapping[str, L7Listener]) -> None:
        owner = most_specific(domain, owners)
        if owner is None or owners[owner] is not listener:
            return
        groups = tuple(met(domain, self._groups[listener.name]))
        known = self._hosts.get(domain)
        if known is None or known[:2] != (listener.name, groups):
            host = virtual_host(domain, b"".join(group.content for group in groups))
            self._hosts[domain] = (listener.name, groups, host)

    def _others(self, served: Sequence[L7Listener], owners: Mapping[str, L7Listener]) -> Iterable[str]:
        """Return the domains of requests that came to the wrong listener: with TLS the name was known before.

        That is every name; the hostname of another listener is listed only where one of ``served`` covers it.
        """
        if not self._secure:
            return ()
        mine = {normal(listener.hostname) for listener in served}
        if not any(not hostname or hostname.startswith("*.") for hostname in mine):
            return ("",)
        # Of a thousand listeners each asks this of all others.
        below = tuple(hostname[1:] for hostname in mine if hostname.startswith("*."))
        foreign = [each for each in owners if each not in mine and ("" in mine or each.endswith(below))]
        return foreign if "" in mine else [*foreign, ""]


def met(domain: str, groups: Mapping[str, Group]) -> Iterator[Group]:
    """Yield the groups that a request to a domain meets, the most specific hostname first."""
    for pattern in patterns_for(domain):
        group = groups.get(pattern)
        if group is None or not group.content:
            continue
        if pattern != domain and _never_one_label(domain, pattern, group):
            continue
        yield group
        if group.whole:
            return


def _never_one_label(domain: str, pattern: str, group: Group) -> bool:
    """Return whether all of a group stands for one label only, where this domain has more."""
    return all(each.one_label for each in group.routes) and not has_one_label_more(domain, pattern)


def virtual_host(domain: str, routes: bytes) -> bytes:
    """Encode a virtual host as a field of a route configuration; ``routes`` are encoded fields."""
    name = domain or "*"
    return delimited(2, text(1, name) + text(2, name) + routes)
