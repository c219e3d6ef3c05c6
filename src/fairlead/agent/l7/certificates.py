"""Which version of a member's Secret is served? The value that listeners of every kind are translated from."""

from __future__ import annotations

import msgspec


class CertificateState(msgspec.Struct, frozen=True):
    """A Secret that listeners name: the version to serve (empty: none yet), and what is wrong with the present one."""

    digest: str = ""
    problem: str = ""
