"""The provider powerdns keeps the contract, on a real PowerDNS with records of others in every set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.plan import Edit, Holder, Mark, RRKey, mark_from_text, mark_key, mark_text
from fairlead.providers.zones.powerdns.provider import PARAMETERS, PowerDNSServer, create
from fairlead.providers.zones.rfc2136.provider import create as create_rfc2136
from fairlead.providers.zones.settings import settings_from_spec
from fairlead.testing.contract import Place, ProviderContract, Subject
from tests.worlds.powerdns import PowerDNS, installed

needs_powerdns = pytest.mark.skipif(
    not installed(), reason="PowerDNS is not installed: apt-get install pdns-server pdns-backend-sqlite3, as root"
)


class Key:
    """The key of a PowerDNS, as the hub's Secrets would have it."""

    def __init__(self, server: PowerDNS) -> None:
        self._server = server

    async def entry(self, name: str, entry: str) -> str:
        del name
        return self._server.secrets["fairlead"] if entry == "tsig-secret" else self._server.api_key


class PowerDNSSubject(Subject):
    def __init__(self, server: PowerDNS) -> None:
        self.server = server
        self.provider = self.tested = create(secrets=Key(server))

    def spec(self, name: str) -> FrontendSpec:
        key = LoadBalancerKey("Hostname", "fairlead-system", name)
        parameters = {
            "zone": self.server.zone,
            "host": f"{name}.{self.server.zone}",
            "ownerId": "tests",
            "server": self.server.server,
            "url": self.server.url,
            "credentials": "powerdns",
        }
        return FrontendSpec(key, "", (), health_check=None, parameters=parameters)

    def targets(self, count: int) -> Sequence[TargetKey]:
        return [TargetKey(f"192.0.2.{number}", RECORD_PORT) for number in range(1, count + 1)]

    async def present(self, spec: FrontendSpec) -> dict[Place, bool]:
        host = spec.parameters["host"]
        marks = filter(None, map(mark_from_text, await self.server.ask(*mark_key(host, "A"))))
        ours = {mark.value for mark in marks if mark.holder.owner == "tests"}
        there = await self.server.ask(host, "A")
        return {(backend_key("A"), TargetKey(value, RECORD_PORT)): True for value in there & ours}

    async def add_foreign(self, spec: FrontendSpec) -> None:
        """Add an address of another hub, the very address that is registered here too, and a record of another type."""
        host, value = spec.parameters["host"], self.targets(1)[0].address
        mark = mark_text(Mark(Holder("another-hub", "0123"), value))
        await self.server.write(host, "A", value)
        await self.server.write(mark_key(host, "A").name, "TXT", f'"{mark}"')
        await self.server.write(host, "MX", "10 mail.example.")

    async def foreign(self, spec: FrontendSpec) -> object:
        host, value = spec.parameters["host"], self.targets(1)[0].address
        marks = await self.server.ask(*mark_key(host, "A"))
        return (
            value in await self.server.ask(host, "A"),
            {text for text in marks if "another-hub" in text},
            await self.server.ask(host, "MX"),
        )

    async def make_unreachable(self) -> None:
        await self.server.kill()

    async def make_reachable(self) -> None:
        await self.server.start()

    async def restart(self) -> None:
        await self.tested.close()
        self.provider = self.tested = create(secrets=Key(self.server))


class UpdateSubject(PowerDNSSubject):
    """The same server by dynamic updates (RFC 2136)."""

    def __init__(self, server: PowerDNS) -> None:
        super().__init__(server)
        self.provider = self.tested = create_rfc2136(secrets=Key(server))

    def spec(self, name: str) -> FrontendSpec:
        spec = super().spec(name)
        parameters = {name: value for name, value in spec.parameters.items() if name != "url"}
        return msgspec.structs.replace(spec, parameters={**parameters, "keyName": "fairlead"})


@needs_powerdns
@pytest.mark.req("C-52")
class TestPowerDNS(ProviderContract):
    @pytest.fixture
    async def subject(self, tmp_path: Path) -> AsyncIterator[PowerDNSSubject]:
        server = PowerDNS(tmp_path / "pdns")
        await server.start()
        subject = PowerDNSSubject(server)
        yield subject
        await subject.tested.close()
        await server.kill()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[PowerDNS]:
    server = PowerDNS(tmp_path / "pdns")
    await server.start()
    yield server
    await server.kill()


class Names:
    """Records as Fairlead changes them, and as an operator sees them."""

    def __init__(self, server: PowerDNS, *, by_update: bool = False) -> None:
        self.server = server
        self.subject = PowerDNSSubject(server)
        if by_update:
            self.subject = UpdateSubject(server)

    async def change(self, name: str, type_: str, value: str, action: Action = Action.REGISTER) -> Outcome:
        spec = self.subject.spec(name)
        await self.subject.tested.ensure(spec)
        target = Target(TargetKey(value, RECORD_PORT), parameters=(("ttl", "60"),))
        row = TargetChange(spec.key, backend_key(type_), target, action, Reason.NEW)
        return (await self.subject.tested.apply([row]))[0]

    async def park(self, name: str, type_: str, **contents: bool) -> None:
        """Write a set as its operator; ``contents`` says which records are disabled."""
        records = [{"content": content, "disabled": disabled} for content, disabled in contents.items()]
        rrset = {"name": f"{name}.{self.server.zone}.", "type": type_, "ttl": 300, "records": records}
        body = {"rrsets": [{**rrset, "changetype": "REPLACE"}]}
        await self.server.call("PATCH", f"zones/{self.server.zone}.", body)

    async def kept(self, name: str, type_: str) -> dict[str, bool]:
        """Return which records the API lists, and whether each is disabled."""
        zone = await self.server.call("GET", f"zones/{self.server.zone}.")
        return {
            record["content"]: record["disabled"]
            for rrset in zone["rrsets"]
            if (rrset["name"], rrset["type"]) == (f"{name}.{self.server.zone}.", type_)
            for record in rrset["records"]
        }


@pytest.fixture
async def names(server: PowerDNS) -> AsyncIterator[Names]:
    names = Names(server)
    yield names
    await names.subject.tested.close()


@needs_powerdns
@pytest.mark.req("EDGE-02")
@pytest.mark.parametrize("others", [0, 8], ids=["one name", "many names"])
async def test_disabled_records_of_others_are_kept_when_ours_come_and_go(names: Names, others: int):
    for number in range(others):
        await names.park(f"n{number}", "A", **{"192.0.2.9": True})
    await names.park("www", "A", **{"192.0.2.9": True})
    assert await names.change("www", "A", "192.0.2.1") == DONE
    assert await names.kept("www", "A") == {"192.0.2.9": True, "192.0.2.1": False}
    assert await names.change("www", "A", "192.0.2.2") == DONE
    await names.change("www", "A", "192.0.2.1", Action.DEREGISTER)
    await names.change("www", "A", "192.0.2.2", Action.DEREGISTER)
    assert await names.kept("www", "A") == {"192.0.2.9": True}


@needs_powerdns
@pytest.mark.req("EDGE-02")
async def test_a_disabled_record_of_others_with_our_value_is_neither_enabled_nor_doubled(names: Names):
    await names.park("www", "A", **{"192.0.2.1": True})
    with pytest.raises(Retry, match="disabled record A") as raised:
        await names.change("www", "A", "192.0.2.1")
    assert raised.value.reason == "DNSRecordDisabled"
    assert await names.kept("www", "A") == {"192.0.2.1": True}


@needs_powerdns
@pytest.mark.req("EDGE-02")
async def test_our_record_that_was_disabled_is_enabled_when_it_is_made_again(names: Names):
    assert await names.change("www", "A", "192.0.2.1") == DONE
    await names.park("www", "A", **{"192.0.2.1": True})
    assert await names.change("www", "A", "192.0.2.1") == DONE
    assert await names.kept("www", "A") == {"192.0.2.1": False}


@needs_powerdns
@pytest.mark.req("EDGE-02")
async def test_a_disabled_cname_or_address_of_others_stays_with_its_name(names: Names):
    await names.park("www", "CNAME", **{"old.example.": True})
    assert await names.change("www", "A", "192.0.2.1") == DONE
    assert await names.kept("www", "CNAME") == {"old.example.": True}
    with pytest.raises(Retry, match="disabled CNAME"):
        await names.change("www", "CNAME", "edge.example")
    assert await names.kept("www", "A") == {"192.0.2.1": False}
    await names.park("api", "A", **{"192.0.2.9": True})
    assert await names.change("api", "CNAME", "edge.example") == DONE
    assert await names.kept("api", "A") == {"192.0.2.9": True}


@needs_powerdns
@pytest.mark.req("EDGE-02")
async def test_texts_of_others_that_decode_alike_are_kept_as_they_are_written(names: Names):
    theirs = dict.fromkeys(['"k=\\255"', '"k=\\254"', '"ab" "c"', '"a\\"b"'], False)
    await names.park("www", "TXT", **theirs)
    assert await names.change("www", "TXT", "token") == DONE
    assert await names.kept("www", "TXT") == theirs | {'"token"': False}
    await names.change("www", "TXT", "token", Action.DEREGISTER)
    assert await names.kept("www", "TXT") == theirs


@needs_powerdns
@pytest.mark.req("EDGE-02")
async def test_our_text_goes_and_the_same_text_cut_otherwise_by_others_stays(names: Names):
    assert await names.change("www", "TXT", "abc") == DONE
    await names.park("www", "TXT", **{'"ab" "c"': False, '"abc"': False})
    await names.change("www", "TXT", "abc", Action.DEREGISTER)
    assert await names.kept("www", "TXT") == {'"ab" "c"': False}


@needs_powerdns
@pytest.mark.req("EDGE-14")
async def test_a_cname_where_others_have_mail_is_refused_with_the_type(names: Names):
    await names.park("mail", "MX", **{"10 mx.example.": False})
    outcome = await names.change("mail", "CNAME", "edge.example")
    assert outcome.status is OutcomeStatus.REJECTED
    assert "record of type MX" in outcome.message
    assert await names.kept("mail", "MX") == {"10 mx.example.": False}


COMPUTED = {"ALIAS": "www.example.org.", "LUA": "A \"'192.0.2.77'\""}


@needs_powerdns
@pytest.mark.req("EDGE-14")
@pytest.mark.parametrize("type_", COMPUTED)
@pytest.mark.parametrize("by_update", [False, True], ids=["api", "rfc2136"])
async def test_records_that_powerdns_computes_addresses_from_are_kept(server: PowerDNS, type_: str, *, by_update: bool):
    names = Names(server, by_update=by_update)
    try:
        theirs = {COMPUTED[type_]: False}
        await names.park("www", type_, **theirs)
        for of, value in (("A", "192.0.2.1"), ("AAAA", "2001:db8::1"), ("CNAME", "edge.example")):
            if (of, type_, by_update) == ("AAAA", "LUA", True):
                continue  # a server that computes A records only answers no AAAA, and shows no LUA record
            outcome = await names.change("www", of, value)
            assert outcome.status is OutcomeStatus.REJECTED, (of, outcome)
            assert "www.example.test has a record" in outcome.message
            assert type_ in outcome.message or (by_update and type_ == "LUA")
            assert await names.kept("www", of) == {}
            await names.change("www", of, value, Action.DEREGISTER)
            assert await names.kept("www", type_) == theirs
        assert await names.change("www", "TXT", "token") == DONE
        await names.change("www", "TXT", "token", Action.DEREGISTER)
        assert await names.kept("www", type_) == theirs
        # Theirs that come after ours stay too, when ours go.
        assert await names.change("late", "A", "192.0.2.1") == DONE
        await names.park("late", type_, **theirs)
        await names.change("late", "A", "192.0.2.1", Action.DEREGISTER)
        assert (await names.kept("late", type_), await names.kept("late", "A")) == (theirs, {})
    finally:
        await names.subject.tested.close()


@needs_powerdns
async def test_what_another_client_writes_between_reading_and_writing_is_not_lost(server: PowerDNS):
    """The API replaces whole sets without a condition; one that changed is planned again, with the other's value."""
    settings = settings_from_spec(PowerDNSSubject(server).spec("www"), own=PARAMETERS).server
    client = PowerDNSServer(settings, secrets=Key(server))
    key = RRKey("www.example.test", "TXT")
    ours = [Edit(key, "ours", 60, True)]
    try:
        there = await client.read({key})
        await server.write("www.example.test", "TXT", '"theirs"')
        assert not await client.update(ours, there)
        assert await server.ask(*key) == {"theirs"}
        assert await client.update(ours, await client.read({key}))
        assert await server.ask(*key) == {"theirs", "ours"}
    finally:
        await client.close()
