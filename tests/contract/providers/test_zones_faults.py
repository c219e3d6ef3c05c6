"""Faults of a DNS server: each has an error that names the server and the next step, and nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import dns.message
import dns.rcode
import pytest

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.rfc2136.provider import create
from fairlead_demo.worlds.name_servers import Bind, binary
from tests.contract.providers.provider_processes import BindKeys
from tests.worlds.faulty_dns import (
    FaultyDNS,
    drop_request,
    drop_response,
    error_response,
    false_success,
    no_fault,
    truncate_response,
)

pytestmark = pytest.mark.skipif(
    binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root"
)


class Names:
    """A provider whose server has faults, and the BIND behind it."""

    def __init__(self, bind: Bind, dns: FaultyDNS) -> None:
        self.bind = bind
        self.dns = dns
        self.provider: DNSProvider = create(secrets=BindKeys(bind))

    def spec(self, name: str, **more: str) -> FrontendSpec:
        parameters = {
            "zone": self.bind.zone,
            "host": f"{name}.{self.bind.zone}",
            "ownerId": "tests",
            "server": self.dns.server,
            "keyName": "fairlead",
            "credentials": "fairlead",
            **more,
        }
        key = LoadBalancerKey("Hostname", "fairlead-system", name)
        return FrontendSpec(key, "", (), health_check=None, parameters=parameters)

    def change(self, name: str, value: str = "192.0.2.1") -> TargetChange:
        target = Target(TargetKey(value, RECORD_PORT), parameters=(("ttl", "60"),))
        return TargetChange(self.spec(name).key, backend_key("A"), target, Action.REGISTER, Reason.NEW)

    async def ensured(self, *names: str, **more: str) -> None:
        for name in names:
            await self.provider.ensure(self.spec(name, **more))

    async def fails(self, *texts: str) -> Retry:
        """Apply one name and return the error."""
        with pytest.raises(Retry) as raised:
            await self.provider.apply([self.change("www")])
        assert all(text in raised.value.sentence for text in (*texts, self.dns.server, self.bind.zone))
        return raised.value

    async def recovers(self) -> None:
        """Without the fault the same change is made, once."""
        self.dns.queries = self.dns.updates = no_fault
        assert list(await self.provider.apply([self.change("www")])) == [DONE]
        assert await self.bind.ask("www.example.test", "A") == {"192.0.2.1"}
        assert len(await self.bind.ask("fairlead-a.www.example.test", "TXT")) == 1


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[Names]:
    bind = Bind(tmp_path / "bind")
    await bind.start()
    faulty = FaultyDNS(bind)
    await faulty.start()
    made = Names(bind, faulty)
    yield made
    await made.provider.close()
    await faulty.stop()
    await bind.kill()


async def test_different_clocks_are_reported_and_nothing_is_lost(names: Names, monkeypatch: pytest.MonkeyPatch):
    """BIND itself refuses a signature of an hour ago."""
    await names.ensured("www")
    with monkeypatch.context() as patch:
        patch.setattr(dns.message, "time", SimpleNamespace(time=lambda: time.time() - 3600))
        error = await names.fails("BADTIME", "NTP")
    assert error.reason == "DNSClockSkew"
    await names.recovers()


@pytest.mark.parametrize(
    ("rcode", "step"),
    [
        (dns.rcode.SERVFAIL, "the zone may not be loaded"),
        (dns.rcode.REFUSED, "allow-update or update-policy"),
        (dns.rcode.NOTAUTH, "primary server"),
        (dns.rcode.NOTIMP, "dynamic updates"),
    ],
)
async def test_an_update_that_is_refused_says_so_and_nothing_is_lost(names: Names, rcode: dns.rcode.Rcode, step: str):
    await names.ensured("www")
    names.dns.updates = error_response(rcode)
    await names.fails(f"answers an update about zone example.test with {dns.rcode.to_text(rcode)}", step)
    await names.recovers()


async def test_a_query_that_is_refused_says_so_and_no_update_is_sent(names: Names):
    await names.ensured("www")
    names.dns.queries = error_response(dns.rcode.SERVFAIL)
    await names.fails("answers a query about zone example.test with SERVFAIL")
    assert names.dns.update_count == 0
    await names.recovers()


async def test_a_server_that_never_answers_is_given_up_after_its_timeout(names: Names):
    await names.ensured("www", timeout="1s")
    names.dns.queries = drop_request
    error = await names.fails("gave no answer within 1 s", "parameters.timeout")
    assert error.reason == "DNSTimeout"
    await names.recovers()


async def test_an_update_that_was_done_without_an_answer_is_not_done_twice(names: Names):
    await names.ensured("www", timeout="1s")
    names.dns.updates = drop_response
    await names.fails("gave no answer within 1 s")
    await names.recovers()


async def test_half_an_answer_is_none(names: Names):
    await names.ensured("www")
    names.dns.updates = truncate_response
    await names.fails("cannot be read")
    await names.recovers()


async def test_a_server_that_lies_is_caught_when_it_is_read_back(names: Names):
    await names.ensured("www")
    names.dns.updates = false_success(names.bind)
    (outcome,) = await names.provider.apply([names.change("www")])
    assert outcome.status is OutcomeStatus.RETRY
    assert "returns no A record" in outcome.message
    observed = await names.provider.observe(names.spec("www").key)
    assert observed is not None
    assert observed.targets == ()
    await names.recovers()


async def test_an_answer_without_a_signature_is_not_believed(names: Names):
    await names.ensured("www")
    names.dns.updates = error_response(dns.rcode.NOERROR)
    await names.fails("without a signature", "parameters.keyName")
    await names.recovers()


async def test_when_only_the_first_of_two_updates_is_done_the_other_follows(names: Names):
    hosts = [f"n{number}" for number in range(4)]
    await names.ensured(*hosts, maxRecords="4")

    async def second_fails(question: bytes, forward):
        if names.dns.update_count > 1:
            return await error_response(dns.rcode.SERVFAIL)(question, forward)
        return await forward(question)

    names.dns.updates = second_fails
    changes = [names.change(host) for host in hosts]
    outcomes = await names.provider.apply(changes)
    assert [outcome.status for outcome in outcomes].count(OutcomeStatus.RETRY) == 2
    assert all(outcome == DONE or "SERVFAIL" in outcome.message for outcome in outcomes)
    answered = [await names.bind.ask(f"{host}.example.test", "A") for host in hosts]
    assert answered.count({"192.0.2.1"}) == 2
    names.dns.updates = no_fault
    assert list(await names.provider.apply(changes)) == [DONE] * 4
    assert all([await names.bind.ask(f"{host}.example.test", "A") == {"192.0.2.1"} for host in hosts])
