from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.kube.config import expired_since, token_times

AGENT = {"sub": "system:serviceaccount:tenant-east:fairlead-agent", "iat": 1000, "exp": 4600}


def token(claims: Any) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, "")
    )


@pytest.mark.req("S-11")
def test_a_token_says_whose_it_is_and_when_it_ends() -> None:
    times = token_times(token(AGENT))
    assert times is not None
    assert (times.namespace, times.account, times.life_s) == ("tenant-east", "fairlead-agent", 3600)
    assert times.expires == datetime.fromtimestamp(4600, UTC)


@pytest.mark.req("S-11")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "opaque",
        "a.b.c",
        "a.é.c",
        token([]),
        token({}),
        token({**AGENT, "exp": 0}),
        token({**AGENT, "exp": "soon"}),
        token({**AGENT, "exp": 1e300}),
        token({**AGENT, "exp": 999}),
        token({**AGENT, "iat": 0}),
        token({**AGENT, "sub": "alice"}),
        token({**AGENT, "sub": "system:serviceaccount:tenant-east"}),
    ],
)
def test_a_token_that_cannot_be_renewed_is_left_alone(text: str) -> None:
    assert token_times(text) is None


@pytest.mark.req("X-45")
@pytest.mark.parametrize(
    ("text", "now_s", "parts"),
    [
        (token(AGENT), 4599, ()),
        (token(AGENT), 4600, ("1970-01-01T01:16:40Z", "fairlead tenant rotate east")),
        (
            token({**AGENT, "sub": "system:serviceaccount:fairlead-system:fairlead-hub"}),
            4600,
            ("1970-01-01T01:16:40Z",),
        ),
        ("opaque", 4600, ()),
    ],
)
def test_an_expired_token_says_since_when_and_how_to_renew_it(text: str, now_s: int, parts: tuple[str, ...]) -> None:
    shown = expired_since(text, datetime.fromtimestamp(now_s, UTC))
    assert bool(shown) == bool(parts)
    assert all(part in shown for part in parts)
