"""The TLS context of Fairlead's clients.

In: certificates of authorities. Out: a context that checks chain, dates and name, as kubectl and curl do.
"""

from __future__ import annotations

import ssl


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
