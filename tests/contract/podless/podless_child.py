"""A server in a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

CHILD = """
import asyncio, sys
from pathlib import Path
from podless import ApiServer

async def main():
    server = ApiServer(Path(sys.argv[1]))
    print(await server.start(), server.admin_token, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def child(folder: Path) -> tuple[asyncio.subprocess.Process, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(folder), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    url, token = (await process.stdout.readline()).decode().split()
    return process, url, token
