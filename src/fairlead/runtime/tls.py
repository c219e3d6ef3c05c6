"""The TLS context of Fairlead's clients, and the hosts that are this machine.

In: certificates of authorities, or a host. Out: a context that checks chain, dates and name, as kubectl and curl do.
"""

from __future__ import annotations

import ssl
from ipaddress import ip_address


def client_context(authority: bytes | None = None) -> ssl.SSLContext:
    """Return a context that trusts the certificates of ``authority`` (PEM) only; None: whom this machine trusts.

    Raises:
        ssl.SSLError: ``authority`` has no certificate.
    """
    if authority is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # An empty text, or one with non-ASCII letters in a comment, raises the same kind of error.
        context.load_verify_locations(cadata=authority.decode("ascii", "replace").replace("\ufffd", "?") or "\n")
    # Python 3.13 and newer demand extensions that authorities made with ``openssl req -x509`` lack; kubectl does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # The certificate of an intermediate authority is enough on every Python.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def is_this_machine(host: str) -> bool:
    """Return whether the host of a request, with its port, is an address in figures, or localhost."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Return whether only processes of this machine reach a socket that listens on ``address``."""
    if address.lower() == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
