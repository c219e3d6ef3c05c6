"""Renews OIDC id-tokens (kubeconfig ``auth-provider: oidc``).

In: the provider's config from the kubeconfig. Out: a fresh id-token and refresh-token.
Never: talks to the identity provider without checking its certificate, which is why this is not left to the library:
without idp-certificate-authority-data it turns the check off (kubernetes 37, ``aio/config/openid.py``).
Source: https://openid.net/specs/openid-connect-core-1_0.html#RefreshTokens
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from fairlead.api.json_text import decode
from fairlead.errors import BadConfiguration, Unreachable

_ANSWER_S = 30.0
#: Discovery documents and tokens are some kilobytes.
_LONGEST_ANSWER = 1 << 20


class _Claims(msgspec.Struct):
    exp: float | None = None


class _Discovery(msgspec.Struct):
    token_endpoint: str


class _Tokens(msgspec.Struct):
    id_token: str
    refresh_token: str = ""


def expiry_of(token: str) -> datetime | None:
    """Return when a JWT expires; None when it does not say, or is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), _Claims)
        return datetime.fromtimestamp(claims.exp, UTC) if claims.exp is not None else None
    except (ValueError, OverflowError, OSError):
        return None


async def refresh(config: Mapping[str, Any], *, tls: ssl.SSLContext, source: str) -> dict[str, str]:
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
    issuer = str(config["idp-issuer-url"]).rstrip("/")
    try:
        tokens = await _ask(issuer, config, tls)
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
        raise Unreachable(
            f"{source[:1].upper()}{source[1:]}: the identity provider {issuer} did not renew the id-token."
            " If this goes on, sign in again.",
            detail=f"{type(error).__name__}: {error}",
        ) from error
    return {"id-token": tokens.id_token, "refresh-token": tokens.refresh_token or str(config["refresh-token"])}


async def _ask(issuer: str, config: Mapping[str, Any], tls: ssl.SSLContext) -> _Tokens:
    basic = f"{config['client-id']}:{config.get('client-secret') or ''}".encode()
    form = {"grant_type": "refresh_token", "refresh_token": str(config["refresh-token"])}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        raise_for_status=True,
        timeout=aiohttp.ClientTimeout(total=_ANSWER_S),
    ) as session:
        async with session.get(f"{issuer}/.well-known/openid-configuration") as answer:
            endpoint = decode(await _body(answer), _Discovery).token_endpoint
        headers = {"Authorization": f"Basic {base64.b64encode(basic).decode()}"}
        async with session.post(endpoint, data=form, headers=headers) as answer:
            return decode(await _body(answer), _Tokens)


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while chunk := await answer.content.readany():
        body += chunk
        if len(body) > _LONGEST_ANSWER:
            raise aiohttp.ClientPayloadError(f"the answer has more than {_LONGEST_ANSWER} bytes")
    return bytes(body)
