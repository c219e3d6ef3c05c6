"""How commands are joined into lines, and what is expected about a socket that cannot be used."""

from __future__ import annotations

import pytest

from fairlead.errors import Bug, Retry
from fairlead.providers.haproxy.runtime_api import RuntimeApi, _lines


def test_commands_share_lines_that_haproxy_can_take() -> None:
    message = [f"add server b/{number} 10.0.0.1:80 weight 1" for number in range(1000)]
    lines = list(_lines(message))
    assert ";".join(lines).split(";") == message
    assert max(map(len, lines)) <= 12_000
    assert len(lines) == 4
    for smuggled in ("a;b", "a\nb", "a\\", "a << b"):
        with pytest.raises(Bug):
            list(_lines([smuggled]))


async def test_a_socket_that_is_not_there_is_named() -> None:
    with pytest.raises(Retry, match=r"/nowhere/admin\.sock"):
        await RuntimeApi("/nowhere/admin.sock").run(["show info"])
