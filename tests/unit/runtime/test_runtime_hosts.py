"""Where the page is open to all of a machine, and where a token is asked for."""

from __future__ import annotations

import pytest

from fairlead.runtime.tls import is_loopback


@pytest.mark.req("OP-10")
@pytest.mark.parametrize(
    ("host", "open_to_all"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("", False), ("0.0.0.0", False), ("192.0.2.1", False),
     ("hub.example", False)],
)  # fmt: skip
def test_only_loopback_is_open(host: str, open_to_all: bool) -> None:
    assert is_loopback(host) is open_to_all
