"""The provider rfc2136 keeps the contract, on a real BIND with records of others at every name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.plan import Holder, Mark, mark_from_text, mark_key, mark_text
from fairlead.providers.zones.rfc2136.provider import create
from fairlead.testing.contract import Place, ProviderContract, Subject
from fairlead_demo.worlds.name_servers import Bind, binary
from tests.contract.providers.provider_processes import BindKeys

needs_bind = pytest.mark.skipif(
    binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root"
)


class BindSubject(Subject):
    def __init__(self, bind: Bind, *, owner: str = "tests") -> None:
        self.bind = bind
        self.owner = owner
        self.provider = self.tested = create(secrets=BindKeys(bind))

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
        self.provider = self.tested = create(secrets=BindKeys(self.bind))


@needs_bind
class TestBind(ProviderContract):
    @pytest.fixture
    async def subject(self, bind: Bind) -> AsyncIterator[BindSubject]:
        subject = BindSubject(bind)
        yield subject
        await subject.tested.close()


class Zone:
    """A zone with records of its operator, and names that Fairlead publishes in it."""

    def __init__(self, bind: Bind) -> None:
        self.bind = bind
        self.subject = BindSubject(bind)

    async def publish(self, type_: str, value: str, *names: str) -> list[Outcome]:
        specs = [self.subject.spec(name) for name in names]
        for spec in specs:
            await self.subject.tested.ensure(spec)
        target = Target(TargetKey(value, RECORD_PORT), parameters=(("ttl", "60"),))
        rows = [TargetChange(spec.key, backend_key(type_), target, Action.REGISTER, Reason.NEW) for spec in specs]
        return list(await self.subject.tested.apply(rows))


@pytest.fixture
async def zone(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Zone]:
    bind = Bind(tmp_path / "bind", records=request.param)
    await bind.start()
    zone = Zone(bind)
    yield zone
    await zone.subject.tested.close()
    await bind.kill()


@needs_bind
@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize(
    "zone",
    [
        ["* A 203.0.113.9", '* TXT "v=spf1 -all"'],
        ["* CNAME other.example."],
        ["* A 203.0.113.9", "* AAAA 2001:db8::9", '* TXT "a"', "* MX 10 mx.example."],
    ],
    indirect=True,
)
@pytest.mark.parametrize(("type_", "value"), [("A", "192.0.2.1"), ("CNAME", "edge.example"), ("TXT", "token")])
async def test_a_wildcard_of_any_types_does_not_refuse_a_name(zone: Zone, type_: str, value: str):
    assert await zone.publish(type_, value, "foo") == [DONE]
    assert await zone.bind.ask("foo.example.test", type_) == {value}


@needs_bind
@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize(
    ("zone", "type_"),
    [(["mail MX 10 mx.example."], "MX"), (['mail CAA 0 issue "x.example"'], "CAA"), (["mail SRV 0 0 1 a"], "SRV")],
    indirect=["zone"],
)
async def test_a_cname_where_others_have_records_names_their_type(zone: Zone, type_: str):
    refused, done = await zone.publish("CNAME", "edge.example", "mail", "www")
    assert (refused.status, done) == (OutcomeStatus.REJECTED, DONE)
    assert f"mail.example.test has a record of type {type_} " in refused.message


@needs_bind
@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize("zone", [["mail MX 10 mx.example."]], indirect=True)
async def test_our_address_is_kept_where_a_cname_is_not_possible(zone: Zone):
    assert await zone.publish("A", "192.0.2.1", "mail") == [DONE]
    (refused,) = await zone.publish("CNAME", "edge.example", "mail")
    assert refused.status is OutcomeStatus.REJECTED
    assert await zone.bind.ask("mail.example.test", "A") == {"192.0.2.1"}


@needs_bind
@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize(
    ("zone", "name", "text"),
    [
        (["sub NS ns.elsewhere."], "foo.sub", "sub.example.test is delegated"),
        (["sub NS ns.elsewhere."], "sub", "sub.example.test is delegated"),
        (["sub DNAME other.example."], "foo.sub", "sub.example.test in zone example.test has a DNAME"),
    ],
    indirect=["zone"],
)
async def test_a_name_outside_of_the_zone_says_where_it_ends(zone: Zone, name: str, text: str):
    refused, done = await zone.publish("A", "192.0.2.1", name, "www")
    assert (refused.status, done) == (OutcomeStatus.RETRY, DONE)
    assert text in refused.message
    assert await zone.bind.ask("www.example.test", "A") == {"192.0.2.1"}
