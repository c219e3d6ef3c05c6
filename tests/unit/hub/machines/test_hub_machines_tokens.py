"""One-time tokens: what is in their Secret, and what is not."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

from fairlead.hub.machines.tokens import TOKEN_LIFE, new_token

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_the_secret_has_no_token():
    made = new_token(NOW, group="edge")
    number, secret = made.text.split(".")
    assert made.secret["metadata"]["name"] == f"fairlead-proxy-token-{number}"
    data = {key: base64.b64decode(value).decode() for key, value in made.secret["data"].items()}
    assert (data["group"], data["expires"]) == ("edge", "2030-01-01T01:00:00Z")
    assert made.expires - NOW == TOKEN_LIFE
    assert secret not in json.dumps(made.secret) + json.dumps(data) + repr(made)


def test_no_two_tokens_are_alike():
    texts = {new_token(NOW).text for _ in range(50)}
    assert len(texts) == 50
