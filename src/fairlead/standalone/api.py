"""Run the embedded API inside another process of Fairlead.

In: a data directory and where to listen. Out: a served API and ``DIR/kubeconfig``; runs until cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.apiserver.server import ApiServer
from fairlead.errors import BadConfiguration

KUBECONFIG = "kubeconfig"


@asynccontextmanager
async def running_api(data_dir: Path, host: str, port: int, *, memory: bool = False) -> AsyncGenerator[Path]:
    """Serve the API inside the block; the value is the path of its kubeconfig.

    Raises:
        BadConfiguration: the directory cannot be written, or the address cannot be listened on.
    """
    path = data_dir / KUBECONFIG
    try:
        _make(data_dir)
        # The port that was asked for is the one that the kubeconfig names, and clients come back to after a restart.
        server = ApiServer(data_dir=None if memory else data_dir, host=host, tls_port=port)
        await server.start()
        server.write_kubeconfig(path)
    except OSError as error:
        raise BadConfiguration(
            f"--data-dir: {data_dir} cannot be used ({error.strerror}); make it writable or choose another"
        ) from error
    try:
        yield path
    finally:
        await server.stop()


async def serve_api(data_dir: Path, host: str, port: int, *, memory: bool, ready: Callable[[Path], None]) -> None:
    """Serve the API until cancelled; ``ready`` gets the path of its kubeconfig."""
    async with running_api(data_dir, host, port, memory=memory) as path:
        ready(path)
        await asyncio.get_running_loop().create_future()


def _make(data_dir: Path) -> None:
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
