"""Real DNS servers on loopback: a BIND 9 with one zone that takes updates.

In: a directory, a zone. Out: a process, and ways to ask and to write as others do. Never: the machine's own
configuration of the server.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype
import dns.tsigkeyring
import dns.update
import dns.zone

from fairlead.errors import Terminal
from fairlead.providers.zones.answers import value_of
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import Child, ExpectationFailed, wait_until

ADDRESS = "127.0.0.1"
_SBIN = "/usr/sbin"
_ASK_S = 5.0
_KEYS = ("fairlead", "other")


def binary(name: str) -> str | None:
    """Return the path of a server, None where it is not installed."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{_SBIN}")


def bind_program() -> str:
    """Return the path of BIND 9; ``Terminal`` says how to install it."""
    program = binary("named")
    if program is None:
        raise Terminal("BIND 9 is not installed: apt-get install bind9, as root")
    return program


async def ask(port: int, name: str, type_: str) -> set[str]:
    """Return the values that the server on loopback answers, as a resolver would ask."""
    question = dns.message.make_query(f"{name}.", type_)
    answer = await dns.asyncquery.tcp(question, ADDRESS, timeout=_ASK_S, port=port)
    wanted = dns.rdatatype.from_text(type_)
    rrsets: list[Any] = list(answer.answer)
    return {value_of(type_, rdata) for rrset in rrsets if rrset.rdtype == wanted for rdata in rrset}


async def serves(port: int, zone: str) -> bool:
    """Return whether the server on loopback answers for a zone."""
    try:
        answer = await dns.asyncquery.tcp(dns.message.make_query(f"{zone}.", "SOA"), ADDRESS, timeout=1.0, port=port)
    except (OSError, EOFError, dns.exception.DNSException):
        return False
    return bool(answer.answer)


class Bind:
    """A BIND 9 that is the primary server of one zone; the keys ``fairlead`` and ``other`` may update it."""

    def __init__(self, directory: Path, zone: str = "example.test", *, records: Sequence[str] = ()) -> None:
        self.zone = zone
        self._choose_port()
        self.secrets = {key: base64.b64encode(secrets.token_bytes(32)).decode() for key in _KEYS}
        self._directory = directory
        self._file = directory / f"{zone}.db"
        self._records = list(records)
        self._process: Child | None = None
        self._has_answered = False

    def _choose_port(self) -> None:
        self.port = free_port(ADDRESS)
        self.server = f"{ADDRESS}:{self.port}"

    async def start(self) -> None:
        """Start it with what its zone had when it ended, and wait until it answers.

        Until it has answered once, it takes another port when another process was faster.
        """
        while True:
            try:
                await self._start()
            except ExpectationFailed:
                if self._has_answered or self._process is None or not self._process.lost_its_port:
                    raise
                self._choose_port()
            else:
                self._has_answered = True
                return

    async def _start(self) -> None:
        program = bind_program()
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self._file.exists():
            self._file.write_text(self._zone_file())
        config = self._directory / "named.conf"
        config.write_text(self._config())
        self._process = Child("named", [program, "-g", "-n", "1", "-c", str(config)], log=self._directory / "named.log")
        await self._process.start()
        try:
            await wait_until(self._answers, "BIND answers for its zone")
        except BaseException:
            await self.kill()
            raise

    async def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            await self._process.kill()

    async def ask(self, name: str, type_: str) -> set[str]:
        """Return the values that it answers, as a resolver would ask."""
        return await ask(self.port, name, type_)

    async def write(self, *changes: tuple[str, str, str, str], key: str = "other") -> None:
        """Update the zone as another client: (``add`` or ``delete``, name, type, value) each."""
        message = self.message(key)
        for verb, name, type_, value in changes:
            if verb == "add":
                message.add(f"{name}.", 300, type_, value)
            else:
                message.delete(f"{name}.", type_, value)
        await self._send(message)

    async def empty(self, names: Iterable[str]) -> None:
        """Delete everything under ``names``, as another client."""
        message = self.message("other")
        for name in names:
            message.delete(f"{name}.")
        await self._send(message)

    async def names(self) -> dict[str, set[str]]:
        """Return every record of the zone but SOA and NS: values by name and type."""
        zone = dns.zone.Zone(self.zone, relativize=False)
        await dns.asyncquery.inbound_xfr(ADDRESS, zone, port=self.port, timeout=_ASK_S)
        there: dict[str, set[str]] = {}
        for name, ttl, rdata in zone.iterate_rdatas():
            del ttl
            type_ = dns.rdatatype.to_text(rdata.rdtype)
            if type_ not in ("SOA", "NS"):
                there.setdefault(f"{str(name).rstrip('.')} {type_}", set()).add(value_of(type_, rdata))
        return there

    async def serial(self) -> int:
        """Return the serial of the zone: each update that changes something adds 1."""
        answer = await dns.asyncquery.tcp(
            dns.message.make_query(f"{self.zone}.", "SOA"), ADDRESS, timeout=_ASK_S, port=self.port
        )
        rrsets: list[Any] = list(answer.answer)
        return int(rrsets[0][0].serial)

    def message(self, key: str) -> dns.update.UpdateMessage:
        """Return an empty update, signed by ``key``."""
        message = dns.update.UpdateMessage(f"{self.zone}.")
        message.use_tsig(dns.tsigkeyring.from_text({key: self.secrets[key]}), algorithm="hmac-sha256")
        return message

    # --- inside -----------------------------------------------------------------------------------------------

    async def _send(self, message: dns.update.UpdateMessage) -> None:
        answer = await dns.asyncquery.tcp(message, ADDRESS, timeout=_ASK_S, port=self.port)
        if answer.rcode() != dns.rcode.NOERROR:
            raise ExpectationFailed(f"BIND answers an update with {dns.rcode.to_text(answer.rcode())}")

    async def _answers(self) -> bool:
        if self._process is not None:
            self._process.check_running()
            if self._process.lost_its_port:
                raise ExpectationFailed(f"BIND cannot listen on {self.server}")
        return await serves(self.port, self.zone)

    def _zone_file(self) -> str:
        head = f"$ORIGIN {self.zone}.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A {ADDRESS}\n"
        return head + "".join(f"{record}\n" for record in self._records)

    def _config(self) -> str:
        here = self._directory
        keys = "".join(
            f'key "{name}" {{ algorithm hmac-sha256; secret "{secret}"; }};\n' for name, secret in self.secrets.items()
        )
        return (
            f'options {{ directory "{here}"; listen-on port {self.port} {{ {ADDRESS}; }}; listen-on-v6 {{ none; }};\n'
            f'  pid-file "{here}/named.pid"; session-keyfile "{here}/session.key"; recursion no;\n'
            "  allow-query { any; }; dnssec-validation no; allow-new-zones no; notify no; };\n"
            f"controls {{ }};\n{keys}"
            f'zone "{self.zone}" {{ type primary; file "{self._file}"; allow-transfer {{ any; }};\n'
            f"  allow-update {{ {' '.join(f'key {key};' for key in self.secrets)} }}; }};\n"
        )
