"""Two hubs with one ownerId write one name at a real BIND: both say so."""

from __future__ import annotations

import pytest

from fairlead.model.change import DONE
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.rfc2136.provider import create
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.contract import additions, removals
from fairlead_demo.worlds.name_servers import Bind, binary
from tests.contract.providers.provider_processes import BindKeys

pytestmark = [
    pytest.mark.req("C-53"),
    pytest.mark.skipif(binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root"),
]


class OneHub:
    def __init__(self, bind: Bind, clock: VirtualClock, *, owner: str, address: str) -> None:
        self.names: DNSProvider = create(secrets=BindKeys(bind), clock=clock)
        self.key = LoadBalancerKey("Hostname", "fairlead-system", "www")
        parameters = {
            "zone": bind.zone,
            "host": f"www.{bind.zone}",
            "ownerId": owner,
            "server": bind.server,
            "keyName": "fairlead",
            "credentials": "fairlead",
        }
        self.spec = FrontendSpec(self.key, "", (), health_check=None, parameters=parameters)
        self.target = [TargetKey(address, RECORD_PORT)]

    async def write(self) -> None:
        await self.names.ensure(self.spec)
        assert await self.names.apply(additions(self.spec, self.target)) == [DONE]

    async def says(self) -> str:
        observed = await self.names.observe(self.key)
        assert observed is not None
        assert observed.health is not None
        return observed.health.message


@pytest.mark.parametrize("theirs", ["hub-1", "hub-2"])
async def test_the_hub_that_wrote_first_says_so_once_it_reads_the_name_back(bind: Bind, theirs: str):
    clock = VirtualClock()
    first = OneHub(bind, clock, owner="hub-1", address="192.0.2.1")
    second = OneHub(bind, clock, owner=theirs, address="192.0.2.2")
    await first.write()
    assert await first.says() == f"{bind.server} answers 1 of 1 records"
    await second.write()
    assert ("ownerId hub-1" in await second.says()) == (theirs == "hub-1")
    assert "ownerId" not in await first.says(), "an update of its own may be under way"
    clock.jump(20)
    said = await first.says()
    assert ("A 192.0.2.2 is marked with ownerId hub-1" in said) == (theirs == "hub-1")
    assert await second.names.apply(removals(second.spec, second.target)) == [DONE]
    assert await first.says() == f"{bind.server} answers 1 of 1 records"
    for each in (first, second):
        await each.names.close()
