"""The APIs of many members in one process: ``python -m bench.agents_members DIRECTORY COUNT``.

Each is an embedded API server with a state and a port of its own; its kubeconfig is ``DIRECTORY/member-N``. Two hundred
processes of them would measure the machine, not the hub. A file ``ready`` says that all are served.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fairlead.cli.run import run_async
from podless.server import ApiServer


async def main(directory: Path, count: int) -> None:
    """Serve until killed."""
    for number in range(count):
        server = ApiServer()
        await server.start()
        server.write_kubeconfig(directory / f"member-{number}")
    (directory / "ready").touch()
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    run_async(lambda: main(Path(sys.argv[1]), int(sys.argv[2])))
