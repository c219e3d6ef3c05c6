"""Sends commands to HAProxy's Runtime API.

In: commands. Out: the text of all answers, or one ``Retry`` that says what to do about it. Several commands share one
line and one connection (``;``), up to a size that any HAProxy takes. One conversation at a time for each socket.
Never: interprets an answer; whether a command had an effect is read back, since its answer may be empty either way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence

from fairlead.errors import Bug, Retry
from fairlead.runtime.file_limit import NO_MORE_FILES, no_more_files

#: HAProxy reads a line into one buffer, of 16 kB unless configured otherwise.
LONGEST_LINE = 12_000
_LONGEST_ANSWER = 64 << 20
_CHUNK = 1 << 16


class RuntimeApi:
    """One unix socket; ``exchanges`` counts connections."""

    def __init__(self, path: str, *, timeout_s: float = 5.0) -> None:
        self.path = path
        self.exchanges = 0
        #: HAProxy's numbers of backends whose names frontends have, too; those that are known so far.
        self.backend_numbers: dict[str, str] = {}
        #: The authorities of health checks that HAProxy has from us, and in which epoch each was sent.
        self.authorities: dict[str, str] = {}
        #: Held for one conversation: several commands and reads that belong together.
        self.lock = asyncio.Lock()
        self._timeout_s = timeout_s

    async def run(self, commands: Sequence[str]) -> str:
        """Send ``commands`` in as few lines as fit; returns all answers in order, joined."""
        answers = [await self._exchange(line) for line in _lines(commands)]
        return "".join(answers)

    async def run_with_payload(self, command: str, payload: str) -> str:
        """Send one command with lines that belong to it, none of them empty; returns its answer."""
        return await self._exchange(f"{command} <<\n{payload}\n")

    async def _exchange(self, line: str) -> str:
        self.exchanges += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await asyncio.open_unix_connection(self.path)
                try:
                    writer.write(line.encode() + b"\n")
                    await writer.drain()
                    return await _read(reader, self.path)
                finally:
                    writer.close()
                    with contextlib.suppress(ConnectionError, BrokenPipeError):
                        await writer.wait_closed()
        except TimeoutError as error:
            raise Retry(
                f"HAProxy at {self.path} did not answer within {self._timeout_s:g} s; check that it is not overloaded",
                reason="HAProxyTimeout",
            ) from error
        except FileNotFoundError as error:
            raise Retry(
                f"there is no socket {self.path}; start HAProxy, or correct parameters.socket of the class",
                reason="HAProxyUnreachable",
            ) from error
        except PermissionError as error:
            raise Retry(
                f"no permission to open {self.path}; change the mode or group of the stats socket in HAProxy's "
                "configuration",
                reason="HAProxyUnreachable",
            ) from error
        except OSError as error:
            step = NO_MORE_FILES if no_more_files(error) else "check that it runs (a reload takes a moment)"
            raise Retry(
                f"HAProxy does not answer on {self.path}; {step}",
                detail=type(error).__name__,
                reason="HAProxyUnreachable",
            ) from error


async def _read(reader: asyncio.StreamReader, path: str) -> str:
    answer = bytearray()
    while chunk := await reader.read(_CHUNK):
        answer += chunk
        if len(answer) > _LONGEST_ANSWER:
            raise Retry(f"HAProxy at {path} answered with more than {_LONGEST_ANSWER} bytes; is this HAProxy?")
    return answer.decode(errors="replace")


def _lines(commands: Iterable[str]) -> Iterable[str]:
    """Join commands into lines of a size that HAProxy takes."""
    line: list[str] = []
    size = 0
    for command in commands:
        if ";" in command or "\n" in command or "\\" in command or "<<" in command:
            raise Bug(f"not one command: {command!r}")
        if line and size + len(command) + 1 > LONGEST_LINE:
            yield ";".join(line)
            line, size = [], 0
        line.append(command)
        size += len(command) + 1
    if line:
        yield ";".join(line)
