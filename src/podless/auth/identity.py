"""Identities: a user name and its groups."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import cast

import msgspec

from podless.objects import Obj, decode, encode

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class User:
    """One identity; never holds a credential."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict[str, list[str]], hash=False, compare=False)

    @property
    def is_master(self) -> bool:
        """Return whether the user is in the group ``system:masters``, which may do everything."""
        return MASTERS in self.groups


ADMIN = User("kubernetes-admin", groups=(MASTERS, AUTHENTICATED))
SYSTEM = User("system:apiserver", groups=(MASTERS, AUTHENTICATED))


def service_account(namespace: str, name: str, uid: str) -> User:
    """Return the user of a service account, with its name and groups as Kubernetes defines them."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", uid, groups)


ISSUER = "https://kubernetes.default.svc.cluster.local"
_HEADER = {"alg": "HS256", "typ": "JWT"}


def _pack(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unpack(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class TokenSigner:
    """Signs and verifies with one key; ``now`` is the wall clock in seconds."""

    def __init__(self, key: bytes, now: Callable[[], float]) -> None:
        self._key = key
        self._now = now

    def sign(self, claims: Obj) -> str:
        """Return the token that carries ``claims``."""
        body = f"{_pack(encode(_HEADER))}.{_pack(encode(claims))}"
        return f"{body}.{_pack(self._mac(body))}"

    def verify(self, token: str) -> Obj | None:
        """Return the claims of a token that this key has signed and that has not expired, else None."""
        body, _, mac = token.rpartition(".")
        try:
            if not hmac.compare_digest(self._mac(body), _unpack(mac)):
                return None
            claims = decode(_unpack(body.partition(".")[2]))
        except (ValueError, binascii.Error, msgspec.DecodeError):
            return None
        if not isinstance(claims, dict):
            return None
        fields = cast("Obj", claims)
        expires = fields.get("exp")
        # One that is valid from later on was signed before this machine's clock was set back: it is as good.
        return None if expires is not None and self._now() >= expires else fields

    def _mac(self, body: str) -> bytes:
        return hmac.new(self._key, body.encode(), sha256).digest()
