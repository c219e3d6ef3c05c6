"""Read the traffic figures of a running hub, from its page.

In: the address of the page, and a file with a token where the page asks for one. Out: ``TrafficAnswer``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from fairlead.api.json_text import decode
from fairlead.errors import BadConfiguration, Unauthorized, Unreachable
from fairlead.page.traffic import TrafficAnswer

_TIMEOUT_S = 30.0


async def read_traffic(hub_url: str, token_file: Path | None = None) -> TrafficAnswer:
    """Return the figures.

    Raises:
        Unreachable: no hub answers there; Unauthorized: it asks for a token; BadConfiguration: it is no hub's page.
    """
    import aiohttp

    url = f"{hub_url.rstrip('/')}/page/traffic"
    headers = await token_header(token_file)
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
            session.get(url, headers=headers) as response,
        ):
            body = await response.read()
    except aiohttp.InvalidURL as error:
        raise BadConfiguration(f"--hub-url: {hub_url!r} is not a URL such as http://127.0.0.1:9090") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(f"No hub answers at {url}; --hub-url is where it was started with --metrics") from error
    if response.status in (401, 403):
        raise Unauthorized(f"{url}: {body.decode(errors='replace').strip()}; give it with --token-file")
    try:
        return decode(body, TrafficAnswer)
    except msgspec.DecodeError as error:
        raise BadConfiguration(
            f"--hub-url: what {url} serves is not the traffic figures of a hub (HTTP {response.status})"
        ) from error


async def token_header(token_file: Path | None) -> dict[str, str]:
    """Return the header with the token of a file, none without a file."""
    if token_file is None:
        return {}
    try:
        token = await asyncio.to_thread(token_file.read_text, encoding="utf-8")
    except OSError as error:
        raise BadConfiguration(f"--token-file: {token_file} cannot be read: {error.strerror}") from error
    return {"Authorization": f"Bearer {token.strip()}"}
