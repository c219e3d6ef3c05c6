"""Programs that are run to their end, such as ``ip``, ``nft`` or a sign-in plugin. None outlives its caller."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE
from collections.abc import Collection, Mapping
from typing import NamedTuple

from fairlead.errors import BadConfiguration, Retry

_LONGEST_OUTPUT = 64 << 20
#: Seconds in which the pipes of a program that was killed are read to their end.
_KILLED_S = 2.0
#: Longest time for a program of the network.
_NETWORK_S = 30.0
_PACKAGES = {"ip": "iproute2", "nft": "nftables"}


class Ended(NamedTuple):
    """How a program ended: its exit code (of a signal: minus its number), stdout and stderr."""

    code: int
    output: bytes
    errors: bytes


async def run_command(
    *command: str,
    stdin: bytes | None = b"",
    environment: Mapping[str, str] | None = None,
    longest_output: int = _LONGEST_OUTPUT,
) -> Ended:
    """Run a program and return how it ended. It is killed when the caller is cancelled.

    ``stdin`` is its input, None for that of this process; ``environment`` replaces that of this process.

    Raises:
        OSError: it cannot be started, or wrote more than ``longest_output`` bytes.
    """
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=None if stdin is None else PIPE, stdout=PIPE, stderr=PIPE
    )
    pipes = [
        asyncio.create_task(_output(process.stdout, longest_output)),
        asyncio.create_task(_output(process.stderr, longest_output)),
        asyncio.create_task(_feed(process.stdin, stdin or b"")),
    ]
    try:
        output, errors, _ = await asyncio.gather(*pipes)
        await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        for pipe in pipes:
            pipe.cancel()
        await asyncio.wait(pipes)
        # The process counts as ended once its pipes are read to the end; a child of the program may hold them open.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_S):
                await asyncio.gather(_drain(process.stdout), _drain(process.stderr))
                await process.wait()
        raise
    return Ended(process.returncode or 0, output, errors)


async def run_network_program(program: str, *arguments: str, text: str = "", ignored: Collection[str] = ()) -> bytes:
    """Run ``ip``, ``nft`` or ``conntrack`` to the end with ``text`` as input; return the output.

    Errors that contain one of ``ignored`` are none.

    Raises:
        BadConfiguration: the program is missing, or this process lacks NET_ADMIN.
        Retry: the program failed, or does not end.
    """
    try:
        async with asyncio.timeout(_NETWORK_S):
            ended = await run_command(program, *arguments, stdin=text.encode())
    except FileNotFoundError:
        raise BadConfiguration(f"{program} is missing here; install {_PACKAGES.get(program, program)}") from None
    except TimeoutError:
        raise Retry(f"{program} did not end within {_NETWORK_S:.0f} s", detail=text[:500]) from None
    except OSError as error:
        raise Retry(f"{program} cannot be run: {error}") from error
    lines = [line.strip() for line in ended.errors.decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("Command failed")]
    failed = [line for line in lines if not any(part in line for part in ignored)]
    if ended.code == 0 or (lines and not failed):
        return ended.output
    if any("not permitted" in line for line in failed):
        raise BadConfiguration(
            "the capability NET_ADMIN is missing: run this process as root, or give NET_ADMIN to the container"
        )
    raise Retry(f"{program} failed: {next(iter(failed), f'exit code {ended.code}')}", detail=text[:500])


async def _feed(stream: asyncio.StreamWriter | None, text: bytes) -> bytes:
    if stream:
        # A program may end without reading all of its input; its exit code says whether that was an error.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stream.write(text)
            await stream.drain()
        stream.close()
    return b""


async def _output(stream: asyncio.StreamReader | None, longest: int) -> bytes:
    output = bytearray()
    while chunk := await stream.read(1 << 20) if stream else b"":
        output += chunk
        if len(output) > longest:
            raise OSError(f"wrote more than {longest} bytes")
    return bytes(output)


async def _drain(stream: asyncio.StreamReader | None) -> None:
    while stream and await stream.read(1 << 20):
        pass
