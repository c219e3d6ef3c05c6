"""The provider rfc2136 keeps the contract, on a real BIND with records of others at every name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.marks import Holder, Mark, mark_from_text, mark_key, mark_text
from fairlead.providers.zones.rfc2136.provider import create
from fairlead.testing.contract import Place, ProviderContract, Subject
from fairlead.testing.worlds.name_servers import Bind, binary

needs_bind = pytest.mark.skipif(
    binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root"
)


class Keys:
    """The keys of a BIND, as the hub's Secrets would have them."""

    def __init__(self, bind: Bind) -> None:
        self._bind = bind

    async def entry(self, name: str, entry: str) -> str:
        del entry
        return self._bind.secrets.get(name, "bm90IHRoZSByaWdodCBvbmU=")


class BindSubject(Subject):
    def __init__(self, bind: Bind, *, owner: str = "tests") -> None:
        self.bind = bind
        self.owner = owner
        self.provider = self.tested = create(secrets=Keys(bind))

    def spec(self, name: str, **more: str) -> FrontendSpec:
        key = LoadBalancerKey("Hostname", "fairlead-system", name)
        parameters = {
            "zone": self.bind.zone,
            "host": f"{name}.{self.bind.zone}",
            "ownerId": self.owner,
            "server": self.bind.server,
            "keyName": "fairlead",
            "credentials": "fairlead",
            **more,
        }
        return FrontendSpec(key, "", (), health_check=None, parameters=parameters)

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey(f"192.0.2.{number}", RECORD_PORT) for number in range(1, count + 1)]

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        host = spec.parameters["host"]
        marks = filter(None, map(mark_from_text, await self.bind.ask(*mark_key(host, "A"))))
        ours = {mark.value for mark in marks if mark.holder.owner == self.owner}
        there = await self.bind.ask(host, "A")
        return {(backend_key("A"), TargetKey(value, RECORD_PORT)): True for value in there & ours}

    async def add_foreign(self, spec: FrontendSpec) -> None:
        """Add an address of another hub, the very one that is registered, and a record of another kind."""
        host, value = spec.parameters["host"], self.targets(1)[0].address
        mark = mark_text(Mark(Holder("another-hub", "0123"), value))
        await self.bind.write(
            ("add", host, "A", value),
            ("add", mark_key(host, "A").name, "TXT", f'"{mark}"'),
            ("add", host, "MX", "10 mail.example."),
        )

    async def foreign(self, spec: FrontendSpec) -> object:
        host, value = spec.parameters["host"], self.targets(1)[0].address
        marks = await self.bind.ask(*mark_key(host, "A"))
        return (
            value in await self.bind.ask(host, "A"),
            {text for text in marks if "another-hub" in text},
            await self.bind.ask(host, "MX"),
        )

    async def make_unreachable(self) -> None:
        await self.bind.kill()

    async def make_reachable(self) -> None:
        await self.bind.start()

    async def restart(self) -> None:
        await self.tested.close()
        self.provider = self.tested = create(secrets=Keys(self.bind))


@pytest.fixture
async def bind(tmp_path: Path) -> AsyncIterator[Bind]:
    bind = Bind(tmp_path / "bind")
    await bind.start()
    yield bind
    await bind.kill()


@needs_bind
class TestBind(ProviderContract):
    @pytest.fixture
    async def subject(self, bind: Bind) -> AsyncIterator[BindSubject]:
        subject = BindSubject(bind)
        yield subject
        await subject.tested.close()
