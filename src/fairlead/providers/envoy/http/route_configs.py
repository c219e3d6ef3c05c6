"""The route configurations of a port's listeners, and the clusters that each needs first.

In: the listeners of a port that see requests, and the routes by listener and hostname. Out: for each configuration its
bytes and the clusters that it names. HTTP listeners of a port share one; each HTTPS listener has its own, since the
server name has chosen it before there is a request.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/route/v3/route.proto
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairlead.model.http import L7Listener
from fairlead.model.keys import ListenerKey, LoadBalancerKey
from fairlead.providers.envoy.http.hostnames import normal
from fairlead.providers.envoy.http.names import routes_name
from fairlead.providers.envoy.http.rate_limits import LOCAL_RATE_LIMIT, RATE_LIMIT, rule_rate_limits
from fairlead.providers.envoy.http.retries import RETRY_HEADER
from fairlead.providers.envoy.http.route_table import AtListener
from fairlead.providers.envoy.http.virtual_hosts import VirtualHosts
from fairlead.providers.envoy.schema import Schema
from fairlead.providers.envoy.wire import text

ROUTES = "envoy.config.route.v3.RouteConfiguration"


#: The listeners of a configuration, and all listeners of its port by hostname.
_Shape = tuple[tuple[L7Listener, ...], Mapping[str, L7Listener]]


class RouteConfigs:
    """The route configurations of one load balancer."""

    def __init__(self, schema: Schema, key: LoadBalancerKey) -> None:
        self._schema = schema
        self._key = key
        #: For each configuration its listeners and owners, and its virtual hosts.
        self._hosts: dict[str, tuple[_Shape, VirtualHosts]] = {}
        #: The listeners of each port by hostname, as they were given first.
        self._owners: dict[ListenerKey, Mapping[str, L7Listener]] = {}
        self._http3 = False

    def serve_http3(self, on: bool) -> None:
        """Set whether answers over HTTPS say that HTTP/3 is served at the same port."""
        if on != self._http3:
            self._http3 = on
            self._hosts.clear()

    def owners(self, port: ListenerKey, listeners: Sequence[L7Listener]) -> Mapping[str, L7Listener]:
        """Return the listeners of a port by hostname: the same mapping, with the same listeners, while they are equal.

        So each of a thousand configurations of one port compares an identity, and not a thousand listeners.
        """
        owners = {normal(listener.hostname): listener for listener in listeners}
        known = self._owners.get(port)
        if known is None or known != owners:
            known = self._owners[port] = owners
        return known

    def names(self, listeners: Sequence[L7Listener]) -> dict[str, list[L7Listener]]:
        """Return the listeners of each route configuration that a port needs, by its name."""
        names: dict[str, list[L7Listener]] = {}
        for listener in listeners:
            if listener.protocol in {"HTTP", "HTTPS"}:
                names.setdefault(self.name(listener), []).append(listener)
        return names

    def name(self, listener: L7Listener) -> str:
        """Return the name of the route configuration of a listener."""
        hostname = None if listener.protocol == "HTTP" else normal(listener.hostname)
        return routes_name(self._key, listener.port, hostname)

    def encode(
        self,
        name: str,
        served: Sequence[L7Listener],
        owners: Mapping[str, L7Listener],
        routes: Mapping[str, AtListener],
        touched: Iterable[tuple[str, str]] | None,
        *,
        buckets: Mapping[str, int],
    ) -> bytes:
        """Encode a route configuration.

        ``owners`` comes from the method of that name, ``buckets`` are those of limited rules, the other arguments are
        those of ``VirtualHosts.encode``.
        """
        # Listeners are compared by identity, so these are the very ones of ``owners``.
        served = tuple(owners[normal(listener.hostname)] for listener in served)
        known = self._hosts.get(name)
        if known is not None and self.is_same(name, served, owners):
            hosts = known[1]
        else:
            hosts = VirtualHosts(self._schema, port=served[0].port, secure=served[0].protocol == "HTTPS")
            self._hosts[name] = ((served, owners), hosts)
            touched = None
        http3_port = served[0].port if self._http3 and served[0].protocol == "HTTPS" else 0
        return b"".join(
            (text(1, name), *hosts.encode(served, owners, routes, touched), self._options(http3_port, buckets))
        )

    def _options(self, http3_port: int, buckets: Mapping[str, int]) -> bytes:
        """Encode what is not a virtual host; ``http3_port`` 0: HTTP/3 is not served."""
        fields: dict[str, object] = {
            # The port of the Host header is no part of the name, and stays in the header.
            "ignore_port_in_host_matching": True,
            # A cluster that is not there costs its own share of requests, and not the configuration.
            "validate_clusters": {"value": False},
            "request_headers_to_add": [RETRY_HEADER],
        }
        if http3_port:
            header = {"key": "alt-svc", "value": f'h3=":{http3_port}"; ma=86400'}
            fields["response_headers_to_add"] = [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
        if buckets:
            fields["typed_per_filter_config"] = {
                RATE_LIMIT: self._schema.any(LOCAL_RATE_LIMIT, rule_rate_limits(buckets))
            }
        return self._schema.encode(ROUTES, fields)

    def is_same(self, name: str, served: Sequence[L7Listener], owners: Mapping[str, L7Listener]) -> bool:
        """Return whether a configuration was last encoded for these listeners."""
        known = self._hosts.get(name)
        return known is not None and known[0][1] is owners and known[0][0] == tuple(served)

    def forget(self, kept: Iterable[str]) -> None:
        """Drop what is kept of configurations that are no longer wanted."""
        wanted = set(kept)
        self._hosts = {name: hosts for name, hosts in self._hosts.items() if name in wanted}
