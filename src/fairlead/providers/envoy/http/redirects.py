"""The RedirectAction of a Redirect.

In: a Redirect, the path that its rule matches, and the listener's port. Out: fields. Which port the new location has
is the difficult part: Envoy keeps the one of the Host header unless the host or the port is replaced (G-72, G-109).
"""

from __future__ import annotations

from fairlead.model.http import PathMatch, Redirect
from fairlead.providers.envoy.http.paths import redirect_fields
from fairlead.providers.envoy.schema import Fields

_CODES = {
    301: "MOVED_PERMANENTLY",
    302: "FOUND",
    303: "SEE_OTHER",
    307: "TEMPORARY_REDIRECT",
    308: "PERMANENT_REDIRECT",
}
WELL_KNOWN_PORTS = {"http": 80, "https": 443}


def redirect_action(redirect: Redirect, path: PathMatch, *, port: int, secure: bool) -> Fields:
    """Build the action; ``port`` and ``secure`` are those of the listener."""
    fields: dict[str, object] = {"response_code": _CODES[redirect.status_code]}
    if redirect.scheme:
        fields["scheme_redirect"] = redirect.scheme
    if redirect.hostname:
        fields["host_redirect"] = redirect.hostname
    if (new_port := redirect_port(redirect, port=port, secure=secure)) is not None:
        fields["port_redirect"] = new_port
    if redirect.path is not None:
        fields |= redirect_fields(redirect.path, path)
    return fields


def redirect_port(redirect: Redirect, *, port: int, secure: bool) -> int | None:
    """Return the port to be written into the location; None when Envoy writes none, or the right one, by itself."""
    scheme = redirect.scheme or ("https" if secure else "http")
    well_known = WELL_KNOWN_PORTS[scheme]
    wanted = redirect.port or (well_known if redirect.scheme else port)
    if wanted != well_known or redirect.port:
        return wanted
    # With a new host Envoy writes no port. Without one it keeps that of the Host header, which belongs to the old
    # scheme.
    return None if redirect.hostname or not redirect.scheme else wanted
