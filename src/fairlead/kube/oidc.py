"""How an OIDC id-token is renewed (kubeconfig ``auth-provider: oidc``).

In: the provider's config from the kubeconfig. Out: a fresh id-token and refresh-token.
Never: talks to the identity provider without checking its certificate.

The token request is the official library's; its TLS is not used, because without idp-certificate-authority-data it
turns verification off, and with it it fails (kubernetes 37, ``aio/config/openid.py``).
Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#openid-connect-tokens
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.openid import OpenIDRequestor

from fairlead.errors import BadConfiguration, Unreachable
from fairlead.kube.credentials import tls_context


class _Claims(msgspec.Struct):
    exp: float | None = None


class _Tokens(msgspec.Struct):
    id_token: str
    refresh_token: str = ""


class _Requestor(OpenIDRequestor):
    """The library's requestor, over TLS that is checked."""

    authority: bytes | None = None

    def _get_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(ssl=tls_context(authority=self.authority, source="the identity provider"))


def expiry_of(token: str) -> datetime | None:
    """Return when a JWT expires; None when it does not say, or is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=_Claims)
        return datetime.fromtimestamp(claims.exp, UTC) if claims.exp is not None else None
    except (msgspec.DecodeError, binascii.Error, ValueError, OverflowError):
        return None


async def refresh(config: Mapping[str, Any], *, source: str) -> dict[str, str]:
    """Return a fresh ``id-token`` and ``refresh-token``.

    Raises:
        BadConfiguration: a field is missing.
        Unreachable: the identity provider does not give one now.
    """
    for field in ("refresh-token", "client-id", "idp-issuer-url"):
        if not config.get(field):
            raise BadConfiguration(
                f"{source[:1].upper()}{source[1:]}: auth-provider.config.{field} is missing and the id-token has"
                " expired. Sign in again."
            )
    requestor = _Requestor(config["client-id"], config.get("client-secret") or "", config["idp-issuer-url"])
    if config.get("idp-certificate-authority-data"):
        requestor.authority = base64.b64decode(str(config["idp-certificate-authority-data"]))
    try:
        tokens = msgspec.convert(await requestor.refresh_token(config["refresh-token"]), _Tokens)
    except (ConfigException, aiohttp.ClientError, OSError, TimeoutError, msgspec.ValidationError, KeyError) as error:
        raise Unreachable(
            f"{source[:1].upper()}{source[1:]}: the identity provider {config['idp-issuer-url']} did not renew the"
            " id-token. If this goes on, sign in again.",
            detail=f"{type(error).__name__}",
        ) from error
    return {"id-token": tokens.id_token, "refresh-token": tokens.refresh_token or str(config["refresh-token"])}
