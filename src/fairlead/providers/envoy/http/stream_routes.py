"""The rules of listeners that see no requests: TCP, UDP, and TLS by SNI.

In: a listener, the routes attached to it, the hostnames of the other listeners of its port. Out: one rule for each
server name; of several routes with one name the oldest wins, and of a route its first rule. Requirements: G-92, G-98,
G-100.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairlead.model.http import L7Listener, Route, Rule
from fairlead.providers.envoy.http.hostnames import most_specific, normal
from fairlead.providers.envoy.http.route_match import age

#: The routes at each listener, by its name, each with the hostnames at which it is attached there.
Attached = Mapping[str, Sequence[tuple[Route, tuple[str, ...]]]]


def attached_by_listener(routes: Iterable[Route]) -> Attached:
    """Return the routes with rules, older ones first, by listener: looked for once, and not by each of a thousand."""
    by_listener: dict[str, list[tuple[Route, tuple[str, ...]]]] = {}
    for route in sorted((route for route in routes if route.rules), key=age):
        for each in route.attachments:
            by_listener.setdefault(each.listener, []).append((route, each.hostnames))
    return by_listener


def rules_by_server_name(listener: L7Listener, routes: Attached, owners: Mapping[str, L7Listener]) -> dict[str, Rule]:
    """Return the rule for each server name of a listener, sorted; ``owners`` are the port's listeners by hostname."""
    return {name: route.rules[0] for name, route in routes_by_server_name(listener, routes, owners).items()}


def routes_by_server_name(listener: L7Listener, routes: Attached, owners: Mapping[str, L7Listener]) -> dict[str, Route]:
    """Return the route for each server name, as ``rules_by_server_name`` chooses it."""
    chosen: dict[str, Route] = {}
    for route, hostnames in routes.get(listener.name, ()):
        for hostname in hostnames or (listener.hostname,):
            name = normal(hostname)
            owner = most_specific(name, owners)
            if owner is not None and owners[owner] is listener:
                chosen.setdefault(name, route)
    return dict(sorted(chosen.items()))


def first_rule(listener: L7Listener, routes: Attached) -> Rule | None:
    """Return the rule of a listener without server names (TCP, UDP)."""
    return next((route.rules[0] for route, _ in routes.get(listener.name, ())), None)
