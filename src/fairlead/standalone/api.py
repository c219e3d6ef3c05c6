"""Serve the embedded API in this process.

In: a data directory and where to listen. Out: a served API and ``DIR/kubeconfig``; runs until cancelled.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.kinds import INTENT_KINDS
from fairlead.api.names import ANNOTATION_CHANGED_BY
from fairlead.errors import BadConfiguration
from fairlead.runtime.private_file import make_private
from podless.failure import ConfigurationError
from podless.kinds.allocations import SERVICE_RANGE, service_networks
from podless.server import ApiServer

KUBECONFIG = "kubeconfig"
_PR_SET_PDEATHSIG = 1
#: Kinds whose objects say who changed them last.
USER_ANNOTATIONS = {kind.full_name: ANNOTATION_CHANGED_BY for kind in (*INTENT_KINDS, LOAD_BALANCER_ROUTES)}


@asynccontextmanager
async def running_api(
    data_dir: Path, host: str, port: int, *, memory: bool = False, service_range: str = SERVICE_RANGE
) -> AsyncGenerator[Path]:
    """Serve the API inside the block; the value is the path of its kubeconfig.

    ``service_range``: where cluster IPs are from, one range for each family.

    Raises:
        BadConfiguration: the directory cannot be written, the address cannot be listened on, or a range is none.
    """
    try:
        service_networks(service_range)
    except ValueError as error:
        raise BadConfiguration(
            f"--service-cluster-ip-range: {service_range} is not a range of cluster IPs ({error}); "
            f"write one of each family, such as {SERVICE_RANGE}"
        ) from error
    path = data_dir / KUBECONFIG
    try:
        make_private(data_dir)
        # The port that was asked for is the one that the kubeconfig names, and clients come back to after a restart.
        server = ApiServer(
            None if memory else data_dir,
            host=host,
            tls_port=port,
            service_range=service_range,
            name="fairlead",
            user_annotations=USER_ANNOTATIONS,
        )
        await server.start()
        server.write_kubeconfig(path)
    except ConfigurationError as error:
        raise BadConfiguration(error.sentence, detail=error.detail) from error
    except OSError as error:
        raise BadConfiguration(
            f"--data-dir: {data_dir} cannot be used ({error.strerror}); make it writable or choose another"
        ) from error
    try:
        yield path
    finally:
        await server.stop()


async def serve_api(
    data_dir: Path,
    host: str,
    port: int,
    *,
    memory: bool,
    ready: Callable[[Path], None],
    service_range: str = SERVICE_RANGE,
) -> None:
    """Serve the API until cancelled; ``ready`` gets the path of its kubeconfig."""
    async with running_api(data_dir, host, port, memory=memory, service_range=service_range) as path:
        ready(path)
        await asyncio.get_running_loop().create_future()


async def end_with_parent(stop: Callable[[], None]) -> None:
    """Call ``stop`` when stdin ends, and on Linux die at once when the process that started us is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while await reader.read(4096):
            pass
    finally:
        transport.close()
    stop()
