"""Checks whether the listeners of a load balancer can be served together.

In: a FrontendSpec with L7. Out: sentences, empty when they can. What concerns one route or one certificate is not here:
that is left out and reported, and the rest is served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fairlead.model.desired import FrontendSpec
from fairlead.model.http import L7Config, L7Listener, ListenerProtocol, hostname_problem
from fairlead.model.keys import ListenerKey, Protocol
from fairlead.providers.envoy.http.hostnames import normal
from fairlead.providers.envoy.http.settings import HTTP3, http_settings, invalid_connections, invalid_settings

#: Protocols of listeners that share a port, chosen by server name.
_TOGETHER: dict[ListenerProtocol, str] = {"HTTP": "HTTP", "HTTPS": "TLS", "TLS": "TLS", "TCP": "TCP", "UDP": "UDP"}


def port_key(listener: L7Listener) -> ListenerKey:
    """Return which of the load balancer's ports a listener is on."""
    return ListenerKey(Protocol.UDP if listener.protocol == "UDP" else Protocol.TCP, listener.port)


def listeners_by_port(config: L7Config) -> dict[ListenerKey, list[L7Listener]]:
    """Return the listeners of each port, in their order."""
    ports: dict[ListenerKey, list[L7Listener]] = {}
    for listener in config.listeners:
        ports.setdefault(port_key(listener), []).append(listener)
    return ports


def invalid_config(spec: FrontendSpec) -> list[str]:
    """Return what is wrong with the L7 part of a spec, and with its parameters; empty when nothing is."""
    if spec.l7 is None:
        return invalid_connections(spec.parameters)
    settings = invalid_settings(spec.parameters)
    quic = [] if settings or not http_settings(spec.parameters).http3 else _http3_ports(spec.l7)
    return [*_listeners(spec, spec.l7), *_names(spec.l7), *settings, *quic]


def _listeners(spec: FrontendSpec, config: L7Config) -> Iterator[str]:
    ports = listeners_by_port(config)
    opened = {listener.key for listener in spec.listeners}
    for key in sorted(opened ^ ports.keys()):
        yield f"port {key} is {'opened without a listener' if key in opened else 'not among the opened ports'}"
    for each in config.listeners:
        if problem := hostname_problem(each.hostname):
            yield f"listener {each.name}: {problem}"
    for key, listeners in ports.items():
        kinds = {_TOGETHER[listener.protocol] for listener in listeners}
        if len(kinds) > 1:
            yield f"port {key} has listeners of {' and '.join(sorted(kinds))}, which cannot share it"
        hostnames = Counter(normal(listener.hostname) for listener in listeners)
        for hostname in sorted(name for name, count in hostnames.items() if count > 1):
            yield f"port {key} has two listeners with the hostname {hostname or '*'}"
        if kinds & {"TCP", "UDP"} and any(hostnames):
            yield f"port {key} has a listener of TCP or UDP with a hostname, which it cannot see"


def _http3_ports(config: L7Config) -> Iterator[str]:
    for number in sorted({each.port for each in config.listeners if each.protocol == "HTTPS"}):
        if any(each.protocol == "UDP" and each.port == number for each in config.listeners):
            yield f"port UDP/{number} has a listener, so HTTP/3 cannot be served there; set {HTTP3} to false"


def _names(config: L7Config) -> Iterator[str]:
    for what, names in (
        ("listener", [listener.name for listener in config.listeners]),
        ("route", [route.name for route in config.routes]),
        ("backend", [backend.name for backend in config.backends]),
    ):
        if twice := sorted(name for name, count in Counter(names).items() if count > 1):
            yield f"{what} {', '.join(twice)} is there twice"
